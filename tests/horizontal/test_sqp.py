"""Sequential quadratic programming across clients: optimal, primal and dual, in few rounds."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.contracts import Make
from support.problems import pooled_weights, small, train
from support.program_roles import ProgramRolesContract
from support.programs import KINDS, by_scipy, contradicting, net_of, samples, strongly_convex, unit_discs

from evenhand.constraints.kinds import Constraint, EqualOpportunity, LossParity, NeymanPearson
from evenhand.constraints.labelled_rows import FeatureRows
from evenhand.errors import InputError
from evenhand.horizontal.sqp.options import SQP
from evenhand.horizontal.sqp.search import bfgs, positive
from evenhand.programs.optimality import SolveStatus
from evenhand_reproductions.central.prox_al import prox_al as pooled_prox_al
from evenhand_reproductions.programs.pooled import Pooled
from evenhand_reproductions.programs.problems import constrained, neyman_pearson, random_quadratic_programs
from evenhand_reproductions.programs.quadratic import QuadraticProgram
from evenhand_reproductions.programs.regularisers import L1, ZERO, Ball, Box, Regulariser
from evenhand_reproductions.programs.smooth import SmoothProgram
from evenhand_reproductions.programs.solving import deal, measure, sqp, sqp_roles

NAMES = ["c0", "c1", "c2"]
TIGHT: dict[str, Any] = {"stationarity": 1e-7, "feasibility": 1e-7}


class TestRoles(ProgramRolesContract):
    @pytest.fixture(params=["exact", "bfgs"])
    def make(self, request: pytest.FixtureRequest) -> Make:
        *dealt, own = samples(clients=4)
        parity = constrained(dealt, LossParity(0.05), scope="both")
        server = constrained(dealt, EqualOpportunity(0.2), scope="global", server=own).server
        start = np.linspace(-2, 2, 5)

        def roles() -> dict[str, Any]:
            options = SQP(curvature=request.param)
            head, clients = sqp_roles(deal(parity.clients, server, L1(1e-3), parity.shared, start), options)
            return {role.name: role for role in [head, *clients]}

        return roles


@given(seed=st.integers(0, 2000), clients=st.integers(1, 3), rows=st.integers(0, 3))
def test_the_certificate_is_true(seed: int, clients: int, rows: int) -> None:
    programs, server = strongly_convex(seed, clients, 4, rows)
    found = sqp(programs, server)
    assert found.converged
    by_name = dict(zip([f"c{place}" for place in range(clients)], programs, strict=True))
    outside = measure(found.weights, found.multipliers, by_name, server)
    assert outside.within(1e-3, 1e-3)
    assert found.residual.stationarity == pytest.approx(outside.stationarity, abs=1e-9)
    assert found.residual.distance == pytest.approx(outside.distance, abs=1e-9)
    # The first round brings the quadratic program, the second looks at its answer.
    assert found.rounds <= 2


def test_linear_equalities_against_their_kkt_system() -> None:
    clients, server = random_quadratic_programs(3, 30, 2, seed=1)
    found = sqp(clients, server)
    matrix = sum(client.matrix for client in clients)
    rows = np.vstack([program.rows for program in [*clients, server]])
    bound = np.concatenate([program.own.upper for program in [*clients, server]])
    system = np.block([[matrix, rows.T], [rows, np.zeros((len(rows), len(rows)))]])
    exact = np.linalg.solve(system, np.concatenate([-sum(client.linear for client in clients), bound]))
    np.testing.assert_allclose(found.weights, exact[:30], atol=1e-6)
    np.testing.assert_allclose(net_of(found, Pooled(clients, server), [*NAMES, "server"]), exact[30:], atol=1e-6)


def test_neyman_pearson_against_slsqp() -> None:
    federated = neyman_pearson(samples(), 0.3)
    pooled = Pooled(federated.clients)
    found = sqp(federated.clients, **TIGHT)
    weights, net = by_scipy(pooled)
    assert found.converged
    assert found.rounds <= 15
    np.testing.assert_allclose(found.weights, weights, atol=1e-5)
    np.testing.assert_allclose(net_of(found, pooled, NAMES), net, atol=1e-5)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: f"{kind.kind}-{kind.measure}")
@pytest.mark.parametrize("scope", ["local", "global", "both"])
def test_every_constraint_holds_in_every_scope(kind: Constraint, scope: Any) -> None:
    federated = constrained(samples(clients=2), kind, scope=scope, regulariser=0.01)
    found = sqp(federated.clients, shared=federated.shared)
    assert found.converged
    assert found.residual.within(1e-3, 1e-3)
    assert found.rounds <= 15


@given(seed=st.integers(0, 200))
def test_distributed_is_pooled(seed: int) -> None:
    """The same rows at one client or at three, the shared constraint over everybody's: the same steps."""
    dealt = samples(seed % 11, clients=3)
    federated = constrained(dealt, LossParity(0.05), scope="global")
    pooled = Pooled(federated.clients, None, federated.shared)
    start = np.random.default_rng(seed).standard_normal(5)
    one, other = sqp(federated.clients, shared=federated.shared, start=start), sqp([pooled], start=start)
    assert one.rounds == other.rounds
    np.testing.assert_allclose(one.weights, other.weights, atol=1e-6)
    np.testing.assert_allclose(one.multipliers["shared"], other.multipliers["c0"], atol=1e-5)


