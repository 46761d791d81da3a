"""Bad input gets one clear sentence: of the library as BadInput, of the command line with exit code 2."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
import scipy.sparse
from numpy.typing import NDArray
from sklearn.exceptions import NotFittedError

from unblemish import BadInput, Cleaner, Patch, Report, cli
from unblemish.models import presets

Array = NDArray[Any]
Here = Path

ROWS, CELLS = 60, 12
LINUX = sys.platform == "linux"
COMMAND = [sys.executable, "-c", "from unblemish.cli import main; main()"]
ONE_THREAD = {**os.environ, "OMP_NUM_THREADS": "1"}  # small work: two threads would only wait for each other
# what to do: an imperative, or what there is to choose from
ADVICE = re.compile(
    r"\b(give|choose|use|label|convert|save|check|fit|restore|upgrade|keep|make|reshape|replace|remove|must be|"
    r"it needs|needs|it has|has rows|does not end in|free|lower|call)\b",
    re.IGNORECASE,
)


def table() -> Array:
    """60 rows of 12 cells; every third row has a wrong value in cell 4."""
    X = np.random.default_rng(0).normal(size=(ROWS, CELLS))
    X[::3, 4] = 9.0
    return X


def pictures(size: int = 8) -> Array:
    """60 binary images; every third one is crossed by a column."""
    X = (np.random.default_rng(0).random((ROWS, size, size)) < 0.3).astype(np.uint8)
    X[::3, :, 4] = 1
    return X


def some_labels() -> Array:
    """Ten labels of each kind."""
    y = np.full(ROWS, -1)
    y[0:30:3], y[1:30:3] = 0, 1
    return y


def labels_csv(y: Array) -> str:
    lines = [f"{row},{'inlier' if y[row] else 'outlier'}" for row in np.flatnonzero(y >= 0)]
    return "\n".join(["row,label", *lines, ""])


def put(value: Any, row: int = 7, cell: int = 3, of: Array | None = None) -> Array:
    """The data with one cell replaced."""
    X = (table() if of is None else of).copy()
    X.reshape(len(X), -1)[row, cell] = value
    return X


def fitted(X: Any = None, y: Any = None, **parameters: Any) -> Cleaner:
    """A fit that takes an instant."""
    cleaner = Cleaner(**{"epochs": 2, "folds": 0, **parameters})
    return cleaner.fit(table() if X is None else X, some_labels() if y is None else y)


def check_sentence(message: str, named: Sequence[str]) -> None:
    """One line, not too long to read, that names what is wrong and says what to do."""
    assert "\n" not in message
    assert 20 < len(message) < 400
    for name in named:
        assert name in message
    assert ADVICE.search(message), f"does not say what to do: {message}"


def check_refused(action: Callable[[], object], *named: str) -> None:
    with pytest.raises(BadInput) as caught:
        action()
    check_sentence(str(caught.value), named)


def listing(folder: Path) -> dict[str, str]:
    """Every file below, with what is in it."""
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else "folder"
        for path in folder.rglob("*")
    }


@pytest.fixture(scope="module")
def model() -> Cleaner:
    return fitted()


@pytest.fixture(scope="module")
def picture_model() -> Cleaner:
    return fitted(pictures())


# the library


def _with_label(value: Any) -> Array:
    """Labels, one of which is something else."""
    y: Array = some_labels().astype(object if isinstance(value, str) else type(value))
    y[5] = value
    return np.array(y.tolist()) if isinstance(value, str) else y


FITS = [
    # cells
    pytest.param(lambda: fitted(put(np.nan)), ["X", "NaN", "row 7", "cell 3"], id="NaN"),
    pytest.param(lambda: fitted(put(np.inf)), ["X", "inf", "row 7", "cell 3"], id="infinity"),
    pytest.param(lambda: fitted(put(-np.inf)), ["X", "inf", "row 7", "cell 3"], id="minus infinity"),
    pytest.param(
        lambda: fitted(put(np.nan, 7, 13, of=pictures().astype(np.float32))),
        ["NaN", "row 7", "cell 13"],
        id="NaN pixel",
    ),
    pytest.param(
        lambda: fitted(put(np.nan, 65_540, 1, of=np.ones((65_541, 2)))), ["row 65540", "cell 1"], id="NaN far down"
    ),
    pytest.param(lambda: fitted(put(1e300)), ["X", "row 7", "cell 3"], id="too large to square"),
    pytest.param(lambda: fitted(np.full((ROWS, CELLS), 3.5)), ["X", "3.5"], id="all cells constant"),
    pytest.param(lambda: fitted(np.zeros((ROWS, 8, 8), np.uint8)), ["X", "0"], id="all pixels black"),
    # rows and shape
    pytest.param(lambda: fitted(table()[:1], [1]), ["X", "one row"], id="one row"),
    pytest.param(lambda: fitted(table()[:0], []), ["X", "(0, 12)"], id="no rows"),
    pytest.param(lambda: fitted(table()[:, :0]), ["X", "(60, 0)"], id="no cells"),
    pytest.param(lambda: fitted(np.zeros((ROWS, 0, 8))), ["X", "(60, 0, 8)"], id="images without pixels"),
    pytest.param(lambda: fitted(table()[:, 0]), ["X", "(60,)"], id="1-D"),
    pytest.param(lambda: fitted(np.float64(3.0)), ["X", "()"], id="0-D"),
    pytest.param(lambda: fitted(np.zeros((ROWS, 2, 2, 2, 2))), ["X", "(60, 2, 2, 2, 2)"], id="5-D"),
    pytest.param(lambda: fitted([[1.0, 2.0], [3.0]]), ["X"], id="ragged lists"),
    pytest.param(lambda: fitted(pd.Series(table()[:, 0])), ["X", "(60,)"], id="pandas Series"),
    pytest.param(lambda: fitted(pl.Series(table()[:, 0])), ["X", "(60,)"], id="polars Series"),
    pytest.param(lambda: fitted(pl.DataFrame(table()).lazy()), ["X"], id="polars LazyFrame"),
    # types
    pytest.param(lambda: fitted(table().astype(object)), ["X", "objects"], id="objects"),
    pytest.param(lambda: fitted(table().astype(complex)), ["X", "complex"], id="complex"),
    pytest.param(lambda: fitted(table().astype(str)), ["X", "text"], id="text"),
    pytest.param(lambda: fitted(table().astype(bytes)), ["X", "bytes"], id="bytes"),
    pytest.param(lambda: fitted(np.zeros((ROWS, 3), "M8[D]")), ["X", "dates"], id="dates"),
    pytest.param(lambda: fitted(np.zeros((ROWS, 3), "m8[s]")), ["X", "durations"], id="durations"),
    pytest.param(lambda: fitted(np.zeros((ROWS, 3), [("a", "f8")])), ["X"], id="records"),
    pytest.param(lambda: fitted(scipy.sparse.csr_matrix(table())), ["X", "sparse", "toarray()"], id="sparse matrix"),
    pytest.param(lambda: fitted(scipy.sparse.coo_array(table())), ["X", "sparse", "toarray()"], id="sparse array"),
    pytest.param(lambda: fitted("X.npy"), ["X", "text"], id="a path"),
    # what hides under a mask is not data
    pytest.param(lambda: fitted(np.ma.masked_array(table(), table() > 8)), ["X", "mask"], id="masked cells"),
    # frames
    pytest.param(
        lambda: fitted(pd.DataFrame(table()).astype({0: "int64"})), ["X", "float64", "int64"], id="pandas, mixed types"
    ),
    pytest.param(
        lambda: fitted(pl.DataFrame(table()).cast({"column_0": pl.Int32})),
        ["X", "Float64", "Int32"],
        id="polars, mixed types",
    ),
    pytest.param(lambda: fitted(pd.DataFrame({"a": ["x"] * ROWS})), ["X"], id="pandas, text"),
    pytest.param(lambda: fitted(pl.DataFrame({"a": ["x"] * ROWS})), ["X"], id="polars, text"),
    pytest.param(lambda: fitted(pd.DataFrame(put(np.nan))), ["X", "NaN", "row 7", "cell 3"], id="pandas, missing"),
    pytest.param(
        lambda: fitted(pl.DataFrame(put(np.nan)).fill_nan(None)), ["X", "NaN", "row 7", "cell 3"], id="polars, missing"
    ),
    pytest.param(
        lambda: fitted(pd.DataFrame(table(), columns=[0, *"bcdefghijkl"])), ["X", "columns"], id="names of two types"
    ),
    # labels
    pytest.param(lambda: Cleaner(epochs=2).fit(table()), ["y"], id="y None"),
    pytest.param(lambda: fitted(y=np.full(ROWS, -1)), ["y", "no labels"], id="y all unlabelled"),
    pytest.param(lambda: fitted(y=np.minimum(some_labels(), 0)), ["y", "one class", "20 rows"], id="outliers only"),
    pytest.param(
        lambda: fitted(y=np.where(some_labels() == 1, 1, -1)), ["y", "one class", "10 rows"], id="inliers only"
    ),
    pytest.param(lambda: fitted(y=_with_label(2)), ["y", "2", "row 5"], id="label 2"),
    pytest.param(lambda: fitted(y=_with_label(0.5)), ["y", "0.5", "row 5"], id="label a half"),
    pytest.param(lambda: fitted(y=_with_label(float("nan"))), ["y", "nan", "row 5"], id="label NaN"),
    pytest.param(lambda: fitted(y=_with_label("outlier")), ["y"], id="label text"),
    pytest.param(lambda: fitted(y=some_labels().astype(object)), ["y", "object"], id="label objects"),
    pytest.param(lambda: fitted(y=some_labels().astype(complex)), ["y", "complex"], id="label complex"),
    pytest.param(lambda: fitted(y=some_labels()[:-1]), ["y", "(59,)", "60 rows"], id="labels too few"),
    pytest.param(lambda: fitted(y=np.append(some_labels(), 1)), ["y", "(61,)", "60 rows"], id="labels too many"),
    pytest.param(lambda: fitted(y=some_labels()[:, None]), ["y", "(60, 1)"], id="labels as a column"),
    pytest.param(lambda: fitted(y=1), ["y", "()"], id="a single label"),
    pytest.param(lambda: fitted(y=[[1, 0], [1]]), ["y"], id="ragged labels"),
    pytest.param(lambda: fitted(y=some_labels(), model="cvae"), ["row 2", "no label"], id="CVAE, a label missing"),
    # parameters
    pytest.param(lambda: fitted(model="gan"), ["model", "'gan'", "clsvae"], id="model"),
    pytest.param(lambda: fitted(model=None), ["model", "None", "clsvae"], id="model None"),
    pytest.param(lambda: fitted(preset="mnist"), ["preset", "'mnist'", "shapes"], id="preset"),
    pytest.param(lambda: fitted(preset=5), ["preset", "5", "shapes"], id="preset a number"),
    pytest.param(
        lambda: fitted(model="vae", preset=presets.PAPER["shapes"]["clsvae"]), ["preset", "vae"], id="preset of another"
    ),
    pytest.param(lambda: fitted(torso="resnet"), ["torso", "'resnet'", "conv"], id="torso"),
    pytest.param(lambda: fitted(torso="conv"), ["torso", "images"], id="conv on a table"),
    pytest.param(lambda: fitted(pictures(), torso="conv"), ["torso", "8x8", "16x16"], id="conv on small images"),
    pytest.param(lambda: fitted(device="toaster"), ["device", "'toaster'"], id="device"),
    pytest.param(lambda: fitted(device="cuda:63"), ["device", "'cuda:63'"], id="device not there"),
    pytest.param(lambda: fitted(device="meta"), ["device", "'meta'"], id="device that holds no numbers"),
    pytest.param(lambda: fitted(device=None), ["device", "None"], id="device None"),
    pytest.param(lambda: fitted(epochs=0), ["epochs", "0"], id="epochs 0"),
    pytest.param(lambda: fitted(epochs=-3), ["epochs", "-3"], id="epochs negative"),
    pytest.param(lambda: fitted(epochs=1.5), ["epochs", "1.5"], id="epochs a fraction"),
    pytest.param(lambda: fitted(epochs=float("nan")), ["epochs", "nan"], id="epochs NaN"),
    pytest.param(lambda: fitted(epochs="2"), ["epochs", "'2'"], id="epochs text"),
    pytest.param(lambda: fitted(threshold=1.5), ["threshold", "1.5"], id="threshold above"),
    pytest.param(lambda: fitted(threshold=-0.1), ["threshold", "-0.1"], id="threshold below"),
    pytest.param(lambda: fitted(threshold=float("nan")), ["threshold", "nan"], id="threshold NaN"),
    pytest.param(lambda: fitted(threshold="0.5"), ["threshold", "'0.5'"], id="threshold text"),
    pytest.param(lambda: fitted(folds=1), ["folds", "1"], id="folds 1"),
    pytest.param(lambda: fitted(folds=-1), ["folds", "-1"], id="folds negative"),
    pytest.param(lambda: fitted(folds=2.5), ["folds", "2.5"], id="folds a fraction"),
    pytest.param(lambda: fitted(folds=None), ["folds", "None"], id="folds None"),
    pytest.param(lambda: fitted(seed=-1, folds=2), ["seed", "-1"], id="seed negative"),
    pytest.param(lambda: fitted(seed=2**64), ["seed", str(2**64)], id="seed too large"),
    pytest.param(lambda: fitted(seed=1.5), ["seed", "1.5"], id="seed a fraction"),
    pytest.param(lambda: fitted(seed="a"), ["seed", "'a'"], id="seed text"),
    pytest.param(lambda: fitted(seed=None), ["seed", "None"], id="seed None"),
]


@pytest.mark.parametrize(("action", "named"), FITS)
def test_fit_refuses(action: Callable[[], object], named: list[str]) -> None:
    check_refused(action, *named)


CLEANS = [
    pytest.param(lambda: table()[:, :5], ["X", "5", "12"], id="fewer cells"),
    pytest.param(lambda: table().reshape(ROWS, 3, 4), ["X", "12"], id="images for a table"),
    pytest.param(lambda: table().astype(np.float32), ["X", "float32", "astype('float64')"], id="another dtype"),
    pytest.param(lambda: table() > 0, ["X", "bool", "float64"], id="bool"),
    pytest.param(lambda: put(np.nan), ["X", "NaN", "row 7", "cell 3"], id="NaN"),
    pytest.param(lambda: put(np.inf), ["X", "inf", "row 7", "cell 3"], id="infinity"),
    pytest.param(lambda: put(1e300), ["X", "row 7", "cell 3"], id="too large for a float32"),
    pytest.param(lambda: table()[:0], ["X", "(0, 12)"], id="no rows"),
    pytest.param(lambda: table()[0], ["X", "(12,)"], id="a row by itself"),
    pytest.param(lambda: table().astype(object), ["X", "objects"], id="objects"),
    pytest.param(lambda: table().astype(complex), ["X", "complex"], id="complex"),
    pytest.param(lambda: scipy.sparse.csr_array(table()), ["X", "sparse"], id="sparse"),
    pytest.param(lambda: pd.DataFrame(table()).astype({0: "int64"}), ["X", "int64"], id="mixed frame"),
]


@pytest.mark.parametrize(("make", "named"), CLEANS)
@pytest.mark.parametrize("method", ["clean", "outlier_score", "predict", "repair", "transform"])
def test_fitted_model_refuses(model: Cleaner, method: str, make: Callable[[], Any], named: list[str]) -> None:
    check_refused(lambda: getattr(model, method)(make()), *named)


def test_columns_of_other_names_are_refused() -> None:
    frame = pd.DataFrame(table(), columns=list("abcdefghijkl"))
    cleaner = fitted(frame)
    check_refused(lambda: cleaner.clean(frame.rename(columns={"c": "sea"})), "X", "sea")


def test_grey_values_for_a_binary_model_are_refused(picture_model: Cleaner) -> None:
    check_refused(lambda: picture_model.clean(put(7, row=2, cell=9, of=pictures())), "7", "row 2", "cell 9", "binary")


@pytest.mark.parametrize("shape", [(8, 7), (64,), (8, 8, 1)])
def test_images_of_another_shape_are_refused(picture_model: Cleaner, shape: tuple[int, ...]) -> None:
    check_refused(lambda: picture_model.clean(np.zeros((ROWS, *shape), np.uint8)), "X", str(shape), "(8, 8)")


@pytest.mark.parametrize("threshold", [-0.01, 1.01, float("nan"), float("inf"), "0.5", None])
def test_report_refuses_a_threshold(model: Cleaner, threshold: Any) -> None:
    report: Report = model.clean(table())
    check_refused(lambda: report.at(threshold), "threshold", repr(threshold))


@pytest.mark.parametrize("method", ["clean", "outlier_score", "predict", "repair", "transform"])
def test_unfitted_use(method: str) -> None:
    with pytest.raises(NotFittedError):
        getattr(Cleaner(), method)(table())


def test_unfitted_save(tmp_path: Path) -> None:
    with pytest.raises(NotFittedError):
        Cleaner().save(tmp_path / "model")
    assert listing(tmp_path) == {}


def test_a_fit_that_was_left_is_unfitted() -> None:
    """`fitting` may be left at any time; what then is there cannot be used, and says so."""
    cleaner = Cleaner(epochs=5, folds=0)
    next(cleaner.fitting(table(), some_labels()))
    with pytest.raises(NotFittedError):
        cleaner.clean(table())


@pytest.mark.parametrize(
    ("X", "y"),
    [
        pytest.param(table()[:, :5], np.full(ROWS, 7), id="labels"),
        pytest.param(np.ones((ROWS, 5)), some_labels(), id="constant"),
        pytest.param(table()[:, :5], np.full(ROWS, -1), id="unlabelled"),
    ],
)
def test_a_refused_fit_leaves_the_earlier_one(X: Array, y: Array) -> None:
    cleaner = fitted()
    before = cleaner.outlier_score(table())
    with pytest.raises(BadInput):
        cleaner.fit(X, y)
    assert np.array_equal(cleaner.outlier_score(table()), before)


def test_what_looks_bad_but_is_not(model: Cleaner) -> None:
    constant = table()
    constant[:, [0, 5]] = 3.0, -1e9
    assert np.isfinite(fitted(constant).outlier_score(constant)).all()
    assert np.isfinite(fitted(constant).repair(constant)).all()
    assert len(model.clean(table()[:1]).repaired) == 1  # one row is too few to fit, and enough to clean
    assert fitted(table()[:2], [0, 1]).clean(table()).repaired.shape == (ROWS, CELLS)
    for vae in ("vae", "vae-l2"):
        assert Cleaner(vae, epochs=2).fit(table()).trusted_error_ is None  # no label is needed
    assert fitted(y=some_labels() + 0.0).predict(table()).shape == (ROWS,)
    every = np.arange(ROWS) % 3 != 0
    assert fitted(y=every, model="cvae").predict(table()).shape == (ROWS,)  # bool: True is an inlier


# the library's files


@pytest.mark.parametrize(
    ("place", "named"),
    [
        pytest.param("model", ["model", "exists", "force"], id="exists"),
        pytest.param("missing/model", ["missing", "is not a folder"], id="parent missing"),
        pytest.param("file/model", ["file", "is not a folder"], id="parent a file"),
        pytest.param("n" * 250, ["n" * 50], id="name too long"),
    ],
)
def test_save_refuses(model: Cleaner, tmp_path: Path, place: str, named: list[str]) -> None:
    (tmp_path / "model").mkdir()
    (tmp_path / "file").write_text("mine")
    before = listing(tmp_path)
    with pytest.raises(BadInput) as caught:
        model.save(tmp_path / place)
    assert all(name in str(caught.value) for name in named)
    assert "\n" not in str(caught.value)
    assert listing(tmp_path) == before


def test_save_does_not_replace_a_file(model: Cleaner, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    before = listing(tmp_path)
    check_refused(lambda: model.save(tmp_path / "file", force=True), "file")
    assert listing(tmp_path) == before


def test_a_checkpoint_that_cannot_be_written_is_known_before_training(tmp_path: Path) -> None:
    place = tmp_path / "missing" / "fit.checkpoint"
    cleaner = Cleaner(epochs=2, folds=0)
    check_refused(lambda: next(cleaner.fitting(table(), some_labels(), checkpoint=place)), str(place.parent))


@pytest.mark.parametrize("content", [b"", b"garbage", bytes(range(256)) * 40], ids=["empty", "text", "bytes"])
def test_a_damaged_checkpoint(tmp_path: Path, content: bytes) -> None:
    place = tmp_path / "fit.checkpoint"
    place.write_bytes(content)
    check_refused(lambda: Cleaner(epochs=2).fit(table(), some_labels(), checkpoint=place), str(place), "remove it")
    assert place.read_bytes() == content


def test_a_checkpoint_of_another_fit(tmp_path: Path) -> None:
    place = tmp_path / "fit.checkpoint"
    Cleaner(epochs=2, folds=0).fit(table(), some_labels(), checkpoint=place)
    before = place.read_bytes()
    for other, X in ((Cleaner(epochs=2, folds=0, seed=1), table()), (Cleaner(epochs=2, folds=0), put(5.0))):
        check_refused(lambda other=other, X=X: other.fit(X, some_labels(), checkpoint=place), str(place), "remove it")
    assert place.read_bytes() == before


def _patch_file(folder: Path) -> Path:
    place = folder / "clean.patch.npz"
    before = table()
    with place.open("wb") as file:
        Patch.between(before, before + 1, np.zeros(ROWS)).write(file)
    return place


@pytest.mark.parametrize("harm", ["missing", "garbage", "empty", "cut", "other arrays", "folder"])
def test_a_damaged_patch_file(tmp_path: Path, harm: str) -> None:
    place = _patch_file(tmp_path)
    content = place.read_bytes()
    place.unlink()
    match harm:
        case "garbage":
            place.write_bytes(b"garbage" * 50)
        case "empty":
            place.touch()
        case "cut":
            place.write_bytes(content[: len(content) // 2])
        case "other arrays":
            np.savez(place, X=table())
        case "folder":
            place.mkdir()
    check_refused(lambda: Patch.read(place), str(place))


# a model folder that is not what it should be


def _edit(folder: Path, change: Callable[[dict[str, Any]], Any]) -> None:
    about = json.loads((folder / "model.json").read_text())
    change(about)
    (folder / "model.json").write_text(json.dumps(about))


def _weights(folder: Path) -> Path:
    (path,) = folder.glob("weights-*.safetensors")
    return path


def _flip_byte(folder: Path) -> None:
    content = bytearray(_weights(folder).read_bytes())
    content[-5] ^= 1
    _weights(folder).write_bytes(content)


def _cut(path: Path, share: float) -> None:
    content = path.read_bytes()
    path.write_bytes(content[: int(len(content) * share)])


def _other_weights(folder: Path) -> None:
    other = folder.with_name("other")
    fitted(pictures(), model="vae").save(other)
    shutil.copy(_weights(other), _weights(folder))
    shutil.rmtree(other)


def _other_about(folder: Path) -> None:
    other = folder.with_name("other")
    fitted(seed=1).save(other)
    shutil.copy(other / "model.json", folder / "model.json")
    shutil.rmtree(other)


def _remove(folder: Path) -> None:
    shutil.rmtree(folder)


def _file_instead(folder: Path) -> None:
    _remove(folder)
    folder.write_text("a file")


def _empty(folder: Path) -> None:
    _remove(folder)
    folder.mkdir()


HARMS = [
    pytest.param(_remove, ["model", "not a model folder"], id="no folder"),
    pytest.param(_file_instead, ["model", "not a model folder"], id="a file"),
    pytest.param(_empty, ["model", "not a model folder", "model.json"], id="empty folder"),
    pytest.param(lambda f: (f / "model.json").write_bytes(b""), ["model.json", "damaged"], id="json empty"),
    pytest.param(lambda f: _cut(f / "model.json", 0.5), ["model.json", "damaged"], id="json cut"),
    pytest.param(lambda f: _cut(f / "model.json", 0.999), ["model.json", "damaged"], id="json cut late"),
    pytest.param(lambda f: (f / "model.json").write_bytes(bytes(range(256))), ["model.json"], id="json garbage"),
    pytest.param(lambda f: (f / "model.json").write_text("[]"), ["model.json", "damaged"], id="json a list"),
    pytest.param(lambda f: (f / "model.json").write_text("{}"), ["model.json", "damaged"], id="json of nothing"),
    pytest.param(lambda f: _edit(f, lambda a: a.update(colour=1)), ["model.json", "damaged"], id="unknown key"),
    pytest.param(
        lambda f: _edit(f, lambda a: a["parameters"].update(colour=1)), ["model.json"], id="unknown parameter"
    ),
    pytest.param(
        lambda f: _edit(f, lambda a: a["preset"]["values"].update(colour=1)), ["model.json"], id="unknown preset value"
    ),
    pytest.param(lambda f: _edit(f, lambda a: a["preset"].update(config="X")), ["model.json"], id="unknown config"),
    pytest.param(lambda f: _edit(f, lambda a: a.pop("threshold")), ["model.json", "damaged"], id="missing key"),
    pytest.param(lambda f: _edit(f, lambda a: a.update(threshold="high")), ["model.json"], id="threshold text"),
    pytest.param(lambda f: _edit(f, lambda a: a.update(format_version="x")), ["model.json"], id="version text"),
    pytest.param(
        lambda f: _edit(f, lambda a: a.update(weights="../weights-0123456789abcdef.safetensors")),
        ["model.json", "damaged"],
        id="weights elsewhere",
    ),
    pytest.param(lambda f: _edit(f, lambda a: a.update(format_version=2)), ["model", "newer", "upgrade"], id="newer"),
    pytest.param(
        lambda f: (f / "model.json").write_text('{"format_version": 7, "libraries": ["unblemish 3.0"]}'),
        ["model", "newer", "upgrade"],
        id="newer, of another form",
    ),
]
WEIGHT_HARMS = [
    pytest.param(lambda f: _weights(f).unlink(), ["weights-", "missing"], id="weights missing"),
    pytest.param(lambda f: _weights(f).write_bytes(b""), ["weights-", "damaged"], id="weights empty"),
    pytest.param(lambda f: _cut(_weights(f), 0.5), ["weights-", "damaged"], id="weights cut"),
    pytest.param(_flip_byte, ["weights-", "damaged"], id="weights flipped byte"),
    pytest.param(_other_weights, ["weights-", "damaged"], id="weights of another"),
    pytest.param(_other_about, ["weights-", "missing"], id="json of another"),
    pytest.param(
        lambda f: _edit(f, lambda a: a["preset"]["values"].update(clean_code=3)),
        ["damaged"],
        id="weights of another size",
    ),
]


@pytest.mark.parametrize(("harm", "named"), HARMS + WEIGHT_HARMS)
def test_load_refuses(model: Cleaner, tmp_path: Path, harm: Callable[[Path], object], named: list[str]) -> None:
    folder = tmp_path / "model"
    model.save(folder)
    harm(folder)
    before = listing(tmp_path)
    check_refused(lambda: Cleaner.load(folder), *named)
    assert listing(tmp_path) == before


# the command line


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory, model: Cleaner, picture_model: Cleaner) -> Path:
    """What a user has after a fit."""
    folder = tmp_path_factory.mktemp("made")
    np.save(folder / "X.npy", table())
    np.save(folder / "pictures.npy", pictures())
    (folder / "labels.csv").write_text(labels_csv(some_labels()))
    model.save(folder / "model")
    picture_model.save(folder / "picture-model")
    return folder


@pytest.fixture
def here(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of it, as the current folder."""
    folder = tmp_path / "here"
    shutil.copytree(made, folder)
    monkeypatch.chdir(folder)
    return folder


Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """The command within this process: (exit code, stdout, stderr). What `main` does not catch is raised."""

    def run(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["unblemish", *arguments])
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            cli.main()
        out, err = capsys.readouterr()
        code = ended.value.code
        return (code if isinstance(code, int) else 0 if code is None else 1), out, err

    return run


