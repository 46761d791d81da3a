"""The benchmark of speed works, and counts what it says it counts. No time is asserted."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn
from typer.testing import CliRunner

from unblemish.benchmark import speed, speed_report, textbook
from unblemish.benchmark.evaluate import Figures
from unblemish.benchmark.pool import results, workers
from unblemish.benchmark.roofline import best_times, products_of
from unblemish.benchmark.speed import Line
from unblemish.cli import app
from unblemish.models import presets
from unblemish.models.clsvae import ClsvaeConfig
from unblemish.models.recipe import Ramp, Recipe


def batch(rows: int = 8, cells: int = 12) -> tuple[torch.Tensor, torch.Tensor]:
    x = (torch.rand(rows, cells, generator=torch.Generator().manual_seed(0)) < 0.5).float()
    return x, torch.tensor([1.0, 0.0, -1.0, -1.0] * (rows // 4))


def test_operations_are_counted_from_the_sizes_of_the_layers() -> None:
    x, y = batch()
    products = products_of(textbook.TextbookVae(12, binary=True), x, y)
    encoder = [(12, 200), (200, 100), (100, 50), (50, 15), (50, 15)]
    decoder = [(15, 50), (50, 100), (100, 200), (200, 12)]
    assert sorted((p.inputs, p.outputs) for p in products) == sorted(encoder + decoder)
    by_hand = 2 * 8 * (3 * sum(a * b for a, b in encoder + decoder) - 12 * 200)  # no gradient of the data themselves
    assert sum(p.operations for p in products) == by_hand


def test_clsvae_decodes_twice_and_encodes_twice() -> None:
    x, y = batch()
    products = products_of(textbook.TextbookClsvae(12, ClsvaeConfig(), binary=True), x, y)
    assert [(p.inputs, p.outputs) for p in products].count((200, 12)) == 2
    assert [(p.inputs, p.outputs) for p in products].count((12, 200)) == 2


def copy_layers(source: nn.Module, target: nn.Module) -> None:
    sources, targets = ([m for m in module.modules() if isinstance(m, nn.Linear)] for module in (source, target))
    for one, other in zip(sources, targets, strict=True):
        other.load_state_dict(one.state_dict())


@pytest.mark.parametrize("binary", [True, False])
def test_textbook_loop_and_ours_have_the_same_loss(binary: bool) -> None:
    """Same weights, same noise: a race between different losses would be none."""
    from unblemish.data.schema import Kind, Schema
    from unblemish.training import Trainer

    x, y = batch()
    config = ClsvaeConfig()
    kind = Kind.BINARY if binary else Kind.CONTINUOUS
    schema = Schema(kind=kind, shape=(12,), dtype="float64", low=(0,), high=(1,), mean=(0.0,), scale=(1.0,))
    ours = presets.build(config, schema)
    theirs = textbook.TextbookClsvae(12, config, binary=binary)
    for encoder, own in ((theirs.encoder, ours.encode_clean), (theirs.dirty_encoder, ours.encode_dirty)):
        copy_layers(own.body, encoder.body)
        for name in ("weight", "bias"):
            mean, log_variance = getattr(own.head, name).data.chunk(2)
            getattr(encoder.mean, name).data = mean
            getattr(encoder.log_variance, name).data = log_variance
    copy_layers(ours.decode, theirs.decoder)
    copy_layers(ours.classifier, theirs.classifier)
    recipe = Recipe(1, 8, weights={n: Ramp(3.0) for n in ("kl_z", "kl_y", "cross_entropy", "dependence")})
    torch.manual_seed(7)
    trainer = Trainer(ours, x, y, recipe, 0)
    means = trainer.reduce(ours.loss_terms(x, y), {"dependence": 3.0})
    loss = sum((3.0 if n in recipe.weights else 1.0) * float(v.detach()) for n, v in means.items())
    # log p(y) is a constant that the textbook leaves out
    alpha = torch.where(y[y >= 0] > 0, config.alpha, 1 - config.alpha)
    loss += 3.0 * float(alpha.log().sum()) / len(x)
    torch.manual_seed(7)
    weights = dict.fromkeys(("kl_z", "kl_y", "cross_entropy", "dependence"), 3.0)
    assert float(theirs.loss(x, y, weights).detach()) == pytest.approx(loss, rel=1e-4)


def test_published_quality_counts_only_if_it_stays() -> None:
    racer = speed._Racer(iter(range(9)))
    good, bad = Figures(1.0, 0.0, 0.0, 0.0), Figures(0.5, 0.0, 0.0, 0.0)
    for seconds, found in [(1.0, bad), (2.0, good), (3.0, bad), (4.0, good), (5.0, good)]:
        racer.seconds = seconds
        racer.note(found, "shapes")
    assert racer.reached == 4.0
    racer.note(replace(good, smse_clean=0.1), "shapes")
    assert racer.reached == float("inf")


def test_contestants_take_turns() -> None:
    calls: list[str] = []
    best_times({"a": lambda: calls.append("a"), "b": lambda: calls.append("b")}, rounds=3)
    assert calls == ["a", "b"] * 3


def square(number: int) -> tuple[int, int]:
    return number**2, torch.get_num_threads()


def test_workers_have_one_thread_each_and_leave_the_environment_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "5")
    monkeypatch.delenv("MKL_NUM_THREADS", raising=False)
    with workers(2) as pool:
        assert sorted(results(pool, square, range(4))) == [(0, 1), (1, 1), (4, 1), (9, 1)]
    import os

    assert os.environ["OMP_NUM_THREADS"] == "5"
    assert "MKL_NUM_THREADS" not in os.environ


LINES = [
    Line("step", "fast enough", 2.5, at_least=2.0, note="a note"),
    Line("step", "too slow", 0.5, at_least=0.9),
    Line("memory", "little", 1.2, "GB", at_most=1.5),
    Line("step", "unknown", None),
]


def test_a_line_knows_whether_it_is_met() -> None:
    assert [line.met for line in LINES] == [True, False, True, None]


def test_page_and_chart_are_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(speed_report, "measure", lambda _: iter(LINES))
    speed_report.report(speed.SMALL, json=False, docs=tmp_path / "performance.md")
    page = (tmp_path / "performance.md").read_text()
    assert "| step | too slow | 0.5x | at least 0.9 | no |" in page
    assert (tmp_path / "images" / "performance.png").read_bytes().startswith(b"\x89PNG")


def test_small_benchmark_runs_whole() -> None:
    """The command itself, in its small form: every group of figures is there, and all are numbers."""
    run = CliRunner().invoke(app, ["bench", "speed", "--small", "--json"])
    assert run.exit_code == 0, run.output
    found = json.loads(run.stdout)
    groups = {figure["group"] for figure in found["figures"]}
    assert {"training step", "time to published quality", "many fits at once", "memory", "growth", "start-up"} <= groups
    values = [figure["value"] for figure in found["figures"] if figure["value"] is not None]
    assert np.isfinite(values).all()
    assert min(values) >= 0  # a race of two epochs need not be won
    assert found["machine"]["cores"]
