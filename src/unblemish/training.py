"""The only training loop: weighs the terms by schedule, steps, stops, resumes, and recovers."""

from __future__ import annotations

import json
import time
from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from unblemish.data.rows import Rows
from unblemish.data.write import cannot_write, write_file
from unblemish.errors import BadInput, Diverged
from unblemish.models.base import Labels, Model, Terms
from unblemish.models.networks import bfloat16_products
from unblemish.models.recipe import Recipe

MAX_RECOVERIES = 3
ONE_THREAD_BELOW = 2_000_000  # parameters


@dataclass(frozen=True)
class Progress:
    """Where training stands after an epoch."""

    epoch: int
    epochs: int
    loss: float
    terms: Mapping[str, float]  # unweighted means over the epoch
    seconds_left: float
    message: str
    phase: str


def train(
    model: Model,
    x: Tensor | Rows,
    y: Tensor,
    recipe: Recipe,
    *,
    seed: int = 0,
    checkpoint: Path | None = None,
    fingerprint: str = "",
    seconds_between_checkpoints: float = 20.0,
    phase: str = "fit",
    message: str = "",
) -> Generator[Progress, None, list[dict[str, float]]]:
    """Train in place, yielding after each epoch; leave at any time with a checkpoint from which it continues.

    x (N, D) standardised, y (N,): 1, 0 or -1. All randomness comes from (seed, epoch), so a run that was
    interrupted and resumed ends with the same weights, bit for bit, as one that was not. A checkpoint whose
    `fingerprint` is another's is refused. `phase` and a first `message` are for whoever watches. Returns the loss
    and terms of every epoch, also those before a resume.
    """
    run = Trainer(model, x, y, recipe, seed)
    if checkpoint is not None and checkpoint.exists():
        run.load(checkpoint, fingerprint)
        message = f"going on after epoch {run.epoch}, from {checkpoint}"
    good = run.state()  # the end of the last good epoch: what is checkpointed, and fallen back to
    saved_at = started = time.monotonic()
    first_epoch = run.epoch
    try:
        while run.epoch < recipe.epochs and not run.has_settled():
            terms = run.train_epoch()
            if terms is None:
                message = run.recover(good)
            else:
                run.epoch += 1
                run.curve.append(terms)
            good = run.state()
            now = time.monotonic()
            if checkpoint is not None and now - saved_at > seconds_between_checkpoints:
                save_checkpoint(checkpoint, good, fingerprint)
                saved_at = now
            last = dict(run.curve[-1]) if run.curve else {"loss": float("nan")}
            yield Progress(
                epoch=run.epoch,
                epochs=recipe.epochs,
                loss=last.pop("loss"),
                terms=last,
                seconds_left=(now - started) / max(run.epoch - first_epoch, 1) * (recipe.epochs - run.epoch),
                message=message,
                phase=phase,
            )
            message = ""
    except (KeyboardInterrupt, GeneratorExit):
        run.restore(good)
        if checkpoint is not None:
            save_checkpoint(checkpoint, good, fingerprint)
        raise
    if checkpoint is not None:
        save_checkpoint(checkpoint, good, fingerprint)
    return run.curve


class Adam:
    """torch's own fused step, without what torch.optim does for each parameter before it: a twentieth of a fit."""

    def __init__(self, parameters: dict[str, Tensor], weight_decay: float) -> None:
        self.names, self.parameters = list(parameters), list(parameters.values())
        self.weight_decay = weight_decay
        self.means = [torch.zeros_like(p) for p in self.parameters]
        self.squares = [torch.zeros_like(p) for p in self.parameters]
        self.steps = torch.zeros((), device=self.parameters[0].device)

    def step(self, loss: Tensor, learning_rate: float) -> None:
        """A step down the gradient of the loss."""
        gradients = torch.autograd.grad(loss, self.parameters)
        self.steps += 1
        with torch.no_grad():
            torch._fused_adam_(
                self.parameters, gradients, self.means, self.squares, [], [self.steps] * len(self.parameters),
                lr=learning_rate, beta1=0.9, beta2=0.999, weight_decay=self.weight_decay, eps=1e-8,
                amsgrad=False, maximize=False,
            )  # fmt: skip

    def tensors(self) -> dict[str, Tensor]:
        """All that a checkpoint must keep, by name."""
        named = {"adam.steps": self.steps}
        for name, mean, square in zip(self.names, self.means, self.squares, strict=True):
            named |= {f"adam.mean.{name}": mean, f"adam.square.{name}": square}
        return named


@dataclass
class _State:
    tensors: dict[str, Tensor]
    epoch: int
    recoveries: int
    curve: list[dict[str, float]]


