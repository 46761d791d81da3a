"""The paper's choice of hyper-parameters: by average precision on the trusted set alone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from typing import Any

import numpy as np
import torch

from unblemish.benchmark.datasets import load
from unblemish.benchmark.evaluate import labels_for
from unblemish.benchmark.pool import results, workers
from unblemish.benchmark.runs import Run
from unblemish.data.labels import OUTLIER
from unblemish.data.rows import Rows
from unblemish.data.schema import Schema
from unblemish.metrics import average_precision
from unblemish.models import presets
from unblemish.models.base import Labels
from unblemish.models.presets import PAPER, Preset
from unblemish.training import train
from unblemish.trusted import held_out_logits

FOLDS = 3


@dataclass(frozen=True)
class Candidate:
    """Settings to try: values of the model's configuration, and factors of the paper's beta and weight decay."""

    config: tuple[tuple[str, float], ...] = ()
    beta: float = 1.0
    decay: float = 1.0

    def of(self, preset: Preset) -> Preset:
        recipe, values = preset.recipe, dict[str, Any](self.config)
        weights = dict(recipe.weights)
        if "cross_entropy" in weights:
            weights["cross_entropy"] = replace(weights["cross_entropy"], top=weights["cross_entropy"].top * self.beta)
        changed = replace(recipe, weights=weights, weight_decay=recipe.weight_decay * self.decay)
        return Preset(replace(preset.config, **values), changed)

    def __str__(self) -> str:
        parts = [f"{name} {value:g}" for name, value in self.config]
        parts += [f"beta x {self.beta:g}"] if self.beta != 1 else []
        parts += [f"weight decay x {self.decay:g}"] if self.decay != 1 else []
        return ", ".join(parts) or "as published"


def _grid(name: str, values: Sequence[float], betas: Sequence[float]) -> list[Candidate]:
    return [Candidate(((name, value),), beta) for value, beta in product(values, betas)]


GRIDS: dict[str, list[Candidate]] = {
    "vae-l2": [Candidate(decay=factor) for factor in (0.1, 0.3, 1.0, 3.0)],
    "vaegmm": _grid("sigma_inlier", (0.3, 0.6, 0.9), (0.1, 1.0)),
    "cvae": [Candidate((("sigma", sigma),)) for sigma in (0.1, 0.2, 0.5, 0.8)],
    "ccvae": [Candidate(beta=factor) for factor in (0.1, 1.0, 10.0)],
    "clsvae-nodc": _grid("sigma_c", (0.2, 0.5, 1.0), (0.1, 1.0)),
    "clsvae": _grid("sigma_c", (0.2, 0.5, 1.0), (0.1, 1.0)),
}


@dataclass(frozen=True)
class Judged:
    """How well a candidate tells the trusted set apart. `surprise` settles ties: the mean of -log q(y given x)."""

    candidate: Candidate
    avpr: float
    surprise: float

    def better_than(self, other: Judged) -> bool:
        return (round(self.avpr, 4), -self.surprise) > (round(other.avpr, 4), -other.surprise)


def judge(candidate: Candidate, run: Run) -> Judged:
    """Fit, and score the trusted rows: by fits that had not seen their labels, where the model learns from labels."""
    rows = load(run.dataset, run.seed, run.noise / 100).train
    trusted = labels_for("clsvae", rows, run.labels or 0, run.seed)
    y = labels_for(run.model, rows, run.labels or 0, run.seed)
    preset = candidate.of(PAPER[run.dataset][run.model])
    if run.recipe == "fast":
        preset = presets.fast(preset, len(rows))
    recipe = preset.recipe if run.epochs is None else preset.recipe.over(run.epochs)
    schema = Schema.of(rows.dirty)
    x = Rows(rows.dirty, schema, torch.device("cpu"))

    def new_model(seed: int) -> Any:
        torch.manual_seed(seed)
        return presets.build(presets.with_imbalance(preset.config, y), schema)

    chosen = np.flatnonzero(trusted >= 0)
    if presets.labels_needed(run.model) is Labels.BOTH:
        logits = _drained(held_out_logits(new_model, x, y, recipe, FOLDS, run.seed))[chosen]
        signs = np.where(trusted[chosen] == OUTLIER, -1.0, 1.0)
        surprise = float(np.logaddexp(0, -signs * logits).mean())
    else:
        model = new_model(run.seed)
        _drained(train(model, x, torch.from_numpy(y), recipe, seed=run.seed))
        with torch.no_grad():
            logits = model.inlier_logit(x[torch.from_numpy(chosen)]).double().numpy()
        surprise = 0.0
    return Judged(candidate, average_precision(trusted[chosen] == OUTLIER, -logits), surprise)


def _drained(steps: Any) -> Any:
    """What a generator returns in the end."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return end.value


def select(run: Run, jobs: int) -> Iterator[Judged]:
    """Each candidate as it has been judged."""
    with workers(jobs) as pool:
        yield from results(pool, partial(judge, run=run), GRIDS[run.model])


def best(judged: Sequence[Judged]) -> Judged:
    chosen = judged[0]
    for other in judged[1:]:
        chosen = other if other.better_than(chosen) else chosen
    return chosen


def reason(chosen: Judged, judged: Sequence[Judged]) -> str:
    """Why this one, in a sentence."""
    ties = sum(round(each.avpr, 4) == round(chosen.avpr, 4) for each in judged)
    text = f"{chosen.candidate}: average precision {chosen.avpr:.4f} on the trusted set, the highest of {len(judged)}"
    if ties == 1:
        return text + "."
    return f"{text}; of {ties} with the same, the one least surprised by labels it had not seen."
