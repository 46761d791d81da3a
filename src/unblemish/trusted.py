"""How far the trusted set can be relied on: its own error rate, judged by fits that had not seen its labels."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import suppress
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import betaincinv

from unblemish.data.labels import INLIER, OUTLIER, UNLABELLED
from unblemish.data.rows import Rows
from unblemish.errors import Diverged
from unblemish.models.base import Model
from unblemish.models.recipe import Recipe
from unblemish.training import Progress, train

LABELS_NEEDED = 10  # of each kind; with fewer, a fold would leave too little to learn from


@dataclass(frozen=True)
class TrustedError:
    """How often trusted rows are told wrong at the threshold.

    folds: into how many parts the trusted set was cut, each judged by a fit that had not seen its
    labels; 0 where labels were too few, so that the model itself judged the rows it had learnt from.
    """

    inliers: int
    inliers_flagged: int
    outliers: int
    outliers_missed: int
    folds: int

    @classmethod
    def of(cls, is_outlier: NDArray[np.bool_], y: NDArray[np.int64], folds: int) -> TrustedError | None:
        """None if either kind has no label."""
        flags_of_inliers, flags_of_outliers = is_outlier[y == INLIER], is_outlier[y == OUTLIER]
        if not (len(flags_of_inliers) and len(flags_of_outliers)):
            return None
        return cls(
            len(flags_of_inliers),
            int(flags_of_inliers.sum()),
            len(flags_of_outliers),
            int((~flags_of_outliers).sum()),
            folds,
        )

    def __str__(self) -> str:
        flagged = f"{self.inliers_flagged} of {self.inliers} trusted inliers flagged"
        missed = f"{self.outliers_missed} of {self.outliers} trusted outliers missed"
        if not self.folds:
            return f"{flagged}, {missed} (rows it was fitted on, so optimistic)"
        most_flagged = at_most(self.inliers_flagged, self.inliers)
        most_missed = at_most(self.outliers_missed, self.outliers)
        return (
            f"{flagged}, {missed} ({self.folds}-fold cross-validation: in all the data, with 95 % confidence, at most "
            f"{most_flagged:.0%} and {most_missed:.0%})"
        )


def promise(error: TrustedError, expected: float) -> str:
    """How many clean rows will be changed, and what more labelled inliers would let one promise.

    expected: the share by the rows' own scores.
    """
    now = at_most(error.inliers_flagged, error.inliers)
    share = error.inliers_flagged / error.inliers
    more = error.inliers
    then = at_most(round(share * (error.inliers + more)), error.inliers + more)
    return (
        f"{expected:.2%} of the clean rows are expected to be changed. {error.inliers_flagged} of {error.inliers} "
        f"trusted inliers were, which promises at most {now:.1%} (95 % confidence); {more} more labelled inliers that "
        f"fare alike would promise {then:.1%}."
    )


def at_most(count: int, of: int) -> float:
    """The largest share that would give so few cases with a probability of 5 % (Clopper and Pearson's bound)."""
    return 1.0 if count == of else float(betaincinv(count + 1, of - count, 0.95))


def best_threshold(score: NDArray[np.float64], y: NDArray[np.int64]) -> float | None:
    """The threshold that tells the trusted set apart best, the two kinds counting alike; None without both."""
    inliers, outliers = score[y == INLIER], score[y == OUTLIER]
    if not (len(inliers) and len(outliers)):
        return None
    levels = np.unique(np.concatenate([inliers, outliers]))
    candidates = np.concatenate([(levels[:-1] + levels[1:]) / 2, levels[-1:]])
    right = [(inliers < t).mean() + (outliers >= t).mean() for t in candidates]
    return float(candidates[int(np.argmax(right))])


def folds_worth_making(y: NDArray[np.int64], wanted: int) -> int:
    """`wanted`, or 0 where there are too few labels of either kind."""
    return wanted if min((y == INLIER).sum(), (y == OUTLIER).sum()) >= max(LABELS_NEEDED, wanted) else 0


def held_out_logits(
    new_model: Callable[[int], Model],
    x: torch.Tensor | Rows,
    y: NDArray[np.int64],
    recipe: Recipe,
    folds: int,
    seed: int,
) -> Generator[Progress, None, NDArray[np.float64]]:
    """Yields progress; returns the (N,) logits of trusted rows by models that had not seen their labels, else NaN.

    Each model is trained as long as the real one: with a fifth of its epochs a third of the inliers were told wrong
    that the real one knew.
    """
    fold_of = np.full(len(y), -1)
    rng = np.random.default_rng(seed)
    for kind in (INLIER, OUTLIER):
        rows = rng.permutation(np.flatnonzero(y == kind))
        fold_of[rows] = np.arange(len(rows)) % folds
    logits = np.full(len(y), np.nan)
    for fold in range(folds):
        held_out = fold_of == fold
        labels = torch.from_numpy(np.where(held_out, UNLABELLED, y)).to(x.device)
        model = new_model(seed + 1 + fold)
        with suppress(Diverged):  # its last good state judges, as it would if this were the real fit
            yield from train(model, x, labels, recipe, seed=seed + 1 + fold, phase=f"check {fold + 1} of {folds}")
        rows = np.flatnonzero(held_out)
        with torch.no_grad():
            logits[rows] = model.inlier_logit(x[torch.from_numpy(rows)]).double().cpu().numpy()
    return logits
