"""Runs, sweeps and tables: each run once, whatever stops them, and the figures they should hold."""

from __future__ import annotations

import csv
import json
import math
import os
import signal
import subprocess
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import unblemish.benchmark.lines as lines_module
from unblemish.benchmark import sweep, tables
from unblemish.benchmark.datasets import load
from unblemish.benchmark.published import TABLE
from unblemish.benchmark.runs import CHOICES, Run, Strip, result
from unblemish.cleaner import Cleaner
from unblemish.cli import app, main
from unblemish.errors import BadInput
from unblemish.models.clsvae import ClsvaeConfig

COMMAND = [sys.executable, "-c", "from unblemish.cli import main; main()"]
QUICK = [
    "bench",
    "sweep",
    "--dataset",
    "shapes",
    "--model",
    "vae-l2",
    "--model",
    "cvae",
    "--epochs",
    "1",
    "--seeds",
    "2",
]
POSIX = pytest.mark.skipif(os.name != "posix", reason="signals and locks")


def line(run: Run, **figures: float) -> dict[str, Any]:
    numbers = {"avpr": 0.9, "smse_dirty": 0.1, "smse_clean": 0.1, "fit_seconds": 1.0} | figures
    return {**asdict(run), **numbers, "config_hash": run.config_hash(), "version": "0"}


def write(path: Path, *lines: dict[str, Any]) -> Path:
    path.write_text("".join(json.dumps(each) + "\n" for each in lines))
    return path


# grids


def test_grids_hold_each_run_once() -> None:
    main_grid = sweep.grid("main")
    assert len(main_grid) == len(set(main_grid)) == 8 * 3 * 5
    full = sweep.grid("full")
    # three models ignore the number of labels: four noise levels each, the other five models have sixteen cases
    assert len(full) == len(set(full)) == (3 * 4 + 5 * 16) * 3 * 5
    assert set(main_grid) < set(sweep.grid("labels")) < set(full)
    assert {run.labels for run in full if run.model in ("vae-l2", "cvae", "counting")} == {None}
    some = sweep.grid("noise", ["frey"], ["ccvae"], 2, epochs=7)
    assert {(r.dataset, r.model, r.seed, r.epochs) for r in some} == {("frey", "ccvae", s, 7) for s in (0, 1)}
    assert sorted(r.noise for r in some) == sorted([15, 25, 35, 45] * 2)


def test_choices_are_made_the_other_way() -> None:
    def config(choice: str) -> ClsvaeConfig:
        made = Run("frey", choice=choice).preset(1572).config
        assert isinstance(made, ClsvaeConfig)
        return made

    assert set(CHOICES) == {
        "as published", "root of the distance correlation", "lambda / 128", "no stop-gradient", "float32",
        "one fit, good or bad",
    }  # fmt: skip
    assert config("root of the distance correlation").root_dc
    assert not config("no stop-gradient").stop_gradient
    weaker = Run("frey", choice="lambda / 128").preset(1572).recipe.weights["dependence"]
    assert (weaker.top, weaker.delay, weaker.ratio) == (1000 / 128, 10, 0.5)
    assert Run("frey", recipe="fast").preset(1572).recipe.bfloat16
    assert not Run("frey", recipe="fast", choice="float32").preset(1572).recipe.bfloat16
    assert Run("frey", choice="one fit, good or bad").preset(1572).recipe.fits == 1
    hashes = {Run("frey", recipe="fast", choice=choice).config_hash() for choice in CHOICES}
    assert len(hashes) == len(CHOICES)


# a sweep


def test_a_sweep_holds_the_lines_of_its_runs_and_makes_none_twice(tmp_path: Path) -> None:
    out = tmp_path / "runs.jsonl"
    first = CliRunner().invoke(app, [*QUICK, "--out", str(out), "--jobs", "2"])
    assert first.exit_code == 0, first.output
    made = out.read_bytes()
    found = sweep.read(out)
    assert sorted(map(sweep.run_of, found), key=str) == sorted(
        sweep.grid("main", ["shapes"], ["vae-l2", "cvae"], 2, 1), key=str
    )
    again = CliRunner().invoke(app, [*QUICK, "--out", str(out)])
    assert again.exit_code == 0, again.output
    assert out.read_bytes() == made
    pictures = {path.name for path in (tmp_path / "runs.strips").iterdir()}
    assert pictures == {sweep.run_of(each).strip_name() for each in found if each["seed"] == 0}

    one = CliRunner().invoke(
        app, ["bench", "run", "--dataset", "shapes", "--model", "cvae", "--seed", "1", "--epochs", "1", "--json"]
    )
    alone = json.loads(one.stdout)
    same = next(each for each in found if sweep.run_of(each) == sweep.run_of(alone))
    assert {k: v for k, v in alone.items() if k != "fit_seconds"} == {
        k: v for k, v in same.items() if k != "fit_seconds"
    }
    figures = {"avpr", "smse_dirty", "smse_clean", "smse_clean_outliers"}
    about = {"dataset", "model", "noise", "labels", "seed", "fit_seconds", "config_hash", "version"}
    assert about | figures | {f"train_{name}" for name in figures} <= set(alone)


