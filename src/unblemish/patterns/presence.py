"""How probable it is that a row has a pattern: learnt from rows as they are and rows that the pattern was put on."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize
from sklearn.isotonic import IsotonicRegression

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Rising:
    """A function that never falls, as its corners."""

    x: Array
    y: Array

    @classmethod
    def fit(cls, x: Array, y: Array, weight: Array | None = None) -> Rising:
        """The one nearest to the points in least squares."""
        fitted = IsotonicRegression(out_of_bounds="clip").fit(x, y, sample_weight=weight)
        return cls(fitted.X_thresholds_.astype(np.float64), fitted.y_thresholds_.astype(np.float64))

    def __call__(self, x: Array) -> Array:
        return np.asarray(np.interp(x, self.x, self.y))


@dataclass(frozen=True, eq=False)
class Natural:
    """Of rows that show an exact pattern, which would show it without any error?

    guess: how likely a row is to show it, judged by its other cells
    P(shown | guess) = rho + (1 - rho) q,   q: shown without the error
    P(changed by the error | shown, guess) = rho (1 - q) / P(shown | guess)
    No row needs to be known as clean: those that cannot show it by nature tell rho, the share of rows with the error.
    """

    rho: float
    rate: Rising | None  # P(shown | guess); None where nothing shows the pattern by nature

    @classmethod
    def fit(cls, guess: Array, shown: NDArray[np.bool_]) -> Natural:
        share = float(shown.mean())
        if not _depends(guess, shown):
            return cls(share, None)
        rising = Rising.fit(guess, shown.astype(np.float64))
        return cls(float(np.clip(shown[guess <= np.quantile(guess, 0.25)].mean(), 0.1 * share, share)), rising)

    def contradicted_by(self, guess: Array, shown: NDArray[np.bool_]) -> bool:
        """Whether rows known to be inliers speak against it: then the error goes with what a row holds.

        They show the pattern with probability q each; or hardly ever, where only the error makes rows show it.
        """
        if self.rate is None:
            return False
        q = np.clip(self.naturally(guess), 1e-3, 1 - 1e-3)
        by_nature = float(np.log(np.where(shown, q, 1 - q)).sum())
        never = float(np.log(np.where(shown, 1e-3, 1 - 1e-3)).sum())
        return bool(never > by_nature)

    def naturally(self, guess: Array) -> Array:
        """q: the probability that a row shows the pattern without the error."""
        if self.rate is None:
            return np.zeros(len(guess))
        return np.asarray((np.maximum(self.rate(guess), self.rho) - self.rho) / (1 - self.rho))

    def __call__(self, guess: Array) -> Array:
        """(B,) guesses for rows that show the pattern -> P(it changed them)."""
        if self.rate is None:
            return np.ones(len(guess))
        q = self.naturally(guess)
        rate = self.rho + (1 - self.rho) * q
        # the fit goes up in steps: within one the guess tells more
        return np.asarray(np.clip(self.rho * (1 - q) / rate - 1e-3 * guess.clip(0, 1), 0, 1))


def _depends(guess: Array, shown: NDArray[np.bool_]) -> bool:
    """Whether P(shown) grows with the guess: a logistic curve has to be likelier than a constant, by BIC."""
    share = float(np.clip(shown.mean(), 1e-6, 1 - 1e-6))

    def unlikeliness(parameters: Array) -> float:
        logit = parameters[0] + parameters[1] * guess
        return float((np.logaddexp(0, logit) - shown * logit).sum())

    flat = np.array([np.log(share / (1 - share)), 0.0])
    bounds = [(-30.0, 30.0), (0.0, 100.0)]
    fit = minimize(unlikeliness, flat + np.array([0.0, 1.0]), bounds=bounds, method="L-BFGS-B")
    return bool(unlikeliness(flat) - fit.fun > np.log(len(guess)))


@dataclass(frozen=True, eq=False)
class Likeness:
    """Rows as they are against rows that a pattern was put on, told apart by one number.

    odds = p(number | put on) / p(number | as they are), which is 1 / rho where only rows with the error are found;
    P(has the error | number) = rho odds
    """

    share_put_on: Rising
    top: float  # the odds there

    @classmethod
    def fit(cls, put_on: Array, as_they_are: Array) -> Likeness:
        number = np.concatenate([put_on, as_they_are])
        label = np.concatenate([np.ones(len(put_on)), np.zeros(len(as_they_are))])
        weight = np.where(label == 1, 1 / len(put_on), 1 / len(as_they_are))
        rising = Rising.fit(number, label, weight)
        top = (as_they_are >= np.median(put_on)).mean()
        return cls(rising, 0.5 / max(float(top), 1 / len(as_they_are)))

    def __call__(self, number: Array) -> Array:
        share = np.clip(self.share_put_on(number), 0, 1 - 1e-9)
        return np.asarray(np.clip(share / (1 - share) / self.top, 0, 1))
