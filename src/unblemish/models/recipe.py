"""How to train, as data: epochs, step size, and the weight of each term over time."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace


@dataclass(frozen=True)
class Ramp:
    """A weight that is 0 for `delay` epochs, then grows to `top` over `ratio` of the epochs that are left."""

    top: float = 1.0
    delay: int = 0
    ratio: float = 0.0

    def at(self, epoch: int, epochs: int) -> float:
        """The weight in this epoch, counted from 0."""
        if epoch < self.delay:
            return 0.0
        rise = self.ratio * (epochs - self.delay)
        return self.top * min(1.0, (epoch - self.delay) / rise) if rise > 0 else self.top

    def risen(self, epochs: int) -> float:
        """The epoch from which the weight stays as it is."""
        return self.delay + self.ratio * (epochs - self.delay)


@dataclass(frozen=True)
class Recipe:
    """How to train. `weights` are by the term's name; a term without one weighs 1."""

    epochs: int
    batch_size: int = 128
    learning_rate: float = 1e-3  # at its highest
    rise: float = 0.0  # the share of the steps over which it grows from 0, in a straight line
    fall: float = 0.0  # the share of the steps over which it sinks to 0, along half a cosine
    trusted_rows: int = 0  # in a batch at least, by rows added to those that are drawn
    weight_decay: float = 0.0
    weights: Mapping[str, Ramp] = field(default_factory=dict)
    bfloat16: bool = False  # large products from bfloat16 factors, where the processor has instructions for it
    fits: int = 3  # at most; from another seed after one that takes most rows for outliers
    patience: int | None = None  # stop after so many epochs without a better loss, once all ramps have risen

    def rate_at(self, done: float) -> float:
        """The learning rate when this share of the steps is done."""
        if done < self.rise:
            return self.learning_rate * done / self.rise
        if done > 1 - self.fall:
            return self.learning_rate * 0.5 * (1 - math.cos(math.pi * (1 - done) / self.fall))
        return self.learning_rate

    def over(self, epochs: int) -> Recipe:
        """The same over so many epochs, the delays in proportion."""
        share = min(1.0, epochs / self.epochs)
        weights = {name: replace(ramp, delay=round(ramp.delay * share)) for name, ramp in self.weights.items()}
        return replace(self, epochs=epochs, weights=weights)
