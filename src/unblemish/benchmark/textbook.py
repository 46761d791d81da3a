"""CLSVAE and VAE as a good student would write them: the loop that the product's speed is compared with.

DataLoader, nn.Sequential, torch.distributions, default Adam, the paper's recipe. Nothing else uses this file.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.distributions import Bernoulli, Normal, kl_divergence
from torch.utils.data import DataLoader, TensorDataset

from unblemish.models.clsvae import ClsvaeConfig
from unblemish.models.recipe import Recipe


def network(*sizes: int) -> nn.Sequential:
    layers: list[nn.Module] = []
    for inputs, outputs in pairwise(sizes):
        layers += [nn.Linear(inputs, outputs), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


class Encoder(nn.Module):
    def __init__(self, cells: int, code: int) -> None:
        super().__init__()
        self.body = nn.Sequential(network(cells, 200, 100, 50), nn.ReLU())
        self.mean = nn.Linear(50, code)
        self.log_variance = nn.Linear(50, code)

    def forward(self, x: Tensor) -> Normal:
        h = self.body(x)
        return Normal(self.mean(h), (0.5 * self.log_variance(h)).exp())


class TextbookVae(nn.Module):
    def __init__(self, cells: int, *, binary: bool) -> None:
        super().__init__()
        self.encoder = Encoder(cells, 15)
        self.decoder = network(15, 50, 100, 200, cells)
        self.log_variance = nn.Parameter(torch.zeros(()))
        self.binary = binary

    def log_prob(self, x: Tensor, output: Tensor) -> Tensor:
        if self.binary:
            return Bernoulli(logits=output).log_prob(x).sum(1)
        deviation = (0.5 * self.log_variance.clamp(-10, 3)).exp()
        return Normal(output, deviation).log_prob(x).sum(1)

    def loss(self, x: Tensor, y: Tensor, weights: dict[str, float]) -> Tensor:  # noqa: ARG002
        q = self.encoder(x)
        fit = self.log_prob(x, self.decoder(q.rsample()))
        kl = kl_divergence(q, Normal(0.0, 1.0)).sum(1)
        return (weights["kl_z"] * kl - fit).mean()


class TextbookClsvae(TextbookVae):
    def __init__(self, cells: int, config: ClsvaeConfig, *, binary: bool) -> None:
        super().__init__(cells, binary=binary)
        self.config = config
        self.encoder = Encoder(cells, config.clean_code)
        self.dirty_encoder = Encoder(cells, config.dirty_code)
        self.classifier = network(config.clean_code + config.dirty_code, 7, 5, 1)

    def loss(self, x: Tensor, y: Tensor, weights: dict[str, float]) -> Tensor:
        c = self.config
        q_c, q_d = self.encoder(x), self.dirty_encoder(x)
        z_c, z_d = q_c.rsample(), q_d.rsample()
        z_eps = c.sigma_eps * torch.randn_like(z_d)
        fit1 = self.log_prob(x, self.decoder(torch.cat([z_c, z_eps], 1)))
        fit0 = self.log_prob(x, self.decoder(torch.cat([z_c, z_d], 1)))
        logit = self.classifier(torch.cat([z_c.detach(), z_d], 1))[:, 0]
        known = y >= 0
        pi = torch.where(known, y, torch.sigmoid(logit))
        kl_z = kl_divergence(q_c, Normal(0.0, c.sigma_c)).sum(1) + kl_divergence(q_d, Normal(0.0, c.sigma_d)).sum(1)
        kl_y = kl_divergence(Bernoulli(logits=logit), Bernoulli(torch.tensor(c.alpha)))
        kl_y = torch.where(known, torch.zeros_like(kl_y), kl_y)
        loss = (weights["kl_z"] * kl_z + weights["kl_y"] * kl_y - pi * fit1 - (1 - pi) * fit0).mean()
        if known.any():
            loss = loss + weights["cross_entropy"] * F.binary_cross_entropy_with_logits(logit[known], y[known])
        if weights["dependence"] > 0:
            loss = loss + weights["dependence"] * distance_correlation(z_c, z_d)
        return loss

    def inlier_logit(self, x: Tensor) -> Tensor:
        codes = torch.cat([self.encoder(x).mean, self.dirty_encoder(x).mean], 1)
        logit: Tensor = self.classifier(codes)[:, 0]
        return logit

    def repair(self, x: Tensor) -> Tensor:
        z_c = self.encoder(x).mean
        output: Tensor = self.decoder(torch.cat([z_c, z_c.new_zeros(len(x), self.config.dirty_code)], 1))
        return output.sigmoid() if self.binary else output


def distance_correlation(a: Tensor, b: Tensor) -> Tensor:
    def centred(z: Tensor) -> Tensor:
        d = torch.cdist(z, z)
        return d - d.mean(0, keepdim=True) - d.mean(1, keepdim=True) + d.mean()

    A, B = centred(a), centred(b)
    return (A * B).mean() / (A.square().mean() * B.square().mean()).sqrt()


def train(model: TextbookVae, x: Tensor, y: Tensor, recipe: Recipe) -> Iterator[int]:
    """The loop; yields the epoch that just ended."""
    loader = DataLoader(TensorDataset(x, y), batch_size=recipe.batch_size, shuffle=True)
    optimiser = torch.optim.Adam(model.parameters(), lr=recipe.learning_rate)
    for epoch in range(recipe.epochs):
        weights = {name: ramp.at(epoch, recipe.epochs) for name, ramp in recipe.weights.items()}
        for batch, labels in loader:
            optimiser.zero_grad()
            model.loss(batch, labels, weights).backward()
            optimiser.step()
        yield epoch
