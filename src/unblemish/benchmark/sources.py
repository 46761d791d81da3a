"""Where the raw datasets are: a folder given, this user's cache, or Debian's package."""

from __future__ import annotations

import gzip
import hashlib
import os
import urllib.request
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unblemish.data.write import cannot_write, write_file
from unblemish.errors import BadInput

Array = NDArray[Any]

FOLDER = "UNBLEMISH_DATA"  # the environment variable that names the folder given
DEBIAN_FASHION = Path("/usr/share/datasets/fashion-mnist")
FASHION_URL = "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com"
LONGEST_WAIT = 60  # seconds without an answer

FREY_SHAPE = (1965, 28, 20)
FREY_SHA256 = "2438ba4f0d2a6bd8bac43de756141eaa33c8d248dd613d464bdb1210d9b7af78"  # of the images' bytes
# of the files once they are unpacked: how they were packed does not matter
FASHION_SHA256 = {
    "train-images-idx3-ubyte": "c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888",
    "train-labels-idx1-ubyte": "bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9",
    "t10k-images-idx3-ubyte": "5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b",
    "t10k-labels-idx1-ubyte": "0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34",
}
FREY_HELP = (
    f"put frey_faces.npz (an array 'images', 1965x28x20) or the original frey_rawface.mat into a folder, and name that "
    f"folder with --data or {FOLDER}"
)
FASHION_HELP = (
    "run 'apt-get install dataset-fashion-mnist', or 'unblemish bench data --download', or name a folder with its four "
    f"IDX files with --data or {FOLDER}"
)


@dataclass(frozen=True)
class Source:
    """What `bench data` tells of a dataset."""

    dataset: str
    place: str  # where it was found
    size: str
    state: str  # checked, changed or missing
    sha256: str = ""  # of all its bytes, unpacked
    advice: str = ""


def cache() -> Path:
    """Where downloads are kept."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "unblemish"


def _folders(inner: str) -> list[Path]:
    given = os.environ.get(FOLDER)
    return [folder for base in ([Path(given)] if given else []) + [cache()] for folder in (base, base / inner)]


def find_frey() -> Path | None:
    places = (folder / name for folder in _folders("frey") for name in ("frey_faces.npz", "frey_rawface.mat"))
    return next((place for place in places if place.is_file()), None)


def find_fashion() -> Path | None:
    """The folder that holds all four files."""
    folders = [*_folders("fashion-mnist"), DEBIAN_FASHION]
    return next((f for f in folders if all(_packed_or_not(f, name) for name in FASHION_SHA256)), None)


def _packed_or_not(folder: Path, name: str) -> Path | None:
    return next((path for path in (folder / f"{name}.gz", folder / name) if path.is_file()), None)


def frey_images() -> Array:
    """(1965, 28, 20) bytes."""
    place = find_frey()
    if place is None:
        raise BadInput(f"Frey-Faces is not there: {FREY_HELP}")
    try:
        if place.suffix == ".mat":
            from scipy.io import loadmat

            images = loadmat(place)["ff"].T.reshape(FREY_SHAPE)  # a column an image
        else:
            with place.open("rb") as file, np.load(file, allow_pickle=False) as archive:
                images = archive["images"]
    except Exception as error:  # readers of files that are not what they say fail in ways of their own
        raise BadInput(f"{place} is damaged, or not what its name says; {FREY_HELP}") from error
    if images.shape != FREY_SHAPE or images.dtype != np.uint8:
        raise BadInput(f"{place} holds {images.shape} of {images.dtype}, not {FREY_SHAPE} of uint8; {FREY_HELP}")
    return np.ascontiguousarray(images)


def fashion_files() -> tuple[Array, Array, Array, Array]:
    """Training images, training labels, test images, test labels."""
    folder = find_fashion()
    if folder is None:
        raise BadInput(f"Fashion-MNIST is not there: {FASHION_HELP}")
    images, labels, test_images, test_labels = (_idx(folder, name) for name in FASHION_SHA256)
    return images, labels, test_images, test_labels


def _idx(folder: Path, name: str) -> Array:
    """The array in an IDX file: a magic number whose last byte counts the dimensions, their sizes, the bytes."""
    path = _packed_or_not(folder, name)
    assert path is not None
    content = _content(path)
    try:
        shape = np.frombuffer(content, ">i4", count=content[3], offset=4)
        return np.frombuffer(content, np.uint8, offset=4 + 4 * content[3]).reshape(shape)
    except (ValueError, IndexError) as error:
        raise BadInput(f"{path} is damaged, or not an IDX file; {FASHION_HELP}") from error


def _content(path: Path) -> bytes:
    try:
        raw = path.read_bytes()
        return gzip.decompress(raw) if path.suffix == ".gz" else raw
    except (OSError, EOFError, zlib.error) as error:
        raise BadInput(f"{path} cannot be read, or is damaged; {FASHION_HELP}") from error


def sources() -> Iterator[Source]:
    """Each dataset of the paper: where it was found, how large it is, and whether it is what it should be."""
    yield Source("Synthetic-Shapes", "generated", "5,000 x 28 x 28", "checked")
    place = find_frey()
    if place is None:
        yield Source("Frey-Faces", "not found", "", "missing", advice=FREY_HELP)
    else:
        found = _sha256(frey_images().tobytes())
        state = "checked" if found == FREY_SHA256 else "changed"
        yield Source("Frey-Faces", str(place), "1,965 x 28 x 20", state, found)
    folder = find_fashion()
    if folder is None:
        yield Source("Fashion-MNIST", "not found", "", "missing", advice=FASHION_HELP)
    else:
        paths = {name: _packed_or_not(folder, name) for name in FASHION_SHA256}
        contents = {name: _content(path) for name, path in paths.items() if path is not None}
        state = "checked" if {n: _sha256(c) for n, c in contents.items()} == FASHION_SHA256 else "changed"
        yield Source("Fashion-MNIST", str(folder), "70,000 x 28 x 28", state, _sha256(b"".join(contents.values())))


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def download_fashion() -> Path:
    """Fetch the four files into the cache, only on request; what does not have the known checksum is not kept."""
    folder = cache() / "fashion-mnist"
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise cannot_write(folder, error) from error
    for name, wanted in FASHION_SHA256.items():
        url = f"{FASHION_URL}/{name}.gz"
        try:
            with urllib.request.urlopen(url, timeout=LONGEST_WAIT) as answer:
                packed = answer.read()
            content = gzip.decompress(packed)
        except (OSError, EOFError, zlib.error) as error:
            raise BadInput(f"{url} could not be fetched ({str(error)[:80]}); {FASHION_HELP}") from error
        if _sha256(content) != wanted:
            raise BadInput(f"{url} is not the file that it should be: its SHA-256 differs; {FASHION_HELP}")
        write_file(folder / f"{name}.gz", packed)
    return folder
