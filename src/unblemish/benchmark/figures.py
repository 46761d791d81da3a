"""The lines and pictures of a sweep as figures: quality against the trusted set's size, and repairs side by side."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedFormatter, FixedLocator, NullLocator

from unblemish.benchmark.pictures import INK, INLIER_COLOUR, OUTLIER_COLOUR, new_figure
from unblemish.benchmark.runs import AS_PUBLISHED, Strip
from unblemish.benchmark.sweep import LABELS, TABLE_MODELS, strips_beside
from unblemish.benchmark.tables import DATASETS, FIGURES, MODELS, Entry, entries
from unblemish.data.write import writing

# told apart by people who see colours otherwise, and by their marks in print
LOOKS = {
    "vae-l2": ("#888888", "v"),
    "vaegmm": ("#e69f00", "s"),
    "cvae": ("#56b4e9", "^"),
    "ccvae": ("#009e73", "D"),
    "clsvae-nodc": ("#cc79a7", "P"),
    "clsvae": ("#d1495b", "o"),
    "counting": ("#000000", "x"),
    "clsvae-patterns": ("#0072b2", "*"),
}


def figures(runs: Path, lines: Sequence[dict[str, Any]], out: Path) -> Iterator[Path]:
    """Write every figure that the lines and the pictures beside them are enough for, and name each."""
    found = [e for e in entries(lines) if e.run.recipe == "paper" and e.run.choice == AS_PUBLISHED]
    out.mkdir(parents=True, exist_ok=True)
    for dataset in DATASETS:
        of_it = [entry for entry in found if entry.run.dataset == dataset]
        if len({entry.run.labels for entry in of_it} - {None}) > 1:
            yield _written(curves(of_it, dataset), out / f"{dataset}-labels.png")
        for case, by_model in _strips(of_it, strips_beside(runs)).items():
            yield _written(repairs(by_model, dataset, case), out / f"{dataset}-repairs-{case.noise}-{case.labels}.png")


def _written(figure: Figure, path: Path) -> Path:
    with writing(path) as (file,):
        figure.savefig(file, format="png")
    return path


def curves(found: Sequence[Entry], dataset: str) -> Figure:
    """A column a noise level, a row a figure of quality: mean and standard error against labels a class."""
    noises = sorted({entry.run.noise for entry in found})
    figure = new_figure(2.7 * len(noises) + 1.6, 6.6)
    axes = figure.subplots(len(FIGURES), len(noises), squeeze=False, sharex=True, sharey="row")
    for line, (name, title) in zip(axes, FIGURES.items(), strict=True):
        for axis, noise in zip(line, noises, strict=True):
            _panel(axis, [entry for entry in found if entry.run.noise == noise], name)
        line[0].set_ylabel(f"{title}\n({'higher' if name == 'avpr' else 'lower'} is better)", fontsize=8.5, color=INK)
    for axis, noise in zip(axes[0], noises, strict=True):
        axis.set_title(f"{noise} % noise", fontsize=9.5, color=INK)
    figure.supxlabel("labels a class", fontsize=9, color=INK)
    figure.suptitle(
        f"{DATASETS[dataset]}: mean and standard error over {_seeds(found)}; models that ignore labels as level lines",
        fontsize=9,
        color=INK,
    )
    handles, labels = axes[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside right upper", fontsize=8, frameon=False)
    return figure


def _seeds(found: Sequence[Entry]) -> str:
    least, most = min(e.seeds for e in found), max(e.seeds for e in found)
    return f"{least} seeds" if least == most else f"{least} to {most} seeds"


def _panel(axis: Axes, found: Sequence[Entry], figure: str) -> None:
    for model in TABLE_MODELS:
        of_model = sorted((e for e in found if e.run.model == model), key=lambda e: e.run.labels or 0)
        if not of_model:
            continue
        colour, mark = LOOKS[model]
        means, errors = np.array([e.ours[figure] for e in of_model]).T
        ignores_labels = of_model[0].run.labels is None
        x = np.array([LABELS[0], LABELS[-1]] if ignores_labels else [e.run.labels for e in of_model], float)
        means, errors = (np.broadcast_to(v, len(x)) for v in (means, np.nan_to_num(errors)))
        axis.plot(
            x,
            means,
            color=colour,
            marker=None if ignores_labels else mark,
            linestyle="--" if ignores_labels else "-",
            markersize=4,
            linewidth=1.4,
            label=MODELS[model],
        )
        axis.fill_between(x, means - errors, means + errors, color=colour, alpha=0.18, linewidth=0)
    axis.set_xscale("log")
    axis.xaxis.set_major_locator(FixedLocator(LABELS))
    axis.xaxis.set_major_formatter(FixedFormatter([str(k) for k in LABELS]))
    axis.xaxis.set_minor_locator(NullLocator())
    if figure != "avpr":
        axis.set_yscale("log")
    axis.tick_params(labelsize=7.5)
    axis.grid(axis="y", color="#dddddd", linewidth=0.6)
    axis.spines[["top", "right"]].set_visible(False)


@dataclass(frozen=True)
class Case:
    noise: int
    labels: int


def _strips(found: Sequence[Entry], folder: Path) -> dict[Case, dict[str, Strip]]:
    """By case and model, in the table's order; a model that ignores labels stands in each case of its noise level."""
    runs = [entry.run for entry in found]
    cases = sorted({(run.noise, run.labels) for run in runs if run.labels is not None})
    pictures: dict[Case, dict[str, Strip]] = {}
    for noise, labels in cases:
        here = {r.model: r for r in runs if r.noise == noise and r.labels in (labels, None)}
        paths = {model: folder / here[model].strip_name() for model in TABLE_MODELS if model in here}
        read = {model: Strip.read(path) for model, path in paths.items() if path.is_file()}
        if read:
            pictures[Case(noise, labels)] = read
    return pictures


def repairs(by_model: dict[str, Strip], dataset: str, case: Case) -> Figure:
    """A row a test row, inliers first: as it is, as it was, and as each model repairs it."""
    strips = list(by_model.values())
    one = strips[0]
    assert all(np.array_equal(strip.dirty, one.dirty) for strip in strips)
    columns = [one.dirty, one.truth, *(strip.repair for strip in strips)]
    titles = ["original", "truth", *(MODELS[model] for model in by_model)]
    height, width = one.dirty.shape[1:3]
    figure = new_figure(1.0 * len(columns), 1.0 * len(one.dirty) * height / width + 0.7)
    axes = figure.subplots(len(one.dirty), len(columns), squeeze=False)
    for row, line in enumerate(axes):
        for axis, pictures in zip(line, columns, strict=True):
            axis.imshow(pictures[row], cmap="gray", vmin=0, vmax=255, interpolation="nearest")
            axis.set_xticks([])
            axis.set_yticks([])
        for spine in line[0].spines.values():
            spine.set(color=INLIER_COLOUR if one.error[row] < 0 else OUTLIER_COLOUR, linewidth=2)
    for axis, title in zip(axes[0], titles, strict=True):
        axis.set_title(title, fontsize=8, color=INK)
    figure.suptitle(
        f"{DATASETS[dataset]}, {case.noise} % noise, {case.labels} labels a class\ninliers framed blue, outliers red",
        fontsize=8.5,
        color=INK,
    )
    return figure
