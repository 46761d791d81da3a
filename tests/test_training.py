"""The loop: schedules, unbiased estimates, determinism, stop and resume, recovery."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import unblemish.training
from conftest import tiny_batch, tiny_model
from unblemish import BadInput, Diverged
from unblemish.models.base import Model, Terms
from unblemish.models.presets import PAPER
from unblemish.models.recipe import Ramp, Recipe
from unblemish.training import Adam, Trainer, train

RECIPE = Recipe(
    epochs=6,
    batch_size=8,
    weights={
        "kl_z": Ramp(1.0, 1, 0.5),
        "kl_y": Ramp(1.0, 1, 0.5),
        "cross_entropy": Ramp(10.0),
        "dependence": Ramp(1.0, 1, 0.5),
    },
)


def weights_of(model: Model) -> dict[str, torch.Tensor]:
    return {name: value.clone() for name, value in model.state_dict().items()}


def same(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> bool:
    return all(torch.equal(a[name], b[name]) for name in a)


def trained(name: str = "clsvae", recipe: Recipe = RECIPE, **options: Any) -> Model:
    model = tiny_model(name)
    for _ in train(model, *tiny_batch(name), recipe, **options):
        pass
    return model


def test_ramp_follows_the_paper() -> None:
    ramp = Ramp(100.0, delay=10, ratio=0.5)
    assert [ramp.at(epoch, 200) for epoch in (0, 9, 10, 105, 199)] == [0, 0, 0, 100, 100]
    assert ramp.at(58, 200) == pytest.approx(100 * 48 / 95)
    assert Ramp(3.0).at(0, 10) == 3.0


@given(st.floats(0, 1e4), st.integers(0, 50), st.floats(0, 1), st.integers(1, 200))
def test_ramp_never_falls_and_ends_at_its_top(top: float, delay: int, ratio: float, epochs: int) -> None:
    ramp = Ramp(top, delay, ratio)
    values = [ramp.at(epoch, epochs) for epoch in range(epochs)]
    assert values == sorted(values)
    assert ramp.at(max(epochs, delay) + 1, epochs) == top or ratio == 1


def test_learning_rate_rises_and_falls() -> None:
    recipe = Recipe(10, learning_rate=2.0, rise=0.2, fall=0.5)
    assert [recipe.rate_at(done) for done in (0.0, 0.1, 0.2, 0.5)] == [0.0, 1.0, 2.0, 2.0]
    assert recipe.rate_at(0.75) == pytest.approx(1.0)
    assert recipe.rate_at(1.0) == pytest.approx(0.0)
    assert Recipe(10).rate_at(0.0) == Recipe(10).rate_at(1.0) == 1e-3


def test_each_step_has_the_learning_rate_of_its_place(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[float] = []
    x, y = tiny_batch("clsvae")
    run = Trainer(tiny_model("clsvae"), x, y, replace(RECIPE, epochs=2, learning_rate=6e-3, rise=1.0), seed=0)
    original = run.adam.step
    monkeypatch.setattr(run.adam, "step", lambda loss, rate: (seen.append(rate), original(loss, rate)))
    assert list(run.epochs()) == [1, 2]
    places = [epoch + (k + 0.5) / 3 for epoch in (0, 1) for k in range(3)]
    assert seen == pytest.approx([6e-3 * place / 2 for place in places])


def test_batch_estimates_add_up_to_the_means_of_the_whole(freeze_noise: Any) -> None:
    """Averaged over the batches of an epoch, each estimate is the mean over all rows, or over the trusted set."""
    freeze_noise()
    model = tiny_model("clsvae")
    x, y = tiny_batch("clsvae")
    run = Trainer(model, x, y, RECIPE, seed=0)
    terms = model.loss_terms(x, y)
    torch.manual_seed(0)
    batches = run.shuffled().tensor_split(3)
    means = [run.reduce(model.loss_terms(x[rows], y[rows]), {"dependence": 0.0}) for rows in batches]
    for name, values in terms.rows.items():
        torch.testing.assert_close(torch.stack([m[name] for m in means]).mean(), values.mean())
    trusted = terms.trusted["cross_entropy"][y >= 0].mean()
    torch.testing.assert_close(torch.stack([m["cross_entropy"] for m in means]).mean(), trusted)


def test_trusted_rows_are_spread_evenly_and_anywhere() -> None:
    x = torch.zeros(400, 12).double()
    y = torch.full((400,), -1.0)
    y[:40] = torch.arange(40) % 2
    run = Trainer(tiny_model("clsvae"), x, y, RECIPE, seed=0)
    torch.manual_seed(0)
    places = []
    for _ in range(200):
        order = run.shuffled()
        assert sorted(order.tolist()) == list(range(400))
        counts = [(y[rows] >= 0).sum().item() for rows in order.tensor_split(10)]
        assert min(counts) >= 3, "a batch has too few trusted rows"
        assert max(counts) <= 5, "a batch has too many trusted rows"
        places.append(order.tolist().index(7))
    assert 160 < np.mean(places) < 240, "a trusted row does not stand anywhere alike"


def test_a_few_trusted_rows_stand_behind_every_batch_in_turn() -> None:
    x = torch.zeros(400, 12).double()
    y = torch.full((400,), -1.0)
    y[:12] = torch.arange(12) % 2
    assert Trainer(tiny_model("clsvae"), x, y, RECIPE, seed=0).extra == 0  # not asked for
    recipe = replace(RECIPE, trusted_rows=8)
    run = Trainer(tiny_model("clsvae"), x, y, recipe, seed=0)  # 50 batches of 8
    assert run.extra == 8
    torch.manual_seed(0)
    batches = run.batches()
    assert sorted(torch.cat([rows[:-8] for rows in batches]).tolist()) == list(range(400))
    extra = torch.cat([rows[-8:] for rows in batches])
    assert torch.bincount(extra, minlength=12).tolist() == pytest.approx([400 / 12] * 12, abs=1)
    assert Trainer(tiny_model("vae"), x, y, recipe, seed=0).extra == 0  # it has no term for them
    y[:] = torch.arange(400) % 2
    assert Trainer(tiny_model("clsvae"), x, y, recipe, seed=0).extra == 0  # each batch has enough


def test_same_seed_same_model_another_seed_another() -> None:
    first, second, other = trained(seed=5), trained(seed=5), trained(seed=6)
    assert same(weights_of(first), weights_of(second))
    assert not same(weights_of(first), weights_of(other))


def test_training_leaves_the_global_random_stream_alone() -> None:
    torch.manual_seed(11)
    expected = torch.rand(3)
    torch.manual_seed(11)
    trained()
    assert torch.equal(torch.rand(3), expected)


def test_hidden_labels_of_unlabelled_rows_play_no_part() -> None:
    """Only y is given to training; flipping what an unlabelled row truly is cannot be seen. Its label can."""
    x, y = tiny_batch("clsvae")
    truth = torch.ones(len(y))
    models = []
    for hidden in (truth, 1 - truth):
        given_labels = torch.where(y >= 0, y, torch.full_like(y, -1))
        assert hidden.shape == given_labels.shape
        model = tiny_model("clsvae")
        for _ in train(model, x, given_labels, RECIPE, seed=1):
            pass
        models.append(weights_of(model))
    assert same(*models)
    flipped = y.clone()
    flipped[0] = 1 - flipped[0]
    model = tiny_model("clsvae")
    for _ in train(model, x, flipped, RECIPE, seed=1):
        pass
    assert not same(models[0], weights_of(model))


@pytest.mark.parametrize("stop_after", [1, 3, 5])
@pytest.mark.parametrize("name", ["vae", "cvae", "vaegmm", "ccvae", "clsvae"])
def test_stopped_and_resumed_is_bit_for_bit_as_never_stopped(name: str, stop_after: int, tmp_path: Path) -> None:
    whole = trained(name)
    path = tmp_path / "state"
    first = tiny_model(name)
    steps = train(first, *tiny_batch(name), RECIPE, checkpoint=path)
    for _ in range(stop_after):
        next(steps)
    steps.close()
    second = tiny_model(name, seed=9)  # what it held before does not matter
    epochs = [p.epoch for p in train(second, *tiny_batch(name), RECIPE, checkpoint=path)]
    assert epochs == list(range(stop_after + 1, RECIPE.epochs + 1))
    assert same(weights_of(whole), weights_of(second))


def test_ctrl_c_in_the_middle_of_an_epoch_keeps_the_epochs_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "state"
    model = tiny_model("clsvae")
    original, calls = model.loss_terms, iter(range(100))

    def interrupted(x: torch.Tensor, y: torch.Tensor) -> Terms:
        if next(calls) == 8:  # the third of three batches, in the third epoch
            raise KeyboardInterrupt
        return original(x, y)

    monkeypatch.setattr(model, "loss_terms", interrupted)
    with pytest.raises(KeyboardInterrupt):
        for _ in train(model, *tiny_batch("clsvae"), RECIPE, checkpoint=path):
            pass
    two_epochs = tiny_model("clsvae")
    steps = train(two_epochs, *tiny_batch("clsvae"), RECIPE)
    next(steps), next(steps)
    assert same(weights_of(model), weights_of(two_epochs))
    resumed = tiny_model("clsvae")
    assert [p.epoch for p in train(resumed, *tiny_batch("clsvae"), RECIPE, checkpoint=path)] == [3, 4, 5, 6]
    assert same(weights_of(resumed), weights_of(trained()))


def test_checkpoints_are_written_along_the_way(tmp_path: Path) -> None:
    path = tmp_path / "state"
    steps = train(tiny_model("clsvae"), *tiny_batch("clsvae"), RECIPE, checkpoint=path, seconds_between_checkpoints=0.0)
    next(steps)
    assert path.exists()
    assert list(tmp_path.iterdir()) == [path], "a temporary file was left"
    steps.close()


def test_checkpoint_of_other_data_or_damaged_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "state"
    x, y = tiny_batch("clsvae")
    next(train(tiny_model("clsvae"), x, y, RECIPE, checkpoint=path, fingerprint="a", seconds_between_checkpoints=0))
    with pytest.raises(BadInput, match="other data"):
        next(train(tiny_model("clsvae"), x, y, RECIPE, checkpoint=path, fingerprint="b"))
    with pytest.raises(BadInput, match="another model"):
        next(train(tiny_model("vaegmm"), x, y, RECIPE, checkpoint=path, fingerprint="a"))
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(BadInput, match="damaged"):
        next(train(tiny_model("clsvae"), x, y, RECIPE, checkpoint=path, fingerprint="a"))


class _Faulty:
    """Makes the loss of chosen batches not a number."""

    def __init__(self, model: Model, bad_calls: set[int]) -> None:
        self.original, self.bad, self.calls = model.loss_terms, bad_calls, 0

    def __call__(self, x: torch.Tensor, y: torch.Tensor) -> Terms:
        terms = self.original(x, y)
        self.calls += 1
        if self.calls in self.bad:
            terms = replace(terms, rows=terms.rows | {"kl_z": terms.rows["kl_z"] * float("nan")})
        return terms


def test_non_finite_loss_goes_back_lowers_the_rate_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    model = tiny_model("clsvae")
    monkeypatch.setattr(model, "loss_terms", _Faulty(model, {5}))
    steps = list(train(model, *tiny_batch("clsvae"), RECIPE))
    assert [s.epoch for s in steps] == [1, 1, 2, 3, 4, 5, 6]
    assert "not finite" in steps[1].message
    assert "0.0003" in steps[1].message
    assert not any(s.message for s in steps[2:])
    assert all(torch.isfinite(p).all() for p in model.parameters())


def test_after_three_times_it_stops_with_the_last_good_model(monkeypatch: pytest.MonkeyPatch) -> None:
    good = tiny_model("clsvae")
    next(train(good, *tiny_batch("clsvae"), RECIPE))
    model = tiny_model("clsvae")
    monkeypatch.setattr(model, "loss_terms", _Faulty(model, set(range(4, 100))))
    messages = []
    steps = train(model, *tiny_batch("clsvae"), RECIPE)
    with pytest.raises(Diverged, match="epoch 2"):
        messages.extend(step.message for step in steps)
    assert sum("not finite" in message for message in messages) == 3
    assert same(weights_of(model), weights_of(good))


def test_a_state_gone_bad_in_the_last_step_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The loss is taken before the step: weights that the step made infinite must not become the good state."""
    model = tiny_model("clsvae")
    x, y = tiny_batch("clsvae")
    run = Trainer(model, x, y, RECIPE, seed=0)
    step = run.adam.step

    def bad_step(loss: torch.Tensor, rate: float) -> None:
        step(loss, rate)
        next(iter(model.encode_clean.parameters())).data[0] = float("inf")

    monkeypatch.setattr(run.adam, "step", bad_step)
    assert run.train_epoch() is None


