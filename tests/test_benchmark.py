"""Datasets, corruption and trusted sets against their description in the paper."""

from __future__ import annotations

import gzip
import hashlib
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.io import savemat
from typer.testing import CliRunner

import unblemish.benchmark
import unblemish.benchmark.sources as sources_module
from unblemish.benchmark.corruption import (
    UNCHANGED,
    Affine,
    Array,
    Both,
    Fill,
    OneOf,
    Salt,
    coloured,
    corrupt,
    lines,
    squares,
    trusted_labels,
)
from unblemish.benchmark.counting import Counting
from unblemish.benchmark.datasets import SHAPES, _stamp, fashion_mnist, frey_faces, load, split, synthetic_shapes
from unblemish.benchmark.published import TABLE
from unblemish.benchmark.runs import found_patterns
from unblemish.benchmark.sources import (
    DEBIAN_FASHION,
    FASHION_SHA256,
    download_fashion,
    fashion_files,
    find_fashion,
    frey_images,
    sources,
)
from unblemish.cli import app
from unblemish.errors import BadInput
from unblemish.patterns.pattern import Pattern


def test_lines_are_where_the_paper_has_them() -> None:
    column, row, upper, lower = (line.cells for line in lines())
    assert np.array_equal(np.argwhere(column), [[r, 20] for r in range(28)])
    assert np.array_equal(np.argwhere(row), [[15, c] for c in range(28)])
    assert np.array_equal(np.argwhere(upper), [[r, 15 - r] for r in range(16)])
    assert np.array_equal(np.argwhere(lower), [[r, 38 - r] for r in range(11, 28)])


def test_stamps_have_the_papers_sizes() -> None:
    areas = {name: int(_stamp(name).sum()) for name in SHAPES}
    assert _stamp("rectangle").shape == (12, 6)
    assert areas["rectangle"] == 72
    assert _stamp("disc").shape == (17, 17)
    assert areas["disc"] == pytest.approx(np.pi * 64, rel=0.03)
    assert areas["ellipse"] == pytest.approx(np.pi * 40, rel=0.05)
    corners = np.array([(0, 3), (17, 0), (6, 15)])
    (x1, y1), (x2, y2) = corners[1] - corners[0], corners[2] - corners[0]
    assert areas["triangle"] == pytest.approx(abs(x1 * y2 - x2 * y1) / 2, rel=0.1)
    ellipse = np.argwhere(_stamp("ellipse")) - np.mean(np.argwhere(_stamp("ellipse")), 0)
    along = np.linalg.svd(ellipse)[2][0]
    assert abs(along[0] * along[1]) == pytest.approx(0.5, abs=0.02), "the ellipse does not stand at 135 degrees"
    assert along[0] * along[1] < 0


def test_shapes_dataset() -> None:
    data = synthetic_shapes(4000, 0.35, seed=1)
    assert data.dirty.shape == (4000, 28, 28)
    assert set(np.unique(data.clean)) == {0, 1}
    for k, name in enumerate(SHAPES):
        ours = data.clean[data.data_class == k].reshape(-1, 784)
        assert (ours.sum(1) == _stamp(name).sum()).all(), "a shape lies partly outside"
        assert len(ours) == pytest.approx(1000, abs=120)
        height, width = _stamp(name).shape
        assert len(np.unique(ours, axis=0)) > 0.7 * (29 - height) * (29 - width), "shapes do not lie everywhere"
    assert data.is_outlier.sum() <= 1400
    assert data.is_outlier.sum() > 1395


def test_corruption_touches_its_cells_and_no_others() -> None:
    data = synthetic_shapes(1000, 0.35, seed=2)
    for k, error in enumerate(data.errors):
        rows = data.error == k
        assert rows.sum() == pytest.approx(350 / 4, abs=35)
        assert (data.dirty[rows][:, error.cells] == error.value).all()
        assert np.array_equal(data.dirty[rows][:, ~error.cells], data.clean[rows][:, ~error.cells])
    clean = data.error == UNCHANGED
    assert np.array_equal(data.dirty[clean], data.clean[clean])
    assert np.array_equal(data.mask, data.dirty != data.clean)


def test_a_corruption_that_changes_nothing_makes_no_outlier() -> None:
    black = np.zeros((50, 4, 4))
    data = corrupt(black, (Fill("black", np.ones((4, 4), bool), 0.0),), 0.5, seed=0)
    assert not data.is_outlier.any()


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 10_000), st.sampled_from([0.15, 0.25, 0.35, 0.45]))
def test_noise_level_and_seed(seed: int, noise: float) -> None:
    clean = np.full((200, 3, 3), 0.5)
    errors = (Fill("a", np.eye(3, dtype=bool), 1.0), Fill("b", np.eye(3, dtype=bool)[::-1], 0.0))
    data = corrupt(clean, errors, noise, seed)
    assert data.is_outlier.sum() == round(noise * 200)
    assert np.array_equal(data.dirty, corrupt(clean, errors, noise, seed).dirty)
    assert not np.array_equal(data.error, corrupt(clean, errors, noise, seed + 1).error)


