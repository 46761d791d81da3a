"""The time of a training step beside the time of its matrix products alone."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from tempfile import TemporaryDirectory
from typing import Any

import torch
from torch import Tensor, nn

from unblemish.benchmark import textbook
from unblemish.benchmark.corruption import Corrupted
from unblemish.benchmark.evaluate import labels_for
from unblemish.data.rows import Rows
from unblemish.data.schema import Schema
from unblemish.models import presets
from unblemish.models.clsvae import ClsvaeConfig
from unblemish.models.recipe import Ramp, Recipe
from unblemish.training import Trainer

BATCH = 128


@dataclass(frozen=True)
class Product:
    """A linear layer as it is used in a step: (rows, inputs) times (inputs, outputs)."""

    rows: int
    inputs: int
    outputs: int
    needs_input_gradient: bool

    @property
    def operations(self) -> int:
        return 2 * self.rows * self.inputs * self.outputs * (3 if self.needs_input_gradient else 2)

    def multiplications(self) -> Callable[[], None]:
        """The same products and nothing else: forward, gradient of the weights, gradient of the inputs."""
        x, weight = torch.randn(self.rows, self.inputs), torch.randn(self.outputs, self.inputs)
        gradient = torch.randn(self.rows, self.outputs)

        def run() -> None:
            torch.mm(x, weight.t())
            torch.mm(gradient.t(), x)
            if self.needs_input_gradient:
                torch.mm(gradient, weight)

        return run


def best_times(contestants: Mapping[str, Callable[[], Any]], rounds: int) -> dict[str, float]:
    """The least seconds of each, all taking turns, so that a noisy machine is noisy for all."""
    best = dict.fromkeys(contestants, float("inf"))
    for _ in range(rounds):
        for name, run in contestants.items():
            started = time.perf_counter()
            run()
            best[name] = min(best[name], time.perf_counter() - started)
    return best


def products_of(model: textbook.TextbookVae, x: Tensor, y: Tensor) -> list[Product]:
    """Every use of a linear layer in the loss of a batch, from the sizes of the layers."""
    found: list[Product] = []

    def note(layer: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        assert isinstance(layer, nn.Linear)
        found.append(Product(len(inputs[0]), layer.in_features, layer.out_features, inputs[0].requires_grad))

    hooks = [m.register_forward_pre_hook(note) for m in model.modules() if isinstance(m, nn.Linear)]
    model.loss(x, y, {"kl_z": 1.0, "kl_y": 1.0, "cross_entropy": 1.0, "dependence": 1.0})
    for hook in hooks:
        hook.remove()
    return found


def training_step(name: str, train: Corrupted, rounds: int) -> dict[str, float]:
    """Seconds of a step of `clsvae` or `vae` in float32 and bfloat16, of its products, and of other loops."""
    schema = Schema.of(train.dirty)
    y = torch.from_numpy(labels_for(name, train, 10, seed=0))
    x = Rows(train.dirty, schema, torch.device("cpu"))
    encoded = x[torch.arange(len(x))]
    preset = presets.PAPER["shapes"][name]
    steps = len(x) // BATCH
    recipe = Recipe(10**6, BATCH, weights={term: Ramp(ramp.top) for term, ramp in preset.recipe.weights.items()})

    def ours(*, bfloat16: bool) -> Callable[[], Any]:
        model = presets.build(preset.config, schema)
        return Trainer(model, x, y, replace(recipe, bfloat16=bfloat16), 0).train_epoch

    if isinstance(preset.config, ClsvaeConfig):
        theirs: textbook.TextbookVae = textbook.TextbookClsvae(schema.cells, preset.config, binary=True)
    else:
        theirs = textbook.TextbookVae(schema.cells, binary=True)
    lesson = textbook.train(theirs, encoded, y.float(), recipe)
    products = products_of(theirs, encoded[:BATCH], y[:BATCH].float())
    multiplications = [product.multiplications() for product in products]

    contestants: dict[str, Callable[[], Any]] = {
        "ours": ours(bfloat16=False),
        "textbook": lambda: next(lesson),
        "products": lambda: [run() for _ in range(steps) for run in multiplications],
    }
    if torch.cpu._is_avx512_bf16_supported():
        contestants["ours_bfloat16"] = ours(bfloat16=True)
    with TemporaryDirectory() as folder:
        pythae = None if name != "vae" else _pythae(encoded, folder)
        if pythae is not None:
            contestants["pythae"] = pythae
        best = best_times(contestants, rounds + 1)
    operations = sum(product.operations for product in products)
    return {name: seconds / steps for name, seconds in best.items()} | {"operations": float(operations)}


def _pythae(x: Tensor, folder: str) -> Callable[[], Any] | None:
    """An epoch of pythae's trainer on the same VAE, data and batch, where it is installed."""
    os.environ.setdefault("TQDM_DISABLE", "1")  # its bar would be timed, and stand between the lines
    try:
        from pythae.data.datasets import BaseDataset
        from pythae.models import VAE, VAEConfig
        from pythae.models.base.base_utils import ModelOutput
        from pythae.models.nn import BaseDecoder, BaseEncoder
        from pythae.trainers import BaseTrainer, BaseTrainerConfig
    except ImportError:
        return None
    cells = x.shape[1]

    class Encoder(BaseEncoder):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.body = nn.Sequential(textbook.network(cells, 200, 100, 50), nn.ReLU())
            self.mean, self.log_variance = nn.Linear(50, 15), nn.Linear(50, 15)

        def forward(self, rows: Tensor) -> Any:
            h = self.body(rows)
            return ModelOutput(embedding=self.mean(h), log_covariance=self.log_variance(h))

    class Decoder(BaseDecoder):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.body = nn.Sequential(textbook.network(15, 50, 100, 200, cells), nn.Sigmoid())

        def forward(self, z: Tensor) -> Any:
            return ModelOutput(reconstruction=self.body(z))

    config = VAEConfig(input_dim=(cells,), latent_dim=15, reconstruction_loss="bce")
    trainer = BaseTrainer(
        VAE(config, encoder=Encoder(), decoder=Decoder()),
        BaseDataset(x, torch.zeros(len(x))),
        training_config=BaseTrainerConfig(
            output_dir=folder, per_device_train_batch_size=BATCH, learning_rate=1e-3, no_cuda=True
        ),
    )
    trainer.prepare_training()
    return lambda: trainer.train_step(1)
