"""VAE: the unsupervised baseline (annex A). With weight decay it is the paper's VAE-L2."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from unblemish.models.base import Labels, Model, Terms
from unblemish.models.divergences import kl_to_zero_mean
from unblemish.models.likelihoods import Likelihood
from unblemish.models.networks import GaussianEncoder, Torso


@dataclass(frozen=True)
class VaeConfig:
    code: int = 15


class Vae(Model):
    """z ~ N(0, I), x ~ p(x | z).

    L(x) = E_q(z|x)[ log p(x | z) ] - KL( q(z|x) || p(z) )
    score:  log p(x | mu(x))            repair:  the decoder's mean at mu(x)
    """

    labels = Labels.NONE
    has_classifier = False

    def __init__(self, config: VaeConfig, torso: Torso, likelihood: Likelihood) -> None:
        super().__init__()
        self.likelihood = likelihood
        self.encode = GaussianEncoder(torso, config.code)
        self.decode = torso.decoder(config.code)

    def loss_terms(self, x: Tensor, y: Tensor) -> Terms:  # noqa: ARG002
        q = self.encode(x)
        output = self.decode(q.sample())
        return Terms(
            rows={
                "reconstruction": -self.likelihood.log_prob_of_rows(x, output),
                "kl_z": kl_to_zero_mean(q, sigma=1.0),
            }
        )

    def inlier_logit(self, x: Tensor) -> Tensor:
        return self.likelihood.log_prob_of_rows(x, self.repair(x))

    def repair(self, x: Tensor) -> Tensor:
        return self.decode(self.encode(x).mean)
