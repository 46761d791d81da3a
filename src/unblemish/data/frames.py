"""Data frames: given back as they came."""

from __future__ import annotations

from typing import Any

from unblemish.errors import BadInput


def like(original: Any, values: Any) -> Any:
    """`values` as a frame with the columns and index of `original`, where that is a pandas or polars frame."""
    library = type(original).__module__.split(".")[0]
    if library == "pandas":
        frame = type(original)(values, index=original.index, columns=original.columns)
        return frame.astype(original.dtypes)
    if library == "polars":
        return type(original)(values, schema=original.schema)
    return values


def check_frame(X: Any) -> None:
    """Columns of different types belong to a table; until tables are read, they would change type on the way."""
    if type(X).__module__.split(".")[0] in ("pandas", "polars"):
        dtypes = {str(dtype) for dtype in X.dtypes}
        if len(dtypes) > 1:
            raise BadInput(
                f"X has columns of several types ({', '.join(sorted(dtypes))}); convert them to one, such as float64"
            )
