"""Algorithms 1 and 2: their stopping rules, their rate, and their answers against independent solvers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.contracts import Make
from support.program_roles import ProgramRolesContract
from support.programs import by_scipy, contradicting, net_of, samples, strongly_convex, unit_discs

from evenhand.constraints.kinds import EqualOpportunity, LossParity
from evenhand.errors import InputError
from evenhand.horizontal.prox_al.client import ProxALClient
from evenhand.horizontal.prox_al.options import ProxAL
from evenhand.horizontal.prox_al.server import ProxALServer
from evenhand.programs.augmented import Augmented
from evenhand.programs.optimality import SolveStatus
from evenhand.runtime.inprocess import InProcess
from evenhand_reproductions.central.prox_al import prox_al as pooled_prox_al
from evenhand_reproductions.programs.batched import BatchedSolve, StackedSlices
from evenhand_reproductions.programs.pooled import Pooled
from evenhand_reproductions.programs.problems import constrained, neyman_pearson, random_quadratic_programs
from evenhand_reproductions.programs.quadratic import QuadraticProgram
from evenhand_reproductions.programs.regularisers import L1, ZERO, Ball, Box, Regulariser
from evenhand_reproductions.programs.solving import deal, measure, prox_al, prox_al_roles, solution

NAMES = ["c0", "c1", "c2"]
QUICK: dict[str, Any] = {"penalty": 30.0, "subproblem": 0.01, "rho": 0.1}
TIGHT: dict[str, Any] = {**QUICK, "stationarity": 1e-6, "feasibility": 1e-6, "subproblem": 1e-3}


class TestRoles(ProgramRolesContract):
    @pytest.fixture(params=["convex", "quadratic", "server, h and shared rows"])
    def make(self, request: pytest.FixtureRequest) -> Make:
        # Programs have no state, so all roles ever made may share them.
        loss = neyman_pearson(samples(), 0.3)
        *dealt, own = samples(clients=4)
        parity = constrained(dealt, LossParity(0.05), scope="global")
        server = constrained(dealt, EqualOpportunity(0.2), scope="global", server=own).server

        def convex() -> dict[str, Any]:
            head, clients = prox_al_roles(deal(loss.clients), ProxAL(**QUICK, max_rounds=30))
            return {role.name: role for role in [head, *clients]}

        def quadratic() -> dict[str, Any]:
            options = ProxAL(penalty=10.0, subproblem=0.1, rho=0.05, rho_rule="balanced", max_rounds=30)
            head, clients = prox_al_roles(deal(*random_quadratic_programs(3, 12, 2)), options)
            return {role.name: role for role in [head, *clients]}

        def everything() -> dict[str, Any]:
            options = ProxAL(**QUICK, rho_rule="balanced", participation=0.7, max_rounds=30)
            head, clients = prox_al_roles(deal(parity.clients, server, L1(1e-3), parity.shared), options)
            return {role.name: role for role in [head, *clients]}

        return {"convex": convex, "quadratic": quadratic}.get(request.param, everything)


@given(seed=st.integers(0, 2000), clients=st.integers(1, 3), rows=st.integers(0, 3))
def test_the_stopping_rules_imply_the_certificate(seed: int, clients: int, rows: int) -> None:
    """Theorems 2 and 7: what Eqs. (23) and (11) let end is (ε₁, ε₂)-optimal, measured from outside."""
    programs, server = strongly_convex(seed, clients, 4, rows)
    found = prox_al(programs, server, penalty=10.0, subproblem=0.1, rho=1.0)
    assert found.status is SolveStatus.CONVERGED
    by_name = dict(zip([f"c{place}" for place in range(clients)], programs, strict=True))
    outside = measure(found.weights, found.multipliers, by_name, server)
    assert outside.within(1e-3, 1e-3)
    assert found.certificate.stationarity == pytest.approx(outside.stationarity)
    assert found.certificate.violation <= 1e-3


@given(seed=st.integers(0, 2000))
def test_a_subproblem_ends_within_its_tolerance(seed: int) -> None:
    """Theorem 7 on its own: after the first subproblem dist∞(0, ∂ℓ(w)) ≤ τ₀."""
    programs, server = strongly_convex(seed, 2, 4, 2)
    options = {"penalty": 10.0, "subproblem": 0.1, "rho": 1.0, "max_outer": 1}
    found = prox_al(programs, server, **options)
    slope = np.zeros(4)
    for program in [*programs, server]:
        augmented = Augmented(program, np.zeros(program.own.n_sides), 10.0, np.zeros(4), 1.0 / (3 * 10.0))
        slope += augmented.at(found.weights).gradient
    assert np.abs(slope).max() <= 0.1


def test_linear_equalities_against_their_kkt_system() -> None:
    """Appendix E.2: the optimality conditions are one linear system."""
    clients, server = random_quadratic_programs(3, 30, 2, seed=1)
    found = prox_al(clients, server, penalty=10.0, subproblem=1e-3, rho=1.0, stationarity=1e-6, feasibility=1e-6)
    matrix = sum(client.matrix for client in clients)
    linear = sum(client.linear for client in clients)
    rows = np.vstack([program.rows for program in [*clients, server]])
    bound = np.concatenate([program.own.upper for program in [*clients, server]])
    system = np.block([[matrix, rows.T], [rows, np.zeros((len(rows), len(rows)))]])
    exact = np.linalg.solve(system, np.concatenate([-linear, bound]))
    np.testing.assert_allclose(found.weights, exact[:30], atol=1e-4)
    net = net_of(found, Pooled(clients, server), [*NAMES, "server"])
    np.testing.assert_allclose(net, exact[30:], atol=1e-4)


def test_steps_of_a_quadratic_program_are_the_generic_ones() -> None:
    """With an inverse Hessian a client of equalities needs no search, and says what it would have found by one."""
    clients, server = random_quadratic_programs(3, 30, 2, seed=1)
    options = ProxAL(penalty=10.0, subproblem=0.1, rho=1.0, shrink=0.0, floor=1e-6)
    head, exact = prox_al_roles(deal(clients, server), options)
    run(head, exact)
    searching_head, searching = prox_al_roles(deal(clients, server), options)
    for role in searching:
        role.steps = None
    run(searching_head, searching)
    assert head.rounds == searching_head.rounds
    np.testing.assert_allclose(head.weights, searching_head.weights, atol=1e-9)
    role, weights = exact[0], np.ones(30)
    role.here = role.augmented.at(np.zeros(30))
    assert role.steps is not None
    found = role.steps.step(role, weights, 1e-9)
    assert found is not None
    at_solution = role.augmented.at(found.here.weights).gradient
    np.testing.assert_allclose(found.here.gradient, at_solution, atol=1e-12)
    np.testing.assert_allclose(
        at_solution + role.consensus + role.strength * (found.here.weights - weights), 0, atol=1e-12
    )
    # More than arithmetic can give is not claimed, nor what an inverse of something else gives.
    assert role.steps.step(role, weights, 1e-18) is None
    role.minimiser.inverse = 1.01 * role.minimiser.inverse
    assert role.steps.step(role, weights, 1e-9) is None


def test_stacked_gradients_are_each_programs_own_however_far_the_scores() -> None:
    programs = neyman_pearson(samples(), 0.3).clients
    slices = StackedSlices(programs[:1])
    for length in (1.0, 1e4):
        points = np.zeros((1, slices.size))
        points[0, : programs[0].weights] = length * np.cos(np.arange(programs[0].weights))
        stacked = slices.gradients(points, np.full((1, slices.sides), 0.5), np.zeros_like(points), 30.0, 0.1)
        alone = Augmented(programs[0], np.array([0.5]), 30.0, np.zeros(programs[0].weights), 0.1)
        expected = alone.at(points[0, : programs[0].weights]).gradient
        np.testing.assert_allclose(stacked[0, : programs[0].weights], expected, rtol=1e-9, atol=1e-12)


def test_near_exact_local_solves_need_fewer_rounds_and_find_the_same() -> None:
    clients, _ = random_quadratic_programs(3, 30, 2, seed=1)
    settings: dict[str, Any] = {"penalty": 10.0, "subproblem": 0.1, "rho": 1.0}
    usual = prox_al(clients, **settings)
    exact = prox_al(clients, **settings, shrink=0.0, floor=1e-6)
    assert ProxAL(shrink=0.0, floor=1e-6).tolerance(0, 0, 3) < 1e-6
    assert exact.rounds < usual.rounds
    np.testing.assert_allclose(exact.weights, usual.weights, atol=2e-3)


def test_neyman_pearson_against_slsqp_and_the_pooled_method() -> None:
    federated = neyman_pearson(samples(), 0.3)
    pooled = Pooled(federated.clients)
    found = prox_al(federated.clients, **TIGHT)
    weights, net = by_scipy(pooled)
    np.testing.assert_allclose(found.weights, weights, atol=1e-3)
    np.testing.assert_allclose(net_of(found, pooled, NAMES), net, atol=1e-3)
    central = pooled_prox_al(pooled, penalty=30.0, stationarity=1e-6, feasibility=1e-6)
    np.testing.assert_allclose(found.weights, central.weights, atol=1e-3)
    assert found.residual.objective == pytest.approx(central.residual.objective, abs=1e-5)


def test_a_program_known_in_closed_form() -> None:
    found = prox_al(unit_discs(), penalty=10.0, rho=1.0, stationarity=1e-6, feasibility=1e-6)
    np.testing.assert_allclose(found.weights, [1.0, 0.0], atol=1e-4)
    np.testing.assert_allclose(found.multipliers["c0"], [[1.0], [0.0]], atol=1e-3)


def test_fairness_with_rows_of_the_server_and_shared_ones() -> None:
    *dealt, server = samples(clients=4)
    own = constrained(dealt, LossParity(0.05), scope="both", server=server, weighting="clients")
    found = prox_al(own.clients, own.server, **QUICK)
    assert found.converged
    assert found.residual.within(1e-3, 1e-3)


def test_shared_rows_are_those_of_the_pooled_program() -> None:
    shared = constrained(samples(), LossParity(0.02), scope="global")
    options = {"stationarity": 1e-5, "feasibility": 1e-5, "rho_rule": "balanced"}
    together = prox_al(shared.clients, shared=shared.shared, **{**TIGHT, **options})
    assert together.converged
    central = pooled_prox_al(
        Pooled(shared.clients, None, shared.shared), penalty=30.0, stationarity=1e-6, feasibility=1e-6
    )
    np.testing.assert_allclose(together.weights, central.weights, atol=5e-3)
    np.testing.assert_allclose(together.multipliers["shared"], central.multipliers["shared"], atol=5e-3)
    # Measured on the shared rows as they are, not on their decoupled form.
    assert together.residual.stationarity <= 1e-4
    assert together.residual.violation <= 1e-4


@pytest.mark.parametrize("regulariser", [ZERO, L1(0.02), Box(-0.3, 0.4), Ball(0.8)], ids=lambda s: type(s).__name__)
@pytest.mark.parametrize("with_server", [False, True])
def test_with_a_regulariser_part(regulariser: Regulariser, with_server: bool) -> None:
    row = np.array([[1.0, 1.0, 0.0, 0.0, 0.0]])
    server = QuadraticProgram(None, None, row, [-0.2], [0.2]) if with_server else None
    found = prox_al(neyman_pearson(samples(), 0.6).clients, server, regulariser, **QUICK)
    assert found.converged
    assert found.residual.within(1e-3, 1e-3)
    np.testing.assert_allclose(regulariser.prox(found.weights, 0.0), found.weights, rtol=1e-12)


def rounds_of_one_subproblem(tolerance: float, **options: Any) -> int:
    federated = neyman_pearson(samples(), 0.3)
    settings = {**QUICK, **options, "subproblem": tolerance, "max_outer": 1}
    return prox_al(federated.clients, **settings).rounds


def test_admm_converges_linearly() -> None:
    """Theorem 9: each further digit of τ costs about as many rounds as the one before."""
    counts = [rounds_of_one_subproblem(10.0**-digits) for digits in range(2, 8)]
    more = np.diff(counts)
    assert more.min() >= 1
    assert more.max() <= 2.5 * np.median(more)


def test_balanced_rho_mends_a_bad_choice() -> None:
    for rho in (1e-4, 100.0):
        fixed = rounds_of_one_subproblem(1e-3, rho=rho, max_rounds=800)
        assert rounds_of_one_subproblem(1e-3, rho=rho, rho_rule="balanced") < 0.5 * fixed


def test_balanced_rho_and_partial_participation_end_at_the_same_answer() -> None:
    clients = neyman_pearson(samples(clients=3), 0.3).clients
    whole = prox_al(clients, **TIGHT)
    for options in ({"rho_rule": "balanced"}, {"participation": 0.5}, {"participation": 0.34, "seed": 3}):
        other = prox_al(clients, **{**TIGHT, **options})
        assert other.converged
        np.testing.assert_allclose(other.weights, whole.weights, atol=1e-3)


@pytest.mark.parametrize("method", ["cg", "lbfgs"])
def test_other_local_solvers_find_the_same(method: str) -> None:
    clients = neyman_pearson(samples(), 0.3).clients
    newton, other = prox_al(clients, **QUICK), prox_al(clients, **QUICK, local_solver=method)
    assert other.residual.within(1e-3, 1e-3)
    np.testing.assert_allclose(other.weights, newton.weights, atol=2e-2)


def test_curvature_of_a_sample_of_the_rows_changes_the_way_and_not_the_answer() -> None:
    clients = neyman_pearson(samples(rows=240), 0.3).clients
    whole = prox_al(clients, **QUICK)
    sampled = prox_al(clients, **QUICK, curvature_rows=40, seed=5)
    assert sampled.converged
    np.testing.assert_allclose(sampled.weights, whole.weights, atol=1e-2)
    assert not np.array_equal(sampled.weights, whole.weights)


def run(server: ProxALServer, clients: list[ProxALClient]) -> bytes:
    InProcess([server, *clients]).run()
    return server.weights.tobytes()


@pytest.mark.portable
def test_company_changes_nothing() -> None:
    """Clients solved side by side in one process send what each would send if it were alone in its own."""
    dealt, options = deal(neyman_pearson(samples(), 0.3).clients), ProxAL(**QUICK)
    server, together = prox_al_roles(dealt, options)
    assert len({id(role.steps) for role in together}) < len(together)
    found = run(server, together)
    apart_server, apart = prox_al_roles(dealt, options)
    for role in apart:
        role.steps = BatchedSolve([role])
    assert run(apart_server, apart) == found
    alone_server, alone = prox_al_roles(dealt, options)
    for role in alone:
        role.steps = None
    run(alone_server, alone)
    # Without stacked operations sums are rounded in another order.
    np.testing.assert_allclose(alone_server.weights, server.weights, atol=1e-3)


def test_contradicting_rows_are_said_to_be_so() -> None:
    found = prox_al(contradicting(), penalty=10.0, rho=1.0)
    assert found.status is SolveStatus.INFEASIBLE
    assert not found.certificate.converged
    assert found.weights[0] == pytest.approx(1.5, abs=0.02)
    assert found.residual.violation == pytest.approx(0.5, abs=0.02)


@pytest.mark.parametrize("caps", [{"max_inner": 3}, {"max_rounds": 10}, {"max_outer": 1}])
def test_a_cap_that_bites_is_not_convergence(caps: dict[str, int]) -> None:
    found = prox_al(neyman_pearson(samples(), 0.3).clients, **{**QUICK, "max_outer": 5, **caps})
    assert found.status is SolveStatus.LIMIT
    assert not found.certificate.converged
    # The certificate is measured all the same.
    assert np.isfinite(found.certificate.stationarity)


def test_multipliers_stay_with_the_clients_and_everybody_ends_with_the_model() -> None:
    server, clients = prox_al_roles(deal(neyman_pearson(samples(), 0.3).clients), ProxAL(**QUICK))
    run(server, clients)
    for client in clients:
        assert client.weights is not None
        assert np.array_equal(client.weights, server.answer)
    assert server.multipliers.size == 0
    assert solution(server, clients).multipliers["c0"].shape == (2, 1)


@pytest.mark.parametrize("shared", [False, True])
def test_the_certificate_is_that_of_the_program_as_it_was_given(shared: bool) -> None:
    """With shared rows too, whose decoupled form has other residuals; and however early the run is stopped."""
    *dealt, own = samples(clients=4)
    parity = constrained(dealt, LossParity(0.02), scope="both" if shared else "local")
    server = constrained(dealt, EqualOpportunity(0.1), scope="global", server=own).server
    for rounds in (2, 7, 120) if shared else (2, 40):
        found = prox_al(parity.clients, server, L1(1e-3), shared=parity.shared, **QUICK, max_rounds=rounds)
        by_name = dict(zip(NAMES, parity.clients, strict=True))
        outside = measure(found.weights, found.multipliers, by_name, server, parity.shared, L1(1e-3))
        for name in ("stationarity", "violation", "complementarity", "distance", "objective"):
            assert getattr(found.residual, name) == pytest.approx(getattr(outside, name), rel=1e-9, abs=1e-13), name


def test_history_has_a_row_an_outer_iteration() -> None:
    found = prox_al(neyman_pearson(samples(), 0.3).clients, **QUICK)
    assert [row["outer"] for row in found.history] == list(range(found.outer + 1))
    assert found.history[-1]["round"] == found.rounds


@pytest.mark.parametrize(
    "options",
    [
        {"rho": 0.0},
        {"rho_rule": "wild"},
        {"shrink": 1.0},
        {"participation": 0.0},
        {"max_inner": 0},
        {"local_solver": "adam"},
        {"balance": 1.0},
        {"curvature_rows": 0},
        {"penalty": float("nan")},
        {"start": np.zeros(3)},
        {"start": np.full(5, np.nan)},
    ],
)
def test_nonsense_is_refused(options: dict[str, Any]) -> None:
    with pytest.raises(InputError):
        prox_al(neyman_pearson(samples(), 0.3).clients, **options)


def test_programs_that_do_not_fit_together_are_refused() -> None:
    clients = neyman_pearson(samples(), 0.3).clients
    with pytest.raises(InputError, match="weights"):
        prox_al([*clients, *unit_discs()])
    with pytest.raises(InputError, match="at least one client"):
        prox_al([])
    federated = constrained(samples(), LossParity(0.1), scope="global")
    with pytest.raises(InputError, match="shared inequalities"):
        prox_al(federated.clients)
    with pytest.raises(InputError, match="name"):
        prox_al({"server": clients[0]})
