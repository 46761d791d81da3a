"""The paper's objectives once more, in NumPy and float64, as its equations are printed: row by row, cell by cell.

Written from the paper alone, so that an error in the package is not repeated here. Nothing is vectorised over rows,
nothing is rearranged for stability, and a labelled row takes another branch than an unlabelled one, as in the paper.
Rows are x (N, D) and labels y (N,): 1 inlier, 0 outlier, -1 unlabelled. What networks put out is given.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
CellLogProb = Callable[[float, float], float]  # log p(x_d | output_d)


@dataclass(frozen=True)
class Code:
    """q(z | x) = N(mean, exp(log_variance)), a row each, both (N, q)."""

    mean: Array
    log_variance: Array

    def draw(self, noise: Array) -> Array:
        """z = mu + sigma * noise: the reparameterisation trick."""
        return self.mean + np.sqrt(np.exp(self.log_variance)) * noise


@dataclass(frozen=True)
class Objective:
    """What the paper defines of each row.

    terms: what is minimised, by the package's names; they add up to minus the bound
    bound: L(x) of an unlabelled row, L(x, y) of a labelled one
    cross_entropy: the weighted cross-entropy of a labelled row, 0 of an unlabelled one
    """

    terms: dict[str, Array]
    bound: Array
    cross_entropy: Array


# Cells


def sigmoid(logit: float) -> float:
    return 1 / (1 + math.exp(-logit))


def bernoulli_cell(x: float, output: float) -> float:
    """log Bernoulli(x | sigmoid(output))."""
    p = sigmoid(output)
    return x * math.log(p) + (1 - x) * math.log(1 - p)


def gaussian_cell(log_variance: float) -> CellLogProb:
    """log N(x | output, s^2): one variance, shared by all cells."""
    variance = math.exp(log_variance)

    def log_prob(x: float, output: float) -> float:
        return -0.5 * math.log(2 * math.pi * variance) - (x - output) ** 2 / (2 * variance)

    return log_prob


def log_likelihood(x: Sequence[float], output: Sequence[float], cell: CellLogProb) -> float:
    """log p(x | z) of a row: its cells are independent given z."""
    return sum(cell(float(a), float(b)) for a, b in zip(x, output, strict=True))


# Divergences


def kl_normal(mean: Sequence[float], log_variance: Sequence[float], sigma: float) -> float:
    """KL( N(mean, s^2) || N(0, sigma^2 I) ) of a row."""
    total = 0.0
    for m, log_s2 in zip(mean, log_variance, strict=True):
        s = math.sqrt(math.exp(log_s2))
        total += math.log(sigma / s) + (s**2 + m**2) / (2 * sigma**2) - 0.5
    return total


def kl_label(pi: float, alpha: float) -> float:
    """KL( Bernoulli(pi) || Bernoulli(alpha) ): the sum over both labels."""
    return pi * math.log(pi / alpha) + (1 - pi) * math.log((1 - pi) / (1 - alpha))


def log_prior(y: float, alpha: float) -> float:
    """log p(y) = log Bernoulli(y | alpha)."""
    return math.log(alpha) if y == 1 else math.log(1 - alpha)


def log_normal(z: float, mean: float, log_variance: float) -> float:
    """log N(z | mean, exp(log_variance))."""
    variance = math.exp(log_variance)
    return -0.5 * math.log(2 * math.pi * variance) - (z - mean) ** 2 / (2 * variance)


def omega_imb(y: Array) -> float:
    """max{1, N_l1 / N_l0} of the trusted set."""
    inliers, outliers = 0, 0
    for label in y:
        inliers += label == 1
        outliers += label == 0
    return max(1.0, inliers / outliers)


def cross_entropy(y: float, pi: float, omega: float) -> float:
    """The weighted cross-entropy of a labelled row."""
    return -y * math.log(pi) - omega * (1 - y) * math.log(1 - pi)


def distance_correlation(a: Array, b: Array) -> float:
    """dCorr of the annex: dCov / sqrt(dVar dVar), none of them under a root of its own."""
    A, B = _doubly_centred(a), _doubly_centred(b)
    n = len(a)
    covariance = variance_a = variance_b = 0.0
    for k in range(n):
        for m in range(n):
            covariance += A[k][m] * B[k][m] / n**2
            variance_a += A[k][m] ** 2 / n**2
            variance_b += B[k][m] ** 2 / n**2
    return covariance / math.sqrt(variance_a * variance_b)


def _doubly_centred(z: Array) -> list[list[float]]:
    n = len(z)
    distance = [
        [math.sqrt(sum((z[k][i] - z[m][i]) ** 2 for i in range(z.shape[1]))) for m in range(n)] for k in range(n)
    ]
    row = [sum(distance[k][m] for m in range(n)) / n for k in range(n)]
    column = [sum(distance[k][m] for k in range(n)) / n for m in range(n)]
    overall = sum(distance[k][m] for k in range(n) for m in range(n)) / n**2
    return [[distance[k][m] - row[k] - column[m] + overall for m in range(n)] for k in range(n)]


# The models


def vae(x: Array, q: Code, output: Array, *, sigma: float, cell: CellLogProb) -> Objective:
    """Annex A with sigma = 1; annex B, the CVAE, once y went into the networks that gave `q` and `output`."""
    rows = range(len(x))
    reconstruction, kl_z, bound = _zeros(x, 3)
    for n in rows:
        log_p = log_likelihood(x[n], output[n], cell)
        kl = kl_normal(q.mean[n], q.log_variance[n], sigma)
        reconstruction[n], kl_z[n] = -log_p, kl
        bound[n] = log_p - kl
    return Objective({"reconstruction": reconstruction, "kl_z": kl_z}, bound, np.zeros(len(x)))


def vaegmm(
    x: Array,
    y: Array,
    q: tuple[Code, Code],
    output: tuple[Array, Array],
    pi: Array,
    *,
    alpha: float,
    sigma: tuple[float, float],
    omega: float,
    cell: CellLogProb,
) -> Objective:
    """Annex C. Pairs are by the label that went into the encoder: of y=0, then of y=1."""
    reconstruction, kl_z, kl_y, bound, wce = _zeros(x, 5)
    for n in range(len(x)):
        log_p = [log_likelihood(x[n], output[k][n], cell) for k in (0, 1)]
        kl = [kl_normal(q[k].mean[n], q[k].log_variance[n], sigma[k]) for k in (0, 1)]
        G = [log_p[k] - kl[k] for k in (0, 1)]
        if y[n] == -1:
            p = pi[n]
            reconstruction[n] = -(p * log_p[1] + (1 - p) * log_p[0])
            kl_z[n] = p * kl[1] + (1 - p) * kl[0]
            kl_y[n] = kl_label(p, alpha)
            bound[n] = p * G[1] + (1 - p) * G[0] - kl_label(p, alpha)
        else:
            k = int(y[n])
            reconstruction[n], kl_z[n], kl_y[n] = -log_p[k], kl[k], -log_prior(k, alpha)
            bound[n] = G[k] + log_prior(k, alpha)
            wce[n] = cross_entropy(k, pi[n], omega)
    return Objective({"reconstruction": reconstruction, "kl_z": kl_z, "kl_y": kl_y}, bound, wce)


def clsvae(
    x: Array,
    y: Array,
    q_c: Code,
    q_d: Code,
    output: tuple[Array, Array],
    pi: Array,
    *,
    alpha: float,
    sigma_c: float,
    sigma_d: float,
    omega: float,
    cell: CellLogProb,
) -> Objective:
    """Section 4. `output` is the decoder's, at [z_c; z_d] and at [z_c; z_eps]: of y=0, then of y=1."""
    reconstruction, kl_z, kl_y, bound, wce = _zeros(x, 5)
    for n in range(len(x)):
        log_p_dirty = log_likelihood(x[n], output[0][n], cell)
        log_p_clean = log_likelihood(x[n], output[1][n], cell)
        kl_c = kl_normal(q_c.mean[n], q_c.log_variance[n], sigma_c)
        kl_d = kl_normal(q_d.mean[n], q_d.log_variance[n], sigma_d)
        kl_z[n] = kl_c + kl_d
        if y[n] == -1:
            reconstruction[n] = -(pi[n] * log_p_clean + (1 - pi[n]) * log_p_dirty)
            kl_y[n] = kl_label(pi[n], alpha)
            bound[n] = pi[n] * log_p_clean + (1 - pi[n]) * log_p_dirty - kl_label(pi[n], alpha) - kl_c - kl_d
        else:
            reconstruction[n] = -(y[n] * log_p_clean + (1 - y[n]) * log_p_dirty)
            kl_y[n] = -log_prior(y[n], alpha)
            bound[n] = y[n] * log_p_clean + (1 - y[n]) * log_p_dirty + log_prior(y[n], alpha) - kl_c - kl_d
            wce[n] = cross_entropy(y[n], pi[n], omega)
    return Objective({"reconstruction": reconstruction, "kl_z": kl_z, "kl_y": kl_y}, bound, wce)


