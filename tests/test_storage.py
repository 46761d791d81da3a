"""A saved model is the same model, on disk whole or not at all, and readable without pickle."""

from __future__ import annotations

import errno
import hashlib
import json
import pickle
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from numpy.typing import NDArray
from safetensors import safe_open

from unblemish import BadInput, Cleaner, Preset, TrustedError, storage
from unblemish.models import presets

Array = NDArray[Any]

ROWS = 60


def pictures() -> Array:
    """60 binary images of 8x8; every third one is crossed by a column."""
    X = (np.random.default_rng(0).random((ROWS, 8, 8)) < 0.3).astype(np.uint8)
    X[::3, :, 4] = 1
    return X


def table() -> Array:
    """60 rows of 12 cells; every third row has a wrong value in cell 4."""
    X = np.random.default_rng(0).normal(size=(ROWS, 12))
    X[::3, 4] = 9.0
    return X


def labels(model: str = "clsvae") -> Array:
    """Ten labels of each kind, or one for every row where a model needs them."""
    y = np.where(np.arange(ROWS) % 3 == 0, 0, 1)
    if model != "cvae":
        y[np.arange(ROWS) % 3 == 2], y[30:] = -1, -1
    return y


def fitted(model: str = "clsvae", X: Array | None = None, **parameters: Any) -> Cleaner:
    return Cleaner(model, **{"epochs": 2, "folds": 0, **parameters}).fit(pictures() if X is None else X, labels(model))


@pytest.fixture(scope="module")
def cleaner() -> Cleaner:
    return fitted()


def files(folder: Path) -> dict[str, str]:
    """Everything below a folder, hidden or not, and a digest of what is in it."""
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in folder.rglob("*")
        if path.is_file()
    }


def check_same(loaded: Cleaner, cleaner: Cleaner, X: Array) -> None:
    """Not close: equal, bit for bit."""
    assert loaded.get_params() == cleaner.get_params()
    assert loaded.threshold_ == cleaner.threshold_
    assert loaded.curve_ == cleaner.curve_
    assert loaded.trusted_error_ == cleaner.trusted_error_
    assert loaded.preset_ == cleaner.preset_
    assert loaded.schema_ == cleaner.schema_
    assert getattr(loaded, "n_features_in_", None) == getattr(cleaner, "n_features_in_", None)
    assert np.array_equal(loaded.outlier_score(X), cleaner.outlier_score(X))
    assert np.array_equal(loaded.repair(X), cleaner.repair(X))
    assert np.array_equal(loaded.repair(X, unrounded=True), cleaner.repair(X, unrounded=True))


# the same model


@pytest.mark.parametrize("make", [pictures, table])
@pytest.mark.parametrize("name", presets.NAMES)
def test_round_trip(name: str, make: Any, tmp_path: Path) -> None:
    X = make()
    cleaner = fitted(name, X)
    assert len(np.unique(cleaner.outlier_score(X))) > 1  # or else equal scores would show nothing
    assert len(cleaner.curve_) == 2
    cleaner.save(tmp_path / "model")
    check_same(Cleaner.load(tmp_path / "model"), cleaner, X)


@pytest.mark.parametrize(
    "parameters",
    [
        pytest.param({"threshold": 0.3, "seed": 7, "verbose": False, "epochs": 3}, id="all set"),
        pytest.param({"preset": "frey"}, id="the paper's preset"),
        pytest.param({"folds": 2}, id="cross-validated"),
        pytest.param({"model": "vae", "threshold": 0.25}, id="likelihood"),
    ],
)
def test_parameters_survive(parameters: dict[str, Any], tmp_path: Path) -> None:
    cleaner = fitted(**parameters)
    if "folds" in parameters:
        assert isinstance(cleaner.trusted_error_, TrustedError)
        assert cleaner.trusted_error_.folds == 2
    cleaner.save(tmp_path / "model")
    check_same(Cleaner.load(tmp_path / "model"), cleaner, pictures())


def test_a_convolutional_model_survives(tmp_path: Path) -> None:
    X = np.random.default_rng(0).integers(0, 256, (ROWS, 17, 19, 3), dtype=np.uint8)
    cleaner = fitted(X=X, torso="conv")
    cleaner.save(tmp_path / "model")
    check_same(Cleaner.load(tmp_path / "model"), cleaner, X)


