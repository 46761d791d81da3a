"""What a cleaning found and did."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unblemish.data.write import Patch
from unblemish.errors import check_share

Array = NDArray[Any]


@dataclass(frozen=True, repr=False)
class Report:
    """Scores, flags and repairs of some rows, in the order of X.

    original, repair: (N, ...) of X's shape and dtype, `repair` for every row, whether it is flagged or not.
    """

    original: Array
    repair: Array
    outlier_score: NDArray[np.float64]  # (N,) in [0, 1], higher is worse
    threshold: float

    @cached_property
    def is_outlier(self) -> NDArray[np.bool_]:
        """(N,): whether the score reaches the threshold."""
        return self.outlier_score >= self.threshold

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
