"""Metrics against hand computation, fairlearn and scikit-learn; properties; bootstrap coverage."""

from __future__ import annotations

from math import log
from typing import Any

import numpy as np
import pandas as pd
import pytest
from fairlearn.metrics import (
    demographic_parity_difference,
    equalized_odds_difference,
    false_negative_rate_difference,
    false_positive_rate_difference,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binom, norm
from sklearn.metrics import accuracy_score, log_loss
from support.group_report import group_report

import evenhand.metrics.strata
from evenhand.errors import DataError, InputError
from evenhand.metrics import group_counts, intervals, summary
from evenhand.metrics.scores import _strata

GAPS = ["DEO", "DFP", "DFN", "DP", "equalized_odds"]

# Eight rows whose losses are known: a score of ±log 3 costs log(4/3) on the right side and log 4 on the wrong one.
RIGHT, WRONG = log(4 / 3), log(4)
Y = np.array([1, 1, -1, -1, 1, 1, 1, -1])
Z = log(3) * np.array([1, 1, 1, -1, 1, -1, -1, -1])
S = np.array(list("aaaabbbb"))


def draw(
    random: np.random.Generator, n: int = 200, groups: int = 3
) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Labels, scores and groups at random, each (label, group) slice with at least one row."""
    slices = np.concatenate([np.arange(2 * groups), random.integers(2 * groups, size=n - 2 * groups)])
    return slices % 2, random.normal(size=n) + 0.3 * (slices % 2) + 0.1 * (slices // 2), slices // 2


@st.composite
def samples(draw_value: st.DrawFn) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    seed, groups, n = draw_value(st.tuples(st.integers(0, 2**32 - 1), st.integers(2, 5), st.integers(12, 80)))
    y, z, s = draw(np.random.default_rng(seed), n, groups)
    # Rounding brings ties and scores of exactly 0, which are predicted negative.
    return y, np.round(z, draw_value(st.integers(0, 3))), s


def test_summary_by_hand() -> None:
    values = summary(Y, Z, sensitive_features=S)
    deo = (RIGHT + 2 * WRONG) / 3 - RIGHT
    assert values == pytest.approx(
        {
            "accuracy": 5 / 8,
            "DEO": deo,
            "DFP": 1 / 2 - 0,
            "DFN": 2 / 3 - 0,
            "DP": 3 / 4 - 1 / 4,
            "equalized_odds": 2 / 3,
            "FR": 1 - deo,
            "HM": 2 * (5 / 8) * (1 - deo) / (5 / 8 + 1 - deo),
            "log_loss": (5 * RIGHT + 3 * WRONG) / 8,
        }
    )
    assert list(values) == ["accuracy", *GAPS, "FR", "HM", "log_loss"]


def test_group_report_by_hand() -> None:
    report = group_report(Y, np.where(Z > 0, 1, -1), sensitive_features=pd.Series(S, name="sex"), scores=Z)
    expected = pd.DataFrame(
        {
            "count": [4, 4],
            "accuracy": [3 / 4, 2 / 4],
            "selection_rate": [3 / 4, 1 / 4],
            "TPR": [1, 1 / 3],
            "FPR": [1 / 2, 0],
            "FNR": [0, 2 / 3],
            "base_rate": [2 / 4, 3 / 4],
            "positive_loss": [RIGHT, (RIGHT + 2 * WRONG) / 3],
        },
        index=pd.Index(["a", "b"], name="sex"),
    )
    pd.testing.assert_frame_equal(report, expected, check_dtype=False, check_index_type=False)
    assert report["count"].dtype.kind == "i"


def test_negative_fairness_gives_harmonic_mean_zero() -> None:
    values = summary([0, 1, 0, 1], [-1, 9, -1, -9], sensitive_features=list("aabb"))
    assert values["DEO"] == pytest.approx(9)
    assert values["FR"] == pytest.approx(-8)
    assert values["HM"] == 0
    # Nothing right and FR = 0: no division by zero.
    z = log(np.e - 1)
    values = summary([0, 1, 0, 1], [1, -z, 1, -100], sensitive_features=list("aabb"))
    assert values["accuracy"] == values["HM"] == 0


def test_large_scores_do_not_overflow() -> None:
    values = summary([0, 1, 0, 1], [1e6, -1e6, -1e6, 1e6], sensitive_features=list("aabb"))
    assert values["DEO"] == 1e6
    assert values["log_loss"] == 5e5


@pytest.mark.slow
@given(samples())
@settings(max_examples=25, deadline=None)  # a MetricFrame takes tens of milliseconds
def test_agrees_with_fairlearn_and_sklearn(sample: Any) -> None:
    y, z, s = sample
    predicted = (z > 0).astype(int)
    values = summary(y, z, sensitive_features=s)
    for name, function in {
        "DFP": false_positive_rate_difference,
        "DFN": false_negative_rate_difference,
        "DP": demographic_parity_difference,
        "equalized_odds": equalized_odds_difference,
    }.items():
        assert values[name] == pytest.approx(function(y, predicted, sensitive_features=s))
    assert values["accuracy"] == pytest.approx(accuracy_score(y, predicted))
    assert values["log_loss"] == pytest.approx(log_loss(y, 1 / (1 + np.exp(-z))))
    losses = [
        log_loss(y[rows], 1 / (1 + np.exp(-z[rows])), labels=[0, 1]) for g in set(s) for rows in [(s == g) & (y == 1)]
    ]
    assert values["DEO"] == pytest.approx(max(losses) - min(losses))


@pytest.mark.slow
@given(samples())
@settings(max_examples=25, deadline=None)
def test_summary_agrees_with_the_report(sample: Any) -> None:
    y, z, s = sample
    report = group_report(y, (z > 0).astype(int), sensitive_features=s, scores=z)
    values = summary(y, z, sensitive_features=s)
    for metric, column in {"DEO": "positive_loss", "DFP": "FPR", "DFN": "FNR", "DP": "selection_rate"}.items():
        assert values[metric] == pytest.approx(np.ptp(report[column]))
    assert values["accuracy"] == pytest.approx(np.average(report["accuracy"], weights=report["count"]))
    assert (report["TPR"] + report["FNR"]).to_numpy() == pytest.approx(1)


@given(samples(), st.randoms(use_true_random=False))
@settings(deadline=None)
def test_rows_in_any_order_give_the_same(sample: Any, random: Any) -> None:
    order = random.sample(range(len(sample[0])), len(sample[0]))
    y, z, s = sample
    assert summary(y[order], z[order], sensitive_features=s[order]) == pytest.approx(
        summary(y, z, sensitive_features=s)
    )
    pd.testing.assert_frame_equal(
        intervals(y[order], z[order], sensitive_features=s[order], repeats=20),
        intervals(y, z, sensitive_features=s, repeats=20),
    )


@pytest.mark.parametrize("labels", [(-1, 1), (False, True), ("no", "yes"), (0.5, 7.25), ("yes", "no"), (1, 0)])
@given(sample=samples())
@settings(max_examples=8, deadline=None)
def test_labels_may_be_any_two_values(labels: tuple[Any, Any], sample: Any) -> None:
    y, z, s = sample
    renamed = np.array(labels)[y]
    expected = summary(y, z, sensitive_features=s)
    assert summary(renamed, z, sensitive_features=s, pos_label=labels[1]) == expected
    if labels[1] > labels[0]:
        assert summary(renamed, z, sensitive_features=s) == expected
    predicted = (z > 0).astype(int)
    pd.testing.assert_frame_equal(
        group_report(renamed, np.array(labels)[predicted], sensitive_features=s, pos_label=labels[1]),
        group_report(y, predicted, sensitive_features=s),
    )


def test_the_other_class_as_positive_swaps_the_error_rates() -> None:
    y, z, s = draw(np.random.default_rng(1))
    values, other = summary(y, z, sensitive_features=s), summary(y, -z, sensitive_features=s, pos_label=0)
    assert (other["DFP"], other["DFN"]) == pytest.approx((values["DFN"], values["DFP"]))
    assert other["log_loss"] == pytest.approx(values["log_loss"])


@given(samples(), st.permutations(range(5)))
@settings(deadline=None)
def test_swapping_groups_changes_nothing(sample: Any, names: list[int]) -> None:
    y, z, s = sample
    swapped = summary(y, z, sensitive_features=np.array(names)[s])
    assert swapped == pytest.approx(summary(y, z, sensitive_features=s))


@given(samples(), st.integers(2, 4))
@settings(deadline=None)
def test_identical_groups_have_no_gaps(sample: Any, copies: int) -> None:
    y, z, _ = sample
    values = summary(np.tile(y, copies), np.tile(z, copies), sensitive_features=np.repeat(range(copies), len(y)))
    assert [values[name] for name in GAPS] == pytest.approx([0] * len(GAPS), abs=1e-12)
    assert values["FR"] == pytest.approx(1)


def test_several_attributes_keep_the_worst_of_each() -> None:
    random = np.random.default_rng(2)
    y, z, s = draw(random)
    table = pd.DataFrame({"region": s, "sex": random.permutation(np.resize(["f", "m"], len(y)))})
    each = [summary(y, z, sensitive_features=table[name]) for name in table]
    both = summary(y, z, sensitive_features=table)
    assert [both[name] for name in GAPS] == pytest.approx([max(one[name] for one in each) for name in GAPS])
    assert both["FR"] == pytest.approx(min(one["FR"] for one in each))
    assert both["accuracy"] == pytest.approx(each[0]["accuracy"])
    assert summary(y, z, sensitive_features=dict(table.items())) == both

    report = group_report(y, y, sensitive_features=table)
    assert report.index.names == ["attribute", "group"]
    alone = group_report(y, y, sensitive_features=table["region"])
    pd.testing.assert_frame_equal(report.loc["region"], alone, check_names=False, check_index_type=False)
    assert intervals(y, z, sensitive_features=table, repeats=10)["estimate"].to_dict() == both


@pytest.mark.parametrize(
    "convert", [list, tuple, pd.Series, pd.Categorical, lambda s: pd.Series(s, index=range(9, 1, -1))]
)
def test_containers_do_not_matter(convert: Any) -> None:
    expected = summary(Y, Z, sensitive_features=S)
    assert summary(convert(Y), Z, sensitive_features=convert(S)) == expected
    assert summary(Y, pd.Series(Z, index=range(9, 1, -1)), sensitive_features=convert(S)) == expected
    assert len(group_report(convert(Y), convert(Y), sensitive_features=convert(S))) == 2


def test_report_shows_undefined_rates_as_missing() -> None:
    report = group_report([1, 1, 0], [1, 0, 1], sensitive_features=["a", "a", "b"], scores=[1, -1, 1])
    assert report.index.name == "sensitive_feature_0"
    assert np.isnan(report.loc["a", "FPR"])
    assert report.loc["b", ["TPR", "FNR", "positive_loss"]].isna().all()
    assert report.loc["b", "FPR"] == 1
    # A category that does not occur is not a group.
    groups = pd.Categorical(["a", "a", "a"], categories=["a", "z"])
    assert group_report([1, 1, 0], [1, 0, 0], sensitive_features=groups).index.tolist() == ["a"]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"scores": Z[:-1]}, r"lengths differ: .*'scores': 7"),
        ({"sensitive_features": S[:-1]}, r"lengths differ: .*'sensitive_features': 7"),
        ({"y_true": Y[:-1]}, r"lengths differ: .*'y_true': 7"),
        ({"y_true": [], "scores": [], "sensitive_features": pd.Series([], dtype=object)}, "no rows"),
        ({"scores": np.where(Z > 0, np.nan, Z)}, "4 scores are NaN"),
        ({"scores": pd.array([None, *Z[1:]], dtype="Float64")}, "1 scores are NaN"),
        ({"scores": np.where(Z > 0, np.inf, Z)}, "infinite"),
        ({"scores": Z[:, None]}, "scores is not a single column"),
        ({"scores": list("abcdefgh")}, "scores are not one number per row"),
        ({"y_true": np.ones(8)}, r"only the label 1\.0"),
        ({"y_true": np.arange(8)}, "8 labels"),
        ({"y_true": [None, *Y[1:]]}, "y_true has 1 missing"),
        ({"pos_label": "yes"}, r"'yes' does not occur: pass pos_label= one of -1, 1"),
        ({"sensitive_features": ["a"] * 8}, "only the group 'a'"),
        ({"sensitive_features": pd.Series([None, *S[1:]], name="sex")}, "'sex' has 1 missing"),
        ({"sensitive_features": pd.DataFrame(index=range(8))}, "no columns"),
        ({"sensitive_features": np.ones((8, 1, 1))}, "not a column or a table"),
        ({"sensitive_features": [(1, 2), 1, "a", (1, 2), 1, "a", 1, "a"]}, "not a column or a table"),
        ({"sensitive_features": [pd.Timestamp("2020-01-01"), 1] * 4}, "no common order"),
        ({"sensitive_features": {"sex": list("aabbbbbb")}}, "no rows with label -1 and sex = 'a': DFP"),
        ({"sensitive_features": {"sex": list("aaccaaaa")}, "pos_label": 1}, "no rows with label 1 and sex = 'c': DEO"),
    ],
)
@pytest.mark.parametrize("function", [summary, intervals])
def test_refuses_what_it_cannot_measure(function: Any, changes: dict[str, Any], message: str) -> None:
    given_rows: dict[str, Any] = {"y_true": Y, "scores": Z, "sensitive_features": S} | changes
    with pytest.raises(DataError, match=message):
        function(**given_rows)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"y_pred": Y[:-1]}, r"lengths differ: .*'y_pred': 7"),
        ({"scores": Z[:-1]}, r"lengths differ: .*'scores': 7"),
        ({"scores": Z * np.nan}, "8 scores are NaN"),
        ({"y_pred": Y + 1}, "labels"),
        ({"y_true": list("nnyynnyy"), "y_pred": list("nnyynnyy")}, r"label 1 does not occur: pass pos_label="),
    ],
)
def test_report_refuses_what_it_cannot_measure(changes: dict[str, Any], message: str) -> None:
    given_rows: dict[str, Any] = {"y_true": Y, "y_pred": Y, "sensitive_features": S} | changes
    with pytest.raises(DataError, match=message):
        group_report(**given_rows)


@pytest.mark.parametrize("option", [{"level": 0}, {"level": 1}, {"level": 95}, {"repeats": 0}])
def test_intervals_refuse_impossible_options(option: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=next(iter(option))):
        intervals(Y, Z, sensitive_features=S, **option)


@pytest.mark.slow
@given(samples(), st.integers(0, 9))
@settings(deadline=None)
def test_intervals_contain_the_estimate(sample: Any, seed: int) -> None:
    y, z, s = sample
    table = intervals(y, z, sensitive_features=s, repeats=30, seed=seed)
    assert table.columns.tolist() == ["estimate", "low", "high", "standard_error", "bound"]
    assert table["estimate"].to_dict() == summary(y, z, sensitive_features=s)
    assert (table["low"] <= table["estimate"]).all()
    assert (table["estimate"] <= table["high"]).all()
    assert (table.loc[GAPS, "low"] >= 0).all()
    assert table.loc["FR", "high"] == pytest.approx(1 - table.loc["DEO", "low"])


def test_intervals_depend_on_the_seed_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    y, z, s = draw(np.random.default_rng(3))
    table = intervals(y, z, sensitive_features=s, seed=7)
    pd.testing.assert_frame_equal(intervals(y, z, sensitive_features=s, seed=7), table)
    assert not intervals(y, z, sensitive_features=s, seed=8).equals(table)
    wider = intervals(y, z, sensitive_features=s, seed=7, level=0.99)
    assert (wider["low"] <= table["low"]).all()
    assert (wider["high"] >= table["high"]).all()
    # Drawing block by block is a matter of memory: it keeps the distribution.
    monkeypatch.setattr(evenhand.metrics.strata, "_DRAWS_AT_ONCE", 1000)
    blocks = intervals(y, z, sensitive_features=s, seed=7)
    assert blocks.to_numpy() == pytest.approx(table.to_numpy(), abs=0.05, nan_ok=True)


def test_sums_of_large_strata_are_drawn_as_their_rows_would_be(monkeypatch: pytest.MonkeyPatch) -> None:
    """Means, spreads and how sums go together; each is off by its own standard error, of which five are allowed."""
    y, z, s = draw(np.random.default_rng(5), n=6000, groups=2)
    strata = _strata(y, z, s, None, False)
    by_rows = strata.resample(4000, np.random.default_rng(0))
    monkeypatch.setattr(evenhand.metrics.strata, "_LARGE", 100)
    by_sums = strata.resample(4000, np.random.default_rng(1))
    for stratum in range(len(strata.size)):
        one, other = (np.stack([a.rows, a.selected, a.loss])[..., stratum] for a in (by_rows, by_sums))
        spread = one.std(axis=1)
        assert (other - one).mean(axis=1) / spread == pytest.approx(0, abs=5 * np.sqrt(2 / 4000))
        assert other.std(axis=1) == pytest.approx(spread, rel=5 / np.sqrt(4000))
        assert np.corrcoef(other) == pytest.approx(np.corrcoef(one), abs=5 * np.sqrt(2 / 4000))


def test_a_constant_predictor_is_not_surely_as_accurate_on_new_rows() -> None:
    """Its accuracy is the base rate of the rows that happened to be drawn."""
    y = np.arange(2000) % 4 == 0
    table = intervals(y, np.full(2000, -1.0), sensitive_features=np.arange(2000) % 3, repeats=4000)
    deviation = np.sqrt(0.25 * 0.75 / 2000)
    estimate, low, high = table.loc["accuracy", ["estimate", "low", "high"]]
    assert estimate == 0.75
    assert [high - estimate, estimate - low] == pytest.approx([norm.ppf(0.975) * deviation] * 2, rel=0.1)


def test_a_slice_that_a_resample_leaves_empty_keeps_its_mean() -> None:
    """Four rows, each a slice of its own: a resample has others in their place, and never nothing to compare."""
    table = intervals([0, 1, 0, 1], [-1.0, 2, 0.5, 0.1], sensitive_features=list("aabb"), repeats=50)
    assert np.isfinite(table[["low", "high"]].to_numpy()).all()
    for name in GAPS[:3]:
        assert table.loc[name, ["low", "high"]].tolist() == pytest.approx([table.loc[name, "estimate"]] * 2)
    assert table.loc["accuracy", "low"] < 0.75 < table.loc["accuracy", "high"]


def test_bootstrap_spread_matches_the_binomial_formula() -> None:
    """A rate over m rows has variance p(1-p)/m; with a clear gap, both ends follow from it within 10 %.

    The far end is a normal 97.5 % point away, the near end the 97.5 % point of an absolute normal (see `intervals`).
    """
    y, z, s = draw(np.random.default_rng(4), n=4000, groups=2)
    table = intervals(y, z + s, sensitive_features=s, repeats=4000)
    selected = pd.Series(z + s > 0)[y == 1].groupby(s[y == 1])
    deviation = np.sqrt((selected.mean() * (1 - selected.mean()) / selected.size()).sum())
    estimate, low, high = table.loc["DFN", ["estimate", "low", "high"]]
    assert high - estimate == pytest.approx(norm.ppf(0.975) * deviation, rel=0.1)
    assert estimate - low == pytest.approx(norm.ppf(0.9875) * deviation, rel=0.1)


@pytest.mark.slow
@pytest.mark.parametrize(("groups", "shift"), [(2, 0.0), (2, 0.5), (5, 0.0)])
def test_coverage(groups: int, shift: float) -> None:
    """Nominal 90 % intervals cover the truth in at least 83 % of 150 samples, with and without a true gap.

    The seed is fixed; for any other, an interval with true coverage 90 % falls below the band with a probability
    under 0.5 % (asserted). The band is open above: `intervals` says where it is cautious, and that HM without any gap
    is covered less often, which is why only there HM is left out.
    """
    trials, threshold = 150, 125
    assert binom.cdf(threshold - 1, trials, 0.9) < 0.005
    random = np.random.default_rng(5)

    def rows(of_each: int) -> tuple[Any, Any, Any]:
        y, s = np.tile([0, 1], of_each * groups), np.repeat(np.arange(groups), 2 * of_each)
        return y, random.normal(loc=2 * y - 1 + shift * s), s

    y, z, s = rows(200_000)
    truth = pd.Series(summary(y, z, sensitive_features=s))
    if shift == 0:  # known exactly, where the noise of even this sample would hide a `low` just above 0
        truth[GAPS], truth["FR"] = 0.0, 1.0
        truth = truth.drop("HM")
    covered = 0 * truth
    for trial in range(trials):
        y, z, s = rows(100)
        table = intervals(y, z, sensitive_features=s, level=0.9, repeats=200, seed=trial).loc[truth.index]
        covered += (table["low"] <= truth) & (truth <= table["high"])
    assert (covered >= threshold).all(), covered


def test_counts_by_group_give_every_rate_of_the_report() -> None:
    rng = np.random.default_rng(3)
    truth, scores = rng.choice(["no", "yes"], 200), rng.normal(size=200)
    groups = pd.DataFrame({"sex": rng.choice(["f", "m"], 200), "ward": rng.choice([1, 2, 3], 200)})
    decisions = np.where(scores > 0, "yes", "no")
    report = group_report(truth, decisions, sensitive_features=groups, pos_label="yes")
    found = group_counts(truth, scores, sensitive_features=groups, pos_label="yes")
    assert [(one["attribute"], one["group"]) for one in found] == [(a, str(b)) for a, b in report.index]
    for one, (_, row) in zip(found, report.iterrows(), strict=True):
        right, wrong = one["true_positives"], one["false_positives"]
        missed, rejected = one["false_negatives"], one["true_negatives"]
        assert right + wrong + missed + rejected == row["count"]
        assert wrong / (wrong + rejected) == pytest.approx(row["FPR"])
        assert missed / (missed + right) == pytest.approx(row["FNR"])
        rows, positives = np.array([cell[:2] for cell in one["calibration"]]).sum(axis=0)
        assert (rows, positives) == (row["count"], right + missed)
        means = [(low / 10, mean, (low + 1) / 10) for low, (_, _, mean) in enumerate(one["calibration"]) if mean]
        assert all(low <= mean <= high for low, mean, high in means)
