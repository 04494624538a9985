"""Standard errors and bounds of gaps: by hand, by constraint, and how often they hold."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy.stats import binom, norm
from support.group_report import group_report

from evenhand.constraints import (
    DemographicParity,
    EqualizedOdds,
    EqualOpportunity,
    GroupAgainstOverall,
    LossParity,
    NeymanPearson,
)
from evenhand.errors import ConstraintError, DataError, InputError, SmallSliceWarning
from evenhand.metrics import constraint_gaps, decision_intervals, gap_bounds, intervals, summary

Rows = tuple[np.ndarray[Any, Any], np.ndarray[Any, Any], np.ndarray[Any, Any]]


def draw(seed: int, n: int = 600, groups: int = 3) -> Rows:
    random = np.random.default_rng(seed)
    y, s = random.integers(2, size=n), random.integers(groups, size=n)
    return y, random.normal(size=n) + 0.7 * (2 * y - 1) + 0.2 * s, s


def rate_error(indicator: np.ndarray[Any, Any], *parts: np.ndarray[Any, Any]) -> float:
    """SE² = Σ p̃(1−p̃)/n over slices, p̃ = (k+1)/(n+2)."""
    total = 0.0
    for part in parts:
        n, k = part.sum(), indicator[part].sum()
        p = (k + 1) / (n + 2)
        total += p * (1 - p) / n
    return float(np.sqrt(total))


def test_by_hand() -> None:
    y, z, s = draw(0)
    table = gap_bounds(y, z, sensitive_features=pd.Series(s, name="region"))
    wrong, selected, loss = (z > 0) != (y == 1), z > 0, np.logaddexp(0, -z)
    gaps = {"DEO": (loss, y == 1), "DFP": (wrong, y == 0), "DFN": (wrong, y == 1), "DP": (selected, y >= 0)}
    for name, (values, counted) in gaps.items():
        found = []
        for a, b in combinations(range(3), 2):
            parts = [counted & (s == a), counted & (s == b)]
            gap = abs(values[parts[0]].mean() - values[parts[1]].mean())
            error = rate_error(values, *parts)
            if name == "DEO":
                error = float(np.sqrt(sum(values[part].var(ddof=1) / part.sum() for part in parts)))
            found.append((gap, error, gap + norm.ppf(1 - 0.05 / 6) * error, (a, b), tuple(int(p.sum()) for p in parts)))
        worst = max(found)
        row = table.loc[name]
        assert [row.estimate, row.standard_error] == pytest.approx(worst[:2])
        assert row.bound == pytest.approx(max(one[2] for one in found))
        assert (row.attribute, row.groups, row.rows, row.comparisons) == ("region", worst[3], worst[4], 3)
    assert table.loc["equalized_odds", "estimate"] == table.loc[["DFP", "DFN"], "estimate"].max()
    # Twice as many comparisons: a wider bound than of either.
    assert table.loc["equalized_odds", "comparisons"] == 6
    assert table.loc["equalized_odds", "bound"] > table.loc[["DFP", "DFN"], "bound"].max()


def test_the_table_of_intervals_has_the_same_errors_and_bounds() -> None:
    y, z, s = draw(1)
    bounds, table = gap_bounds(y, z, sensitive_features=s), intervals(y, z, sensitive_features=s, repeats=10)
    columns = ["estimate", "standard_error", "bound"]
    pd.testing.assert_frame_equal(table.loc[bounds.index, columns], bounds[columns])
    losses, right = np.logaddexp(0, np.where(y == 1, -z, z)), (z > 0) == (y == 1)
    assert table.loc["log_loss", "standard_error"] == pytest.approx(losses.std(ddof=1) / np.sqrt(len(y)))
    assert table.loc["accuracy", "standard_error"] == pytest.approx(rate_error(right, y >= 0))
    assert table.loc["FR", "standard_error"] == table.loc["DEO", "standard_error"]
    assert table.loc[["accuracy", "FR", "HM", "log_loss"], "bound"].isna().all()


def test_decisions_have_the_same_bounds_as_scores() -> None:
    y, z, s = draw(2)
    scores = gap_bounds(y, z, sensitive_features=s)
    decisions = decision_intervals(y, (z > 0).astype(int), sensitive_features=s, repeats=10)
    columns = ["estimate", "standard_error", "bound"]
    for one, other in {"demographic_parity": "DP", "equal_opportunity": "DFN"}.items():
        assert decisions.loc[one, columns].tolist() == pytest.approx(scores.loc[other, columns].tolist())


def test_one_row_says_nothing_about_a_mean_loss_and_a_rate_is_never_sure() -> None:
    y, z, s = np.array([1, 1, 1, 0, 0, 0]), np.ones(6), list("abbabb")
    table = gap_bounds(y, z, sensitive_features=s)
    assert table.loc["DEO", ["standard_error", "bound"]].tolist() == [np.inf, np.inf]
    assert table.loc["DFN", "estimate"] == 0
    assert 0.4 < table.loc["DFN", "standard_error"] < table.loc["DFN", "bound"] <= 1


@pytest.mark.parametrize("level", [0, 1, 95])
def test_impossible_levels_are_refused(level: float) -> None:
    y, z, s = draw(3)
    with pytest.raises(InputError, match="level"):
        gap_bounds(y, z, sensitive_features=s, level=level)


@pytest.mark.slow
@pytest.mark.parametrize(("groups", "shift"), [(2, 0.0), (2, 0.6), (4, 0.2)])
def test_the_bound_holds_as_often_as_it_says(groups: int, shift: float) -> None:
    """Nominal 90 % bounds hold in at least 83 % of 150 samples; below 0.5 % likely for a bound that is honest."""
    trials, threshold = 150, 125
    assert binom.cdf(threshold - 1, trials, 0.9) < 0.005
    random = np.random.default_rng(7)

    def rows(n: int) -> Rows:
        y, s = random.random(n) < 0.3, random.integers(groups, size=n)
        return y, random.normal(loc=2 * y - 1 + shift * (s == 0)), s

    y, z, s = rows(400_000)
    truth = pd.Series(summary(y, z, sensitive_features=s))
    held = pd.Series(0, index=["DEO", "DFP", "DFN", "DP", "equalized_odds"])
    for _ in range(trials):
        y, z, s = rows(400)
        held += truth[held.index] <= gap_bounds(y, z, sensitive_features=s, level=0.9)["bound"]
    assert (held >= threshold).all(), held


# -- by constraint

KINDS = {
    "DEO": EqualOpportunity(0.1),
    "DFN": EqualOpportunity(0.1, "error"),
    "equalized_odds": EqualizedOdds(0.1, "error"),
    "DP": DemographicParity(0.1),
}


@pytest.mark.parametrize("name", KINDS)
def test_a_constraint_bounds_the_metric_of_its_name(name: str) -> None:
    y, z, s = draw(4)
    of_metric = gap_bounds(y, z, sensitive_features=s).loc[name]
    (of_constraint,) = constraint_gaps(KINDS[name], y, z, sensitive_features=s).itertuples()
    assert of_constraint[:2] == (KINDS[name].kind, 0.1)
    for column in ("estimate", "standard_error", "bound", "comparisons"):
        assert getattr(of_constraint, column) == pytest.approx(of_metric[column])


def test_constraints_that_are_no_metrics_are_measured_too() -> None:
    y, z, s = draw(5)
    loss = np.logaddexp(0, np.where(y == 1, -z, z))
    wanted = [LossParity(0.2), GroupAgainstOverall(0.3), NeymanPearson(0.4, -1, "error")]
    table = constraint_gaps(wanted, y, z, sensitive_features=s)
    assert table.index.tolist() == ["loss-parity", "group-against-overall", "neyman-pearson"]
    assert table["asked"].tolist() == [0.2, 0.3, 0.4]
    means = np.array([loss[s == group].mean() for group in range(3)])
    assert table.loc["loss-parity", "estimate"] == pytest.approx(np.ptp(means))
    apart = abs(means - loss.mean())
    worst = int(apart.argmax())
    inside = s == worst
    assert table.loc["group-against-overall", "estimate"] == pytest.approx(apart[worst])
    # A group is part of everybody: g(all) − g(s) is (1 − share) times the difference from everybody else.
    spread = loss[inside].var(ddof=1) / inside.sum() + loss[~inside].var(ddof=1) / (~inside).sum()
    expected = (1 - inside.mean()) * np.sqrt(spread)
    assert table.loc["group-against-overall", "standard_error"] == pytest.approx(expected)
    false = (z > 0)[y == 0]
    found = table.loc["neyman-pearson"]
    assert found.estimate == pytest.approx(false.mean())
    assert found.bound == pytest.approx(false.mean() + norm.ppf(0.975) * rate_error((z > 0) & (y == 0), y == 0))


def test_what_cannot_be_measured_is_refused() -> None:
    y, z, s = draw(6)
    with pytest.raises(DataError, match="compares groups"):
        constraint_gaps(EqualOpportunity(), y, z)
    with pytest.raises(DataError, match="lengths differ"):
        constraint_gaps(EqualOpportunity(), y, z[1:], sensitive_features=s)
    with pytest.raises(ConstraintError, match="is empty"):
        constraint_gaps(EqualOpportunity(), np.where(s == 1, 0, y), z, sensitive_features=s)


# -- crossed


def crossed() -> tuple[Any, Any, pd.DataFrame]:
    y, z, s = draw(8, n=900)
    sex = np.random.default_rng(9).choice(["f", "m"], size=len(y))
    return y, z - 1.2 * ((s == 2) & (sex == "f")), pd.DataFrame({"sex": sex, "region": s})


def test_crossed_attributes_are_one_more_attribute() -> None:
    y, z, table = crossed()
    joined = table["sex"] + " × " + table["region"].astype(str)
    expected = summary(y, z, sensitive_features=table.assign(both=joined))
    assert summary(y, z, sensitive_features=table, cross=True) == expected
    plain = summary(y, z, sensitive_features=table)
    assert expected["DFN"] > plain["DFN"]
    found = gap_bounds(y, z, sensitive_features=table, cross=True).loc["DFN"]
    assert (found.attribute, found.comparisons) == ("sex × region", 1 + 3 + 15)
    assert "f × 2" in found.groups
    assert intervals(y, z, sensitive_features=table, cross=True, repeats=10)["estimate"].to_dict() == expected
    report = group_report(y, (z > 0).astype(int), sensitive_features=table, cross=True)
    assert len(report.loc["sex × region"]) == 6


def test_a_crossing_without_rows_of_a_label_is_left_out_and_named() -> None:
    y, z, table = crossed()
    lonely = ((table["sex"] == "f") & (table["region"] == 0)).to_numpy()
    y = np.where(lonely, 0, y)
    with pytest.warns(SmallSliceWarning, match=r"label 1 and sex × region = 'f × 0': left out of DEO and DFN"):
        values = summary(y, z, sensitive_features=table, cross=True)
    rest = [summary(y, z, sensitive_features=table)]
    joined = (table["sex"] + " × " + table["region"].astype(str))[~lonely]
    rest.append(summary(y[~lonely], z[~lonely], sensitive_features=joined))
    assert values["DFN"] == pytest.approx(max(one["DFN"] for one in rest))
    with pytest.raises(DataError, match=r"crosses two or more sensitive attributes; there is 'sex'"):
        summary(y, z, sensitive_features=table[["sex"]], cross=True)
