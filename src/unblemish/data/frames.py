"""Data frames: given back as they came."""

from __future__ import annotations

from typing import Any

from unblemish.errors import BadInput, listed


def _library(X: Any) -> str:
    name = type(X).__module__.split(".")[0]
    return name if name in ("pandas", "polars") and type(X).__name__ == "DataFrame" else ""


def like(original: Any, values: Any) -> Any:
    """`values` as a frame with the columns and index of `original`, where that is a pandas or polars frame."""
    match _library(original):
        case "pandas":
            frame = type(original)(values, index=original.index, columns=original.columns)
            return frame.astype(original.dtypes)
        case "polars":
            return type(original)(values, schema=original.schema)
        case _:
            return values


def check_frame(X: Any, name: str) -> None:
    """Columns of different types would change type on their way through one array."""
    if type(X).__name__ == "LazyFrame":
        raise BadInput(f"{name} is a lazy frame; call {name}.collect() first")
    if not _library(X):
        return
    dtypes = sorted({str(dtype) for dtype in X.dtypes})
    if len(dtypes) > 1:
        raise BadInput(f"{name} has columns of several types ({listed(dtypes)}); convert them to one, such as float64")
