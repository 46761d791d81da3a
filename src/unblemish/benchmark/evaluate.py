"""Fit on the training split, score on another, with the truth that only a benchmark has."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from unblemish.benchmark.corruption import Corrupted, trusted_labels
from unblemish.data.schema import Array, Kind, Schema
from unblemish.metrics import average_precision, brier, smse
from unblemish.models import presets
from unblemish.models.base import Labels


class Fitted(Protocol):
    """What scores and repairs rows."""

    schema_: Schema

    def outlier_score(self, X: Array) -> NDArray[np.float64]: ...

    def repair(self, X: Array, *, unrounded: bool = False) -> Array: ...


@dataclass(frozen=True)
class Figures:
    """How well rows were told apart and repaired. `smse_clean_outliers` is over outlier rows alone."""

    avpr: float
    smse_dirty: float
    smse_clean: float
    smse_clean_outliers: float


def evaluate(cleaner: Fitted, data: Corrupted) -> Figures:
    """Figures of a fitted cleaner on rows whose truth is known; the repair is that of every row, as published."""
    repaired = cleaner.schema_.standardised(cleaner.repair(data.dirty, unrounded=True))
    return figures(data, cleaner.schema_, cleaner.outlier_score(data.dirty), repaired)


def figures(data: Corrupted, schema: Schema, outlier_score: Array, repaired: Array) -> Figures:
    """Figures of scores (N,), higher is worse, and repairs (N, D) of standardised cells."""
    truth = schema.standardised(data.clean)
    mask = data.mask.reshape(len(data), -1)
    error = brier if schema.kind is Kind.BINARY else smse
    return Figures(
        avpr=average_precision(data.is_outlier, outlier_score),
        smse_dirty=error(truth, repaired, mask),
        smse_clean=error(truth, repaired, ~mask),
        smse_clean_outliers=error(truth, repaired, ~mask & data.is_outlier[:, None]),
    )


def labels_for(model: str, train: Corrupted, per_class: int, seed: int) -> NDArray[np.int64]:
    """The trusted set; or, for a fully supervised baseline, the label of every row, as in the paper."""
    if presets.labels_needed(model) is Labels.EVERY_ROW:
        return (~train.is_outlier).astype(np.int64)
    return trusted_labels(train, per_class, seed)