FIT = ["fit", "X.npy", "--labels", "labels.csv", "--out", "new", "--epochs", "2", "--folds", "0"]
CLEAN = ["clean", "X.npy", "--model", "model", "--out", "clean.npy"]
CLEANED = ["clean.npy", "clean.patch.npz", "clean.scores.csv"]


def check_end(code: int, err: str, *named: str) -> None:
    """Exit code 2, and on stderr one sentence, after whatever progress there was."""
    assert code == 2, err
    assert "Traceback" not in err
    *progress, last = err.splitlines()
    assert last.startswith("unblemish: ")
    assert not any(line.startswith("unblemish: ") for line in progress)
    check_sentence(last.removeprefix("unblemish: "), named)


def check_command_refused(run: Run, here: Path, arguments: Sequence[str], *named: str) -> None:
    before = listing(here)
    code, _, err = run(*arguments)
    assert listing(here) == before
    check_end(code, err, *named)


def _data(X: Any, name: str = "X.npy") -> Callable[[Path], None]:
    return lambda here: np.save(here / name, X)


def _labels(text: str | bytes) -> Callable[[Path], object]:
    content = text.encode() if isinstance(text, str) else text
    return lambda here: (here / "labels.csv").write_bytes(content)


def _objects(here: Path) -> None:
    np.save(here / "X.npy", table().astype(object), allow_pickle=True)


