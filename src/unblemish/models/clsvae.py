"""CLSVAE: the paper's model (section 4). One code for what is clean, one for what is error."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from unblemish.models.base import Labels, Model, Terms
from unblemish.models.divergences import (
    distance_correlation,
    kl_to_bernoulli,
    kl_to_zero_mean,
    log_bernoulli,
    weighted_cross_entropy,
)
from unblemish.models.likelihoods import Likelihood
from unblemish.models.networks import GaussianEncoder, Torso, mlp, noise_like


@dataclass(frozen=True)
class ClsvaeConfig:
    """`stop_gradient` keeps the classifier from teaching z_c; `root_dc` takes the root of the paper's dCorr."""

    alpha: float = 0.6
    sigma_c: float = 0.5
    sigma_d: float = 5.0
    sigma_eps: float = 0.5
    clean_code: int = 10
    dirty_code: int = 5
    stop_gradient: bool = True
    root_dc: bool = False
    omega_imb: float = 1.0


class Clsvae(Model):
    """y ~ Bernoulli(alpha), z_c ~ N(0, sigma_c^2 I), z_d ~ N(0, sigma_d^2 I), z_eps ~ N(0, sigma_eps^2 I),
    x ~ p(x | [z_c; z_eps]) if y = 1, else p(x | [z_c; z_d]).

    L(x)    = E_q[ pi log p(x | [z_c; z_eps]) + (1 - pi) log p(x | [z_c; z_d]) - KL( q(y|z_c,z_d) || p(y) ) ]
              - KL( q(z_c|x) || p(z_c) ) - KL( q(z_d|x) || p(z_d) ),     pi = q(y=1 | z_c, z_d)
    L(x, y) = the same with y for pi, and log p(y) in the place of its KL
    trusted rows also pay the weighted cross-entropy of q(y|z_c,z_d), each batch dCorr(z_c, z_d).
    score:  pi at the means        repair:  the decoder's mean at [mu_c(x); 0]
    """

    labels = Labels.BOTH
    has_classifier = True

    def __init__(self, config: ClsvaeConfig, torso: Torso, likelihood: Likelihood) -> None:
        super().__init__()
        self.config, self.likelihood = config, likelihood
        self.encode_clean = GaussianEncoder(torso, config.clean_code)
        self.encode_dirty = GaussianEncoder(torso, config.dirty_code)
        self.decode = torso.decoder(config.clean_code + config.dirty_code)
        self.classifier = mlp(config.clean_code + config.dirty_code, 7, 5, 1)

    def classify(self, z_c: Tensor, z_d: Tensor) -> Tensor:
        """(B,): the logit of q(y=1 | z_c, z_d)."""
        if self.config.stop_gradient:
            z_c = z_c.detach()
        return self.classifier(torch.cat([z_c, z_d], 1))[:, 0]

    def loss_terms(self, x: Tensor, y: Tensor) -> Terms:
        c = self.config
        q_c, q_d = self.encode_clean(x), self.encode_dirty(x)
        z_c, z_d = q_c.sample(), q_d.sample()
        z_eps = c.sigma_eps * noise_like(z_d)
        codes = torch.cat([z_c, z_eps, z_c, z_d], 1).view(2 * len(x), -1)  # a row as an inlier, then as an outlier
        fits = self.likelihood.log_prob_of_rows(x[:, None], self.decode(codes).view(len(x), 2, -1))  # (B, 2)
        logit = self.classify(z_c, z_d)
        known = y >= 0
        pi = torch.where(known, y, logit.sigmoid())  # y where it is known: L(x) and L(x, y) in one
        return Terms(
            rows={
                "reconstruction": -(pi * fits[:, 0] + (1 - pi) * fits[:, 1]),
                "kl_z": kl_to_zero_mean(q_c, c.sigma_c) + kl_to_zero_mean(q_d, c.sigma_d),
                "kl_y": torch.where(known, -log_bernoulli(y, c.alpha), kl_to_bernoulli(logit, c.alpha)),
            },
            trusted={"cross_entropy": weighted_cross_entropy(logit, y, c.omega_imb)},
            penalties={"dependence": lambda: distance_correlation(z_c, z_d, root=c.root_dc)},
        )

    def inlier_logit(self, x: Tensor) -> Tensor:
        return self.classify(self.encode_clean(x).mean, self.encode_dirty(x).mean)

    def repair(self, x: Tensor) -> Tensor:
        z_c = self.encode_clean(x).mean
        return self.decode(torch.cat([z_c, z_c.new_zeros(len(x), self.config.dirty_code)], 1))