def test_early_stop_waits_for_the_ramps_and_then_for_patience() -> None:
    recipe = replace(RECIPE, epochs=60, learning_rate=0.0, patience=4)
    epochs = [p.epoch for p in train(tiny_model("vae"), *tiny_batch("vae"), recipe)]
    risen = 1 + 0.5 * 59
    assert risen + 4 < epochs[-1] < 60


def test_schedule_weighs_the_terms(freeze_noise: Any) -> None:
    """The reported loss is the sum of the reported terms, each with its weight in that epoch."""
    freeze_noise()
    for p in train(tiny_model("clsvae"), *tiny_batch("clsvae"), RECIPE):
        weights = {name: ramp.at(p.epoch - 1, RECIPE.epochs) for name, ramp in RECIPE.weights.items()}
        assert p.loss == pytest.approx(sum(weights.get(name, 1.0) * value for name, value in p.terms.items()))


def test_weight_decay_pulls_weights_to_zero() -> None:
    def size(decay: float) -> float:
        recipe = replace(RECIPE, epochs=40, weight_decay=decay)
        model = trained("vae", recipe)
        return float(sum(p.detach().square().sum() for p in model.encode.parameters()))

    assert size(1.0) < 0.5 * size(0.0)


def test_penalty_of_weight_zero_is_not_even_computed(monkeypatch: pytest.MonkeyPatch) -> None:
    def never() -> torch.Tensor:
        raise AssertionError("computed")

    model = tiny_model("clsvae")
    original = model.loss_terms
    monkeypatch.setattr(model, "loss_terms", lambda x, y: replace(original(x, y), penalties={"dependence": never}))
    recipe = replace(RECIPE, weights={**RECIPE.weights, "dependence": Ramp(0.0)})
    assert len(list(train(model, *tiny_batch("clsvae"), recipe))) == RECIPE.epochs


