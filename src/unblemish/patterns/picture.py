"""The catalogue as a picture: each pattern, where it is, what it does, and rows before and after."""

from __future__ import annotations

from typing import IO, Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from numpy.typing import NDArray

from unblemish.data.schema import Schema
from unblemish.patterns.catalogue import Catalogue

EXAMPLES = 6
INK, MARK = "#333333", "#d1495b"


def draw(file: IO[bytes], catalogue: Catalogue, schema: Schema) -> None:
    """Write a PNG: a row of pictures for each pattern."""
    count = len(catalogue.patterns)
    figure = Figure(figsize=(1.2 * (2 + EXAMPLES) + 0.6, 2.0 * count + 0.5), dpi=130, layout="constrained")
    FigureCanvasAgg(figure)
    widths = [1.6, *[1.0] * EXAMPLES]
    axes = figure.subplots(2 * count, 1 + EXAMPLES, squeeze=False, gridspec_kw={"width_ratios": widths})
    for k, pattern in enumerate(catalogue.patterns):
        before, after = catalogue.examples(k, EXAMPLES)
        words = pattern.in_values_of(schema).words(schema)
        where = np.zeros(schema.cells)
        where[pattern.cells] = 1
        upper, lower = axes[2 * k], axes[2 * k + 1]
        upper[0].set_title(f"{k}  {pattern.name}".rstrip(), fontsize=10, loc="left", color=INK, weight="bold")
        lower[0].axis("off")
        text = f"{words}\n{pattern.share:.1%} of the rows\n{pattern.trusted} trusted outliers"
        lower[0].text(0, 1, text, fontsize=7.5, color=INK, va="top", transform=lower[0].transAxes, wrap=True)
        _show(upper[0], where.reshape(schema.shape), 0, 1, "Reds")
        for n in range(EXAMPLES):
            for axis, rows in ((upper[1 + n], before), (lower[1 + n], after)):
                if n < len(rows):
                    _show(axis, schema.decode(rows[n : n + 1])[0], min(schema.low), max(schema.high), "gray")
                else:
                    axis.axis("off")
        upper[1].set_ylabel("before", fontsize=8, color=INK)
        lower[1].set_ylabel("after", fontsize=8, color=INK)
    figure.savefig(file, format="png")


def _show(axis: Axes, row: NDArray[Any], low: float, high: float, colours: str) -> None:
    axis.set_xticks([])
    axis.set_yticks([])
    axis.spines[:].set_color("#bbbbbb")
    if row.ndim == 1:  # a table's row: a bar for each column
        axis.bar(np.arange(len(row)), row, color=MARK if colours == "Reds" else INK, width=1.0)
        return
    if row.ndim == 3:
        if row.shape[2] in (3, 4) and colours != "Reds":
            axis.imshow(((row[..., :3] - low) / (high - low)).clip(0, 1), interpolation="nearest")
            return
        row = row.max(2)
    axis.imshow(row, cmap=colours, vmin=low, vmax=high, interpolation="nearest")
