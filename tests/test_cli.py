"""The path a user takes through the commands, and what stops them halfway."""

from __future__ import annotations

import csv
import hashlib
import io
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable
from importlib.metadata import entry_points
from pathlib import Path
from typing import IO, Any

import numpy as np
import pytest
from numpy.typing import NDArray

import unblemish
from unblemish import Cleaner, Patch, cli, progress

Array = NDArray[Any]

ROWS = 60
COMMAND = [sys.executable, "-c", "from unblemish.cli import main; main()"]
ONE_THREAD = {**os.environ, "OMP_NUM_THREADS": "1"}  # as here (conftest): another number adds up in another order
POSIX = pytest.mark.skipif(os.name != "posix", reason="signals")


def data() -> Array:
    """60 grey images of 8x8 with noise, every third one crossed by a bright column; -0.0 among the cells."""
    rng = np.random.default_rng(0)
    X = np.round(np.linspace(0, 1, 8)[:, None] + rng.normal(0, 0.1, (ROWS, 8, 8)), 3).astype(np.float32)
    X[::3, :, 4] = 4.0
    X[1, 0, 0] = -0.0
    return X


def labels() -> str:
    kinds = ("outlier", "inlier", "")
    lines = [f"{row},{kinds[row % 3]}" for row in range(30) if kinds[row % 3]]
    return "\n".join(["row,label", *lines, ""])


FIT = ["fit", "X.npy", "--labels", "labels.csv", "--out", "model", "--epochs", "2", "--folds", "0"]
CLEAN = ["clean", "X.npy", "--model", "model", "--out", "clean.npy"]

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What a user starts with, as the current folder."""
    np.save(tmp_path / "X.npy", data())
    (tmp_path / "labels.csv").write_text(labels())
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """The command within this process: (exit code, stdout, stderr)."""

    def run(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["unblemish", *arguments])
        capsys.readouterr()
        try:
            cli.main()
        except SystemExit as ended:  # not pytest.raises: it would keep the frames alive, and with them the training
            code = ended.code
        out, err = capsys.readouterr()
        return (code if isinstance(code, int) else 0 if code is None else 1), out, err

    return run


def succeed(run: Run, *arguments: str) -> str:
    code, out, err = run(*arguments)
    assert code == 0, err
    return out


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def weights(folder: Path) -> str:
    """The name of the weights, which is a digest of them."""
    (path,) = folder.glob("weights-*.safetensors")
    return path.name


def same_bits(a: Array, b: Array) -> bool:
    return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()


def scores() -> dict[str, Array]:
    """The columns of clean.scores.csv in the current folder."""
    text = Path("clean.scores.csv").read_bytes().decode()
    records = list(csv.DictReader(io.StringIO(text, newline="")))
    return {name: np.array([float(record[name]) for record in records]) for name in records[0]}


# the path


def test_from_data_to_clean_data_and_back(here: Path, run: Run) -> None:
    X, before = data(), digest(here / "X.npy")
    said = succeed(run, *FIT)
    assert "unblemish clean X.npy --model model" in said  # the next step, ready to be copied
    assert names(here) == ["X.npy", "labels.csv", "model"]  # no checkpoint is left

    said = succeed(run, "info", "model")
    for word in ("clsvae", "8 x 8", "float32", "2 epochs", "threshold", "trusted"):
        assert word in said

    said = succeed(run, *CLEAN)
    assert names(here) == ["X.npy", "clean.npy", "clean.patch.npz", "clean.scores.csv", "labels.csv", "model"]
    assert digest(here / "X.npy") == before

    cleaned, columns = np.load("clean.npy"), scores()
    score, flagged = columns["outlier_score"], columns["is_outlier"] == 1
    assert columns["row"].tolist() == list(range(ROWS))
    report = Cleaner.load("model").clean(X)  # the command adds nothing to the library, and takes nothing away
    assert np.array_equal(score, report.outlier_score)
    assert np.array_equal(flagged, score >= report.threshold)
    assert same_bits(cleaned, report.repaired)
    assert f"{flagged.sum()} of {ROWS} rows" in said

    assert same_bits(cleaned[~flagged], X[~flagged])
    patch = Patch.read(here / "clean.patch.npz")
    assert same_bits(patch.undo(cleaned), X)
    assert set(patch.row) <= set(np.flatnonzero(flagged))
    assert np.array_equal(np.bincount(patch.row, minlength=ROWS), columns["cells_changed"])
    assert np.array_equal(patch.score, score[patch.row])


@pytest.mark.parametrize("order", ["C", "F"])
def test_some_rows_are_repaired_and_undone(here: Path, run: Run, order: Any) -> None:
    """After two epochs the model's own threshold may flag all rows or none: this one flags a third."""
    X = np.asarray(data(), order=order)
    np.save("X.npy", X)
    succeed(run, *FIT)
    level = float(np.quantile(Cleaner.load("model").outlier_score(X), 2 / 3))
    said = succeed(run, *CLEAN, "--threshold", repr(level))
    columns, cleaned = scores(), np.load("clean.npy")
    flagged = columns["is_outlier"] == 1
    assert 0 < flagged.sum() < ROWS
    assert np.array_equal(flagged, columns["outlier_score"] >= level)
    assert f"{flagged.sum()} of {ROWS} rows" in said
    assert same_bits(cleaned[~flagged], X[~flagged])
    assert (columns["cells_changed"][~flagged] == 0).all()
    assert (columns["cells_changed"][flagged] > 0).all()
    assert same_bits(Patch.read(here / "clean.patch.npz").undo(cleaned), X)


