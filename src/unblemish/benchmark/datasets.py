"""The paper's datasets, split and corrupted as in its section 5."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unblemish.benchmark.corruption import Corrupted, coloured, corrupt, lines, squares
from unblemish.benchmark.sources import fashion_files, frey_images

SIZE = 28
SHAPES = ("rectangle", "triangle", "disc", "ellipse")


@dataclass(frozen=True)
class Splits:
    train: Corrupted
    validation: Corrupted
    test: Corrupted


def split(data: Corrupted, seed: int) -> Splits:
    """80 %, 10 %, 10 % at random."""
    order = np.random.default_rng([seed, 3]).permutation(len(data))
    first, second = round(0.8 * len(data)), round(0.9 * len(data))
    return Splits(data[order[:first]], data[order[first:second]], data[order[second:]])


def synthetic_shapes(n: int = 5000, noise: float = 0.35, seed: int = 0) -> Corrupted:
    """White shapes on black, each wholly inside the image at a place drawn uniformly, and four white lines."""
    rng = np.random.default_rng([seed, 0])
    kinds = rng.integers(len(SHAPES), size=n)
    images = np.zeros((n, SIZE, SIZE), np.uint8)
    stamps = [_stamp(name) for name in SHAPES]
    for image, kind in zip(images, kinds, strict=True):
        stamp = stamps[kind]
        top, left = (rng.integers(SIZE - size + 1) for size in stamp.shape)
        image[top : top + stamp.shape[0], left : left + stamp.shape[1]] = stamp
    return corrupt(images, lines(), noise, seed, kinds)


def frey_faces(noise: float = 0.35, seed: int = 0) -> Corrupted:
    """1965 pictures of one face, and four squares. Float, because the fill values are 0 and 256."""
    return corrupt(frey_images().astype(np.float32), squares(28, 20, (0.0, 256.0), seed), noise, seed)


def fashion_mnist(noise: float = 0.35, seed: int = 0) -> Splits:
    """70000 pictures of clothes, four lines and four squares, black or white; split as published."""
    images, kinds, test_images, test_kinds = fashion_files()
    errors = coloured(lines(), (0.0, 255.0), seed) + squares(SIZE, SIZE, (0.0, 255.0), seed)
    all_kinds = np.concatenate([kinds, test_kinds]).astype(np.int64)
    data = corrupt(np.concatenate([images, test_images]), errors, noise, seed, all_kinds)
    order = np.random.default_rng([seed, 3]).permutation(60_000)
    return Splits(data[order[:54_000]], data[order[54_000:]], data[60_000:])


def load(dataset: str, seed: int, noise: float = 0.35) -> Splits:
    """'shapes', 'frey' or 'fashion', from where `bench data` finds it."""
    match dataset:
        case "shapes":
            return split(synthetic_shapes(noise=noise, seed=seed), seed)
        case "frey":
            return split(frey_faces(noise, seed), seed)
        case _:
            return fashion_mnist(noise, seed)


def _stamp(name: str) -> NDArray[np.uint8]:
    """The smallest image that holds the shape."""
    row, column = np.indices((SIZE, SIZE)) - SIZE // 2
    inside: NDArray[Any]
    if name == "rectangle":
        inside = (0 <= row) & (row < 12) & (0 <= column) & (column < 6)
    elif name == "disc":
        inside = row**2 + column**2 <= 8**2
    elif name == "ellipse":
        along, across = (column - row) / np.sqrt(2), (column + row) / np.sqrt(2)  # turned by 135 degrees
        inside = (along / 10) ** 2 + (across / 4) ** 2 <= 1
    else:
        row, column = np.indices((SIZE, SIZE))
        inside = _in_triangle(column, row, ((0, 3), (17, 0), (6, 15)))
    rows, columns = np.flatnonzero(inside.any(1)), np.flatnonzero(inside.any(0))
    return inside[rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1].astype(np.uint8)


def _in_triangle(x: Any, y: Any, corners: tuple[tuple[int, int], ...]) -> NDArray[np.bool_]:
    sides = []
    for (x0, y0), (x1, y1) in zip(corners, corners[1:] + corners[:1], strict=True):
        sides.append((x1 - x0) * (y - y0) - (y1 - y0) * (x - x0))
    return np.all([side >= 0 for side in sides], 0) | np.all([side <= 0 for side in sides], 0)
