"""p(x | decoder output), cell by cell. What depends on the kind of data is here and in data/schema.py."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from unblemish.data.schema import Kind


class Likelihood(nn.Module, ABC):
    """Maps decoder output (B, D) to distributions of the cells."""

    @abstractmethod
    def log_prob(self, x: Tensor, output: Tensor) -> Tensor:
        """(B, D): log p(x_d | output_d)."""

    def log_prob_of_rows(self, x: Tensor, output: Tensor) -> Tensor:
        """(B,): the same, summed over the cells."""
        return self.log_prob(x, output).sum(-1)

    @abstractmethod
    def mean(self, output: Tensor) -> Tensor:
        """(B, D): the expected cells."""

    @abstractmethod
    def sample(self, output: Tensor) -> Tensor:
        """(B, D): cells drawn at random."""


class Bernoulli(Likelihood):
    """x_d ~ Bernoulli(sigmoid(output_d))."""

    def log_prob(self, x: Tensor, output: Tensor) -> Tensor:
        return x * output - F.softplus(output)

    def log_prob_of_rows(self, x: Tensor, output: Tensor) -> Tensor:
        return _BernoulliRows.apply(x, output)  # type: ignore[no-untyped-call]

    def mean(self, output: Tensor) -> Tensor:
        return output.sigmoid()

    def sample(self, output: Tensor) -> Tensor:
        return torch.bernoulli(output.sigmoid())


class _BernoulliRows(torch.autograd.Function):
    """The sum of x o - softplus(o) over the cells of a row, in a quarter of the time.

    softplus(o) = max(o, 0) - log m, m = sigmoid(|o|) in [1/2, 1): a logarithm is slow, so there is one for eight cells.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, output: Tensor) -> Tensor:
        p = output.sigmoid()
        ctx.save_for_backward(x, p)
        m = torch.maximum(p, 1 - p)
        eighths = m.shape[-1] // 8 * 8
        logs = m[..., :eighths].unflatten(-1, (8, -1)).prod(-2).log_().sum(-1) + m[..., eighths:].log().sum(-1)
        return logs - torch.addcmul(output.clamp_min(0), x, output, value=-1).sum(-1)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[None, Tensor]:
        x, p = ctx.saved_tensors
        return None, torch.sub(x, p).mul_(grad[..., None])


class Gaussian(Likelihood):
    """x_d ~ N(output_d, s^2), one s for all cells, learnt."""

    def __init__(self) -> None:
        super().__init__()
        self.log_variance = nn.Parameter(torch.zeros(()))

    def _log_variance(self) -> Tensor:
        return self.log_variance.clamp(-10.0, 3.0)

    def log_prob(self, x: Tensor, output: Tensor) -> Tensor:
        log_variance = self._log_variance()
        return -0.5 * ((x - output).square() * (-log_variance).exp() + log_variance + math.log(2 * math.pi))

    def log_prob_of_rows(self, x: Tensor, output: Tensor) -> Tensor:
        log_variance = self._log_variance()
        squares = (x - output).square().sum(-1)
        return -0.5 * (squares * (-log_variance).exp() + x.shape[-1] * (log_variance + math.log(2 * math.pi)))

    def mean(self, output: Tensor) -> Tensor:
        return output

    def sample(self, output: Tensor) -> Tensor:
        return output + (0.5 * self._log_variance()).exp() * torch.randn_like(output)


def likelihood_of(kind: Kind) -> Likelihood:
    """The likelihood of the paper for this kind of cells."""
    return {Kind.BINARY: Bernoulli, Kind.CONTINUOUS: Gaussian}[kind]()
