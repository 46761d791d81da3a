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
    def forward(ctx: Any, *codes: Tensor) -> Tensor:
        # (2, n, n), of both codes; by differences, so that points that coincide are exactly 0 apart
        distance = torch.stack([torch.cdist(z, z, compute_mode="donot_use_mm_for_euclid_dist") for z in codes])
        mean = distance.mean(1)  # of its rows as of its columns
        centred = distance - mean[:, :, None] - mean[:, None] + mean.mean(1)[:, None, None]
        spread = centred.square().mean((1, 2)).sqrt_()
        spread.clamp_min_(torch.finfo(spread.dtype).tiny)  # a code with no spread at all depends on nothing
        centred /= spread[:, None, None]  # A and B, each with mean square 1
        correlation = (centred[0] * centred[1]).mean()
        ctx.save_for_backward(*codes, distance, centred, spread, correlation)
        return correlation

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, ...]:
        *codes, distance, centred, spread, correlation = ctx.saved_tensors
        # centring is its own adjoint and A, B are centred: d dCorr / d distance_a = (B - dCorr A) / (n^2 spread_a)
        strength = (centred.flip(0) - correlation * centred) * (2 * grad / centred[0].numel() / spread)[:, None, None]
        pull = torch.where(distance > 0, strength / distance, 0.0)  # (2, n, n): none between points that coincide
        return tuple(p.sum(1, keepdim=True) * z - p @ z for p, z in zip(pull, codes, strict=True))
