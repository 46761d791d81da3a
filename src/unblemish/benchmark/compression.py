"""The compression hypothesis (last annex): clean data can be told in fewer latent numbers than corrupted data."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, fields
from functools import partial
from pathlib import Path
from typing import IO, Any

import numpy as np
import torch
from torch import Tensor

from unblemish.benchmark.datasets import load
from unblemish.benchmark.lines import once_each, read_lines
from unblemish.benchmark.pictures import INK, INLIER_COLOUR, OUTLIER_COLOUR, new_figure
from unblemish.benchmark.tables import spread
from unblemish.data.schema import Schema
from unblemish.models import presets
from unblemish.models.divergences import log_normal
from unblemish.models.presets import PAPER
from unblemish.models.vae import Vae, VaeConfig
from unblemish.training import train

SIZES = (2, 4, 6, 8, 10, 15, 20, 25, 35, 50)  # of the latent code, as in the paper
SAMPLES = 250


@dataclass(frozen=True)
class Case:
    """A VAE with a code of this size, fitted to Frey-Faces as they are or with 35 % corrupted."""

    size: int
    corrupted: bool
    seed: int


def iwae_bound(model: Vae, x: Tensor, samples: int, rows_at_once: int = 32) -> Tensor:
    """(N,): log 1/K sum_k p(x | z_k) p(z_k) / q(z_k | x), z_k ~ q(z | x). It grows with K, towards log p(x)."""
    bounds = []
    with torch.no_grad():
        for part in x.split(rows_at_once):
            q = model.encode(part)
            mean, log_variance = q.mean[:, None], q.log_variance[:, None]  # (B, 1, q)
            noise = torch.randn(len(part), samples, q.mean.shape[1], dtype=x.dtype)
            z = mean + (0.5 * log_variance).exp() * noise  # (B, K, q)
            output = model.decode(z.flatten(0, 1)).view(len(part), samples, -1)
            log_joint = model.likelihood.log_prob_of_rows(part[:, None], output)
            log_joint = log_joint + log_normal(z, torch.zeros_like(z), torch.zeros_like(z)).sum(2)
            log_weight = log_joint - log_normal(z, mean, log_variance).sum(2)
            bounds.append(log_weight.logsumexp(1) - math.log(samples))
    return torch.cat(bounds)


def result(case: Case, epochs: int | None = None) -> dict[str, Any]:
    """The entropy of the training rows as the fitted model has it: minus the mean of their IWAE bounds."""
    rows = load("frey", case.seed).train
    schema = Schema.of(rows.dirty)  # one scale for both, else their densities could not be compared
    x = torch.from_numpy(schema.standardised(rows.dirty if case.corrupted else rows.clean)).float()
    recipe = PAPER["frey"]["vae"].recipe
    if epochs is not None:
        recipe = recipe.over(epochs)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(case.seed)
        model = presets.build(VaeConfig(code=case.size), schema)
        assert isinstance(model, Vae)
        for _ in train(model, x, torch.full((len(x),), -1.0), recipe, seed=case.seed):
            pass
        entropy = -iwae_bound(model, x, SAMPLES).double().mean().item()
    return {**asdict(case), "entropy": entropy, "epochs": recipe.epochs}


def study(out: Path, seeds: int, jobs: int, epochs: int | None = None) -> Iterator[dict[str, Any]]:
    """Every case that `out` does not hold yet, its line kept as it comes."""
    cases = [Case(size, corrupted, seed) for seed in range(seeds) for size in SIZES for corrupted in (False, True)]
    with once_each(cases, partial(result, epochs=epochs), out, jobs, read_done=_done) as lines:
        yield from lines


def _done(out: Path) -> set[Case]:
    return {case_of(line) for line in read(out)} if out.exists() else set()


def read(out: Path) -> list[dict[str, Any]]:
    return read_lines(out, case_of)


def case_of(line: dict[str, Any]) -> Case:
    return Case(**{field.name: line[field.name] for field in fields(Case)})


@dataclass(frozen=True)
class Curve:
    """Mean and standard error of the entropy at each size of the code."""

    sizes: Sequence[int]
    means: np.ndarray[Any, np.dtype[np.float64]]
    errors: np.ndarray[Any, np.dtype[np.float64]]

    @classmethod
    def of(cls, lines: Sequence[dict[str, Any]], *, corrupted: bool) -> Curve:
        values: dict[int, list[float]] = {}
        for line in lines:
            if line["corrupted"] == corrupted:
                values.setdefault(line["size"], []).append(line["entropy"])
        sizes = sorted(values)
        means, errors = np.array([spread(values[size]) for size in sizes]).T
        return cls(sizes, means, np.nan_to_num(errors))

    def enough(self) -> int:
        """The smallest size that brings the entropy nine tenths of the way from the first size to the lowest."""
        goal = self.means[0] - 0.9 * (self.means[0] - self.means.min())
        return self.sizes[int(np.flatnonzero(self.means <= goal)[0])]


def sentence(lines: Sequence[dict[str, Any]]) -> str:
    """What the study shows, in words, whichever way it came out."""
    clean, corrupted = (Curve.of(lines, corrupted=c) for c in (False, True))
    more = corrupted.means - clean.means
    higher = int((more > 0).sum())
    return (
        f"Corrupted data have the higher entropy at {higher} of {len(more)} sizes of the code, by {more.min():.0f} to "
        f"{more.max():.0f} nats an image; nine tenths of what a larger code brings is there with {clean.enough()} "
        f"latent numbers for clean data, with {corrupted.enough()} for corrupted data."
    )


def chart(file: IO[bytes], lines: Sequence[dict[str, Any]]) -> None:
    """Entropy against the size of the code, for clean and for corrupted data."""
    figure = new_figure(6.4, 3.8)
    axis = figure.subplots()
    seeds = len({line["seed"] for line in lines})
    for corrupted, colour, name in ((True, OUTLIER_COLOUR, "35 % corrupted"), (False, INLIER_COLOUR, "clean")):
        curve = Curve.of(lines, corrupted=corrupted)
        axis.plot(curve.sizes, curve.means, color=colour, marker="o", markersize=4, linewidth=1.5, label=name)
        low, high = curve.means - curve.errors, curve.means + curve.errors
        axis.fill_between(curve.sizes, low, high, color=colour, alpha=0.2, linewidth=0)
    axis.set_xticks(SIZES, [str(size) for size in SIZES])
    axis.set_xlabel("latent numbers", fontsize=9, color=INK)
    axis.set_ylabel("entropy, nats an image (lower is better)", fontsize=9, color=INK)
    axis.set_title(f"Frey-Faces, IWAE bound with K = {SAMPLES}, {seeds} seeds", fontsize=9, color=INK)
    axis.tick_params(labelsize=8)
    axis.grid(axis="y", color="#dddddd", linewidth=0.6)
    axis.spines[["top", "right"]].set_visible(False)
    axis.legend(fontsize=8.5, frameon=False)
    figure.savefig(file, format="png")
