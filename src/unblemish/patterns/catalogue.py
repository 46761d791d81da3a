"""The patterns of a dataset in use: which rows have them, and what their cells held before."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from unblemish.patterns.pattern import Pattern
from unblemish.patterns.presence import Likeness, Natural, Rising
from unblemish.patterns.process import Process, best_setting, squared_distances

Array = NDArray[np.float32]
Scores = NDArray[np.float64]
Flags = NDArray[np.bool_]

SAMPLE = 12_000  # rows that the catalogue is learnt from, at most
LANDMARKS = 2500  # clean rows that repairs are drawn from
JUDGES = 2500  # rows that say how natural it is to show an exact pattern
SETTING = 500  # rows that the process's width and noise are chosen on
PUT_ON = 3000  # rows that inexact patterns are put on, to learn how they look
LEAST = 20  # rows that anything is learnt from
CHECKED = 300  # rows left out, to check the repair's deviations on
CERTAIN = 0.5  # a pattern this probable is repaired
NINE_IN_TEN = 1.645  # deviations to either side of a normal distribution's mean


class Repairs(NamedTuple):
    """What the patterns undo in some rows: (B, D) each, standardised."""

    values: Array
    mask: Flags  # cells that a pattern changed
    deviation: Array  # of the repaired values, 0 elsewhere


class Settings(NamedTuple):
    """Of the process that guesses clean cells."""

    width: float
    noise: float


NATURAL = Settings(0.5, 0.5)  # of the one that guesses whether a row shows a pattern by nature


@dataclass(frozen=True, eq=False)
class Known:
    """What was learnt of one pattern beside what it does."""

    presence: Natural | Likeness
    spread: float  # the factor by which the process's deviations were too small
    noise: Array  # (k,) deviation of the dirty cells around the map; 0 for an exact one


class Catalogue:
    """Patterns, and the rows they are judged by: `judges` as they are, `landmarks` without errors."""

    def __init__(
        self,
        patterns: Sequence[Pattern],
        known: Sequence[Known],
        judges: Array,
        landmarks: Array,
        settings: Settings,
        tolerance: float,
        span: tuple[Array, Array],
        errors_of_judges: Flags | None = None,
    ) -> None:
        """span: the lowest and highest value of each cell (or one for all), standardised.

        errors_of_judges: (m, K) which judges have which error, once that is known.
        """
        self.patterns, self.known, self.settings, self.tolerance, self.span = (
            tuple(patterns), tuple(known), settings, tolerance, span,
        )  # fmt: skip
        self.judges, self.landmarks = torch.from_numpy(judges), torch.from_numpy(landmarks)
        self.errors_of_judges = errors_of_judges
        self.unexplained = 1.0  # of the rows that the model suspects and no pattern explains, the share with an error
        self.touched = 0.0  # the share of clean rows that are expected to be changed
        self.natural: Array = np.ones(1, np.float32)  # how far clean cells are from the model's estimate of them
        self._between: Tensor | None = None
        self._of_cells: dict[tuple[int, ...], tuple[NDArray[np.int64], Process]] = {}
        self._naturals: dict[int, tuple[Tensor, Process]] = {}

    def without(self, number: int) -> Catalogue | None:
        """The same without one of its patterns."""
        if len(self.patterns) == 1:
            return None
        kept = [k for k in range(len(self.patterns)) if k != number]
        errors = None if self.errors_of_judges is None else self.errors_of_judges[:, kept]
        other = Catalogue(
            [self.patterns[k] for k in kept], [self.known[k] for k in kept],
            self.judges.numpy(), self.landmarks.numpy(), self.settings, self.tolerance, self.span, errors,
        )  # fmt: skip
        other.unexplained, other.natural, other.touched = self.unexplained, self.natural, self.touched
        return other

    def examples(self, k: int, count: int) -> tuple[Array, Array]:
        """Some of the judges that have this pattern and no other, before and after: (count or fewer, D) each."""
        probability = self.probability(self.judges.numpy())
        alone = (probability[:, k] >= CERTAIN) & (np.delete(probability, k, 1) < CERTAIN).all(1)
        before = self.judges.numpy()[np.flatnonzero(alone)[:count]]
        has = np.zeros((len(before), len(self.patterns)), bool)
        has[:, k] = True
        return before, self.undo(before, has).values

    # which rows have which pattern

    def probability(self, x: Array) -> Scores:
        """(B, K): how probable it is that a pattern changed a row."""
        out = np.zeros((len(x), len(self.patterns)))
        for k, pattern in enumerate(self.patterns):
            presence = self.known[k].presence
            if isinstance(presence, Natural):
                rows = np.flatnonzero(pattern.shown(x, self.tolerance))
                out[rows, k] = 1.0 if presence.rate is None else presence(self._naturalness(k, x[rows]))
            else:
                out[:, k] = presence(self._nearness(k, x))
        return out

    def _naturalness(self, k: int, x: Array) -> Scores:
        """(B,): a guess from the other cells at whether a row shows an exact pattern."""
        hidden = self._hidden(k)
        if k not in self._naturals:
            rows = self.judges if self.errors_of_judges is None else self.judges[~self._has_another(k)]
            shown = torch.from_numpy(self.patterns[k].shown(rows.numpy(), self.tolerance)).float()[:, None]
            self._naturals[k] = rows, Process(_without(rows, rows, hidden), shown, *NATURAL)
        rows, process = self._naturals[k]
        return _in_parts(lambda part: process(_without(part, rows, hidden))[:, 0], x).astype(np.float64)

    def _hidden(self, k: int) -> NDArray[np.int64]:
        """Cells that the guess must not see: as long as it is unknown which rows have errors, those of all patterns.

        The mark of one error would teach that there is no other in the row.
        """
        all_of_them = self.patterns if self.errors_of_judges is None else self.patterns[k : k + 1]
        return np.unique(np.concatenate([p.cells for p in all_of_them]))

    def _has_another(self, k: int) -> Flags:
        assert self.errors_of_judges is not None
        return np.asarray(np.delete(self.errors_of_judges, k, axis=1).any(1))

    def _nearness(self, k: int, x: Array) -> Scores:
        """(B,): how much nearer a row's cells are to what the pattern would make of their guess than to the guess."""
        pattern = self.patterns[k]
        cells, process = self._process((k,))
        guess = _in_parts(lambda part: process(_without(part, self.landmarks, cells)), x)
        variance = process.error.numpy() + 1e-4
        dirty = x[:, cells]
        nearer = (dirty - guess) ** 2 - (dirty - self._clipped(pattern.dirty(guess), cells)) ** 2
        return np.asarray((nearer / variance).sum(1).astype(np.float64))

    # what the cells held

    def undo(self, x: Array, has: Flags) -> Repairs:
        """(B, D) rows, (B, K) which patterns each has."""
        repairs = Repairs(x.copy(), np.zeros(x.shape, bool), np.zeros_like(x))
        kinds, kind = np.unique(has, axis=0, return_inverse=True)
        for number, pattern_set in enumerate(kinds):
            if pattern_set.any():
                rows = np.flatnonzero(kind.reshape(-1) == number)
                together = tuple(int(k) for k in np.flatnonzero(pattern_set))
                for whole, of_rows in zip(repairs, self._undone(x[rows], together), strict=True):
                    whole[rows] = of_rows
        return repairs

    def _undone(self, dirty: Array, together: tuple[int, ...]) -> Repairs:
        """Of rows that all have these patterns."""
        cells, process = self._process(together)
        parts = [process.with_deviation(_without(part, self.landmarks, cells)) for part in _parts(dirty)]
        values, deviation = dirty.copy(), np.zeros_like(dirty)
        values[:, cells] = torch.cat([guess for guess, _ in parts]).numpy()
        deviation[:, cells] = torch.cat([spread for _, spread in parts]).numpy()
        deviation *= max(self.known[k].spread for k in together)
        mask = np.zeros(dirty.shape, bool)
        for k in together:
            p = self.patterns[k]
            values[:, p.cells], deviation[:, p.cells] = self._with_inverse(
                k, dirty[:, p.cells], values[:, p.cells], deviation[:, p.cells]
            )
            # where an exact pattern's value is not to be seen, it changed nothing
            mask[:, p.cells] |= (np.abs(dirty[:, p.cells] - p.offset) <= self.tolerance) | (not p.exact)
        values = self._clipped(values, slice(None))
        return Repairs(np.where(mask, values, dirty), mask, np.where(mask, deviation, 0))

    def _with_inverse(self, k: int, dirty: Array, guess: Array, spread: Array) -> tuple[Array, Array]:
        """Where the map can be undone, that is evidence as well: both are weighed by their precision."""
        p, noise = self.patterns[k], self.known[k].noise
        usable = np.abs(p.slope) > 0.1
        if not usable.any():
            return guess, spread
        slope = np.where(usable, p.slope, 1)
        low, high = (np.broadcast_to(bound, (self.landmarks.shape[1],))[p.cells] for bound in self.span)
        inside = usable & (dirty > low + self.tolerance) & (dirty < high - self.tolerance)  # else it was cut off there
        undone = (dirty - p.offset) / slope
        precision = np.where(inside, (slope / np.maximum(noise, 1e-3)) ** 2, 0)
        of_guess = 1 / np.maximum(spread, 1e-6) ** 2
        total = precision + of_guess
        both = (precision * undone + of_guess * guess) / total
        return both.astype(np.float32), np.sqrt(1 / total).astype(np.float32)

    def _process(self, together: tuple[int, ...]) -> tuple[NDArray[np.int64], Process]:
        """All cells of some patterns, and the process that guesses them from the others."""
        if together not in self._of_cells:
            if self._between is None:
                self._between = squared_distances(self.landmarks, self.landmarks)
            cells = np.unique(np.concatenate([self.patterns[k].cells for k in together]))
            held = self.landmarks[:, cells]
            squares = (self._between - squared_distances(held, held)).clamp_min_(0)
            self._of_cells[together] = cells, Process(squares, held, *self.settings)
        return self._of_cells[together]

    def _clipped(self, values: Array, cells: NDArray[np.int64] | slice) -> Array:
        low, high = (bound if len(bound) == 1 else bound[cells] for bound in self.span)
        return values.clip(low, high)


