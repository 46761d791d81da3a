"""VAEGMM: a VAE whose prior is a narrow and a wide Gaussian (annex C)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from unblemish.models.base import Labels, Model, Terms
from unblemish.models.divergences import kl_to_bernoulli, kl_to_zero_mean, log_bernoulli, weighted_cross_entropy
from unblemish.models.likelihoods import Likelihood
from unblemish.models.networks import GaussianEncoder, Gaussians, Torso, mlp


@dataclass(frozen=True)
class VaegmmConfig:
    alpha: float = 0.6
    sigma_inlier: float = 0.9
    sigma_outlier: float = 5.0
    code: int = 15
    omega_imb: float = 1.0


class Vaegmm(Model):
    """y ~ Bernoulli(alpha), z ~ N(0, sigma_y^2 I), x ~ p(x | z).

    G(x, y) = E_q(z|x,y)[ log p(x | z) ] - KL( q(z|x,y) || p(z|y) )
    L(x)    = pi(x) G(x, 1) + (1 - pi(x)) G(x, 0) - KL( q(y|x) || p(y) ),   pi(x) = q(y=1|x)
    L(x, y) = G(x, y) + log p(y)
    score:  pi(x)        repair:  the decoder's mean at mu(x, y=1)
    """

    labels = Labels.BOTH
    has_classifier = True

    def __init__(self, config: VaegmmConfig, torso: Torso, likelihood: Likelihood) -> None:
        super().__init__()
        self.config, self.likelihood = config, likelihood
        self.encoder = GaussianEncoder(torso, config.code, labels=1)
        self.decode = torso.decoder(config.code)
        self.classifier = torch.nn.Sequential(torso.encoder(), mlp(torso.features, 1))

    def encode(self, x: Tensor, y: Tensor) -> Gaussians:
        return self.encoder(torch.cat([x, y[:, None]], 1))

    def loss_terms(self, x: Tensor, y: Tensor) -> Terms:
        c = self.config
        inlier, outlier = x.new_ones(len(x)), x.new_zeros(len(x))
        q1, q0 = self.encode(x, inlier), self.encode(x, outlier)
        outputs = self.decode(torch.cat([q1.sample(), q0.sample()])).view(2, *x.shape)
        fit1, fit0 = self.likelihood.log_prob_of_rows(x, outputs)  # (B,) each
        kl1, kl0 = kl_to_zero_mean(q1, c.sigma_inlier), kl_to_zero_mean(q0, c.sigma_outlier)
        logit = self.inlier_logit(x)
        known = y >= 0
        pi = torch.where(known, y, logit.sigmoid())  # y where it is known: L(x) and L(x, y) in one
        return Terms(
            rows={
                "reconstruction": -(pi * fit1 + (1 - pi) * fit0),
                "kl_z": pi * kl1 + (1 - pi) * kl0,
                "kl_y": torch.where(known, -log_bernoulli(y, c.alpha), kl_to_bernoulli(logit, c.alpha)),
            },
            trusted={"cross_entropy": weighted_cross_entropy(logit, y, c.omega_imb)},
        )

    def inlier_logit(self, x: Tensor) -> Tensor:
        return self.classifier(x)[:, 0]

    def repair(self, x: Tensor) -> Tensor:
        return self.decode(self.encode(x, x.new_ones(len(x))).mean)
