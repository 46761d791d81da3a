"""`unblemish bench speed`: how fast, as ratios measured side by side, so that a noisy machine does not matter."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch

from unblemish import training
from unblemish.benchmark import textbook
from unblemish.benchmark.datasets import Splits, load, split, synthetic_shapes
from unblemish.benchmark.evaluate import Figures, evaluate, figures, labels_for
from unblemish.benchmark.pool import results, workers
from unblemish.benchmark.published import TABLE
from unblemish.benchmark.roofline import best_times, training_step
from unblemish.cleaner import Cleaner
from unblemish.data.rows import Rows
from unblemish.data.schema import Schema
from unblemish.models import presets
from unblemish.models.clsvae import ClsvaeConfig
from unblemish.training import Trainer


@dataclass(frozen=True)
class Size:
    """How much of each is measured."""

    rounds: int
    seeds: tuple[int, ...]
    datasets: tuple[str, ...]
    fit_epochs: int  # of each fit, where many are made at once
    mapped_rows: int
    growth: tuple[int, ...]
    reach: int | None  # epochs after which a race to the published quality is given up; None for the recipe's own


FULL = Size(8, (0, 1, 2, 3, 4), ("shapes", "frey"), 12, 1_000_000, (10_000, 100_000, 1_000_000), None)
SMALL = Size(1, (0,), ("shapes",), 1, 4_000, (1_000, 2_000), 2)


@dataclass(frozen=True)
class Line:
    """One figure of the table. `at_least` or `at_most` is what it should be, where that was said."""

    group: str
    name: str
    value: float | None
    unit: str = "x"
    at_least: float | None = None
    at_most: float | None = None
    note: str = ""

    @property
    def met(self) -> bool | None:
        if self.value is None or (self.at_least is None and self.at_most is None):
            return None
        return (self.at_least is None or self.value >= self.at_least) and (
            self.at_most is None or self.value <= self.at_most
        )


def measure(size: Size) -> Iterator[Line]:
    """Every figure, one after another, as it is known."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield from _steps(size)
        for dataset in size.datasets:
            yield from _quality(dataset, size)
        yield from _many_fits(size)
        yield from _rows_a_second(size)
        yield from _growth(size)
        yield from _start_up(size)
    finally:
        torch.set_num_threads(threads)


def _steps(size: Size) -> Iterator[Line]:
    train = split(synthetic_shapes(40 * 128, seed=0), 0).train  # 32 whole batches
    for name in ("clsvae", "vae"):
        seconds = training_step(name, train, size.rounds)
        ours = min(seconds["ours"], seconds.get("ours_bfloat16", np.inf))
        rate = seconds["operations"] / seconds["products"] / 1e9
        note = f"a step {ours * 1e3:.1f} ms, its products alone {seconds['products'] * 1e3:.1f} ms ({rate:.0f} GFLOP/s)"
        yield Line("training step", f"{name}, of the roofline", seconds["products"] / ours, at_least=0.9, note=note)
        note = f"textbook loop {seconds['textbook'] * 1e3:.1f} ms a step"
        yield Line("training step", f"{name}, textbook / ours", seconds["textbook"] / ours, at_least=2.0, note=note)
        if "ours_bfloat16" in seconds:
            gain = seconds["ours"] / seconds["ours_bfloat16"]
            yield Line("training step", f"{name}, float32 / bfloat16", gain)
        if "pythae" in seconds:
            yield Line("training step", f"{name}, pythae / ours", seconds["pythae"] / ours)
        elif name == "vae":
            yield Line("training step", "vae, pythae / ours", None, note="pythae is not installed")


class _Racer:
    """A training run that is stopped between epochs to be looked at; only its epochs are timed."""

    def __init__(self, epochs: Iterator[Any]) -> None:
        self.epochs, self.seconds, self.reached = epochs, 0.0, float("inf")
        self.last: Figures | None = None

    def advance(self) -> bool:
        started = time.perf_counter()
        there = next(self.epochs, None) is not None
        self.seconds += time.perf_counter() - started
        return there

    def note(self, found: Figures, dataset: str) -> None:
        """Keep when the published figures were reached, forget it if they are lost again."""
        theirs = TABLE[dataset]["clsvae"]
        good = (
            found.avpr >= theirs.avpr[0]
            and found.smse_dirty <= theirs.smse_dirty[0]
            and found.smse_clean <= theirs.smse_clean[0]
        )
        self.reached = min(self.reached, self.seconds) if good else float("inf")
        self.last = found


def _quality(dataset: str, size: Size) -> Iterator[Line]:
    ratios, notes = [], []
    for seed in size.seeds:
        ours, theirs = _race(dataset, seed, size)
        both = []
        for racer in (ours, theirs):
            both.append(f"{racer.reached:.0f} s" if np.isfinite(racer.reached) else f"not in {racer.seconds:.0f} s")
        # a textbook loop that never gets there is counted as if it had at its end, ours as 0
        ratios.append(min(theirs.reached, theirs.seconds) / ours.reached)
        notes.append(f"seed {seed}: {both[0]} against {both[1]}")
    value = float(np.median(ratios))
    yield Line("time to published quality", f"{dataset}, textbook / ours", value, at_least=5.0, note="; ".join(notes))


