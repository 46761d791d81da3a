"""What is drawn from a sweep, the compression study, and the choice of hyper-parameters."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor, nn
from typer.testing import CliRunner

from conftest import tiny_schema
from unblemish.benchmark import compression, selection
from unblemish.benchmark.compression import Curve, iwae_bound, sentence
from unblemish.benchmark.runs import Run, Strip
from unblemish.benchmark.selection import Candidate, Judged, best, reason
from unblemish.benchmark.sweep import grid
from unblemish.cli import app
from unblemish.errors import BadInput
from unblemish.models import presets
from unblemish.models.networks import Gaussians
from unblemish.models.presets import PAPER
from unblemish.models.vae import Vae, VaeConfig
from unblemish.models.vaegmm import VaegmmConfig

# figures


def lines_of(runs: list[Run]) -> list[dict[str, Any]]:
    rng = np.random.default_rng(0)
    names = ["avpr", "smse_dirty", "smse_clean"]
    figures = [dict(zip(names, 0.1 + 0.5 * rng.random(3), strict=True)) for _ in runs]
    return [
        asdict(run) | each | {"fit_seconds": 1.0, "config_hash": run.config_hash(), "version": "0"}
        for run, each in zip(runs, figures, strict=True)
    ]


def write(path: Path, lines: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def strip(seed: int = 0) -> Strip:
    images = np.random.default_rng(seed).integers(0, 256, (3, 10, 28, 20), dtype=np.uint8)
    error = np.array([-1, -1, 0, 0, 1, 1, 2, 2, 3, 3])
    return Strip(*images, error, np.linspace(0, 1, 10))


def width(path: Path) -> int:
    with Image.open(path) as image:
        return image.width


def test_curves_and_repairs_are_drawn(tmp_path: Path) -> None:
    runs = grid("full", ["frey"], [], 2)
    path = write(tmp_path / "runs.jsonl", lines_of(runs))
    (tmp_path / "runs.strips").mkdir()
    for run in (Run.of("frey", "vae-l2"), Run("frey"), Run("frey", noise=45)):
        strip().write(tmp_path / "runs.strips" / run.strip_name())
    told = CliRunner().invoke(app, ["bench", "figures", str(path)])
    assert told.exit_code == 0, told.output
    drawn = sorted(p.name for p in (tmp_path / "figures").iterdir())
    # the model that ignores labels stands in the picture of every size of the trusted set
    at_35 = [f"frey-repairs-35-{labels}.png" for labels in (10, 25, 5, 50)]
    assert drawn == ["frey-labels.png", *at_35, "frey-repairs-45-10.png"]
    two_models, one_model = (width(tmp_path / "figures" / f"frey-repairs-35-{labels}.png") for labels in (10, 25))
    assert two_models > one_model
    with Image.open(tmp_path / "figures" / "frey-labels.png") as image:
        assert len(image.convert("RGB").getcolors(10**6) or []) > 50


def test_one_size_without_pictures_is_nothing_to_draw(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(tmp_path / "runs.jsonl", lines_of([Run("frey")]))
    told = CliRunner().invoke(app, ["bench", "figures", str(path)])
    assert isinstance(told.exception, BadInput)
    assert "make a sweep first" in str(told.exception)


def test_a_strip_comes_back_as_it_was_written(tmp_path: Path) -> None:
    one = strip()
    one.write(tmp_path / "a.npz")
    for name, value in vars(Strip.read(tmp_path / "a.npz")).items():
        assert np.array_equal(value, getattr(one, name))
    (tmp_path / "a.npz").write_bytes(b"PK")
    with pytest.raises(BadInput, match="damaged"):
        Strip.read(tmp_path / "a.npz")


# the IWAE bound


class Linear:
    """z ~ N(0, I), x ~ N(W z, s^2 I), the columns of W orthogonal: p(x) and p(z given x) are known."""

    def __init__(self, cells: int = 12, code: int = 3, deviation: float = 0.7) -> None:
        generator = torch.Generator().manual_seed(0)
        q = torch.linalg.qr(torch.randn(cells, code, dtype=torch.float64, generator=generator)).Q
        self.W, self.s = q * torch.tensor([2.0, 1.0, 0.5]), deviation
        self.x = torch.randn(40, code, dtype=torch.float64, generator=generator) @ self.W.T
        self.x = self.x + deviation * torch.randn(40, cells, dtype=torch.float64, generator=generator)

    def log_p(self) -> Tensor:
        covariance = self.W @ self.W.T + self.s**2 * torch.eye(len(self.W))
        return torch.distributions.MultivariateNormal(torch.zeros(len(self.W)).double(), covariance).log_prob(self.x)

    def model(self, *, widened: float = 1.0, shifted: float = 0.0) -> Vae:
        """With the true posterior as its encoder, or one that is too wide and stands beside it."""
        model = presets.build(VaeConfig(code=3), tiny_schema()).double()
        assert isinstance(model, Vae)
        model.likelihood.log_variance.data.fill_(math.log(self.s**2))
        precision = 1 + (self.W**2).sum(0) / self.s**2

        class Posterior(nn.Module):
            def forward(_, x: Tensor) -> Gaussians:  # noqa: N805
                mean = x @ self.W / self.s**2 / precision + shifted
                return Gaussians(mean, (widened**2 / precision).log().expand_as(mean))

        model.encode = Posterior()  # type: ignore[assignment]
        model.decode = nn.Linear(3, 12, bias=False).double()
        model.decode.weight.data = self.W
        return model


@pytest.fixture
def seeded() -> Iterator[None]:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        yield


@pytest.mark.usefixtures("seeded")
def test_the_bound_is_the_likelihood_where_the_posterior_is_known() -> None:
    linear = Linear()
    for samples in (1, 7):
        torch.testing.assert_close(iwae_bound(linear.model(), linear.x, samples, rows_at_once=9), linear.log_p())


@pytest.mark.usefixtures("seeded")
def test_the_bound_grows_with_the_samples_towards_the_likelihood() -> None:
    linear = Linear()
    rough = linear.model(widened=1.6, shifted=0.3)
    means = [float(iwae_bound(rough, linear.x, samples).mean()) for samples in (1, 5, 50, 5000)]
    truth = float(linear.log_p().mean())
    assert means == sorted(means)
    assert means[0] < truth - 0.5
    assert means[-1] == pytest.approx(truth, abs=0.01)


def study_lines(corrupted_more: float = 30.0) -> list[dict[str, Any]]:
    fall = {2: 100.0, 4: 60.0, 6: 45.0, 8: 41.0, 10: 40.0}
    lines = []
    for seed in (0, 1):
        for size, entropy in fall.items():
            lines.append({"size": size, "corrupted": False, "seed": seed, "entropy": entropy + seed})
            lines.append({"size": size, "corrupted": True, "seed": seed, "entropy": entropy + seed + corrupted_more})
    return lines


def test_the_study_says_what_it_found_whichever_way() -> None:
    curve = Curve.of(study_lines(), corrupted=False)
    assert list(curve.sizes) == [2, 4, 6, 8, 10]
    np.testing.assert_allclose(curve.means, [100.5, 60.5, 45.5, 41.5, 40.5])
    np.testing.assert_allclose(curve.errors, 0.5)
    assert curve.enough() == 6  # 100 - 0.9 * 60 = 46
    assert "higher entropy at 5 of 5 sizes of the code, by 30 to 30 nats" in sentence(study_lines())
    assert "higher entropy at 0 of 5 sizes of the code, by -4 to -4 nats" in sentence(study_lines(-4.0))


def test_the_study_runs_goes_on_and_draws(tmp_path: Path, data_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compression, "SIZES", (2, 4))
    monkeypatch.setattr(compression, "SAMPLES", 3)
    out = tmp_path / "study.jsonl"
    line = {"size": 2, "corrupted": False, "seed": 0, "entropy": 500.0, "epochs": 1}
    write(out, [line])
    command = ["bench", "compression", "--out", str(out), "--seeds", "1", "--epochs", "1"]
    told = CliRunner().invoke(app, command)
    assert told.exit_code == 0, told.output
    lines = compression.read(out)
    assert lines[0] == line
    assert {(each["size"], each["corrupted"]) for each in lines} == {(2, False), (2, True), (4, False), (4, True)}
    assert all(np.isfinite(each["entropy"]) for each in lines)
    assert "latent numbers for clean data" in told.stdout
    assert width(tmp_path / "study.png") > 500
    before = out.read_bytes()
    assert CliRunner().invoke(app, command).exit_code == 0
    assert out.read_bytes() == before


# choosing hyper-parameters


def test_candidates_change_what_they_say() -> None:
    preset = Candidate((("sigma_inlier", 0.3),), beta=0.1).of(PAPER["frey"]["vaegmm"])
    assert isinstance(preset.config, VaegmmConfig)
    assert preset.config.sigma_inlier == 0.3
    assert preset.recipe.weights["cross_entropy"].top == 100.0
    assert Candidate(decay=3.0).of(PAPER["frey"]["vae-l2"]).recipe.weight_decay == 300 / 128
    assert str(Candidate()) == "as published"
    for model, candidates in selection.GRIDS.items():
        assert len(set(candidates)) == len(candidates) >= 3
        for dataset in PAPER:
            made = [candidate.of(PAPER[dataset][model]) for candidate in candidates]
            assert all(made.count(each) == 1 for each in made), "two candidates are the same"


def test_the_best_is_the_most_precise_and_then_the_least_surprised() -> None:
    a, b, c = (
        Judged(Candidate(beta=k), avpr, surprise) for k, avpr, surprise in [(1, 0.9, 0.1), (2, 1.0, 2.0), (3, 1.0, 1.0)]
    )
    assert best([a, b, c]) is best([c, b, a]) is c
    assert "of 2 with the same, the one least surprised" in reason(c, [a, b, c])
    assert reason(b, [a, b]) == "beta x 2: average precision 1.0000 on the trusted set, the highest of 2."


@pytest.mark.parametrize("model", ["clsvae", "cvae"])
def test_a_candidate_is_judged_on_the_trusted_set_alone(model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    judged = selection.judge(Candidate(), Run("shapes", model, labels=5, epochs=2))
    assert 0 < judged.avpr <= 1
    seen = []
    original = selection.average_precision

    def spy(is_outlier: Any, score: Any) -> float:
        seen.append(len(is_outlier))
        return original(is_outlier, score)

    monkeypatch.setattr(selection, "average_precision", spy)
    selection.judge(Candidate(), Run("shapes", model, labels=5, epochs=1))
    assert seen == [8 * 5]


def test_select_prints_its_choice(monkeypatch: pytest.MonkeyPatch) -> None:
    judged = [Judged(Candidate(), 0.8, 0.3), Judged(Candidate(beta=0.1), 0.9, 0.2)]
    monkeypatch.setattr(selection, "select", lambda *_: iter(judged))
    told = CliRunner().invoke(app, ["bench", "select", "--dataset", "shapes"])
    assert told.exit_code == 0, told.output
    assert "beta x 0.1: average precision 0.9000 on the trusted set, the highest of 2." in told.stdout
