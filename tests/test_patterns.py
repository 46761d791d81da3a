"""Patterns: each part on data whose answer is known, and the whole by its promises."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from PIL import Image
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF
from typer.testing import CliRunner

from unblemish import BadInput, Cleaner
from unblemish.cli import app
from unblemish.patterns.catalogue import Catalogue, learn
from unblemish.patterns.discover import Sample, _Tester, discover
from unblemish.patterns.keep import packed, restored
from unblemish.patterns.maps import Maps, fit_maps, support, with_common_slope
from unblemish.patterns.pattern import Pattern
from unblemish.patterns.picture import draw
from unblemish.patterns.presence import Likeness, Natural, Rising
from unblemish.patterns.process import Process, best_setting, squared_distances
from unblemish.trusted import TrustedError, promise

Array = NDArray[Any]

CELLS = 40
SPAN = (np.full(1, -50, np.float32), np.full(1, 50, np.float32))


def pattern(cells: list[int], slope: float, offset: float, *, exact: bool) -> Pattern:
    count = len(cells)
    return Pattern(
        np.array(cells), np.full(count, slope, np.float32), np.full(count, offset, np.float32), exact, 0, 0, 1.0
    )


STUCK = pattern([3, 4, 5, 6, 7, 8], 0, 2.5, exact=True)
SHIFTED = pattern([20, 21, 22, 23, 24, 25, 26, 27], 1, 2.0, exact=False)
HALVED = pattern(list(range(12, 20)), 0.5, 1.5, exact=False)


def rows(n: int = 1500, seed: int = 0) -> Array:
    """Rows of four factors and a little noise."""
    rng = np.random.default_rng(seed)
    loadings = np.random.default_rng(99).normal(size=(4, CELLS)) / 2
    return (rng.normal(size=(n, 4)) @ loadings + 0.1 * rng.normal(size=(n, CELLS))).astype(np.float32)


def with_errors(errors: list[list[Pattern]], share: float = 0.3, n: int = 1500, seed: int = 0) -> tuple[Any, ...]:
    """Rows of which a share has errors: dirty, clean, and which of `errors` each row has (-1 for none)."""
    clean = rows(n, seed)
    rng = np.random.default_rng([seed, 1])
    which = np.where(rng.random(n) < share, rng.integers(len(errors), size=n), -1)
    dirty = clean.copy()
    for k, put_on in enumerate(errors):
        for p in put_on:
            dirty[which == k] = p.applied(dirty[which == k])
    return dirty, clean, which


def sample(dirty: Array, clean: Array, which: Array, labels: int = 10, seed: int = 0) -> Sample:
    """As a model would see them: clean estimates with some error, a few rows suspected wrongly, a few missed."""
    rng = np.random.default_rng([seed, 2])
    n = len(dirty)
    suspect = np.where(rng.random(n) < 0.05, which < 0, which >= 0)
    y = np.full(n, -1)
    for k in range(-1, which.max() + 1):
        y[np.flatnonzero(which == k)[:labels]] = int(k < 0)
    suspect = np.where(y == -1, suspect, y == 0)
    estimate = clean + 0.3 * rng.normal(size=clean.shape).astype(np.float32)
    return Sample(dirty, estimate, suspect, y, np.arange(n), 1e-4)


# the process


def test_process_is_scikit_learns() -> None:
    rng = np.random.default_rng(0)
    known, targets, asked = rng.normal(size=(60, 3)), rng.normal(size=(60, 2)), rng.normal(size=(10, 3))
    squares = squared_distances(torch.from_numpy(known), torch.from_numpy(known))
    process = Process(squares, torch.from_numpy(targets), 0.7, 0.2)
    mean, deviation = process.with_deviation(squared_distances(torch.from_numpy(asked), torch.from_numpy(known)))

    kernel = RBF(np.sqrt(process.width / 2), "fixed")
    reference = GaussianProcessRegressor(kernel, alpha=0.2, optimizer=None).fit(known, targets - targets.mean(0))
    expected, spread = reference.predict(asked, return_std=True)
    np.testing.assert_allclose(mean, expected + targets.mean(0), rtol=1e-6, atol=1e-8)
    assert process.width == pytest.approx(0.7 * float(squares.mean()))
    # scikit-learn's deviation is of the function, ours of a value, in units of the scale
    np.testing.assert_allclose(deviation / process.scale, np.sqrt(spread**2 + 0.2), rtol=1e-6)


def test_rows_left_out_are_truly_left_out() -> None:
    rng = np.random.default_rng(1)
    known, targets = torch.from_numpy(rng.normal(size=(30, 4))), torch.from_numpy(rng.normal(size=(30, 1)))
    targets -= targets.mean()
    squares = squared_distances(known, known)
    process = Process(squares, targets, 1.0, 0.3)
    off = []
    for row in range(30):
        others = np.delete(np.arange(30), row)
        kernel = RBF(np.sqrt(process.width / 2), "fixed")
        fitted = GaussianProcessRegressor(kernel, alpha=0.3, optimizer=None).fit(known[others], targets[others, 0])
        off.append(float(targets[row, 0]) - fitted.predict(known[row : row + 1])[0])
    assert float(process.error[0]) == pytest.approx(np.mean(np.square(off)))


def test_best_setting_is_the_one_with_the_least_error() -> None:
    x = torch.from_numpy(rows(150))
    squares, targets = squared_distances(x[:, 5:], x[:, 5:]), x[:, :5].double() - x[:, :5].double().mean(0)
    best = best_setting(squares, targets)
    error = float(Process(squares.double(), targets, *best).error.mean())
    for setting in ((0.1, 1e-3), (1.0, 1e-2), (3.0, 1.0), (0.3, 0.1)):
        assert error <= float(Process(squares.double(), targets, *setting).error.mean()) + 1e-9


# maps


@pytest.mark.parametrize(("slope", "offset"), [(0.0, 1.5), (1.0, 0.8), (0.4, 1.0), (1.6, -0.5)])
def test_maps_are_found_though_a_quarter_of_the_rows_has_none(slope: float, offset: float) -> None:
    rng = np.random.default_rng(2)
    clean = rng.normal(size=(800, 5)).astype(np.float32)
    dirty = np.where(rng.random((800, 1)) < 0.25, clean, slope * clean + offset)
    maps = fit_maps(dirty, clean + 0.05 * rng.normal(size=clean.shape))
    np.testing.assert_allclose(maps.slope, slope, atol=0.06)
    np.testing.assert_allclose(maps.offset, offset, atol=0.06)


def test_support_by_hand() -> None:
    clean = np.array([[0.0, 0.0], [2.0, 0.0], [4.0, 0.0]])
    dirty = np.array([[1.0, 0.0], [1.0, 0.0], [4.0, 0.0]])
    found = support(dirty, clean, Maps(np.zeros(2), np.array([1.0, 0.0])), np.array([0.5, 0.5]), 1e-6)
    # cell 0 should change by 1, -1 and -3: squares 1, 1 and 9, the last of which does not; cell 1 should never change
    assert found.share[0] == pytest.approx(2 / 11)
    assert found.rows[0] == pytest.approx(121 / 83)
    assert found.change[0] == pytest.approx(11 / 3)
    assert found.exact[0] == pytest.approx(0)  # only the third row is far: 9 > 4 * 0.5
    assert found.share[1] == 0
    assert found.far[1] == 0


def test_a_common_slope_is_taken_where_it_serves_and_left_where_it_does_not() -> None:
    rng = np.random.default_rng(3)
    clean = rng.normal(size=(500, 6)).astype(np.float32)
    one = 0.7 * clean + np.arange(6) + 0.2 * rng.normal(size=clean.shape)
    np.testing.assert_allclose(with_common_slope(one, clean, fit_maps(one, clean)).slope, 0.7, atol=0.02)
    two = np.where(np.arange(6) < 3, 0.3, 1.5) * clean
    np.testing.assert_allclose(with_common_slope(two, clean, fit_maps(two, clean)).slope[[0, 5]], [0.3, 1.5], atol=0.05)


# presence


def test_natural_knows_what_would_show_the_pattern_anyway() -> None:
    rng = np.random.default_rng(4)
    guess = rng.random(20_000)
    q, rho = np.clip(2 * guess - 1, 0, 0.9), 0.1
    has = rng.random(len(guess)) < rho
    by_nature = rng.random(len(guess)) < q
    natural = Natural.fit(guess, has | by_nature)
    assert natural.rho == pytest.approx(rho, abs=0.02)
    rate = rho + (1 - rho) * q
    off = np.abs(natural(guess) - rho * (1 - q) / rate)
    assert off.mean() < 0.03
    assert (off < 0.15).mean() > 0.95


def test_natural_is_sure_where_nothing_shows_the_pattern_by_nature() -> None:
    rng = np.random.default_rng(5)
    guess, shown = rng.random(3000), rng.random(3000) < 0.05
    assert (Natural.fit(guess, shown)(guess) == 1).all()


def test_trusted_inliers_tell_an_error_that_goes_with_the_content_from_nature() -> None:
    rng = np.random.default_rng(5)
    guess = (rng.random(4000) < 0.3).astype(float)  # a class of rows
    shown = (rng.random(4000) < 0.4) & (guess == 1)  # 40 % of it show the pattern, by nature or by an error
    natural = Natural.fit(guess + 0.01 * rng.random(4000), shown)
    inliers = np.repeat([0.0, 1.0], 10)
    assert natural.contradicted_by(inliers, np.zeros(20, bool))
    assert not natural.contradicted_by(inliers, (inliers == 1) & (np.arange(20) % 5 < 2))


def test_likeness_is_the_posterior_of_two_normal_distributions() -> None:
    rng = np.random.default_rng(6)
    rho = 0.2
    put_on = rng.normal(3, 1, 20_000)
    real = np.where(rng.random(20_000) < rho, rng.normal(3, 1, 20_000), rng.normal(0, 1, 20_000))
    at = np.linspace(0, 4, 9)
    odds = rho * np.exp(-((at - 3) ** 2) / 2) / ((1 - rho) * np.exp(-(at**2) / 2))
    np.testing.assert_allclose(Likeness.fit(put_on, real)(at), odds / (1 + odds), atol=0.08)


def test_rising_never_falls() -> None:
    rng = np.random.default_rng(7)
    rising = Rising.fit(rng.random(500), rng.random(500))
    assert (np.diff(rising(np.linspace(-1, 2, 200))) >= 0).all()


# discovery


@pytest.mark.parametrize("one", [STUCK, SHIFTED, HALVED], ids=["stuck", "shifted", "halved"])
def test_an_error_is_found_with_its_cells_and_its_map(one: Pattern) -> None:
    found, explained = discover(sample(*with_errors([[one]])), seed=0)
    assert len(found) == 1
    assert found[0].cells.tolist() == one.cells.tolist()
    np.testing.assert_allclose(found[0].slope, one.slope, atol=0.06)
    np.testing.assert_allclose(found[0].offset, one.offset, atol=0.12)
    assert found[0].exact == one.exact
    which = with_errors([[one]])[2]
    assert (explained == (which >= 0)).mean() > 0.97


def test_several_errors_are_several_patterns_also_where_two_meet_in_a_row() -> None:
    found, _ = discover(sample(*with_errors([[STUCK], [SHIFTED], [STUCK, SHIFTED]])), seed=0)
    assert sorted(p.cells.tolist() for p in found) == [STUCK.cells.tolist(), SHIFTED.cells.tolist()]


def test_clean_data_have_no_pattern() -> None:
    clean = rows()
    rng = np.random.default_rng(0)
    which = np.where(rng.random(len(clean)) < 0.3, 0, -1)  # suspected for nothing
    assert discover(sample(clean, clean, which), seed=0)[0] == []


def test_a_cluster_of_unusual_rows_is_no_pattern() -> None:
    clean = rows()
    unusual = clean[:, 0] > np.quantile(clean[:, 0], 0.8)
    estimate = clean.copy()
    estimate[unusual] *= 0.3  # the model does not follow them
    y = np.full(len(clean), -1)
    y[:30] = 1
    y[np.flatnonzero(unusual)[-3:]] = 0
    assert discover(Sample(clean, estimate, unusual | (y == 0), y, np.arange(len(clean)), 1e-4), seed=0)[0] == []


def test_random_noise_is_no_pattern() -> None:
    clean = rows()
    rng = np.random.default_rng(0)
    which = np.where(rng.random(len(clean)) < 0.3, 0, -1)
    hit = (rng.random(clean.shape) < 0.2) & (which >= 0)[:, None]
    dirty = np.where(hit, rng.choice([-3, 3], clean.shape), clean).astype(np.float32)
    assert discover(sample(dirty, clean, which), seed=0)[0] == []


# the catalogue


@pytest.fixture(scope="module")
def catalogue() -> Catalogue:
    dirty, _, which = with_errors([[STUCK], [SHIFTED], [HALVED]], n=3000)
    inliers = dirty[np.flatnonzero(which < 0)[:10]]
    learnt = learn([STUCK, SHIFTED, HALVED], dirty, np.zeros(len(which), bool), inliers, 1e-4, SPAN, seed=0)
    assert learnt is not None
    return learnt


def test_rows_are_told_by_what_they_have(catalogue: Catalogue) -> None:
    dirty, _, which = with_errors([[STUCK], [SHIFTED], [HALVED]], seed=5)
    probability = catalogue.probability(dirty)
    assert ((probability >= 0.5) == (np.arange(3) == which[:, None])).mean() > 0.99


def test_repairs_are_near_the_truth_and_know_how_near(catalogue: Catalogue) -> None:
    dirty, clean, which = with_errors([[STUCK], [SHIFTED], [HALVED]], seed=6)
    repairs = catalogue.undo(dirty, np.arange(3) == which[:, None])
    for k, p in enumerate(catalogue.patterns):
        off = (repairs.values - clean)[np.ix_(which == k, p.cells)]
        assert np.square(off).mean() < 0.1 * np.square(clean[:, p.cells]).mean()
    off, spread = np.abs(repairs.values - clean)[repairs.mask], repairs.deviation[repairs.mask]
    stuck = np.zeros(dirty.shape, bool)
    stuck[np.ix_(which == 0, STUCK.cells)] = True
    assert 0.8 < (off <= 1.645 * spread)[stuck[repairs.mask]].mean() < 0.97


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), n=st.integers(1, 20))
def test_outside_the_mask_nothing_changes(catalogue: Catalogue, seed: int, n: int) -> None:
    rng = np.random.default_rng(seed)
    x = (3 * rng.normal(size=(n, CELLS))).astype(np.float32)
    repairs = catalogue.undo(x, rng.random((n, 3)) < 0.5)
    np.testing.assert_array_equal(repairs.values[~repairs.mask], x[~repairs.mask])
    assert (repairs.deviation[~repairs.mask] == 0).all()
    assert (repairs.deviation[repairs.mask] > 0).all()


def test_the_order_of_rows_does_not_matter(catalogue: Catalogue) -> None:
    x = with_errors([[STUCK], [SHIFTED], [HALVED]], n=200, seed=7)[0]
    back = np.random.default_rng(0).permutation(200)
    np.testing.assert_allclose(catalogue.probability(x)[back], catalogue.probability(x[back]), atol=1e-5)


def test_a_catalogue_is_kept_whole(catalogue: Catalogue) -> None:
    again = restored(*packed(catalogue))
    x = with_errors([[STUCK], [SHIFTED], [HALVED]], n=300, seed=8)[0]
    np.testing.assert_array_equal(again.probability(x), catalogue.probability(x))
    has = catalogue.probability(x) >= 0.5
    np.testing.assert_array_equal(again.undo(x, has).values, catalogue.undo(x, has).values)


def test_without_one_the_others_stay(catalogue: Catalogue) -> None:
    x = with_errors([[STUCK], [SHIFTED], [HALVED]], n=300, seed=9)[0]
    fewer = catalogue.without(1)
    assert fewer is not None
    np.testing.assert_allclose(fewer.probability(x)[:, 1], catalogue.probability(x)[:, 2])


# the cleaner


def images(n: int = 600, seed: int = 0) -> tuple[Array, Array, NDArray[np.int64], Array]:
    """Grey images of two factors; in a third of them three by three cells are 200. Dirty, clean, labels, which."""
    rng = np.random.default_rng(seed)
    shade = np.random.default_rng(5).random((2, 8, 8))
    clean = (60 * np.tensordot(rng.random((n, 2)), shade, 1) + 5 * rng.random((n, 8, 8))).astype(np.uint8)
    outlier = rng.random(n) < 0.33
    dirty = clean.copy()
    dirty[outlier, 2:5, 2:5] = 200
    y = np.full(n, -1)
    y[np.flatnonzero(outlier)[:12]], y[np.flatnonzero(~outlier)[:12]] = 0, 1
    return dirty, clean, y, outlier


@pytest.fixture(scope="module")
def fitted() -> Cleaner:
    dirty, _, y, _ = images()
    return Cleaner(epochs=60, folds=0).fit(dirty, y)


def test_a_cleaner_finds_the_pattern_and_repairs_it_alone(fitted: Cleaner) -> None:
    dirty, clean, _, outlier = images(seed=1)
    assert len(fitted.patterns_) == 1
    found = fitted.patterns_[0]
    assert found.cells.tolist() == [8 * r + c for r in (2, 3, 4) for c in (2, 3, 4)]
    np.testing.assert_allclose(found.offset, 200, atol=0.5)
    assert found.words(fitted.schema_) == "sets 9 cells (rows 2-4, columns 2-4) to 200"
    report = fitted.clean(dirty)
    assert (report.is_outlier == outlier).all()
    np.testing.assert_array_equal(report.pattern, np.where(outlier, 0, -1))
    assert report.mask is not None
    assert report.uncertainty is not None
    np.testing.assert_array_equal(report.repaired[~report.mask], dirty[~report.mask])
    off = report.repaired.astype(float) - clean
    assert np.abs(off[report.mask]).mean() < 6
    assert (report.uncertainty[report.mask] > 0).all()
    assert (report.uncertainty[~report.mask] == 0).all()
    np.testing.assert_array_equal(report.outcome, np.where(outlier, "repair", "keep"))
    np.testing.assert_array_equal(fitted.transform(dirty), report.repaired)
    np.testing.assert_array_equal(fitted.predict(dirty), np.where(outlier, 0, 1))


def test_without_its_patterns_it_is_the_paper(fitted: Cleaner) -> None:
    dirty, _, y, _ = images()
    paper = Cleaner(epochs=60, folds=0, patterns=False).fit(dirty, y)
    for alone in (fitted.without_patterns(), fitted.without_pattern(0)):
        np.testing.assert_array_equal(alone.outlier_score(dirty), paper.outlier_score(dirty))
        np.testing.assert_array_equal(alone.repair(dirty), paper.repair(dirty))
    assert len(fitted.patterns_) == 1


def test_patterns_are_saved_and_loaded(fitted: Cleaner, tmp_path: Path) -> None:
    fitted.save(tmp_path / "model")
    again = Cleaner.load(tmp_path / "model")
    dirty = images(seed=2)[0]
    np.testing.assert_array_equal(again.clean(dirty).repaired, fitted.clean(dirty).repaired)
    np.testing.assert_array_equal(again.outlier_score(dirty), fitted.outlier_score(dirty))
    assert again.patterns_[0].words(again.schema_) == fitted.patterns_[0].words(fitted.schema_)


@pytest.mark.parametrize("number", [1, -1, 0.5])
def test_a_pattern_that_is_not_there_cannot_be_switched_off(fitted: Cleaner, number: Any) -> None:
    with pytest.raises(BadInput, match="number is"):
        fitted.without_pattern(number)


def test_an_offset_in_raw_values_is_the_same_map() -> None:
    dirty, _, _, _ = images()
    schema = Cleaner(epochs=1, folds=0, patterns=False).fit(dirty, images()[2]).schema_
    p = replace(HALVED, cells=np.arange(8))
    raw = schema.decode(schema.encode(dirty[:5]))[:, 0, :]
    changed = p.in_values_of(schema).dirty(raw)
    encoded = schema.encode(dirty[:5])
    np.testing.assert_allclose(changed, schema.decode(p.applied(encoded))[:, 0, :], rtol=1e-4, atol=1e-3)


def test_the_same_mark_is_found_at_places_that_the_model_never_suspected() -> None:
    rng = np.random.default_rng(0)
    shade = np.random.default_rng(5).normal(size=(3, 12, 12))
    clean = (np.tensordot(rng.normal(size=(1500, 3)), shade, 1) + 0.1 * rng.normal(size=(1500, 12, 12))).astype(
        np.float32
    )
    which = np.where(rng.random(1500) < 0.3, rng.integers(3, size=1500), -1)
    dirty = clean.copy()
    corners = ((1, 1), (7, 2), (5, 8))
    for k, (top, left) in enumerate(corners):
        dirty[which == k, top : top + 3, left : left + 3] = 6.0
    y = np.full(1500, -1)
    for k in range(-1, 3):
        y[np.flatnonzero(which == k)[: 20 if k < 0 else 4]] = int(k < 0)
    # the model takes the mark at two of the places for clean: it neither suspects the rows nor estimates them otherwise
    estimate = np.where((which > 0)[:, None, None], dirty, clean).reshape(1500, -1)
    flat = dirty.reshape(1500, -1)
    suspect = np.where(y == -1, which == 0, y == 0)
    found, _ = discover(Sample(flat, estimate, suspect, y, np.arange(1500), 1e-4, (12, 12)), seed=0)
    places = sorted((int(p.cells.min()) // 12, int(p.cells.min()) % 12) for p in found)
    assert places == sorted(corners)
    assert all(len(p.cells) == 9 for p in found)


def test_a_mark_that_is_known_in_part_spreads_to_all_of_its_cells_and_no_further() -> None:
    rng = np.random.default_rng(0)
    shade = np.random.default_rng(5).normal(size=(3, 12, 12))
    clean = np.tensordot(rng.normal(size=(1500, 3)), shade, 1) + 0.1 * rng.normal(size=(1500, 12, 12))
    dirty = clean.astype(np.float32)
    outlier = rng.random(1500) < 0.3
    dirty[outlier, 4:8, 4:8] = 6.0
    flat = dirty.reshape(1500, -1)
    y = np.full(1500, -1)
    y[np.flatnonzero(outlier)[:10]], y[np.flatnonzero(~outlier)[:10]] = 0, 1
    seen = Sample(flat, flat, outlier, y, np.arange(1500), 1e-4, (12, 12))
    tester = _Tester(seen, flat, np.flatnonzero(~outlier), rng)
    part = np.array([12 * row + column for row in (4, 5) for column in (4, 5, 6)])
    maps = Maps(np.zeros(6, np.float32), np.full(6, 6, np.float32))
    known = tester._candidate(part, maps, True, 0.0, tester._estimate(part), np.flatnonzero(outlier))
    whole = tester.spread(known).pattern.cells
    assert whole.tolist() == [12 * row + column for row in range(4, 8) for column in range(4, 8)]


def test_an_error_of_one_cell_is_found() -> None:
    one = pattern([9], 0, 3.0, exact=True)
    found, _ = discover(sample(*with_errors([[one]])), seed=0)
    assert [p.cells.tolist() for p in found] == [[9]]


def test_rows_that_no_pattern_explains_are_left_to_the_model(fitted: Cleaner) -> None:
    """With every trusted outlier explained a suspicion of the model alone counts little."""
    catalogue = fitted.catalogue_
    assert catalogue is not None
    strange = np.random.default_rng(3).integers(0, 256, size=(50, 8, 8)).astype(np.uint8)
    paper, score = fitted.without_patterns().outlier_score(strange), fitted.outlier_score(strange)
    np.testing.assert_allclose(score, catalogue.unexplained * paper)
    other = fitted.without_patterns()
    other.catalogue_ = restored(*packed(catalogue))
    other.catalogue_.unexplained = 1.0
    report = other.clean(strange)
    assert report.mask is not None
    flagged = report.is_outlier
    assert (report.unexplained == flagged).all()
    assert (report.outcome[flagged] == "ask").all()
    repaired, model = report.repaired, other.without_patterns().repair(strange)
    np.testing.assert_array_equal(repaired[report.mask], model[report.mask])
    np.testing.assert_array_equal(repaired[~report.mask], strange[~report.mask])


def test_how_many_clean_rows_will_be_changed_is_promised(fitted: Cleaner) -> None:
    error = TrustedError(inliers=58, inliers_flagged=0, outliers=10, outliers_missed=0, folds=3)
    text = promise(error, 0.0012)
    assert text.startswith("0.12% of the clean rows")
    assert "0 of 58" in text
    assert "at most 5.0%" in text  # 1 - 0.05 ** (1 / 58)
    assert "58 more labelled inliers" in text
    assert "would promise 2.5%" in text
    assert fitted.catalogue_ is not None
    assert 0 <= fitted.catalogue_.touched < 0.05


def test_patterns_on_the_command_line(fitted: Cleaner, tmp_path: Path) -> None:
    fitted.save(tmp_path / "model")
    runner = CliRunner()
    result = runner.invoke(app, ["patterns", str(tmp_path / "model")])
    assert result.exit_code == 0
    assert "sets 9 cells" in result.output
    with Image.open(tmp_path / "model.patterns.png") as picture:
        assert min(picture.size) > 200
    fitted.without_patterns().save(tmp_path / "none")
    assert "no patterns" in runner.invoke(app, ["patterns", str(tmp_path / "none")]).output
    refused = runner.invoke(app, ["patterns", str(tmp_path / "model"), "--out", str(tmp_path / "x.txt")])
    assert isinstance(refused.exception, BadInput)


@pytest.mark.parametrize("shape", [(6,), (6, 6, 3), (6, 6, 1)])
def test_pictures_of_all_kinds_of_rows(shape: tuple[int, ...], tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    base = rng.normal(size=(400, 2)) @ rng.normal(size=(2, int(np.prod(shape)))) + 0.05 * rng.normal(
        size=(400, int(np.prod(shape)))
    )
    outlier = rng.random(400) < 0.3
    base[np.ix_(outlier, [1, 2])] = 9.0
    y = np.full(400, -1)
    y[np.flatnonzero(outlier)[:12]], y[np.flatnonzero(~outlier)[:12]] = 0, 1
    cleaner = Cleaner(epochs=40, folds=0).fit(base.reshape(400, *shape), y)
    assert cleaner.catalogue_ is not None
    with (tmp_path / "p.png").open("wb") as file:
        draw(file, cleaner.catalogue_, cleaner.schema_)
    with Image.open(tmp_path / "p.png") as picture:
        assert picture.size[0] > 200
