"""Gaps of decisions by hand and against fairlearn; labels one against the rest; intervals; the published gaps."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from fairlearn.metrics import demographic_parity_difference, true_positive_rate_difference
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy.stats import binom, norm
from sklearn.metrics import accuracy_score

from evenhand.errors import DataError, InputError
from evenhand.metrics import decision_intervals, demographic_parity, equal_opportunity
from evenhand_reproductions.fairfedavgalm.published_gaps import (
    published_demographic_parity,
    published_equal_opportunity,
)

FUNCTIONS = {"demographic_parity": demographic_parity, "equal_opportunity": equal_opportunity}
PUBLISHED = {"demographic_parity": published_demographic_parity, "equal_opportunity": published_equal_opportunity}

# Six rows of group a, four of group b.
Y = np.array([1, 1, 1, 0, 0, 0, 1, 0, 0, 0])
P = np.array([1, 1, 0, 1, 0, 0, 0, 1, 0, 0])
S = np.array(list("aaaaaabbbb"))


def draw(
    seed: int, labels: int = 2, groups: int = 2, n: int = 80
) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """True labels, predictions and groups at random; each label occurs in each group."""
    random = np.random.default_rng(seed)
    cells = np.concatenate([np.arange(labels * groups), random.integers(labels * groups, size=n)])
    y, s = cells % labels, cells // labels
    return y, np.where(random.random(len(y)) < 0.5 + 0.1 * s, y, random.integers(labels, size=len(y))), s


samples = st.builds(draw, st.integers(0, 2**32 - 1), st.integers(2, 4), st.integers(2, 4), st.integers(0, 60))


def test_by_hand() -> None:
    values = [function(Y, P, sensitive_features=S) for function in (*FUNCTIONS.values(), *PUBLISHED.values())]
    assert values == pytest.approx([3 / 6 - 1 / 4, 2 / 3 - 0 / 1, (3 - 1) / 10, (2 - 0) / 4])


# Rows of CelebA's training part by (Attractive, Male).
CELEBA = {(0, 0): 29_920, (0, 1): 49_247, (1, 0): 64_589, (1, 1): 19_014}


def test_a_perfect_classifier_has_a_published_gap() -> None:
    """On CelebA's counts: 0 by definition of equal opportunity, 54.5 % by the published code."""
    y, s = np.repeat(np.array(list(CELEBA)), list(CELEBA.values()), axis=0).T
    assert equal_opportunity(y, y, sensitive_features=s) == 0
    assert published_equal_opportunity(y, y, sensitive_features=s) == pytest.approx(0.545, abs=5e-4)
    assert published_demographic_parity(y, y, sensitive_features=s) == pytest.approx(0.280, abs=5e-4)
    # The other way round: a coin tossed alike for all groups has no gap, but the larger group is selected more often.
    coin = np.tile([0, 1], len(y) // 2)
    assert demographic_parity(y, coin, sensitive_features=s) < 0.01
    assert published_demographic_parity(y, coin, sensitive_features=s) > 0.05


@pytest.mark.slow
@given(samples)
def test_agrees_with_fairlearn(sample: Any) -> None:
    y, p, s = sample
    each = []
    for label in np.unique(y):
        versus_rest = (y == label).astype(int), (p == label).astype(int)
        found = [function(y, p, sensitive_features=s, pos_label=label) for function in FUNCTIONS.values()]
        assert found[0] == pytest.approx(demographic_parity_difference(*versus_rest, sensitive_features=s))
        assert found[1] == pytest.approx(true_positive_rate_difference(*versus_rest, sensitive_features=s))
        each.append(found)
    worst = np.max(each, axis=0) if len(each) > 2 else each[-1]
    assert [function(y, p, sensitive_features=s) for function in FUNCTIONS.values()] == list(worst)


@given(samples)
def test_published_and_defined_agree_for_groups_alike_in_size(sample: Any) -> None:
    """With G groups of one size and one base rate, the published gaps are the defined ones over G."""
    y, p, s = sample
    groups = 1 + s.max()
    y, s = np.tile(y, groups), np.repeat(np.arange(groups), len(y))
    p = np.where(np.random.default_rng(0).random(len(y)) < 0.7, y, np.tile(p, groups))
    for name, function in FUNCTIONS.items():
        defined, published = (one(y, p, sensitive_features=s, pos_label=1) for one in (function, PUBLISHED[name]))
        assert published == pytest.approx(defined / groups, abs=1e-12)


@pytest.mark.slow
@given(samples, st.randoms(use_true_random=False))
def test_order_and_names_do_not_matter(sample: Any, random: Any) -> None:
    order = random.sample(range(len(sample[0])), len(sample[0]))
    y, p, s = sample
    renamed = np.array(list("klmn"))
    for function in FUNCTIONS.values():
        value = function(y, p, sensitive_features=s)
        assert function(y[order], p[order], sensitive_features=s[order]) == value
        assert function(renamed[y], renamed[p], sensitive_features=pd.Series(renamed[s], name="sex")) == value
    pd.testing.assert_frame_equal(
        decision_intervals(y[order], p[order], sensitive_features=s[order], repeats=20),
        decision_intervals(y, p, sensitive_features=s, repeats=20),
    )


@pytest.mark.slow
@given(samples)
def test_several_attributes_keep_the_worst(sample: Any) -> None:
    y, p, s = sample
    other = np.arange(len(y)) < len(y) // 2
    assume(all(len(set(other[y == label])) == 2 for label in set(y)))
    for function in FUNCTIONS.values():
        both = function(y, p, sensitive_features={"s": s, "half": other})
        assert both == max(function(y, p, sensitive_features=column) for column in (s, other))


def test_a_subtask_leaves_out_other_true_labels() -> None:
    """As in Table 6: rows that are neither cooking nor driving do not count; predictions may be anything."""
    y, p, s = draw(3, labels=4, n=200)
    kept = np.isin(y, [2, 0])
    for function in PUBLISHED.values():
        expected = function(y[kept], p[kept], sensitive_features=s[kept], pos_label=2)
        assert function(y, p, sensitive_features=s, pos_label=2, neg_label=0) == expected
    assert published_demographic_parity(y, p, sensitive_features=s, pos_label=2) != pytest.approx(
        published_demographic_parity(y, p, sensitive_features=s, pos_label=2, neg_label=0)
    )


def test_a_label_that_a_group_lacks() -> None:
    y, p, s = np.array([0, 1, 2, 0, 1, 1]), np.array([0, 1, 2, 1, 1, 3]), list("aaabbb")
    with pytest.raises(DataError, match=r"label 2 and sensitive_feature_0 = 'b'.*skip_unmeasurable"):
        equal_opportunity(y, p, sensitive_features=s)
    # Of label 0: 1 and 0; of label 1: 1 and 1/2. Label 3 is predicted only.
    assert equal_opportunity(y, p, sensitive_features=s, skip_unmeasurable=True) == 1
    assert decision_intervals(y, p, sensitive_features=s, skip_unmeasurable=True).loc["equal_opportunity", "high"] == 1
    with pytest.raises(DataError, match="no label has rows in every group"):
        equal_opportunity(list("aabb"), list("aabb"), sensitive_features=[0, 0, 1, 1], skip_unmeasurable=True)
    with pytest.raises(DataError, match="no row has the positive label"):
        published_equal_opportunity([0, 0], [0, 1], sensitive_features=list("ab"), pos_label=1)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"y_pred": P[:-1]}, r"lengths differ: .*'y_pred': 9"),
        ({"sensitive_features": S[:-1]}, "lengths differ"),
        ({"y_true": [], "y_pred": [], "sensitive_features": pd.Series([], dtype=object)}, "no rows"),
        ({"y_true": [None, *Y[1:]]}, "y_true or y_pred has 1 missing"),
        ({"y_true": [pd.Timestamp("2020-01-01"), *Y[1:].tolist()]}, "no common order"),
        ({"pos_label": "yes"}, r"'yes' does not occur: choose one of \[0, 1\]"),
        ({"y_true": np.ones(10), "y_pred": np.ones(10)}, r"only the label 1\.0 occurs"),
        ({"sensitive_features": ["a"] * 10}, "only the group 'a'"),
    ],
)
@pytest.mark.parametrize("function", [*FUNCTIONS.values(), decision_intervals])
def test_refuses_what_it_cannot_measure(function: Any, changes: dict[str, Any], message: str) -> None:
    given_rows: dict[str, Any] = {"y_true": Y, "y_pred": P, "sensitive_features": S} | changes
    with pytest.raises(DataError, match=message):
        function(**given_rows)


