"""What many tests need: small data, small models, frozen noise."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from unblemish.data.schema import Kind, Schema
from unblemish.models import clsvae, networks, presets
from unblemish.models.base import Model

torch.set_num_threads(1)  # small work: two threads would only wait for each other


@pytest.fixture
def data_folder() -> Path:
    folder = os.environ.get("UNBLEMISH_DATA")
    if not folder:
        pytest.skip("UNBLEMISH_DATA is not set: it names the folder with frey_faces.npz")
    return Path(folder)


@pytest.fixture
def freeze_noise(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Every draw gives all rows the same numbers, and the same at every call for a shape."""

    def same(z: torch.Tensor) -> torch.Tensor:
        draws = torch.randn(z.shape[1:], generator=torch.Generator().manual_seed(z.shape[1]), dtype=torch.float64)
        return draws.to(z.dtype).expand_as(z)

    def freeze() -> None:
        monkeypatch.setattr(networks, "noise_like", same)
        monkeypatch.setattr(clsvae, "noise_like", same)

    return freeze


def tiny_schema(kind: Kind = Kind.CONTINUOUS, shape: tuple[int, ...] = (4, 3)) -> Schema:
    return Schema(kind=kind, shape=shape, dtype="float64", low=(-9.0,), high=(9.0,), mean=(0.0,), scale=(1.0,))


def tiny_model(name: str, kind: Kind = Kind.CONTINUOUS, seed: int = 0, **config: Any) -> Model:
    """An untrained model for rows of 12 cells, in float64."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        settings = type(presets.PAPER["shapes"][name].config)(**config)
        return presets.build(settings, tiny_schema(kind)).double()


def tiny_batch(name: str, rows: int = 24, kind: Kind = Kind.CONTINUOUS) -> tuple[torch.Tensor, torch.Tensor]:
    """Rows and labels of all sorts, or as many labels as the model needs."""
    rng = np.random.default_rng(3)
    x = rng.normal(size=(rows, 12)) if kind is Kind.CONTINUOUS else (rng.random((rows, 12)) < 0.5) * 1.0
    y = np.resize([1, 0, -1, -1], rows)
    if name == "cvae":
        y = np.resize([1, 0], rows)
    return torch.from_numpy(x), torch.from_numpy(y).double()
