"""`unblemish bench`: the paper's experiments and the speed, one command each."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Optional

import typer

from unblemish.errors import BadInput, check_one_of, check_whole

if TYPE_CHECKING:
    from unblemish.benchmark.runs import Run

bench = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode="rich",
    help="The paper's experiments, and the speed.",
)

Json = Annotated[bool, typer.Option("--json", help="Print the figures alone, as JSON.")]
Data = Annotated[
    Optional[Path],  # noqa: UP045
    typer.Option("--data", help="A folder to look for datasets in first. 'unblemish bench data' lists what is found."),
]
DatasetName = Annotated[str, typer.Option(help="shapes, frey or fashion.", show_default=False)]
ModelName = Annotated[str, typer.Option(help="vae-l2, vaegmm, cvae, ccvae, clsvae-nodc or clsvae.")]
Noise = Annotated[int, typer.Option(help="How many of a hundred rows are corrupted.")]
TrustedRows = Annotated[int, typer.Option(help="Trusted rows of each class of data and each error.")]
Seed = Annotated[int, typer.Option(help="Of the data, their split, the trusted set and the fit.")]
RecipeName = Annotated[str, typer.Option(help="paper or fast.")]
Epochs = Annotated[Optional[int], typer.Option(help="In place of the recipe's, for a trial.")]  # noqa: UP045
Lines = Annotated[Path, typer.Argument(metavar="RUNS.jsonl", help="What a sweep wrote.", show_default=False)]


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
def data(
    folder: Data = None,
    download: Annotated[
        bool, typer.Option("--download", help="Fetch Fashion-MNIST into the cache, checked by its SHA-256.")
    ] = False,
) -> None:
    """List the paper's datasets: where each was found, its size, and whether it is what it should be."""
    from rich.console import Console
    from rich.table import Table

    from unblemish.benchmark.sources import download_fashion, find_fashion, sources

    _use(folder)
    if download and find_fashion() is None:
        download_fashion()
    table = Table()
    for heading in ("dataset", "size", "state", "SHA-256"):
        table.add_column(heading)
    console = Console(highlight=False)
    found = list(sources())
    colours = {"checked": "green", "changed": "yellow", "missing": "red"}
    for source in found:
        state = f"[{colours[source.state]}]{source.state}[/]"
        table.add_row(source.dataset, source.size, state, source.sha256[:16])
    console.print(table)
    for source in found:
        console.print(f"{source.dataset}: {source.advice or source.place}", soft_wrap=True)
        if source.state == "changed":
            console.print("  Its SHA-256 is not that of the published data.", soft_wrap=True)


def _use(folder: Path | None) -> None:
    """Look for datasets in this folder first, here and in the processes that are started from here."""
    if folder is not None:
        if not folder.is_dir():
            raise BadInput(f"--data is {folder}, which is not a folder; name one that holds a dataset")
        os.environ["UNBLEMISH_DATA"] = str(folder.absolute())


@bench.command()
def run(
    dataset: DatasetName,
    model: ModelName = "clsvae",
    noise: Noise = 35,
    labels: TrustedRows = 10,
    seed: Seed = 0,
    recipe: RecipeName = "paper",
    epochs: Epochs = None,
    folder: Data = None,
    json: Json = False,
) -> None:
    """Make one run of the paper's experiments: fit on the training split, figures on the test split.

    With one thread, so that the figures are those of a sweep to the last digit.
    """
    import json as as_json

    import torch

    from unblemish.benchmark.runs import Run, result
    from unblemish.benchmark.sweep import check

    _use(folder)
    torch.set_num_threads(1)
    check([dataset], [model], [noise], [labels], seed, recipe, epochs)
    wanted = Run.of(dataset, model, noise=noise, labels=labels, seed=seed, recipe=recipe, epochs=epochs)
    line = result(wanted)
    if json:
        print(as_json.dumps(line))
    else:
        for name, value in line.items():
            print(f"{name:<28}{value if value is not None else '-'}")


