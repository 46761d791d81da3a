"""Errors that the paper did not try, on Fashion-MNIST: CLSVAE as published, and the same fit with patterns."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, fields, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unblemish.benchmark.corruption import (
    UNCHANGED,
    Affine,
    Both,
    Corrupted,
    Error,
    Fill,
    OneOf,
    Salt,
    corrupt,
    trusted_labels,
)
from unblemish.benchmark.evaluate import evaluate
from unblemish.benchmark.lines import once_each, read_lines
from unblemish.benchmark.runs import found_patterns
from unblemish.benchmark.sources import fashion_files
from unblemish.benchmark.tables import FIGURES, shown, spread
from unblemish.cleaner import Cleaner

SIDE = 28
TRAIN, TEST = 8000, 2000
LABELS = 10  # of each kind of clothes and of each error
DRESS = 3  # the class of clothes that alone has the error where it goes with the class


def _box(top: int, left: int, height: int, width: int) -> NDArray[np.bool_]:
    cells = np.zeros((SIDE, SIDE), bool)
    cells[top : top + height, left : left + width] = True
    return cells


def _ring() -> NDArray[np.bool_]:
    row, column = np.indices((SIDE, SIDE)) - (SIDE - 1) / 2
    radius = np.hypot(row, column)
    return np.asarray((radius > 8) & (radius < 11))


WHITE_BOX = Fill("white box", _box(3, 3, 5, 5), 255.0)
BLACK_BOX = Fill("black box", _box(18, 12, 6, 6), 0.0)

ERRORS: dict[str, tuple[Error, ...]] = {
    "watermark 0.3": (Affine("ring", _ring(), 0.7, 0.3 * 255),),
    "watermark 0.6": (Affine("ring", _ring(), 0.4, 0.6 * 255),),
    "offset": (Affine("block", _box(4, 6, 9, 9), 1.0, 60.0),),
    "dimmed half": (Affine("left half", _box(0, 0, SIDE, SIDE // 2), 0.5, 0.0),),
    "salt and pepper": (Salt("salt", np.ones((SIDE, SIDE), bool), 0.15, (0.0, 255.0)),),
    "two in one row": (WHITE_BOX, BLACK_BOX, Both("both", WHITE_BOX, BLACK_BOX)),
    "one of nine places": (
        OneOf("mark", tuple(Fill("", _box(top, left, 5, 5), 255.0) for top in (2, 11, 20) for left in (2, 11, 20))),
    ),
    "one class only": (Fill("box", _box(8, 10, 6, 6), 255.0),),
    "no error but a few": (Fill("tiny", _box(8, 10, 4, 4), 255.0),),
}
SHARE = {"salt and pepper": 0.3, "no error but a few": 0.002}


@dataclass(frozen=True)
class Case:
    """An error, and a seed."""

    error: str
    seed: int


def data(case: Case, train: int = TRAIN, test: int = TEST) -> tuple[Corrupted, Corrupted]:
    """Training and test rows."""
    images, kinds, _, _ = fashion_files()
    order = np.random.default_rng([case.seed, 9]).permutation(len(images))[: train + test]
    clean, data_class = images[order], kinds[order].astype(np.int64)
    dirty = corrupt(clean, ERRORS[case.error], SHARE.get(case.error, 0.35), case.seed, data_class)
    if case.error == "one class only":
        others = data_class != DRESS
        dirty.dirty[others] = clean[others]
        error = np.where(others, UNCHANGED, dirty.error)
        dirty = replace(dirty, mask=dirty.dirty != clean, error=error)
    return dirty[:train], dirty[train:]


def result(case: Case, epochs: int | None = None, train: int = TRAIN, test: int = TEST) -> dict[str, Any]:
    """One fit; its figures on the test rows with its patterns and without."""
    rows, unseen = data(case, train, test)
    y = trusted_labels(rows, LABELS, case.seed)
    cleaner = Cleaner(preset="fashion", epochs=epochs, folds=0, seed=case.seed).fit(rows.dirty, y)
    paper = {f"paper_{name}": value for name, value in asdict(evaluate(cleaner.without_patterns(), unseen)).items()}
    found = found_patterns(cleaner.patterns_, rows) | {"patterns": len(cleaner.patterns_)}
    return {**asdict(case), **asdict(evaluate(cleaner, unseen)), **paper, **found}


def study(
    out: Path, errors: Sequence[str], seeds: int, jobs: int, epochs: int | None = None
) -> Iterator[dict[str, Any]]:
    """Every case that `out` does not hold yet, its line kept as it comes."""
    cases = [Case(error, seed) for seed in range(seeds) for error in errors or ERRORS]
    with once_each(cases, partial(result, epochs=epochs), out, jobs, read_done=_done) as lines:
        yield from lines


def read(out: Path) -> list[dict[str, Any]]:
    return read_lines(out, case_of)


def case_of(line: dict[str, Any]) -> Case:
    return Case(**{field.name: line[field.name] for field in fields(Case)})


def _done(out: Path) -> set[Case]:
    return {case_of(line) for line in read(out)} if out.exists() else set()


def markdown(lines: Sequence[dict[str, Any]]) -> str:
    """A row an error: CLSVAE as published, then with patterns."""
    text = "| error | seeds | patterns | | " + " | ".join(FIGURES.values()) + " |\n"
    text += "|---|---|---|---|" + "---|" * len(FIGURES) + "\n"
    for error in ERRORS:
        of_it = [line for line in lines if line["error"] == error]
        if not of_it:
            continue
        counts = ", ".join(str(line["patterns"]) for line in of_it)
        for name, prefix in (("CLSVAE", "paper_"), ("with patterns", "")):
            cells = [shown(spread([line[prefix + figure] for line in of_it])) for figure in FIGURES]
            first = f"{error} | {len(of_it)} | {counts}" if prefix else " | | "
            text += f"| {first} | {name} | {' | '.join(cells)} |\n"
    return text
