"""What comes in: npy and npz files -> arrays of rows, memory-mapped where the format allows it."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unblemish.errors import BadInput


def read_array(path: Path, name: str | None = None) -> NDArray[Any]:
    """The array in an npy file, or the one called `name` (or the only one) in an npz file."""
    if not path.exists():
        raise BadInput(f"{path} does not exist; give a .npy or .npz file")
    if path.is_dir() or path.suffix not in (".npy", ".npz"):
        raise BadInput(f"{path} is not a .npy or .npz file; save the data with numpy.save('X.npy', X)")
    try:
        if path.suffix == ".npy":
            # mapped, never written to: rows are read when they are needed
            return np.load(path, mmap_mode="r", allow_pickle=False)
        with np.load(path, allow_pickle=False) as archive:
            array: NDArray[Any] = archive[_member(path, archive.files, name)]
            return array
    except BadInput:
        raise
    except PermissionError as error:
        raise BadInput(f"{path} may not be read; check its permissions") from error
    except (ValueError, EOFError, OSError, zipfile.BadZipFile, KeyError) as error:
        if "llow_pickle" in str(error) or "Python objects" in str(error):
            raise BadInput(f"{path} holds Python objects; save it again as an array of numbers") from error
        raise BadInput(f"{path} is damaged, cut short, or not what its name says; save it again") from error


def _member(path: Path, names: list[str], name: str | None) -> str:
    if name is not None:
        if name not in names:
            raise BadInput(f"{path} has no array {name!r}; it has {', '.join(names) or 'none'}")
        return name
    if len(names) != 1:
        raise BadInput(f"{path} has {len(names)} arrays ({', '.join(names)}); choose one with --array NAME")
    return names[0]
