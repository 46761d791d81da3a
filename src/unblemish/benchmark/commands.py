"""`unblemish bench`: the paper's experiments and the speed, one command each."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated, Any, Optional

import typer

bench = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode="rich",
    help="The paper's experiments, and the speed.",
)

Json = Annotated[bool, typer.Option("--json", help="Print the figures alone, as JSON.")]


@bench.command()
def speed(
    json: Json = False,
    docs: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option(help="Also write the table to this Markdown file, with a chart in images/ beside it."),
    ] = None,
    small: Annotated[bool, typer.Option("--small", help="A few seconds of each, to see that it works.")] = False,
) -> None:
    """Measure the speed of training, cleaning and starting, against a textbook loop and the machine's own limits.

    All figures are ratios or rates of what ran side by side. Takes about half an hour; --small takes one minute.
    """
    from unblemish.benchmark import speed as measuring
    from unblemish.benchmark.speed_report import report

    report(measuring.SMALL if small else measuring.FULL, json=json, docs=docs)


@bench.command()
def sweep(
    out: Annotated[Path, typer.Option(help="The file of lines, one a run; what it holds already is not made again.")],
    grid: Annotated[str, typer.Option(help="main, labels, noise, full, recipes or choices.")] = "main",
    dataset: Annotated[list[str], typer.Option(help="Only this dataset. Can be given more than once.")] = [],  # noqa: B006
    model: Annotated[list[str], typer.Option(help="Only this model. Can be given more than once.")] = [],  # noqa: B006
    seeds: Annotated[int, typer.Option(help="How many seeds, from 0.")] = 5,
    jobs: Annotated[int, typer.Option(help="How many runs at once, one thread each.")] = 2,
) -> None:
    """Make every run of a grid once, and keep its line as soon as it ends.

    Stop it at any time, or let it be killed: the same command goes on where it was.
    """
    from unblemish.benchmark.sweep import DATASETS, GRIDS, TABLE_MODELS
    from unblemish.benchmark.sweep import grid as runs_of
    from unblemish.errors import check_one_of, check_whole

    check_one_of("--grid", grid, GRIDS)
    for name in dataset:
        check_one_of("--dataset", name, DATASETS)
    for name in model:
        check_one_of("--model", name, TABLE_MODELS)
    check_whole("--seeds", seeds, least=1)
    check_whole("--jobs", jobs, least=1)
    runs = runs_of(grid, dataset, model, seeds)
    _draw(runs, out, jobs)


def _draw(runs: list[Any], out: Path, jobs: int) -> None:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    from unblemish.benchmark.sweep import still_to_do, sweep
    from unblemish.progress import clock

    console = Console(stderr=True, highlight=False)
    rest = still_to_do(runs, out)
    steps = sum(run.steps() for run in rest)  # a run's cost goes by them, roughly
    columns = (BarColumn(bar_width=30), MofNCompleteColumn(), TextColumn("{task.description}", style="dim"))
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task("starting", total=len(runs), completed=len(runs) - len(rest))
        started, done = time.monotonic(), 0
        for run, line in sweep(rest, out, jobs):
            done += run.steps()
            left = (time.monotonic() - started) / done * (steps - done)
            words = f"{run.dataset} {run.model}, noise {run.noise} %, {run.labels or 'no'} labels, seed {run.seed}"
            figures = " ".join(f"{line[name]:.4f}" for name in ("avpr", "smse_dirty", "smse_clean"))
            console.print(f"{words}: {figures}, {line['fit_seconds']:.0f} s", soft_wrap=True)
            bar.update(task, advance=1, description=f"{clock(left)} left")
    console.print(f"{out} holds all {len(runs)} runs.", soft_wrap=True)
