"""CVAE: the fully supervised baseline (annex B)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from unblemish.models.base import Labels, Model, Terms
from unblemish.models.divergences import kl_to_zero_mean
from unblemish.models.likelihoods import Likelihood
from unblemish.models.networks import GaussianEncoder, Gaussians, Torso


@dataclass(frozen=True)
class CvaeConfig:
    sigma: float = 0.5
    code: int = 15


class Cvae(Model):
    """z ~ N(0, sigma^2 I), x ~ p(x | z, y), y known for every row.

    L(x, y) = E_q(z|x,y)[ log p(x | z, y) ] - KL( q(z|x,y) || p(z) )
    score:  log p(x | mu(x, y=1), y=1)        repair:  encoded with y=0, decoded with y=1
    """

    labels = Labels.EVERY_ROW
    has_classifier = False

    def __init__(self, config: CvaeConfig, torso: Torso, likelihood: Likelihood) -> None:
        super().__init__()
        self.likelihood = likelihood
        self.sigma = config.sigma
        self.encoder = GaussianEncoder(torso, config.code, labels=1)
        self.decoder = torso.decoder(config.code + 1)

    def encode(self, x: Tensor, y: Tensor) -> Gaussians:
        return self.encoder(torch.cat([x, y[:, None]], 1))

    def decode(self, z: Tensor, y: Tensor) -> Tensor:
        return self.decoder(torch.cat([z, y[:, None]], 1))

    def loss_terms(self, x: Tensor, y: Tensor) -> Terms:
        q = self.encode(x, y)
        output = self.decode(q.sample(), y)
        return Terms(
            rows={
                "reconstruction": -self.likelihood.log_prob_of_rows(x, output),
                "kl_z": kl_to_zero_mean(q, sigma=self.sigma),
            }
        )

    def inlier_logit(self, x: Tensor) -> Tensor:
        inlier = x.new_ones(len(x))
        output = self.decode(self.encode(x, inlier).mean, inlier)
        return self.likelihood.log_prob_of_rows(x, output)

    def repair(self, x: Tensor) -> Tensor:
        inlier, outlier = x.new_ones(len(x)), x.new_zeros(len(x))
        return self.decode(self.encode(x, outlier).mean, inlier)