def test_a_threshold_nothing_reaches_changes_nothing(here: Path, run: Run) -> None:
    succeed(run, *FIT)
    said = succeed(run, *CLEAN, "--threshold", "1")
    assert "Nothing was changed" in said
    assert same_bits(np.load("clean.npy"), data())
    assert len(Patch.read(here / "clean.patch.npz")) == 0
    said = succeed(run, *CLEAN, "--threshold", "0", "--force")
    assert f"{ROWS} of {ROWS} rows" in said
    assert (scores()["is_outlier"] == 1).all()


def test_npz_gives_the_same_as_npy(here: Path, run: Run) -> None:
    np.savez("one.npz", X=data())
    np.savez_compressed("two.npz", train=data(), other=np.zeros((3, 3)))
    succeed(run, *FIT)
    succeed(run, "fit", "one.npz", *FIT[2:], "--out", "model-one")
    succeed(run, "fit", "two.npz", *FIT[2:], "--array", "train", "--out", "model-two")
    assert weights(here / "model") == weights(here / "model-one") == weights(here / "model-two")
    succeed(run, *CLEAN)
    succeed(run, "clean", "two.npz", "--array", "train", *CLEAN[2:], "--out", "clean-two.npy")
    assert same_bits(np.load("clean.npy"), np.load("clean-two.npy"))


@pytest.mark.parametrize("name", ["clsvae-nodc", "ccvae", "vaegmm", "cvae", "vae", "vae-l2"])
def test_every_model_takes_the_path(here: Path, run: Run, name: str) -> None:
    if name == "cvae":
        lines = [f"{row},{int(row % 3 > 0)}" for row in range(ROWS)]
        (here / "labels.csv").write_text("\n".join(["row,label", *lines]))
    succeed(run, *FIT, "--model", name)
    assert name in succeed(run, "info", "model")
    succeed(run, *CLEAN)
    assert same_bits(Patch.read(here / "clean.patch.npz").undo(np.load("clean.npy")), data())


def test_options_reach_the_model(here: Path, run: Run) -> None:
    np.save("X.npy", np.random.default_rng(0).random((ROWS, 16, 16)))
    said = succeed(run, *FIT, "--epochs", "3", "--seed", "5", "--torso", "conv", "--folds", "2", "--device", "cpu")
    cleaner = Cleaner.load("model")
    wanted = {"epochs": 3, "seed": 5, "torso": "conv", "folds": 2, "device": "cpu", "model": "clsvae"}
    assert {name: cleaner.get_params()[name] for name in wanted} == wanted
    assert len(cleaner.curve_) == 3
    assert "2-fold cross-validation" in said


def test_the_seed_decides(here: Path, run: Run) -> None:
    for name, seed in (("a", "3"), ("b", "3"), ("c", "4")):
        succeed(run, *FIT, "--out", name, "--seed", seed)
    assert weights(here / "a") == weights(here / "b") != weights(here / "c")


def test_version(run: Run) -> None:
    assert succeed(run, "--version").strip() == f"unblemish {unblemish.__version__}"


def test_the_command_is_installed() -> None:
    (script,) = (e for e in entry_points(group="console_scripts") if e.name == "unblemish")
    assert script.load() is cli.main


# stopped halfway


