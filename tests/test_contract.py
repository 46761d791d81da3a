"""What every model must do, whatever its equation."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from conftest import tiny_batch, tiny_model
from unblemish.data.schema import Kind
from unblemish.models import presets
from unblemish.models.base import Model, Terms

NAMES = ["vae", "cvae", "vaegmm", "ccvae", "clsvae"]
WITH_CLASSIFIER = ["vaegmm", "ccvae", "clsvae"]

every_model = pytest.mark.parametrize("name", NAMES)
every_kind = pytest.mark.parametrize("kind", list(Kind))


def label_term(terms: Terms) -> torch.Tensor:
    return (terms.trusted | terms.trusted_sums)["cross_entropy"]


def gradients(model: Model, value: torch.Tensor) -> dict[str, float]:
    """The size of the gradient at each parameter."""
    parameters = dict(model.named_parameters())
    found = torch.autograd.grad(value, list(parameters.values()), allow_unused=True, retain_graph=True)
    return {n: 0.0 if g is None else float(g.abs().sum()) for n, g in zip(parameters, found, strict=True)}


@every_model
@every_kind
def test_terms_are_per_row_and_finite(name: str, kind: Kind) -> None:
    model = tiny_model(name, kind)
    x, y = tiny_batch(name, kind=kind)
    terms = model.loss_terms(x, y)
    for values in (terms.rows | terms.trusted | terms.trusted_sums).values():
        assert values.shape == (len(x),)
        assert torch.isfinite(values).all()
    for penalty in terms.penalties.values():
        assert penalty().shape == ()
    assert model.inlier_logit(x).shape == (len(x),)
    assert model.repair(x).shape == x.shape


@every_model
@every_kind
def test_repeated_rows_leave_per_row_terms_as_they_are(name: str, kind: Kind, freeze_noise: Callable[[], None]) -> None:
    freeze_noise()
    model = tiny_model(name, kind)
    x, y = tiny_batch(name, kind=kind)
    once, twice = model.loss_terms(x, y), model.loss_terms(x.repeat(2, 1), y.repeat(2))
    parts = ["rows", "trusted", "trusted_sums"]
    for single, double in ((getattr(once, part), getattr(twice, part)) for part in parts):
        for term, values in single.items():
            torch.testing.assert_close(double[term], values.repeat(2))


@every_model
@every_kind
def test_every_term_moves_something_and_every_parameter_is_moved(name: str, kind: Kind) -> None:
    model = tiny_model(name, kind)
    x, y = tiny_batch(name, kind=kind)
    terms = model.loss_terms(x, y)
    values = {term: v.mean() for term, v in (terms.rows | terms.trusted | terms.trusted_sums).items()}
    values |= {term: penalty() for term, penalty in terms.penalties.items()}
    sizes = {term: gradients(model, value) for term, value in values.items()}
    for term, moved in sizes.items():
        assert sum(moved.values()) > 0, f"{term} has no gradient at all"
    still = [p for p in sizes["reconstruction"] if not any(moved[p] > 0 for moved in sizes.values())]
    assert not still, f"no term moves {still}"


def test_stop_gradient_keeps_the_labels_from_the_clean_code() -> None:
    x, y = tiny_batch("clsvae")
    for stop in (True, False):
        model = tiny_model("clsvae", stop_gradient=stop)
        terms = model.loss_terms(x, y)
        for value in (terms.trusted["cross_entropy"].mean(), terms.rows["kl_y"].mean()):
            moved = gradients(model, value)
            clean = sum(size for parameter, size in moved.items() if parameter.startswith("encode_clean"))
            assert (clean == 0) is stop
            assert sum(size for parameter, size in moved.items() if parameter.startswith("encode_dirty")) > 0


def test_importance_weight_of_ccvae_multiplies_without_teaching_the_code() -> None:
    """w multiplies the fit: were it to reach z_c, a bad fit would push labelled rows off their label."""
    model = tiny_model("ccvae")
    x, y = tiny_batch("ccvae")
    with torch.no_grad():
        for parameter in model.decode.parameters():
            parameter.zero_()  # the fit no longer depends on z, so only w can carry a gradient
    fit = model.loss_terms(x, y).rows["reconstruction"]
    assert sum(gradients(model, fit[y < 0].sum())[p] for p in ("weight", "bias")) == 0
    assert sum(gradients(model, fit[y >= 0].sum())[p] for p in ("weight", "bias")) > 0


@pytest.mark.parametrize("name", WITH_CLASSIFIER)
def test_label_term_draws_every_labelled_row_to_its_label(name: str, freeze_noise: Callable[[], None]) -> None:
    freeze_noise()
    x, y = tiny_batch(name)
    for row in torch.nonzero(y >= 0)[:6, 0].tolist():
        model = tiny_model(name)
        before = model.inlier_logit(x)[row].item()
        loss = label_term(model.loss_terms(x, y))[row]
        loss.backward()
        with torch.no_grad():
            for parameter in model.parameters():
                if parameter.grad is not None:
                    parameter.sub_(1e-3 * parameter.grad)
        after = model.inlier_logit(x)[row].item()
        assert (after > before) if y[row] == 1 else (after < before)


@pytest.mark.parametrize("name", WITH_CLASSIFIER)
def test_prior_of_a_known_label_teaches_nothing(name: str) -> None:
    """log p(y) is a constant: with it, no gradient of kl_y may reach the parameters by a labelled row."""
    if name == "ccvae":
        pytest.skip("its kl_y of labelled rows holds w log q(y|z_c) as well, by its bound")
    model = tiny_model(name)
    x, y = tiny_batch(name)
    kl_y = model.loss_terms(x, y).rows["kl_y"]
    assert sum(gradients(model, kl_y[y >= 0].sum()).values()) == 0
    assert sum(gradients(model, kl_y[y < 0].sum()).values()) > 0


@pytest.mark.parametrize("name", WITH_CLASSIFIER)
def test_label_term_is_nothing_on_unlabelled_rows(name: str) -> None:
    model = tiny_model(name)
    x, y = tiny_batch(name)
    values = label_term(model.loss_terms(x, y))
    assert (values[y < 0] == 0).all()
    assert (values[y >= 0] > 0).all()


@every_model
@every_kind
def test_scores_do_not_depend_on_company_or_order(name: str, kind: Kind) -> None:
    model = tiny_model(name, kind)
    x, _ = tiny_batch(name, kind=kind)
    order = torch.randperm(len(x), generator=torch.Generator().manual_seed(1))
    for function in (model.inlier_logit, model.repair):
        with torch.no_grad():
            whole = function(x)
            torch.testing.assert_close(function(x[order]), whole[order])
            torch.testing.assert_close(torch.cat([function(x[:5]), function(x[5:6]), function(x[6:])]), whole)


@every_model
def test_scoring_draws_no_random_numbers(name: str) -> None:
    model = tiny_model(name)
    x, _ = tiny_batch(name)
    assert torch.equal(model.inlier_logit(x), model.inlier_logit(x))
    assert torch.equal(model.repair(x), model.repair(x))


@every_model
def test_configuration_is_frozen(name: str) -> None:
    config = presets.PAPER["shapes"][name].config
    with pytest.raises(AttributeError):
        config.alpha = 0.5  # type: ignore[misc,union-attr]
