"""What a cleaning found and did."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unblemish.data.write import Patch
from unblemish.errors import check_share
from unblemish.patterns.catalogue import CERTAIN

Array = NDArray[Any]

DOUBT = 0.3  # a score nearer to the threshold than this is for somebody to decide


@dataclass(frozen=True, repr=False)
class Report:
    """Scores, flags and repairs of some rows, in the order of X.

    original, repair: (N, ...) of X's shape and dtype, `repair` for every row, whether it is flagged or not.
    """

    original: Array
    repair: Array
    outlier_score: NDArray[np.float64]  # (N,) in [0, 1], higher is worse
    threshold: float
    probability: NDArray[np.float64] | None = None  # (N, K) of each pattern; None where patterns were not looked for
    mask: NDArray[np.bool_] | None = None  # (N, ...) cells that show an error
    uncertainty: NDArray[np.float32] | None = None  # (N, ...) standard deviations of their repair, 0 elsewhere

    @classmethod
    def joined(cls, original: Array, parts: Sequence[Report]) -> Report:
        """The report of all rows from those of its parts."""

        def all_of(name: str) -> Any:
            values = [getattr(part, name) for part in parts]
            return None if values[0] is None else np.concatenate(values)

        names = ("repair", "outlier_score", "probability", "mask", "uncertainty")
        return cls(original=original, threshold=parts[0].threshold, **{name: all_of(name) for name in names})

    @cached_property
    def is_outlier(self) -> NDArray[np.bool_]:
        """(N,): whether the score reaches the threshold."""
        return self.outlier_score >= self.threshold

    @cached_property
    def pattern(self) -> NDArray[np.int64]:
        """(N,) the number of the likeliest pattern of each outlier; -1 for inliers, and where none explains it."""
        if self.probability is None or not self.probability.shape[1]:
            return np.full(len(self.outlier_score), -1)
        likeliest = self.probability.argmax(1)
        sure = self.probability.max(1) >= CERTAIN
        return np.where(self.is_outlier & sure, likeliest, -1)

    @cached_property
    def unexplained(self) -> NDArray[np.bool_]:
        """(N,) outliers that no pattern explains."""
        return self.is_outlier & (self.pattern < 0)

    @cached_property
    def outcome(self) -> NDArray[np.str_]:
        """(N,) what to do: 'keep' the row, 'repair' it, 'ask' somebody, or 'drop' it, for too little of it is left."""
        doubt = np.abs(self.outlier_score - self.threshold) < DOUBT
        outcome = np.where(self.is_outlier, "repair", "keep").astype("<U6")
        if self.mask is not None:
            hidden = self.mask.reshape(len(self.mask), -1).mean(1)
            outcome[self.is_outlier & (hidden > 0.5)] = "drop"
        outcome[doubt | self.unexplained] = "ask"
        return outcome

    @cached_property
    def repaired(self) -> Array:
        """X with the rows that are flagged replaced by their repair; all others are X's, bit for bit."""
        repaired = np.array(self.original)
        repaired[self.is_outlier] = self.repair[self.is_outlier]
        return repaired

    @cached_property
    def changed(self) -> NDArray[np.bool_]:
        """(N, ...): the cells of `repaired` that differ from X."""
        return np.asarray(self.original != self.repaired)

    def at(self, threshold: float) -> Report:
        """The same with another threshold. Nothing is computed again."""
        check_share("threshold", threshold)
        return replace(self, threshold=float(threshold))

    def patch(self) -> Patch:
        """Every value that was changed, with what it was: enough to undo the cleaning."""
        return Patch.between(self.original, self.repaired, self.outlier_score)

    def to_frame(self) -> Any:
        """One line a row: a polars frame, or a pandas one where only pandas is installed."""
        columns = {
            "row": np.arange(len(self.outlier_score)),
            "outlier_score": self.outlier_score,
            "is_outlier": self.is_outlier,
            "cells_changed": self.changed.reshape(len(self.changed), -1).sum(1),
            "pattern": self.pattern,
            "outcome": self.outcome,
        }
        try:
            import polars
        except ImportError:
            try:
                import pandas
            except ImportError as error:
                raise ImportError("to_frame() needs polars or pandas: pip install 'unblemish[tables]'") from error
            return pandas.DataFrame(columns)
        return polars.DataFrame(columns)

    def __repr__(self) -> str:
        n, flagged = len(self.outlier_score), int(self.is_outlier.sum())
        cells = int(self.changed.sum())
        return (
            f"Report: {flagged:,} of {n:,} rows ({flagged / n:.1%}) are outliers at threshold {self.threshold:g}; "
            f"{cells:,} cells changed"
        )
