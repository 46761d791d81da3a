"""What goes out: every file whole or not at all; and the patch, from which the original comes back."""

from __future__ import annotations

import csv
import io
import os
import secrets
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from unblemish.errors import BadInput, shown

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


def check_output(path: Path, *, force: bool = False, folder: bool = False) -> None:
    """Refuse, before any work is done, a place that cannot be written to or holds something already."""
    parent = path.absolute().parent
    if not parent.is_dir():
        raise BadInput(f"{parent} is not a folder, so {shown(path.name)} cannot be written there; make it first")
    try:
        if path.exists():
            if not force:
                raise BadInput(f"{path} exists; choose another name, or give --force (force=True) to replace it")
            if path.is_dir() != folder:
                raise BadInput(f"{path} is a {'file' if folder else 'folder'}; choose another name")
        probe = parent / f".{path.name}.{secrets.token_hex(4)}.tmp"
        try:
            probe.write_bytes(bytes(4096))  # an empty file fits on a full disk
        finally:
            probe.unlink(missing_ok=True)
    except OSError as error:
        raise cannot_write(path, error) from error


def cannot_write(path: Path, error: OSError) -> BadInput:
    """The one sentence for a full disk, a read-only folder and the like."""
    reason = (error.strerror or str(error)).lower()
    place = str(path) if len(str(path)) < 200 else f"{str(path)[:100]}...{str(path)[-50:]}"
    return BadInput(f"{place} cannot be written ({reason}); choose another place, or free some space and try again")


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
        row, cell = np.nonzero((_bytes(old) != _bytes(new)).any(2))
        return cls(row, cell, old[row, cell], new[row, cell], score[row])

    def __len__(self) -> int:
        return len(self.row)

    def undo(self, after: Array) -> Array:
        """The data as they were before, from the data as they are now."""
        before = np.array(after, order="C")
        flat = before.reshape(len(before), int(np.prod(before.shape[1:])))
        fits = self.old.dtype == flat.dtype and (
            not len(self) or (self.row.max() < flat.shape[0] and self.cell.max() < flat.shape[1])
        )
        if not fits:
            raise BadInput(
                "the patch is of other data: its rows, cells or dtype do not fit; give the data it was made for"
            )
        if not np.array_equal(_bytes(flat[self.row, self.cell]), _bytes(self.new)):
            raise BadInput("the data were changed after the patch was made; restore them as they were written then")
        flat[self.row, self.cell] = self.old
        return before

    def write(self, file: IO[bytes]) -> None:
        np.savez_compressed(file, row=self.row, cell=self.cell, old=self.old, new=self.new, score=self.score)

    @classmethod
    def read(cls, path: Path) -> Patch:
        try:
            with path.open("rb") as file, np.load(file, allow_pickle=False) as archive:
                return cls(**{name: archive[name] for name in ("row", "cell", "old", "new", "score")})
        except (OSError, ValueError, TypeError, EOFError, KeyError, zipfile.BadZipFile, zlib.error) as error:
            raise BadInput(f"{path} is not a patch, or is damaged; give one that 'clean' wrote") from error


def _bytes(values: Array) -> NDArray[np.uint8]:
    """(..., bytes a value): so that -0.0 differs from 0.0."""
    return np.ascontiguousarray(values)[..., None].view(np.uint8)


def scores_csv(outlier_score: NDArray[np.float64], is_outlier: NDArray[np.bool_], changed: NDArray[np.int64]) -> bytes:
    text = io.StringIO(newline="")
    writer = csv.writer(text)
    writer.writerow(["row", "outlier_score", "is_outlier", "cells_changed"])
    writer.writerows(
        [row, repr(float(score)), int(flag), int(count)]
        for row, (score, flag, count) in enumerate(zip(outlier_score, is_outlier, changed, strict=True))
    )
    return text.getvalue().encode()


class _Stream:
    """A file that numpy must write to by Python: its own writing does not notice a disk that is full."""

    def __init__(self, file: IO[bytes]) -> None:
        self.write = file.write


def write_array(file: IO[bytes], array: Array) -> None:
    np.save(_Stream(file), array, allow_pickle=False)