def test_a_strip_holds_rows_of_each_kind_as_bytes(tmp_path: Path) -> None:
    parts = load("shapes", 0)
    some = parts.train[np.arange(200)]
    cleaner = Cleaner("vae", epochs=1).fit(some.dirty)
    Strip.of(cleaner, parts.test).write(tmp_path / "strip.npz")
    with np.load(tmp_path / "strip.npz", allow_pickle=False) as strip:
        assert strip["error"].tolist() == [-1, -1, 0, 0, 1, 1, 2, 2, 3, 3]
        assert {strip[name].dtype for name in ("dirty", "truth", "repair")} == {np.dtype(np.uint8)}
        assert {strip[name].shape for name in ("dirty", "truth", "repair")} == {(10, 28, 28)}
        rows = [int(np.flatnonzero(parts.test.error == kind)[0]) for kind in range(-1, 4)]
        np.testing.assert_array_equal(strip["dirty"][[0, 2, 4, 6, 8]], parts.test.dirty[rows] * 255)
        np.testing.assert_array_equal(strip["truth"][[0, 2, 4, 6, 8]], parts.test.clean[rows] * 255)
        np.testing.assert_allclose(strip["score"][::2], cleaner.outlier_score(parts.test.dirty[rows]), rtol=1e-4)
        expected = cleaner.repair(parts.test.dirty[rows], unrounded=True) * 255
        np.testing.assert_allclose(strip["repair"][::2], expected, atol=0.51)


@POSIX
def test_a_sweep_that_was_killed_goes_on(tmp_path: Path) -> None:
    out = tmp_path / "runs.jsonl"
    command = [*COMMAND, *QUICK, "--out", str(out), "--jobs", "1"]
    running = subprocess.Popen(command, stderr=subprocess.DEVNULL, start_new_session=True)
    deadline = time.monotonic() + 120
    while not (out.exists() and out.read_bytes().count(b"\n")):
        assert time.monotonic() < deadline, "no line came"
        assert running.poll() is None, "it ended before its first line could be seen"
        time.sleep(0.02)
    running.send_signal(signal.SIGKILL)
    running.wait()
    _wait_until_no_process_is_left(running.pid)
    before = out.read_bytes()
    out.write_bytes(before + b'{"dataset": "sha')  # what a kill in the middle of a write would leave
    assert subprocess.run(command, capture_output=True, check=False).returncode == 0
    after = out.read_bytes()
    assert after.startswith(before)
    assert len(sweep.read(out)) == len(set(map(sweep.run_of, sweep.read(out)))) == 4


def _wait_until_no_process_is_left(group: int) -> None:
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        try:
            os.killpg(group, 0)
        except ProcessLookupError:
            return
        time.sleep(0.05)
    raise AssertionError("a worker outlives the sweep that was killed")


@POSIX
def test_two_sweeps_do_not_share_a_file(tmp_path: Path) -> None:
    with lines_module._locked(tmp_path / "runs.jsonl"), pytest.raises(BadInput, match="being written by another sweep"):
        list(sweep.sweep([], tmp_path / "runs.jsonl", 1))


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("not json\n", "line 1, is not a line of a sweep"),
        ('{"dataset": "shapes"}\n', "line 1, is not a line of a sweep"),
        ("[]\n", "line 1, is not a line of a sweep"),
        (json.dumps(line(Run("shapes")) | {"config_hash": "0"}) + "\n", "line 1, was made with other settings"),
    ],
)
def test_a_file_that_is_not_of_this_sweep_is_refused(tmp_path: Path, text: str, named: str) -> None:
    out = tmp_path / "runs.jsonl"
    out.write_text(text)
    with pytest.raises(BadInput, match=named):
        sweep.still_to_do([Run("shapes")], out)
    assert out.read_text() == text


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["run", "--dataset", "mnist"], "--dataset is 'mnist'"),
        (["run", "--dataset", "shapes", "--model", "gan"], "--model is 'gan'"),
        (["run", "--dataset", "shapes", "--noise", "0"], "--noise is 0"),
        (["run", "--dataset", "shapes", "--labels", "0"], "--labels is 0"),
        (["run", "--dataset", "shapes", "--recipe", "slow"], "--recipe is 'slow'; choose fast or paper"),
        (["run", "--dataset", "shapes", "--epochs", "0"], "--epochs is 0"),
        (["sweep", "--out", "runs.jsonl", "--grid", "small"], "--grid is 'small'"),
        (["sweep", "--out", "runs.jsonl", "--jobs", "0"], "--jobs is 0"),
        (["sweep", "--out", "nowhere/runs.jsonl"], "nowhere"),
        (["table", "none.jsonl"], "none.jsonl"),
    ],
)
def test_commands_refuse_in_a_sentence(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    named: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["unblemish", "bench", *arguments])
    with pytest.raises(SystemExit) as ended:
        main()
    told = " ".join(capsys.readouterr().err.split())
    assert ended.value.code == 2, told
    assert named in told
    assert "Traceback" not in told
    assert list(tmp_path.iterdir()) == []


