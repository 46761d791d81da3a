"""Every model's loss, score and repair against the paper's equations, computed apart from the package.

The networks are the model's own; what they put out goes to `reference`, which knows the paper and not the package.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose
from torch import Tensor, nn

import reference
from reference import Array, CellLogProb, Code, Objective
from unblemish.models.ccvae import Ccvae, CcvaeConfig
from unblemish.models.clsvae import Clsvae, ClsvaeConfig
from unblemish.models.cvae import Cvae, CvaeConfig
from unblemish.models.likelihoods import Bernoulli, Gaussian
from unblemish.models.networks import Gaussians, Mlp
from unblemish.models.presets import Config, with_imbalance
from unblemish.models.recipe import Ramp, Recipe
from unblemish.models.vae import Vae, VaeConfig
from unblemish.models.vaegmm import Vaegmm, VaegmmConfig
from unblemish.training import Trainer

CELLS = 12
LABELS = [-1, 1, 0, 1, -1, -1, 1, 0, -1, 1, 1, -1, -1, -1]  # omega_imb = 5/2
LOG_VARIANCE = 0.7
BETA, LAMBDA = 30.0, 7.0
EXACT = {"rtol": 1e-9, "atol": 1e-12}
# the package integrates over z_c with points kept in single precision, the reference in double
QUADRATURE = {"rtol": 1e-7, "atol": 1e-7}

# Codes of different sizes and deviations that are all different, so that none can stand in for another unnoticed
CONFIGS: dict[str, Config] = {
    "vae": VaeConfig(code=4),
    "cvae": CvaeConfig(sigma=0.4, code=4),
    "vaegmm": VaegmmConfig(alpha=0.7, sigma_inlier=0.8, sigma_outlier=3.0, code=4),
    "ccvae": CcvaeConfig(alpha=0.7, style_code=3),
    "clsvae": ClsvaeConfig(alpha=0.7, sigma_c=0.6, sigma_d=4.0, sigma_eps=0.3, clean_code=4, dirty_code=3),
}
CLASSES: dict[str, type[Any]] = {"vae": Vae, "cvae": Cvae, "vaegmm": Vaegmm, "ccvae": Ccvae, "clsvae": Clsvae}

every_model = pytest.mark.parametrize("name", list(CONFIGS))
every_likelihood = pytest.mark.parametrize("kind", ["bernoulli", "gaussian"])


@dataclass(frozen=True)
class Case:
    """A model with weights that are not special, and a batch that is the whole dataset."""

    name: str
    model: Any  # one of CLASSES
    x: Tensor
    y: Tensor
    cell: CellLogProb

    @property
    def rows(self) -> Array:
        return array(self.x)

    @property
    def labels(self) -> Array:
        return array(self.y)


def make(name: str, kind: str = "gaussian", **changes: Any) -> Case:
    generator = torch.Generator().manual_seed(sum(map(ord, name + kind)))
    labels = [label if label >= 0 else 1 for label in LABELS] if name == "cvae" else LABELS
    y = torch.tensor(labels, dtype=torch.float64)
    config = with_imbalance(replace(CONFIGS[name], **changes), y.long().numpy())
    likelihood = {"bernoulli": Bernoulli, "gaussian": Gaussian}[kind]()
    with torch.random.fork_rng(devices=[]):
        model = CLASSES[name](config, Mlp(CELLS, widths=(8, 7, 6)), likelihood).double()
    for p in model.parameters():  # as they are made, weights are so small that outputs hardly differ between rows
        p.data.copy_(0.5 * torch.randn(p.shape, generator=generator, dtype=torch.float64))
    x = torch.randn(len(y), CELLS, generator=generator, dtype=torch.float64)
    if kind == "bernoulli":
        return Case(name, model, (x > 0).double(), y, reference.bernoulli_cell)
    likelihood.log_variance.data.fill_(LOG_VARIANCE)
    return Case(name, model, x, y, reference.gaussian_cell(LOG_VARIANCE))


class Noise:
    """Noise that is kept, for the reference to use the same. `alike`: the same in every row."""

    def __init__(self, *, alike: bool = False) -> None:
        self.alike = alike
        self.draws: list[Array] = []
        self.generator = torch.Generator().manual_seed(5)

    def __call__(self, z: Tensor) -> Tensor:
        rows, code = z.shape
        noise = torch.randn(1 if self.alike else rows, code, generator=self.generator, dtype=z.dtype).expand(rows, code)
        self.draws.append(array(noise))
        return noise


Freeze = Callable[[Callable[[Tensor], Tensor]], None]


@pytest.fixture
def freeze(monkeypatch: pytest.MonkeyPatch) -> Freeze:
    """Puts other noise in the place of the models' own, under each name by which a module knows it."""

    def patch(noise: Callable[[Tensor], Tensor]) -> None:
        for module_name, module in list(sys.modules.items()):
            if module_name.startswith("unblemish.") and hasattr(module, "noise_like"):
                monkeypatch.setattr(module, "noise_like", noise)

    return patch


