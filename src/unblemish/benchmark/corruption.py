"""Plant systematic errors in clean images, and keep the truth."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from unblemish.data.schema import check_rows
from unblemish.errors import BadInput, check_share, check_whole

Array = NDArray[Any]

UNCHANGED = -1


class Error(Protocol):
    """What corrupts a row."""

    @property
    def name(self) -> str: ...

    @property
    def cells(self) -> NDArray[np.bool_]:
        """Those that it may change, of a row's shape."""

    def __call__(self, rows: Array, rng: np.random.Generator) -> Array:
        """(N, ...) rows as they come out of it, of any number type: `corrupt` rounds them to what the data can hold."""


@dataclass(frozen=True)
class Fill:
    """A systematic error that sets always the same cells to always the same value."""

    name: str
    cells: NDArray[np.bool_]  # of a row's shape
    value: float

    def __call__(self, rows: Array, rng: np.random.Generator) -> Array:  # noqa: ARG002
        return np.where(self.cells, np.asarray(self.value).astype(rows.dtype), rows)


@dataclass(frozen=True)
class Affine:
    """factor * value + offset in some cells: an offset, a dimmed part, or a mark blended in with
    factor 1 - alpha and offset alpha * mark."""

    name: str
    cells: NDArray[np.bool_]
    factor: float
    offset: Any  # a number, or one for each cell

    def __call__(self, rows: Array, rng: np.random.Generator) -> Array:  # noqa: ARG002
        return np.where(self.cells, self.factor * rows.astype(np.float64) + self.offset, rows)


@dataclass(frozen=True)
class Salt:
    """No systematic error: cells drawn anew for every row, each set to one of the values."""

    name: str
    cells: NDArray[np.bool_]
    share: float  # of the cells
    values: tuple[float, ...]

    def __call__(self, rows: Array, rng: np.random.Generator) -> Array:
        hit = (rng.random(rows.shape) < self.share) & self.cells
        return np.where(hit, rng.choice(self.values, rows.shape), rows)


@dataclass(frozen=True)
class OneOf:
    """One of several errors, drawn anew for every row."""

    name: str
    errors: tuple[Error, ...]

    @property
    def cells(self) -> NDArray[np.bool_]:
        return np.any([error.cells for error in self.errors], 0)

    def __call__(self, rows: Array, rng: np.random.Generator) -> Array:
        choice = rng.integers(len(self.errors), size=len(rows))
        out = rows.astype(np.float64)
        for k, error in enumerate(self.errors):
            out[choice == k] = error(rows[choice == k], rng)
        return out


@dataclass(frozen=True)
class Both:
    """Two errors in one row."""

    name: str
    first: Error
    second: Error

    @property
    def cells(self) -> NDArray[np.bool_]:
        return np.asarray(self.first.cells | self.second.cells)

    def __call__(self, rows: Array, rng: np.random.Generator) -> Array:
        return self.second(self.first(rows, rng), rng)


@dataclass(frozen=True)
class Corrupted:
    """Rows with errors, and what only a benchmark can know of them."""

    dirty: Array  # (N, ...)
    clean: Array
    mask: NDArray[np.bool_]  # cells that were changed
    error: NDArray[np.int64]  # (N,) which error, or UNCHANGED
    data_class: NDArray[np.int64]  # (N,) what the row shows
    errors: tuple[Error, ...]

    def __getitem__(self, rows: Any) -> Corrupted:
        return Corrupted(
            self.dirty[rows], self.clean[rows], self.mask[rows], self.error[rows], self.data_class[rows], self.errors
        )

    def __len__(self) -> int:
        return len(self.dirty)

    @property
    def is_outlier(self) -> NDArray[np.bool_]:
        return self.error != UNCHANGED


def lines(value: float = 1.0, height: int = 28, width: int = 28) -> tuple[Fill, ...]:
    """The paper's four lines across a 28x28 image, one cell thick."""
    row, column = np.indices((height, width))
    cells = {
        "column 20": column == 20,
        "row 15": row == 15,
        "upper diagonal": row + column == 15,
        "lower diagonal": row + column == 38,
    }
    return tuple(Fill(name, where, value) for name, where in cells.items())


