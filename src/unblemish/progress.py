"""A progress bar for the terminal: epoch, terms of the loss, time left."""

from __future__ import annotations

from collections.abc import Generator, Iterable
from contextlib import closing
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TaskID, TextColumn
from rich.progress import Progress as Bar

if TYPE_CHECKING:
    from unblemish.training import Progress

SHORT = {"reconstruction": "rec", "cross_entropy": "labels", "dependence": "dc", "kl_z": "kl z", "kl_y": "kl y"}


def bar(steps: Generator[Progress, None, None], console: Console | None = None) -> Generator[Progress, None, None]:
    """The same steps, drawn as they pass. Where there is no terminal, a line ten times a phase."""
    console = console or Console(stderr=True)
    with closing(steps):  # whoever stops looking stops the work, there and then
        yield from _drawn(steps, console) if console.is_terminal else _lines(steps, console)


def _drawn(steps: Iterable[Progress], console: Console) -> Generator[Progress, None, None]:
    columns = (
        TextColumn("{task.description:<12}"),
        BarColumn(bar_width=20),
        MofNCompleteColumn(),
        TextColumn("{task.fields[left]:>7} left  {task.fields[terms]}", style="dim"),
    )
    with Bar(*columns, console=console) as drawn:
        tasks: dict[str, TaskID] = {}
        for step in steps:
            if step.phase not in tasks:
                tasks[step.phase] = drawn.add_task(step.phase, total=step.epochs, terms="", left="")
            if step.message:
                drawn.console.print(step.message, style="yellow")
            drawn.update(tasks[step.phase], completed=step.epoch, terms=terms_line(step), left=clock(step.seconds_left))
            yield step


def _lines(steps: Iterable[Progress], console: Console) -> Generator[Progress, None, None]:
    for step in steps:
        if step.message:
            console.print(step.message, soft_wrap=True)
        if step.epoch % max(step.epochs // 10, 1) == 0 or step.epoch == step.epochs:
            left = clock(step.seconds_left)
            text = f"{step.phase}: epoch {step.epoch} of {step.epochs}, {left} left, {terms_line(step)}"
            console.print(text, soft_wrap=True)
        yield step


def terms_line(step: Progress) -> str:
    return "  ".join(f"{SHORT.get(name, name)} {value:.4g}" for name, value in step.terms.items())


def clock(seconds: float) -> str:
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02}"