def test_split_has_every_row_once() -> None:
    data = synthetic_shapes(500, seed=3)
    parts = split(data, seed=3)
    assert [len(part) for part in (parts.train, parts.validation, parts.test)] == [400, 50, 50]
    rows = np.concatenate([part.dirty for part in (parts.train, parts.validation, parts.test)]).reshape(500, -1)
    assert np.array_equal(np.sort(rows.sum(1)), np.sort(data.dirty.reshape(500, -1).sum(1)))
    assert np.array_equal(np.unique(rows, axis=0), np.unique(data.dirty.reshape(500, -1), axis=0))


def test_trusted_sets_are_right_and_nested() -> None:
    data = synthetic_shapes(3000, seed=4)
    before = None
    for per_class in (5, 10, 25, 50):
        y = trusted_labels(data, per_class, seed=4)
        labelled = y >= 0
        assert labelled.sum() == 8 * per_class
        assert np.array_equal(y[labelled] == 0, data.is_outlier[labelled])
        for k in range(4):
            assert (labelled & (data.error == k)).sum() == per_class
            assert (labelled & (data.data_class == k) & ~data.is_outlier).sum() == per_class
        if before is not None:
            assert (y[before] >= 0).all()
        before = labelled


def test_published_table_is_complete() -> None:
    assert set(TABLE) == {"shapes", "fashion", "frey"}
    assert all(len(models) == 6 for models in TABLE.values())


@given(st.integers(0, 10_000))
def test_squares_do_not_overlap_and_lie_inside(seed: int) -> None:
    errors = squares(28, 20, (0.0, 256.0), seed)
    assert len(errors) == 4
    assert sum(error.cells.astype(int) for error in errors).max() == 1
    for error in errors:
        rows, columns = np.nonzero(error.cells)
        assert len(rows) == 36
        assert np.ptp(rows) == np.ptp(columns) == 5
        assert error.value in (0.0, 256.0)
    assert [e.value for e in squares(28, 20, (0.0, 256.0), seed)] == [e.value for e in errors]


def test_colours_and_places_are_drawn_by_the_seed() -> None:
    values = [tuple(line.value for line in coloured(lines(), (0.0, 1.0), seed)) for seed in range(40)]
    assert len(set(values)) > 8
    places = {tuple(np.flatnonzero(squares(28, 28, (0.0,), seed)[0].cells)) for seed in range(40)}
    assert len(places) > 30


def test_frey_faces(data_folder: Path) -> None:
    data = frey_faces(seed=1)
    assert data.dirty.shape == (1965, 28, 20)
    assert data.is_outlier.sum() == pytest.approx(0.35 * 1965, abs=1)
    assert data.dirty.max() <= 256
    assert [len(part.dirty) for part in vars(split(data, 1)).values()] == [1572, 196, 197]


