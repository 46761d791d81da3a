"""`python -m unblemish.benchmark.options OUT.jsonl DATASET [OPTION ...]`: what CLSVAE's options are worth.

Runs them over five seeds of a dataset (shapes, frey or fashion; 35 % noise, 10 labels a class), one thread, appends
each result to OUT.jsonl as it comes, goes on where it was stopped, and prints a table of means and standard errors.
"""

from __future__ import annotations

import json
import sys
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import torch

from unblemish.benchmark.datasets import load
from unblemish.benchmark.evaluate import evaluate, labels_for
from unblemish.cleaner import Cleaner
from unblemish.models.clsvae import ClsvaeConfig
from unblemish.models.presets import BATCH, PAPER, Preset
from unblemish.models.recipe import Ramp

SEEDS = range(5)


def options(dataset: str) -> dict[str, Preset]:
    """CLSVAE as in the paper, and each choice made the other way."""
    paper = PAPER[dataset]["clsvae"]
    config, recipe = paper.config, paper.recipe
    assert isinstance(config, ClsvaeConfig)

    def dependence(ramp: Ramp) -> Preset:
        return Preset(config, replace(recipe, weights={**recipe.weights, "dependence": ramp}))

    penalty = recipe.weights["dependence"]
    return {
        "paper": paper,
        "float32": Preset(config, replace(recipe, bfloat16=False)),
        "root": Preset(replace(config, root_dc=True), recipe),
        "lambda/128": dependence(replace(penalty, top=penalty.top / BATCH)),
        "nodc": dependence(Ramp(0.0)),
        "no-stop-gradient": Preset(replace(config, stop_gradient=False), recipe),
    }


def main(out: Path, dataset: str, names: list[str]) -> None:
    torch.set_num_threads(1)
    presets = options(dataset)
    names = names or list(presets)
    lines = [json.loads(line) for line in out.read_text().splitlines()] if out.exists() else []
    done = {(line["dataset"], line["option"], line["seed"]): line for line in lines}
    for seed in SEEDS:
        parts = load(dataset, seed)
        y = labels_for("clsvae", parts.train, 10, seed)
        for name in names:
            if (dataset, name, seed) in done:
                continue
            cleaner = Cleaner(preset=presets[name], folds=0, seed=seed).fit(parts.train.dirty, y)
            line = {"dataset": dataset, "option": name, "seed": seed, **asdict(evaluate(cleaner, parts.test))}
            done[dataset, name, seed] = line
            with out.open("a") as file:
                file.write(json.dumps(line) + "\n")
    print("| option | average precision | SMSE dirty | SMSE clean |\n|---|---|---|---|")
    for name in names:
        cells = []
        for figure in ("avpr", "smse_dirty", "smse_clean"):
            values = np.array([done[dataset, name, seed][figure] for seed in SEEDS])
            cells.append(f"{values.mean():.4f} ± {values.std(ddof=1) / np.sqrt(len(values)):.4f}")
        print(f"| {name} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], sys.argv[3:])