@pytest.mark.parametrize("name", presets.NAMES)
def test_a_preset_of_one_s_own_survives(name: str, tmp_path: Path) -> None:
    paper = presets.PAPER["fashion"][name]
    own = Preset(paper.config, replace(paper.recipe, learning_rate=3e-3, batch_size=20, epochs=2, patience=5))
    cleaner = fitted(name, preset=own, epochs=None)
    cleaner.save(tmp_path / "model")
    loaded = Cleaner.load(tmp_path / "model")
    assert loaded.preset == own
    check_same(loaded, cleaner, pictures())
    again = Cleaner(**loaded.get_params()).fit(pictures(), labels(name))  # usable, not only equal
    assert np.array_equal(again.outlier_score(pictures()), cleaner.outlier_score(pictures()))


def test_a_frame_s_column_names_survive(tmp_path: Path) -> None:
    frame = pd.DataFrame(table(), columns=list("abcdefghijkl"))
    cleaner = Cleaner(epochs=2, folds=0).fit(frame, labels())
    cleaner.save(tmp_path / "model")
    loaded = Cleaner.load(tmp_path / "model")
    assert list(loaded.feature_names_in_) == list(frame.columns)
    check_same(loaded, cleaner, frame)
    pd.testing.assert_frame_equal(loaded.transform(frame), cleaner.transform(frame))


@pytest.mark.parametrize(
    "parameters",
    [
        pytest.param({"epochs": np.int64(2), "folds": np.int64(0)}, id="epochs and folds"),
        pytest.param({"seed": np.int64(3)}, id="seed"),
        pytest.param({"threshold": np.float32(0.25)}, id="threshold"),
        pytest.param({"verbose": np.bool_(False)}, id="verbose"),
        pytest.param({"device": torch.device("cpu")}, id="device"),
    ],
)
def test_numpy_s_and_torch_s_own_values_survive(parameters: dict[str, Any], tmp_path: Path) -> None:
    """A grid search hands out numpy's numbers."""
    cleaner = fitted(**parameters)
    cleaner.save(tmp_path / "model")
    loaded = Cleaner.load(tmp_path / "model")
    assert np.array_equal(loaded.outlier_score(pictures()), cleaner.outlier_score(pictures()))
    assert loaded.threshold_ == cleaner.threshold_


def test_saved_twice_is_the_same_file(cleaner: Cleaner, tmp_path: Path) -> None:
    cleaner.save(tmp_path / "one")
    Cleaner.load(tmp_path / "one").save(tmp_path / "two")
    assert files(tmp_path / "one") == files(tmp_path / "two")


@pytest.mark.parametrize("device", ["cuda", "cuda:63"])
def test_a_model_of_a_gpu_loads_onto_the_cpu(device: str, tmp_path: Path) -> None:
    if device == "cuda" and torch.cuda.is_available():
        pytest.skip("this machine has what the model asks for")
    cleaner = fitted()
    cleaner.set_params(device=device).save(tmp_path / "model")
    loaded = Cleaner.load(tmp_path / "model")
    assert loaded.device == device
    assert {p.device.type for p in loaded.model_.parameters()} == {"cpu"}
    check_same(loaded, cleaner, pictures())


def test_a_loaded_model_can_be_fitted_again(cleaner: Cleaner, tmp_path: Path) -> None:
    cleaner.save(tmp_path / "model")
    loaded = Cleaner.load(tmp_path / "model").fit(pictures(), labels())
    assert np.array_equal(loaded.outlier_score(pictures()), cleaner.outlier_score(pictures()))


# the files


