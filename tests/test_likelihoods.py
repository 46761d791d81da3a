"""What decoders put out, as distributions: against torch's own, and against what is drawn from them."""

from __future__ import annotations

import math
from collections.abc import Iterator

import pytest
import torch
from torch import Tensor, distributions

from unblemish.data.schema import Kind
from unblemish.models.likelihoods import Bernoulli, Gaussian, Likelihood, likelihood_of


@pytest.fixture(autouse=True)
def seeded() -> Iterator[None]:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        yield


def gaussian(log_variance: float) -> Gaussian:
    likelihood = Gaussian().double()
    likelihood.log_variance.data.fill_(log_variance)
    return likelihood


def randn(*shape: int) -> Tensor:
    return torch.randn(shape, dtype=torch.float64)


def test_log_prob_of_bernoulli_cells() -> None:
    x, output = (randn(40, 6) > 0).double(), 4 * randn(40, 6)
    expected = distributions.Bernoulli(logits=output).log_prob(x)
    torch.testing.assert_close(Bernoulli().log_prob(x, output), expected)


def test_log_prob_of_bernoulli_cells_stays_finite_where_the_network_is_certain() -> None:
    x, output = torch.tensor([[1.0, 0.0, 1.0, 0.0]]), torch.tensor([[300.0, -300.0, -300.0, 300.0]])
    torch.testing.assert_close(Bernoulli().log_prob(x, output), torch.tensor([[0.0, 0.0, -300.0, -300.0]]))


# (log variance, the one that is used)
CLAMPED = [(-30.0, -10.0), (-10.0, -10.0), (-1.3, -1.3), (0.0, 0.0), (2.2, 2.2), (3.0, 3.0), (8.0, 3.0)]


@pytest.mark.parametrize(("log_variance", "used"), CLAMPED)
def test_log_prob_of_gaussian_cells(log_variance: float, used: float) -> None:
    x, output = randn(40, 6), randn(40, 6)
    expected = distributions.Normal(output, math.exp(used / 2)).log_prob(x)
    torch.testing.assert_close(gaussian(log_variance).log_prob(x, output), expected)


def test_the_variance_of_gaussian_cells_is_learnt_one_for_all() -> None:
    likelihood = gaussian(0.4)
    assert [p.numel() for p in likelihood.parameters()] == [1]
    x, output = randn(200, 6), randn(200, 6)
    likelihood.log_prob(x, output).mean().backward()
    variance = math.exp(0.4)  # d/ds of -(s + r^2 exp(-s)) / 2
    expected = -0.5 * (1 - (x - output).square().mean() / variance)
    torch.testing.assert_close(likelihood.log_variance.grad, expected)


def test_the_variance_of_gaussian_cells_starts_at_one() -> None:
    x, output = torch.randn(40, 6), torch.randn(40, 6)
    torch.testing.assert_close(Gaussian().log_prob(x, output), distributions.Normal(output, 1.0).log_prob(x))


def test_bernoulli_cells_have_the_mean_of_their_distribution() -> None:
    output = 3 * randn(40, 6)
    torch.testing.assert_close(Bernoulli().mean(output), distributions.Bernoulli(logits=output).mean)


def test_gaussian_cells_have_the_mean_of_their_distribution() -> None:
    output = 3 * randn(40, 6)
    torch.testing.assert_close(gaussian(1.0).mean(output), output)


DRAWS = 20_000


def moments(likelihood: Likelihood, output: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and variance of many draws, cell by cell, and that cells are drawn apart from each other."""
    with torch.no_grad():
        draws = likelihood.sample(output.expand(DRAWS, -1))
    correlation = torch.corrcoef(draws.T) - torch.eye(output.shape[1], dtype=output.dtype)
    assert correlation.abs().max() < 5 / math.sqrt(DRAWS)
    return draws.mean(0), draws.var(0)


def test_samples_of_bernoulli_cells() -> None:
    output = torch.tensor([[-2.0, -0.5, 0.0, 1.0, 2.5]], dtype=torch.float64)
    expected = distributions.Bernoulli(logits=output[0])
    mean, variance = moments(Bernoulli(), output)
    assert ((mean - expected.mean).abs() < 5 * (expected.variance / DRAWS).sqrt()).all()
    torch.testing.assert_close(variance, mean * (1 - mean) * DRAWS / (DRAWS - 1))  # as of zeros and ones alone


@pytest.mark.parametrize(("log_variance", "used"), CLAMPED)
def test_samples_of_gaussian_cells(log_variance: float, used: float) -> None:
    output = torch.tensor([[-2.0, -0.5, 0.0, 1.0, 2.5]], dtype=torch.float64)
    mean, variance = moments(gaussian(log_variance), output)
    expected = math.exp(used)
    assert ((mean - output[0]).abs() < 5 * math.sqrt(expected / DRAWS)).all()
    assert ((variance / expected - 1).abs() < 5 * math.sqrt(2 / DRAWS)).all()


@pytest.mark.parametrize(("kind", "expected"), [(Kind.BINARY, Bernoulli), (Kind.CONTINUOUS, Gaussian)])
def test_each_kind_of_cells_has_its_likelihood(kind: Kind, expected: type[Likelihood]) -> None:
    assert type(likelihood_of(kind)) is expected