@bench.command()
def sweep(
    out: Annotated[
        Path,
        typer.Option(help="The file of lines, one a run; what it holds already is not made again.", show_default=False),
    ],
    grid: Annotated[str, typer.Option(help="main, labels, noise, full, recipes or choices.")] = "main",
    dataset: Annotated[
        Optional[list[str]],  # noqa: UP045
        typer.Option(help="Only this dataset. Can be given more than once."),
    ] = None,
    model: Annotated[
        Optional[list[str]],  # noqa: UP045
        typer.Option(help="Only this model. Can be given more than once."),
    ] = None,
    seeds: Annotated[int, typer.Option(help="How many seeds, from 0.")] = 5,
    epochs: Epochs = None,
    jobs: Annotated[int, typer.Option(help="How many runs at once, one thread each.")] = 2,
    folder: Data = None,
) -> None:
    """Make every run of a grid once, and keep its line as soon as it ends.

    Stop it at any time, or let it be killed: the same command goes on where it was.
    """
    from unblemish.benchmark import sweep as sweeping

    _use(folder)
    check_one_of("--grid", grid, sweeping.GRIDS)
    sweeping.check(dataset or [], model or [], [], [], 0, "paper", epochs)
    check_whole("--seeds", seeds, least=1)
    check_whole("--jobs", jobs, least=1)
    _draw(sweeping.grid(grid, dataset or [], model or [], seeds, epochs), out, jobs)


