"""Plant systematic errors in clean images, and keep the truth."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

UNCHANGED = -1


@dataclass(frozen=True)
class Fill:
    """A systematic error that sets always the same cells to always the same value."""

    name: str
    cells: NDArray[np.bool_]  # (height, width)
    value: float


@dataclass(frozen=True)
class Corrupted:
    """Rows with errors, and what only a benchmark can know of them."""

    dirty: Array  # (N, height, width)
    clean: Array
    mask: NDArray[np.bool_]  # cells that were changed
    error: NDArray[np.int64]  # (N,) which error, or UNCHANGED
    data_class: NDArray[np.int64]  # (N,) what the row shows
    errors: tuple[Fill, ...]

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
    clean: Array, errors: tuple[Fill, ...], noise: float, seed: int, data_class: NDArray[np.int64] | None = None
) -> Corrupted:
    """Give a share `noise` of the rows, chosen at random, one of the errors each.

    A row whose corruption changes no cell stays an inlier.
    """
    rng = np.random.default_rng([seed, 1])
    n = len(clean)
    chosen = rng.permutation(n)[: round(noise * n)]
    error = np.full(n, UNCHANGED)
    error[chosen] = rng.integers(len(errors), size=len(chosen))
    dirty = clean.copy()
    for k, fill in enumerate(errors):
        dirty[np.ix_(error == k, *map(np.arange, fill.cells.shape))] = np.where(
            fill.cells, np.asarray(fill.value, clean.dtype), clean[error == k]
        )
    mask = dirty != clean
    error[~mask.any((1, 2))] = UNCHANGED
    return Corrupted(
        dirty, clean, mask, error, np.zeros(n, np.int64) if data_class is None else data_class, tuple(errors)
    )


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
