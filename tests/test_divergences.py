"""Divergences against torch's distributions, and distance correlation against another package and its own laws."""

from __future__ import annotations

import math
from collections.abc import Callable

import dcor
import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, distributions

from unblemish.models.divergences import (
    distance_correlation,
    kl_to_bernoulli,
    kl_to_zero_mean,
    log_bernoulli,
    log_normal,
    weighted_cross_entropy,
)
from unblemish.models.networks import Gaussians

ALPHAS = [0.1, 0.5, 0.6, 0.95]
ROOT = pytest.mark.parametrize("root", [False, True])
DTYPE = pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["float32", "float64"])


def randn(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


# KL terms and densities


@pytest.mark.parametrize("sigma", [0.2, 1.0, 5.0])
@pytest.mark.parametrize("code", [1, 4])
def test_kl_to_zero_mean(sigma: float, code: int) -> None:
    mean, log_variance = 2 * randn(30, code), 2 * randn(30, code, seed=1)
    q, p = distributions.Normal(mean, (log_variance / 2).exp()), distributions.Normal(0.0, sigma)
    kl = kl_to_zero_mean(Gaussians(mean, log_variance), sigma)
    torch.testing.assert_close(kl, distributions.kl_divergence(q, p).sum(1))


@pytest.mark.parametrize("sigma", [0.2, 1.0, 5.0])
def test_kl_to_zero_mean_is_zero_only_where_both_agree(sigma: float) -> None:
    log_variance = torch.full((1, 3), 2 * math.log(sigma), dtype=torch.float64)
    agrees = Gaussians(torch.zeros(1, 3, dtype=torch.float64), log_variance)
    torch.testing.assert_close(kl_to_zero_mean(agrees, sigma), torch.zeros(1, dtype=torch.float64))
    assert kl_to_zero_mean(Gaussians(agrees.mean + 0.01, log_variance), sigma) > 0
    assert kl_to_zero_mean(Gaussians(agrees.mean, log_variance + 0.01), sigma) > 0


@pytest.mark.parametrize("alpha", ALPHAS)
def test_kl_to_bernoulli(alpha: float) -> None:
    logit = 3 * randn(50)
    expected = distributions.kl_divergence(distributions.Bernoulli(logits=logit), distributions.Bernoulli(alpha))
    torch.testing.assert_close(kl_to_bernoulli(logit, alpha), expected)


def test_kl_to_bernoulli_where_the_classifier_is_certain() -> None:
    logit = torch.tensor([500.0, -500.0], requires_grad=True)
    kl = kl_to_bernoulli(logit, 0.6)
    torch.testing.assert_close(kl.detach(), torch.tensor([-math.log(0.6), -math.log(0.4)]))
    kl.sum().backward()
    assert logit.grad is not None
    assert logit.grad.isfinite().all()


@pytest.mark.parametrize("alpha", ALPHAS)
def test_log_bernoulli(alpha: float) -> None:
    y = torch.tensor([0.0, 1.0, 1.0, 0.0])
    torch.testing.assert_close(log_bernoulli(y, alpha), distributions.Bernoulli(alpha).log_prob(y))


def test_log_normal() -> None:
    z, mean, log_variance = 3 * randn(20, 5), randn(20, 5, seed=1), 2 * randn(20, 5, seed=2)
    expected = distributions.Normal(mean, (log_variance / 2).exp()).log_prob(z)
    torch.testing.assert_close(log_normal(z, mean, log_variance), expected)


@pytest.mark.parametrize("omega_imb", [1.0, 2.5, 40.0])
def test_weighted_cross_entropy(omega_imb: float) -> None:
    logit, y = 3 * randn(40), (randn(40, seed=1) > 0).double()
    weight = torch.where(y == 0, omega_imb, 1.0).double()
    expected = F.binary_cross_entropy(logit.sigmoid(), y, weight=weight, reduction="none")
    torch.testing.assert_close(weighted_cross_entropy(logit, y, omega_imb), expected)


def test_weighted_cross_entropy_pulls_each_label_its_own_way_and_leaves_others_alone() -> None:
    logit = torch.tensor([800.0, -800.0, 0.3, 0.3, 0.3], requires_grad=True)
    y = torch.tensor([-1.0, -1.0, -1.0, 1.0, 0.0])
    loss = weighted_cross_entropy(logit, y, 2.0)
    assert loss.detach()[:3].tolist() == [0.0, 0.0, 0.0]
    loss.sum().backward()
    assert logit.grad is not None
    assert logit.grad[:3].tolist() == [0.0, 0.0, 0.0]
    pi = 1 / (1 + math.exp(-0.3))
    torch.testing.assert_close(logit.grad[3:], torch.tensor([-(1 - pi), 2 * pi]))


# Distance correlation

SHAPES = [(2, 1, 1), (3, 2, 1), (7, 1, 3), (20, 10, 5), (64, 2, 2)]


@pytest.mark.parametrize(("rows", "p", "q"), SHAPES)
@pytest.mark.parametrize("dependent", [False, True])
def test_distance_correlation_is_the_square_of_dcors(rows: int, p: int, q: int, dependent: bool) -> None:
    a, b = randn(rows, p), randn(rows, q, seed=1)
    if dependent:
        b = b + a[:, :1].square()
    x, y = a.numpy(), b.numpy()
    squared, plain = distance_correlation(a, b), distance_correlation(a, b, root=True)
    np.testing.assert_allclose(squared.item(), dcor.distance_correlation_sqr(x, y), rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(plain.item(), dcor.distance_correlation(x, y), rtol=1e-9, atol=1e-12)


rows_and_codes = st.tuples(st.integers(2, 15), st.integers(1, 4), st.integers(1, 4), st.integers(0, 10**6))


@given(shape=rows_and_codes, repeats=st.integers(0, 3), log_scale=st.floats(-3, 3))
@settings(max_examples=40, deadline=None, derandomize=True)
def test_distance_correlation_keeps_its_laws(shape: tuple[int, int, int, int], repeats: int, log_scale: float) -> None:
    """In [0, 1], the same as dcor's, symmetric, and blind to shift, rotation, scale and the order of rows."""
    rows, p, q, seed = shape
    a, b = randn(rows, p, seed=seed), randn(rows, q, seed=seed + 1)
    chosen = torch.cat([torch.arange(rows), torch.arange(repeats) % rows])
    a, b = a[chosen], b[chosen]  # rows that occur again coincide in both codes
    correlation = distance_correlation(a, b)
    assert 0 <= correlation <= 1 + 1e-12

    def same(other: Tensor) -> None:
        torch.testing.assert_close(other, correlation, rtol=1e-8, atol=1e-10)

    same(torch.tensor(dcor.distance_correlation_sqr(a.numpy(), b.numpy()), dtype=torch.float64))
    same(distance_correlation(b, a))
    same(distance_correlation(a + 3.0, b - 5.0))
    same(distance_correlation(a @ rotation(p, seed), b @ rotation(q, seed)))
    same(distance_correlation(math.exp(log_scale) * a, b))
    order = torch.randperm(len(a), generator=torch.Generator().manual_seed(seed))
    same(distance_correlation(a[order], b[order]))


def rotation(size: int, seed: int) -> Tensor:
    return torch.linalg.qr(randn(size, size, seed=seed)).Q


def test_distance_correlation_is_one_of_a_code_with_itself_and_near_zero_of_unrelated_ones() -> None:
    a = randn(400, 2)
    torch.testing.assert_close(distance_correlation(a, 1 - 3 * a), torch.tensor(1.0, dtype=torch.float64))
    assert distance_correlation(a, randn(400, 2, seed=1)) < 0.02
    assert distance_correlation(a, a.square()) > 0.1  # where Pearson's correlation is 0


def test_the_order_of_one_codes_rows_matters() -> None:
    a, b = randn(30, 2), randn(30, 2) + 0.3 * randn(30, 2, seed=1)
    assert distance_correlation(a, b) > 2 * distance_correlation(a, b.flip(0))


@ROOT
@pytest.mark.parametrize(("rows", "p", "q"), [(3, 2, 1), (6, 3, 2), (9, 1, 4)])
def test_the_gradient_of_distance_correlation(rows: int, p: int, q: int, root: bool) -> None:
    a, b = randn(rows, p).requires_grad_(), randn(rows, q, seed=1).requires_grad_()
    assert torch.autograd.gradcheck(lambda u, v: distance_correlation(u, v, root=root), (a, b))


def learn(a: Tensor, b: Tensor, root: bool) -> tuple[float, Tensor, Tensor]:
    """The value and what it teaches both codes."""
    a, b = a.clone().requires_grad_(), b.clone().requires_grad_()
    value = distance_correlation(a, b, root=root)
    value.backward()
    assert a.grad is not None
    assert b.grad is not None
    return value.item(), a.grad, b.grad


@ROOT
@DTYPE
def test_points_that_coincide_have_a_value_and_a_gradient(dtype: torch.dtype, root: bool) -> None:
    a, b = randn(6, 3, dtype=dtype), randn(6, 2, seed=1, dtype=dtype)
    a, b = a[[0, 0, 1, 2, 3, 4, 5]], b[[0, 0, 1, 1, 2, 3, 4]]
    value, grad_a, grad_b = learn(a, b, root)
    dcors: Callable[..., float] = dcor.distance_correlation if root else dcor.distance_correlation_sqr
    assert value == pytest.approx(dcors(a.double().numpy(), b.double().numpy()), rel=1e-5)
    assert grad_a.isfinite().all()
    assert grad_b.isfinite().all()


# In both codes, in one, in the other; and rows so few that nothing can spread
SPREADLESS = {
    "both": (torch.ones(5, 3), torch.zeros(5, 2)),
    "first": (torch.full((5, 3), 0.1), randn(5, 2)),
    "second": (randn(5, 3), torch.full((5, 2), -7.3)),
    "one row": (randn(1, 3), randn(1, 2)),
}


@ROOT
@DTYPE
@pytest.mark.parametrize("which", list(SPREADLESS))
def test_a_code_without_spread_depends_on_nothing_and_teaches_nothing_infinite(
    which: str, dtype: torch.dtype, root: bool
) -> None:
    a, b = (z.to(dtype) for z in SPREADLESS[which])
    value, grad_a, grad_b = learn(a, b, root)
    # the root is kept off 0, where its gradient is infinite
    assert 0 <= value <= (math.sqrt(torch.finfo(dtype).eps) if root else 0) * 1.001
    assert grad_a.isfinite().all()
    assert grad_b.isfinite().all()


@ROOT
@pytest.mark.parametrize("scale", [1e-6, 1e6])
def test_distance_correlation_in_single_precision(scale: float, root: bool) -> None:
    a, b = randn(40, 4), randn(40, 3, seed=1)
    b = b + a[:, :3]
    value, grad_a, grad_b = learn((scale * a).float(), (scale * b).float(), root)
    expected = distance_correlation(a, b, root=root).item()
    assert value == pytest.approx(expected, rel=1e-4)
    assert grad_a.isfinite().all()
    assert grad_b.isfinite().all()
