"""Distances between distributions: KL terms in closed form, and the distance correlation of two codes."""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

from unblemish.models.networks import Gaussians


def kl_to_zero_mean(q: Gaussians, sigma: float) -> Tensor:
    """(B,): KL( N(mean, exp(log_variance)) || N(0, sigma^2 I) ), summed over the code."""
    power = torch.addcmul(q.log_variance.exp(), q.mean, q.mean)
    constant = q.mean.shape[1] * (math.log(sigma) - 0.5)
    return 0.5 * (power / sigma**2 - q.log_variance).sum(1) + constant


def kl_to_bernoulli(logit: Tensor, alpha: float) -> Tensor:
    """(B,): KL( Bernoulli(sigmoid(logit)) || Bernoulli(alpha) )."""
    # pi log pi + (1 - pi) log(1 - pi) = pi logit + log(1 - pi)
    return logit.sigmoid() * (logit - math.log(alpha / (1 - alpha))) + F.logsigmoid(-logit) - math.log(1 - alpha)


def log_bernoulli(y: Tensor, alpha: float) -> Tensor:
    """(B,): log p(y), y in {0, 1}. A constant: it teaches nothing, but belongs to the bound."""
    return y * math.log(alpha) + (1 - y) * math.log(1 - alpha)


def log_normal(z: Tensor, mean: Tensor, log_variance: Tensor) -> Tensor:
    """log N(z; mean, exp(log_variance)), element by element."""
    return -0.5 * ((z - mean).square() * (-log_variance).exp() + log_variance + math.log(2 * math.pi))


def weighted_cross_entropy(logit: Tensor, y: Tensor, omega_imb: float) -> Tensor:
    """(B,): -y log q(y=1) - omega_imb (1 - y) log q(y=0); 0 where y is unknown."""
    weight = torch.where(y > 0, 1.0, torch.where(y < 0, 0.0, omega_imb))
    return -weight * F.logsigmoid(torch.where(y > 0, logit, -logit))


def distance_correlation(a: Tensor, b: Tensor, *, root: bool = False) -> Tensor:
    """The paper's dCorr of codes (B, q) and (B, p): in [0, 1], 0 if independent.

    dCov(A, B) / sqrt(dVar(A) dVar(B)) of the doubly centred distance matrices A and B. This is the squared
    form of other texts; `root` gives its square root.
    """
    correlation: Tensor = _DistanceCorrelation.apply(a, b)  # type: ignore[no-untyped-call]
    if not root:
        return correlation
    return correlation.clamp_min(torch.finfo(a.dtype).eps).sqrt()  # a root has no gradient at 0


class _DistanceCorrelation(torch.autograd.Function):
    """With its gradient by hand: autograd's would take five times as long, more than the decoder."""

    @staticmethod
    def forward(ctx: Any, a: Tensor, b: Tensor) -> Tensor:
        distance_a, A, spread_a = _centred_distances(a)
        distance_b, B, spread_b = _centred_distances(b)
        correlation = (A * B).mean()
        ctx.save_for_backward(a, distance_a, A, spread_a, b, distance_b, B, spread_b, correlation)
        return correlation.to(a.dtype)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor]:
        a, distance_a, A, spread_a, b, distance_b, B, spread_b, correlation = ctx.saved_tensors
        # centring is its own adjoint and A, B are centred: d dCorr / d distance_a = (B - dCorr A) / (n^2 spread_a)
        scale = 2 * grad / A.numel()
        return (
            _pulled((B - correlation * A) * (scale / spread_a), distance_a, a),
            _pulled((A - correlation * B) * (scale / spread_b), distance_b, b),
        )


def _centred_distances(z: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """In float64: distances (n, n) by inner products; doubly centred, with mean square 1; the root of what it was."""
    z = z.double()
    square = z.square().sum(1)
    sums = square[:, None] + square
    squared = torch.addmm(sums, z, z.T, alpha=-2)
    distance = squared.masked_fill_(squared <= 1e-13 * sums, 0).sqrt_()  # 0: the same point, but for rounding
    mean = distance.mean(0)  # of its rows as of its columns
    centred = distance - mean - mean[:, None] + mean.mean()
    spread = centred.square().mean().clamp_min(1e-60).sqrt()  # a code with no spread at all depends on nothing
    return distance, centred / spread, spread


def _pulled(strength: Tensor, distance: Tensor, z: Tensor) -> Tensor:
    """(n, q): each point drawn towards or away from every other; not at all where they coincide."""
    pull = torch.where(distance > 0, strength / distance, 0.0).to(z.dtype)
    return pull.sum(1, keepdim=True) * z - pull @ z