def close(name: str) -> dict[str, float]:
    """How close the package's numbers are to be."""
    return QUADRATURE if name == "ccvae" else EXACT


def array(tensor: Tensor) -> Array:
    return tensor.detach().numpy().astype(np.float64)


def code(q: Gaussians) -> Code:
    return Code(array(q.mean), array(q.log_variance))


def run(network: nn.Module, *parts: Array | Tensor) -> Array:
    """What a network makes of the parts beside each other."""
    return array(network(torch.cat([torch.as_tensor(part) for part in parts], 1)))


def encoded(network: nn.Module, *parts: Array | Tensor) -> Code:
    return code(network(torch.cat([torch.as_tensor(part) for part in parts], 1)))


def column(value: float, rows: int) -> Array:
    return np.full((rows, 1), float(value))


def probability(logits: Array) -> Array:
    return np.array([reference.sigmoid(float(logit)) for logit in logits])


def parts_of(model: Ccvae) -> reference.CcvaeParts:
    outlier, inlier = array(model.prior_mean)
    log_variance_outlier, log_variance_inlier = array(model.prior_log_variance)
    return reference.CcvaeParts(
        weight=model.weight.item(),
        bias=model.bias.item(),
        prior_mean=(outlier, inlier),
        prior_log_variance=(log_variance_outlier, log_variance_inlier),
        alpha=model.config.alpha,
    )


def objective_of(case: Case, draws: list[Array], beta: float = 0.0) -> tuple[Objective, float]:
    """The paper's objective of each row, and dCorr of the codes (0 for models that are not asked for it)."""
    model, rows, labels, cell = case.model, case.rows, case.labels, case.cell
    config: Any = CONFIGS[case.name]
    n = len(rows)
    match case.name:
        case "vae":
            (noise,) = draws
            q = encoded(model.encode, rows)
            return reference.vae(rows, q, run(model.decode, q.draw(noise)), sigma=1.0, cell=cell), 0.0
        case "cvae":
            (noise,) = draws
            q = encoded(model.encoder, rows, labels[:, None])
            output = run(model.decoder, q.draw(noise), labels[:, None])
            return reference.vae(rows, q, output, sigma=config.sigma, cell=cell), 0.0
        case "vaegmm":
            noise1, noise0 = draws
            q0, q1 = (encoded(model.encoder, rows, column(k, n)) for k in (0, 1))
            outputs = run(model.decode, q0.draw(noise0)), run(model.decode, q1.draw(noise1))
            objective = reference.vaegmm(
                rows,
                labels,
                (q0, q1),
                outputs,
                probability(run(model.classifier, rows)[:, 0]),
                alpha=config.alpha,
                sigma=(config.sigma_outlier, config.sigma_inlier),
                omega=reference.omega_imb(labels),
                cell=cell,
            )
            return objective, 0.0
        case "ccvae":
            (noise,) = draws
            q = encoded(model.encode, rows)
            z = q.draw(noise)
            output = run(model.decode, z)
            return reference.ccvae(rows, labels, q, z, output, parts_of(model), beta=beta, cell=cell), 0.0
        case "clsvae":
            noise_c, noise_d, noise_eps = draws
            q_c, q_d = encoded(model.encode_clean, rows), encoded(model.encode_dirty, rows)
            z_c, z_d, z_eps = q_c.draw(noise_c), q_d.draw(noise_d), config.sigma_eps * noise_eps
            objective = reference.clsvae(
                rows,
                labels,
                q_c,
                q_d,
                (run(model.decode, z_c, z_d), run(model.decode, z_c, z_eps)),
                probability(run(model.classifier, z_c, z_d)[:, 0]),
                alpha=config.alpha,
                sigma_c=config.sigma_c,
                sigma_d=config.sigma_d,
                omega=reference.omega_imb(labels),
                cell=cell,
            )
            return objective, reference.distance_correlation(z_c, z_d)
    raise AssertionError(case.name)


