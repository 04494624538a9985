"""A rule for the cut and a narrow bound on rates are both met, on generated families where both are possible."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy.optimize import brentq

from evenhand import (
    DemographicParity,
    EqualizedOdds,
    HorizontalClassifier,
    SplitTableClassifier,
    VerticalClassifier,
)
from evenhand.constraints.thresholds import ANY_SHARE, as_band
from evenhand.errors import ExactRatesWarning, InputError, ProtocolError
from evenhand.metrics import Threshold
from evenhand.protocol.job import Job
from evenhand.protocol.terms import VerticalTerms


def rows(seed: int, size: int, base: float, shift: float) -> tuple[pd.DataFrame, Any, Any]:
    """Return features that tell two groups apart by `shift`, labels with this base rate, and groups."""
    random = np.random.default_rng(seed)
    group = random.random(size) < 0.4
    x = random.normal(size=(size, 4))
    x[:, :2] += shift * group[:, None]
    score = x @ [1.1, 0.9, -0.5, 0.0]
    offset = brentq(lambda one: (1.0 / (1.0 + np.exp(-score - one))).mean() - base, -30.0, 30.0)
    y = np.where(random.random(size) < 1.0 / (1.0 + np.exp(-score - offset)), "yes", "no")
    return pd.DataFrame(x).add_prefix("x"), y, np.where(group, "f", "m")


FAMILIES = [
    (0.05, 0.05, 0.02, 0.8, 1500),
    (0.1, 0.2, 0.05, 0.8, 1500),
    *(
        pytest.param(*one, marks=pytest.mark.soak)
        for one in (
            (0.1, 0.2, 0.02, 0.8, 1500),
            (0.02, 0.05, 0.01, 0.8, 4000),
            (0.2, 0.3, 0.05, 1.5, 4000),
            (0.3, 0.3, 0.02, 0.8, 1500),
            (0.5, 0.4, 0.1, 1.5, 800),
        )
    ),
]


# A model one row beyond a bound is said to miss it. The test allows half a standard error of each rate.
@pytest.mark.filterwarnings("ignore::evenhand.errors.ExactRatesWarning", "ignore:the solver stopped by itself")
@pytest.mark.parametrize("split", ["vertical", "horizontal"])
@pytest.mark.parametrize(("base", "capacity", "epsilon", "shift", "size"), FAMILIES)
def test_capacity_and_parity_hold_together(
    split: str, base: float, capacity: float, epsilon: float, shift: float, size: int
) -> None:
    X, y, sex = rows(int(1000 * capacity), size, base, shift)
    given: dict[str, Any] = {
        "constraint": DemographicParity(epsilon),
        "threshold": Threshold("rate", capacity=capacity),
    }
    if split == "vertical":
        parts = [X[["x0", "x2"]], X[["x1", "x3"]]]
        model: Any = VerticalClassifier(**given).fit(parts, y, sensitive_features=sex)
        chosen = model.predict(parts) == "yes"
    else:
        model = HorizontalClassifier(**given)
        model.fit(X, y, sensitive_features=sex, clients=np.arange(size) % 3)
        chosen = model.predict(X) == "yes"
    assert model.cut_.rule == "rate"
    error = np.sqrt(capacity * (1.0 - capacity) / size)
    assert capacity - 1.5 * error <= chosen.mean() <= capacity + 0.5 * error
    women = (sex == "f").mean()
    of_gap = error / np.sqrt(women * (1.0 - women))
    assert abs(chosen[sex == "f"].mean() - chosen[sex == "m"].mean()) <= epsilon + 0.5 * of_gap


def test_recall_and_equalized_odds_hold_together() -> None:
    X, y, sex = rows(5, 4000, 0.2, 0.8)
    parts = [X[["x0", "x2"]], X[["x1", "x3"]]]
    constraint = EqualizedOdds(0.05, measure="error")
    model = VerticalClassifier(constraint=constraint, threshold=Threshold("recall", target=0.6))
    chosen = model.fit(parts, y, sensitive_features=sex).predict(parts) == "yes"
    # 800 positives: a standard error of the recall is 0.017.
    assert abs(chosen[y == "yes"].mean() - 0.6) < 0.06
    for label in ("yes", "no"):
        rates = [chosen[(y == label) & (sex == one)].mean() for one in "fm"]
        assert abs(rates[0] - rates[1]) <= 0.05 + 1e-9


@pytest.mark.filterwarnings("ignore::evenhand.errors.ColumnWarning")
@pytest.mark.filterwarnings("ignore::evenhand.estimators.shared.ShortfallWarning")
def test_where_both_are_impossible_the_fit_says_so() -> None:
    """Everybody of a group has one score: either all of them are selected, or none."""
    random = np.random.default_rng(0)
    sex = np.where(random.random(400) < 0.5, "f", "m")
    X = pd.DataFrame({"x": np.where(sex == "f", 1.0, 0.0)})
    y = np.where(random.random(400) < np.where(sex == "f", 0.6, 0.2), "yes", "no")
    model = VerticalClassifier(constraint=DemographicParity(0.02), threshold=Threshold("rate", capacity=0.3))
    with pytest.warns(ExactRatesWarning, match="selection rate"):
        model.fit([X, pd.DataFrame({"z": np.zeros(400)})], y, sensitive_features=sex)
    assert not model.certificate_.converged


def test_the_share_is_bounded_only_where_a_cut_is_searched_for() -> None:
    rule = Threshold("rate", capacity=0.2)
    groups = {"sex": ("f", "m")}
    counts = []
    for job in (
        Job(solver="subspace", constraints=(DemographicParity(0.1),)),
        Job(solver="subspace", constraints=(DemographicParity(0.1),), rule=rule),
        Job(solver="subspace", rule=rule),
    ):
        terms = VerticalTerms(job, {"bank": "active", "shop": "passive"}, 100, groups)
        counts.append(len(terms.inequalities))
        assert ANY_SHARE[0] < 0.0 < 1.0 < ANY_SHARE[1]
    assert counts == [1, 2, 0]
    found = VerticalTerms(
        Job(solver="subspace", constraints=(DemographicParity(0.1),), rule=rule), {"bank": "active"}, 100, groups
    ).at_step(3, 0.7, (0.18, 0.2))
    last = found.inequalities[-1]
    assert (last.lower, last.upper, last.measure.cut) == (0.18, 0.2, 0.7)
    assert str(last) == "selection rate"
    for wrong in ([0.3, 0.2], [1.5, 2.0], [-1.0, -0.5]):
        with pytest.raises(ProtocolError, match="no share of rows"):
            as_band(np.array(wrong))


def test_a_classifier_across_clients_decides_at_its_cut() -> None:
    X, y, _ = rows(3, 900, 0.2, 0.5)
    clients = np.arange(900) % 2
    found = HorizontalClassifier(threshold=Threshold("rate", capacity=0.1)).fit(X, y, clients=clients)
    chosen = found.predict(X) == "yes"
    # Scores of models without the row choose the cut, so the share on the training rows is near.
    assert 0.08 <= chosen.mean() <= 0.12
    assert found.cut_.chosen_on == "cross-fitted scores"
    assert ((found.decision_function(X) > found.cut_.score) == chosen).all()
    # The same rule by another positive label: "no" is predicted for a tenth.
    turned = HorizontalClassifier(threshold=Threshold("rate", capacity=0.1), pos_label="no").fit(X, y, clients=clients)
    assert 0.08 <= (turned.predict(X) == "no").mean() <= 0.12
    number = HorizontalClassifier(threshold=0.2).fit(X, y, clients=clients)
    assert ((number.predict_proba(X)[:, 1] > 0.2) == (number.predict(X) == "yes")).all()
    assert number.cut_.chosen_on is None
    assert number.set_params(threshold=Threshold("cost", missed=10, false_alarm=1)).threshold.missed == 10
    three = np.resize(["a", "b", "c"], 900)
    with pytest.raises(InputError, match="is for two labels"):
        HorizontalClassifier(threshold=0.2).fit(X, three, clients=clients)


def test_a_table_split_over_parties_is_decided_at_the_cut_of_its_classifier() -> None:
    X, y, _ = rows(4, 400, 0.2, 0.5)
    found = SplitTableClassifier(VerticalClassifier(threshold=0.1)).fit(X, y)
    assert ((found.predict(X) == "yes") == (found.decision_function(X) > found.classifier_.cut_.score)).all()
    assert found.classifier_.cut_.score < -2.0
