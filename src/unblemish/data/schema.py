"""What a row is: raw values <-> standardised floats."""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict

from unblemish.data.frames import check_frame
from unblemish.errors import BadInput

Array = NDArray[Any]

HUGE = 1e150  # the square of anything larger is infinite
FAR = 1e18  # the same for standardised cells, which are float32
ROWS_AT_ONCE = 4096


class Kind(StrEnum):
    """What the cells hold, and so which likelihood they get."""

    BINARY = "binary"
    CONTINUOUS = "continuous"


class Schema(BaseModel):
    """An array's rows: their shape and dtype, and the affine map to what models see.

    encoded = (raw - mean) / scale. `low`, `high`, `mean` and `scale` hold one number for all cells of an image,
    one a column for a table. Binary cells are mapped to 0 and 1.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    kind: Kind
    shape: tuple[int, ...]
    dtype: str
    low: tuple[float, ...]
    high: tuple[float, ...]
    mean: tuple[float, ...]
    scale: tuple[float, ...]

    @classmethod
    def of(cls, X: Array) -> Schema:
        """The schema of checked data."""
        low, high = X.min(), X.max()
        if low == high:
            raise BadInput(
                f"every cell of X holds the same value, {low:g}, so there is nothing to learn; "
                "check that the right array was loaded"
            )
        is_table = X.ndim == 2 and X.dtype.kind == "f"  # its columns differ in scale
        if all(((part == low) | (part == high)).all() for _, part in parts(X)):
            kind, lows, highs = Kind.BINARY, np.array([low], np.float64), np.array([high], np.float64)
            mean, scale = lows, highs - lows
        else:
            kind = Kind.CONTINUOUS
            lows, highs = (X.min(0), X.max(0)) if is_table else (np.array([low]), np.array([high]))
            mean, scale = _mean_and_deviation(X, columns=X.shape[1] if is_table else 1)
        # a column that never changes has no scale, and none is needed
        scale = np.where(scale > 1e-12 * np.maximum(np.abs(mean), 1e-300), scale, 1.0)
        return cls(
            kind=kind,
            shape=X.shape[1:],
            dtype=X.dtype.name,
            low=tuple(map(float, lows)),
            high=tuple(map(float, highs)),
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
        if self.kind is not Kind.BINARY:
            return
        for start, part in parts(X):
            strange = (part != self.low[0]) & (part != self.high[0])
            if strange.any():
                row, cell = np.argwhere(strange)[0]
                raise BadInput(
                    f"X holds {part[row, cell]:g} in row {start + row}, cell {cell}, but the model was fitted on "
                    f"binary data of {self.low[0]:g} and {self.high[0]:g} alone; fit a new model on such data"
                )

    def encode(self, X: Array) -> NDArray[np.float32]:
        """(N, *shape) raw -> (N, D) standardised."""
        if self.is_bytes:
            return self._code_of_byte.take(X.reshape(len(X), -1).view(np.uint8))
        flat = self.standardised(X)
        if np.abs(flat).max(initial=0) > FAR:
            row, cell = np.argwhere(np.abs(flat) > FAR)[0]
            raise BadInput(
                f"X holds {X[row].reshape(-1)[cell]:g} in row {row}, cell {cell}, too far from what the model was "
                "fitted on to compute with; replace it, or leave the row out"
            )
        return flat.astype(np.float32)

    def standardised(self, values: Array) -> NDArray[np.float64]:
        """(N, *shape) raw, also between what the dtype could hold -> (N, D), in float64."""
        return (values.reshape(len(values), -1).astype(np.float64) - np.array(self.mean)) / np.array(self.scale)

    @property
    def is_bytes(self) -> bool:
        """Bytes are most of all data, and have short ways in and out."""
        return self.dtype in ("uint8", "bool") and len(self.mean) == 1

    @cached_property
    def _code_of_byte(self) -> NDArray[np.float32]:
        return ((np.arange(256) - self.mean[0]) / self.scale[0]).astype(np.float32)

    def decode(self, encoded: NDArray[Any]) -> NDArray[np.float64]:
        """(N, D) standardised -> (N, *shape) raw, unrounded."""
        raw = encoded.astype(np.float64) * np.array(self.scale) + np.array(self.mean)
        return raw.reshape(len(raw), *self.shape)

    def decode_rounded(self, encoded: NDArray[np.float32]) -> Array:
        """(N, D) standardised -> (N, *shape) raw values that the data could hold: of its dtype, within its range."""
        if not self.is_bytes:
            return self.to_raw(self.decode(encoded))
        if self.kind is Kind.BINARY:  # 0 and 1 until here
            raw = np.where(encoded > 0.5, np.uint8(self.high[0]), np.uint8(self.low[0]))
        else:
            values = encoded * np.float32(self.scale[0])
            values += np.float32(self.mean[0])
            raw = np.rint(values.clip(self.low[0], self.high[0], out=values), out=values).astype(np.uint8)
        return raw.view(self.dtype).reshape(len(raw), *self.shape)

    def to_raw(self, values: NDArray[np.float64]) -> Array:
        """Unrounded raw values -> values that the data could hold: of its dtype, within its range."""
        if self.kind is Kind.BINARY:
            values = np.where(values > (self.low[0] + self.high[0]) / 2, self.high[0], self.low[0])
        values = values.reshape(len(values), -1).clip(self.low, self.high).reshape(values.shape)
        dtype = np.dtype(self.dtype)
        if dtype.kind not in "iu":
            return values.astype(dtype)
        rounded, top = values.round(), np.iinfo(dtype).max
        return np.where(rounded >= float(top), top, rounded.clip(max=np.nextafter(float(top), 0)).astype(dtype))


def check_rows(X: Any, name: str = "X", *, at_least: int = 1) -> Array:
    """X as an array of rows that can be used, or one sentence that says why not."""
    if type(X).__module__.startswith("scipy.sparse"):
        raise BadInput(f"{name} is a sparse matrix, which is not supported; convert it with {name}.toarray()")
    if isinstance(X, np.ma.MaskedArray):
        raise BadInput(f"{name} is a masked array; replace what the mask hides with {name}.filled(value)")
    check_frame(X, name)
    try:
        X = np.asarray(X)
    except (ValueError, TypeError, RuntimeError) as error:
        raise BadInput(f"{name} cannot be made an array ({str(error)[:80]}); give an array of numbers") from error
    if X.dtype.kind not in "buif" or X.dtype.itemsize > 8:
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
    if len(X) < at_least:
        raise BadInput(f"{name} has one row only (1 sample); give many, to learn what they have in common")
    if X.dtype.kind == "f":
        _check_finite(X, name)
    return X


def _dtype_words(X: Array) -> str:
    if X.dtype.kind == "c":
        return "complex numbers (Complex data not supported)"
    words = {"O": "objects", "U": "text", "S": "bytes", "M": "dates", "m": "durations", "V": "records"}
    return words.get(X.dtype.kind, str(X.dtype))


def _check_finite(X: Array, name: str) -> None:
    for start, part in parts(X):
        usable = np.isfinite(part) & (np.abs(part) < min(HUGE, float(np.finfo(X.dtype).max)))
        if not usable.all():
            row, cell = np.argwhere(~usable)[0]
            value = float(part[row, cell])
            word = "NaN" if np.isnan(value) else "infinity (inf)" if np.isinf(value) else f"{value:g}"
            raise BadInput(
                f"{name} holds {word} in row {start + row}, cell {cell}; "
                "replace missing, infinite and enormous cells by numbers, or leave such rows out"
            )


def parts(X: Array) -> Iterator[tuple[int, Array]]:
    """(first row, rows as (n, D)), a few megabytes at a time: nothing here needs memory for all rows at once."""
    for start in range(0, len(X), ROWS_AT_ONCE):
        part = X[start : start + ROWS_AT_ONCE]
        yield start, part.reshape(len(part), -1)


def _mean_and_deviation(X: Array, columns: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Of each column, or of all cells where `columns` is 1; parts are joined by Chan's formula."""
    count, mean, squares = 0, np.zeros(columns), np.zeros(columns)
    for _, part in parts(X):
        values = part.reshape(-1, columns).astype(np.float64)
        n, its_mean = len(values), values.mean(0)
        shift = its_mean - mean
        squares += ((values - its_mean) ** 2).sum(0) + shift**2 * count * n / (count + n)
        mean = mean + shift * n / (count + n)
        count += n
    return mean, np.sqrt(squares / count)
