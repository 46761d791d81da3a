"""The figures of `unblemish bench speed` as a table, as JSON, as Markdown with a chart."""

from __future__ import annotations

from pathlib import Path
from typing import IO

import numpy as np
from rich.console import Console
from rich.table import Table

from unblemish.benchmark.pictures import INK, INLIER_COLOUR, OUTLIER_COLOUR, new_figure
from unblemish.benchmark.speed import Line, Size, as_json, machine, measure
from unblemish.data.write import check_output, write_file, writing


def report(size: Size, *, json: bool, docs: Path | None) -> list[Line]:
    """Measure, telling of each figure as it comes; then print and write what was asked for."""
    if docs is not None:
        check_output(docs, force=True)
    progress = Console(stderr=True, highlight=False)
    lines = []
    for line in measure(size):
        lines.append(line)
        progress.print(f"{line.group}: {line.name}: {figure(line)}   {line.note}", style="dim", soft_wrap=True)
    if json:
        print(as_json(lines))
    else:
        Console(highlight=False).print(_table(lines))
    if docs is not None:
        (docs.parent / "images").mkdir(exist_ok=True)
        with writing(docs.parent / "images" / "performance.png") as (file,):
            chart(file, lines)
        write_file(docs, markdown(lines).encode())
    return lines


def figure(line: Line) -> str:
    if line.value is None:
        return "not measured"
    digits = f"{line.value:,.0f}" if line.value >= 1000 else f"{line.value:.3g}"
    return f"{digits} {line.unit}".strip() if line.unit != "x" else f"{digits}x"


def wanted(line: Line) -> str:
    if line.at_least is not None:
        return f"at least {line.at_least:,g}"
    return f"at most {line.at_most:,g}" if line.at_most is not None else ""


def _table(lines: list[Line]) -> Table:
    table = Table(title="unblemish bench speed", caption=", ".join(f"{k}: {v}" for k, v in machine().items()))
    for heading in ("what", "figure", "wanted"):
        table.add_column(heading, justify="right" if heading == "figure" else "left")
    group = ""
    for line in lines:
        if line.group != group:
            group = line.group
            table.add_section()
            table.add_row(f"[bold]{group}[/]")
        colour = {True: "green", False: "yellow", None: ""}[line.met]
        text = f"[{colour}]{figure(line)}[/]" if colour else figure(line)
        table.add_row(f"  {line.name}", text, wanted(line))
    return table


def markdown(lines: list[Line]) -> str:
    rows = [
        f"| {line.group} | {line.name} | {figure(line)} | {wanted(line)} | "
        f"{ {True: 'yes', False: 'no', None: ''}[line.met] } | {line.note} |"
        for line in lines
    ]
    about = "\n".join(f"- {name}: {value}" for name, value in machine().items())
    return PAGE.format(about=about, rows="\n".join(rows))


PAGE = """# Performance

Written by `unblemish bench speed --docs docs/performance.md`. All was measured side by side in one run, each
contestant in its turn, best of several rounds, with one thread unless said, so that a noisy machine is noisy for all.
Ratios above 1 are in our favour.

{about}

![The ratios as bars](images/performance.png)

| group | what | figure | wanted | met | note |
|---|---|---|---|---|---|
{rows}

- *Roofline*: the time that the matrix products of the layers take alone, in float32, over the time of the step.
- *Textbook loop*: `src/unblemish/benchmark/textbook.py`: DataLoader, `nn.Sequential`, torch.distributions, Adam as it
  comes, the paper's recipe.
- *Time to published quality*: seconds of training until average precision and both SMSE on the validation split are as
  good as the paper's means and stay so; evaluation is not counted. Median over the seeds; where the textbook loop does
  not get there it is counted as if it had at its end, where ours does not the ratio is 0.
- *Scoring, repairing*: without patterns.
"""


def chart(file: IO[bytes], lines: list[Line]) -> None:
    """The ratios that have a target, as bars beside it."""
    shown = [line for line in lines if line.unit == "x" and line.at_least is not None and line.value is not None]
    picture = new_figure(7.2, 0.42 * len(shown) + 1.0)
    axis = picture.subplots()
    places = np.arange(len(shown))[::-1]
    values = [line.value or 0.0 for line in shown]
    colours = [INLIER_COLOUR if line.met else OUTLIER_COLOUR for line in shown]
    axis.barh(places, values, color=colours, height=0.62)
    for place, line, value in zip(places, shown, values, strict=True):
        mark = line.at_least or 0.0
        axis.plot([mark, mark], [place - 0.4, place + 0.4], color=INK, linewidth=1.6)
        behind = mark if value <= mark < value + 1 else value  # not through the mark
        axis.text(behind + 0.08, place, f"{value:.2f}x", va="center", fontsize=8, color=INK)
    axis.set_yticks(places, [f"{line.group}: {line.name}" for line in shown], fontsize=8)
    axis.set_xlim(0, 1.15 * max([*values, *(line.at_least or 0.0 for line in shown)]))
    axis.tick_params(labelsize=8)
    axis.spines[["top", "right"]].set_visible(False)
    axis.set_xlabel("ratio; the black mark is what was wanted", fontsize=9, color=INK)
    picture.savefig(file, format="png")
