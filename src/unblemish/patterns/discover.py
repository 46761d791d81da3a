"""Find the errors that repeat: clusters of what suspect rows differ by, tested cell by cell, grown over all rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.cluster import KMeans

from unblemish.data.labels import INLIER, OUTLIER
from unblemish.patterns.maps import Maps, fit_maps, support, with_common_slope
from unblemish.patterns.pattern import NEARLY_ALL, Pattern
from unblemish.patterns.process import Process, squared_distances

Array = NDArray[np.float32]
Rows = NDArray[np.int64]  # indices into the sample

CLUSTERS = 40
DIMENSIONS = 30  # of the differences, for clustering
LANDMARKS = 400
WIDTH, NOISE = 1.0, 1e-2  # of the process that guesses the clean cells
MEMBERS = 5  # at least
TOLD = 9  # the least squared distance, in deviations, between a row with and without a pattern, to be told apart
PLACES = 12  # of the same mark that are tried at once
HALVINGS = 4  # of the cells, to choose rows by one half and judge them by the other


class Strictness(NamedTuple):
    """What makes a cell part of an exact pattern."""

    here: float  # the share of the group's rows that hold its value, of those whose clean estimate is far from it
    there: float  # the same of the pool's at most
    apart: float  # by which the first is larger
    rows: int  # that are looked at


GROWING = Strictness(0.85, 0.35, 0.4, 400)
REFINING = Strictness(0.98, 0.8, 0.15, 1200)


@dataclass(frozen=True, eq=False)
class Sample:
    """Rows to look for patterns in."""

    x: Array  # (n, D) standardised
    clean: Array  # (n, D) the model's estimate of the row without its error
    suspect: NDArray[np.bool_]  # (n,)
    y: NDArray[np.int64]  # (n,) labels
    rows: Rows  # (n,) where they are in the data
    tolerance: float  # values that differ by no more are the same
    shape: tuple[int, ...] = ()  # of a row


@dataclass(frozen=True, eq=False)
class _Candidate:
    """A hypothesis, and what speaks for it."""

    pattern: Pattern
    members: Rows
    pool_share: float  # how often rows of the pool go the pattern's way, under the same condition

    @property
    def weight(self) -> int:
        return len(self.members) * len(self.pattern.cells)


def discover(sample: Sample, seed: int, rounds: int = 3) -> tuple[list[Pattern], NDArray[np.bool_]]:
    """The patterns in these rows, the most frequent first; and (n,) which rows have one."""
    rng = np.random.default_rng([seed, 7])
    kept: list[_Candidate] = []
    clean, explained = sample.clean, np.zeros(len(sample.x), bool)
    for _ in range(rounds):
        pool = np.flatnonzero(~sample.suspect & ~explained)
        if len(pool) < 2 * MEMBERS:
            break
        tester = _Tester(sample, clean, pool, rng)
        new = []
        suspects = np.flatnonzero(sample.suspect & ~explained)
        seeds = np.flatnonzero((sample.y == OUTLIER) & ~explained)
        groups = _clusters(sample, clean, suspects, pool, rng)
        if len(seeds) >= MEMBERS:
            groups += [seeds, *_clusters(sample, clean, seeds, pool, rng)]
        for group in groups:
            if explained[group].mean() > 0.7:
                continue
            for grow in (tester.grown, tester.from_coincidences):
                candidate = grow(group)
                if candidate is None:
                    continue
                if candidate.pattern.held >= 0.6:
                    candidate = tester.spread(candidate)
                if tester.stands(candidate, explained):
                    new.append(candidate)
                    explained[candidate.members] = True
                    break
        for candidate in list(kept + new):
            for moved in tester.moved(candidate, seeds[~explained[seeds]]):
                if tester.stands(moved, explained):
                    new.append(moved)
                    explained[moved.members] = True
        kept = _distinct(kept + new, sample, tester)
        explained = np.zeros(len(sample.x), bool)
        for candidate in kept:
            explained[candidate.members] = True
        pool = np.flatnonzero(~sample.suspect & ~explained)
        clean = _reconstructed(sample, kept, pool, rng)
        tester = _Tester(sample, clean, pool, rng)
        kept = _distinct([tester.spread(tester.refined(c) or c) for c in kept], sample, tester)
        explained = np.zeros(len(sample.x), bool)
        for candidate in kept:
            explained[candidate.members] = True
        if not new:
            break
    return [candidate.pattern for candidate in sorted(kept, key=lambda c: -len(c.members))], explained


def _clusters(sample: Sample, clean: Array, suspects: Rows, pool: Rows, rng: np.random.Generator) -> list[Rows]:
    """Suspects that differ from their clean estimates in the same way, the largest cluster first."""
    if len(suspects) < MEMBERS:
        return []
    differences = sample.x[suspects] - clean[suspects]
    differences -= (sample.x[pool] - clean[pool]).mean(0)
    some = torch.from_numpy(differences[rng.permutation(len(suspects))[:3000]])
    _, vectors = (
        torch.linalg.eigh(some.T @ some) if some.shape[1] <= len(some) else (None, torch.linalg.svd(some)[2].T.flip(1))
    )
    low = differences @ vectors[:, -DIMENSIONS:].numpy()
    k = int(np.clip(len(suspects) // 12, 2, CLUSTERS))
    label = KMeans(k, n_init=1, random_state=int(rng.integers(2**31))).fit_predict(low)
    groups = [suspects[label == g] for g in range(k)]
    return sorted((g for g in groups if len(g) >= MEMBERS), key=len, reverse=True)


class _Tester:
    """Tests hypotheses against the sample, given estimates of its clean rows and a pool of rows that seem clean."""

    def __init__(self, sample: Sample, clean: Array, pool: Rows, rng: np.random.Generator) -> None:
        self.s, self.clean, self.rng = sample, clean, rng
        self.pool = rng.permutation(pool)[:2500]
        self.x = torch.from_numpy(sample.x)
        self.landmarks = self.pool[:LANDMARKS]
        self.squares = squared_distances(self.x, self.x[self.landmarks])  # (n, landmarks)
        self.natural = ((sample.x[self.pool] - clean[self.pool]) ** 2).mean(0)  # (D,)
        self.strange = (sample.x - clean) ** 2 / (self.natural + 1e-6)  # (n, D) how far each cell is from its estimate
        self.usual = float(np.quantile(self.strange[self.pool].mean(1), 0.95))

    def grown(self, group: Rows, rounds: int = 3, strictness: Strictness = GROWING) -> _Candidate | None:
        """From a group of rows to cells and maps, to all rows that show them, and again."""
        candidate: _Candidate | None = None
        estimate = None
        for _ in range(rounds):
            cells, maps, exact, share = self._cells(group, estimate, strictness)
            if not 0 < len(cells) <= 0.75 * self.s.x.shape[1]:
                return None
            estimate = self._estimate(cells)
            candidate = self._candidate(cells, maps, exact, share, estimate, group)
            group = candidate.members
            if len(group) < MEMBERS or candidate.pattern.held < 0.5 or share > 0.3:
                return None
        return candidate

    def from_coincidences(self, group: Rows) -> _Candidate | None:
        """The same from cells that hold one value in the group and others in the pool, whatever the model says."""
        dirty = self.s.x[group]
        value = np.median(dirty, 0)
        here = (np.abs(dirty - value) <= self.s.tolerance).mean(0)
        there = (np.abs(self.s.x[self.pool] - value) <= self.s.tolerance).mean(0)
        cells = np.flatnonzero((here >= 0.85) & (there <= 0.5))
        if not 0 < len(cells) <= 0.75 * dirty.shape[1]:
            return None
        first = self._candidate(
            cells, Maps(np.zeros(len(cells), np.float32), value[cells]), True, 1.0, self._estimate(cells), group
        )
        return self.grown(first.members) if len(first.members) >= MEMBERS else None

    def spread(self, c: _Candidate, rounds: int = 6) -> _Candidate:
        """An exact pattern of an image with the cells around it that belong to it as well.

        Their clean values are guessed from what lies beyond: of a mark that is known in part the other cells are no
        evidence of what is clean. Judged by the rows that are furthest from showing the pattern by nature.
        """
        if not c.pattern.exact or len(self.s.shape) < 2:
            return c
        for _ in range(rounds):
            p = c.pattern
            around = _around(p.cells, self.s.shape)
            _, guess, variance = self._estimate(around)
            rows = c.members[: max(60, len(c.members) // 3)]
            dirty, pool = self.s.x[np.ix_(rows, around)], self.s.x[np.ix_(self.pool, around)]
            maps = Maps(np.zeros(len(around), np.float32), np.median(dirty, 0))
            here = support(dirty, guess[rows], maps, variance, self.s.tolerance)
            there = support(pool, guess[self.pool], maps, variance, self.s.tolerance)
            belongs = (here.far >= MEMBERS + 0.02 * len(rows)) & (here.exact >= REFINING.here)
            belongs &= (there.exact <= REFINING.there) & (here.exact - there.exact >= REFINING.apart)
            if np.ptp(p.offset) <= self.s.tolerance:  # a mark of one value
                belongs &= np.abs(maps.offset - p.offset[0]) <= self.s.tolerance
            new = belongs & ~np.isin(around, p.cells)
            if not new.any():
                return c
            cells = np.concatenate([p.cells, around[new]])
            order = np.argsort(cells)
            offset = np.concatenate([p.offset, maps.offset[new]])[order]
            wider = Maps(np.zeros(len(cells), np.float32), offset)
            estimate = self._estimate(cells[order])
            larger = self._candidate(cells[order], wider, True, c.pool_share, estimate, c.members)
            if len(larger.members) < MEMBERS:
                return c
            c = larger
        return c

    def moved(self, c: _Candidate, unexplained: Rows) -> list[_Candidate]:
        """The same mark at other places of an image, where a trusted outlier without a pattern shows it."""
        p, shape = c.pattern, self.s.shape
        if not p.exact or len(shape) < 2 or not len(unexplained):
            return []
        row, column, *channel = np.unravel_index(p.cells, shape)
        found = []
        for down in range(-int(row.min()), shape[0] - int(row.max())):
            for right in range(-int(column.min()), shape[1] - int(column.max())):
                cells = np.ravel_multi_index((row + down, column + right, *channel), shape)
                equal = np.abs(self.s.x[np.ix_(unexplained, cells)] - p.offset) <= self.s.tolerance
                if (down or right) and (equal.mean(1) >= NEARLY_ALL).any():
                    shown = (np.abs(self.s.x[:, cells] - p.offset) <= self.s.tolerance).mean(1) >= NEARLY_ALL
                    found.append((int(shown[self.s.y == INLIER].sum()), -int(shown.sum()), cells))
        found.sort(key=lambda place: place[:2])
        maps = Maps(p.slope, p.offset)
        members = np.zeros(0, np.int64)
        return [
            self._candidate(cells, maps, True, c.pool_share, self._estimate(cells), members)
            for inliers, _, cells in found[:PLACES]
            if inliers == 0
        ]

    def without(self, c: _Candidate, left_out: NDArray[np.bool_]) -> _Candidate:
        """The same judged by other rows alone."""
        p = c.pattern
        return self._candidate(
            p.cells, Maps(p.slope, p.offset), p.exact, c.pool_share, self._estimate(p.cells), c.members, left_out
        )

    def refined(self, old: _Candidate) -> _Candidate | None:
        return self.grown(old.members, rounds=2, strictness=REFINING)

    def stands(self, c: _Candidate, explained: NDArray[np.bool_]) -> bool:
        """Whether it is an error that repeats, and not a way in which clean rows vary.

        A trusted outlier that nothing else explains confirms it. Without one it has to be beyond doubt.
        """
        y, members = self.s.y, c.members
        if len(c.pattern.cells) == 1:
            # one cell has no halves to judge each other; but with it undone most of its rows have to be as usual
            left = np.delete(self.strange[members], c.pattern.cells, axis=1).mean(1)
            if (left <= self.usual).mean() < 0.5:
                return False
        inliers = (y[members] == INLIER).sum() / max((y == INLIER).sum(), 1)
        outliers = (y[members[~explained[members]]] == OUTLIER).sum() / max((y == OUTLIER).sum(), 1)
        if c.pattern.exact and len(c.pattern.cells) >= MEMBERS and c.pattern.held >= 0.98 and outliers > 1.25 * inliers:
            return (
                c.pool_share <= 0.15
            )  # inliers may show it by nature; but nature does not hold its halves together so
        if outliers > 3 * inliers:
            return c.pattern.held >= (0.85 if c.pattern.exact else 0.93) and c.pool_share <= 0.15
        return (
            inliers == 0
            and c.pattern.held >= 0.95
            and c.pool_share <= 0.1
            and len(members) >= max(4 * MEMBERS, 0.01 * len(y))
        )

    def _cells(
        self, group: Rows, estimate: tuple[Rows, Array, Array] | None, strictness: Strictness
    ) -> tuple[Rows, Maps, bool, float]:
        some = self.rng.permutation(group)[: strictness.rows]
        dirty, clean = self.s.x[some], self.clean[some]
        pool_dirty, pool_clean = self.s.x[self.pool], self.clean[self.pool]
        if estimate is not None:
            cells, guess, _ = estimate
            clean, pool_clean = clean.copy(), pool_clean.copy()
            clean[:, cells], pool_clean[:, cells] = guess[some], guess[self.pool]
        maps = fit_maps(dirty, clean)
        natural = self.natural
        if estimate is not None:
            natural = natural.copy()
            natural[cells] = estimate[2]
        here = support(dirty, clean, maps, natural, self.s.tolerance)
        there = support(pool_dirty, pool_clean, maps, natural, self.s.tolerance)
        told = (here.rows >= MEMBERS) & (here.change >= 0.1 * natural)
        borne = told & (here.share >= 0.75) & (here.share - there.share >= 0.4)
        exact = (
            (here.far >= MEMBERS + 0.02 * len(some))
            & (maps.slope == 0)
            & (here.exact >= strictness.here)
            & (there.exact <= strictness.there)
            & (here.exact - there.exact >= strictness.apart)
        )
        beyond_doubt = exact & (here.exact >= 0.98) & (there.exact <= 0.1)
        is_exact = bool(exact.sum() >= max(0.4 * borne.sum(), 1) or beyond_doubt.any())
        chosen = np.flatnonzero(exact if is_exact else borne)
        share = float(there.share[chosen].mean()) if len(chosen) else 1.0
        return chosen, Maps(maps.slope[chosen], maps.offset[chosen]), is_exact, share

    def _estimate(self, cells: Rows) -> tuple[Rows, Array, Array]:
        """What the cells of every row should hold, given its other cells, and how uncertain that is."""
        of_cells = self.x[:, cells]
        squares = (self.squares - squared_distances(of_cells, of_cells[self.landmarks])).clamp_min_(0)
        process = Process(squares[self.landmarks], of_cells[self.landmarks], WIDTH, NOISE)
        return cells, process(squares).numpy(), (process.error + 1e-4).numpy()

    def _candidate(
        self,
        cells: Rows,
        maps: Maps,
        exact: bool,
        share: float,
        estimate: tuple[Rows, Array, Array],
        group: Rows,
        left_out: NDArray[np.bool_] | None = None,
    ) -> _Candidate:
        _, guess, variance = estimate
        x = self.s.x[:, cells]
        if not exact:
            maps = with_common_slope(x[group], guess[group], maps)
        change = maps.slope * guess + maps.offset - guess
        strength = change**2 / variance  # (n, k)
        along = (x - guess) * change / variance
        equal = (np.abs(x - maps.offset) <= self.s.tolerance).astype(np.float32)

        def shows(which: Array, least: float) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
            """Rows that these cells can tell, and of all rows those that show the pattern in them. (k, h) -> (n, h)."""
            enough = strength @ which
            if left_out is not None:
                enough[left_out] = 0
            if exact:
                return enough > least, equal @ which >= NEARLY_ALL * which.sum(0)
            size = (along @ which) / (enough + 1e-9)  # 0 without the pattern, 1 with it
            return enough > least, np.abs(size - 1) < 0.5

        told, shown = shows(np.ones((len(cells), 1), np.float32), TOLD)
        members = np.flatnonzero(told & shown)
        half = self.rng.permuted(np.arange(len(cells)) % 2 * np.ones((HALVINGS, 1)), axis=1).T.astype(np.float32)
        (told_a, shown_a), (told_b, shown_b) = (
            shows(np.hstack([half, 1 - half]), TOLD),
            shows(np.hstack([1 - half, half]), TOLD),
        )
        chosen = told_a & shown_a & told_b
        held = float(shown_b[chosen].mean()) if chosen.sum() >= MEMBERS * HALVINGS else float(len(cells) == 1)
        members = members[np.argsort(-strength[members].sum(1), kind="stable")]  # the clearest first
        y = self.s.y[members]
        pattern = Pattern(
            cells=cells,
            slope=maps.slope.astype(np.float32),
            offset=maps.offset.astype(np.float32),
            exact=exact,
            rows=len(members),
            trusted=int((y == OUTLIER).sum()),
            held=held,
            examples=self.s.rows[members[:12]],
        )
        return _Candidate(pattern, members, share)


def _distinct(candidates: list[_Candidate], sample: Sample, tester: _Tester) -> list[_Candidate]:
    """Each pattern once: what touches the cells of one that explains more has to stand by the rows that this leaves."""
    kept: list[_Candidate] = []
    explained = np.zeros(len(sample.x), bool)
    for c in sorted(candidates, key=lambda c: -c.weight):
        taken = np.zeros(len(sample.x), bool)
        for k in kept:
            if _agrees(c.pattern, k.pattern):
                taken[k.members] = True
        if taken.any():
            rest = tester.without(c, taken)
            if len(rest.members) < max(MEMBERS, 0.1 * len(c.members)) or not tester.stands(rest, explained):
                continue
        elif not tester.stands(c, explained):
            continue
        kept.append(c)
        explained[c.members] = True
    # two patterns that often meet in one row are found as a third: all of its cells are theirs
    alone = []
    for c in kept:
        covered = np.zeros(sample.x.shape[1], bool)
        for other in kept:
            if other is not c and len(other.members) > len(c.members) and _agrees(c.pattern, other.pattern):
                covered[other.pattern.cells] = True
        if covered[c.pattern.cells].mean() < 0.9:
            alone.append(c)
    return alone


def _around(cells: Rows, shape: tuple[int, ...], reach: int = 2) -> Rows:
    """The cells of an image and those that are no further from them."""
    near = np.zeros(shape, bool)
    near.reshape(-1)[cells] = True
    for axis in (0, 1):
        for _ in range(reach):
            shifted = [np.roll(near, step, axis) for step in (1, -1)]
            for step, edge in zip(shifted, (0, -1), strict=True):
                np.moveaxis(step, axis, 0)[edge] = False  # what comes round from the other side
            near = near | shifted[0] | shifted[1]
    return np.flatnonzero(near)


def _agrees(a: Pattern, b: Pattern) -> bool:
    """Whether they do the same to the cells that both touch."""
    _, in_a, in_b = np.intersect1d(a.cells, b.cells, return_indices=True)
    if len(in_a) == 0:
        return False
    apart = np.abs(a.slope[in_a] - b.slope[in_b]) + np.abs(a.offset[in_a] - b.offset[in_b])
    return bool((apart < 0.25).mean() > 0.7)


def _reconstructed(sample: Sample, kept: list[_Candidate], pool: Rows, rng: np.random.Generator) -> Array:
    """Rows without the patterns found so far, seen through what most of the pool has in common."""
    x = sample.x.copy()
    known = torch.from_numpy(sample.x[rng.permutation(pool)[:LANDMARKS]])
    for c in kept:
        p, rows = c.pattern, c.members
        outside = np.ones(x.shape[1], bool)
        outside[p.cells] = False
        process = Process(squared_distances(known[:, outside], known[:, outside]), known[:, p.cells], WIDTH, NOISE)
        guess = process(squared_distances(torch.from_numpy(x[rows][:, outside]), known[:, outside])).numpy()
        invertible = np.abs(p.slope) > 0.2
        undone = np.where(invertible, (x[np.ix_(rows, p.cells)] - p.offset) / np.where(invertible, p.slope, 1), guess)
        x[np.ix_(rows, p.cells)] = undone
    some = x[rng.permutation(pool)[:3000]]
    mean = some.mean(0)
    rank = max(1, min(64, x.shape[1] // 4, len(some) // 10))
    centred = torch.from_numpy(some - mean)
    if centred.shape[1] <= 2000:
        vectors = torch.linalg.eigh(centred.T @ centred)[1][:, -rank:]
    else:
        vectors = torch.svd_lowrank(centred, rank)[2]
    basis = vectors.numpy()
    return ((x - mean) @ basis @ basis.T + mean).astype(np.float32)
