"""A catalogue as tensors and plain data, and back."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from pydantic import BaseModel, ConfigDict
from torch import Tensor

from unblemish.patterns.catalogue import Catalogue, Known, Settings
from unblemish.patterns.pattern import Pattern
from unblemish.patterns.presence import Likeness, Natural, Rising

PREFIX = "patterns."


class StoredPattern(BaseModel):
    """What is said of a pattern in words and numbers; its arrays are beside the weights."""

    model_config = ConfigDict(extra="forbid")

    name: str
    exact: bool
    rows: int
    trusted: int
    held: float
    share: float
    examples: list[int]
    spread: float
    level: float  # rho of a Natural, top of a Likeness
    graded: bool  # whether there is a curve


class StoredCatalogue(BaseModel):
    """All of a catalogue that is not an array."""

    model_config = ConfigDict(extra="forbid")

    patterns: list[StoredPattern]
    width: float
    noise: float
    tolerance: float
    unexplained: float
    touched: float


def packed(catalogue: Catalogue) -> tuple[StoredCatalogue, dict[str, Tensor]]:
    """What `restored` needs."""
    tensors = {
        "judges": catalogue.judges,
        "landmarks": catalogue.landmarks,
        "natural": torch.from_numpy(catalogue.natural),
        "low": torch.from_numpy(catalogue.span[0]),
        "high": torch.from_numpy(catalogue.span[1]),
    }
    if catalogue.errors_of_judges is not None:
        tensors["errors_of_judges"] = torch.from_numpy(catalogue.errors_of_judges)
    stored = []
    for k, (p, known) in enumerate(zip(catalogue.patterns, catalogue.known, strict=True)):
        presence = known.presence
        curve = presence.rate if isinstance(presence, Natural) else presence.share_put_on
        arrays = {"cells": p.cells, "slope": p.slope, "offset": p.offset, "noise": known.noise}
        if curve is not None:
            arrays |= {"curve_x": curve.x, "curve_y": curve.y}
        tensors |= {f"{k}.{name}": torch.from_numpy(np.ascontiguousarray(array)) for name, array in arrays.items()}
        stored.append(
            StoredPattern(
                name=p.name, exact=p.exact, rows=p.rows, trusted=p.trusted, held=p.held, share=p.share,
                examples=[int(row) for row in p.examples], spread=known.spread,
                level=presence.rho if isinstance(presence, Natural) else presence.top, graded=curve is not None,
            )
        )  # fmt: skip
    about = StoredCatalogue(
        patterns=stored,
        width=catalogue.settings.width,
        noise=catalogue.settings.noise,
        tolerance=catalogue.tolerance,
        unexplained=catalogue.unexplained,
        touched=catalogue.touched,
    )
    return about, {PREFIX + name: tensor.contiguous() for name, tensor in tensors.items()}


def restored(about: StoredCatalogue, tensors: Mapping[str, Tensor]) -> Catalogue:
    """The catalogue that `packed` was given."""
    held = {name.removeprefix(PREFIX): tensor.numpy() for name, tensor in tensors.items()}
    patterns, known = [], []
    for k, p in enumerate(about.patterns):
        curve = Rising(held[f"{k}.curve_x"], held[f"{k}.curve_y"]) if p.graded else None
        presence: Natural | Likeness
        if p.exact:
            presence = Natural(p.level, curve)
        else:
            assert curve is not None
            presence = Likeness(curve, p.level)
        patterns.append(
            Pattern(
                cells=held[f"{k}.cells"], slope=held[f"{k}.slope"], offset=held[f"{k}.offset"], exact=p.exact,
                rows=p.rows, trusted=p.trusted, held=p.held, share=p.share, name=p.name,
                examples=np.array(p.examples, np.int64),
            )
        )  # fmt: skip
        known.append(Known(presence, p.spread, held[f"{k}.noise"]))
    catalogue = Catalogue(
        patterns, known, held["judges"], held["landmarks"], Settings(about.width, about.noise), about.tolerance,
        (held["low"], held["high"]), held.get("errors_of_judges"),
    )  # fmt: skip
    catalogue.natural, catalogue.unexplained, catalogue.touched = held["natural"], about.unexplained, about.touched
    return catalogue
