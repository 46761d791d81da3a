"""Plant systematic errors in clean images, and keep the truth."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unblemish.data.schema import check_rows
from unblemish.errors import BadInput, check_share, check_whole

Array = NDArray[Any]

UNCHANGED = -1


@dataclass(frozen=True)
class Fill:
    """A systematic error that sets always the same cells to always the same value."""

    name: str
    cells: NDArray[np.bool_]  # of a row's shape
    value: float


@dataclass(frozen=True)
class Corrupted:
    """Rows with errors, and what only a benchmark can know of them."""

    dirty: Array  # (N, ...)
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
    clean: Array,
    errors: Sequence[Fill],
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
        raise BadInput("errors is empty; give at least one Fill")
    for fill in errors:
        if fill.cells.shape != clean.shape[1:]:
            raise BadInput(
                f"{fill.name!r} has cells of shape {fill.cells.shape}, but rows of clean have {clean.shape[1:]}"
            )
    rng = np.random.default_rng([seed, 1])
    n = len(clean)
    chosen = rng.permutation(n)[: round(noise * n)]
    error = np.full(n, UNCHANGED)
    error[chosen] = rng.integers(len(errors), size=len(chosen))
    dirty = clean.copy()
    for k, fill in enumerate(errors):
        dirty[error == k] = np.where(fill.cells, np.asarray(fill.value).astype(clean.dtype), clean[error == k])
    mask = dirty != clean
    error[~mask.reshape(n, -1).any(1)] = UNCHANGED
    kinds = np.zeros(n, np.int64) if data_class is None else np.asarray(data_class)
    return Corrupted(dirty, clean, mask, error, kinds, tuple(errors))


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
