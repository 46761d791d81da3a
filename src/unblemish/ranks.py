"""Scores in [0, 1] for models that have a likelihood and no classifier."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

KNOTS = 1001


def rank_knots(log_likelihood: Floats) -> Floats:
    """The fitted rows' negative log-likelihoods at evenly spaced ranks, increasing."""
    return np.quantile(-log_likelihood, np.linspace(0, 1, KNOTS))


def rank_scores(log_likelihood: Floats, knots: Floats) -> Floats:
    """The share of fitted rows that are more likely than this one; beyond all of them it still grows, below 1."""
    surprise = -log_likelihood
    edge = 1 / KNOTS
    inside = np.interp(surprise, knots, np.linspace(edge, 1 - edge, KNOTS))
    spread = max(knots[-1] - knots[0], 1e-12)
    above = 1 - edge / (1 + np.maximum(surprise - knots[-1], 0) / spread)
    below = edge / (1 + np.maximum(knots[0] - surprise, 0) / spread)
    return np.where(surprise > knots[-1], above, np.where(surprise < knots[0], below, inside))
