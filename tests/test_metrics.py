"""Metrics against numbers worked out by another implementation, by hand, and by scikit-learn."""

from __future__ import annotations

import numpy as np
import pytest

from unblemish.metrics import average_precision, brier, smse

# Worked by an implementation that reproduces the authors' stored figures to four digits.
CLEAN = [
    [-0.802, -1.324, -0.248, 0.42, 1.136],
    [0.11, -0.553, -0.785, 0.749, 1.635],
    [0.273, -1.233, -0.958, 1.6, 0.203],
    [-1.732, -0.084, -1.163, -0.629, -0.488],
    [-0.713, 0.553, -0.063, -0.589, 0.41],
    [0.83, -1.643, -0.257, -0.981, -0.173],
]
REPAIRED = [
    [-1.189, -1.318, -0.259, 0.329, 0.822],
    [-0.009, -0.88, -1.192, 0.816, 1.302],
    [0.624, -1.018, -1.557, 1.682, -0.128],
    [-1.722, -0.071, -1.76, -0.699, -0.565],
    [-0.424, 0.199, 0.158, -0.919, 0.311],
    [0.578, -1.208, -0.087, -0.251, 0.02],
]
BINARY_CLEAN = [
    [1.0, 0.0, 0.0, 1.0, 0.0],
    [1.0, 1.0, 0.0, 1.0, 0.0],
    [0.0, 1.0, 0.0, 1.0, 1.0],
    [1.0, 1.0, 1.0, 1.0, 0.0],
    [1.0, 1.0, 0.0, 1.0, 0.0],
    [1.0, 0.0, 0.0, 0.0, 0.0],
]
BINARY_REPAIRED = [
    [0.631, 0.935, 0.924, 0.327, 0.989],
    [0.188, 0.823, 0.157, 0.405, 0.073],
    [0.858, 0.829, 0.14, 0.527, 0.258],
    [0.492, 0.553, 0.106, 0.864, 0.279],
    [0.447, 0.057, 0.003, 0.195, 0.342],
    [0.928, 0.89, 0.481, 0.455, 0.667],
]
MASK = np.zeros((6, 5), bool)
MASK[0, :2] = MASK[2, 1:4] = MASK[5, 3] = True


@pytest.mark.parametrize(
    ("metric", "clean", "repaired", "dirty", "all_clean", "clean_of_outliers"),
    [
        (smse, CLEAN, REPAIRED, 0.19778303330236185, 0.1296813869251069, 0.15387065858483065),
        (brier, BINARY_CLEAN, BINARY_REPAIRED, 0.20571774999999998, 0.3966988733333333, 0.5632259000000001),
    ],
)
def test_golden_values(metric, clean, repaired, dirty, all_clean, clean_of_outliers) -> None:  # type: ignore[no-untyped-def]
    clean, repaired = np.array(clean), np.array(repaired)
    outlier = MASK.any(1)[:, None]
    assert metric(clean, repaired, MASK) == pytest.approx(dirty, rel=1e-12)
    assert metric(clean, repaired, ~MASK) == pytest.approx(all_clean, rel=1e-12)
    assert metric(clean, repaired, ~MASK & outlier) == pytest.approx(clean_of_outliers, rel=1e-12)


def test_smse_by_hand() -> None:
    truth, repaired = np.array([[1.0, 2.0], [3.0, 0.0]]), np.array([[0.0, 2.0], [3.0, 5.0]])
    # column 0: (1 - 0)^2 / (1 + 9); column 1: only the first row counts, and it is right
    cells = np.array([[True, True], [True, False]])
    assert smse(truth, repaired, cells) == pytest.approx((0.1 + 0.0) / 2)


def test_columns_without_a_chosen_cell_do_not_count() -> None:
    truth, repaired = np.ones((3, 2)), np.zeros((3, 2))
    cells = np.zeros((3, 2), bool)
    cells[0, 0] = True
    assert smse(truth, repaired, cells) == 1.0
    assert brier(truth, repaired, cells) == 1.0


def test_average_precision_by_hand_and_with_ties() -> None:
    assert average_precision(np.array([0, 1, 0, 1]), np.array([0.1, 0.9, 0.8, 0.7])) == pytest.approx((1 + 2 / 3) / 2)
    # all the same score: every row is taken at once, and the precision is the share of outliers
    assert average_precision(np.array([1, 0, 0, 0]), np.full(4, 0.5)) == pytest.approx(0.25)