def _race(dataset: str, seed: int, size: Size) -> tuple[_Racer, _Racer]:
    """Ours with the fast recipe and the textbook loop with the paper's, in turns, until both have ended."""
    parts: Splits = load(dataset, seed)
    y = torch.from_numpy(labels_for("clsvae", parts.train, 10, seed))
    paper = presets.PAPER[dataset]["clsvae"]
    recipe = paper.recipe if size.reach is None else paper.recipe.over(size.reach)
    fast = presets.fast(replace(paper, recipe=recipe), len(parts.train))
    schema = Schema.of(parts.train.dirty)
    x = Rows(parts.train.dirty, schema, torch.device("cpu"))
    validation = Rows(parts.validation.dirty, schema, torch.device("cpu"))[:]
    torch.manual_seed(seed)

    model = presets.build(fast.config, schema)
    trainer = Trainer(model, x, y, fast.recipe, seed)
    assert isinstance(paper.config, ClsvaeConfig)
    student = textbook.TextbookClsvae(schema.cells, paper.config, binary=schema.kind == "binary")
    ours = _Racer(trainer.epochs())
    theirs = _Racer(textbook.train(student, x[torch.arange(len(x))], y.float(), recipe))

    def look(racer: _Racer) -> None:
        with torch.no_grad():
            if racer is ours:
                score, repaired = -model.inlier_logit(validation), model.likelihood.mean(model.repair(validation))
            else:
                score, repaired = -student.inlier_logit(validation), student.repair(validation)
        racer.note(figures(parts.validation, schema, score.numpy(), repaired.double().numpy()), dataset)

    running = [ours, theirs]
    while running:
        racer = min(running, key=lambda r: r.seconds)  # whoever has had less time goes on
        if racer.advance():
            look(racer)
        else:
            running.remove(racer)
    return ours, theirs


def _fit_with_all_threads(job: tuple[int, int]) -> float:
    """The same where a small model too may use more threads than one."""
    training.ONE_THREAD_BELOW = 0
    return _fit(job)


def _fit(job: tuple[int, int]) -> float:
    """A fit as a sweep makes them: data, fit and figures."""
    seed, epochs = job
    parts = split(synthetic_shapes(seed=seed), seed)
    y = labels_for("clsvae", parts.train, 10, seed)
    cleaner = Cleaner(preset="shapes", epochs=epochs, folds=0, patterns=False, seed=seed).fit(parts.train.dirty, y)
    return evaluate(cleaner, parts.test).avpr


def _many_fits(size: Size) -> Iterator[Line]:
    cores = os.cpu_count() or 1
    jobs = [(seed, size.fit_epochs) for seed in range(2 * cores)]
    with workers(cores, threads=1) as many, workers(1, threads=cores) as one:
        for pool, width in ((many, cores), (one, 1)):  # all that is done once: starting, importing
            list(results(pool, _fit, [(0, 1)] * width))
        best = best_times(
            {
                "many": lambda: list(results(many, _fit, jobs)),
                "one": lambda: list(results(one, _fit_with_all_threads, jobs)),
            },
            size.rounds,
        )
    an_hour = {name: len(jobs) * 3600 / seconds for name, seconds in best.items()}
    note = f"{an_hour['many']:.0f} fits of {size.fit_epochs} epochs an hour, against {an_hour['one']:.0f}"
    yield Line(
        "many fits at once", f"{cores} processes / 1 process of {cores} threads", best["one"] / best["many"],
        at_least=1.8, note=note,
    )  # fmt: skip


def _fitted(rows: int = 2000) -> Cleaner:
    data = _bytes(rows, seed=0)
    y = np.full(rows, -1)
    y[:20], y[-20:] = 1, 0
    return Cleaner(epochs=1, folds=0, patterns=False).fit(data, y)