def learn(
    patterns: Sequence[Pattern],
    x: Array,
    doubtful: Flags,
    inliers: Array,
    tolerance: float,
    span: tuple[Array, Array],
    seed: int,
) -> Catalogue | None:
    """A catalogue from a random sample of rows as they are; `doubtful` ones are not taken for clean.

    inliers: the trusted ones, which show what they show by nature.
    None if so few rows seem clean that nothing could be repaired by them.
    """
    rng = np.random.default_rng([seed, 8])
    order = rng.permutation(len(x))
    judges, others = order[: min(JUDGES, len(x) // 3)], order[min(JUDGES, len(x) // 3) :]
    # rows that a process knows look nothing like those that it does not: inexact patterns are learnt from others
    fresh = others[: 0 if all(p.exact for p in patterns) else len(others) // 2]
    may_be_known = order[~np.isin(order, fresh)]
    free = ~doubtful & ~np.any([p.shown(x, tolerance) for p in patterns if p.exact] or [np.zeros(len(x), bool)], 0)
    settings = Settings(1.0, 0.01)
    known = [Known(Natural(1.0, None), 1.0, np.zeros(len(p.cells), np.float32)) for p in patterns]
    landmarks = may_be_known[free[may_be_known]][: LANDMARKS // 2]
    errors = np.zeros((len(x), len(patterns)), bool)

    def catalogue(errors_of_judges: Flags | None = None) -> Catalogue:
        return Catalogue(patterns, known, x[judges], x[landmarks], settings, tolerance, span, errors_of_judges)

    def presences(by: Catalogue, again: bool) -> list[Natural | Likeness]:
        found: list[Natural | Likeness] = []
        for k, pattern in enumerate(patterns):
            known_already = by.known[k].presence
            if again and isinstance(known_already, Natural) and known_already.rate is None:
                found.append(known_already)
            elif pattern.exact:
                rows = x[others[~np.delete(errors[others], k, axis=1).any(1)]]
                shown = pattern.shown(rows, tolerance)
                natural = Natural.fit(by._naturalness(k, rows), shown)
                if natural.contradicted_by(by._naturalness(k, inliers), pattern.shown(inliers, tolerance)):
                    natural = Natural(float(shown.mean()), None)
                found.append(natural)
            else:
                as_they_are = by._nearness(k, x[fresh])
                without = fresh[as_they_are < 0][:PUT_ON]
                if len(without) < LEAST:  # it would be in nearly every row: then it is how the data are
                    found.append(Likeness(Rising(np.zeros(1), np.zeros(1)), 1.0))
                    continue
                put_on = pattern.applied(x[without])
                put_on[:, pattern.cells] = by._clipped(put_on[:, pattern.cells], pattern.cells)
                found.append(Likeness.fit(by._nearness(k, put_on), as_they_are))
        return found

    if len(landmarks) < LEAST or len(judges) < LEAST:
        return None
    by = catalogue()
    for n in range(2):
        by.known = tuple(Known(p, k.spread, k.noise) for p, k in zip(presences(by, n > 0), known, strict=True))
        errors = by.probability(x) >= CERTAIN
        clean = may_be_known[~(doubtful | errors.any(1))[may_be_known]]
        checked, landmarks = clean[: min(CHECKED, len(clean) // 5)], clean[min(CHECKED, len(clean) // 5) :][:LANDMARKS]
        if len(landmarks) < LEAST:
            return None
        some, cells = torch.from_numpy(x[landmarks[:SETTING]]), patterns[0].cells
        settings = Settings(*best_setting(_without(some, some, cells), some[:, cells]))
        known = list(by.known)
        by = catalogue(errors[judges])
        by.known = tuple(known)
    by.known = tuple(Known(p, k.spread, k.noise) for p, k in zip(presences(by, True), known, strict=True))
    by.known = tuple(
        Known(k.presence, _spread(by, n, x[checked]), _noise(by, n, x[others], k)) for n, k in enumerate(by.known)
    )
    return by


def _spread(by: Catalogue, k: int, clean: Array) -> float:
    """What deviations have to be multiplied by for nine in ten of the cells left out to be within 1.645 of them."""
    cells, process = by._process((k,))
    guess, deviation = process.with_deviation(_without(torch.from_numpy(clean), by.landmarks, cells))
    off = ((torch.from_numpy(clean[:, cells]) - guess).abs() / deviation.clamp_min(1e-6)).flatten()
    return max(float(np.quantile(off.numpy(), 0.9)) / NINE_IN_TEN, 1e-3) if len(off) else 1.0


def _noise(by: Catalogue, k: int, x: Array, known: Known) -> Array:
    """How far dirty cells scatter around the map, beyond what the guess of their clean values is off by."""
    pattern = by.patterns[k]
    if pattern.exact:
        return known.noise
    rows = x[np.flatnonzero(known.presence(by._nearness(k, x)) > 0.9)[:1000]]
    if len(rows) < 5:
        return known.noise + by.tolerance
    cells, process = by._process((k,))
    guess = process(_without(torch.from_numpy(rows), by.landmarks, cells)).numpy()
    left = (rows[:, cells] - by._clipped(pattern.dirty(guess), cells)) ** 2
    expected = pattern.slope**2 * process.error.numpy()
    beyond = left.mean() / max(expected.mean(), 1e-9) - 1  # the same for all cells: of each alone it would be too rough
    return np.sqrt(max(beyond - 0.1, 0) * expected + by.tolerance**2).astype(np.float32)


def _without(a: Tensor, b: Tensor, cells: NDArray[np.int64]) -> Tensor:
    """(B, n) squared distances over all other cells."""
    return (squared_distances(a, b) - squared_distances(a[:, cells], b[:, cells])).clamp_min_(0)


def _parts(x: Array, size: int = 1024) -> Iterator[Tensor]:
    for start in range(0, max(len(x), 1), size):
        yield torch.from_numpy(x[start : start + size])


def _in_parts(function: Callable[[Tensor], Tensor], x: Array) -> Array:
    return np.concatenate([function(part).numpy() for part in _parts(x)])