def _nothing(here: Path) -> None:
    pass


BAD_DATA = [
    pytest.param(_data(put(np.nan)), ["X", "NaN", "row 7", "cell 3"], id="NaN"),
    pytest.param(_data(put(np.inf)), ["X", "inf", "row 7", "cell 3"], id="infinity"),
    pytest.param(_data(table()[:0]), ["X"], id="no rows"),
    pytest.param(_data(table()[:, :0]), ["X", "(60, 0)"], id="no cells"),
    pytest.param(_data(table()[:, 0]), ["X", "(60,)"], id="1-D"),
    pytest.param(_data(np.float64(3)), ["X", "()"], id="0-D"),
    pytest.param(_data(np.zeros((ROWS, 1, 2, 2, 1))), ["(60, 1, 2, 2, 1)"], id="5-D"),
    pytest.param(_data(table().astype(complex)), ["complex"], id="complex"),
    pytest.param(_data(table().astype(str)), ["text"], id="text"),
    pytest.param(_data(np.zeros((ROWS, 3), "M8[D]")), ["dates"], id="dates"),
    pytest.param(_objects, ["X.npy", "Python objects"], id="objects"),
]


@pytest.mark.parametrize(("arrange", "named"), BAD_DATA)
@pytest.mark.parametrize("command", [FIT, CLEAN], ids=["fit", "clean"])
def test_commands_refuse_data(
    run: Run, here: Path, command: list[str], arrange: Callable[[Path], object], named: list[str]
) -> None:
    arrange(here)
    check_command_refused(run, here, command, *named)


