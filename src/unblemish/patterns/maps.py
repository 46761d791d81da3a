"""What an error does to each cell: robust affine maps, and which cells they speak for."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float32]


class Maps(NamedTuple):
    """dirty = slope * clean + offset, for every cell."""

    slope: Array
    offset: Array


def fit_maps(dirty: Array, clean: Array) -> Maps:
    """The simplest map that serves each cell: a constant, else an offset, else both. (B, D) twice -> (D,) twice.

    `clean` is an estimate. Medians and bounded weights: up to a third of the rows may not have the error at all.
    """
    value, shift = np.median(dirty, 0), np.median(dirty - clean, 0)
    slope, offset = _robust_line(dirty, clean)
    constant, moved, line = (
        np.abs(left).mean(0) for left in (dirty - value, dirty - clean - shift, dirty - slope * clean - offset)
    )
    is_constant = constant <= 1.15 * np.minimum(moved, line)
    is_shift = ~is_constant & (moved <= 1.1 * line)
    slope = np.where(is_constant, 0, np.where(is_shift, 1, slope))
    return Maps(slope, np.where(is_constant, value, np.where(is_shift, shift, offset)))


def _robust_line(dirty: Array, clean: Array, rounds: int = 5) -> tuple[Array, Array]:
    """Least squares with Cauchy's weights."""
    weight = np.ones_like(dirty)
    slope = offset = dirty[0]
    for _ in range(rounds):
        total = weight.sum(0)
        mean_clean, mean_dirty = (weight * clean).sum(0) / total, (weight * dirty).sum(0) / total
        centred = clean - mean_clean
        spread = (weight * centred**2).sum(0) / total
        slope = (weight * centred * (dirty - mean_dirty)).sum(0) / total / (spread + 1e-4)
        offset = mean_dirty - slope * mean_clean
        left = np.abs(dirty - slope * clean - offset)
        weight = 1 / (1 + (left / ((weight * left).sum(0) / total + 1e-3)) ** 2)
    return slope, offset


def with_common_slope(dirty: Array, clean: Array, maps: Maps) -> Maps:
    """One slope for all cells where that serves as well: it is known far better than a slope for each."""
    centred_clean, centred_dirty = clean - np.median(clean, 0), dirty - np.median(dirty, 0)
    weight = np.ones_like(dirty)
    slope = 0.0
    for _ in range(5):
        slope = float((weight * centred_clean * centred_dirty).sum() / ((weight * centred_clean**2).sum() + 1e-9))
        left = np.abs(centred_dirty - slope * centred_clean)
        weight = 1 / (1 + (left / (left.mean() + 1e-3)) ** 2)
    slope = float(np.round(slope)) if abs(slope - round(slope)) < 0.07 else slope
    offset = np.median(dirty - slope * clean, 0)
    alone = np.abs(dirty - maps.slope * clean - maps.offset).mean()
    common = np.abs(dirty - slope * clean - offset).mean()
    return Maps(np.full_like(maps.slope, slope), offset) if common <= 1.03 * alone else maps


class Support(NamedTuple):
    """How far rows bear out the maps, cell by cell.

    Each row counts by the square of what its cell should change. Asked this way a background that agrees with
    everything says nothing: black on black should change nothing.
    """

    share: Array  # of rows nearer to what the map says than to the clean estimate
    rows: Array  # how many rows' worth of evidence that is
    change: Array  # mean square of what should change
    exact: Array  # of the rows whose clean estimate is far from the offset, the share that hold it to the last digit
    far: Array  # how many such rows' worth there is


def support(dirty: Array, clean: Array, maps: Maps, natural: Array, tolerance: float) -> Support:
    """(B, D) rows, (B, D) estimates of their clean cells, (D,) their mean square error -> (D,) each."""
    expected = maps.slope * clean + maps.offset
    weight = (expected - clean) ** 2
    total = weight.sum(0) + 1e-12
    nearer = np.abs(dirty - expected) < np.abs(dirty - clean)
    distance = (maps.offset - clean) ** 2
    distance *= distance > 4 * natural
    all_far = distance.sum(0) + 1e-12
    return Support(
        share=(weight * nearer).sum(0) / total,
        rows=_worth(weight),
        change=total / len(dirty),
        exact=(distance * (np.abs(dirty - maps.offset) <= tolerance)).sum(0) / all_far,
        far=_worth(distance),
    )


def _worth(weight: Array) -> Array:
    """How many rows of equal weight would vary as much."""
    return np.asarray(weight.sum(0) ** 2 / ((weight**2).sum(0) + 1e-12))