def test_nonconvex_rows_agree_with_the_pooled_method() -> None:
    federated = constrained(samples(), LossParity(0.02), scope="global")
    found = sqp(federated.clients, shared=federated.shared, **TIGHT)
    pooled = Pooled(federated.clients, None, federated.shared)
    central = pooled_prox_al(pooled, penalty=20.0, stationarity=1e-7, feasibility=1e-7)
    np.testing.assert_allclose(found.weights, central.weights, atol=1e-4)
    np.testing.assert_allclose(found.multipliers["shared"], central.multipliers["shared"], atol=1e-4)


def test_programs_known_in_closed_form() -> None:
    found = sqp(unit_discs(), **TIGHT)
    np.testing.assert_allclose(found.weights, [1.0, 0.0], atol=1e-6)
    np.testing.assert_allclose(found.multipliers["c0"], [[1.0], [0.0]], atol=1e-5)
    # A linear objective on a circle: no curvature but the row's, and an equality that bends.
    circle = SmoothProgram(
        2,
        lambda w: float(w[0] + w[1]),
        lambda w: np.ones(2),
        hessian=lambda w: np.zeros((2, 2)),
        constraints=lambda w: np.array([w @ w]),
        jacobian=lambda w: 2.0 * w[None, :],
        constraint_hessian=lambda w, y: 2.0 * y[0] * np.eye(2),
        lower=[2.0],
        upper=[2.0],
    )
    on_circle = sqp([circle], start=[-1.5, 0.2], **TIGHT)
    assert on_circle.converged
    np.testing.assert_allclose(on_circle.weights, [-1.0, -1.0], atol=1e-6)
    np.testing.assert_allclose(on_circle.multipliers["c0"], [[0.5], [0.0]], atol=1e-5)


@pytest.mark.parametrize("regulariser", [ZERO, L1(0.02), Box(-0.3, 0.4), Ball(0.8)], ids=lambda s: type(s).__name__)
def test_with_a_regulariser_part(regulariser: Regulariser) -> None:
    clients = neyman_pearson(samples(), 0.6).clients
    found = sqp(clients, None, regulariser, stationarity=1e-6, feasibility=1e-6)
    assert found.converged
    central = pooled_prox_al(Pooled(clients), regulariser, penalty=30.0, stationarity=1e-6, feasibility=1e-6)
    np.testing.assert_allclose(found.weights, central.weights, atol=1e-3)
    np.testing.assert_allclose(regulariser.prox(found.weights, 0.0), found.weights, rtol=1e-12)


def test_without_second_derivatives() -> None:
    federated = constrained(samples(), [LossParity(0.02)], scope="global", regulariser=0.01)
    exact = sqp(federated.clients, shared=federated.shared, **TIGHT)
    built = sqp(federated.clients, shared=federated.shared, curvature="bfgs", stationarity=1e-5, feasibility=1e-5)
    assert built.converged
    assert built.rounds < 60
    np.testing.assert_allclose(built.weights, exact.weights, atol=1e-3)
    none = SmoothProgram(2, lambda w: float(w @ w), lambda w: 2.0 * w)
    with pytest.raises(InputError, match="bfgs"):
        sqp([none])
    assert sqp([none], curvature="bfgs", start=[1.0, 1.0]).converged