def test_intervals_refuse_impossible_options() -> None:
    for option in ({"level": 1}, {"repeats": 0}):
        with pytest.raises(InputError, match=next(iter(option))):
            decision_intervals(Y, P, sensitive_features=S, **option)


@given(samples, st.integers(0, 9))
def test_intervals_contain_the_estimate(sample: Any, seed: int) -> None:
    y, p, s = sample
    table = decision_intervals(y, p, sensitive_features=s, repeats=30, seed=seed)
    assert table.columns.tolist() == ["estimate", "low", "high", "standard_error", "bound"]
    assert table.index.tolist() == ["accuracy", *FUNCTIONS]
    assert table.loc["accuracy", "estimate"] == pytest.approx(accuracy_score(y, p))
    for name, function in FUNCTIONS.items():
        assert table.loc[name, "estimate"] == function(y, p, sensitive_features=s)
    assert (table["low"] <= table["estimate"]).all()
    assert (table["estimate"] <= table["high"]).all()
    assert table["low"].min() >= 0


def test_intervals_depend_on_the_seed_alone() -> None:
    y, p, s = draw(7, labels=3)
    table = decision_intervals(y, p, sensitive_features=s, seed=7)
    pd.testing.assert_frame_equal(decision_intervals(y, p, sensitive_features=s, seed=7), table)
    assert not decision_intervals(y, p, sensitive_features=s, seed=8).equals(table)


