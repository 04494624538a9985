"""Slices that are too small for a bound: which they are, what is said of them, and when nothing is said."""

from __future__ import annotations

import warnings

import numpy as np
import pandas as pd
import pytest

from evenhand.constraints import EqualizedOdds, EqualOpportunity, LossParity, NeymanPearson
from evenhand.constraints.kinds import Constraint
from evenhand.constraints.proving import critical_value, mean_variance, rate_variance
from evenhand.constraints.slices import Slice
from evenhand.constraints.small_slices import check_slices, small_slices
from evenhand.errors import EvenhandWarning, SmallSliceWarning

GROUPS = {"race": ["black", "other", "white"]}


def sizes(constraint: Constraint, other: int, rest: int = 10_000) -> dict[Slice, int]:
    """Rows of each slice of a constraint."""
    parts = {part for row in constraint.inequalities(GROUPS) for _, part in row.terms}
    return {part: other if part.group == "other" else rest for part in parts}


def named(constraint: Constraint, other: int) -> list[str]:
    return [str(one.part) for one in small_slices(constraint.inequalities(GROUPS), sizes(constraint, other))]


@pytest.mark.parametrize("epsilon", [0.1, 0.05, 0.01])
def test_a_row_must_not_be_more_than_half_of_epsilon(epsilon: float) -> None:
    threshold = round(2 / epsilon)
    assert named(EqualOpportunity(epsilon), threshold) == []
    assert named(EqualOpportunity(epsilon), threshold - 1) == ["positives with race = other"]
    assert named(EqualizedOdds(epsilon, "error"), threshold - 1) == [
        "positives with race = other",
        "negatives with race = other",
    ]


def test_a_slice_that_no_model_could_prove_epsilon_on_is_too_small() -> None:
    """Even without a single error: z·SE > ε, with z for the constraint's three comparisons."""
    constraint = EqualOpportunity(0.05, "error")
    z = critical_value(0.95, 3)

    def least(n: int) -> float:
        return float(z * np.sqrt(rate_variance(0, n) + rate_variance(0, 10_000)))

    last = max(n for n in range(1, 200) if least(n) > 0.05)
    assert last > 40
    assert named(constraint, last) == ["positives with race = other"]
    assert named(constraint, last + 1) == []
    # Before training nobody knows how losses vary.
    assert named(EqualOpportunity(0.05), last) == []


def test_an_epsilon_of_zero_and_a_limit() -> None:
    assert named(LossParity(0.0), 20) == []
    assert named(LossParity(0.0), 19) == ["race = other"]
    assert [one.rows for one in small_slices(NeymanPearson(0.01).inequalities({}), {Slice(1): 50})] == [50]


def test_an_empty_slice_has_no_size_to_speak_of() -> None:
    assert named(EqualOpportunity(0.1), 0) == []


def test_the_warning_names_slice_size_and_standard_error() -> None:
    labels = np.where(np.arange(4000) % 2 == 0, 1.0, -1.0)
    race = np.where(np.arange(4000) < 74, "other", "white")
    frame = pd.DataFrame({"race": race})
    with pytest.warns(
        SmallSliceWarning, match=r"\[positives with race = other\] \(37 rows, standard error about 0\.16"
    ):
        check_slices(EqualOpportunity(0.01), labels, frame)
    with pytest.warns(EvenhandWarning, match=r"client 'lyon': .*\(37 rows, standard error at most 0\.082, bound 0\.01"):
        check_slices(EqualOpportunity(0.01, "error"), labels, frame, owner="client 'lyon'")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_slices(EqualOpportunity(0.06), labels, frame)
        check_slices(None, labels, frame)


def test_crossings_that_are_left_out_are_named_and_tiny_ones_too() -> None:
    random = np.random.default_rng(0)
    frame = pd.DataFrame({"sex": random.choice(["f", "m"], 5000), "race": random.choice(["a", "b", "c"], 5000)})
    frame.loc[(frame.sex == "f") & (frame.race == "c"), "race"] = "a"
    frame.loc[np.flatnonzero((frame.sex == "m") & (frame.race == "b"))[9:], "race"] = "a"
    labels = np.where(random.random(5000) < 0.5, 1.0, -1.0)
    with pytest.warns(SmallSliceWarning) as caught:
        check_slices(LossParity(0.05, cross=True), labels, frame)
    small, empty = (str(one.message) for one in caught)
    assert "[sex × race = m × b] (9 rows" in small
    assert empty == "crossings without rows in a compared slice are left out: f × c"


def test_long_lists_are_cut() -> None:
    labels = np.tile([1.0, -1.0], 30)
    frame = pd.DataFrame({"town": np.repeat(np.arange(15), 4)})
    with pytest.warns(SmallSliceWarning, match=r"and 7 more\. What holds"):
        check_slices(LossParity(0.05), labels, frame)


def test_variances_of_means() -> None:
    values = np.random.default_rng(1).exponential(size=30)
    found = mean_variance(values.sum(), np.square(values).sum(), 30)
    assert found == pytest.approx(values.var(ddof=1) / 30)
    assert mean_variance([3.0, 0.0], [9.0, 0.0], [1, 0]).tolist() == [np.inf, np.inf]
    assert rate_variance(0, 8) == pytest.approx(0.1 * 0.9 / 8)
    assert rate_variance(0, 0) == np.inf
    assert critical_value(0.95, 1) == pytest.approx(1.959964)
    assert critical_value(0.95, 10) == pytest.approx(2.807034)
