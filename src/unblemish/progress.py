"""A progress bar for the terminal: epoch, terms of the loss, time left."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn
from rich.progress import Progress as Bar

if TYPE_CHECKING:
    from unblemish.training import Progress

SHORT = {"reconstruction": "rec", "cross_entropy": "labels", "dependence": "dc", "kl_z": "kl z", "kl_y": "kl y"}


def bar(steps: Iterator[Progress], console: Console | None = None) -> Iterator[Progress]:
    """The same steps, drawn as they pass. Where there is no terminal, a line ten times a phase."""
    console = console or Console(stderr=True)
    if not console.is_terminal:
        yield from _lines(steps, console)
        return
    columns = (
        TextColumn("{task.description:<12}"),
        BarColumn(bar_width=20),
        MofNCompleteColumn(),
        TextColumn("{task.fields[left]:>7} left  {task.fields[terms]}", style="dim"),
    )
    with Bar(*columns, console=console) as drawn:
        task, phase = None, ""
        for step in steps:
            if step.phase != phase:
                phase = step.phase
                task = drawn.add_task(phase, total=step.epochs, terms="", left="")
            if step.message:
                drawn.console.print(step.message, style="yellow")
            assert task is not None
            drawn.update(task, completed=step.epoch, terms=terms_line(step), left=clock(step.seconds_left))
            yield step
            if step.epoch == step.epochs:
                drawn.update(task, completed=step.epoch, total=step.epoch, left="0:00")


def _lines(steps: Iterator[Progress], console: Console) -> Iterator[Progress]:
    for step in steps:
        if step.message:
            console.print(step.message)
        if step.epoch % max(step.epochs // 10, 1) == 0 or step.epoch == step.epochs:
            left = clock(step.seconds_left)
            console.print(f"{step.phase}: epoch {step.epoch} of {step.epochs}, {left} left, {terms_line(step)}")
        yield step


def terms_line(step: Progress) -> str:
    return "  ".join(f"{SHORT.get(name, name)} {value:.4g}" for name, value in step.terms.items())


def clock(seconds: float) -> str:
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02}"
