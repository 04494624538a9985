"""Attributes crossed: the rows they give, which combinations are compared, and that it implies nothing less."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.problems import two_attributes

from evenhand.constraints import (
    EqualizedOdds,
    EqualOpportunity,
    GroupAgainstOverall,
    LossParity,
    NeymanPearson,
    bind,
)
from evenhand.constraints.binding import compared_groups, inequalities
from evenhand.constraints.evaluation import Lagrangian
from evenhand.constraints.groups import crossed_name, with_crossing
from evenhand.errors import ConstraintError, DataError

PEOPLE = pd.DataFrame({"sex": list("fmfmfm"), "race": [1, 1, 2, 2, 2, 1]})


def test_the_crossing_joins_names_and_groups() -> None:
    crossed = with_crossing(PEOPLE)
    assert list(crossed.columns) == ["sex", "race", "sex × race"]
    assert list(crossed["sex × race"]) == ["f × 1", "m × 1", "f × 2", "m × 2", "f × 2", "m × 1"]
    assert with_crossing(crossed) is crossed
    assert crossed_name(crossed.columns) == "sex × race"
    assert crossed_name(["sex", "race"]) is crossed_name(["sex × race", "sex"]) is None
    # Whatever the order in which attributes are listed.
    assert crossed_name(["sex × race", "race", "sex"]) == "sex × race"
    categorical = with_crossing(PEOPLE.astype("category"))
    assert list(categorical["sex × race"]) == list(crossed["sex × race"])


def test_each_attribute_and_the_crossing_are_compared() -> None:
    problem = two_attributes()
    plain = [str(row) for row in bind(EqualOpportunity(0.1), problem.labels, problem.sensitive).rows]
    crossed = [str(row) for row in bind(EqualOpportunity(0.1, cross=True), problem.labels, problem.sensitive).rows]
    values = [f"{group} × {sex}" for group in "abc" for sex in "fm"]
    assert crossed == plain + [
        f"mean loss among positives, {one} vs. {other} (group × sex)" for one, other in combinations(values, 2)
    ]


def test_only_constraints_that_ask_are_crossed() -> None:
    problem = two_attributes()
    together = [EqualizedOdds(0.1, cross=True), LossParity(0.2), NeymanPearson(0.3), GroupAgainstOverall(cross=True)]
    rows = bind(together, problem.labels, problem.sensitive).rows
    alone = [row for one in together for row in bind(one, problem.labels, problem.sensitive).rows]
    assert list(rows) == alone
    # A column of one's own may have any name.
    own = with_crossing(problem.sensitive)
    assert len(bind(LossParity(0.2), problem.labels, own).rows) == 3 + 1 + 15


def test_a_combination_without_rows_in_a_slice_is_left_out() -> None:
    problem = two_attributes()
    lonely = ((problem.sensitive["group"] == "a") & (problem.sensitive["sex"] == "f")).to_numpy()
    labels = np.where(lonely, -1.0, problem.labels)
    bound = bind(EqualOpportunity(0.1, cross=True), labels, problem.sensitive)
    assert not any("a × f" in name for name in bound.names)
    assert len(bound.rows) == 3 + 1 + 10
    # Loss parity needs no positives: there it is compared.
    assert any("a × f" in name for name in bind(LossParity(0.1, cross=True), labels, problem.sensitive).names)
    # Values and weights are those of the rows without them.
    scores = np.random.default_rng(0).normal(size=len(labels))
    values = Lagrangian(labels, bound).at(scores).values
    loss = np.logaddexp(0, -scores)
    joined = problem.sensitive["group"] + " × " + problem.sensitive["sex"]
    for row, value in zip(bound.rows, values, strict=True):
        columns = {"group": problem.sensitive["group"], "sex": problem.sensitive["sex"], "group × sex": joined}
        means = [a * loss[(labels == 1) & (columns[part.attribute] == part.group)].mean() for a, part in row.terms]
        assert value == pytest.approx(sum(means))


def test_groups_agreed_beforehand_stay_as_they_are() -> None:
    labels = np.array([1.0, -1.0, 1.0, -1.0, -1.0, 1.0])
    agreed = {"sex": ["m", "f"], "race": [1, 2, 3]}
    constraint = LossParity(0.1, cross=True)
    frame, groups = compared_groups(constraint, labels, PEOPLE, agreed)
    assert groups == {**agreed, "sex × race": ("f × 1", "f × 2", "m × 1", "m × 2")}
    named = {**agreed, "sex × race": ["m × 1", "f × 1"]}
    assert compared_groups(constraint, labels, PEOPLE, named)[1] == named
    assert compared_groups(LossParity(0.1), labels, PEOPLE, agreed) == (PEOPLE, agreed)
    assert "sex × race" in frame.columns


def test_what_cannot_be_crossed_is_refused() -> None:
    labels = np.array([1.0, -1.0, 1.0, -1.0, 1.0, -1.0])
    with pytest.raises(DataError, match="two or more sensitive attributes; there is 'sex'"):
        bind(EqualOpportunity(0.1, cross=True), labels, PEOPLE[["sex"]])
    with pytest.raises(ConstraintError, match="cross=True, without a crossing of sex, race"):
        inequalities(EqualOpportunity(0.1, cross=True), {"sex": ["f", "m"], "race": [1, 2]})
    with pytest.raises(DataError, match="'sex × race' has no group that can be compared"):
        bind(EqualizedOdds(0.1, cross=True), np.array([1.0, 1.0, -1.0, -1.0, -1.0, 1.0]), PEOPLE)


@given(seed=st.integers(0, 1000))
def test_no_group_of_one_attribute_differs_more_than_the_crossings(seed: int) -> None:
    """A mean over a group lies between those of its parts."""
    problem = two_attributes(seed, rows=300)
    bound = bind(LossParity(0.1, cross=True), problem.labels, problem.sensitive)
    scores = np.random.default_rng(seed).normal(size=len(problem.labels))
    values = np.abs(Lagrangian(problem.labels, bound).at(scores).values)
    crossed = np.array(["×" in name for name in bound.names])
    assert values[~crossed].max() <= values[crossed].max() + 1e-12
