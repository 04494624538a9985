"""Algorithm 3 on pooled programs: optimal by its certificate and by independent solvers, primal and dual."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.programs import by_scipy, contradicting, net_of, samples, strongly_convex, unit_discs

from evenhand.constraints.kinds import LossParity
from evenhand.errors import InputError
from evenhand.programs.optimality import SolveStatus
from evenhand_reproductions.central.prox_al import prox_al
from evenhand_reproductions.programs.pooled import Pooled
from evenhand_reproductions.programs.problems import constrained, neyman_pearson
from evenhand_reproductions.programs.quadratic import QuadraticProgram
from evenhand_reproductions.programs.regularisers import L1, Ball, Box, Regulariser
from evenhand_reproductions.programs.solving import measure

TIGHT = {"stationarity": 1e-6, "feasibility": 1e-6}


@given(seed=st.integers(0, 2000), clients=st.integers(1, 3), rows=st.integers(0, 3))
def test_the_stopping_rule_implies_the_certificate(seed: int, clients: int, rows: int) -> None:
    """Theorem 2, for the pooled method."""
    programs, server = strongly_convex(seed, clients, 4, rows)
    found = prox_al(Pooled(programs, server), penalty=10.0, subproblem=0.1)
    assert found.converged
    assert found.residual.within(1e-3, 1e-3)


def test_answers_agree_with_slsqp_primal_and_dual() -> None:
    federated = neyman_pearson(samples(), 0.3)
    pooled = Pooled(federated.clients)
    found = prox_al(pooled, **TIGHT)
    weights, net = by_scipy(pooled)
    np.testing.assert_allclose(found.weights, weights, atol=1e-3)
    names = [f"client {place}" for place in range(3)]
    np.testing.assert_allclose(net_of(found, pooled, names), net, atol=1e-3)
    again = measure(found.weights, found.multipliers, dict(zip(names, federated.clients, strict=True)))
    assert again.stationarity == pytest.approx(found.residual.stationarity)


def test_subproblems_stay_near_the_last_weights() -> None:
    """Proximal AL Algorithm 3: without constraints, w^{k+1} = argmin f(w) + ‖w − w^k‖² / (2β), in closed form."""
    matrix, linear, start, penalty = np.array([2.0, 0.5]), np.array([-1.0, 3.0]), np.array([4.0, -2.0]), 0.7
    program = QuadraticProgram(np.diag(matrix), linear)
    expected = start
    for outer in range(1, 4):
        expected = (expected / penalty - linear) / (matrix + 1.0 / penalty)
        found = prox_al(program, start=start, penalty=penalty, subproblem=1e-12, max_outer=outer)
        np.testing.assert_allclose(found.weights, expected, rtol=1e-9)


def test_a_program_known_in_closed_form() -> None:
    found = prox_al(Pooled(unit_discs()), penalty=10.0, **TIGHT)
    np.testing.assert_allclose(found.weights, [1.0, 0.0], atol=1e-5)
    np.testing.assert_allclose(found.multipliers["client 0"], [[1.0], [0.0]], atol=1e-4)
    np.testing.assert_allclose(found.multipliers["client 1"], 0.0, atol=1e-4)


def test_nonconvex_parity_over_everybody() -> None:
    federated = constrained(samples(), LossParity(0.02), scope="global")
    found = prox_al(Pooled(federated.clients, None, federated.shared), penalty=20.0, **TIGHT)
    assert found.converged
    assert found.residual.within(1e-6, 1e-6)
    assert np.abs(found.multipliers["shared"]).max() > 1e-3


@pytest.mark.parametrize("regulariser", [L1(0.02), Box(-0.3, 0.4), Ball(0.8)], ids=lambda one: type(one).__name__)
def test_with_a_regulariser(regulariser: Regulariser) -> None:
    found = prox_al(Pooled(neyman_pearson(samples(), 0.6).clients), regulariser, penalty=30.0)
    assert found.converged
    assert found.residual.within(1e-3, 1e-3)
    # A projection's own last digits are not for certain.
    np.testing.assert_allclose(regulariser.prox(found.weights, 0.0), found.weights, rtol=1e-12)


def test_contradicting_rows_are_said_to_be_so() -> None:
    found = prox_al(Pooled(contradicting()), penalty=10.0)
    assert found.status is SolveStatus.INFEASIBLE
    assert not found.certificate.converged
    assert found.weights[0] == pytest.approx(1.5, abs=0.02)
    assert found.residual.violation == pytest.approx(0.5, abs=0.02)


def test_a_cap_that_bites_is_not_convergence() -> None:
    found = prox_al(Pooled(neyman_pearson(samples(), 0.3).clients), penalty=0.1, max_outer=2)
    assert found.status is SolveStatus.LIMIT
    assert not found.certificate.converged


def test_stopping_by_the_measured_residual_is_no_later() -> None:
    pooled = Pooled(neyman_pearson(samples(), 0.3).clients)
    by_rule, measured = prox_al(pooled), prox_al(pooled, stop="residual")
    assert measured.residual.within(1e-3, 1e-3)
    assert measured.outer <= by_rule.outer


@pytest.mark.parametrize("options", [{"penalty": 0.0}, {"max_outer": 0}, {"stop": "soon"}, {"stationarity": -1.0}])
def test_nonsense_is_refused(options: dict[str, object]) -> None:
    with pytest.raises(InputError):
        prox_al(Pooled(unit_discs()), **options)
