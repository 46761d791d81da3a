"""`python -m unblemish.benchmark.options OUT.jsonl`: what CLSVAE's options are worth, where the paper leaves a choice.

Runs every option over five seeds of Synthetic-Shapes, appends each result to OUT.jsonl as it comes, goes on where
it was stopped, and prints a table of means and standard errors.
"""

from __future__ import annotations

import json
import sys
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import torch

from unblemish.benchmark.datasets import split, synthetic_shapes
from unblemish.benchmark.evaluate import evaluate, labels_for
from unblemish.cleaner import Cleaner
from unblemish.models.clsvae import ClsvaeConfig
from unblemish.models.presets import BATCH, PAPER, Preset
from unblemish.models.recipe import Ramp

SEEDS = range(5)


def options() -> dict[str, Preset]:
    """CLSVAE as in the paper, and each choice made the other way."""
    paper = PAPER["shapes"]["clsvae"]
    config, recipe = paper.config, paper.recipe
    assert isinstance(config, ClsvaeConfig)

    def weighing(**ramps: Ramp) -> Preset:
        return Preset(config, replace(recipe, weights={**recipe.weights, **ramps}))

    dc = recipe.weights["dependence"]
    return {
        "as in the paper": paper,
        "root of the distance correlation": Preset(replace(config, root_dc=True), recipe),
        f"lambda / {BATCH}": weighing(dependence=replace(dc, top=dc.top / BATCH)),
        "no penalty (CLSVAE-NODC)": weighing(dependence=Ramp(0.0)),
        "no stop-gradient": Preset(replace(config, stop_gradient=False), recipe),
    }


def main(out: Path) -> None:
    torch.set_num_threads(1)
    lines = [json.loads(line) for line in out.read_text().splitlines()] if out.exists() else []
    done = {(line["option"], line["seed"]): line for line in lines}
    for seed in SEEDS:
        for name, preset in options().items():
            if (name, seed) in done:
                continue
            parts = split(synthetic_shapes(seed=seed), seed)
            cleaner = Cleaner(preset=preset, folds=0, seed=seed)
            cleaner.fit(parts.train.dirty, labels_for("clsvae", parts.train, 10, seed))
            done[name, seed] = {"option": name, "seed": seed, **asdict(evaluate(cleaner, parts.test))}
            with out.open("a") as file:
                file.write(json.dumps(done[name, seed]) + "\n")
    print("| option | average precision | SMSE dirty | SMSE clean |\n|---|---|---|---|")
    for name in options():
        cells = []
        for figure in ("avpr", "smse_dirty", "smse_clean"):
            values = np.array([done[name, seed][figure] for seed in SEEDS])
            cells.append(f"{values.mean():.4f} ± {values.std(ddof=1) / np.sqrt(len(values)):.4f}")
        print(f"| {name} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
