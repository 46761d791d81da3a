"""A baseline without a network: values that repeat are found by counting, and filled in from the other cells."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unblemish.data.schema import Array, Schema

LEAST, MOST = 0.02, 0.5  # of the rows that hold a value in a cell, for it to be an error's
TOGETHER = 0.8  # of the rows that hold one cell's value or another's, those that hold both, for one error's
CELLS = 5  # at least, for an error
ENOUGH = 10_000  # rows to count in
RIDGE = 1e-2  # of the mean variance


@dataclass(frozen=True, eq=False)
class Mark:
    """Cells that hold the same value in the same rows."""

    cells: NDArray[np.int64]
    value: NDArray[Any]

    def shown(self, rows: Array) -> NDArray[np.bool_]:
        return np.asarray((rows[:, self.cells] == self.value).all(1))


class Counting:
    """Looks for marks in rows, without any label: score 1 for a row that shows one, its cells given by a Gaussian.

    E[x_M | x_O] = mu_M + C_MO C_OO^-1 (x_O - mu_O), mu and C those of the rows without a mark.
    """

    def fit(self, X: Array, y: Any = None) -> Counting:  # noqa: ARG002
        self.schema_ = Schema.of(X)
        rows = X.reshape(len(X), -1)
        some = np.random.default_rng(0).permutation(rows)[:ENOUGH]
        self.marks: list[Mark] = []
        marked = np.zeros(len(some), bool)
        for mark in sorted(_marks(some), key=lambda mark: int(mark.shown(some).sum())):
            if (
                marked | mark.shown(some)
            ).mean() <= MOST:  # most rows are inliers: the commonest marks are how they are
                self.marks.append(mark)
                marked |= mark.shown(some)
        shown = self._shown(rows).any(1)
        clean = self.schema_.standardised(X[~shown])
        self.mean = clean.mean(0)
        self.covariance = np.cov(clean.T)
        self.covariance[np.diag_indices(len(self.covariance))] += RIDGE * np.trace(self.covariance) / clean.shape[1]
        return self

    def outlier_score(self, X: Array) -> NDArray[np.float64]:
        return np.asarray(self._shown(X.reshape(len(X), -1)).any(1), np.float64)

    def repair(self, X: Array, *, unrounded: bool = True) -> Array:
        """The expected values of marked cells; all others are the rows'."""
        shown = self._shown(X.reshape(len(X), -1))
        out = self.schema_.standardised(X)
        for kind in np.unique(shown[shown.any(1)], axis=0):
            rows = np.flatnonzero((shown == kind).all(1))
            lost = np.zeros(out.shape[1], bool)
            for mark, has in zip(self.marks, kind, strict=True):
                if has:
                    lost[mark.cells] = True
            weights = np.linalg.solve(self.covariance[np.ix_(~lost, ~lost)], self.covariance[np.ix_(~lost, lost)])
            out[np.ix_(rows, lost)] = self.mean[lost] + (out[np.ix_(rows, ~lost)] - self.mean[~lost]) @ weights
        values = self.schema_.decode(out).clip(min(self.schema_.low), max(self.schema_.high))
        return np.asarray(values) if unrounded else self.schema_.to_raw(np.asarray(values))

    def _shown(self, rows: Array) -> NDArray[np.bool_]:
        return np.stack([mark.shown(rows) for mark in self.marks] or [np.zeros(len(rows), bool)], 1)


def _marks(rows: Array) -> list[Mark]:
    """Groups of (cell, value) that are held by nearly the same rows, the largest first."""
    held: list[tuple[int, Any, NDArray[np.bool_]]] = []
    for cell in range(rows.shape[1]):
        values, counts = np.unique(rows[:, cell], return_counts=True)
        for value in values[(counts >= LEAST * len(rows)) & (counts <= MOST * len(rows))]:
            held.append((cell, value, rows[:, cell] == value))
    if not held:
        return []
    by = np.stack([who for _, _, who in held]).astype(np.float32)  # (cells and values, rows)
    both = by @ by.T
    alone = both.diagonal()
    alike = both / (alone[:, None] + alone - both) >= TOGETHER
    free, marks = np.ones(len(held), bool), []
    for k in np.argsort(-alike.sum(1), kind="stable"):
        group = np.flatnonzero(alike[k] & free)
        cells, first = np.unique([held[g][0] for g in group], return_index=True)
        if free[k] and len(cells) >= CELLS:
            marks.append(Mark(cells, np.array([held[group[i]][1] for i in first])))
            free[group] = False
    return marks
