"""The paper's experiments; and its corruption, for data of one's own."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from unblemish.benchmark.corruption import (
        Affine,
        Both,
        Corrupted,
        Fill,
        OneOf,
        Salt,
        coloured,
        corrupt,
        lines,
        squares,
        trusted_labels,
    )

__all__ = [
    "Affine",
    "Both",
    "Corrupted",
    "Fill",
    "OneOf",
    "Salt",
    "coloured",
    "corrupt",
    "lines",
    "squares",
    "trusted_labels",
]


def __getattr__(name: str) -> Any:
    """Names are imported when they are first used: the command line's help does not wait for numpy."""
    if name in __all__:
        return getattr(import_module("unblemish.benchmark.corruption"), name)
    raise AttributeError(f"module 'unblemish.benchmark' has no attribute {name!r}")