class Trainer:
    """One training run: what changes from epoch to epoch, and how."""

    def __init__(self, model: Model, x: Tensor | Rows, y: Tensor, recipe: Recipe, seed: int) -> None:
        check_trusted_set(model.labels, y.cpu().numpy())
        self.model, self.x, self.y, self.recipe, self.seed = model, x, y.to(x.dtype), recipe, seed
        self.trusted = int((y >= 0).sum())
        enough = min(recipe.trusted_rows, self.trusted)
        few = self.trusted * recipe.batch_size < enough * len(x)  # in a batch
        self.extra = enough if few and model.labels is Labels.BOTH else 0
        self.epoch = self.recoveries = 0
        self.curve: list[dict[str, float]] = []
        self.adam = Adam(dict(model.named_parameters()), recipe.weight_decay)

    def epochs(self) -> Iterator[int]:
        """The whole run, without recovery or checkpoint: yields how many epochs are done."""
        while self.epoch < self.recipe.epochs and self.train_epoch() is not None:
            self.epoch += 1
            yield self.epoch

    def train_epoch(self) -> dict[str, float] | None:
        """One pass over the rows; None if it met anything that is not finite."""
        recipe = self.recipe
        weights = {name: ramp.at(self.epoch, recipe.epochs) for name, ramp in recipe.weights.items()}
        self.model.train()
        names: list[str] = []
        totals = factors = torch.empty(0)
        devices = [] if self.x.device.type == "cpu" else [self.x.device]
        with torch.random.fork_rng(devices=devices), bfloat16_products(recipe.bfloat16), self.threads():
            torch.manual_seed(_mix(self.seed, self.epoch, self.recoveries))
            batches = self.batches()
            for k, rows in enumerate(batches):
                terms = self.model.loss_terms(self.x[rows], self.y[rows])
                means = self.reduce(terms, weights, self.extra)
                values = torch.stack(list(means.values()))
                if not names:  # the terms of an epoch's batches are the same
                    names = list(means)
                    factors = values.new_tensor([weights.get(name, 1.0) for name in names])
                    totals = torch.zeros_like(factors)
                self.adam.step(
                    values @ factors, self.learning_rate((self.epoch + (k + 0.5) / len(batches)) / recipe.epochs)
                )
                totals += values.detach()  # summed where they are: no waiting for a GPU
        totals /= len(batches)
        epoch_means = {"loss": float(totals @ factors), **dict(zip(names, totals.tolist(), strict=True))}
        finite = all(torch.isfinite(p).all() for p in self.model.parameters())
        return epoch_means if finite and abs(epoch_means["loss"]) < float("inf") else None

    @contextmanager
    def threads(self) -> Iterator[None]:
        """One thread for a small model: a second one saves little, and where others work too it waits and waits."""
        before = torch.get_num_threads()
        if sum(p.numel() for p in self.model.parameters()) < ONE_THREAD_BELOW:
            torch.set_num_threads(1)
        try:
            yield
        finally:
            torch.set_num_threads(before)

    def batches(self) -> list[Tensor]:
        """The rows of each step: parts that differ by one row at most, so that none is too small to mean much.

        Behind each part stand `extra` rows of the trusted set, in turn. Without them a batch seldom holds more than one
        or two, each of which counts so much that long steps go astray.
        """
        parts = self.shuffled().tensor_split(-(-len(self.x) // self.recipe.batch_size))
        if not self.extra:
            return list(parts)
        trusted = torch.nonzero(self.y >= 0)[:, 0]
        turns = -(-len(parts) * self.extra // len(trusted))
        in_turn = torch.cat([trusted[torch.randperm(len(trusted))] for _ in range(turns)])
        return [torch.cat(both) for both in zip(parts, in_turn.split(self.extra), strict=False)]

    def shuffled(self) -> Tensor:
        """All rows in random order, the trusted ones evenly spaced: every batch has its share of the few there are.

        Each row is as likely to be in any batch as any other, so estimates stay unbiased and vary less.
        """
        n, labelled = len(self.y), self.y.cpu() >= 0
        trusted, others = torch.nonzero(labelled)[:, 0], torch.nonzero(~labelled)[:, 0]
        places = (torch.arange(len(trusted)) * n + torch.randint(n, (1,))) // max(len(trusted), 1)
        is_trusted_place = torch.zeros(n, dtype=torch.bool)
        is_trusted_place[places] = True
        order = torch.empty(n, dtype=torch.long)
        order[is_trusted_place] = trusted[torch.randperm(len(trusted))]
        order[~is_trusted_place] = others[torch.randperm(len(others))]
        return order.to(self.x.device)

    def reduce(self, terms: Terms, weights: Mapping[str, float], extra: int = 0) -> dict[str, Tensor]:
        """Unbiased estimates, from a batch, of the means over all rows and over the trusted set."""

        def mean_of_trusted(values: Tensor) -> Tensor:
            if extra:
                return values[-extra:].mean()
            return values.sum() * (len(self.x) / (len(values) * max(self.trusted, 1)))

        means = {name: values[: len(values) - extra].mean() for name, values in terms.rows.items()}
        means |= {name: mean_of_trusted(values) for name, values in terms.trusted.items()}
        share = self.trusted / len(self.x)
        means |= {name: share * mean_of_trusted(values) for name, values in terms.trusted_sums.items()}
        for name, penalty in terms.penalties.items():
            if weights.get(name, 1.0) > 0:
                means[name] = penalty()
        return means

    def learning_rate(self, done: float) -> float:
        """When this share of the steps is done, and after the recoveries there were."""
        return self.recipe.rate_at(done) * 0.3**self.recoveries

    def has_settled(self) -> bool:
        """Whether the loss has not improved for `patience` epochs with all weights at their top."""
        patience = self.recipe.patience
        if patience is None:
            return False
        risen = max((ramp.risen(self.recipe.epochs) for ramp in self.recipe.weights.values()), default=0.0)
        losses = [terms["loss"] for epoch, terms in enumerate(self.curve) if epoch >= risen]
        return len(losses) > patience and min(losses[-patience:]) >= min(losses[:-patience])

    def _tensors(self) -> dict[str, Tensor]:
        tensors = {f"model.{name}": value for name, value in self.model.state_dict().items()}
        return tensors | self.adam.tensors()

    def state(self) -> _State:
        tensors = {name: value.detach().clone() for name, value in self._tensors().items()}
        return _State(tensors, self.epoch, self.recoveries, list(self.curve))

    def restore(self, state: _State) -> None:
        with torch.no_grad():
            for name, value in self._tensors().items():
                value.copy_(state.tensors[name])
        self.epoch, self.recoveries, self.curve = state.epoch, state.recoveries, list(state.curve)

    def recover(self, good: _State) -> str:
        """Back to the last good state with a lower learning rate; says so, or gives up with that state."""
        self.restore(good)
        met = f"numbers that are not finite in epoch {self.epoch + 1}"
        if self.recoveries == MAX_RECOVERIES:
            raise Diverged(
                f"training met {met}, also after the learning rate was lowered {MAX_RECOVERIES} times; the model is as "
                "it was before. Check the data for extreme values, or give a lower learning rate",
                self.curve,
            )
        self.recoveries += 1
        lowered = self.learning_rate(done=self.recipe.rise)
        return f"{met}: back to the state before it, learning rate lowered to {lowered:.2g}"

    def load(self, path: Path, fingerprint: str) -> None:
        state = load_checkpoint(path, fingerprint)
        if {n: v.shape for n, v in state.tensors.items()} != {n: v.shape for n, v in self._tensors().items()}:
            raise BadInput(f"{path} is a checkpoint of another model; remove it to start anew")
        self.restore(state)


def check_trusted_set(needed: Labels, y: NDArray[np.int64]) -> None:
    """Refuse a trusted set that a model cannot be fitted with."""
    inliers, outliers = int((y == 1).sum()), int((y == 0).sum())
    if needed is Labels.EVERY_ROW and inliers + outliers < len(y):
        raise BadInput(
            f"row {np.flatnonzero(y < 0)[0]} has no label, and this model is fully supervised: label every row, or "
            "choose 'clsvae', which needs about ten labels of each kind"
        )
    if needed is not Labels.NONE and not (inliers and outliers):
        found = f"labels of one class only ({inliers or outliers} rows)" if inliers + outliers else "no labels"
        raise BadInput(
            f"y has {found}; label about ten rows of each kind of inlier with 1 and ten of each kind of error with 0"
        )


def _mix(*numbers: int) -> int:
    """One seed out of several, so that neighbouring seeds and epochs share no stream."""
    mixed = 0
    for number in numbers:
        mixed = (mixed * 6364136223846793005 + number + 1442695040888963407) % 2**63
    return mixed


def save_checkpoint(path: Path, state: _State, fingerprint: str) -> None:
    about = {
        "epoch": state.epoch,
        "recoveries": state.recoveries,
        "curve": state.curve,
        "fingerprint": fingerprint,
    }
    tensors = {name: value.cpu().contiguous() for name, value in state.tensors.items()}
    try:
        write_file(path, save(tensors, {"unblemish": json.dumps(about)}))
    except OSError as error:
        raise cannot_write(path, error) from error


def load_checkpoint(path: Path, fingerprint: str) -> _State:
    about, tensors = _read_checkpoint(path)
    if about["fingerprint"] != fingerprint:
        raise BadInput(f"{path} is of a fit with other data, labels or settings; remove it to start anew")
    return _State(tensors, about["epoch"], about["recoveries"], about["curve"])


def read_fingerprint(path: Path) -> str:
    """Which fit a checkpoint belongs to."""
    return str(_read_checkpoint(path)[0]["fingerprint"])


def _read_checkpoint(path: Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    try:
        with safe_open(path, framework="pt") as file:
            about: dict[str, Any] = json.loads((file.metadata() or {})["unblemish"])
            return about, {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, KeyError, ValueError, OSError) as error:
        raise BadInput(f"{path} is not a checkpoint, or is damaged; remove it to start anew") from error