def test_no_pickle(cleaner: Cleaner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is pickled when saving, nor unpickled when loading."""

    def refuse(*arguments: Any, **options: Any) -> Any:
        raise AssertionError("pickle was used")

    for name in ("dump", "dumps", "load", "loads", "Pickler", "Unpickler"):
        monkeypatch.setattr(pickle, name, refuse)
    monkeypatch.setattr(torch, "save", refuse)
    monkeypatch.setattr(torch, "load", refuse)
    cleaner.save(tmp_path / "model")
    check_same(Cleaner.load(tmp_path / "model"), cleaner, pictures())


@pytest.mark.parametrize("name", ["clsvae", "vae"])
def test_the_folder_is_json_and_safetensors(name: str, tmp_path: Path) -> None:
    cleaner = fitted(name)
    cleaner.save(tmp_path / "model")
    about = json.loads((tmp_path / "model" / "model.json").read_text("utf-8"))
    assert about["format_version"] == storage.FORMAT == 1
    assert sorted(files(tmp_path / "model")) == sorted(["model.json", about["weights"]])
    assert about["parameters"]["model"] == name
    assert about["threshold"] == cleaner.threshold_
    assert about["schema"]["shape"] == [8, 8]
    assert about["libraries"].keys() >= {"unblemish", "torch", "numpy"}
    assert len(about["curve"]) == 2
    with safe_open(tmp_path / "model" / about["weights"], framework="pt") as weights:
        names = set(weights.keys())
    assert names - {storage.RANKS} == set(cleaner.model_.state_dict())
    assert (storage.RANKS in names) == (name == "vae")


def test_an_int_for_a_float_in_the_json_is_read(cleaner: Cleaner, tmp_path: Path) -> None:
    """Another JSON writer may write 1.0 as 1."""
    cleaner.save(tmp_path / "model")
    path = tmp_path / "model" / "model.json"
    about = json.loads(path.read_text())
    path.write_text(json.dumps(about | {"threshold": 1}))
    assert Cleaner.load(tmp_path / "model").threshold_ == 1.0


# whole or not at all


def test_force_replaces_and_leaves_one_weights_file(cleaner: Cleaner, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    cleaner.save(folder)
    other = fitted(seed=1)
    with pytest.raises(BadInput, match="exists"):
        other.save(folder)
    check_same(Cleaner.load(folder), cleaner, pictures())
    other.save(folder, force=True)
    check_same(Cleaner.load(folder), other, pictures())
    assert len(files(folder)) == 2
    other.save(folder, force=True)  # over itself: the weights have the same name
    check_same(Cleaner.load(folder), other, pictures())
    assert len(files(tmp_path)) == 2


def _fail_at(call: int, monkeypatch: pytest.MonkeyPatch, error: BaseException) -> None:
    """The process ends, or the disk is full, when this file of the model is written."""
    honest, calls = storage.write_file, []

    def write_file(path: Path, content: bytes) -> None:
        calls.append(path)
        if len(calls) == call:
            raise error
        honest(path, content)

    monkeypatch.setattr(storage, "write_file", write_file)


@pytest.mark.parametrize("call", [1, 2])
def test_a_crash_while_replacing_leaves_the_old_model(
    cleaner: Cleaner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: int
) -> None:
    folder = tmp_path / "model"
    cleaner.save(folder)
    other = fitted(seed=1)
    with monkeypatch.context() as patched:
        _fail_at(call, patched, KeyboardInterrupt())
        with pytest.raises(KeyboardInterrupt):
            other.save(folder, force=True)
    check_same(Cleaner.load(folder), cleaner, pictures())
    other.save(folder, force=True)  # and what the crash left is no hindrance, and swept up
    check_same(Cleaner.load(folder), other, pictures())
    assert len(files(folder)) == 2


def test_what_a_kill_left_is_no_hindrance(cleaner: Cleaner, tmp_path: Path) -> None:
    """Between the two files nothing can tidy up: weights that model.json does not name are passed over, then swept."""
    folder = tmp_path / "model"
    cleaner.save(folder)
    (folder / "weights-0123456789abcdef.safetensors").write_bytes(b"half")
    check_same(Cleaner.load(folder), cleaner, pictures())
    cleaner.save(folder, force=True)
    assert len(files(folder)) == 2


@pytest.mark.parametrize("call", [1, 2])
def test_a_full_disk_while_replacing_leaves_nothing(
    cleaner: Cleaner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: int
) -> None:
    """An error, unlike a crash, leaves time to tidy up; the message says that it was done."""
    folder = tmp_path / "model"
    cleaner.save(folder)
    before = files(tmp_path)
    _fail_at(call, monkeypatch, OSError(errno.ENOSPC, "No space left on device"))
    with pytest.raises(BadInput, match="no space left"):
        fitted(seed=1).save(folder, force=True)
    assert files(tmp_path) == before


@pytest.mark.parametrize("call", [1, 2])
@pytest.mark.parametrize("error", [KeyboardInterrupt(), OSError(errno.ENOSPC, "No space left on device")])
def test_a_crash_while_creating_leaves_no_folder(
    cleaner: Cleaner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: int, error: BaseException
) -> None:
    _fail_at(call, monkeypatch, error)
    with pytest.raises((KeyboardInterrupt, BadInput)):
        cleaner.save(tmp_path / "model")
    assert list(tmp_path.iterdir()) == []


def test_a_copied_folder_works(cleaner: Cleaner, tmp_path: Path) -> None:
    """No path is stored: a folder can be moved, and saved under any name."""
    cleaner.save(tmp_path / "a model, v1.0")
    shutil.move(tmp_path / "a model, v1.0", tmp_path / "elsewhere")
    check_same(Cleaner.load(str(tmp_path / "elsewhere")), cleaner, pictures())
