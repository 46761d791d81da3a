"""The paper's hyper-parameters as data, and defaults for data that the paper never saw."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from unblemish.data.schema import Schema
from unblemish.errors import BadInput
from unblemish.models.base import Labels, Model
from unblemish.models.ccvae import Ccvae, CcvaeConfig
from unblemish.models.clsvae import Clsvae, ClsvaeConfig
from unblemish.models.cvae import Cvae, CvaeConfig
from unblemish.models.likelihoods import likelihood_of
from unblemish.models.networks import Conv, Mlp, Torso
from unblemish.models.recipe import Ramp, Recipe
from unblemish.models.vae import Vae, VaeConfig
from unblemish.models.vaegmm import Vaegmm, VaegmmConfig

Config: TypeAlias = VaeConfig | CvaeConfig | VaegmmConfig | CcvaeConfig | ClsvaeConfig

MODELS: dict[type[Config], type[Any]] = {
    VaeConfig: Vae,
    CvaeConfig: Cvae,
    VaegmmConfig: Vaegmm,
    CcvaeConfig: Ccvae,
    ClsvaeConfig: Clsvae,
}


@dataclass(frozen=True)
class Preset:
    """All that a fit needs to know besides the data."""

    config: Config
    recipe: Recipe


def _preset(
    config: Config, epochs: int, *, kl: Ramp | None = None, beta: float = 0, dc: Ramp | None = None, l2: float = 0
) -> Preset:
    """A preset in the paper's own words. Terms that a model does not have are not in its weights."""
    weights: dict[str, Ramp] = {}
    if kl is not None:
        weights |= {"kl_z": kl, "kl_y": kl}
    if beta:
        weights["cross_entropy"] = Ramp(beta)
    if isinstance(config, ClsvaeConfig):
        weights["dependence"] = dc or Ramp(0.0)
    return Preset(config, Recipe(epochs, weight_decay=l2, weights=weights))


BATCH = 128  # the authors' loss was a sum over such a batch, ours is its mean: their L2 coefficient is divided by it


def _shapes() -> dict[str, Preset]:
    clsvae = ClsvaeConfig(sigma_c=0.5, sigma_d=5.0, sigma_eps=0.5)
    kl = Ramp(1.0, delay=10, ratio=0.5)
    return {
        "vae": _preset(VaeConfig(), 200, kl=kl),
        "vae-l2": _preset(VaeConfig(), 200, kl=kl, l2=35 / BATCH),
        "vaegmm": _preset(VaegmmConfig(sigma_inlier=0.9), 200, kl=kl, beta=1000),
        "cvae": _preset(CvaeConfig(sigma=0.5), 200, kl=kl),
        "ccvae": _preset(CcvaeConfig(), 200, beta=50_000),
        "clsvae-nodc": _preset(clsvae, 200, kl=kl, beta=1000),
        "clsvae": _preset(clsvae, 200, kl=kl, beta=1000, dc=Ramp(100.0, delay=10, ratio=0.5)),
    }


def _frey() -> dict[str, Preset]:
    clsvae = ClsvaeConfig(sigma_c=0.2, sigma_d=5.0, sigma_eps=0.6)
    kl = Ramp(1.0, delay=10, ratio=0.2)
    slow = Ramp(1.0, delay=20, ratio=0.5)
    return {
        "vae": _preset(VaeConfig(), 300, kl=slow),
        "vae-l2": _preset(VaeConfig(), 300, kl=slow, l2=100 / BATCH),
        "vaegmm": _preset(VaegmmConfig(sigma_inlier=0.6), 300, kl=kl, beta=1000),
        "cvae": _preset(CvaeConfig(sigma=0.2), 300, kl=kl),
        "ccvae": _preset(CcvaeConfig(), 300, beta=10_000),
        "clsvae-nodc": _preset(clsvae, 300, kl=kl, beta=1000),
        "clsvae": _preset(clsvae, 300, kl=kl, beta=1000, dc=Ramp(1000.0, delay=10, ratio=0.5)),
    }


def _fashion() -> dict[str, Preset]:
    clsvae = ClsvaeConfig(sigma_c=0.2, sigma_d=5.0, sigma_eps=0.1)
    kl = Ramp(1.0, delay=5, ratio=0.5)
    slow = Ramp(1.0, delay=20, ratio=0.5)
    return {
        "vae": _preset(VaeConfig(), 100, kl=slow),
        "vae-l2": _preset(VaeConfig(), 100, kl=slow, l2=100 / BATCH),
        "vaegmm": _preset(VaegmmConfig(sigma_inlier=0.5), 100, kl=kl, beta=100),
        "cvae": _preset(CvaeConfig(sigma=0.5), 100, kl=Ramp(1.0, delay=5, ratio=0.2)),
        "ccvae": _preset(CcvaeConfig(), 100, beta=250_000),
        "clsvae-nodc": _preset(clsvae, 100, kl=kl, beta=100),
        "clsvae": _preset(clsvae, 100, kl=kl, beta=100, dc=Ramp(1000.0, delay=5, ratio=0.5)),
    }


