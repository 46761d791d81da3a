"""What some cells should hold, given all others: a Gaussian process over rows."""

from __future__ import annotations

from functools import cached_property

import torch
from torch import Tensor

WIDTHS = (0.1, 0.3, 1.0, 3.0)  # of the kernel, in mean squared distances between rows
NOISES = (1e-3, 1e-2, 1e-1, 1.0)  # variance that no other cell explains, beside the kernel's 1


class Process:
    """targets ~ GP(mean, k + noise), k(x, x') = exp(-|x - x'|^2 / width), known at n rows.

    mean(x) = mean + k(x, rows) weights,  variance(x) = 1 + noise - |whitener k(x, rows)|^2, in units of `scale`^2
    """

    def __init__(self, squares: Tensor, targets: Tensor, width: float, noise: float) -> None:
        """squares: (n, n) squared distances between the rows; width: in means of these."""
        self.width, self.noise = width * max(float(squares.mean()), 1e-12), noise
        covariance = (squares / -self.width).exp_()
        covariance.diagonal().add_(noise)
        self._factor = torch.linalg.cholesky(covariance)
        self.mean = targets.mean(0)  # (t,)
        self.weights = torch.cholesky_solve(targets - self.mean, self._factor)  # (n, t)

    @cached_property
    def whitener(self) -> Tensor:
        """(n, n) the inverse of the Cholesky factor of k + noise."""
        one = torch.eye(len(self._factor), dtype=self._factor.dtype)
        return torch.linalg.solve_triangular(self._factor, one, upper=False)

    @cached_property
    def _left_out(self) -> tuple[Tensor, Tensor]:
        """(n, t) what each row's targets differ by from the guess without it, and (n, 1) the variance of that guess."""
        variance = 1 / self.whitener.square().sum(0)[:, None]
        return self.weights * variance, variance

    @cached_property
    def error(self) -> Tensor:
        """(t,) the mean square error of guesses."""
        return self._left_out[0].square().mean(0)

    @cached_property
    def scale(self) -> Tensor:
        """(t,) the targets' deviation per unit of the process."""
        off, variance = self._left_out
        return (off.square() / variance).mean(0).sqrt()

    def __call__(self, squares: Tensor) -> Tensor:
        """(B, n) squared distances to the known rows -> (B, t) expected targets."""
        return torch.addmm(self.mean, (squares / -self.width).exp_(), self.weights)

    def with_deviation(self, squares: Tensor) -> tuple[Tensor, Tensor]:
        """The same, and the standard deviation of each."""
        kernel = (squares / -self.width).exp_()
        variance = (1 + self.noise - (kernel @ self.whitener.T).square().sum(1)).clamp_min(self.noise)
        return torch.addmm(self.mean, kernel, self.weights), variance.sqrt()[:, None] * self.scale


def squared_distances(a: Tensor, b: Tensor) -> Tensor:
    """(B, d), (n, d) -> (B, n)."""
    squares = torch.addmm(b.square().sum(1), a, b.T, alpha=-2)
    return squares.add_(a.square().sum(1)[:, None]).clamp_min_(0)


def best_setting(squares: Tensor, targets: Tensor) -> tuple[float, float]:
    """The width and noise whose guesses of rows left out are the best."""
    errors = {}
    centred = (targets - targets.mean(0)).double()
    mean_square = max(float(squares.mean()), 1e-12)
    for width in WIDTHS:
        values, vectors = torch.linalg.eigh((squares / (-width * mean_square)).exp().double())
        projected = vectors.T @ centred
        for noise in NOISES:
            inverse = 1 / (values.clamp_min(0) + noise)
            left_out = (vectors @ (inverse[:, None] * projected)) / (vectors.square() @ inverse)[:, None]
            errors[width, noise] = float(left_out.square().mean())
    return min(errors, key=lambda setting: errors[setting])
