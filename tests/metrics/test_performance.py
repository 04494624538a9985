"""Ranking, decisions and calibration: against scikit-learn, and intervals that hold the truth."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import expit
from scipy.stats import ks_2samp
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import average_precision_score, brier_score_loss, precision_score, recall_score, roc_auc_score

from evenhand.metrics.gaps import read_attributes
from evenhand.metrics.performance import PERFORMANCE, fit_platt, performance


@pytest.mark.parametrize("seed", range(4))
def test_metrics_are_those_of_scikit_learn(seed: int) -> None:
    random = np.random.default_rng(seed)
    scores = np.round(random.normal(-1.0, 1.5, size=400), 1 if seed % 2 else 9)
    truth = random.random(400) < expit(0.7 * scores)
    (found,) = performance(np.where(truth, 1.0, -1.0), scores, [], cut=-0.5)
    values = {name: one[0] for name, one in found["metrics"].items()}
    area = roc_auc_score(truth, scores)
    expected = {
        "base_rate": truth.mean(),
        "selection_rate": (scores > -0.5).mean(),
        "recall": recall_score(truth, scores > -0.5),
        "precision": precision_score(truth, scores > -0.5),
        "AUC": area,
        "Gini": 2 * area - 1,
        "KS": ks_2samp(scores[truth], scores[~truth]).statistic,
        "average_precision": average_precision_score(truth, scores),
        "Brier": brier_score_loss(truth, expit(scores)),
        "calibration_slope": LogisticRegression(C=np.inf).fit(scores[:, None], truth).coef_.item(),
    }
    assert list(values) == list(PERFORMANCE) == list(expected)
    for name, value in expected.items():
        # Platt's targets differ a little from 0 and 1.
        assert values[name] == pytest.approx(value, abs=0.02 if name == "calibration_slope" else 1e-12), name
    for value, low, high in found["metrics"].values():
        assert low <= value <= high


def test_intervals_hold_the_truth_about_as_often_as_they_say() -> None:
    random = np.random.default_rng(0)
    many = random.normal(-1.0, 1.5, size=200_000)
    labels = np.where(random.random(len(many)) < expit(many), 1.0, -1.0)
    (truth,) = performance(labels, many, [])
    inside = dict.fromkeys(PERFORMANCE, 0)
    for start in range(0, 60 * 500, 500):
        (found,) = performance(labels[start : start + 500], many[start : start + 500], [])
        for name, (_, low, high) in found["metrics"].items():
            inside[name] += low <= truth["metrics"][name][0] <= high
    # Of 60, at 95 %: 50 or fewer has a chance below 1e-3, and the seed is fixed.
    assert min(inside.values()) > 50


def test_groups_and_rows_that_give_no_value() -> None:
    signs, scores = np.array([1.0, 1.0, -1.0, 1.0]), np.array([0.1, 0.3, -0.2, 0.5])
    everybody, a, b = performance(signs, scores, read_attributes({"group": ["a", "a", "a", "b"]}))
    assert (everybody["rows"], a["rows"], b["rows"]) == (4, 3, 1)
    assert a["metrics"]["AUC"][0] == 1.0
    assert b["metrics"]["AUC"] == [None, None, None]
    assert b["metrics"]["calibration_slope"] == [None, None, None]
    (nobody,) = performance(signs, scores, [], cut=1.0)
    assert nobody["metrics"]["precision"] == [None, None, None]


def test_platt_gives_finite_numbers_for_separable_rows() -> None:
    found = fit_platt(np.array([False] * 5 + [True] * 5), np.arange(10.0))
    assert found is not None
    assert 0.0 < found[0] < 10.0
    assert fit_platt(np.array([True, False]), np.zeros(2)) is None
