"""Constraints: the rows of each kind, their values and sample weights by brute force, and everything refused."""

from __future__ import annotations

from dataclasses import fields
from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.problems import Problem, phi, small, two_attributes

from evenhand.constraints import (
    KINDS,
    BoundedGroupLoss,
    Constraint,
    DemographicParity,
    EqualizedOdds,
    EqualOpportunity,
    GroupAgainstOverall,
    LossParity,
    MeanPredictionParity,
    NeymanPearson,
    bind,
    groups_frame,
)
from evenhand.constraints.binding import BoundConstraints, strata
from evenhand.constraints.evaluation import Lagrangian, net_multipliers
from evenhand.constraints.losses import MEASURES
from evenhand.constraints.scope import ConstraintScope
from evenhand.constraints.slices import Inequality, Slice
from evenhand.errors import ConstraintError, DataError, InputError

PARITIES = {EqualOpportunity: (1,), EqualizedOdds: (1, -1), LossParity: (None,), DemographicParity: (None,)}
EVERY_KIND = [
    EqualOpportunity(0.1, "error", 0.5),
    EqualizedOdds(0.2),
    LossParity(0.0),
    DemographicParity(0.3),
    GroupAgainstOverall(0.1, "positive"),
    MeanPredictionParity(0.1),
    BoundedGroupLoss(0.6, "error"),
    NeymanPearson(0.4, -1, "error"),
]


def _mask(problem: Problem, part: Slice) -> np.ndarray:
    """Which rows are in a slice, by looking at each."""
    return np.array(
        [
            (part.label is None or label == part.label) and (part.attribute is None or group == part.group)
            for label, group in zip(
                problem.labels,
                problem.sensitive[part.attribute] if part.attribute else [None] * len(problem.labels),
                strict=True,
            )
        ]
    )


def _bound(problem: Problem, constraints: Any) -> BoundConstraints:
    return bind(constraints, problem.labels, problem.sensitive)


@pytest.mark.parametrize("kind", PARITIES)
@pytest.mark.parametrize("groups", ["ab", "abcde"])
def test_parity_has_a_row_for_each_label_and_pair_of_groups(kind: type[Constraint], groups: str) -> None:
    problem = small(rows=100, groups=groups)
    rows = _bound(problem, kind(0.07)).rows
    expected = [
        ((1.0, Slice(label, "group", a)), (-1.0, Slice(label, "group", b)))
        for label in PARITIES[kind]
        for a, b in combinations(groups, 2)
    ]
    assert [row.terms for row in rows] == expected
    assert {(row.lower, row.upper) for row in rows} == {(-0.07, 0.07)}
    assert {row.measure.name for row in rows} == {"positive" if kind is DemographicParity else "loss"}


def test_two_attributes_give_the_rows_of_each() -> None:
    rows = _bound(two_attributes(), EqualOpportunity(0.1)).rows
    assert [str(row) for row in rows] == [
        "mean loss among positives, a vs. b (group)",
        "mean loss among positives, a vs. c (group)",
        "mean loss among positives, b vs. c (group)",
        "mean loss among positives, f vs. m (sex)",
    ]
    assert rows[3].formula == "loss(y=+1 & sex=f) − loss(y=+1 & sex=m)"


def test_group_against_overall_has_a_row_for_each_group() -> None:
    rows = _bound(small(groups="abc"), GroupAgainstOverall(0.1)).rows
    assert [str(row) for row in rows] == [f"mean loss, everyone vs. {group} (group)" for group in "abc"]
    assert [row.formula for row in rows] == [f"loss(all) − loss(group={group})" for group in "abc"]


def test_neyman_pearson_is_one_sided_and_needs_no_groups() -> None:
    rows = bind(NeymanPearson(0.2, label=-1), small().labels).rows
    assert [(str(row), row.lower, row.upper) for row in rows] == [("mean loss among negatives", -np.inf, 0.2)]
    assert rows[0].formula == "loss(y=-1)"


def test_several_constraints_are_all_their_rows_in_order() -> None:
    problem = small()
    together = _bound(problem, [LossParity(0.1), NeymanPearson(0.3)])
    assert together.rows == _bound(problem, LossParity(0.1)).rows + bind(NeymanPearson(0.3), problem.labels).rows


