"""Distances between distributions: KL terms in closed form, and the distance correlation of two codes."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from unblemish.models.networks import Gaussians


def kl_to_zero_mean(q: Gaussians, sigma: float) -> Tensor:
    """(B,): KL( N(mean, exp(log_variance)) || N(0, sigma^2 I) ), summed over the code."""
    ratio = (q.log_variance.exp() + q.mean.square()) / sigma**2
    return 0.5 * (ratio - 1 - q.log_variance + 2 * math.log(sigma)).sum(1)


def kl_to_bernoulli(logit: Tensor, alpha: float) -> Tensor:
    """(B,): KL( Bernoulli(sigmoid(logit)) || Bernoulli(alpha) )."""
    log_pi, log_not_pi = F.logsigmoid(logit), F.logsigmoid(-logit)
    inlier = log_pi.exp() * (log_pi - math.log(alpha))
    outlier = log_not_pi.exp() * (log_not_pi - math.log(1 - alpha))
    return inlier + outlier


def log_bernoulli(y: Tensor, alpha: float) -> Tensor:
    """(B,): log p(y), y in {0, 1}. A constant: it teaches nothing, but belongs to the bound."""
    return y * math.log(alpha) + (1 - y) * math.log(1 - alpha)


def log_normal(z: Tensor, mean: Tensor, log_variance: Tensor) -> Tensor:
    """log N(z; mean, exp(log_variance)), element by element."""
    return -0.5 * ((z - mean).square() * (-log_variance).exp() + log_variance + math.log(2 * math.pi))


def weighted_cross_entropy(logit: Tensor, y: Tensor, omega_imb: float) -> Tensor:
    """(B,): -y log q(y=1) - omega_imb (1 - y) log q(y=0); 0 where y is unknown."""
    loss = -y * F.logsigmoid(logit) - omega_imb * (1 - y) * F.logsigmoid(-logit)
    return torch.where(y >= 0, loss, 0.0)


def distance_correlation(a: Tensor, b: Tensor, *, root: bool = False) -> Tensor:
    """The paper's dCorr of codes (B, q) and (B, p): in [0, 1], 0 if independent.

    dCov(A, B) / sqrt(dVar(A) dVar(B)) of the doubly centred distance matrices A and B. This is the squared
    form of other texts; `root` gives its square root.
    """
    a, b = _doubly_centred_distances(a), _doubly_centred_distances(b)
    tiny = torch.finfo(a.dtype).tiny  # a code with no spread at all depends on nothing
    spread_a, spread_b = (m.square().mean().clamp_min(tiny).sqrt() for m in (a, b))
    correlation = (a / spread_a * (b / spread_b)).mean()
    if not root:
        return correlation
    return correlation.clamp_min(torch.finfo(a.dtype).eps).sqrt()  # a root has no gradient at 0


def _doubly_centred_distances(z: Tensor) -> Tensor:
    # cdist's own gradient is 0 between points that coincide, where that of a root would be infinite
    distance = torch.cdist(z, z, compute_mode="donot_use_mm_for_euclid_dist")
    return distance - distance.mean(0, keepdim=True) - distance.mean(1, keepdim=True) + distance.mean()