def _bytes(rows: int, seed: int) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """Grey images of 784 bytes, the second half of them with a bright line."""
    data = np.random.default_rng(seed).integers(0, 200, (rows, 28, 28), dtype=np.uint8)
    data[rows // 2 :, 15] = 255
    return data


def _rows_a_second(size: Size) -> Iterator[Line]:
    cleaner, data = _fitted(), _bytes(20_000, seed=1)
    best = best_times(
        {
            "scoring": lambda: cleaner.outlier_score(data),
            "repairing": lambda: cleaner.repair(data),
            "both": lambda: [None for _ in cleaner.cleaning(data)],
        },
        size.rounds + 1,
    )
    for name, seconds in best.items():
        wanted = 60_000 if name == "repairing" else None
        yield Line("rows a second, one core, 784 cells", f"{name}, in memory", len(data) / seconds, "", wanted)
    with TemporaryDirectory() as folder:
        path = Path(folder) / "rows.npy"
        _write_rows(path, size.mapped_rows)
        cleaner.save(Path(folder) / "model")
        found = _child("_clean_mapped", folder)
    yield Line(
        "rows a second, one core, 784 cells",
        f"both, {size.mapped_rows:,} rows, from a mapped file to a file",
        size.mapped_rows / found["seconds"],
        "",
    )
    yield Line("memory", f"cleaning {size.mapped_rows:,} mapped rows, peak", found["peak"] / 1e9, "GB", at_most=1.5)
    yield Line("memory", "of that, not part of the mapped file", found["own"] / 1e9, "GB")


def _write_rows(path: Path, rows: int) -> None:
    mapped = np.lib.format.open_memmap(path, "w+", np.uint8, (rows, 28, 28))
    for start in range(0, rows, 20_000):
        mapped[start : start + 20_000] = _bytes(min(20_000, rows - start), seed=start)
    mapped.flush()


def _clean_mapped(folder: str) -> dict[str, float]:
    cleaner = Cleaner.load(Path(folder) / "model")
    data = np.load(Path(folder) / "rows.npy", mmap_mode="r")
    own = 0.0
    started = time.perf_counter()
    with (Path(folder) / "clean.raw").open("wb") as out:
        for report in cleaner.cleaning(data):
            out.write(report.repaired.tobytes())
            own = max(own, _own_memory())
    return {"seconds": time.perf_counter() - started, "peak": _peak_memory(), "own": own}


def _growth(size: Size) -> Iterator[Line]:
    found = {}
    with TemporaryDirectory() as folder:
        for rows in size.growth:
            _write_rows(Path(folder) / "rows.npy", rows)
            found[rows] = _child("_one_epoch", folder)
    first, last = min(size.growth), max(size.growth)
    for rows, figure in found.items():
        yield Line(
            "growth", f"an epoch of {rows:,} mapped rows, for each row", figure["seconds"] / rows * 1e6, "µs",
            note=f"{figure['seconds']:.1f} s; {figure['own'] / 1e9:.2f} GB of its own",
        )  # fmt: skip
    a_row = found[last]["seconds"] / last / (found[first]["seconds"] / first)
    yield Line("growth", f"time for each row, {last:,} / {first:,} rows", a_row)
    yield Line("growth", f"memory of its own, {last:,} / {first:,} rows", found[last]["own"] / found[first]["own"])


def _one_epoch(folder: str) -> dict[str, float]:
    data = np.load(Path(folder) / "rows.npy", mmap_mode="r")
    y = torch.full((len(data),), -1)
    y[:20], y[-20:] = 1, 0
    schema = Schema.of(data)
    preset = presets.default("clsvae", schema, len(data), 40)
    model = presets.build(preset.config, schema)
    trainer = Trainer(model, Rows(data, schema, torch.device("cpu")), y, preset.recipe, 0)
    started = time.perf_counter()
    trainer.train_epoch()
    return {"seconds": time.perf_counter() - started, "own": _own_memory()}


def _child(function: str, argument: str) -> dict[str, float]:
    """What a function of this file returns in a process of its own, with one thread, whose memory is its own."""
    code = (
        "import json, sys, torch; torch.set_num_threads(1); from unblemish.benchmark import speed; "
        "print(json.dumps(getattr(speed, sys.argv[1])(sys.argv[2])))"
    )
    environment = os.environ | {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    run = [sys.executable, "-c", code, function, argument]
    found: dict[str, float] = json.loads(subprocess.run(run, capture_output=True, check=True, env=environment).stdout)
    return found


def _own_memory() -> float:
    """Bytes that are resident now and not of a mapped file, where the system tells."""
    status = Path("/proc/self/status")
    if not status.exists():
        return _peak_memory()
    fields = dict(line.split(":", 1) for line in status.read_text().splitlines())
    return float(fields["RssAnon"].split()[0]) * 1024


def _peak_memory() -> float:
    """Bytes that were resident at most."""
    import resource

    unit = 1 if sys.platform == "darwin" else 1024
    return float(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss) * unit


def _start_up(size: Size) -> Iterator[Line]:
    commands = {
        "import unblemish": [sys.executable, "-c", "import unblemish"],
        "unblemish --help": [sys.executable, "-c", "from unblemish.cli import main; main()", "--help"],
        "python alone": [sys.executable, "-c", "pass"],
    }
    best = best_times(
        {
            name: lambda command=command: subprocess.run(command, capture_output=True, check=True)  # type: ignore[misc]
            for name, command in commands.items()
        },
        size.rounds + 2,
    )
    for name, seconds in best.items():
        yield Line("start-up", name, seconds, "s", at_most=None if name == "python alone" else 0.3)


def machine() -> dict[str, str]:
    """What the figures were measured on."""
    model = ""
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        names = [line.split(":")[1].strip() for line in cpuinfo.read_text().splitlines() if "model name" in line]
        model = names[0] if names else ""
    return {
        "processor": model or platform.processor() or platform.machine(),
        "cores": str(os.cpu_count()),
        "bfloat16 instructions": "yes" if torch.cpu._is_avx512_bf16_supported() else "no",
        "system": f"{platform.system()} {platform.machine()}",
        "Python": platform.python_version(),
        "torch": torch.__version__,
    }


def as_json(lines: list[Line]) -> str:
    return json.dumps({"machine": machine(), "figures": [asdict(line) | {"met": line.met} for line in lines]}, indent=1)