def test_frey_faces_from_the_original_file_are_the_same(
    data_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    images = frey_images()
    savemat(tmp_path / "frey_rawface.mat", {"ff": images.reshape(1965, 560).T})
    monkeypatch.setenv("UNBLEMISH_DATA", str(tmp_path))
    assert np.array_equal(frey_images(), images)
    assert [(s.place, s.state) for s in sources() if s.dataset == "Frey-Faces"] == [
        (str(tmp_path / "frey_rawface.mat"), "checked")
    ]


@pytest.mark.skipif(not DEBIAN_FASHION.is_dir(), reason="Debian's package dataset-fashion-mnist is not installed")
def test_fashion_mnist() -> None:
    parts = fashion_mnist(seed=1)
    assert [len(part) for part in (parts.train, parts.validation, parts.test)] == [54_000, 6_000, 10_000]
    assert len(parts.train.errors) == 8
    # black on black changes nothing, so not every chosen row becomes an outlier
    assert 0.25 < parts.train.is_outlier.mean() <= 0.35
    assert set(parts.train.data_class) == set(range(10))
    assert (trusted_labels(parts.train, 10, 1) >= 0).sum() == 180


# where the raw data are


@pytest.fixture
def nowhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """No dataset is to be found; returns an empty folder that is looked in."""
    monkeypatch.setenv("UNBLEMISH_DATA", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(sources_module, "DEBIAN_FASHION", tmp_path / "none")
    return tmp_path


def write_idx(folder: Path, name: str, array: NDArray[np.uint8], *, packed: bool = True) -> bytes:
    content = bytes([0, 0, 8, array.ndim]) + np.array(array.shape, ">i4").tobytes() + array.tobytes()
    folder.mkdir(parents=True, exist_ok=True)
    (folder / (f"{name}.gz" if packed else name)).write_bytes(gzip.compress(content) if packed else content)
    return content


@pytest.mark.parametrize("packed", [True, False])
@pytest.mark.parametrize("inner", ["", "fashion-mnist"])
def test_idx_files_are_read_packed_or_not(nowhere: Path, packed: bool, inner: str) -> None:
    arrays = [np.arange(24, dtype=np.uint8).reshape(2, 3, 4), np.array([1, 2], np.uint8)] * 2
    for name, array in zip(FASHION_SHA256, arrays, strict=True):
        assert find_fashion() is None
        write_idx(nowhere / inner, name, array, packed=packed)
    assert find_fashion() == nowhere / inner
    assert all(np.array_equal(a, b) for a, b in zip(fashion_files(), arrays, strict=True))
    assert [s.state for s in sources()] == ["checked", "missing", "changed"]


def test_what_is_missing_is_named_with_what_provides_it(nowhere: Path) -> None:
    with pytest.raises(BadInput, match=r"Frey-Faces is not there: put frey_faces.npz .* --data or UNBLEMISH_DATA"):
        load("frey", 0)
    with pytest.raises(BadInput, match="apt-get install dataset-fashion-mnist"):
        load("fashion", 0)
    told = " ".join(CliRunner().invoke(app, ["bench", "data"]).output.split())
    assert told.count("missing") == 2
    assert "apt-get install dataset-fashion-mnist" in told
    assert "frey_rawface.mat" in told


@pytest.mark.parametrize("content", [b"", b"not an archive", b"PK\x03\x04 cut short"])
@pytest.mark.parametrize("name", ["frey_faces.npz", "frey_rawface.mat"])
def test_a_damaged_frey_file_is_refused(nowhere: Path, name: str, content: bytes) -> None:
    (nowhere / name).write_bytes(content)
    with pytest.raises(BadInput, match="damaged"):
        frey_images()


def test_frey_images_of_another_shape_are_refused(nowhere: Path) -> None:
    np.savez(nowhere / "frey_faces.npz", images=np.zeros((5, 28, 20), np.uint8))
    with pytest.raises(BadInput, match=r"holds \(5, 28, 20\)"):
        frey_images()


@pytest.mark.parametrize("content", [b"", b"no gzip", gzip.compress(b"abc"), gzip.compress(bytes(16))[:12]])
def test_a_damaged_idx_file_is_refused(nowhere: Path, content: bytes) -> None:
    for name in FASHION_SHA256:
        (nowhere / f"{name}.gz").write_bytes(content)
    with pytest.raises(BadInput, match="train-images-idx3-ubyte"):
        fashion_files()


def test_a_download_is_checked_before_it_is_kept(nowhere: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    served = nowhere / "served"
    known = {
        name: hashlib.sha256(write_idx(served, name, np.full((2, 2), k, np.uint8))).hexdigest()
        for k, name in enumerate(FASHION_SHA256)
    }
    monkeypatch.setattr(sources_module, "FASHION_URL", served.as_uri())
    with pytest.raises(BadInput, match="SHA-256 differs"):
        download_fashion()
    assert find_fashion() is None
    assert not list((nowhere / "cache").rglob("*.*"))
    monkeypatch.setattr(sources_module, "FASHION_SHA256", known)
    told = CliRunner().invoke(app, ["bench", "data", "--download"])
    assert told.exit_code == 0, told.output
    assert find_fashion() == nowhere / "cache" / "unblemish" / "fashion-mnist"
    monkeypatch.setattr(sources_module, "FASHION_URL", (nowhere / "gone").as_uri())
    with pytest.raises(BadInput, match="could not be fetched"):
        download_fashion()


# corruption of one's own data


@pytest.mark.parametrize("shape", [(6,), (4, 3), (4, 3, 2)])
def test_rows_of_any_shape_are_corrupted(shape: tuple[int, ...]) -> None:
    clean = np.random.default_rng(0).normal(size=(40, *shape))
    cells = np.zeros(shape, bool)
    cells[0] = True
    data = unblemish.benchmark.corrupt(clean, [unblemish.benchmark.Fill("first", cells, 9.0)], 0.5, seed=1)
    assert data.is_outlier.sum() == 20
    assert (data.dirty[data.is_outlier][:, cells] == 9.0).all()
    assert np.array_equal(data.dirty[:, ~cells], clean[:, ~cells])
    assert np.array_equal(data.clean, clean)


def test_a_corruption_that_cannot_be_is_refused() -> None:
    clean, fill = np.random.default_rng(0).normal(size=(5, 3)), Fill("a", np.array([True, False, False]), 0.0)
    with pytest.raises(BadInput, match="noise is 35"):
        corrupt(clean, [fill], 35)
    with pytest.raises(BadInput, match="'a' has cells of shape"):
        corrupt(clean[:, :2], [fill])
    with pytest.raises(BadInput, match="errors is empty"):
        corrupt(clean, [])


# errors of other kinds


def test_each_kind_of_error_does_what_it_says() -> None:
    clean = np.random.default_rng(0).integers(0, 200, size=(400, 4, 5)).astype(np.uint8)
    cells = np.zeros((4, 5), bool)
    cells[1:3, 1:3] = True
    elsewhere = np.zeros((4, 5), bool)
    elsewhere[0, 4] = True
    errors = [
        Affine("brighter", cells, 1.0, 30.0),
        Affine("blended", cells, 0.5, 0.5 * 180),
        Salt("salt", cells, 0.5, (0.0, 199.0)),
        OneOf("either", (Fill("a", cells, 7.0), Fill("b", elsewhere, 9.0))),
        Both("both", Fill("a", cells, 7.0), Fill("b", elsewhere, 9.0)),
    ]
    data = corrupt(clean, errors, 0.8, seed=1)
    assert data.dirty.dtype == np.uint8
    assert not (data.mask & ~(cells | elsewhere)).any()

    def inside(k: int, where: Array) -> tuple[Array, Array]:
        return data.dirty[data.error == k][:, where].astype(float), clean[data.error == k][:, where].astype(float)

    dirty, was = inside(0, cells)
    np.testing.assert_array_equal(dirty, np.minimum(was + 30, clean.max()))
    dirty, was = inside(1, cells)
    np.testing.assert_allclose(dirty, 0.5 * was + 90, atol=0.51)
    dirty, was = inside(2, cells)
    assert np.isin(dirty[dirty != was], [0, clean.max()]).all()
    assert 0.4 < (dirty != was).mean() < 0.6
    either = (data.dirty[data.error == 3][:, cells] == 7).all(1)
    other = data.dirty[data.error == 3][:, 0, 4] == 9
    assert (either | other).all()
    assert 0.3 < either.mean() < 0.7
    assert (inside(4, cells)[0] == 7).all()
    assert (inside(4, elsewhere)[0] == 9).all()


# the baseline that counts


def test_counting_finds_what_repeats_and_fills_in_the_gaussian_conditional() -> None:
    rng = np.random.default_rng(0)
    clean = rng.normal(size=(900, 3)) @ rng.normal(size=(3, 12)) + 0.1 * rng.normal(size=(900, 12))
    cells = np.isin(np.arange(12), [2, 3, 4, 5, 6])
    data = corrupt(clean, [Fill("stuck", cells, 3.0)], 0.3, seed=0)
    counting = Counting().fit(data.dirty)
    assert [mark.cells.tolist() for mark in counting.marks] == [[2, 3, 4, 5, 6]]
    np.testing.assert_array_equal(counting.outlier_score(data.dirty), data.is_outlier)

    standard = counting.schema_.standardised(data.dirty[~data.is_outlier])
    covariance = np.cov(standard.T)
    covariance += 0.01 * np.trace(covariance) / 12 * np.eye(12)
    precision = np.linalg.inv(covariance)  # E[x_M | x_O] = mu_M - P_MM^-1 P_MO (x_O - mu_O)
    mean = standard.mean(0)
    row = np.flatnonzero(data.is_outlier)[0]
    other = counting.schema_.standardised(data.dirty[row : row + 1])[0][~cells] - mean[~cells]
    expected = mean[cells] - np.linalg.solve(precision[np.ix_(cells, cells)], precision[np.ix_(cells, ~cells)] @ other)
    repaired = counting.schema_.standardised(counting.repair(data.dirty))
    np.testing.assert_allclose(repaired[row, cells], expected, rtol=1e-8)
    np.testing.assert_allclose(repaired[:, ~cells], counting.schema_.standardised(data.dirty)[:, ~cells])


def test_found_patterns_are_counted_against_the_truth() -> None:
    data = corrupt(np.random.default_rng(0).random((300, 10)), [Fill("a", np.arange(10) < 4, 9.0)], 0.5, seed=0)

    def found(cells: list[int]) -> Pattern:
        k = len(cells)
        return Pattern(np.array(cells), np.zeros(k, np.float32), np.zeros(k, np.float32), True, 0, 0, 1.0)

    assert found_patterns([found([0, 1, 2, 3])], data) == {
        "patterns_found": 1.0, "patterns_overlap": 1.0, "patterns_false": 0,
    }  # fmt: skip
    figures = found_patterns([found([0, 1, 2]), found([7, 8])], data)
    assert figures == {"patterns_found": 1.0, "patterns_overlap": 0.75, "patterns_false": 1}
    assert found_patterns([], data)["patterns_found"] == 0
