"""The contract that every model keeps, so that training, cleaning and tests need to know no other."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import ClassVar

from torch import Tensor, nn

from unblemish.models.likelihoods import Likelihood


class Labels(Enum):
    """Which labels a model cannot be fitted without."""

    NONE = "no label"
    BOTH = "inliers and outliers"
    EVERY_ROW = "a label for every row"


@dataclass(frozen=True)
class Terms:
    """The parts of a loss, to be minimised, named and not yet reduced: that is training's work.

    rows:         (B,) each, averaged over all rows
    trusted:      (B,) each, 0 on unlabelled rows, averaged over the trusted set
    trusted_sums: (B,) each, 0 on unlabelled rows, averaged over all rows: the more labels, the more they weigh
    penalties:    of the batch as a whole; called only where their weight is not 0
    """

    rows: dict[str, Tensor]
    trusted: dict[str, Tensor] = field(default_factory=dict)
    trusted_sums: dict[str, Tensor] = field(default_factory=dict)
    penalties: dict[str, Callable[[], Tensor]] = field(default_factory=dict)


class Model(nn.Module, ABC):
    """A distribution over dirty rows that can tell, and undo, what made them dirty.

    x is (B, D), standardised; y is (B,), 1 inlier, 0 outlier, -1 unlabelled.
    """

    labels: ClassVar[Labels]
    has_classifier: ClassVar[bool]
    likelihood: Likelihood

    @abstractmethod
    def loss_terms(self, x: Tensor, y: Tensor) -> Terms:
        """The loss of each row, term by term."""

    @abstractmethod
    def inlier_logit(self, x: Tensor) -> Tensor:
        """(B,): the logit of q(y=1|x), or a log-likelihood where the model has no classifier."""

    @abstractmethod
    def repair(self, x: Tensor) -> Tensor:
        """(B, D): the likelihood's parameters for the rows as they were before any error."""
