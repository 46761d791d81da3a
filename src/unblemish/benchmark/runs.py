"""One run of the paper's experiments: what it is made of, and the line of figures that comes of it."""

from __future__ import annotations

import hashlib
import io
import json
import time
import zipfile
import zlib
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, fields, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from unblemish.benchmark.corruption import Array, Corrupted
from unblemish.benchmark.counting import Counting
from unblemish.benchmark.datasets import load
from unblemish.benchmark.evaluate import evaluate, labels_for
from unblemish.cleaner import Cleaner
from unblemish.data.write import write_file
from unblemish.errors import BadInput
from unblemish.models import presets
from unblemish.models.base import Labels
from unblemish.models.clsvae import ClsvaeConfig
from unblemish.models.presets import BATCH, PAPER, Preset
from unblemish.models.recipe import Ramp
from unblemish.patterns.pattern import Pattern

AS_PUBLISHED = "as published"
PATTERNS, COUNTING = "clsvae-patterns", "counting"  # beside the paper's models
ROOT = "root of the distance correlation"


@dataclass(frozen=True)
class Run:
    """A dataset with noise, a model, a trusted set, a seed."""

    dataset: str
    model: str = "clsvae"
    noise: int = 35  # % of the rows
    labels: int | None = 10  # of each class of data and each error; None for a model that ignores how many there are
    seed: int = 0
    recipe: str = "paper"
    epochs: int | None = None  # in place of the recipe's
    choice: str = AS_PUBLISHED

    def __str__(self) -> str:
        parts = [
            self.dataset,
            self.model,
            f"noise {self.noise} %",
            f"{self.labels or 'all'} labels",
            f"seed {self.seed}",
        ]
        return ", ".join(parts + [c for c in (self.recipe, self.choice) if c not in ("paper", AS_PUBLISHED)])

    @classmethod
    def of(cls, dataset: str, model: str, **others: Any) -> Run:
        """A run whose number of labels counts only where the model looks at it."""
        run = cls(dataset, model, **others)
        ignores = model == COUNTING or presets.labels_needed(run.paper_model) is not Labels.BOTH
        return replace(run, labels=None) if ignores else run

    @property
    def paper_model(self) -> str:
        """The model of the paper whose settings it takes."""
        return "clsvae" if self.model in (PATTERNS, COUNTING) else self.model

    def preset(self, rows: int) -> Preset:
        preset = PAPER[self.dataset][self.paper_model]
        if self.recipe == "fast":
            preset = presets.fast(preset, rows)
        preset = CHOICES[self.choice](preset)
        return preset if self.epochs is None else replace(preset, recipe=preset.recipe.over(self.epochs))

    def config_hash(self) -> str:
        """Of all settings: two lines with the same one were fitted with the same."""
        settings = json.dumps(asdict(self.preset(ROWS[self.dataset])), sort_keys=True)
        if self.model != self.paper_model:
            settings += self.model
        return hashlib.sha256(settings.encode()).hexdigest()[:12]

    def strip_name(self) -> str:
        """The file that holds its pictures."""
        labels = "all" if self.labels is None else self.labels
        return f"{self.dataset}-{self.model}-{self.noise}-{labels}-{self.recipe}-{self.config_hash()}.npz"

    def steps(self) -> int:
        """Of training: what its cost goes by."""
        rows = ROWS[self.dataset]
        return self.preset(rows).recipe.epochs * -(-rows // BATCH)


@dataclass(frozen=True)
class Strip:
    """Some test rows and their repairs, to be looked at: as bytes, 0 the lowest value there is, 255 the highest.

    error: which error each has, -1 for none; score: its outlier score.
    """

    dirty: Array  # (R, height, width)
    truth: Array
    repair: Array
    error: Array  # (R,)
    score: Array  # (R,)

    @classmethod
    def of(cls, cleaner: Cleaner | Counting, data: Corrupted, inliers: int = 2, outliers: int = 8) -> Strip:
        """The first rows of each kind: the same for every model of a dataset."""
        kinds = len(data.errors)
        rows = [np.flatnonzero(~data.is_outlier)[:inliers]]
        rows += [np.flatnonzero(data.error == k)[: outliers // kinds] for k in range(kinds)]
        some = data[np.concatenate(rows)]
        low, high = min(cleaner.schema_.low), max(cleaner.schema_.high)

        def as_bytes(values: Array) -> Array:
            return ((values.astype(np.float64).clip(low, high) - low) / (high - low) * 255).round().astype(np.uint8)

        return cls(
            dirty=as_bytes(some.dirty),
            truth=as_bytes(some.clean),
            repair=as_bytes(cleaner.repair(some.dirty, unrounded=True)),
            error=some.error,
            score=cleaner.outlier_score(some.dirty),
        )

    def write(self, path: Path) -> None:
        content = io.BytesIO()
        np.savez_compressed(content, **vars(self))
        write_file(path, content.getvalue())

    @classmethod
    def read(cls, path: Path) -> Strip:
        try:
            with path.open("rb") as file, np.load(file, allow_pickle=False) as archive:
                return cls(**{field.name: archive[field.name] for field in fields(cls)})
        except (OSError, ValueError, TypeError, EOFError, KeyError, zipfile.BadZipFile, zlib.error) as error:
            raise BadInput(f"{path} is damaged, or no picture of a sweep; remove it and its run's line") from error


LEAST_SHARE = 0.02  # of the rows: rarer errors need not be found
HALF = 0.5  # of its cells: a pattern that overlaps less is not the same
ROWS = {"shapes": 4000, "frey": 1572, "fashion": 54_000}  # of the training splits


def result(run: Run, strips: Path | None = None) -> dict[str, Any]:
    """Make the run: fit on the training split, figures on the test split and on the training split itself.

    strips: a folder for pictures of what it did, which are kept of the first seed alone.
    """
    parts = load(run.dataset, run.seed, run.noise / 100)
    y = labels_for(run.paper_model, parts.train, run.labels or 0, run.seed)
    preset = run.preset(len(parts.train))
    cleaner: Cleaner | Counting = Cleaner(
        run.paper_model, preset=preset, folds=0, patterns=run.model == PATTERNS, seed=run.seed
    )
    if run.model == COUNTING:
        cleaner = Counting()
    started = time.perf_counter()
    cleaner.fit(parts.train.dirty, y)
    seconds = time.perf_counter() - started
    if strips is not None and run.seed == 0 and run.choice == AS_PUBLISHED:
        Strip.of(cleaner, parts.test).write(strips / run.strip_name())
    on_train = {f"train_{name}": value for name, value in asdict(evaluate(cleaner, parts.train)).items()}
    about = {
        "fits": getattr(cleaner, "fits_", 1),
        "fit_seconds": round(seconds, 2),
        "config_hash": run.config_hash(),
        "version": version("unblemish"),
    }
    if isinstance(cleaner, Cleaner) and run.model == PATTERNS:
        about |= {"patterns": len(cleaner.patterns_), **found_patterns(cleaner.patterns_, parts.train)}
    return {**asdict(run), **asdict(evaluate(cleaner, parts.test)), **on_train, **about}


def found_patterns(found: Sequence[Pattern], data: Corrupted) -> dict[str, float]:
    """Against the truth: the share of errors found in 2 % of the rows or more, and the mean overlap of their cells.

    overlap: cells in both over cells in either, of the cells that the error changed in any row.
    """
    overlaps = []
    for k in range(len(data.errors)):
        rows = data.error == k
        if rows.mean() < LEAST_SHARE:
            continue
        true = data.mask[rows].reshape(int(rows.sum()), -1).any(0)
        masks = [np.isin(np.arange(len(true)), pattern.cells) for pattern in found]
        overlaps.append(max([float((m & true).sum() / (m | true).sum()) for m in masks], default=0.0))
    of_found = [o for o in overlaps if o >= HALF]
    return {
        "patterns_found": len(of_found) / max(len(overlaps), 1),
        "patterns_overlap": float(np.mean(of_found)) if of_found else 0.0,
        "patterns_false": max(len(found) - len(of_found), 0),
    }


def _clsvae(**changes: Any) -> Callable[[Preset], Preset]:
    def change(preset: Preset) -> Preset:
        assert isinstance(preset.config, ClsvaeConfig)
        return replace(preset, config=replace(preset.config, **changes))

    return change


def _lambda_as_in_a_sum(preset: Preset) -> Preset:
    """The penalty beside a sum over a batch, as the authors' code may have had it, and not beside a mean."""
    penalty = preset.recipe.weights["dependence"]
    weights = {**preset.recipe.weights, "dependence": Ramp(penalty.top / BATCH, penalty.delay, penalty.ratio)}
    return replace(preset, recipe=replace(preset.recipe, weights=weights))


CHOICES: dict[str, Callable[[Preset], Preset]] = {
    AS_PUBLISHED: lambda preset: preset,
    ROOT: _clsvae(root_dc=True),
    "lambda / 128": _lambda_as_in_a_sum,
    "no stop-gradient": _clsvae(stop_gradient=False),
    "one fit, good or bad": lambda preset: replace(preset, recipe=replace(preset.recipe, fits=1)),
    "float32": lambda preset: replace(preset, recipe=replace(preset.recipe, bfloat16=False)),
}
