"""From a fitted model and its data to the catalogue of what is wrong with them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import betaincinv, expit
from torch import Tensor

from unblemish.data.labels import INLIER, OUTLIER, UNLABELLED
from unblemish.data.rows import Rows
from unblemish.patterns.catalogue import CERTAIN, Catalogue, learn
from unblemish.patterns.discover import Sample, discover

SUSPECTS, POOL = 3500, 2500  # rows that patterns are looked for in, beside the trusted ones
LEARNT_FROM = 12_000  # rows that the catalogue is learnt from
CELLS = 50_000_000  # of either at most: rows of many cells are fewer
UNSURE = 0.49  # a score for somebody to look at, but not to repair by
EVEN = 0.8  # of the trusted outliers: where patterns explain fewer, no row that the model suspects passes for clean


def find_patterns(
    x: Rows, y: NDArray[np.int64], logit: NDArray[np.float64], repair: Callable[[Tensor], Tensor], seed: int
) -> Catalogue | None:
    """What errors repeat in these rows; None where none does.

    logit: (N,) the model's, for being an inlier; repair: (B, D) rows -> its estimates without their errors.
    """
    rng = np.random.default_rng([seed, 6])
    schema = x.schema
    suspect = logit < 0
    some = min(1.0, CELLS / schema.cells / (SUSPECTS + POOL))
    chosen = np.flatnonzero(y != UNLABELLED)
    for which, most in ((suspect, SUSPECTS), (~suspect, POOL)):
        rows = np.flatnonzero(which & (y == UNLABELLED))
        chosen = np.concatenate([chosen, rng.permutation(rows)[: max(int(most * some), 50)]])
    cells, clean = _of(x, chosen), _of(x, chosen, repair)
    tolerance = _tolerance(x)
    sample = Sample(
        x=cells,
        clean=clean,
        suspect=np.where(y[chosen] == UNLABELLED, suspect[chosen], y[chosen] == OUTLIER),
        y=y[chosen],
        rows=chosen,
        tolerance=tolerance,
        shape=schema.shape,
    )
    patterns, explained = discover(sample, seed)
    if not patterns:
        return None
    drawn = rng.permutation(len(x))[: max(int(min(LEARNT_FROM, CELLS / schema.cells)), 100)]
    outliers = y[chosen] == OUTLIER
    doubtful = y[drawn] == OUTLIER
    if explained[outliers].mean() < EVEN:
        doubtful |= suspect[drawn]
    bounds = schema.standardised(np.array([schema.low, schema.high]) if len(schema.low) == schema.cells else _both(x))
    low, high = bounds.astype(np.float32)
    if len(schema.low) == 1:
        low, high = low[:1], high[:1]
    of_drawn = _of(x, drawn)
    catalogue = learn(patterns, of_drawn, doubtful, cells[y[chosen] == INLIER], tolerance, (low, high), seed)
    if catalogue is None:
        return None
    any_of_them = 1 - np.prod(1 - catalogue.probability(of_drawn), axis=1)
    trusted = 1 - np.prod(1 - catalogue.probability(cells[outliers]), axis=1)
    catalogue.unexplained = _share_of_errors_among_unexplained(
        any_of_them, suspect[drawn], unexplained=int((trusted < CERTAIN).sum()), outliers=int(outliers.sum())
    )
    score = np.maximum(any_of_them, catalogue.unexplained * expit(-logit[drawn]))
    catalogue.touched = float((1 - score)[score >= CERTAIN].sum() / max((1 - score).sum(), 1e-9))
    clean_rows = ~suspect[chosen] & ~outliers & (catalogue.probability(cells) < CERTAIN).all(1)
    catalogue.natural = np.sqrt(((cells - clean)[clean_rows] ** 2).mean(0) + 1e-6)
    shown = catalogue.probability(cells) >= CERTAIN
    catalogue.patterns = tuple(
        replace(
            p,
            trusted=int(shown[outliers, k].sum()),
            share=float((catalogue.probability(of_drawn)[:, k] >= CERTAIN).mean()),
        )
        for k, p in enumerate(catalogue.patterns)
    )
    return catalogue


def _share_of_errors_among_unexplained(
    explained: NDArray[np.float64], suspect: NDArray[np.bool_], *, unexplained: int, outliers: int
) -> float:
    """Of the rows that the model suspects and no pattern explains, how many have an error?

    The trusted outliers tell what share of all errors no pattern explains, and so how many such rows there should be.
    """
    share = float(betaincinv(unexplained + 0.5, outliers - unexplained + 0.5, 0.5))  # as likely more as less
    expected = explained.sum() * share / (1 - share)
    most = 1.0 if unexplained else UNSURE  # nobody has labelled such an error
    return float(min(most, expected / max((suspect & (explained < CERTAIN)).sum(), 1)))


def _of(
    x: Rows, chosen: NDArray[np.int64], function: Callable[[Tensor], Tensor] = lambda rows: rows
) -> NDArray[np.float32]:
    """(n, D) what a function makes of some rows."""
    parts = torch.from_numpy(chosen).split(1024)
    with torch.no_grad():
        return np.concatenate([function(x[part.to(x.device)]).cpu().numpy() for part in parts])


def _tolerance(x: Rows) -> float:
    """Standardised values that differ by no more are the same value."""
    whole = x.schema.dtype.startswith(("int", "uint", "bool"))
    return 0.25 / max(x.schema.scale) if whole else 1e-4


def _both(x: Rows) -> NDArray[np.float64]:
    shape = (1, *x.schema.shape)
    return np.concatenate([np.full(shape, x.schema.low[0]), np.full(shape, x.schema.high[0])])