@dataclass(frozen=True)
class CcvaeParts:
    """q(y=1 | z_c) = sigmoid(weight z_c + bias), and p(z_c | y) by y: of outliers, then of inliers."""

    weight: float
    bias: float
    prior_mean: tuple[float, float]
    prior_log_variance: tuple[float, float]
    alpha: float

    def q_label(self, y: float, z_c: float) -> float:
        """q(y | z_c)."""
        pi = sigmoid(self.weight * z_c + self.bias)
        return pi if y == 1 else 1 - pi

    def q_label_of_row(self, y: float, mean: float, log_variance: float) -> float:
        """q(y | x): the integral of q(y | z_c) q(z_c | x), by trapezoids.

        For a smooth function that falls off as a Gaussian does, they are exact to the last digits.
        """
        deviation = math.sqrt(math.exp(log_variance))
        steps = np.linspace(-12.0, 12.0, 2001)
        total = sum(self.q_label(y, mean + deviation * t) * math.exp(-0.5 * t * t) for t in steps)
        return total * (steps[1] - steps[0]) / math.sqrt(2 * math.pi)

    def log_p_code(self, z_c: float, y: int) -> float:
        """log p(z_c | y)."""
        return log_normal(z_c, self.prior_mean[y], self.prior_log_variance[y])