def _draw(runs: list[Run], out: Path, jobs: int) -> None:
    """Make the runs, telling of each as it ends, and of the time left by the steps that are still to be made."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    from unblemish.benchmark.sweep import still_to_do, sweep
    from unblemish.progress import clock

    console = Console(stderr=True, highlight=False)
    rest = still_to_do(runs, out)
    steps = sum(run.steps() for run in rest)
    columns = (BarColumn(bar_width=30), MofNCompleteColumn(), TextColumn("{task.description}", style="dim"))
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task("starting", total=len(runs), completed=len(runs) - len(rest))
        started, done = time.monotonic(), 0
        for run, line in sweep(rest, out, jobs):
            done += run.steps()
            left = clock((time.monotonic() - started) / done * (steps - done))
            figures = "  ".join(f"{line[name]:.4f}" for name in ("avpr", "smse_dirty", "smse_clean"))
            console.print(f"{run}: {figures}  in {line['fit_seconds']:.0f} s, {left} left", soft_wrap=True)
            bar.update(task, advance=1, description=f"{left} left")
    console.print(f"{out} holds all {len(runs)} runs.", soft_wrap=True)


@bench.command()
def table(
    runs: Lines,
    format: Annotated[str, typer.Option(help="markdown, latex or csv.")] = "markdown",
) -> None:
    """Print mean and standard error of each figure, with the published ones beside them."""
    from unblemish.benchmark.sweep import read
    from unblemish.benchmark.tables import FORMATS, entries

    check_one_of("--format", format, FORMATS)
    print(FORMATS[format](entries(read(runs))), end="")


@bench.command()
def figures(
    runs: Lines,
    out: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option(help="The folder for the figures, instead of one called figures beside RUNS.jsonl."),
    ] = None,
) -> None:
    """Draw quality against the number of labels, and the repairs of some test rows by each model."""
    from unblemish.benchmark import figures as drawing
    from unblemish.benchmark.sweep import read
    from unblemish.data.write import cannot_write

    folder = out or runs.parent / "figures"
    count = 0
    try:
        for path in drawing.figures(runs, read(runs), folder):
            typer.echo(str(path))
            count += 1
    except OSError as error:
        raise cannot_write(folder, error) from error
    if not count:
        raise BadInput(f"{runs} has neither two sizes of the trusted set nor pictures beside it; make a sweep first")


@bench.command()
def compression(
    out: Annotated[
        Path, typer.Option(help="The file of lines; what it holds already is not made again.", show_default=False)
    ],
    seeds: Annotated[int, typer.Option(help="How many seeds, from 0.")] = 3,
    epochs: Epochs = None,
    jobs: Annotated[int, typer.Option(help="How many fits at once, one thread each.")] = 2,
    folder: Data = None,
) -> None:
    """Measure the entropy of clean and of corrupted Frey-Faces by VAEs with codes of 2 to 50 numbers (IWAE bound).

    Draws the curve beside OUT, and says what it shows. Stopped at any time, the same command goes on.
    """
    from unblemish.benchmark import compression as study
    from unblemish.benchmark.sources import frey_images
    from unblemish.data.write import writing

    _use(folder)
    check_whole("--seeds", seeds, least=1)
    check_whole("--jobs", jobs, least=1)
    if epochs is not None:
        check_whole("--epochs", epochs, least=1)
    frey_images()  # what is missing is said before any work
    for line in study.study(out, seeds, jobs, epochs):
        kind = "corrupted" if line["corrupted"] else "clean"
        typer.echo(f"{line['size']} latent numbers, {kind}, seed {line['seed']}: {line['entropy']:.1f} nats", err=True)
    lines = study.read(out)
    picture = out.with_suffix(".png")
    with writing(picture) as (file,):
        study.chart(file, lines)
    typer.echo(f"{study.sentence(lines)} Drawn in {picture}.")


@bench.command()
def patterns(
    out: Annotated[
        Path, typer.Option(help="The file of lines; what it holds already is not made again.", show_default=False)
    ],
    error: Annotated[
        Optional[list[str]],  # noqa: UP045
        typer.Option(help="Only this error; may be given again.", show_default="all"),
    ] = None,
    seeds: Annotated[int, typer.Option(help="How many seeds, from 0.")] = 2,
    epochs: Epochs = None,
    jobs: Annotated[int, typer.Option(help="How many fits at once, one thread each.")] = 2,
    folder: Data = None,
) -> None:
    """Try errors that the paper did not: watermarks, offsets, dimmed parts, noise, two in one row, and more.

    8000 rows of Fashion-MNIST each; CLSVAE as published and the same fit with patterns, side by side.
    """
    from unblemish.benchmark import beyond
    from unblemish.benchmark.sources import fashion_files

    _use(folder)
    check_whole("--seeds", seeds, least=1)
    check_whole("--jobs", jobs, least=1)
    for name in error or ():
        check_one_of("--error", name, beyond.ERRORS)
    if epochs is not None:
        check_whole("--epochs", epochs, least=1)
    fashion_files()  # what is missing is said before any work
    for line in beyond.study(out, error or (), seeds, jobs, epochs):
        with_patterns = "  ".join(f"{line[name]:.4f}" for name in ("avpr", "smse_dirty", "smse_clean"))
        typer.echo(f"{line['error']}, seed {line['seed']}: {line['patterns']} patterns, {with_patterns}", err=True)
    typer.echo(beyond.markdown(beyond.read(out)))


@bench.command()
def select(
    dataset: DatasetName,
    model: ModelName = "clsvae",
    noise: Noise = 35,
    labels: TrustedRows = 25,
    seed: Seed = 0,
    recipe: RecipeName = "fast",
    epochs: Epochs = None,
    jobs: Annotated[int, typer.Option(help="How many candidates at once, one thread each.")] = 2,
    folder: Data = None,
) -> None:
    """Choose hyper-parameters as the paper did: by average precision on the trusted set, no truth needed.

    Models that learn from labels are judged by fits that had not seen those of the rows they are judged on.
    """
    from rich.console import Console
    from rich.table import Table

    from unblemish.benchmark import selection
    from unblemish.benchmark.runs import Run
    from unblemish.benchmark.sweep import check

    _use(folder)
    check([dataset], [model], [noise], [labels], seed, recipe, epochs)
    check_whole("--jobs", jobs, least=1)
    run = Run(dataset, model, noise=noise, labels=labels, seed=seed, recipe=recipe, epochs=epochs)
    judged = []
    for each in selection.select(run, jobs):
        typer.echo(f"{each.candidate}: {each.avpr:.4f}", err=True)
        judged.append(each)
    chosen = selection.best(judged)
    table = Table(title=f"{model} on {dataset}, {noise} % noise, {labels} labels a class, seed {seed}")
    table.add_column("settings")
    table.add_column("average precision on the trusted set", justify="right")
    table.add_column("surprise by held-out labels", justify="right")
    for each in sorted(judged, key=lambda j: (-j.avpr, j.surprise)):
        style = "bold" if each is chosen else ""
        table.add_row(
            str(each.candidate), f"{each.avpr:.4f}", f"{each.surprise:.3g}" if each.surprise else "", style=style
        )
    console = Console(highlight=False)
    console.print(table)
    console.print(selection.reason(chosen, judged), soft_wrap=True)