def paper_loss(case: Case, draws: list[Array], *, beta: float = BETA, lambda_: float = LAMBDA) -> float:
    objective, dependence = objective_of(case, draws, beta)
    # CCVAE has its beta within the bound; models without cross-entropy or penalty have none to weigh
    beta = beta if case.name in ("vaegmm", "clsvae") else 0.0
    return reference.total_loss(objective, case.labels, beta=beta, dependence=dependence, lambda_=lambda_)


def weights(*, beta: float = BETA, lambda_: float = LAMBDA, kl: float = 1.0) -> dict[str, Ramp]:
    return {"cross_entropy": Ramp(beta), "dependence": Ramp(lambda_), "kl_z": Ramp(kl), "kl_y": Ramp(kl)}


def weigh(means: dict[str, Tensor], by: dict[str, Ramp]) -> float:
    """The loss as training adds it up."""
    return sum(by[name].top * mean.item() if name in by else mean.item() for name, mean in means.items())


def reduced(case: Case, by: dict[str, Ramp], rows: slice = slice(None)) -> dict[str, Tensor]:
    """The means over a batch, as training takes them in its first epoch."""
    return training(case, by).reduce(case.model.loss_terms(case.x[rows], case.y[rows]), at_first(by))


def training(case: Case, by: dict[str, Ramp]) -> Trainer:
    return Trainer(case.model, case.x, case.y, Recipe(1, weights=by), 0)


def at_first(by: dict[str, Ramp]) -> dict[str, float]:
    return {name: ramp.at(0, 1) for name, ramp in by.items()}


@every_likelihood
@every_model
def test_each_term_of_each_row_is_the_papers(name: str, kind: str, freeze: Freeze) -> None:
    case = make(name, kind)
    noise = Noise()
    freeze(noise)
    terms = case.model.loss_terms(case.x, case.y)
    objective, dependence = objective_of(case, noise.draws)

    of_rows = terms.rows | terms.trusted_sums
    assert of_rows.keys() == objective.terms.keys()
    assert list(terms.trusted_sums) == (["cross_entropy"] if name == "ccvae" else [])
    for term, values in of_rows.items():
        assert_allclose(array(values), objective.terms[term], **close(name), err_msg=term)
    assert list(terms.trusted) == (["cross_entropy"] if name in ("vaegmm", "clsvae") else [])
    for values in terms.trusted.values():
        assert_allclose(array(values), objective.cross_entropy, **EXACT)
    assert list(terms.penalties) == (["dependence"] if name == "clsvae" else [])
    for penalty in terms.penalties.values():
        assert_allclose(penalty().item(), dependence, **EXACT)


@every_likelihood
@every_model
def test_the_terms_weighed_and_reduced_are_the_papers_total_loss(name: str, kind: str, freeze: Freeze) -> None:
    case = make(name, kind)
    noise = Noise()
    freeze(noise)
    loss = weigh(reduced(case, weights()), weights())
    assert_allclose(loss, paper_loss(case, noise.draws), **close(name))


@pytest.mark.parametrize("kl", [1.0, 0.3])
@every_model
def test_what_an_epoch_minimises_is_the_papers_total_loss(name: str, kl: float, freeze: Freeze) -> None:
    case = make(name)
    noise = Noise(alike=True)  # an epoch shuffles its rows
    freeze(noise)
    recipe = Recipe(1, batch_size=len(case.x), weights=weights(kl=kl))
    before = replace(case, model=make(name).model)  # the epoch leaves other weights behind
    epoch = Trainer(case.model, case.x, case.y, recipe, 0).train_epoch()

    objective, _ = objective_of(before, noise.draws)
    annealed = sum(values.mean() for term, values in objective.terms.items() if term.startswith("kl_"))
    assert epoch is not None
    assert_allclose(epoch["loss"], paper_loss(before, noise.draws) - (1 - kl) * annealed, **close(name))


@every_model
def test_batches_average_to_the_whole(name: str, freeze: Freeze) -> None:
    """Also where one batch holds more of the trusted set than the other."""
    case = make(name)
    by = weights(lambda_=0.0)
    half = len(case.x) // 2
    losses = []
    for rows in (slice(None), slice(0, half), slice(half, None)):
        freeze(Noise(alike=True))
        losses.append(weigh(reduced(case, by, rows), by))
    assert int((case.y[:half] >= 0).sum()) != int((case.y[half:] >= 0).sum()) or name == "cvae"
    assert_allclose((losses[1] + losses[2]) / 2, losses[0], **EXACT)


