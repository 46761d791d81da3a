"""Results as lines of JSON, each kept as soon as it is there: killed work goes on without loss or repetition."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from unblemish.benchmark.pool import results, workers
from unblemish.data.write import cannot_write
from unblemish.errors import BadInput

Case = TypeVar("Case")
Line = dict[str, Any]


@contextmanager
def once_each(
    cases: Sequence[Case],
    work: Callable[[Case], Line],
    out: Path,
    jobs: int,
    *,
    read_done: Callable[[Path], Collection[Case]],
) -> Iterator[Iterator[Line]]:
    """The lines of the cases that `out` does not hold yet, as they come, each when it has been kept."""
    with _locked(out) as file, workers(jobs) as pool:
        done = read_done(out)

        def kept() -> Iterator[Line]:
            for line in results(pool, work, [case for case in cases if case not in done]):
                file.write((json.dumps(line) + "\n").encode())  # unbuffered, at the end: one write
                os.fsync(file.fileno())
                yield line

        yield kept()


def read_lines(path: Path, case_of: Callable[[Line], Any]) -> list[Line]:
    """The lines of a file, if each is of a case. What a kill left of a last line does not count."""
    try:
        text = path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(f"{path} cannot be read as the lines of a sweep: {error}") from error
    lines = []
    for number, line in enumerate(text[: text.rfind("\n") + 1].splitlines(), 1):
        try:
            lines.append(json.loads(line))
            case_of(lines[-1])
        except (ValueError, TypeError, KeyError) as error:
            raise BadInput(
                f"{path}, line {number}, is not a line of a sweep; remove it, or give another file"
            ) from error
    return lines


@contextmanager
def _locked(out: Path) -> Iterator[Any]:
    """The file, open for adding whole lines, by nobody else; half a line that a kill left is cut off."""
    try:
        file = out.open("ab", buffering=0)
    except OSError as error:
        raise cannot_write(out, error) from error
    with file:
        if sys.platform != "win32":
            import fcntl

            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                message = f"{out} is being written by another sweep; wait for it, or give another --out"
                raise BadInput(message) from error
        content = out.read_bytes()
        file.truncate(content.rfind(b"\n") + 1)
        yield file
