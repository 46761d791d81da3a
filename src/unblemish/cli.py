"""The command line: thin verbs over the library."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn, Optional

import typer

from unblemish import __version__
from unblemish.benchmark.commands import bench
from unblemish.errors import BadInput, Diverged, check_share

if TYPE_CHECKING:
    from rich.console import Console

    from unblemish.cleaner import Cleaner

app = typer.Typer(
    name="unblemish",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Finds and repairs [bold]systematic errors[/bold] in datasets, from about ten labels of each kind.",
    epilog="Start with:  unblemish demo",
)

app.add_typer(bench, name="bench")

MODELS = "clsvae, clsvae-nodc, ccvae, vaegmm, cvae, vae or vae-l2"

DataFile = Annotated[Path, typer.Argument(metavar="X", help="The rows: a .npy or .npz file.", show_default=False)]
ArrayName = Annotated[Optional[str], typer.Option("--array", help="Which array of an .npz file.")]  # noqa: UP045
ModelName = Annotated[str, typer.Option("--model", help=f"One of {MODELS}.")]
Seed = Annotated[int, typer.Option(help="The same seed, data and machine give the same result.")]
Force = Annotated[bool, typer.Option("--force", help="Replace an output that exists.")]
RecipeName = Annotated[
    str, typer.Option("--recipe", help="fast, or paper for three times the epochs at one low learning rate.")
]
Epochs = Annotated[Optional[int], typer.Option(help="Instead of the number that suits the data.")]  # noqa: UP045


@app.callback(invoke_without_command=True)
def _top(version: Annotated[bool, typer.Option("--version", help="Print the version and stop.")] = False) -> None:
    if version:
        typer.echo(f"unblemish {__version__}")
        raise typer.Exit


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="A folder for the pictures and the figures.")] = Path("unblemish-demo"),
    model: ModelName = "clsvae",
    seed: Seed = 0,
    recipe: RecipeName = "fast",
    epochs: Epochs = None,
    force: Force = False,
) -> None:
    """Make a dataset with known errors, find and repair them, and show how well that went.

    5000 small images of shapes, 35 % of them crossed by one of four lines; ten labels for each kind of
    shape and of line. Takes about a minute.
    """
    from unblemish.benchmark.demo import run

    with _stopping("the demo starts anew when it is run again"):
        run(out, model, seed, recipe=recipe, epochs=epochs, force=force, console=_console())


@app.command()
def fit(
    data: DataFile,
    labels: Annotated[
        Path,
        typer.Option(help="A CSV with the columns row and label (inlier or outlier, 1 or 0).", show_default=False),
    ],
    out: Annotated[Path, typer.Option(help="The folder to save the model to.", show_default=False)],
    model: ModelName = "clsvae",
    array: ArrayName = None,
    recipe: RecipeName = "fast",
    epochs: Epochs = None,
    torso: Annotated[str, typer.Option(help="mlp, or conv for images of 16x16 or more.")] = "mlp",
    folds: Annotated[int, typer.Option(help="Cross-validate the trusted set in so many parts; 0 for none.")] = 3,
    patterns: Annotated[
        bool, typer.Option(help="Look for errors that repeat, and repair the cells they touch alone.")
    ] = True,
    seed: Seed = 0,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda, ...")] = "auto",
    force: Force = False,
) -> None:
    """Learn from a few labelled rows what is clean and what is error.

    Stopped at any moment (Ctrl-C, a crash), the same command goes on where it was: OUT.checkpoint keeps the state.
    """
    from unblemish.data.labels import read_labels
    from unblemish.data.read import read_array
    from unblemish.data.schema import check_rows
    from unblemish.data.write import check_output

    X = check_rows(read_array(data, array), str(data), at_least=2)
    y = read_labels(labels, len(X))
    place = out.absolute()
    check_output(place, force=force, folder=True)
    checkpoint = place.with_name(f"{place.name}.checkpoint")

    from unblemish.cleaner import Cleaner
    from unblemish.progress import bar

    cleaner = Cleaner(
        model, recipe=recipe, epochs=epochs, torso=torso, folds=folds, patterns=patterns, seed=seed, device=device
    )
    if force:
        checkpoint.unlink(missing_ok=True)
    with (
        _naming(data, labels),
        _stopping("run the same command again to go on from there"),
        closing(bar(cleaner.fitting(X, y, checkpoint=checkpoint))) as steps,
    ):
        for _ in steps:
            pass
    cleaner.save(place, force=force)
    checkpoint.unlink(missing_ok=True)
    console = _console()
    console.print(f"Saved to {out}. Next:  unblemish clean {data} --model {out} --out clean.npy", soft_wrap=True)
    if cleaner.trusted_error_ is not None:
        console.print(f"Trusted set: {cleaner.trusted_error_}", soft_wrap=True)
    if cleaner.patterns_:
        console.print(f"{_counted(cleaner)}. See them with:  unblemish patterns {out}", soft_wrap=True)
    if cleaner.catalogue_ is not None and cleaner.trusted_error_ is not None:
        from unblemish.trusted import promise

        console.print(promise(cleaner.trusted_error_, cleaner.catalogue_.touched), soft_wrap=True)


@app.command()
def patterns(
    model: Annotated[Path, typer.Argument(help="The folder that 'fit' wrote.", show_default=False)],
    out: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option(help="A .png file for the picture; MODEL.patterns.png if not given.", show_default=False),
    ] = None,
    force: Force = False,
) -> None:
    """List the errors that repeat, and draw them: where each is, what it does, rows before and after."""
    from unblemish.cleaner import Cleaner
    from unblemish.data.write import cannot_write, check_output, writing

    cleaner = Cleaner.load(model)
    console = _console()
    if cleaner.catalogue_ is None:
        console.print("This model knows no patterns: none was found, or it was fitted without looking for them.")
        return
    place = model.with_name(f"{model.name}.patterns.png") if out is None else out
    if place.suffix != ".png":
        raise BadInput(f"{place} does not end in .png; choose a name that does, for the picture")
    check_output(place, force=force or out is None)

    from rich.table import Table

    from unblemish.patterns.picture import draw

    table = Table(box=None)
    for name, justify in (("", "right"), ("what it does", "left"), ("rows", "right"), ("trusted", "right")):
        table.add_column(name, justify=justify)  # type: ignore[arg-type]
    for number, pattern in enumerate(cleaner.patterns_):
        words = pattern.words(cleaner.schema_)
        table.add_row(str(number), words, f"{pattern.share:.1%}", f"{pattern.trusted} outliers")
    console.print(table)
    try:
        with writing(place) as (file,):
            draw(file, cleaner.catalogue_, cleaner.schema_)
    except OSError as error:
        raise cannot_write(place, error) from error
    console.print(f"Look at {place}.", soft_wrap=True)


@app.command()
def clean(
    data: DataFile,
    model: Annotated[Path, typer.Option(help="The folder that 'fit' wrote.", show_default=False)],
    out: Annotated[Path, typer.Option(help="The .npy file for the clean data.", show_default=False)],
    array: ArrayName = None,
    threshold: Annotated[
        Optional[float],  # noqa: UP045
        typer.Option(help="Repair rows that score this or more, instead of the model's own threshold."),
    ] = None,
    force: Force = False,
) -> None:
    """Repair the outliers; all other rows come back bit for bit.

    Beside OUT.npy it writes OUT.scores.csv, a line a row, and OUT.patch.npz, every value changed with what it was.
    """
    from unblemish.data.read import read_array
    from unblemish.data.schema import check_rows
    from unblemish.data.write import cannot_write, check_output, scores_csv, write_array, writing

    if out.suffix != ".npy":
        raise BadInput(f"{out} does not end in .npy; choose a name that does, for the clean data")
    X = check_rows(read_array(data, array), str(data))
    places = [out, out.with_suffix(".scores.csv"), out.with_suffix(".patch.npz")]
    for place in places:
        check_output(place, force=force)
        _spare_inputs(place, data)
    if threshold is not None:
        check_share("threshold", threshold)

    from unblemish.cleaner import Cleaner

    cleaner = Cleaner.load(model)
    with _naming(data):
        report = cleaner.clean(X)
    if threshold is not None:
        report = report.at(threshold)
    changed = report.changed.reshape(len(X), -1).sum(1)
    try:
        with writing(*places) as (cleaned, scores, patch):
            scores.write(scores_csv(report.outlier_score, report.is_outlier, changed))
            report.patch().write(patch)
            write_array(cleaned, report.repaired)
    except OSError as error:
        raise cannot_write(out, error) from error
    console = _console()
    if not changed.any():
        console.print("[bold yellow]Nothing was changed:[/] no row reaches the threshold, or repairs are the rows.")
    console.print(
        f"{int(report.is_outlier.sum()):,} of {len(X):,} rows are outliers at threshold {report.threshold:g}; "
        f"{int(changed.sum()):,} cells changed. Wrote {out}, {places[1].name} and {places[2].name}.",
        soft_wrap=True,
    )


@app.command()
def info(model: Annotated[Path, typer.Argument(help="The folder that 'fit' wrote.", show_default=False)]) -> None:
    """Say what a saved model is, what it was fitted on, and how well it knows its trusted set."""
    from rich.table import Table

    from unblemish.storage import read_about

    about = read_about(model)
    schema, recipe = about.schema_, about.preset.recipe
    values = ", ".join(f"{name} {value}" for name, value in about.preset.values.items())
    table = Table(show_header=False, box=None)
    table.add_column(style="bold")
    rows = {
        "model": f"{about.parameters.model} ({values})",
        "rows": f"{' x '.join(map(str, schema.shape))} {schema.kind} cells, {schema.dtype}, "
        f"from {min(schema.low):g} to {max(schema.high):g}",
        "training": f"{len(about.curve)} epochs, batches of {recipe.batch_size}, seed {about.parameters.seed}"
        + (f"; fit {about.fits}, after others that took most rows for outliers" if about.fits > 1 else ""),
        "last loss": f"{about.curve[-1]['loss']:.4g}" if about.curve else "not trained",
        "threshold": f"{about.threshold:g}",
        "trusted set": str(about.trusted_error or "no labels of both kinds"),
        "patterns": "none" if about.patterns is None else f"{len(about.patterns.patterns)}; see 'unblemish patterns'",
        "made with": ", ".join(f"{name} {number}" for name, number in about.libraries.items()),
    }
    for name, text in rows.items():
        table.add_row(name, text)
    _console().print(table)


def _counted(cleaner: Cleaner) -> str:
    count = len(cleaner.patterns_)
    return (
        f"{count} pattern{'s' if count > 1 else ''} found, in {sum(p.share for p in cleaner.patterns_):.0%} of the rows"
    )


def _console() -> Console:
    from rich.console import Console

    return Console(highlight=False)


@contextmanager
def _stopping(next_step: str) -> Iterator[None]:
    """Ctrl-C is no error: says what to do next and ends with the shell's usual code for it."""
    try:
        yield
    except KeyboardInterrupt:
        typer.echo(f"Stopped; {next_step}.", err=True)
        raise typer.Exit(130) from None


def _spare_inputs(place: Path, *inputs: Path) -> None:
    """Not even --force replaces what was given to read."""
    for source in inputs:
        if place.exists() and place.samefile(source):
            raise BadInput(f"{place.name} is the input {source}, which is never changed; choose another name")


@contextmanager
def _naming(*files: Path) -> Iterator[None]:
    """The library speaks of X and y; here they are files."""
    try:
        yield
    except BadInput as error:
        raise BadInput(f"{' with '.join(map(str, files))}: {error}") from error


def _fail(message: str, code: int) -> NoReturn:
    typer.echo(f"unblemish: {message}", err=True)
    sys.exit(code)


def main() -> None:
    """Bad input ends with one sentence and exit code 2, never with a traceback."""
    os.environ.setdefault("THP_MEM_ALLOC_ENABLE", "1")  # torch takes large tensors in large pages: less waiting
    try:
        app()
    except BadInput as error:
        _fail(str(error), 2)
    except Diverged as error:
        _fail(str(error), 1)
    except MemoryError:
        _fail("there is not enough memory for this; give fewer rows", 2)
    except BrokenPipeError:
        os._exit(0)
    except OSError as error:
        _fail(f"{error.filename or 'a file'}: {(error.strerror or str(error)).lower()}", 2)