@pytest.mark.parametrize(
    ("arrange", "named"),
    [
        pytest.param(_data(table()[:, :5]), ["X", "5", "12"], id="fewer cells"),
        pytest.param(_data(table().reshape(ROWS, 3, 4)), ["X", "12"], id="images for a table"),
        pytest.param(_data(table().astype(np.float32)), ["float32", "float64"], id="another dtype"),
    ],
)
def test_clean_refuses_other_data(run: Run, here: Path, arrange: Callable[[Path], object], named: list[str]) -> None:
    arrange(here)
    check_command_refused(run, here, CLEAN, *named)


def test_clean_refuses_grey_values_for_a_binary_model(run: Run, here: Path) -> None:
    np.save(here / "X.npy", put(7, row=2, cell=9, of=pictures()))
    arguments = ["clean", "X.npy", "--model", "picture-model", "--out", "clean.npy"]
    check_command_refused(run, here, arguments, "7", "row 2", "cell 9")


def _save_npz(here: Path, **arrays: Array) -> None:
    np.savez(here / "X.npz", **arrays)


def _cut_npz(share: float) -> Callable[[Path], None]:
    def arrange(here: Path) -> None:
        _save_npz(here, X=table())
        _cut(here / "X.npz", share)

    return arrange


def _flipped_npz(save: Callable[..., Any]) -> Callable[[Path], None]:
    def arrange(here: Path) -> None:
        save(here / "X.npz", X=table())
        content = bytearray((here / "X.npz").read_bytes())
        content[len(content) // 2] ^= 0xFF
        (here / "X.npz").write_bytes(content)

    return arrange


def _zip_of_text(here: Path) -> None:
    with zipfile.ZipFile(here / "X.npz", "w") as archive:
        archive.writestr("notes.txt", "hello")


def _npz_called_npy(here: Path) -> None:
    _save_npz(here, X=table())
    (here / "X.npz").replace(here / "X.npy")


def _npy_called_npz(here: Path) -> None:
    shutil.copy(here / "X.npy", here / "X.npz")


BAD_FILES = [
    pytest.param(_nothing, "absent.npy", ["absent.npy", "does not exist"], id="not there"),
    pytest.param(_nothing, "model", ["model", ".npy"], id="a folder"),
    pytest.param(lambda h: (h / "folder.npy").mkdir(), "folder.npy", ["folder.npy"], id="a folder called npy"),
    pytest.param(_nothing, "labels.csv", ["labels.csv", ".npy"], id="unknown suffix"),
    pytest.param(_save_npz, "X.npz", ["X.npz", "0 arrays"], id="npz of nothing"),
    pytest.param(
        lambda h: _save_npz(h, train=table(), test=table()),
        "X.npz",
        ["2 arrays", "train", "test", "--array"],
        id="which",
    ),
    pytest.param(
        lambda h: _save_npz(h, X=table().astype(object)), "X.npz", ["X.npz", "Python objects"], id="npz of objects"
    ),
    pytest.param(_cut_npz(0.0), "X.npz", ["X.npz", "damaged"], id="npz empty"),
    pytest.param(_cut_npz(0.1), "X.npz", ["X.npz", "damaged"], id="npz cut early"),
    pytest.param(_cut_npz(0.99), "X.npz", ["X.npz", "damaged"], id="npz cut late"),
    pytest.param(_flipped_npz(np.savez), "X.npz", ["X.npz", "damaged"], id="npz flipped byte"),
    pytest.param(_flipped_npz(np.savez_compressed), "X.npz", ["X.npz", "damaged"], id="npz flipped byte, compressed"),
    pytest.param(_zip_of_text, "X.npz", ["X"], id="zip of something else"),
    pytest.param(_npz_called_npy, "X.npy", ["X.npy"], id="npz called npy"),
    pytest.param(_npy_called_npz, "X.npz", ["X.npz"], id="npy called npz"),
    *(
        pytest.param(lambda h, n=n: (h / "X.npy").write_bytes((h / "X.npy").read_bytes()[:n]), "X.npy", named, id=name)
        for n, named, name in [
            (0, ["X.npy", "damaged"], "npy empty"),
            (3, ["X.npy", "damaged"], "npy cut in its magic"),
            (7, ["X.npy", "damaged"], "npy cut in its version"),
            (40, ["X.npy", "damaged"], "npy cut in its header"),
            (128, ["X.npy", "damaged"], "npy cut after its header"),
            (1000, ["X.npy", "damaged"], "npy cut in its rows"),
            (-1, ["X.npy", "damaged"], "npy without its last byte"),
        ]
    ),
    pytest.param(
        lambda h: (h / "X.npy").write_text("1.0,2.0\n3.0,4.0\n"), "X.npy", ["X.npy", "damaged"], id="npy that is text"
    ),
    pytest.param(
        lambda h: (h / "X.npy").write_bytes(bytes(range(256)) * 9), "X.npy", ["X.npy", "damaged"], id="npy garbage"
    ),
    pytest.param(
        lambda h: (h / "X.npy").write_bytes(b"\x93NUMPY\x01\x00" + bytes(range(255))),
        "X.npy",
        ["damaged"],
        id="bad header",
    ),
]


@pytest.mark.parametrize(("arrange", "name", "named"), BAD_FILES)
@pytest.mark.parametrize("command", [FIT, CLEAN], ids=["fit", "clean"])
def test_commands_refuse_files(
    run: Run, here: Path, command: list[str], arrange: Callable[[Path], object], name: str, named: list[str]
) -> None:
    arrange(here)
    check_command_refused(run, here, [command[0], name, *command[2:]], *named)


@pytest.mark.parametrize("command", [FIT, CLEAN], ids=["fit", "clean"])
def test_an_absent_array(run: Run, here: Path, command: list[str]) -> None:
    _save_npz(here, train=table(), test=table())
    arguments = [command[0], "X.npz", *command[2:], "--array", "dev"]
    check_command_refused(run, here, arguments, "X.npz", "'dev'", "train", "test")


@pytest.mark.parametrize("command", [FIT, CLEAN], ids=["fit", "clean"])
def test_an_array_name_for_a_file_without_names(run: Run, here: Path, command: list[str]) -> None:
    check_command_refused(run, here, [*command, "--array", "train"], "X.npy", "--array")


GOOD_LINES = "0,outlier\n1,inlier\n"
BAD_LABELS = [
    pytest.param(_labels("row,label\n0,outlier\n60,inlier\n"), ["labels.csv", "line 3", "60", "59"], id="row beyond"),
    pytest.param(_labels("row,label\n-1,outlier\n"), ["labels.csv", "line 2", "'-1'", "59"], id="row negative"),
    pytest.param(_labels("row,label\n1.5,outlier\n"), ["labels.csv", "line 2", "'1.5'"], id="row a fraction"),
    pytest.param(_labels("row,label\n1.0,outlier\n"), ["labels.csv", "line 2", "'1.0'"], id="row a float"),
    pytest.param(_labels("row,label\ntwo,outlier\n"), ["labels.csv", "line 2", "'two'"], id="row a word"),
    pytest.param(_labels("row,label\n,outlier\n"), ["labels.csv", "line 2", "''"], id="row empty"),
    pytest.param(_labels("row,label\n²,outlier\n"), ["labels.csv", "line 2"], id="row a superscript"),
    pytest.param(_labels(f"row,label\n{'9' * 5000},outlier\n"), ["labels.csv", "line 2"], id="row of 5000 digits"),
    pytest.param(_labels("row,label\n0,outlier\n1,fine\n"), ["labels.csv", "line 3", "'fine'"], id="unknown word"),
    pytest.param(_labels("row,label\n0,-1\n"), ["labels.csv", "line 2", "'-1'"], id="label -1"),
    pytest.param(_labels("row,label\n0,2\n"), ["labels.csv", "line 2", "'2'"], id="label 2"),
    pytest.param(_labels("row,label\n0,0.5\n"), ["labels.csv", "line 2", "'0.5'"], id="label a half"),
    pytest.param(_labels("row,label\n0,outlier\n1\n"), ["labels.csv", "line 3", "''"], id="label missing"),
    pytest.param(
        _labels("row,label\n4,inlier\n5,outlier\n4,outlier\n"), ["labels.csv", "row 4", "lines 2 and 4"], id="both"
    ),
    pytest.param(_labels("row,name\n0,outlier\n"), ["labels.csv", "row, name", "label"], id="no label column"),
    pytest.param(_labels("index,label\n0,outlier\n"), ["labels.csv", "index, label", "row"], id="no row column"),
    pytest.param(_labels(GOOD_LINES), ["labels.csv", "row and label"], id="no header"),
    pytest.param(_labels("row;label\n0;outlier\n"), ["labels.csv", "row and label"], id="semicolons"),
    pytest.param(_labels('row,"label\n' + GOOD_LINES * 20), ["labels.csv"], id="a quote never closed"),
    pytest.param(_labels("column," * 3000 + "\n"), ["labels.csv"], id="3000 columns"),
    pytest.param(_labels(""), ["labels.csv", "row and label"], id="empty file"),
    pytest.param(_labels("row,label\n"), ["labels.csv", "no labels"], id="header only"),
    pytest.param(_labels("row,label\n0,outlier\n3,outlier\n"), ["labels.csv", "one class"], id="outliers only"),
    pytest.param(_labels("row,label\n0,inlier\n3,inlier\n"), ["labels.csv", "one class"], id="inliers only"),
    pytest.param(_labels(bytes(range(256)) * 20), ["labels.csv", "not a CSV"], id="garbage"),
    pytest.param(_labels(b"\0" * 500), ["labels.csv"], id="zeros"),
    pytest.param(_labels(f"row,label\n{GOOD_LINES}".encode("utf-16")), ["labels.csv", "UTF-8"], id="UTF-16"),
    pytest.param(_labels(f"row,label\n0,{'x' * 200_000}\n"), ["labels.csv"], id="a field without end"),
    pytest.param(lambda h: (h / "labels.csv").unlink(), ["labels.csv", "does not exist"], id="not there"),
    pytest.param(
        lambda h: ((h / "labels.csv").unlink(), (h / "labels.csv").mkdir()), ["labels.csv", "not a CSV"], id="a folder"
    ),
]


@pytest.mark.parametrize(("arrange", "named"), BAD_LABELS)
def test_fit_refuses_labels(run: Run, here: Path, arrange: Callable[[Path], object], named: list[str]) -> None:
    arrange(here)
    check_command_refused(run, here, FIT, *named)


def test_cvae_names_the_row_without_a_label(run: Run, here: Path) -> None:
    check_command_refused(run, here, [*FIT, "--model", "cvae"], "row 2", "no label")


BAD_OPTIONS = [
    pytest.param([*FIT, "--model", "gan"], ["model", "'gan'", "clsvae"], id="model"),
    pytest.param([*FIT, "--torso", "resnet"], ["torso", "'resnet'"], id="torso"),
    pytest.param([*FIT, "--torso", "conv"], ["torso", "images"], id="conv on a table"),
    pytest.param(
        ["fit", "pictures.npy", *FIT[2:], "--torso", "conv"], ["torso", "8x8", "16x16"], id="conv on small images"
    ),
    pytest.param([*FIT, "--device", "toaster"], ["device", "'toaster'"], id="device"),
    pytest.param([*FIT, "--epochs", "0"], ["epochs", "0"], id="epochs 0"),
    pytest.param([*FIT, "--folds", "1"], ["folds", "1"], id="folds 1"),
    pytest.param([*FIT, "--seed", "-1", "--folds", "2"], ["seed", "-1"], id="seed negative"),
    pytest.param([*FIT, "--seed", str(2**64)], ["seed"], id="seed too large"),
    pytest.param([*CLEAN, "--threshold", "1.5"], ["threshold", "1.5"], id="threshold above"),
    pytest.param([*CLEAN, "--threshold", "nan"], ["threshold", "nan"], id="threshold NaN"),
    pytest.param([*CLEAN, "--out", "clean.npz"], ["clean.npz", ".npy"], id="clean to another suffix"),
    pytest.param([*FIT, "--out", "model"], ["model", "exists", "--force"], id="fit, output exists"),
    pytest.param([*FIT, "--out", "X.npy"], ["X.npy", "exists"], id="fit, output is the input"),
    pytest.param([*FIT, "--out", "X.npy", "--force"], ["X.npy"], id="fit, output is the input, forced"),
    pytest.param([*FIT, "--out", "labels.csv", "--force"], ["labels.csv"], id="fit, output is the labels, forced"),
    pytest.param([*FIT, "--out", "missing/new"], ["missing", "not a folder"], id="fit, no folder"),
    pytest.param([*FIT, "--out", "X.npy/new"], ["X.npy", "not a folder"], id="fit, folder is a file"),
    pytest.param([*FIT, "--out", "n" * 250], ["n" * 50], id="fit, name too long"),
    pytest.param([*CLEAN, "--out", "X.npy"], ["X.npy"], id="clean, output is the input"),
    pytest.param([*CLEAN, "--out", "X.npy", "--force"], ["X.npy", "input"], id="clean, output is the input, forced"),
    pytest.param([*CLEAN, "--out", "pictures.npy"], ["pictures.npy", "exists"], id="clean, output exists"),
    pytest.param([*CLEAN, "--out", "missing/clean.npy"], ["missing", "not a folder"], id="clean, no folder"),
    pytest.param([*CLEAN, "--out", "X.npy/clean.npy"], ["X.npy", "not a folder"], id="clean, folder is a file"),
    pytest.param(
        ["demo", "--epochs", "1", "--model", "gan", "--out", "demo"], ["model", "'gan'", "clsvae"], id="demo, model"
    ),
    pytest.param(["demo", "--epochs", "0", "--out", "demo"], ["epochs", "0"], id="demo, epochs 0"),
    pytest.param(["demo", "--epochs", "1", "--out", "X.npy"], ["X.npy"], id="demo, output is a file"),
    pytest.param(
        ["demo", "--epochs", "1", "--out", "X.npy", "--force"], ["X.npy"], id="demo, output is a file, forced"
    ),
    pytest.param(["demo", "--epochs", "1", "--out", "model"], ["model"], id="demo, output is another folder"),
]


@pytest.mark.parametrize(("arguments", "named"), BAD_OPTIONS)
def test_commands_refuse_options(run: Run, here: Path, arguments: list[str], named: list[str]) -> None:
    check_command_refused(run, here, arguments, *named)


@pytest.mark.parametrize(
    "arguments",
    [
        pytest.param([*FIT, "--epochs", "many"], id="epochs text"),
        pytest.param([*CLEAN, "--threshold", "high"], id="threshold text"),
        pytest.param(FIT[:2], id="labels not given"),
        pytest.param(CLEAN[:2], id="model not given"),
        pytest.param([*CLEAN, "--colour"], id="unknown option"),
        pytest.param(["polish"], id="unknown command"),
    ],
)
def test_wrong_usage(run: Run, here: Path, arguments: list[str]) -> None:
    """The option parser's own words, and nothing done."""
    before = listing(here)
    code, _, err = run(*arguments)
    assert code == 2
    assert "Usage" in err
    assert listing(here) == before


@pytest.mark.parametrize("name", CLEANED)
def test_clean_refuses_each_output_that_exists(run: Run, here: Path, name: str) -> None:
    (here / name).write_text("mine")
    check_command_refused(run, here, CLEAN, name, "exists", "--force")


@pytest.mark.parametrize("name", CLEANED)
def test_clean_does_not_replace_a_folder_by_a_file(run: Run, here: Path, name: str) -> None:
    (here / name).mkdir()
    check_command_refused(run, here, [*CLEAN, "--force"], name)


def test_clean_does_not_replace_its_input_by_a_patch(run: Run, here: Path) -> None:
    np.savez(here / "clean.patch.npz", X=table())
    check_command_refused(run, here, ["clean", "clean.patch.npz", *CLEAN[2:], "--force"], "clean.patch.npz", "input")


def test_clean_does_not_replace_its_input_by_a_link(run: Run, here: Path) -> None:
    (here / "clean.npy").symlink_to(here / "X.npy")
    check_command_refused(run, here, [*CLEAN, "--force"], "clean.npy", "input")


def test_force_replaces(run: Run, here: Path) -> None:
    for name in CLEANED:
        (here / name).write_text("old")
    before = listing(here)
    code, _, err = run(*CLEAN, "--force")
    assert code == 0, err
    after = listing(here)
    assert {name for name in after if after[name] != before.get(name)} == set(CLEANED)
    assert set(after) == set(before)

    code, _, err = run(*FIT, "--out", "model", "--force", "--seed", "5")
    assert code == 0, err
    assert Cleaner.load(here / "model").seed == 5
    assert len(list((here / "model").iterdir())) == 2
    assert {name for name in listing(here) if not name.startswith("model")} == {
        name for name in after if not name.startswith("model")
    }


def test_fit_into_the_current_folder(run: Run, here: Path) -> None:
    """A name that Path cannot extend: whatever is decided, it is no traceback."""
    before = listing(here)
    code, _, err = run(*FIT, "--out", ".", "--force")
    if code:
        assert listing(here) == before
        check_end(code, err, "--out")
    else:
        assert Cleaner.load(here).predict(table()).shape == (ROWS,)


@pytest.mark.parametrize(("harm", "named"), HARMS)
@pytest.mark.parametrize("command", [["clean", "X.npy", "--model", "model", "--out", "clean.npy"], ["info", "model"]])
def test_commands_refuse_a_model_folder(
    run: Run, here: Path, command: list[str], harm: Callable[[Path], object], named: list[str]
) -> None:
    harm(here / "model")
    check_command_refused(run, here, command, *named)


@pytest.mark.parametrize(("harm", "named"), WEIGHT_HARMS)
def test_clean_refuses_weights(run: Run, here: Path, harm: Callable[[Path], object], named: list[str]) -> None:
    harm(here / "model")
    check_command_refused(run, here, CLEAN, *named)


def test_a_checkpoint_in_the_way(run: Run, here: Path) -> None:
    (here / "new.checkpoint").write_text("mine")
    check_command_refused(run, here, FIT, "new.checkpoint", "remove it")


# places that cannot be written to


def _fail_to_write(monkeypatch: pytest.MonkeyPatch, modes: str, number: int = errno.EROFS) -> None:
    """Every file opened in one of these modes is on a read-only file system: root may write where others may not."""
    honest = Path.open

    def fail(self: Path, mode: str = "r", *arguments: Any, **options: Any) -> Any:
        if set(mode) & set(modes):
            raise OSError(number, os.strerror(number), str(self))
        return honest(self, mode, *arguments, **options)

    monkeypatch.setattr(Path, "open", fail)


@pytest.mark.parametrize(("command", "out"), [(FIT, "new"), (CLEAN, "clean.npy")], ids=["fit", "clean"])
@pytest.mark.parametrize("modes", ["wx", "x"], ids=["from the start", "after the check"])
def test_a_read_only_folder(
    run: Run, here: Path, monkeypatch: pytest.MonkeyPatch, command: list[str], out: str, modes: str
) -> None:
    _fail_to_write(monkeypatch, modes)
    before = listing(here)
    code, _, err = run(*command)
    assert listing(here) == before
    assert f".{out}." not in err  # the place that was given, not the temporary one
    check_end(code, err, out, "read-only")


@pytest.mark.parametrize("force", [False, True])
def test_saving_to_a_read_only_folder(model: Cleaner, here: Path, monkeypatch: pytest.MonkeyPatch, force: bool) -> None:
    _fail_to_write(monkeypatch, "wx")
    before = listing(here)
    check_refused(lambda: model.save(here / ("model" if force else "new"), force=force), "read-only")
    assert listing(here) == before


@pytest.mark.skipif(not LINUX, reason="other systems have no /proc and /sys")
@pytest.mark.parametrize("folder", ["/proc", "/sys"])
def test_a_folder_that_not_even_root_can_write_to(run: Run, here: Path, model: Cleaner, folder: str) -> None:
    if not Path(folder).is_dir():
        pytest.skip(f"there is no {folder}")
    check_command_refused(run, here, [*FIT, "--out", f"{folder}/new"], f"{folder}/new", "cannot be written")
    check_command_refused(run, here, [*CLEAN, "--out", f"{folder}/clean.npy"], f"{folder}/clean", "cannot be written")
    check_refused(lambda: model.save(f"{folder}/new"), f"{folder}/new", "cannot be written")


# runs several commands in one process, as importing takes most of the time, and tells where each one's words end
SEVERAL = """
import json, sys
from unblemish.cli import main
for arguments in json.loads(sys.argv[1]):
    sys.argv = ["unblemish", *arguments]
    try:
        main()
    except SystemExit as ended:
        print("\\nended", ended.code, file=sys.stderr)
"""


@pytest.mark.skipif(not LINUX, reason="RLIMIT_FSIZE")
def test_a_full_disk(here: Path) -> None:
    """The real thing: a process that cannot make a file larger than 5000 bytes, with output slightly larger."""
    import resource

    before = listing(here)
    done = subprocess.run(
        [sys.executable, "-c", SEVERAL, json.dumps([CLEAN, FIT])],
        cwd=here,
        env=ONE_THREAD,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (5000, 5000)),
    )
    clean, fit, _ = re.split(r"(?<=\nended \d)\n", done.stderr)
    left = set(listing(here)) - set(before)
    problems = []  # of both commands, so that one does not hide the other
    for out, err, said in (("clean.npy", clean, done.stdout), ("new", fit, "")):
        *words, code = err.removesuffix("\n").split("\nended ")
        try:
            assert ".tmp" not in err  # the place that was given is named, not the temporary one
            check_end(int(code), "\n".join(words).rstrip(), out, "file too large")
        except AssertionError as error:
            problems.append(f"{out}: {error}; it said: {err}{said}")
    assert not problems, "\n".join(problems)
    assert left == set()
    assert listing(here) == before


def test_a_true_process_refuses(here: Path) -> None:
    """What the in-process runs cannot see: the exit code and both streams of a real one."""
    before = listing(here)
    np.save(here / "other.npy", table()[:, :5])
    for arguments, named in (
        (["fit", "absent.npy", *FIT[2:]], ["absent.npy"]),
        (["clean", "other.npy", *CLEAN[2:]], ["X", "5", "12"]),
    ):
        done = subprocess.run(
            [*COMMAND, *arguments], cwd=here, env=ONE_THREAD, capture_output=True, text=True, timeout=60, check=False
        )
        assert done.stdout == ""
        check_end(done.returncode, done.stderr, *named)
    (here / "other.npy").unlink()
    assert listing(here) == before


def test_the_harms_are_real(here: Path, run: Run) -> None:
    """Without any harm every command of this file ends well, so that it is the harm that is refused."""
    assert run(*FIT)[0] == 0
    assert run(*CLEAN)[0] == 0
    assert run("info", "model")[0] == 0
    assert run("clean", "pictures.npy", "--model", "picture-model", "--out", "pictures-clean.npy")[0] == 0
    assert set(CLEANED) < set(listing(here))
