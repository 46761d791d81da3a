"""Many runs: each made once, one thread a process, its line kept as soon as it ends; goes on after a kill."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import fields, replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

from unblemish.benchmark.lines import once_each, read_lines
from unblemish.benchmark.runs import AS_PUBLISHED, CHOICES, COUNTING, PATTERNS, ROOT, Run, result
from unblemish.errors import BadInput, check_one_of, check_whole
from unblemish.models import presets

DATASETS = ("shapes", "fashion", "frey")
PAPER_MODELS = ("vae-l2", "vaegmm", "cvae", "ccvae", "clsvae-nodc", "clsvae")
TABLE_MODELS = (*PAPER_MODELS, COUNTING, PATTERNS)
NOISE = (15, 25, 35, 45)
LABELS = (5, 10, 25, 50)
SEEDS = range(5)


def _grid(noise: Sequence[int], labels: Sequence[int]) -> list[Run]:
    cases = product(SEEDS, DATASETS, TABLE_MODELS, noise, labels)
    return [Run.of(d, m, noise=n, labels=k, seed=s) for s, d, m, n, k in cases]


def _recipes() -> list[Run]:
    """What the ways to be faster do to the quality."""
    ways = [("paper", AS_PUBLISHED), ("fast", "float32"), ("fast", AS_PUBLISHED)]
    return [Run(d, seed=s, recipe=recipe, choice=c) for s, d, (recipe, c) in product(SEEDS, DATASETS, ways)]


def _choices() -> list[Run]:
    """What the choices that the paper leaves open do: all where fits are short, one on Fashion-MNIST."""
    choices = [choice for choice in CHOICES if choice != "float32"]
    runs = [Run(d, seed=s, choice=c) for s, d, c in product(SEEDS, ("shapes", "frey"), choices)]
    return runs + [Run("fashion", seed=s, choice=c) for s, c in product(SEEDS, (AS_PUBLISHED, ROOT))]


GRIDS = {
    "main": lambda: _grid([35], [10]),
    "labels": lambda: _grid([35], LABELS),
    "noise": lambda: _grid(NOISE, [10]),
    "full": lambda: _grid(NOISE, LABELS),
    "recipes": _recipes,
    "choices": _choices,
}


def grid(
    name: str, datasets: Sequence[str] = (), models: Sequence[str] = (), seeds: int = 5, epochs: int | None = None
) -> list[Run]:
    """The runs of a grid, each once; of these datasets and models only, where any are given."""
    runs = [
        replace(run, epochs=epochs)
        for run in dict.fromkeys(GRIDS[name]())
        if (not datasets or run.dataset in datasets) and (not models or run.model in models) and run.seed < seeds
    ]
    return sorted(runs, key=lambda run: (run.seed, -run.steps()))  # long ones first: no core is idle at the end


def check(
    datasets: Sequence[str],
    models: Sequence[str],
    noise: Sequence[int],
    labels: Sequence[int],
    seed: int,
    recipe: str,
    epochs: int | None,
) -> None:
    """Refuse what no run could be made of."""
    for dataset in datasets:
        check_one_of("--dataset", dataset, DATASETS)
    for model in models:
        check_one_of("--model", model, TABLE_MODELS)
    for percent in noise:
        if not 1 <= percent <= 99:
            raise BadInput(f"--noise is {percent}; give a whole number from 1 to 99")
    for number in labels:
        check_whole("--labels", number, least=1)
    check_whole("--seed", seed, least=0)
    check_one_of("--recipe", recipe, presets.RECIPES)
    if epochs is not None:
        check_whole("--epochs", epochs, least=1)


def sweep(runs: Sequence[Run], out: Path, jobs: int) -> Iterator[tuple[Run, dict[str, Any]]]:
    """Make the runs that `out` does not hold yet, adding each line as it comes; pictures go to a folder beside it."""
    strips = strips_beside(out)
    with once_each(runs, partial(result, strips=strips), out, jobs, read_done=_done) as lines:
        strips.mkdir(exist_ok=True)
        for line in lines:
            yield run_of(line), line


def strips_beside(out: Path) -> Path:
    """The folder with pictures of what the runs did."""
    return out.with_suffix(".strips")


def still_to_do(runs: Sequence[Run], out: Path) -> list[Run]:
    done = _done(out)
    return [run for run in runs if run not in done]


def read(path: Path) -> list[dict[str, Any]]:
    """The lines of a sweep."""
    return read_lines(path, run_of)


def run_of(line: dict[str, Any]) -> Run:
    return Run(**{field.name: line[field.name] for field in fields(Run)})


def _done(out: Path) -> set[Run]:
    done = set()
    for number, line in enumerate(read(out) if out.exists() else [], 1):
        run = run_of(line)
        if line["config_hash"] != run.config_hash():
            raise BadInput(
                f"{out}, line {number}, was made with other settings than this version has for it; give another --out"
            )
        done.add(run)
    return done
