"""How good a cleaning is, where the truth is known: benchmarks and tests only."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


def average_precision(is_outlier: Array, outlier_score: Array) -> float:
    """AVPR: the area under the precision-recall curve as a sum of steps, ties taken together."""
    from sklearn.metrics import average_precision_score

    return float(average_precision_score(np.asarray(is_outlier, bool), outlier_score))


def smse(truth: Array, repaired: Array, cells: Array) -> float:
    """Standardised mean squared error over the chosen cells (N, D) of standardised values.

    For each column, squared error over squared true values; then the mean over the columns that have any
    chosen cell (and any true value other than 0).
    """
    error, power = _sums(truth, repaired, cells)
    usable = power > 0
    return float(np.mean(error[usable] / power[usable]))


def brier(truth: Array, repaired: Array, cells: Array) -> float:
    """The same for binary cells: for each column the mean squared error; then the mean over columns."""
    error, _ = _sums(truth, repaired, cells)
    count = cells.sum(0)
    usable = count > 0
    return float(np.mean(error[usable] / count[usable]))


def _sums(truth: Array, repaired: Array, cells: Array) -> tuple[Array, Array]:
    truth, repaired = np.asarray(truth, np.float64), np.asarray(repaired, np.float64)
    error = np.where(cells, (truth - repaired) ** 2, 0.0).sum(0)
    power = np.where(cells, truth**2, 0.0).sum(0)
    return error, power
