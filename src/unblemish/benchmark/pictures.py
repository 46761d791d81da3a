"""Pictures of a benchmark run: repairs beside the truth, training curves, scores."""

from __future__ import annotations

from typing import IO, Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from unblemish.benchmark.corruption import Corrupted

Array = NDArray[Any]

INLIER_COLOUR, OUTLIER_COLOUR, INK = "#2a6f97", "#d1495b", "#333333"
NAMES = {
    "loss": "loss (weighted sum)",
    "reconstruction": "reconstruction",
    "kl_z": "KL of the codes",
    "kl_y": "KL of the label",
    "cross_entropy": "cross-entropy of the trusted set",
    "dependence": "distance correlation",
}


def new_figure(width: float, height: float) -> Figure:
    figure = Figure(figsize=(width, height), dpi=150, layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def strip(file: IO[bytes], data: Corrupted, repaired: Array, is_outlier: NDArray[np.bool_], per_kind: int = 3) -> None:
    """A column a row of data: dirty, truth, repair, and repair minus truth; some inliers, then each error."""
    kinds = [np.flatnonzero(~data.is_outlier)] + [np.flatnonzero(data.error == k) for k in range(len(data.errors))]
    titles = ["no error", *(error.name for error in data.errors)]
    rows = [int(row) for kind in kinds for row in kind[:per_kind]]
    low, high = float(data.clean.min()), float(data.clean.max())
    reach = high - low
    figure = new_figure(0.75 * len(rows) + 1.1, 4.1)
    axes = figure.subplots(4, len(rows), squeeze=False)
    column = 0
    for title, kind in zip(titles, kinds, strict=True):
        shown = kind[:per_kind]
        if len(shown):
            axes[0, column + (len(shown) - 1) // 2].set_title(title, fontsize=9, color=INK)
        for row in shown:
            pictures = [data.dirty[row], data.clean[row], repaired[row]]
            for axis, picture in zip(axes[:3, column], pictures, strict=True):
                axis.imshow(picture, cmap="gray", vmin=low, vmax=high, interpolation="nearest")
            difference = repaired[row].astype(float) - data.clean[row].astype(float)
            axes[3, column].imshow(difference, cmap="RdBu_r", vmin=-reach, vmax=reach, interpolation="nearest")
            _frame(axes[0, column], OUTLIER_COLOUR if is_outlier[row] else INLIER_COLOUR)
            column += 1
    for axis in axes.flat:
        axis.set_xticks([])
        axis.set_yticks([])
    for axis, name in zip(axes[:, 0], ["dirty", "truth", "repair", "difference"], strict=True):
        axis.set_ylabel(name, fontsize=10, color=INK)
    figure.supxlabel(
        "frame of the dirty image: red if it was flagged as outlier, blue if not.   "
        "difference: repair minus truth, red too bright, blue too dark",
        fontsize=7.5,
        color=INK,
    )
    figure.savefig(file, format="png")


def _frame(axis: Axes, colour: str) -> None:
    for spine in axis.spines.values():
        spine.set(color=colour, linewidth=2.5)


def curves(file: IO[bytes], curve: list[dict[str, float]]) -> None:
    """A panel for each term of the loss, over the epochs."""
    names = [name for name in NAMES if any(name in epoch for epoch in curve)]
    columns = min(3, len(names))
    lines = -(-len(names) // columns)
    figure = new_figure(3.4 * columns, 2.3 * lines)
    axes = figure.subplots(lines, columns, squeeze=False).flat
    for axis, name in zip(axes, names, strict=False):
        epochs = [k for k, epoch in enumerate(curve, 1) if name in epoch]
        values = np.array([curve[k - 1][name] for k in epochs])
        axis.plot(epochs, values, color=INLIER_COLOUR, linewidth=1.4)
        if values.min() > 0 and values.max() > 20 * np.median(values):
            axis.set_yscale("log")  # else its first epochs would hide all that comes after
        axis.set_title(NAMES[name], fontsize=9, color=INK)
        axis.tick_params(labelsize=7.5)
        axis.spines[["top", "right"]].set_visible(False)
        axis.set_xlim(0, len(curve))
        axis.xaxis.set_major_locator(MaxNLocator(integer=True))
    for axis in list(axes)[len(names) :]:
        axis.set_visible(False)
    figure.supxlabel("epoch", fontsize=9, color=INK)
    figure.savefig(file, format="png")


def score_histogram(
    file: IO[bytes], outlier_score: NDArray[np.float64], truly_outlier: NDArray[np.bool_], threshold: float
) -> None:
    """How many rows have which score, by what they truly are; rows on a logarithmic axis, for few matter too."""
    figure = new_figure(6.4, 3.2)
    axis = figure.subplots()
    axis.hist(
        [outlier_score[~truly_outlier], outlier_score[truly_outlier]],
        bins=np.linspace(0, 1, 41).tolist(),
        color=[INLIER_COLOUR, OUTLIER_COLOUR],
        label=[f"inliers ({int((~truly_outlier).sum())})", f"outliers ({int(truly_outlier.sum())})"],
    )
    axis.axvline(threshold, color=INK, linestyle="--", linewidth=1.2, label=f"threshold {threshold:.2g}")
    axis.set_yscale("log")
    axis.set_xlim(0, 1)
    axis.set_xlabel("outlier score", fontsize=9, color=INK)
    axis.set_ylabel("rows", fontsize=9, color=INK)
    axis.tick_params(labelsize=8)
    axis.spines[["top", "right"]].set_visible(False)
    axis.legend(fontsize=8, frameon=False, loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=3)
    figure.savefig(file, format="png")