def test_training_rows_of_a_dataset_are_counted_right() -> None:
    """The step count and the settings' hash go by these; a fit that found another number would show it."""
    from unblemish.benchmark.runs import ROWS

    figures = result(Run("shapes", "vae-l2", epochs=1, labels=None))
    assert figures["config_hash"] == Run("shapes", "vae-l2", epochs=1, labels=None).config_hash()
    assert ROWS["shapes"] == 0.8 * 5000
    assert ROWS["frey"] == round(0.8 * 1965)


# tables


def runs_of_two_models() -> list[dict[str, Any]]:
    values = {"clsvae": (0.9, 1.0), "vae-l2": (0.5, 0.5)}
    return [
        line(Run.of("shapes", model, seed=seed), avpr=avpr, smse_dirty=1 - avpr, smse_clean=0.01)
        for model, two in values.items()
        for seed, avpr in enumerate(two)
    ]


def test_mean_and_standard_error() -> None:
    vae, clsvae = tables.entries(runs_of_two_models())
    assert (vae.run.model, clsvae.run.model) == ("vae-l2", "clsvae")  # the paper's order
    assert clsvae.seeds == 2
    mean, error = clsvae.ours["avpr"]
    assert (mean, error) == (pytest.approx(0.95), pytest.approx(0.05))  # deviation 0.0707 over the root of 2
    assert clsvae.published["avpr"] == TABLE["shapes"]["clsvae"].avpr
    assert math.isnan(tables.spread([1.0])[1])
    assert tables.shown((12.34, float("nan"))) == "12.34"


def test_markdown_has_published_beside_ours_and_best_in_bold(tmp_path: Path) -> None:
    path = write(tmp_path / "runs.jsonl", *runs_of_two_models())
    told = CliRunner().invoke(app, ["bench", "table", str(path)]).stdout
    assert "| CLSVAE | 2 | **0.950 ± 0.050** (0.990 ± 0.020) | **0.050 ± 0.050** (0.014 ± 0.008) |" in told
    assert "| VAE-L2 | 2 | 0.500 ± 0.000 (0.930 ± 0.030) | 0.500 ± 0.000 (0.049 ± 0.008) |" in told


def test_latex_is_balanced_and_csv_unrounded(tmp_path: Path) -> None:
    path = write(tmp_path / "runs.jsonl", *runs_of_two_models())
    told = CliRunner().invoke(app, ["bench", "table", str(path), "--format", "latex"]).stdout
    rows = [row for row in told.splitlines() if row.endswith("\\\\")]
    assert len(rows) == 3
    assert all(row.count("&") == 4 and row.count("$") % 2 == 0 and row.count("{") == row.count("}") for row in rows)
    assert "\\boldmath$0.950 \\pm 0.050$" in told
    told = CliRunner().invoke(app, ["bench", "table", str(path), "--format", "csv"]).stdout
    found = [row for row in csv.DictReader(told.splitlines()) if row["model"] == "clsvae" and row["figure"] == "avpr"]
    assert float(found[0]["mean"]) == pytest.approx(0.95)
    assert float(found[0]["published_mean"]) == 0.99


def test_what_varies_is_named_and_only_the_published_setting_has_published_figures() -> None:
    runs = [Run("shapes"), Run("shapes", recipe="fast"), Run("shapes", choice="lambda / 128"), Run("shapes", labels=5)]
    found = tables.entries([line(run) for run in runs])
    assert sorted(tables.names(found).values()) == [
        "CLSVAE, 10 labels, fast",
        "CLSVAE, 10 labels, paper",
        "CLSVAE, 10 labels, paper, lambda / 128",
        "CLSVAE, 5 labels, paper",
    ]
    assert [bool(entry.published) for entry in found] == [True, False, False, False]
