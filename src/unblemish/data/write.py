"""What goes out: every file whole or not at all; and the patch, from which the original comes back."""

from __future__ import annotations

import csv
import io
import os
import secrets
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from unblemish.errors import BadInput

Array = NDArray[Any]


@contextmanager
def writing(*paths: Path) -> Iterator[Sequence[IO[bytes]]]:
    """Files under temporary names, renamed together once all are complete, removed on any error."""
    temporaries = [path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp") for path in paths]
    with ExitStack() as stack:
        for temporary in temporaries:
            stack.callback(temporary.unlink, missing_ok=True)
        files = [stack.enter_context(temporary.open("xb")) for temporary in temporaries]
        yield files
        for file in files:
            file.flush()
            os.fsync(file.fileno())
        for temporary, path in zip(temporaries, paths, strict=True):
            temporary.replace(path)


def write_file(path: Path, content: bytes) -> None:
    """Readers see the old file or the new one, never a part."""
    with writing(path) as (file,):
        file.write(content)


def check_output(path: Path, *, force: bool = False) -> None:
    """Refuse, before any work is done, a place that cannot be written to or holds something already."""
    if path.exists() and not force:
        raise BadInput(f"{path} exists; choose another name, or give --force (force=True) to replace it")
    folder = path.absolute().parent
    if not folder.is_dir():
        raise BadInput(f"{folder} is not a folder, so {path.name} cannot be written there; make it first")
    probe = folder / f".{path.name}.{secrets.token_hex(4)}.tmp"
    try:
        probe.write_bytes(b"unblemish")
    except OSError as error:
        raise cannot_write(path, error) from error
    finally:
        if probe.exists():
            probe.unlink()


def cannot_write(path: Path, error: OSError) -> BadInput:
    """The one sentence for a full disk, a read-only folder and the like."""
    return BadInput(
        f"{path} cannot be written ({(error.strerror or str(error)).lower()}); nothing was left half-written"
    )


@dataclass(frozen=True)
class Patch:
    """The record of a cleaning: for each cell that was changed its row, place, old and new value.

    `cell` counts within the row, in C order; `score` is the outlier score of the cell's row.
    """

    row: NDArray[np.int64]
    cell: NDArray[np.int64]
    old: Array
    new: Array
    score: NDArray[np.float64]

    @classmethod
    def between(cls, before: Array, after: Array, score: NDArray[np.float64]) -> Patch:
        """What turns `before` into `after`, both (N, ...) of one dtype."""
        old, new = before.reshape(len(before), -1), after.reshape(len(after), -1)
        row, cell = np.nonzero(_bits(old) != _bits(new))
        return cls(row, cell, old[row, cell], new[row, cell], score[row])

    def __len__(self) -> int:
        return len(self.row)

    def undo(self, after: Array) -> Array:
        """The data as they were before, from the data as they are now."""
        before = np.array(after)
        flat = before.reshape(len(before), -1)
        if len(self) and (
            self.row.max() >= len(flat) or self.cell.max() >= flat.shape[1] or self.old.dtype != flat.dtype
        ):
            raise BadInput("the patch is of other data: its rows, cells or dtype do not fit")
        if not np.array_equal(_bits(flat[self.row, self.cell]), _bits(self.new)):
            raise BadInput("the data were changed after this patch was made, so it cannot be undone exactly")
        flat[self.row, self.cell] = self.old
        return before

    def write(self, file: IO[bytes]) -> None:
        np.savez_compressed(file, row=self.row, cell=self.cell, old=self.old, new=self.new, score=self.score)

    @classmethod
    def read(cls, path: Path) -> Patch:
        with np.load(path, allow_pickle=False) as archive:
            return cls(**{name: archive[name] for name in ("row", "cell", "old", "new", "score")})


def _bits(values: Array) -> Array:
    """Values as whole numbers, so that -0.0 differs from 0.0."""
    return np.ascontiguousarray(values).view(f"u{values.dtype.itemsize}")


def scores_csv(outlier_score: NDArray[np.float64], is_outlier: NDArray[np.bool_], changed: NDArray[np.int64]) -> bytes:
    text = io.StringIO(newline="")
    writer = csv.writer(text)
    writer.writerow(["row", "outlier_score", "is_outlier", "cells_changed"])
    writer.writerows(
        [row, repr(float(score)), int(flag), int(count)]
        for row, (score, flag, count) in enumerate(zip(outlier_score, is_outlier, changed, strict=True))
    )
    return text.getvalue().encode()


def write_array(file: IO[bytes], array: Array) -> None:
    np.save(file, array, allow_pickle=False)