def ccvae(
    x: Array, y: Array, q: Code, z: Array, output: Array, parts: CcvaeParts, *, beta: float, cell: CellLogProb
) -> Objective:
    """Annex D, p(z_s) in closed form; z_c is the code's first number. Beta is within the bound, as printed there."""
    reconstruction, kl_z, kl_y, label, bound = _zeros(x, 5)
    for n in range(len(x)):
        z_c, mean, log_variance = z[n, 0], q.mean[n, 0], q.log_variance[n, 0]
        log_p = log_likelihood(x[n], output[n], cell)
        log_q_c = log_normal(z_c, mean, log_variance)
        kl_s = kl_normal(q.mean[n, 1:], q.log_variance[n, 1:], 1.0)
        if y[n] == -1:
            pi = parts.q_label(1, z_c)
            log_p_c = (1 - pi) * parts.log_p_code(z_c, 0) + pi * parts.log_p_code(z_c, 1)
            reconstruction[n], kl_z[n], kl_y[n] = -log_p, log_q_c - log_p_c + kl_s, kl_label(pi, parts.alpha)
            bound[n] = log_p - kl_s
            for k, share in ((0, 1 - pi), (1, pi)):  # E_q(y|z_c)[ log p(z_c|y) p(y) / (q(y|z_c) q(z_c|x)) ]
                bound[n] += share * (
                    parts.log_p_code(z_c, k) + log_prior(k, parts.alpha) - math.log(parts.q_label(k, z_c)) - log_q_c
                )
        else:
            k = int(y[n])
            q_y_x = parts.q_label_of_row(k, mean, log_variance)
            q_y_z = parts.q_label(k, z_c)
            w = q_y_z / q_y_x
            reconstruction[n] = -w * log_p
            kl_z[n] = w * (log_q_c - parts.log_p_code(z_c, k)) + kl_s
            kl_y[n] = w * math.log(q_y_z) - log_prior(k, parts.alpha)
            label[n] = -math.log(q_y_x)
            ratio = log_p + parts.log_p_code(z_c, k) - math.log(q_y_z) - log_q_c
            bound[n] = w * ratio - kl_s + beta * math.log(q_y_x) + log_prior(k, parts.alpha)
    terms = {"reconstruction": reconstruction, "kl_z": kl_z, "kl_y": kl_y, "cross_entropy": label}
    return Objective(terms, bound, np.zeros(len(x)))


def ccvae_labelled_at(
    x: Sequence[float],
    y: int,
    mean: Array,
    log_variance: Array,
    z: Array,
    output: Array,
    parts: CcvaeParts,
    *,
    beta: float,
    cell: CellLogProb,
) -> float:
    """L(x, y) of one row at one draw z, with nothing in closed form: its mean over draws is the bound itself."""
    q_y_z, q_y_x = parts.q_label(y, z[0]), parts.q_label_of_row(y, mean[0], log_variance[0])
    log_p_z = parts.log_p_code(z[0], y) + sum(log_normal(z_s, 0.0, 0.0) for z_s in z[1:])
    log_q_z = sum(log_normal(a, m, s) for a, m, s in zip(z, mean, log_variance, strict=True))
    ratio = log_likelihood(x, output, cell) + log_p_z - math.log(q_y_z) - log_q_z
    return q_y_z / q_y_x * ratio + beta * math.log(q_y_x) + log_prior(y, parts.alpha)


def total_loss(
    objective: Objective, y: Array, *, beta: float = 0.0, dependence: float = 0.0, lambda_: float = 0.0
) -> float:
    """The overall loss, of all rows at once, with the penalty on dependence. `beta` is not for the CCVAE."""
    unlabelled = labelled = entropy = 0.0
    trusted = 0
    for n in range(len(y)):
        if y[n] == -1:
            unlabelled += objective.bound[n]
        else:
            labelled += objective.bound[n]
            entropy += objective.cross_entropy[n]
            trusted += 1
    loss = -(unlabelled + labelled) / len(y)
    if beta:
        loss += beta * entropy / trusted
    return loss + lambda_ * dependence


def _zeros(x: Array, count: int) -> list[Array]:
    return [np.zeros(len(x)) for _ in range(count)]
