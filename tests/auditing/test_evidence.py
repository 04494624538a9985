"""Areas, shares of variance and their intervals agree with other people's, and hold as often as they say."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import norm
from sklearn.linear_model import LinearRegression
from sklearn.metrics import r2_score, roc_auc_score

from evenhand.auditing import evidence
from evenhand.auditing.learners import regress


def drawn(seed: int, rows: int = 300, shift: float = 1.0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    truth = rng.random(rows) < 0.4
    first = rng.normal(size=rows) + shift * truth
    return first, first + rng.normal(size=rows), truth


@pytest.mark.parametrize("seed", range(3))
def test_the_area_is_scikit_learns_with_ties_too(seed: int) -> None:
    first, _, truth = drawn(seed)
    for scores in (first, np.round(first)):
        assert evidence.auc(scores, truth).value == pytest.approx(roc_auc_score(truth, scores))


def test_intervals_hold_as_often_as_they_say() -> None:
    true = norm.cdf(1.0 / np.sqrt(2.0))
    draws = [drawn(seed) for seed in range(300)]
    found = [evidence.auc(scores, truth) for scores, _, truth in draws]
    inside = np.mean([one.low <= true <= one.high for one in found])
    assert 0.91 <= inside <= 0.99


def test_a_lift_is_the_difference_of_areas_and_narrower_than_unpaired() -> None:
    first, second, truth = drawn(5, rows=1000)
    lift = evidence.auc_lift(first, second, truth)
    one, other = evidence.auc(first, truth), evidence.auc(second, truth)
    assert lift.value == pytest.approx(one.value - other.value)
    assert lift.high - lift.low < (one.high - one.low) + (other.high - other.low)
    assert lift.low > 0


def test_telling_everybody_apart_is_not_certain_for_the_next() -> None:
    truth = np.arange(200) < 100
    found = evidence.auc(truth.astype(float), truth)
    assert found.value == 1.0
    assert found.low == pytest.approx(0.97)


def test_explained_variance_is_that_of_least_squares_on_other_rows() -> None:
    rng = np.random.default_rng(0)
    evidence_of, known = rng.normal(size=(400, 3)), np.arange(400) % 2 == 0
    targets = evidence_of @ rng.normal(size=(3, 2)) + rng.normal(size=(400, 2))
    model = LinearRegression().fit(evidence_of[known], targets[known])
    found = evidence.explained(regress(evidence_of, targets, known), targets, known)
    assert found.mean() == pytest.approx(r2_score(targets[~known], model.predict(evidence_of[~known])), abs=5e-3)
    nothing = evidence.explained(regress(rng.normal(size=(400, 3)), targets, known), targets, known)
    assert nothing.mean() < 0.02
