"""CCVAE: one latent number carries the label, under a prior that is learnt (annex D)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from unblemish.models.base import Labels, Model, Terms
from unblemish.models.divergences import kl_to_bernoulli, kl_to_zero_mean, log_bernoulli, log_normal
from unblemish.models.likelihoods import Likelihood
from unblemish.models.networks import GaussianEncoder, Gaussians, Torso

# The trapezoid rule on a grid this wide and fine is exact to 1e-8 for a classifier that turns from 0 to 1 within a
# tenth of the posterior's deviation, where as many Gauss-Hermite nodes would be wrong in the second digit.
REACH, POINTS = 8.0, 161


@dataclass(frozen=True)
class CcvaeConfig:
    alpha: float = 0.6
    style_code: int = 15


class Ccvae(Model):
    """y ~ Bernoulli(alpha), z_c ~ N(m_y, s_y^2) with m, s learnt, z_s ~ N(0, I), x ~ p(x | [z_c; z_s]).

    w       = q(y|z_c) / q(y|x),    q(y|x) = E_q(z_c|x)[ q(y|z_c) ], by quadrature: z_c is one number
    L(x)    = E_q[ log p(x|z) p(z_s) / q(z|x) + sum_y q(y|z_c) log p(z_c|y) p(y) / q(y|z_c) ]
    L(x, y) = E_q[ w log p(x|z) p(z_c|y) p(z_s) / (q(y|z_c) q(z|x)) ] + beta log q(y|x) + log p(y)
    As E_q[w] = 1 and z_s does not depend on w, its part is the KL in closed form. w's numerator does not teach z_c.
    score:  q(y=1|x)        repair:  the decoder's mean at [m_1; mu_s(x)]
    """

    labels = Labels.BOTH
    has_classifier = True
    points: Tensor
    log_weights: Tensor

    def __init__(self, config: CcvaeConfig, torso: Torso, likelihood: Likelihood) -> None:
        super().__init__()
        self.config, self.likelihood = config, likelihood
        self.encode = GaussianEncoder(torso, 1 + config.style_code)
        self.decode = torso.decoder(1 + config.style_code)
        self.weight, self.bias = nn.Parameter(torch.ones(())), nn.Parameter(torch.zeros(()))
        self.prior_mean = nn.Parameter(torch.tensor([-1.0, 1.0]))  # of outliers, of inliers
        self.prior_log_variance = nn.Parameter(torch.zeros(2))
        points = torch.linspace(-REACH, REACH, POINTS)
        self.register_buffer("points", points, persistent=False)
        self.register_buffer("log_weights", (-0.5 * points.square()).log_softmax(0), persistent=False)

    def classify(self, z_c: Tensor) -> Tensor:
        """The logit of q(y=1 | z_c)."""
        return self.weight * z_c + self.bias

    def log_q_y(self, q: Gaussians) -> tuple[Tensor, Tensor]:
        """(B,) twice: log q(y=1|x) and log q(y=0|x)."""
        z_c = q.mean[:, :1] + (0.5 * q.log_variance[:, :1]).exp() * self.points  # (B, points)
        logit = self.classify(z_c)
        return (
            (F.logsigmoid(logit) + self.log_weights).logsumexp(1),
            (F.logsigmoid(-logit) + self.log_weights).logsumexp(1),
        )

    def loss_terms(self, x: Tensor, y: Tensor) -> Terms:
        alpha = self.config.alpha
        q = self.encode(x)
        z = q.sample()
        z_c = z[:, 0]
        fit = self.likelihood.log_prob_of_rows(x, self.decode(z))

        logit = self.classify(z_c)
        log_q1, log_q0 = self.log_q_y(q)
        known = y >= 0
        # y where it is known, else its posterior: a sum over y that serves L(x) and L(x, y)
        pi = torch.where(known, y, logit.sigmoid())
        log_q_y_given_x = torch.where(y > 0, log_q1, log_q0)
        log_q_y_given_z = F.logsigmoid(torch.where(y > 0, logit, -logit))
        held_logit = self.classify(z_c.detach())
        log_w = F.logsigmoid(torch.where(y > 0, held_logit, -held_logit)) - log_q_y_given_x
        w = torch.where(known, log_w.exp(), 1.0)

        log_q_c = log_normal(z_c, q.mean[:, 0], q.log_variance[:, 0])
        log_p_c = log_normal(z_c[:, None], self.prior_mean, self.prior_log_variance)  # (B, 2)
        kl_c = log_q_c - (1 - pi) * log_p_c[:, 0] - pi * log_p_c[:, 1]
        kl_s = kl_to_zero_mean(Gaussians(q.mean[:, 1:], q.log_variance[:, 1:]), sigma=1.0)
        kl_y = torch.where(known, w * log_q_y_given_z - log_bernoulli(y, alpha), kl_to_bernoulli(logit, alpha))
        return Terms(
            rows={
                "reconstruction": -w * fit,
                "kl_z": w * kl_c + kl_s,
                "kl_y": kl_y,
            },
            # a sum over the trusted set and not its mean: a row counts beta times, however many there are
            trusted_sums={"cross_entropy": torch.where(known, -log_q_y_given_x, 0.0)},
        )

    def inlier_logit(self, x: Tensor) -> Tensor:
        log_q1, log_q0 = self.log_q_y(self.encode(x))
        return log_q1 - log_q0

    def repair(self, x: Tensor) -> Tensor:
        style = self.encode(x).mean[:, 1:]
        inlier = self.prior_mean[1].expand(len(x), 1)
        return self.decode(torch.cat([inlier, style], 1))