@pytest.mark.parametrize("dataset", list(PAPER))
@pytest.mark.parametrize("name", list(PAPER["shapes"]))
def test_presets_weigh_only_terms_that_their_model_has(dataset: str, name: str) -> None:
    """A weight with a misspelt name would silence nothing and weigh nothing."""
    recipe = PAPER[dataset][name].recipe
    terms = tiny_model(name).loss_terms(*tiny_batch(name))
    known = {**terms.rows, **terms.trusted, **terms.trusted_sums, **terms.penalties}
    unknown = set(recipe.weights) - set(known) - {"kl_y"}
    assert not unknown


@pytest.mark.parametrize("decay", [0.0, 0.3])
def test_adam_steps_as_torchs_does(decay: float) -> None:
    ours, theirs = tiny_model("clsvae"), tiny_model("clsvae")
    x, y = tiny_batch("clsvae")
    adam = Adam(dict(ours.named_parameters()), decay)
    reference = torch.optim.Adam(theirs.parameters(), lr=1.0, weight_decay=decay)
    for k in range(5):
        losses = []
        for model in (ours, theirs):
            torch.manual_seed(k)
            losses.append(torch.stack([term.mean() for term in model.loss_terms(x, y).rows.values()]).sum())
            losses[-1] = losses[-1] + model.loss_terms(x, y).trusted["cross_entropy"].sum()
        adam.step(losses[0], 0.01 * (k + 1))
        reference.param_groups[0]["lr"] = 0.01 * (k + 1)
        reference.zero_grad()
        losses[1].backward()
        reference.step()
    for a, b in zip(ours.parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(a, b)


def test_a_small_model_trains_on_one_thread_a_large_one_on_all(monkeypatch: pytest.MonkeyPatch) -> None:
    model = tiny_model("clsvae")
    seen = []
    original = model.loss_terms
    monkeypatch.setattr(model, "loss_terms", lambda x, y: (seen.append(torch.get_num_threads()), original(x, y))[1])
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        for limit in (10**9, 0):
            monkeypatch.setattr(unblemish.training, "ONE_THREAD_BELOW", limit)
            for _ in train(model, *tiny_batch("clsvae"), replace(RECIPE, epochs=1)):
                assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)
    assert seen == [1] * 3 + [2] * 3
