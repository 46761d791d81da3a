"""`unblemish demo`: Synthetic-Shapes from data to figures and pictures."""

from __future__ import annotations

import json
import time
from contextlib import closing
from dataclasses import asdict
from pathlib import Path

from rich.console import Console
from rich.table import Table

import unblemish
from unblemish.benchmark import pictures
from unblemish.benchmark.datasets import split, synthetic_shapes
from unblemish.benchmark.evaluate import Figures, evaluate, labels_for
from unblemish.benchmark.published import TABLE
from unblemish.cleaner import Cleaner
from unblemish.data.write import cannot_write, check_output, writing
from unblemish.errors import BadInput
from unblemish.patterns.picture import draw
from unblemish.progress import bar

NOISE, LABELS, ROWS = 0.35, 10, 5000
FIGURES = "figures.json"


def run(
    out: Path,
    model: str = "clsvae",
    seed: int = 0,
    *,
    recipe: str = "fast",
    epochs: int | None = None,
    rows: int = ROWS,
    force: bool = False,
    console: Console | None = None,
) -> Figures:
    """Make the data, fit on its training split, score on its test split, print and draw."""
    console = console or Console()
    cleaner = Cleaner(model, preset="shapes", recipe=recipe, epochs=epochs, folds=0, seed=seed)
    cleaner.check_parameters()
    _prepare(out, force=force)
    parts = split(synthetic_shapes(rows, NOISE, seed), seed)
    y = labels_for(model, parts.train, LABELS, seed)
    console.print(
        f"[bold]Synthetic-Shapes[/]: {rows} images, {NOISE:.0%} crossed by one of four lines; fitting {model} on "
        f"{len(parts.train)} of them, {int((y >= 0).sum())} labelled",
        soft_wrap=True,
    )
    started = time.monotonic()
    with closing(bar(cleaner.fitting(parts.train.dirty, y), console)) as steps:
        for _ in steps:
            pass
    seconds = time.monotonic() - started
    figures = evaluate(cleaner, parts.test)
    report = cleaner.clean(parts.test.dirty)

    names = ["strip.png", "training.png", "scores.png", FIGURES]
    found = cleaner.catalogue_
    if found is not None:
        names.append("patterns.png")
    try:
        with writing(*(out / name for name in names)) as (strip, training, scores, record, *catalogue):
            pictures.strip(strip, parts.test, cleaner.repair(parts.test.dirty, unrounded=True), report.is_outlier)
            pictures.curves(training, cleaner.curve_)
            pictures.score_histogram(scores, report.outlier_score, parts.test.is_outlier, report.threshold)
            about = {"model": model, "seed": seed, "fit_seconds": seconds, "version": unblemish.__version__}
            record.write(json.dumps(about | asdict(figures), indent=1).encode())
            if found is not None:
                draw(catalogue[0], found, cleaner.schema_)
    except OSError as error:
        raise cannot_write(out, error) from error

    _print_figures(console, model, figures, None if found is None else evaluate(cleaner.without_patterns(), parts.test))
    flagged = int(report.is_outlier.sum())
    right = int((report.is_outlier & parts.test.is_outlier).sum())
    console.print(
        f"At threshold {report.threshold:.2g}, {flagged} of {len(parts.test)} unseen images are flagged; "
        f"{right} of them are outliers, of {int(parts.test.is_outlier.sum())} in all. Fitted in {seconds:.0f} s.",
        soft_wrap=True,
    )
    for pattern in cleaner.patterns_:
        console.print(
            f"Pattern: {pattern.words(cleaner.schema_)}, in {pattern.share:.1%} of the images", soft_wrap=True
        )
    pictures_made = [str(out / name) for name in names if name != FIGURES]
    console.print(f"Look at {', '.join(pictures_made[:-1])} and {pictures_made[-1]}.", soft_wrap=True)
    return figures


def _prepare(out: Path, *, force: bool) -> None:
    """A new folder, or one of an earlier demo; nobody else's files are replaced unasked."""
    if out.exists() and not (out / FIGURES).is_file() and not force:
        raise BadInput(f"{out} exists and is not from an earlier demo; choose another --out, or give --force")
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise cannot_write(out, error) from error
    check_output(out / FIGURES, force=True)


def _print_figures(console: Console, model: str, figures: Figures, as_in_the_paper: Figures | None) -> None:
    """as_in_the_paper: of the same fit without its patterns."""
    table = Table(title=f"{model} on {ROWS // 10} unseen images", caption="published: mean of five (standard error)")
    table.add_column("")
    table.add_column("here", justify="right", style="bold")
    if as_in_the_paper is not None:
        table.add_column("without patterns", justify="right")
    table.add_column("published", justify="right")
    names = {
        "avpr": "average precision (1 is best)",
        "smse_dirty": "SMSE, dirty cells (0 is best)",
        "smse_clean": "SMSE, clean cells (0 is best)",
    }
    published = TABLE["shapes"].get(model)
    for name, words in names.items():
        ours = [f"{getattr(f, name):.4f}" for f in (figures, as_in_the_paper) if f is not None]
        theirs = "" if published is None else "{:.3g} ({:.1g})".format(*getattr(published, name))
        table.add_row(words, *ours, theirs)
    console.print(table)
