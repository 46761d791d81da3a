"""The lines of a sweep as tables: mean and standard error over seeds, the published figures beside them."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np

from unblemish.benchmark.published import TABLE
from unblemish.benchmark.runs import AS_PUBLISHED, Run
from unblemish.benchmark.sweep import run_of

FIGURES = {"avpr": "average precision", "smse_dirty": "SMSE dirty", "smse_clean": "SMSE clean"}
DATASETS = {"shapes": "Synthetic-Shapes", "fashion": "Fashion-MNIST", "frey": "Frey-Faces"}
MODELS = {
    "vae-l2": "VAE-L2",
    "vaegmm": "VAEGMM",
    "cvae": "CVAE",
    "ccvae": "CCVAE",
    "clsvae-nodc": "CLSVAE-NODC",
    "clsvae": "CLSVAE",
    "counting": "counting",
    "clsvae-patterns": "CLSVAE, patterns",
    "vae": "VAE",
}
Spread = tuple[float, float]  # mean and standard error


@dataclass(frozen=True)
class Entry:
    """The runs that differ by their seed alone."""

    run: Run  # with seed 0
    seeds: int
    ours: dict[str, Spread]  # by figure
    published: dict[str, Spread]  # the same, where the paper has them


def entries(lines: Sequence[dict[str, Any]]) -> list[Entry]:
    """In the order of the paper's table."""
    groups: dict[Run, list[dict[str, Any]]] = {}
    for line in lines:
        groups.setdefault(replace(run_of(line), seed=0), []).append(line)
    made = [
        Entry(run, len(same), {f: spread([line[f] for line in same]) for f in FIGURES}, _published(run))
        for run, same in groups.items()
    ]
    names, models = list(DATASETS), list(MODELS)
    return sorted(made, key=lambda e: (names.index(e.run.dataset), e.run.noise, models.index(e.run.model)))


def spread(values: Sequence[float]) -> Spread:
    """Mean and standard error; the error of a single value is not known."""
    error = float(np.std(values, ddof=1) / np.sqrt(len(values))) if len(values) > 1 else float("nan")
    return float(np.mean(values)), error


def _published(run: Run) -> dict[str, Spread]:
    if run != Run.of(run.dataset, run.model) or run.model not in TABLE[run.dataset]:
        return {}
    return TABLE[run.dataset][run.model]._asdict()


def names(found: Sequence[Entry]) -> dict[Run, str]:
    """What each is called: its model, and whatever else is not the same for all."""
    varying = {f.name for f in fields(Run) if len({getattr(e.run, f.name) for e in found} - {None}) > 1}
    return {entry.run: _name(entry.run, varying) for entry in found}


def _name(run: Run, varying: set[str]) -> str:
    parts = [MODELS[run.model]]
    if "noise" in varying:
        parts.append(f"{run.noise} % noise")
    if "labels" in varying and run.labels is not None:
        parts.append(f"{run.labels} labels")
    if "recipe" in varying:
        parts.append(run.recipe)
    if run.epochs is not None:
        parts.append(f"{run.epochs} epochs")
    if run.choice != AS_PUBLISHED:
        parts.append(run.choice)
    return ", ".join(parts)


def is_best(entry: Entry, figure: str, among: Sequence[Entry]) -> bool:
    """Whether its mean is the best of the same dataset, noise and labels, by the digits that are shown."""
    like = (entry.run.dataset, entry.run.noise)
    means = [_rounded(e.ours[figure][0]) for e in among if (e.run.dataset, e.run.noise) == like]
    mean = _rounded(entry.ours[figure][0])
    return len(means) > 1 and mean == (max(means) if figure == "avpr" else min(means))


def _rounded(value: float) -> float:
    return float(f"{value:.3f}")


def shown(value: Spread) -> str:
    mean, error = value
    digits = 3 if abs(mean) < 10 else 2
    return f"{mean:.{digits}f}" if np.isnan(error) else f"{mean:.{digits}f} ± {error:.{digits}f}"


def markdown(found: Sequence[Entry]) -> str:
    """A table for each dataset; ours, and the published figure in brackets."""
    called, text = names(found), ""
    for dataset, title in DATASETS.items():
        of_it = [entry for entry in found if entry.run.dataset == dataset]
        if not of_it:
            continue
        text += f"### {title}\n\n| | seeds | {' | '.join(FIGURES.values())} |\n|---|---|{'---|' * len(FIGURES)}\n"
        for entry in of_it:
            cells = []
            for figure in FIGURES:
                ours = shown(entry.ours[figure])
                theirs = f" ({shown(entry.published[figure])})" if entry.published else ""
                cells.append((f"**{ours}**" if is_best(entry, figure, of_it) else ours) + theirs)
            text += f"| {called[entry.run]} | {entry.seeds} | {' | '.join(cells)} |\n"
        text += "\n"
    return text + "Mean ± standard error over seeds; in brackets the published figure; best in bold.\n"


def latex(found: Sequence[Entry]) -> str:
    """One table, a row for each model and dataset, for booktabs."""
    called = names(found)
    text = "\\begin{tabular}{llrrr}\n\\toprule\n"
    text += "Dataset & Model & AVPR & SMSE dirty & SMSE clean \\\\\n"
    for dataset, title in DATASETS.items():
        of_it = [entry for entry in found if entry.run.dataset == dataset]
        for k, entry in enumerate(of_it):
            cells = []
            for figure in FIGURES:
                ours = f"${shown(entry.ours[figure]).replace(' ± ', ' {{pm}} ')}$".replace("{{pm}}", "\\pm")
                ours = f"\\boldmath{ours}" if is_best(entry, figure, of_it) else ours
                theirs = shown(entry.published[figure]).replace("±", "\\pm") if entry.published else ""
                cells.append(f"{ours} (${theirs}$)" if theirs else ours)
            name = called[entry.run].replace("%", "\\%")
            text += (
                "\\midrule\n" if k == 0 else ""
            ) + f"{title if k == 0 else ''} & {name} & {' & '.join(cells)} \\\\\n"
    return text + "\\bottomrule\n\\end{tabular}\n"


def comma_separated(found: Sequence[Entry]) -> str:
    """A line for each figure, unrounded."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    about = ["dataset", "model", "noise", "labels", "recipe", "epochs", "choice"]
    writer.writerow([*about, "seeds", "figure", "mean", "standard_error", "published_mean", "published_standard_error"])
    for entry in found:
        for figure, ours in entry.ours.items():
            of_run = [getattr(entry.run, name) for name in about]
            writer.writerow([*of_run, entry.seeds, figure, *ours, *entry.published.get(figure, ("", ""))])
    return out.getvalue()


FORMATS: dict[str, Callable[[Sequence[Entry]], str]] = {"markdown": markdown, "latex": latex, "csv": comma_separated}
