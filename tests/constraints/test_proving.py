"""Training towards what holds among new people: aims, what is proven, and rows left out one by one."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize
from support.problems import Problem, small

from evenhand.constraints import DemographicParity, EqualizedOdds, EqualOpportunity, NeymanPearson, bind
from evenhand.constraints.binding import inequalities
from evenhand.constraints.evaluation import Lagrangian
from evenhand.constraints.inequality_parts import InequalityParts
from evenhand.constraints.leave_one_out import Response, measured
from evenhand.constraints.proving import Proving, critical_value
from evenhand.constraints.slices import bounds_of
from evenhand.errors import ConstraintError
from evenhand.protocol.state import restore, snapshot

GROUPS = {"sex": ["f", "m"]}


def proving(*constraints: object) -> Proving:
    rows = inequalities(constraints, GROUPS)  # type: ignore[arg-type]
    return Proving(rows, bounds_of(rows))


def test_rows_reach_as_far_as_all_of_their_constraint_need_at_once() -> None:
    rows = inequalities([EqualizedOdds(0.1, confidence=0.9), EqualOpportunity(0.1)], GROUPS)
    assert [row.reach for row in rows] == [critical_value(0.9, 2)] * 2 + [0.0]
    for wrong in (0.0, 1.0, 95, "high", True):
        with pytest.raises(ConstraintError, match="confidence is"):
            EqualOpportunity(0.1, confidence=wrong)  # type: ignore[arg-type]
    with pytest.raises(ConstraintError, match="confidence is"):
        NeymanPearson(0.1, confidence=2.0)


@given(error=st.floats(1e-4, 0.08), optimism=st.floats(0.0, 0.01))
def test_what_ends_at_its_aim_is_proven_where_that_can_be(error: float, optimism: float) -> None:
    found = proving(EqualOpportunity(0.1, confidence=0.95))
    errors, growth = np.array([error]), np.array([optimism])
    found.update(errors, growth)
    assert not found.update(errors, growth)
    (proof,) = found.proofs(found.aim.upper, errors, growth)
    assert proof.asked == 0.1
    reachable = 0.1 - 1.96 * error - optimism > 0.25 * error + 0.006
    assert proof.holds or not reachable
    if not proof.holds:
        assert str(proof).endswith("rows, or fewer and larger groups")
        # As tight as pays, and no tighter.
        assert found.aim.upper[0] == pytest.approx(0.25 * error)


def test_aims_are_kept_while_they_do() -> None:
    found = proving(EqualOpportunity(0.1, confidence=0.95))
    assert found.update(np.array([0.02]), np.zeros(1))
    aim = found.aim.upper[0]
    assert aim == pytest.approx(0.1 - 1.96 * 0.02 - 0.003, abs=1e-5)
    assert not found.update(np.array([0.0205]), np.zeros(1))
    assert found.aim.upper[0] == aim
    assert found.update(np.array([0.03]), np.zeros(1))
    again = proving(EqualOpportunity(0.1, confidence=0.95))
    restore(again, snapshot(found))
    assert again.aim.upper[0] == found.aim.upper[0] < aim


def test_only_rows_that_ask_are_moved_and_limits_have_one_side() -> None:
    found = proving(EqualOpportunity(0.1), NeymanPearson(0.2, confidence=0.95), DemographicParity(0.3, confidence=0.95))
    assert found.update(np.full(3, 0.01), np.zeros(3))
    np.testing.assert_allclose(found.aim.lower, [-0.1, -np.inf, -(0.3 * 0.97 - 0.0196)], atol=1e-4)
    np.testing.assert_allclose(found.aim.upper, [0.1, 0.2 * 0.97 - 0.0196, 0.3 * 0.97 - 0.0196], atol=1e-4)
    proofs = found.proofs(np.array([0.5, 0.1, -0.2]), np.full(3, 0.01), np.zeros(3))
    assert [round(proof.bound, 4) for proof in proofs] == [0.1196, 0.2196]
    assert not proving(EqualOpportunity(0.1)).asks


def test_standard_errors_from_sums_are_those_of_the_rows() -> None:
    problem = small(seed=3, rows=80)
    scores = np.random.default_rng(0).normal(size=80)
    for constraint in (EqualizedOdds(0.1, "error"), EqualOpportunity(0.1), DemographicParity(0.1)):
        bound = bind(constraint, problem.labels, problem.sensitive)
        lagrangian = Lagrangian(problem.labels, bound)
        parts = InequalityParts(bound.rows)
        inside = parts.inside(problem.labels, problem.sensitive)
        # In two halves, as two clients would say them.
        halves = [
            parts.sums(inside[half], scores[half], problem.labels[half], lagrangian.loss)
            for half in (slice(0, 33), slice(33, 80))
        ]
        told = type(halves[0])(*(sum(pair) for pair in zip(*halves, strict=True)))
        values, errors = bound.reported(problem.labels, scores)
        np.testing.assert_allclose(parts.values(told.sums, told.counts), values, atol=1e-12)
        np.testing.assert_allclose(parts.errors(told), errors, rtol=1e-10)


def _constrained(problem: Problem, alpha: float, epsilon: float) -> tuple[np.ndarray, np.ndarray]:
    """Weights and multipliers of DEO = ε by another solver."""
    design = np.column_stack([problem.matrix, np.ones(len(problem.labels))])
    bound = bind(EqualOpportunity(epsilon), problem.labels, problem.sensitive)
    lagrangian = Lagrangian(problem.labels, bound)
    penalty = alpha * np.append(np.ones(problem.matrix.shape[1]), 0.0)

    def value(w: np.ndarray) -> float:
        return lagrangian.at(design @ w).loss + 0.5 * float(penalty @ w**2)

    def slope(w: np.ndarray) -> np.ndarray:
        return design.T @ lagrangian.at(design @ w).derivative(np.zeros((2, 1))) + penalty * w

    sign = (
        1.0 if lagrangian.at(design @ minimize(value, np.zeros(design.shape[1]), jac=slope).x).values[0] > 0 else -1.0
    )
    tilted = sign * np.array([[1.0], [0.0]])

    def row(w: np.ndarray) -> float:
        return sign * float(lagrangian.at(design @ w).values[0]) - epsilon

    def row_slope(w: np.ndarray) -> np.ndarray:
        point = lagrangian.at(design @ w)
        return design.T @ (point.derivative(tilted) - point.derivative(np.zeros((2, 1))))

    rows = {"type": "eq", "fun": row, "jac": row_slope}
    options = {"maxiter": 500, "ftol": 1e-14}
    weights = minimize(
        value, np.zeros(design.shape[1]), jac=slope, constraints=[rows], method="SLSQP", options=options
    ).x
    pushed = row_slope(weights)
    multiplier = -float(pushed @ slope(weights)) / float(pushed @ pushed)
    table = np.array([[multiplier], [0.0]]) if sign > 0 else np.array([[0.0], [multiplier]])
    return weights, table


def test_a_row_left_out_is_what_training_without_it_gives() -> None:
    problem, alpha, epsilon = small(seed=2, rows=400), 0.005, 0.05
    weights, multipliers = _constrained(problem, alpha, epsilon)
    assert multipliers.max() > 0.01
    design = np.column_stack([problem.matrix, np.ones(400)])
    bound = bind(EqualOpportunity(epsilon), problem.labels, problem.sensitive)
    lagrangian, scores = Lagrangian(problem.labels, bound), design @ weights
    point, penalty = lagrangian.at(scores), alpha * np.diag([1.0] * 4 + [0.0])
    bends = point.curvature(multipliers)
    weight = bound.weights[0][bound.stratum]
    loss = np.logaddexp(0.0, -problem.labels * scores)
    parts = np.array([loss[weight == one].mean() for one in weight])
    slope = weight * -problem.labels / (1.0 + np.exp(problem.labels * scores))
    response = Response.of(design.T @ (design * bends[:, None]) + penalty, (slope @ design)[None, :])
    said = response.left_out(design, point.derivative(multipliers), bends, (weight * (loss - parts))[:, None])
    for row in (0, 7, 131, 258, 399):
        kept = np.arange(400) != row
        without = Problem(problem.matrix[kept], problem.labels[kept], problem.sensitive[kept].reset_index(drop=True))
        true = design[row] @ _constrained(without, alpha, epsilon)[0] - scores[row]
        assert said[row] == pytest.approx(true, abs=0.1 * abs(true) + 0.005)
    values, errors, left_out = measured(lagrangian, scores, multipliers, design, penalty)
    assert errors.shape == (1,)
    assert left_out[0] >= values[0]
