"""What a row is: raw values <-> standardised floats."""

from __future__ import annotations

from enum import StrEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict

from unblemish.errors import BadInput

Array = NDArray[Any]


class Kind(StrEnum):
    """What the cells hold, and so which likelihood they get."""

    BINARY = "binary"
    CONTINUOUS = "continuous"


class Schema(BaseModel):
    """An array's rows: their shape and dtype, and the affine map to what models see.

    encoded = (raw - mean) / scale, one pair for all cells of an image, one a column for a table.
    Binary cells are mapped to 0 and 1.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    kind: Kind
    shape: tuple[int, ...]
    dtype: str
    low: float
    high: float
    mean: tuple[float, ...]
    scale: tuple[float, ...]

    @classmethod
    def of(cls, X: Array) -> Schema:
        """The schema of checked data."""
        low, high = float(X.min()), float(X.max())
        if low == high:
            raise BadInput(
                f"every cell of X holds the same value, {low:g}, so there is nothing to learn; "
                "check that the right array was loaded"
            )
        if bool(np.all((X == low) | (X == high))):
            kind, mean, scale = Kind.BINARY, np.array([low]), np.array([high - low])
        elif X.ndim == 2 and X.dtype.kind == "f":
            kind, mean, scale = Kind.CONTINUOUS, X.mean(0, dtype=np.float64), X.std(0, dtype=np.float64)
        else:
            kind = Kind.CONTINUOUS
            mean, scale = np.array([X.mean(dtype=np.float64)]), np.array([X.std(dtype=np.float64)])
        # a column that never changes has no scale, and none is needed
        scale = np.where(scale > 1e-12 * np.maximum(np.abs(mean), 1e-300), scale, 1.0)
        return cls(
            kind=kind,
            shape=X.shape[1:],
            dtype=X.dtype.name,
            low=low,
            high=high,
            mean=tuple(mean.tolist()),
            scale=tuple(scale.tolist()),
        )

    @property
    def cells(self) -> int:
        return int(np.prod(self.shape))

    def check(self, X: Array) -> None:
        """Refuse data that this schema does not describe."""
        if X.shape[1:] != self.shape:
            raise BadInput(f"X has rows of shape {X.shape[1:]}, but the model was fitted on rows of shape {self.shape}")
        if X.dtype.name != self.dtype:
            raise BadInput(
                f"X is {X.dtype.name}, but the model was fitted on {self.dtype}; "
                f"convert it with X.astype('{self.dtype}')"
            )
        if self.kind is Kind.BINARY:
            flat = X.reshape(len(X), -1)
            strange = ~((flat == self.low) | (flat == self.high))
            if strange.any():
                row, cell = np.argwhere(strange)[0]
                raise BadInput(
                    f"X holds {flat[row, cell]:g} in row {row}, cell {cell}, but the model was fitted on binary data "
                    f"of {self.low:g} and {self.high:g} alone; fit a new model on such data"
                )

    def encode(self, X: Array) -> NDArray[np.float32]:
        """(N, *shape) raw -> (N, D) standardised."""
        flat = X.reshape(len(X), -1).astype(np.float64)
        return ((flat - np.array(self.mean)) / np.array(self.scale)).astype(np.float32)

    def decode(self, encoded: NDArray[Any]) -> NDArray[np.float64]:
        """(N, D) standardised -> (N, *shape) raw, unrounded."""
        raw = encoded.astype(np.float64) * np.array(self.scale) + np.array(self.mean)
        return raw.reshape(len(raw), *self.shape)

    def to_raw(self, values: NDArray[np.float64]) -> Array:
        """Unrounded raw values -> values that the data could hold: of its dtype, within its range."""
        if self.kind is Kind.BINARY:
            values = np.where(values > (self.low + self.high) / 2, self.high, self.low)
        values = values.clip(self.low, self.high)
        dtype = np.dtype(self.dtype)
        return (values if dtype.kind == "f" else values.round()).astype(dtype)


def check_rows(X: Any, name: str = "X") -> Array:
    """X as an array of rows that can be used, or one sentence that says why not."""
    if type(X).__module__.startswith("scipy.sparse"):
        raise BadInput(f"{name} is a sparse matrix, which is not supported; convert it with {name}.toarray()")
    X = np.asarray(X)
    if X.dtype.kind not in "buif":
        raise BadInput(f"{name} holds {_dtype_words(X)}; give an array of numbers (uint8, bool, float32 or float64)")
    if X.ndim < 2 or X.ndim > 4:
        raise BadInput(
            f"{name} has shape {X.shape}; rows must be (N, D), (N, height, width) or (N, height, width, channels). "
            "Reshape your data"
        )
    if 0 in X.shape:
        missing = "sample(s)" if len(X) == 0 else "feature(s)"
        raise BadInput(
            f"{name} has 0 {missing} (shape={X.shape}) while a minimum of 1 is required; give rows that have cells"
        )
    if X.dtype.kind == "f":
        _check_finite(X, name)
    return X


def _dtype_words(X: Array) -> str:
    if X.dtype.kind == "c":
        return "complex numbers (Complex data not supported)"
    return {"O": "objects", "U": "text", "S": "bytes", "M": "dates", "m": "durations"}.get(X.dtype.kind, str(X.dtype))


def _check_finite(X: Array, name: str, rows_at_once: int = 65536) -> None:
    for start in range(0, len(X), rows_at_once):
        finite = np.isfinite(X[start : start + rows_at_once].reshape(min(rows_at_once, len(X) - start), -1))
        if not finite.all():
            row, cell = np.argwhere(~finite)[0]
            value = X[start + row].reshape(-1)[cell]
            word = "NaN" if np.isnan(value) else "infinity (inf)"
            raise BadInput(
                f"{name} holds {word} in row {start + row}, cell {cell}; "
                "replace missing and infinite cells by numbers, or leave such rows out"
            )
