"""`unblemish bench`: the paper's experiments and the speed, one command each."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Optional

import typer

bench = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode="rich",
    help="Measure: the speed, and what the settings are worth.",
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
