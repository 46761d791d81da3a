"""What a row holds: patterns where there are any, and the model's own judgement for the rest."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import expit

from unblemish.models.clsvae import Clsvae
from unblemish.patterns.catalogue import CERTAIN, Catalogue

FAR = (
    3.0  # deviations of the model's likelihood: a cell this far from its clean estimate is part of an unexplained error
)


class Examination(NamedTuple):
    """Of some rows: (B,), (B, K), and (B, D) standardised."""

    score: NDArray[np.float64]
    probability: NDArray[np.float64]  # of each pattern
    values: NDArray[np.float32]
    mask: NDArray[np.bool_]  # cells that show an error
    deviation: NDArray[np.float32]  # of their repair


def examine(
    catalogue: Catalogue,
    model: Clsvae,
    x: torch.Tensor,
    logit: NDArray[np.float64],
    threshold: float,
    *,
    repair: bool = True,
) -> Examination:
    """Score rows and repair the cells that patterns touched; outliers that none explains by the model's own repair.

    P(outlier) = 1 - prod_k (1 - P(pattern k)); a row without a pattern has the model's score, times the share of errors
    among the rows that the model alone suspects.
    """
    rows = x.cpu().numpy()
    probability = catalogue.probability(rows)
    explained = 1 - np.prod(1 - probability, axis=1)
    score = np.maximum(explained, catalogue.unexplained * expit(-logit))
    if not repair:
        nothing = np.zeros((len(rows), 0), np.float32)
        return Examination(score, probability, nothing, nothing.astype(bool), nothing)
    values, mask, deviation = catalogue.undo(rows, probability >= CERTAIN)
    alone = np.flatnonzero((score >= threshold) & (probability < CERTAIN).all(1))
    if len(alone):
        with torch.no_grad():
            some = x[torch.from_numpy(alone)]
            clean = model.likelihood.mean(model.repair(some)).cpu().numpy()
        off = np.abs(rows[alone] - clean)
        natural = catalogue.natural
        mask[alone] = off > FAR * natural
        values[alone] = np.where(mask[alone], clean, rows[alone])
        deviation[alone] = np.where(mask[alone], natural, 0)
    return Examination(score, probability, values, mask, deviation)