@every_model
def test_extra_trusted_rows_stand_for_the_trusted_set_and_for_nothing_else(name: str, freeze: Freeze) -> None:
    """With the whole trusted set behind the batch, the estimate is exact; the rows' own terms are not counted twice."""
    case = make(name)
    by = weights(lambda_=0.0)
    freeze(Noise(alike=True))
    expected = reduced(case, by)
    freeze(Noise(alike=True))
    trusted = torch.nonzero(case.y >= 0)[:, 0]
    rows = torch.cat([torch.arange(len(case.x)), trusted])
    terms = case.model.loss_terms(case.x[rows], case.y[rows])
    found = training(case, by).reduce(terms, at_first(by), extra=len(trusted))
    assert found.keys() == expected.keys()
    for term, value in found.items():
        assert_allclose(value.item(), expected[term].item(), **EXACT, err_msg=term)


def test_without_weight_the_penalty_is_left_out(freeze: Freeze) -> None:
    case = make("clsvae")
    noise = Noise()
    freeze(noise)
    by = weights(lambda_=0.0)
    means = reduced(case, by)
    assert "dependence" not in means
    assert_allclose(weigh(means, by), paper_loss(case, noise.draws, lambda_=0.0), **EXACT)


def test_without_weight_the_penalty_is_not_computed() -> None:
    def refuse() -> Tensor:
        raise AssertionError

    case = make("clsvae")
    terms = replace(case.model.loss_terms(case.x, case.y), penalties={"dependence": refuse})
    means = Trainer(case.model, case.x, case.y, Recipe(1), 0).reduce(terms, {"dependence": 0.0})
    assert means.keys() == {**terms.rows, **terms.trusted}.keys()


def test_the_penalty_may_be_the_root(freeze: Freeze) -> None:
    case = make("clsvae", root_dc=True)
    noise = Noise()
    freeze(noise)
    penalty = case.model.loss_terms(case.x, case.y).penalties["dependence"]
    _, dependence = objective_of(case, noise.draws)
    assert_allclose(penalty().item(), np.sqrt(dependence), **EXACT)


@pytest.mark.parametrize(("inliers", "outliers"), [(5, 2), (2, 5), (3, 3)])
@pytest.mark.parametrize("name", ["vaegmm", "clsvae"])
def test_labelled_outliers_that_are_few_weigh_more(name: str, inliers: int, outliers: int) -> None:
    y = np.array([-1] + [1] * inliers + [-1] + [0] * outliers)
    config: Any = with_imbalance(CONFIGS[name], y)
    assert config.omega_imb == reference.omega_imb(y)


def test_the_batch_tells_an_imbalance_apart() -> None:
    """The comparisons above would not notice a weight that is 1."""
    assert reference.omega_imb(np.array(LABELS)) == 2.5
    assert make("clsvae").model.config.omega_imb == make("vaegmm").model.config.omega_imb == 2.5


@pytest.mark.parametrize("stop_gradient", [True, False])
def test_the_classifier_teaches_the_clean_code_only_if_told(stop_gradient: bool) -> None:
    case = make("clsvae", stop_gradient=stop_gradient)
    terms = case.model.loss_terms(case.x, case.y)
    (terms.trusted["cross_entropy"].sum() + terms.rows["kl_y"].sum()).backward()
    taught = [p.grad is not None and bool(p.grad.abs().sum() > 0) for p in case.model.encode_clean.parameters()]
    assert any(taught) is not stop_gradient
    assert any(p.grad.abs().sum() > 0 for p in case.model.encode_dirty.parameters())


@every_likelihood
@every_model
def test_the_score_is_the_papers(name: str, kind: str) -> None:
    case = make(name, kind)
    model, rows, cell = case.model, case.rows, case.cell
    n = len(rows)
    with torch.no_grad():
        logit = case.model.inlier_logit(case.x)
    assert logit.shape == (n,)
    if name in ("vae", "cvae"):  # a likelihood, as there is no classifier
        score = -array(logit)
        if name == "vae":
            output = run(model.decode, encoded(model.encode, rows).mean)
        else:
            output = run(model.decoder, encoded(model.encoder, rows, column(1, n)).mean, column(1, n))
        expected = np.array([-reference.log_likelihood(rows[i], output[i], cell) for i in range(n)])
        assert not model.has_classifier
    else:
        score = -np.log(probability(array(logit)))
        if name == "vaegmm":
            expected = -np.log(probability(run(model.classifier, rows)[:, 0]))
        elif name == "clsvae":
            means = encoded(model.encode_clean, rows).mean, encoded(model.encode_dirty, rows).mean
            expected = -np.log(probability(run(model.classifier, *means)[:, 0]))
        else:
            q, parts = encoded(model.encode, rows), parts_of(model)
            pi = [parts.q_label_of_row(1, q.mean[i, 0], q.log_variance[i, 0]) for i in range(n)]
            expected = -np.log(np.array(pi))
        assert model.has_classifier
    assert_allclose(score, expected, **close(name))


