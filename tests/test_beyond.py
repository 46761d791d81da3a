"""The study of errors that the paper did not try: its data, a small run, its table."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from unblemish.benchmark import beyond
from unblemish.benchmark.beyond import ERRORS, Case, data, markdown, read, result, study


@pytest.fixture(autouse=True)
def few_clothes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Grey images of ten kinds in the place of Fashion-MNIST."""
    rng = np.random.default_rng(0)
    kinds = rng.integers(10, size=600)
    shapes = rng.integers(0, 200, size=(10, 28, 28))
    images = (shapes[kinds] * rng.uniform(0.7, 1.2, size=(600, 1, 1))).clip(0, 255).astype(np.uint8)
    monkeypatch.setattr(beyond, "fashion_files", lambda: (images, kinds, images[:0], kinds[:0]))


@pytest.mark.parametrize("error", ERRORS)
def test_errors_touch_their_cells_in_their_share_of_the_rows(error: str) -> None:
    train, test = data(Case(error, 0), 400, 200)
    both = np.concatenate([train.is_outlier, test.is_outlier])
    share = {"no error but a few": 0.002, "salt and pepper": 0.3, "one class only": 0.035}.get(error, 0.35)
    assert abs(both.mean() - share) < 0.02
    assert not (train.mask & ~np.any([e.cells for e in ERRORS[error]], 0)).any()
    assert ((train.dirty != train.clean) == train.mask).all()
    if error == "one class only":
        assert set(train.data_class[train.is_outlier]) == {beyond.DRESS}


def test_a_run_has_figures_with_patterns_and_without() -> None:
    line = result(Case("watermark 0.6", 0), epochs=1, train=300, test=100)
    names = {"avpr", "smse_dirty", "smse_clean", "patterns", "patterns_found"}
    assert names <= set(line)
    assert {f"paper_{name}" for name in ("avpr", "smse_dirty", "smse_clean")} <= set(line)
    text = markdown([line])
    assert text.count("watermark 0.6") == 1
    assert "| CLSVAE |" in text
    assert "| with patterns |" in text


def test_what_a_file_holds_is_not_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "lines.jsonl"
    made = {"error": "offset", "seed": 0, "avpr": 1.0}
    out.write_text(f"{made}\n".replace("'", '"'))
    assert list(study(out, ["offset"], seeds=1, jobs=1)) == []
    assert read(out) == [made]
