"""What comes in: npy and npz files -> arrays of rows, memory-mapped where the format allows it."""

from __future__ import annotations

import zipfile
import zlib
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from unblemish.errors import BadInput, listed, shown

NPY = b"\x93NUMPY"


def read_array(path: Path, name: str | None = None) -> NDArray[Any]:
    """The array in an npy file, or the one called `name` (or the only one) in an npz file."""
    if not path.exists():
        raise BadInput(f"{path} does not exist; give a .npy or .npz file")
    if path.is_dir() or path.suffix not in (".npy", ".npz"):
        raise BadInput(f"{path} is not a .npy or .npz file; save the data with numpy.save('X.npy', X)")
    try:
        with path.open("rb") as file:
            is_npy = file.read(len(NPY)) == NPY
            if path.suffix == ".npy" and not is_npy:
                raise ValueError("not what its name says")
            if path.suffix == ".npz":
                return _from_archive(path, file, name)
        # mapped, never written to: rows are read when they are needed
        array: NDArray[Any] = np.load(path, mmap_mode="r", allow_pickle=False)
    except BadInput:
        raise
    except PermissionError as error:
        raise BadInput(f"{path} may not be read; check its permissions") from error
    except (ValueError, EOFError, OSError, zipfile.BadZipFile, zlib.error, KeyError, NotImplementedError) as error:
        if "Object arrays" in str(error) or "Python objects" in str(error):
            raise BadInput(f"{path} holds Python objects; save it again as an array of numbers") from error
        raise BadInput(f"{path} is damaged, cut short, or not what its name says; save it again") from error
    if name is not None:
        raise BadInput(f"{path} holds one array without a name; give the command without --array")
    return array


def _from_archive(path: Path, file: IO[bytes], name: str | None) -> NDArray[Any]:
    file.seek(0)
    archive = np.load(file, allow_pickle=False)
    if not isinstance(archive, np.lib.npyio.NpzFile):
        raise ValueError("not what its name says")
    with archive:
        array: NDArray[Any] = archive[_member(path, archive.files, name)]
        return array


def _member(path: Path, names: list[str], name: str | None) -> str:
    if name is not None:
        if name not in names:
            raise BadInput(f"{path} has no array {shown(name)}; it has {listed(names)}")
        return name
    if len(names) != 1:
        raise BadInput(f"{path} has {len(names)} arrays ({listed(names)}); choose one with --array NAME")
    return names[0]