def test_from_far_away() -> None:
    """Full Newton steps fail from here: the search has to shorten them."""
    federated = neyman_pearson(samples(), 0.3)
    near = sqp(federated.clients, **TIGHT)
    far = sqp(federated.clients, start=8.0 * np.array([1.0, -1.0, 1.0, -1.0, 1.0]), **TIGHT)
    assert far.converged
    np.testing.assert_allclose(far.weights, near.weights, atol=1e-5)


def test_contradicting_rows_are_said_to_be_so() -> None:
    found = sqp(contradicting())
    assert found.status is SolveStatus.INFEASIBLE
    assert not found.certificate.converged
    # Any w₁ between the two bounds misses them by one in all.
    assert 1.0 - 1e-3 <= found.weights[0] <= 2.0 + 1e-3


def test_curved_rows_that_contradict() -> None:
    """‖w‖² ≤ 1 at one client, w₁ ≥ 2 at another."""
    first, _ = unit_discs()
    second = QuadraticProgram(None, None, np.array([[1.0, 0.0]]), [2.0], [np.inf])
    found = sqp([first, second])
    assert found.status is SolveStatus.INFEASIBLE
    # Σ misses = (w₁² − 1) + (2 − w₁) is least at w₁ = 1, where the disc's row begins to be missed.
    np.testing.assert_allclose(found.weights, [1.0, 0.0], atol=0.05)


def test_a_cap_that_bites_is_not_convergence() -> None:
    found = sqp(neyman_pearson(samples(), 0.3).clients, max_rounds=2)
    assert found.status is SolveStatus.LIMIT
    assert not found.certificate.converged
    assert found.rounds == 2
    assert np.isfinite(found.certificate.stationarity)


@given(seed=st.integers(0, 10_000))
def test_curvature_is_lifted_only_where_it_is_small(seed: int) -> None:
    rng = np.random.default_rng(seed)
    root, other = rng.standard_normal((2, 4, 4))
    metric = root @ root.T + np.eye(4)
    safe = metric + other @ other.T
    np.testing.assert_allclose(positive(safe, metric, 0.0), safe, rtol=1e-6, atol=1e-6)
    assert np.linalg.eigvalsh(positive(metric - 3.0 * other @ other.T, metric, 0.0)).min() > 0.05


@given(seed=st.integers(0, 10_000))
def test_damped_updates_stay_positive_definite(seed: int) -> None:
    rng = np.random.default_rng(seed)
    matrix = bfgs(None, rng.standard_normal(4), rng.standard_normal(4))
    for _ in range(5):
        matrix = bfgs(matrix, rng.standard_normal(4), rng.standard_normal(4))
        assert np.linalg.eigvalsh(matrix).min() > 0.0


@pytest.mark.parametrize("options", [{"penalty": 0.0}, {"curvature": "guess"}, {"max_rounds": 0}, {"stationarity": -1}])
def test_nonsense_is_refused(options: dict[str, Any]) -> None:
    with pytest.raises(InputError):
        sqp(unit_discs(), **options)


def test_neyman_pearson_across_columns_is_that_across_rows() -> None:
    """One client here, three parties there: where the bound is active, both objectives have the same minimiser."""
    problem = small(seed=3, rows=120)
    blocks = [[0], [1, 2], [3]]
    run = train(problem, NeymanPearson(0.3), blocks, solver="subspace", alpha=0.0, tol=1e-9, max_rounds=200, options={})
    features = np.column_stack([problem.matrix, np.ones(120)])
    found = sqp(neyman_pearson([FeatureRows(features, problem.labels)], 0.3).clients, **TIGHT)
    assert found.converged
    assert found.multipliers["c0"][0, 0] > 0.01
    np.testing.assert_allclose(pooled_weights(run, blocks), found.weights, atol=2e-3)