@given(seed=st.integers(0, 1000), chosen=st.lists(st.sampled_from(EVERY_KIND), min_size=1, max_size=3, unique=True))
def test_values_are_brute_force_slice_means(seed: int, chosen: list[Constraint]) -> None:
    problem = two_attributes(seed)
    bound = _bound(problem, chosen)
    z, y = np.random.default_rng(seed).normal(size=len(problem.labels)), problem.labels
    expected, exact = [], []
    for row in bound.rows:
        smooth = phi(row.measure.name, row.measure.temperature, z, y)[0]
        hard = (z > 0) if row.measure.name == "positive" else (z > 0) != (y > 0)
        hard = smooth if row.measure.name == "prediction" else hard
        expected.append(sum(a * smooth[_mask(problem, part)].mean() for a, part in row.terms))
        exact.append(sum(a * hard[_mask(problem, part)].mean() for a, part in row.terms))
    point = Lagrangian(y, bound).at(z)
    np.testing.assert_allclose(point.values, expected, rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(point.exact, exact, rtol=1e-12, atol=1e-14)


@given(seed=st.integers(0, 1000), kind=st.sampled_from(EVERY_KIND))
def test_sample_weights_are_the_formula(seed: int, kind: Constraint) -> None:
    """ω_i = 1/n + Σ_rows (λ⁺ − λ⁻) a_s / |s|, over the slices s that hold row i."""
    problem = two_attributes(seed)
    bound = _bound(problem, kind)
    multipliers = np.random.default_rng(seed).exponential(size=(2, len(bound.rows)))
    expected = np.zeros(len(problem.labels))
    for place, row in enumerate(bound.rows):
        for coefficient, part in row.terms:
            mask = _mask(problem, part)
            for i in np.flatnonzero(mask):
                expected[i] += (multipliers[0, place] - multipliers[1, place]) * coefficient / mask.sum()
    tilt = sum(bound.tilt(net_multipliers(multipliers), measure) for measure in bound.measures)
    np.testing.assert_allclose(tilt, expected, rtol=1e-12, atol=1e-14)


def test_excess_violation_and_complementarity_by_hand() -> None:
    bound = _bound(small(), [EqualOpportunity(0.1), NeymanPearson(0.5)])
    values = np.array([-0.4, 0.2])
    np.testing.assert_allclose(bound.bounds.excess(values), [[-0.5, -0.3], [0.3, -np.inf]])
    assert bound.bounds.violation(values) == pytest.approx(0.3)
    assert bound.bounds.violation(np.array([0.05, 0.4])) == 0.0
    assert bound.bounds.violation(np.array([0.0, 0.75])) == pytest.approx(0.25)
    multipliers = np.array([[2.0, 1.0], [0.5, 0.0]])
    assert bound.bounds.complementarity(values, multipliers) == pytest.approx(2.0 * 0.5)
    assert bound.bounds.complementarity(values, bound.bounds.no_multipliers()) == 0.0


@pytest.mark.parametrize("attributes", [0, 1, 14])
@pytest.mark.parametrize("labels", ["signs", "numbers"])
def test_cells_are_the_combinations_that_occur_in_order(attributes: int, labels: str) -> None:
    """Fourteen attributes of thirty groups have more combinations than there are integers."""
    rng = np.random.default_rng(0)
    values = rng.choice([-1.0, 1.0], 400) if labels == "signs" else np.rint(rng.normal(scale=1e12, size=400))
    frame = pd.DataFrame({f"a{place}": rng.integers(30, size=400) for place in range(attributes)}, index=range(400))
    frame = pd.concat([frame.iloc[:200]] * 2, ignore_index=True)
    values = np.concatenate([values[:200]] * 2)
    table = frame.assign(label=values)[["label", *frame.columns]]
    expected = table.groupby(list(table.columns), sort=True).ngroup()
    columns = [table[name].to_numpy().astype(np.int64) for name in table.columns]
    np.testing.assert_array_equal(strata(columns)[0], expected)


def test_no_constraints_bind_to_no_rows() -> None:
    bound = bind(None, small().labels)
    assert bound.rows == ()
    assert bound.bounds.no_multipliers().shape == (2, 0)
    assert bound.bounds.violation(np.zeros(0)) == 0.0
    assert bound.bounds.complementarity(np.zeros(0), bound.bounds.no_multipliers()) == 0.0


def test_an_empty_slice_is_refused_by_name() -> None:
    problem = small()
    labels = np.where(problem.groups == "b", -1.0, problem.labels)
    with pytest.raises(ConstraintError, match=r"\[positives with group = b\] is empty"):
        bind(EqualOpportunity(0.1), labels, problem.sensitive)
    assert len(bind(LossParity(0.1), labels, problem.sensitive).rows) == 1


def test_a_class_nobody_has_is_an_empty_slice() -> None:
    with pytest.raises(ConstraintError, match=r"\[negatives\] is empty"):
        bind(NeymanPearson(0.1, label=-1), np.ones(5))


def test_one_group_is_refused_by_name() -> None:
    with pytest.raises(DataError, match=r"'sex' has one group only \('f'\)"):
        bind(LossParity(0.1), np.ones(3), pd.DataFrame({"sex": ["f", "f", "f"]}))


@pytest.mark.parametrize("kind", [kind for kind in KINDS.values() if kind.compares_groups])
def test_missing_groups_are_refused_by_the_constraints_name(kind: type[Constraint]) -> None:
    with pytest.raises(DataError, match=f"{kind.kind} compares groups: give sensitive_features"):
        bind(kind(), small().labels)


@pytest.mark.parametrize("kind", KINDS.values())
@pytest.mark.parametrize("bound", [-0.01, np.nan, np.inf])
def test_a_negative_or_endless_bound_is_refused(kind: type[Constraint], bound: float) -> None:
    with pytest.raises(ConstraintError, match=r"(epsilon|limit) is .*zero or more"):
        kind(bound)


@pytest.mark.parametrize("kind", KINDS.values())
def test_an_unknown_measure_is_refused(kind: type[Constraint]) -> None:
    with pytest.raises(ConstraintError, match="'accuracy'"):
        kind(measure="accuracy")


ODD: list[Any] = ["0.1", None, [0.1], {}, 1j, np.array([0.1, 0.2]), object(), 10**400, True]


@pytest.mark.parametrize("kind", KINDS.values())
@pytest.mark.parametrize("odd", ODD, ids=lambda odd: type(odd).__name__)
def test_arguments_of_any_type_are_refused_by_name(kind: type[Constraint], odd: Any) -> None:
    right = {"cross", "by_presence"} if odd is True else {"confidence"} if odd is None else set()
    # Labels are text or numbers.
    right |= {"of_class"} if odd is None or isinstance(odd, (str, int)) else set()
    names = [field.name for field in fields(kind) if field.name not in right]
    for name in names:
        with pytest.raises(ConstraintError, match=rf"^{name} is "):
            kind(**{name: odd})


def test_numbers_of_numpy_are_numbers() -> None:
    problem, plain = small(), EqualOpportunity(0.25, temperature=0.5)
    same = EqualOpportunity(np.float64(0.25), np.str_("loss"), np.float32(0.5), np.bool_(False))
    assert _bound(problem, same).bounds.upper.tolist() == _bound(problem, plain).bounds.upper.tolist()
    assert NeymanPearson(np.float32(0.5), np.int8(-1)) == NeymanPearson(0.5, -1)


@pytest.mark.parametrize(
    "labels", [["yes", "no", "no"], None, object(), [[1], [-1], [1]], [1, np.nan, -1], [10**400, 1]]
)
def test_labels_that_are_no_numbers_are_refused(labels: Any) -> None:
    with pytest.raises(DataError, match=r"^labels are .*; give"):
        bind(NeymanPearson(), labels)


@pytest.mark.parametrize("values", [[[1], [2], [1]], [1, "a", (2,)]])
def test_groups_that_have_no_order_are_refused_by_the_attributes_name(values: list[Any]) -> None:
    with pytest.raises(DataError, match="'odd' has values that cannot be put in order"):
        bind(LossParity(), np.array([1.0, -1.0, 1.0]), pd.DataFrame({"odd": values}))


def test_attributes_with_one_name_are_refused() -> None:
    with pytest.raises(DataError, match="two sensitive attributes have one name"):
        groups_frame(pd.DataFrame({1: ["a", "b"], "1": ["a", "b"]}), 2)


@pytest.mark.parametrize(
    "odd", [{"scope": ["local"]}, {"missing_slices": {}}, {"limits": 0.1}, {"limits": {1: 0.1}}, {"limits": {"a": "x"}}]
)
def test_where_constraints_hold_is_checked_whatever_is_given(odd: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=next(iter(odd)).rstrip("s")):
        ConstraintScope(**{"scope": "both", **odd})


def test_neyman_pearson_knows_two_labels() -> None:
    with pytest.raises(ConstraintError, match="label is 0"):
        NeymanPearson(0.1, label=0)


@pytest.mark.parametrize(
    "wrong", [["equal-opportunity"], [0.01], "equal-opportunity", 0.01, [None], np.array(0.01), [object()]]
)
def test_what_is_no_constraint_is_refused(wrong: Any) -> None:
    with pytest.raises(ConstraintError, match="is not a constraint"):
        bind(wrong, small().labels, small().sensitive)


def test_a_constraint_class_in_place_of_a_constraint_is_refused() -> None:
    with pytest.raises(ConstraintError, match="is not a constraint"):
        bind(EqualOpportunity, small().labels, small().sensitive)  # type: ignore[arg-type]


def test_every_kind_is_listed_by_its_name() -> None:
    assert {name: kind.kind for name, kind in KINDS.items()} == {name: name for name in KINDS}
    assert set(KINDS.values()) == {type(constraint) for constraint in EVERY_KIND}


@pytest.mark.parametrize(
    "container",
    [
        lambda values: values,
        lambda values: list(values),
        lambda values: values[:, None],
        lambda values: pd.Series(values),
        lambda values: pd.Series(values, dtype="category"),
        lambda values: pd.DataFrame({"group": values}),
    ],
)
def test_groups_come_in_any_container(container: Any) -> None:
    values = np.array(["x", "y", "y"])
    frame = groups_frame(container(values), 3)
    assert list(frame.columns) == ["group"]
    assert list(frame["group"]) == list(values)


def test_several_columns_without_names_are_numbered() -> None:
    assert list(groups_frame(np.zeros((3, 2)), 3).columns) == ["group0", "group1"]


def test_groups_of_numbers_and_booleans_work() -> None:
    labels = np.array([1.0, 1.0, -1.0, -1.0])
    for values in ([0, 1, 0, 1], [True, False, True, False], [1.5, 2.5, 1.5, 2.5]):
        assert len(bind(EqualizedOdds(0.1), labels, groups_frame(np.array(values), 4)).rows) == 2


def test_groups_that_cannot_be_used_say_why() -> None:
    with pytest.raises(DataError, match="3 dimensions"):
        groups_frame(np.zeros((3, 1, 1)), 3)
    with pytest.raises(DataError, match="2 rows, the data has 3"):
        groups_frame(np.zeros(2), 3)
    with pytest.raises(DataError, match=r"'sex' has 1 missing values"):
        groups_frame(pd.DataFrame({"sex": ["f", None, "m"]}), 3)


def test_a_row_says_its_coefficients() -> None:
    row = Inequality(
        ((0.5, Slice(1)), (-1.0, Slice())), -1.0, 1.0, EVERY_KIND[1].inequalities({"g": ["a", "b"]})[0].measure
    )
    assert str(row) == "+0.5· loss(y=+1) − loss(all)"


@pytest.mark.parametrize(
    ("constraint", "said"),
    [
        (
            EqualizedOdds(0.1, "error"),
            ["false-negative rate, 60+ vs. under 30 (age)", "false-positive rate, 60+ vs. under 30 (age)"],
        ),
        (LossParity(0.1, "error"), ["error rate, 60+ vs. under 30 (age)"]),
        (DemographicParity(0.1), ["selection rate, 60+ vs. under 30 (age)"]),
        (EqualOpportunity(0.1, "positive"), ["true-positive rate, 60+ vs. under 30 (age)"]),
        (NeymanPearson(0.1, 1, "error"), ["false-negative rate"]),
        (NeymanPearson(0.1, -1, "positive"), ["selection rate among negatives"]),
    ],
)
def test_a_row_reads_as_a_person_would_say_it(constraint: Constraint, said: list[str]) -> None:
    assert [str(row) for row in constraint.inequalities({"age": ["60+", "under 30"]})] == said


def test_names_differ_where_formulas_do() -> None:
    """Names are keys of histories: no two kinds of rows may share one."""
    groups = {"age": ["a", "b", "c"], "sex": ["a", "b"]}
    kinds = [kind(measure=measure) for kind in PARITIES for measure in MEASURES]  # type: ignore[call-arg]
    rows = [row for one in kinds for row in one.inequalities(groups)]
    rows += [row for label in (1, -1) for name in MEASURES for row in NeymanPearson(0.1, label, name).inequalities({})]
    assert len({str(row) for row in rows}) == len({row.formula for row in rows})