def _interrupt_after(steps: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C while the progress is drawn, which is outside the training loop."""
    honest = progress.bar

    def bar(training: Iterable[Any], *arguments: Any) -> Any:
        for count, step in enumerate(honest(iter(training), *arguments), 1):
            yield step
            if count == steps:
                raise KeyboardInterrupt

    monkeypatch.setattr(progress, "bar", bar)


@pytest.mark.parametrize("steps", [1, 4, 6, 7])
def test_ctrl_c_while_progress_is_drawn(here: Path, run: Run, monkeypatch: pytest.MonkeyPatch, steps: int) -> None:
    """Within the fit (6 epochs), at its end, and in the cross-validation after it."""
    arguments = [*FIT, "--epochs", "6", "--folds", "2"]
    succeed(run, *arguments, "--out", "whole")
    with monkeypatch.context() as patched:
        _interrupt_after(steps, patched)
        code, _, err = run(*arguments)
    assert code == 130
    assert "run the same command again" in err
    assert names(here) == ["X.npy", "labels.csv", "model.checkpoint", "whole"]
    code, _, err = run(*arguments)
    assert code == 0
    epochs = [int(epoch) for epoch in re.findall(r"fit: epoch (\d+)", err)]
    assert epochs == list(range(steps + 1, 7))  # it went on, and did not start anew
    assert names(here) == ["X.npy", "labels.csv", "model", "whole"]
    assert weights(here / "model") == weights(here / "whole")
    assert (here / "model" / "model.json").read_bytes() == (here / "whole" / "model.json").read_bytes()


def test_force_starts_anew(here: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    arguments = [*FIT, "--epochs", "6"]
    with monkeypatch.context() as patched:
        _interrupt_after(3, patched)
        assert run(*arguments)[0] == 130
    code, _, err = run(*arguments, "--force")
    assert code == 0
    assert "fit: epoch 1 of 6" in err


def _start(*arguments: str) -> subprocess.Popen[str]:
    """The real command, in the background."""
    return subprocess.Popen(
        [*COMMAND, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=ONE_THREAD
    )


def _read_until(stream: IO[str], words: str, process: subprocess.Popen[str]) -> str:
    """What it says until it has said this. A process that never does is ended, and the test with it."""
    timer = threading.Timer(60, process.kill)
    timer.start()
    try:
        said = ""
        for line in stream:
            said += line
            if words in line:
                return said
    finally:
        timer.cancel()
    raise AssertionError(f"it ended without saying {words!r}: {said}")


# as many as leave no doubt that the signal arrives in the middle, and few enough to be run to their end
MANY = [*FIT, "--epochs", "120"]


@POSIX
def test_ctrl_c_in_a_real_process(here: Path, run: Run) -> None:
    before = digest(here / "X.npy")
    process = _start(*MANY)
    assert process.stderr is not None
    _read_until(process.stderr, "fit: epoch 12 of 120", process)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    assert "Traceback" not in err
    assert err.splitlines()[-1] == "Stopped; run the same command again to go on from there."
    assert names(here) == ["X.npy", "labels.csv", "model.checkpoint"]
    assert digest(here / "X.npy") == before

    done = subprocess.run([*COMMAND, *MANY], capture_output=True, text=True, timeout=120, check=False, env=ONE_THREAD)
    assert done.returncode == 0, done.stderr
    epochs = [int(epoch) for epoch in re.findall(r"fit: epoch (\d+)", done.stderr)]
    assert epochs[0] > 12  # it went on, and did not start anew
    assert epochs[-1] == 120
    assert names(here) == ["X.npy", "labels.csv", "model"]

    succeed(run, *MANY, "--out", "whole")
    assert weights(here / "model") == weights(here / "whole")


@POSIX
def test_kill_leaves_the_input_and_nothing_else(here: Path) -> None:
    before = digest(here / "X.npy")
    process = _start(*MANY)
    assert process.stderr is not None
    _read_until(process.stderr, "fit: epoch 12 of 120", process)
    process.kill()
    process.communicate(timeout=60)
    assert process.returncode == -signal.SIGKILL
    assert names(here) == ["X.npy", "labels.csv"]
    assert digest(here / "X.npy") == before


# imports


def _modules_after(code: str) -> set[str]:
    """The top-level modules that a fresh interpreter has after this."""
    show = "\nimport sys; print('modules:', *sorted({name.split('.')[0] for name in sys.modules}))"
    done = subprocess.run([sys.executable, "-c", code + show], capture_output=True, text=True, timeout=60, check=True)
    return set(done.stdout.rpartition("modules:")[2].split())


HEAVY = {"torch", "sklearn", "scipy", "matplotlib", "pandas", "polars", "safetensors"}
QUIET_MAIN = """
import sys
from unblemish.cli import main
sys.argv = ["unblemish", *{arguments!r}]
try:
    main()
except SystemExit as ended:
    assert not ended.code, ended.code
"""


@pytest.mark.parametrize("arguments", [["--help"], ["--version"], ["fit", "--help"], ["clean", "--help"]])
def test_help_does_not_wait_for_torch(arguments: list[str]) -> None:
    assert not _modules_after(QUIET_MAIN.format(arguments=arguments)) & (HEAVY | {"numpy"})


def test_import_does_not_wait_for_torch() -> None:
    assert not _modules_after("import unblemish; dir(unblemish)") & (HEAVY | {"numpy"})
    assert "torch" in _modules_after("import unblemish; unblemish.Cleaner")  # so the check can fail