def test_spread_matches_the_binomial_formula() -> None:
    """As for `intervals`: a rate over m rows has variance p(1-p)/m; with a clear gap, both ends follow within 10 %."""
    y, p, s = draw(4, n=4000)
    p = np.where((s == 1) & (y == 1), 1, p)
    p[(s == 1) & (y == 1) & (np.arange(len(y)) % 20 == 0)] = 0
    table = decision_intervals(y, p, sensitive_features=s, repeats=4000)
    rates = pd.Series(p)[y == 1].groupby(s[y == 1])
    deviation = np.sqrt((rates.mean() * (1 - rates.mean()) / rates.size()).sum())
    estimate, low, high = table.loc["equal_opportunity", ["estimate", "low", "high"]]
    assert high - estimate == pytest.approx(norm.ppf(0.975) * deviation, rel=0.1)
    assert estimate - low == pytest.approx(norm.ppf(0.9875) * deviation, rel=0.1)


@pytest.mark.slow
def test_coverage_with_three_labels() -> None:
    """Nominal 90 % intervals cover the true gaps in at least 83 % of 150 samples; below 0.5 % likely otherwise."""
    trials, threshold = 150, 125
    assert binom.cdf(threshold - 1, trials, 0.9) < 0.005
    random = np.random.default_rng(6)
    # P(predicted | true label, group): group 1 is told apart worse.
    chances = np.array([np.full((3, 3), 0.1) + 0.7 * np.eye(3), np.full((3, 3), 0.2) + 0.4 * np.eye(3)])
    y, s = np.tile(np.arange(3), 200), np.repeat([0, 1], 300)
    truth = {"accuracy": 0.7, "equal_opportunity": 0.2, "demographic_parity": 0.0}
    covered = dict.fromkeys(truth, 0)
    for trial in range(trials):
        p = (random.random((len(y), 1)) > chances[s, y].cumsum(axis=1)).sum(axis=1)
        table = decision_intervals(y, p, sensitive_features=s, level=0.9, repeats=200, seed=trial)
        for name, value in truth.items():
            covered[name] += bool(table.loc[name, "low"] <= value <= table.loc[name, "high"])
    assert min(covered.values()) >= threshold, covered