def coloured(errors: tuple[Fill, ...], values: Sequence[float], seed: int) -> tuple[Fill, ...]:
    """The same errors, each of one of the values drawn by the seed."""
    rng = np.random.default_rng([seed, 5])
    return tuple(replace(error, value=float(rng.choice(values))) for error in errors)


def squares(
    height: int, width: int, values: Sequence[float], seed: int, count: int = 4, side: int = 6
) -> tuple[Fill, ...]:
    """Squares that do not overlap, each at a place and of one of the values drawn by the seed."""
    rng = np.random.default_rng([seed, 4])
    errors: list[Fill] = []
    taken = np.zeros((height, width), bool)
    while len(errors) < count:
        top, left = rng.integers(height - side + 1), rng.integers(width - side + 1)
        cells = np.zeros((height, width), bool)
        cells[top : top + side, left : left + side] = True
        if not (cells & taken).any():
            taken |= cells
            errors.append(Fill(f"square {len(errors) + 1}", cells, float(rng.choice(values))))
    return tuple(errors)


def corrupt(
    clean: Array,
    errors: Sequence[Error],
    noise: float = 0.35,
    seed: int = 0,
    data_class: NDArray[np.int64] | None = None,
) -> Corrupted:
    """Give a share `noise` of the rows, chosen at random, one of the errors each: each error as likely as any other.

    clean: (N, ...), rows of any shape; data_class: (N,), what each row shows, where trusted labels are wanted for
    each class. A row whose corruption changes no cell stays an inlier.

    >>> data = corrupt(images, [Fill("dead column", columns == 20, 0)], noise=0.35, seed=0)
    >>> y = trusted_labels(data, per_class=10, seed=0)
    >>> cleaner = Cleaner().fit(data.dirty, y)
    """
    clean = check_rows(clean, "clean")
    check_share("noise", noise)
    check_whole("seed", seed, least=0)
    if not errors:
        raise BadInput("errors is empty; give at least one, such as a Fill")
    for one in errors:
        if one.cells.shape != clean.shape[1:]:
            raise BadInput(
                f"{one.name!r} has cells of shape {one.cells.shape}, but rows of clean have {clean.shape[1:]}"
            )
    rng = np.random.default_rng([seed, 1])
    n = len(clean)
    chosen = rng.permutation(n)[: round(noise * n)]
    error = np.full(n, UNCHANGED)
    error[chosen] = rng.integers(len(errors), size=len(chosen))
    dirty = clean.copy()
    for k, one in enumerate(errors):
        values = one(clean[error == k], np.random.default_rng([seed, 6, k]))
        dirty[error == k] = values if values.dtype == clean.dtype else _as_held(values, clean)
    mask = dirty != clean
    error[~mask.reshape(n, -1).any(1)] = UNCHANGED
    kinds = np.zeros(n, np.int64) if data_class is None else np.asarray(data_class)
    return Corrupted(dirty, clean, mask, error, kinds, tuple(errors))


def _as_held(values: Array, clean: Array) -> Array:
    """Values as these data can hold them: rounded to whole numbers, within what the clean data span."""
    if clean.dtype.kind in "iu":
        values = values.round()
    return values.clip(clean.min(), clean.max()).astype(clean.dtype)


def trusted_labels(data: Corrupted, per_class: int, seed: int) -> NDArray[np.int64]:
    """(N,) labels: 1 and 0 for `per_class` rows of each data class and each error, -1 elsewhere.

    A smaller trusted set is part of every larger one of the same seed.
    """
    y = np.full(len(data), -1)
    for k in range(len(data.errors)):
        y[_some(np.flatnonzero(data.error == k), per_class, seed, k)] = 0
    for k in np.unique(data.data_class):
        inliers = np.flatnonzero((data.data_class == k) & ~data.is_outlier)
        y[_some(inliers, per_class, seed, len(data.errors) + int(k))] = 1
    return y


def _some(rows: NDArray[np.int64], count: int, seed: int, stream: int) -> NDArray[np.int64]:
    return np.random.default_rng([seed, 2, stream]).permutation(rows)[:count]
