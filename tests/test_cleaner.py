"""The estimator: scikit-learn's rules, the design's contracts, and that it cleans."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
import scipy.stats
import torch
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

import unblemish
from unblemish import BadInput, Cleaner, Diverged, Preset, Ramp, Recipe, Report
from unblemish.data.schema import Kind, Schema
from unblemish.models import presets
from unblemish.models.clsvae import ClsvaeConfig
from unblemish.ranks import rank_knots, rank_scores
from unblemish.trusted import TrustedError, at_most, best_threshold

Array = NDArray[Any]

NO_SENSE = {
    "check_dtype_object": "object arrays are refused: they may hold anything",
}


def blobs(rows: int = 200, cells: int = 12, seed: int = 0) -> tuple[Array, NDArray[np.int64], NDArray[np.bool_], Array]:
    """Rows on a plane; a third of them with two cells stuck at 6. Data, labels, which are outliers, and the truth."""
    rng = np.random.default_rng(seed)
    clean = rng.normal(size=(rows, 2)) @ rng.normal(size=(2, cells)) + 0.1 * rng.normal(size=(rows, cells))
    outlier = rng.random(rows) < 0.35
    X = clean.copy()
    X[np.ix_(outlier, [3, 4])] = 6.0
    y = np.full(rows, -1)
    y[np.flatnonzero(outlier)[:12]] = 0
    y[np.flatnonzero(~outlier)[:12]] = 1
    return X, y, outlier, clean


def quick(**options: Any) -> Cleaner:
    return Cleaner(**{"epochs": 3, "folds": 0, **options})


@pytest.fixture(scope="module")
def fitted() -> Cleaner:
    return quick(epochs=60).fit(*blobs()[:2])


class GivenForeignLabels(Cleaner):
    """The checks bring class labels of their own, which mean something else: each gives way to one of ours."""

    def fit(self, X: Any, y: Any = None) -> Cleaner:
        if y is not None and np.asarray(y).ndim == 1:
            y = np.resize([0, 1, -1], len(np.asarray(y)))
        return super().fit(X, y)


@parametrize_with_checks(
    [GivenForeignLabels(model=model, epochs=2, folds=0) for model in ("clsvae", "vae")],
    expected_failed_checks=lambda _: NO_SENSE,
)
def test_scikit_learns_checks(estimator: Any, check: Any) -> None:
    check(estimator)


# what comes back


@pytest.mark.parametrize("dtype", ["float32", "float64", "uint8", "bool", "int32"])
@pytest.mark.parametrize("shape", [(16,), (4, 4), (2, 2, 4)])
def test_what_comes_back_has_the_shape_and_dtype_of_what_went_in(dtype: str, shape: tuple[int, ...]) -> None:
    X, y, _, _ = blobs(cells=16)
    X = (X > 0).astype(dtype) if dtype == "bool" else (40 + 10 * X).astype(dtype)
    X = X.reshape(-1, *shape)
    before = X.copy()
    cleaner = quick().fit(X, y)
    report = cleaner.clean(X)
    for given_back in (report.repaired, report.repair, cleaner.repair(X), cleaner.transform(X)):
        assert given_back.shape == X.shape
        assert given_back.dtype == X.dtype
    assert cleaner.outlier_score(X).shape == (len(X),)
    assert cleaner.repair(X, unrounded=True).dtype == np.float64
    assert np.array_equal(X, before), "the input was changed"


def test_rows_not_flagged_come_back_bit_for_bit(fitted: Cleaner) -> None:
    X = blobs()[0]
    X[0, 0] = -0.0
    report = fitted.clean(X)
    kept = ~report.is_outlier
    assert 0 < kept.sum() < len(X)
    assert report.repaired[kept].tobytes() == X[kept].tobytes()
    assert (report.repaired[~kept] == report.repair[~kept]).all()
    assert np.array_equal(fitted.transform(X), report.repaired)


def test_report_at_another_threshold(fitted: Cleaner) -> None:
    report = fitted.clean(blobs()[0])
    counts = [int(report.at(t).is_outlier.sum()) for t in (0.0, 0.3, 0.5, 0.7, 1.0)]
    assert counts == sorted(counts, reverse=True)
    assert counts[0] == len(report.outlier_score)
    assert np.array_equal(report.at(0.5).repaired, report.repaired)
    assert not report.at(1.0).changed.any() or counts[-1] > 0
    with pytest.raises(BadInput, match="threshold"):
        report.at(1.5)


def test_report_undoes_and_tells(fitted: Cleaner, monkeypatch: pytest.MonkeyPatch) -> None:
    X = blobs()[0]
    report = fitted.clean(X)
    assert report.patch().undo(report.repaired).tobytes() == X.tobytes()
    frame = report.to_frame()
    assert isinstance(frame, pl.DataFrame)
    assert frame.columns == ["row", "outlier_score", "is_outlier", "cells_changed", "pattern", "outcome"]
    assert frame["is_outlier"].sum() == report.is_outlier.sum()
    assert f"{report.is_outlier.sum()} of 200 rows" in repr(report)
    monkeypatch.setitem(__import__("sys").modules, "polars", None)
    assert isinstance(report.to_frame(), pd.DataFrame)
    monkeypatch.setitem(__import__("sys").modules, "pandas", None)
    with pytest.raises(ImportError, match=r"unblemish\[tables\]"):
        report.to_frame()


def test_frames_come_back_as_frames() -> None:
    X, y, _, _ = blobs()
    names = [f"c{k}" for k in range(X.shape[1])]
    frame = pd.DataFrame(X, columns=names, index=np.arange(len(X)) + 1000)
    cleaner = quick().fit(frame, y)
    repaired = cleaner.transform(frame)
    assert isinstance(repaired, pd.DataFrame)
    assert list(repaired.columns) == names
    assert repaired.index.equals(frame.index)
    kept = cleaner.predict(frame) == 1
    assert repaired[kept].equals(frame[kept])
    assert isinstance(quick().fit(pl.DataFrame(X, names), y).transform(pl.DataFrame(X, names)), pl.DataFrame)


def test_in_a_pipeline_and_cloned() -> None:
    X, y, _, _ = blobs()
    pipe = make_pipeline(StandardScaler(), quick())
    assert pipe.fit(X, y).transform(X).shape == X.shape
    preset = Preset(ClsvaeConfig(sigma_c=0.3), Recipe(2, weights={"cross_entropy": Ramp(7.0)}))
    cleaner = Cleaner(preset=preset, seed=4)
    assert clone(cleaner).get_params() == cleaner.get_params()


# what it learns


@pytest.mark.parametrize("name", presets.NAMES)
def test_every_model_finds_and_repairs_planted_errors(name: str) -> None:
    X, y, outlier, clean = blobs(400)
    labels = (~outlier).astype(int) if name == "cvae" else y
    preset = None if name != "ccvae" else presets.default("ccvae", Schema.of(X), len(X), 24)
    cleaner = Cleaner(name, preset=preset, recipe="paper", epochs=150, folds=0).fit(X, labels)
    score = cleaner.outlier_score(X)
    assert ((score >= 0) & (score <= 1)).all()
    assert score[outlier].mean() > score[~outlier].mean()
    if cleaner.model_.has_classifier:
        assert (cleaner.predict(X) == (~outlier)).mean() > 0.9
        assert cleaner.threshold_ == 0.5
    if name.startswith("clsvae"):
        stuck = np.ix_(outlier, [3, 4])
        assert np.abs(cleaner.repair(X)[stuck] - clean[stuck]).mean() < 0.5 * np.abs(X[stuck] - clean[stuck]).mean()


def test_with_no_argument_it_works_well() -> None:
    X, y, outlier, _ = blobs(400)
    cleaner = Cleaner().fit(X, y)
    assert (cleaner.predict(X) == (~outlier)).mean() > 0.97
    assert cleaner.trusted_error_ is not None
    assert cleaner.trusted_error_.folds == 3
    assert cleaner.trusted_error_.inliers == cleaner.trusted_error_.outliers == 12
    assert cleaner.trusted_error_.inliers_flagged <= 2
    assert cleaner.trusted_error_.outliers_missed <= 2


def test_convolutional_torso_on_odd_sizes_and_colours() -> None:
    rng = np.random.default_rng(0)
    for shape in [(16, 16), (17, 23), (31, 16, 3)]:
        X = rng.integers(0, 256, size=(24, *shape), dtype=np.uint8)
        y = np.resize([1, 0, -1], 24)
        cleaner = Cleaner(torso="conv", epochs=2, folds=0).fit(X, y)
        assert cleaner.clean(X).repaired.shape == X.shape
        conditioned = Cleaner("cvae", torso="conv", epochs=1, folds=0).fit(X, np.resize([1, 0], 24))
        assert conditioned.repair(X).shape == X.shape


def test_convolutional_torso_learns() -> None:
    rng = np.random.default_rng(0)
    X = np.zeros((300, 16, 16), np.uint8)
    for image in X:
        r, c = rng.integers(0, 10, size=2)
        image[r : r + 6, c : c + 6] = 200
    outlier = rng.random(300) < 0.35
    X[outlier, 8] = 255
    y = np.full(300, -1)
    y[np.flatnonzero(outlier)[:10]], y[np.flatnonzero(~outlier)[:10]] = 0, 1
    cleaner = Cleaner(torso="conv", epochs=60, folds=0).fit(X, y)
    assert (cleaner.predict(X) == (~outlier)).mean() > 0.95


def test_scores_do_not_depend_on_batch_or_order(fitted: Cleaner, monkeypatch: pytest.MonkeyPatch) -> None:
    X = blobs()[0]
    score = fitted.outlier_score(X)
    order = np.random.default_rng(0).permutation(len(X))
    np.testing.assert_allclose(fitted.outlier_score(X[order]), score[order], rtol=1e-4)
    monkeypatch.setattr(unblemish.cleaner, "ROWS_AT_ONCE", 7)
    np.testing.assert_allclose(fitted.outlier_score(X), score, rtol=1e-4)


def test_same_seed_same_model_and_the_truth_plays_no_part() -> None:
    X, y, _, _ = blobs()
    first, second, other = quick().fit(X, y), quick().fit(X, y), quick(seed=1).fit(X, y)
    assert np.array_equal(first.outlier_score(X), second.outlier_score(X))
    assert not np.array_equal(first.outlier_score(X), other.outlier_score(X))


def test_refit_and_left_early() -> None:
    X, y, _, _ = blobs()
    cleaner = quick().fit(X, y)
    score = cleaner.outlier_score(X)
    steps = cleaner.fitting(X, 1 - np.abs(y))
    next(steps)
    steps.close()
    assert np.array_equal(cleaner.outlier_score(X), score), "a fit that was left early changed the cleaner"


def test_checkpoint_goes_on(tmp_path: Path) -> None:
    X, y, _, _ = blobs()
    whole = quick(epochs=6).fit(X, y)
    cleaner = quick(epochs=6)
    steps = cleaner.fitting(X, y, checkpoint=tmp_path / "state")
    next(steps), next(steps)
    steps.close()
    cleaner.fit(X, y, checkpoint=tmp_path / "state")
    assert np.array_equal(cleaner.outlier_score(X), whole.outlier_score(X))
    assert len(cleaner.curve_) == 6
    with pytest.raises(BadInput, match="other data"):
        quick(epochs=6).fit(X[::-1], y, checkpoint=tmp_path / "state")


def test_diverged_keeps_the_last_good_model() -> None:
    X, y, _, _ = blobs()
    preset = presets.default("clsvae", Schema.of(X), len(X), 24)
    wild = Preset(preset.config, Recipe(5, learning_rate=1e30, weights=preset.recipe.weights))
    cleaner = Cleaner(preset=wild, folds=0)
    with pytest.raises(Diverged, match="not finite"):
        cleaner.fit(X, y)
    assert np.isfinite(cleaner.outlier_score(X)).all()


def mostly_outliers() -> tuple[Any, Any]:
    X, y, is_outlier, _ = blobs()
    keep = np.sort(np.concatenate([np.flatnonzero(is_outlier), np.flatnonzero(~is_outlier)[:40]]))
    return X[keep], y[keep]


def test_a_fit_that_takes_most_rows_for_outliers_is_made_again_at_most_twice(tmp_path: Path) -> None:
    X, y = mostly_outliers()
    cleaner = quick(epochs=40)
    steps = list(cleaner.fitting(X, y, checkpoint=tmp_path / "state"))
    assert cleaner.fits_ == 3
    assert [step.phase for step in steps] == ["fit"] * 40 + ["fit 2"] * 40 + ["fit 3"] * 40
    assert ["most should be inliers: fitting again" in step.message for step in steps[:81:40]] == [False, True, True]
    assert steps[0].loss != steps[40].loss != steps[80].loss  # from other seeds

    other = quick(epochs=40)
    stopped = other.fitting(X, y, checkpoint=tmp_path / "other")
    assert [next(stopped).phase for _ in range(42)][-1] == "fit 2"
    stopped.close()
    rest = list(other.fitting(X, y, checkpoint=tmp_path / "other"))
    assert [step.phase for step in rest] == ["fit 2"] * 38 + ["fit 3"] * 40  # the first is not made again
    assert np.array_equal(other.outlier_score(X), cleaner.outlier_score(X))


def test_a_fit_that_takes_most_rows_for_inliers_is_made_once() -> None:
    X, y, _, _ = blobs()
    assert quick(epochs=40).fit(X, y).fits_ == 1
    assert quick(model="vae").fit(X, y).fits_ == 1


# thresholds and the trusted set


def test_models_without_a_classifier_rank_their_scores() -> None:
    X, y, _, _ = blobs()
    cleaner = quick(model="vae").fit(X)
    score = cleaner.outlier_score(X)
    np.testing.assert_allclose(np.sort(score), np.linspace(0, 1, len(X)), atol=0.01)
    assert cleaner.threshold_ == 0.6
    assert cleaner.trusted_error_ is None
    far = X[:1] + 1e3
    assert score.max() < cleaner.outlier_score(far)[0] < cleaner.outlier_score(far * 2)[0] < 1
    assert quick(model="vae").fit(X, y).threshold_ != 0.6


def test_ranks_keep_the_order() -> None:
    rng = np.random.default_rng(0)
    knots = rank_knots(rng.normal(size=500))
    values = np.sort(rng.normal(size=300) * 5)
    assert (np.diff(rank_scores(values, knots)) < 0).all()


def test_best_threshold_parts_the_two_kinds() -> None:
    y = np.array([1, 1, 1, 0, 0, -1])
    t = best_threshold(np.array([0.1, 0.2, 0.3, 0.8, 0.9, 0.5]), y)
    assert t is not None
    assert 0.3 < t <= 0.8
    assert best_threshold(np.zeros(6), np.full(6, -1)) is None


def test_threshold_of_ones_own() -> None:
    X, y, _, _ = blobs()
    assert quick(threshold=0.9).fit(X, y).threshold_ == 0.9


def test_few_labels_are_not_cut_into_folds() -> None:
    X, _, outlier, _ = blobs()
    few = np.full(len(X), -1)
    few[np.flatnonzero(outlier)[:5]], few[np.flatnonzero(~outlier)[:5]] = 0, 1
    error = Cleaner(epochs=3).fit(X, few).trusted_error_
    assert error is not None
    assert error.folds == 0
    assert "optimistic" in str(error)


def test_few_labels_promise_little() -> None:
    """None of ten flagged still leaves room for a quarter: 0.741 ** 10 = 5 %."""
    assert at_most(0, 10) == pytest.approx(1 - 0.05**0.1)
    assert at_most(10, 10) == 1.0
    assert at_most(3, 20) == pytest.approx(scipy.stats.beta.ppf(0.95, 4, 17))
    y = np.repeat([1, 0], 10)
    error = TrustedError.of(np.arange(20) >= 9, y, folds=3)
    assert error == TrustedError(inliers=10, inliers_flagged=1, outliers=10, outliers_missed=0, folds=3)
    assert "1 of 10 trusted inliers flagged, 0 of 10 trusted outliers missed" in str(error)
    assert "at most 39% and 26%" in str(error)


def test_constant_columns_of_a_table_come_back_as_they_were() -> None:
    X, y, _, _ = blobs()
    X[:, 2] = 3.0
    assert (quick().fit(X, y).repair(X)[:, 2] == 3.0).all()


def test_folds_judge_by_fits_that_had_not_seen_the_labels(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every trusted row is held out once, and its label is not given to the fit that judges it."""
    X, y, _, _ = blobs()
    seen = []
    original = unblemish.trusted.train

    def spy(model: Any, x: torch.Tensor, labels: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        seen.append(labels.numpy().copy())
        return original(model, x, labels, *args, **kwargs)

    monkeypatch.setattr(unblemish.trusted, "train", spy)
    Cleaner(epochs=5, folds=3).fit(X, y)
    assert len(seen) == 3
    held_out = np.array([(y >= 0) & (labels < 0) for labels in seen])
    assert np.array_equal(held_out.sum(0), (y >= 0).astype(int))
    for labels in seen:
        assert ((labels == y) | (labels == -1)).all()
        assert set(labels) == {-1, 0, 1}


# settings


def test_defaults_scale_with_the_number_of_cells() -> None:
    def at(cells: int) -> Preset:
        schema = Schema(
            kind=Kind.CONTINUOUS, shape=(cells,), dtype="float64", low=(0.0,), high=(1.0,), mean=(0.0,), scale=(1.0,)
        )
        return presets.default("clsvae", schema, 4000, 80)

    small, paper, large = at(8), at(784), at(784 * 4)
    assert isinstance(small.config, ClsvaeConfig)
    assert isinstance(paper.config, ClsvaeConfig)
    assert isinstance(large.config, ClsvaeConfig)
    published = presets.PAPER["shapes"]["clsvae"]
    assert paper.config == published.config
    assert paper.recipe.weights["cross_entropy"] == published.recipe.weights["cross_entropy"]
    assert large.recipe.weights["cross_entropy"].top == 4 * paper.recipe.weights["cross_entropy"].top
    assert large.recipe.weights["dependence"].top == 4 * paper.recipe.weights["dependence"].top
    assert small.config.sigma_c == 1.0 > paper.config.sigma_c > large.config.sigma_c
    assert small.config.clean_code == 8
    assert (small.config.sigma_d / small.config.sigma_c) == pytest.approx(10)


def test_imbalance_weighs_outliers_where_inliers_are_more() -> None:
    config = presets.PAPER["shapes"]["clsvae"].config
    y = np.array([1] * 6 + [0] * 2 + [-1] * 5)
    assert presets.with_imbalance(config, y).omega_imb == 3  # type: ignore[union-attr]
    assert presets.with_imbalance(config, np.where(y < 0, -1, 1 - y)).omega_imb == 1  # type: ignore[union-attr]


def test_no_pickle_is_needed_but_pickling_works(fitted: Cleaner) -> None:
    """scikit-learn users send estimators to other processes."""
    X = blobs()[0]
    again = pickle.loads(pickle.dumps(fitted))
    assert np.array_equal(again.outlier_score(X), fitted.outlier_score(X))


def test_verbose_draws_a_bar(capsys: pytest.CaptureFixture[str]) -> None:
    X, y, _, _ = blobs()
    quick(verbose=True).fit(X, y)
    assert "epoch 3 of 3" in capsys.readouterr().err


def test_report_is_a_report(fitted: Cleaner) -> None:
    assert isinstance(fitted.clean(blobs()[0]), Report)


def test_frey_faces_are_taken_as_they_are(data_folder: Path) -> None:
    images = np.load(data_folder / "frey_faces.npz")["images"]
    schema = Schema.of(images)
    assert schema.kind is Kind.CONTINUOUS
    assert np.array_equal(schema.to_raw(schema.decode(schema.encode(images))), images)
    y = np.full(len(images), -1)
    y[:20] = np.resize([0, 1], 20)
    assert quick(epochs=1).fit(images, y).transform(images).dtype == np.uint8