@every_likelihood
@every_model
def test_the_repair_is_the_papers(name: str, kind: str) -> None:
    case = make(name, kind)
    model, rows = case.model, case.rows
    n = len(rows)
    match name:
        case "vae":
            output = run(model.decode, encoded(model.encode, rows).mean)
        case "cvae":  # encoded as the outlier that it is, decoded as an inlier
            output = run(model.decoder, encoded(model.encoder, rows, column(0, n)).mean, column(1, n))
        case "vaegmm":
            output = run(model.decode, encoded(model.encoder, rows, column(1, n)).mean)
        case "ccvae":
            inlier = parts_of(model).prior_mean[1]
            output = run(model.decode, column(inlier, n), encoded(model.encode, rows).mean[:, 1:])
        case _:
            z_c = encoded(model.encode_clean, rows).mean
            output = run(model.decode, z_c, np.zeros((n, model.config.dirty_code)))
    expected = np.vectorize(reference.sigmoid)(output) if kind == "bernoulli" else output
    with torch.no_grad():
        repaired = model.likelihood.mean(model.repair(case.x))
    assert_allclose(array(repaired), expected, **EXACT)


@pytest.mark.parametrize("label", [0, 1])
def test_ccvae_has_the_papers_bound_though_its_style_code_is_in_closed_form(label: int, freeze: Freeze) -> None:
    """The mean over draws, by quadrature, of the package's loss and of the paper's ratio as it is printed."""
    case = make("ccvae", style_code=1)
    # 40 nodes integrate w over z_c to 1e-9; 3 are exact for the squares of z_s
    points_c, weights_c = np.polynomial.hermite_e.hermegauss(40)
    points_s, weights_s = np.polynomial.hermite_e.hermegauss(3)
    nodes = np.array([(c, s) for c in points_c for s in points_s])
    shares = np.array([c * s for c in weights_c for s in weights_s]) / (weights_c.sum() * weights_s.sum())
    freeze(lambda _: torch.tensor(nodes))
    x, y = case.x[:1].expand(len(nodes), -1), torch.full((len(nodes),), float(label), dtype=torch.float64)
    found = case.model.loss_terms(x, y)
    terms = found.rows | found.trusted_sums
    loss = sum((BETA if term == "cross_entropy" else 1.0) * array(values) for term, values in terms.items())

    q = encoded(case.model.encode, case.rows[:1])
    z = q.draw(nodes)
    output = run(case.model.decode, z)
    bound = [
        reference.ccvae_labelled_at(
            case.rows[0],
            label,
            q.mean[0],
            q.log_variance[0],
            z[i],
            output[i],
            parts_of(case.model),
            beta=BETA,
            cell=case.cell,
        )
        for i in range(len(nodes))
    ]
    assert not np.allclose(loss, -np.array(bound))  # draw by draw they differ
    assert_allclose(shares @ loss, -(shares @ np.array(bound)), **QUADRATURE)


# Steepness of the classifier over one deviation of q(z_c|x): how far the grid carries
@pytest.mark.parametrize(
    ("steepness", "tolerance"), [(0.5, 1e-7), (1.0, 1e-7), (5.0, 1e-6), (10.0, 1e-6), (20.0, 1e-3)]
)
def test_ccvae_integrates_the_label_over_its_code(steepness: float, tolerance: float) -> None:
    model = make("ccvae").model
    deviation = 0.5
    mean, log_variance = torch.linspace(-2, 2, 17, dtype=torch.float64), 2 * np.log(deviation)
    model.weight.data.fill_(steepness / deviation)
    q = Gaussians(mean[:, None], torch.full((17, 1), log_variance, dtype=torch.float64))
    with torch.no_grad():
        by_label = model.log_q_y(q)
    parts = parts_of(model)
    for y, log_q in zip((1, 0), by_label, strict=True):
        expected = [np.log(parts.q_label_of_row(y, float(m), log_variance)) for m in mean]
        assert_allclose(array(log_q), expected, atol=tolerance, rtol=0)
