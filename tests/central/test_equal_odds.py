"""Equal odds by thresholds: equal rates on the fitting rows, an independent optimum, seeds, and refused input."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import linprog
from scipy.special import expit
from sklearn.exceptions import NotFittedError

from evenhand.errors import DataError, InputError
from evenhand_reproductions.central import EqualOddsPostprocessor

CONSTRAINTS = ["equalized_odds", "true_positive_rate_parity"]
OBJECTIVES = ["balanced_accuracy_score", "accuracy_score"]
Sample = tuple[Any, Any, Any]


def sample(seed: int = 0, n: int = 600, groups: int = 2, decimals: int = 8) -> Sample:
    """Scores, labels (±1) and groups; the groups differ in base rate, offset and how well scores tell labels apart."""
    random = np.random.default_rng(seed)
    s = random.integers(groups, size=n)
    y = np.where(random.random(n) < 0.3 + 0.4 * s / groups, 1, -1)
    # Every (label x group) slice has a row.
    s[: 2 * groups], y[: 2 * groups] = np.arange(2 * groups) // 2, np.tile([-1, 1], groups)
    scores = random.normal(size=n) + (0.4 + 0.4 * s) * y + 0.5 * s
    return np.round(scores, decimals), y, np.array(list("abcde"))[s]


def rates(chances: Any, y: Any, s: Any) -> Any:
    """(TPR, FPR) of each group."""
    return np.array([[chances[(s == group) & (y == label)].mean() for label in (1, -1)] for group in np.unique(s)])


@pytest.mark.parametrize("objective", OBJECTIVES)
@pytest.mark.parametrize("constraint", CONSTRAINTS)
@given(seed=st.integers(0, 2**32 - 1), groups=st.integers(2, 5), decimals=st.integers(0, 8))
def test_expected_rates_agree_on_the_fitting_rows(
    constraint: Any, objective: Any, seed: int, groups: int, decimals: int
) -> None:
    scores, y, s = sample(seed, 120, groups, decimals)
    model = EqualOddsPostprocessor(constraint=constraint, objective=objective).fit(scores, y, s)
    found = rates(model.selection_probability(scores, s), y, s)
    np.testing.assert_allclose(model.rates_.to_numpy(), found)
    gaps = np.ptp(found, axis=0)
    # fairlearn interpolates to a common point of the ROC curves, so only rounding is left.
    assert gaps[0] < 1e-9
    if constraint == "equalized_odds":
        assert gaps[1] < 1e-9


@pytest.mark.parametrize("constraint", CONSTRAINTS)
def test_decisions_have_these_rates(constraint: Any) -> None:
    scores, y, s = sample(n=400)
    model = EqualOddsPostprocessor(constraint=constraint).fit(scores, y, s)
    chances = model.selection_probability(scores, s)
    seeds = 200
    drawn = np.mean([model.predict(scores, s, random_state=seed) == 1 for seed in range(seeds)], axis=0)
    for group in "ab":
        for label in (1, -1):
            rows = (s == group) & (y == label)
            # Decisions are independent: five standard errors of their mean.
            error = np.sqrt(np.sum(chances[rows] * (1 - chances[rows])) / seeds) / rows.sum()
            assert abs(drawn[rows].mean() - chances[rows].mean()) <= 5 * error + 1e-12


def best_rates(scores: Any, y: Any, s: Any, constraint: str, objective: str) -> float:
    """The largest objective over all mixes of thresholds in each group under the constraint: a linear program."""
    groups = np.unique(s)
    points = []  # for each group, (thresholds, 2): TPR and FPR
    for group in groups:
        rows = s == group
        thresholds = np.append(np.unique(scores[rows]), np.inf)
        above = scores[rows][None, :] >= thresholds[:, None]
        points.append(np.stack([above[:, y[rows] == label].mean(axis=1) for label in (1, -1)], axis=1))
    sizes = [len(point) for point in points]
    start = np.concatenate([[0], np.cumsum(sizes)])
    equal: list[Any] = []
    target: list[float] = []
    for k in range(len(groups)):
        mass = np.zeros(start[-1])
        mass[start[k] : start[k + 1]] = 1
        equal.append(mass)
        target.append(1.0)
        for rate in (0, 1) if constraint == "equalized_odds" else (0,):
            if k:
                difference = np.zeros(start[-1])
                difference[: start[1]] = points[0][:, rate]
                difference[start[k] : start[k + 1]] = -points[k][:, rate]
                equal.append(difference)
                target.append(0.0)
    share = [np.mean(s == group) for group in groups]
    if objective == "balanced_accuracy_score":
        # fairlearn weighs the groups' balanced accuracies by size; under equalized odds all weights give the same.
        gain = [w * (point[:, 0] + 1 - point[:, 1]) / 2 for w, point in zip(share, points, strict=True)]
    else:
        base = [np.mean(y[s == group] == 1) for group in groups]
        gain = [
            w * (b * point[:, 0] + (1 - b) * (1 - point[:, 1])) for w, b, point in zip(share, base, points, strict=True)
        ]
    return -float(linprog(-np.concatenate(gain), A_eq=np.array(equal), b_eq=target).fun)


@pytest.mark.parametrize("objective", OBJECTIVES)
@pytest.mark.parametrize("constraint", CONSTRAINTS)
def test_objective_is_the_optimum_of_an_independent_linear_program(constraint: Any, objective: Any) -> None:
    scores, y, s = sample(seed=4, n=300)
    model = EqualOddsPostprocessor(constraint=constraint, objective=objective).fit(scores, y, s)
    chances = model.selection_probability(scores, s)
    right = np.where(y == 1, chances, 1 - chances)
    if objective == "accuracy_score":
        value = right.mean()
    else:
        balanced = rates(chances, y, s) @ [0.5, -0.5] + 0.5
        value = np.average(balanced, weights=[np.mean(s == group) for group in "ab"])
    best = best_rates(scores, y, s, constraint, objective)
    # fairlearn looks at 1001 values of one rate; between two of them the objective can be a little higher.
    assert best - 5e-3 < value <= best + 1e-9


def test_seeds() -> None:
    scores, y, s = sample()
    model = EqualOddsPostprocessor().fit(scores, y, s)
    first = model.predict(scores, s)
    assert set(first.tolist()) == {-1, 1}
    np.testing.assert_array_equal(first, model.predict(scores, s))
    np.testing.assert_array_equal(first, EqualOddsPostprocessor().fit(scores, y, s).predict(scores, s))
    other = EqualOddsPostprocessor(random_state=1).fit(scores, y, s)
    assert (first != other.predict(scores, s)).any()
    np.testing.assert_array_equal(first, other.predict(scores, s, random_state=0))


@pytest.mark.parametrize("constraint", CONSTRAINTS)
def test_only_the_order_of_scores_matters(constraint: Any) -> None:
    scores, y, s = sample()
    plain = EqualOddsPostprocessor(constraint=constraint).fit(scores, y, s)
    for other in (expit(scores), 1e6 * scores - 3):
        moved = EqualOddsPostprocessor(constraint=constraint).fit(other, y, s)
        np.testing.assert_array_equal(moved.predict(other, s), plain.predict(scores, s))


def test_neighbouring_floats_stay_apart() -> None:
    """Saturated probabilities: halfway between 1 and the float below it is 1 again."""
    scores = np.tile([np.nextafter(1, 0), 1.0], 20)
    y, s = np.tile([-1, 1], 20), np.repeat(["a", "b"], 20)
    model = EqualOddsPostprocessor().fit(scores, y, s)
    np.testing.assert_array_equal(model.predict(scores, s), y)
    np.testing.assert_array_equal(model.predict([0.0, 2.0], ["a", "b"]), [-1, 1])


def test_labels_and_groups_of_any_kind() -> None:
    scores, y, s = sample()
    expected = EqualOddsPostprocessor().fit(scores, y, s)
    words = pd.Series(np.where(y == 1, "approved", "refused"), index=range(len(y), 0, -1))
    model = EqualOddsPostprocessor().fit(scores.tolist(), words, pd.DataFrame({"sex": s}), pos_label="approved")
    pd.testing.assert_frame_equal(model.rates_, expected.rates_)
    np.testing.assert_array_equal(model.predict(scores[:1], s[:1]), expected.predict(scores[:1], s[:1]))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"scores": [0.1, np.inf, 0.3, 0.4]}, "1 values that are missing, NaN or infinite"),
        ({"y": [1, 1, 1, -1]}, "group 'a' has no negatives"),
        ({"y": [-1, -1, 1, -1]}, "group 'a' has no positives"),
        ({"s": list("aaaa")}, "only the group 'a'"),
        ({"s": ["a", None, "b", "b"]}, "1 missing"),
    ],
)
def test_bad_rows_are_refused(change: dict[str, Any], message: str) -> None:
    rows: dict[str, Any] = {"scores": [0.1, 0.8, 0.3, 0.6], "y": [-1, 1, -1, 1], "s": list("aabb")} | change
    with pytest.raises(DataError, match=message):
        EqualOddsPostprocessor().fit(rows["scores"], rows["y"], rows["s"])


def test_bad_options_unknown_groups_and_early_use() -> None:
    scores, y, s = sample()
    with pytest.raises(InputError, match="constraint is 'demographic_parity'"):
        EqualOddsPostprocessor(constraint="demographic_parity").fit(scores, y, s)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="objective is 'f1'"):
        EqualOddsPostprocessor(objective="f1").fit(scores, y, s)  # type: ignore[arg-type]
    with pytest.raises(NotFittedError):
        EqualOddsPostprocessor().predict(scores, s)
    with pytest.raises(DataError, match="groups \\['z'\\] were not there"):
        EqualOddsPostprocessor().fit(scores, y, s).predict([0.5], ["z"])