PAPER: dict[str, dict[str, Preset]] = {"shapes": _shapes(), "frey": _frey(), "fashion": _fashion()}
NAMES: tuple[str, ...] = tuple(PAPER["shapes"])


RECIPES = ("fast", "paper")


def fast(preset: Preset, rows: int) -> Preset:
    """The same in a third of the epochs: a higher learning rate, that rises at first and sinks to 0.

    Its height falls with the root of the number of steps; below 2000 steps the fit suffers, so there are at least as
    many. Every batch has some trusted rows, and large products are taken from bfloat16 where the processor has it.
    """
    paper = preset.recipe
    in_epoch = math.ceil(rows / paper.batch_size)
    shorter = paper.over(min(paper.epochs, max(math.ceil(paper.epochs / 3), math.ceil(2000 / in_epoch))))
    higher = max(1.0, 5 * math.sqrt(2000 / (in_epoch * shorter.epochs)))
    rate = min(higher, 5.0) * paper.learning_rate
    recipe = replace(shorter, learning_rate=rate, rise=0.15, fall=0.6, trusted_rows=8, bfloat16=True)
    return replace(preset, recipe=recipe)


def default(name: str, schema: Schema, rows: int, trusted: int) -> Preset:
    """A preset for data that the paper never saw: the one for Shapes, scaled from its 784 cells to these.

    The log-likelihood is a sum over cells and all else in the loss is weighed against it, so beta and lambda
    grow with the number of cells. A code is known the better the more cells speak for it (its posterior
    deviation falls with their root), so sigma_c and sigma_eps shrink with the root, but stay within
    [0.2, 1]; sigma_d stays ten times as wide. A code has at most as many numbers as there are cells.
    Epochs are such that about 6400 steps are made, as in the paper's smaller datasets.
    """
    share = schema.cells / 784
    sigma = min(max(0.5 / math.sqrt(share), 0.2), 1.0)
    batch = min(BATCH, max(16, rows // 8))
    epochs = min(max(math.ceil(6400 * batch / rows), 30), 400)
    paper = PAPER["shapes"][name]
    config = paper.config
    match config:
        case ClsvaeConfig():
            config = replace(
                config,
                sigma_c=sigma,
                sigma_eps=sigma,
                sigma_d=10 * sigma,
                clean_code=min(config.clean_code, schema.cells),
                dirty_code=min(config.dirty_code, schema.cells),
            )
        case CcvaeConfig():
            config = replace(config, style_code=min(config.style_code, schema.cells))
        case _:
            config = replace(config, code=min(config.code, schema.cells))
    weights = dict(paper.recipe.weights)
    for label in ("cross_entropy", "dependence"):
        if label in weights:
            weights[label] = replace(weights[label], top=weights[label].top * share)
    if isinstance(config, CcvaeConfig):  # its beta is for each row, and Shapes has 80 trusted ones in 4000
        weights["cross_entropy"] = Ramp(1000 * share * rows / max(trusted, 1))
    weights = {n: replace(ramp, delay=min(ramp.delay, epochs // 20)) for n, ramp in weights.items()}
    recipe = replace(paper.recipe, epochs=epochs, batch_size=batch, weights=weights)
    return Preset(config, recipe)


def model_class(config: Config) -> type[Model]:
    model: type[Model] = MODELS[type(config)]
    return model


def build(config: Config, schema: Schema, torso: str = "mlp") -> Model:
    """The model that a configuration describes, for such rows."""
    model: Model = MODELS[type(config)](config, _torso(torso, schema), likelihood_of(schema.kind))
    return model


def _torso(name: str, schema: Schema) -> Torso:
    if name == "mlp":
        return Mlp(schema.cells)
    if name != "conv":
        raise BadInput(f"torso is {name!r}; choose 'mlp' or 'conv'")
    if len(schema.shape) < 2:
        raise BadInput("torso='conv' needs images, but the rows of X have one dimension; use torso='mlp'")
    height, width, *channels = schema.shape
    if min(height, width) < 16:
        raise BadInput(f"torso='conv' needs images of 16x16 or more, not {height}x{width}; use torso='mlp'")
    return Conv(height, width, *(channels or [1]))


def with_imbalance(config: Config, y: NDArray[np.int64]) -> Config:
    """The configuration with omega_imb = max(1, trusted inliers / trusted outliers), where it has one."""
    if isinstance(config, VaegmmConfig | ClsvaeConfig):
        inliers, outliers = int((y == 1).sum()), int((y == 0).sum())
        return replace(config, omega_imb=max(1.0, inliers / max(outliers, 1)))
    return config


def labels_needed(name: str) -> Labels:
    """Which labels the model of this name cannot be fitted without."""
    return model_class(PAPER["shapes"][name].config).labels
