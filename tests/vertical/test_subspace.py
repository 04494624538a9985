"""The subspace solver: any problem, any split; it never gets worse, and what it says at the end is true."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st
from support.contracts import Reborn, assert_same_ends
from support.problems import Problem, Reference, deal, parity_rows, pooled_weights, small, train

from evenhand.constraints.binding import bind
from evenhand.constraints.evaluation import Lagrangian
from evenhand.constraints.kinds import (
    Constraint,
    DemographicParity,
    EqualizedOdds,
    EqualOpportunity,
    GroupAgainstOverall,
    LossParity,
    NeymanPearson,
)
from evenhand.constraints.losses import Logistic, Squared
from evenhand.errors import DataError, InputError
from evenhand.models import preconditioner
from evenhand.models.preconditioner import make_preconditioner
from evenhand.protocol.job import Job
from evenhand.protocol.messages import Message
from evenhand.runtime.inprocess import InProcess, VirtualClock
from evenhand.training.vertical import VerticalRun
from evenhand.vertical.problem import PartyColumns, Start
from evenhand.vertical.protected.guarding import LEAST_ROWS
from evenhand.vertical.subspace import tiny_problem
from evenhand.vertical.subspace.blocks import DirectionBlock, split_step
from evenhand.vertical.subspace.party import Subspace, SubspaceParty
from evenhand_reproductions.in_memory import Holdings, train_vertical


def subspace(problem: Problem, constraint: Constraint | None = None, blocks: Any = None, **job: Any) -> VerticalRun:
    settings = {"solver": "subspace", "tol": 1e-9, "max_rounds": 60, "protection": "none", **job}
    return train(problem, constraint, blocks, **settings)


def check_certificate(
    run: VerticalRun, parties: list[PartyColumns], labels: np.ndarray, rows: Any, regulariser: float
) -> None:
    """Recompute stationarity, violation, complementarity and objective from the returned weights, pooled."""
    models = list(run.models.values())
    scores = sum(model.predict(party.matrix) for model, party in zip(models, parties, strict=True))
    point = Lagrangian(labels, rows).at(np.asarray(scores))
    nu = point.derivative(run.multipliers)
    gradients = []
    for model, party in zip(models, parties, strict=True):
        width = party.matrix.shape[1]
        gradients += list(party.matrix.T @ nu + regulariser * model.weights[:width])
        gradients += [nu.sum()] * (len(model.weights) - width)
    certificate = run.certificate
    norm = sum(
        float(model.weights[: p.matrix.shape[1]] @ model.weights[: p.matrix.shape[1]])
        for model, p in zip(models, parties, strict=True)
    )
    assert certificate.stationarity == pytest.approx(np.linalg.norm(gradients), rel=1e-5, abs=1e-8)
    # Bounds on rates are meant of the exact ones, unless a row is an equality, which no counts meet.
    rate = np.array([row.measure.name != "loss" and row.lower < row.upper for row in rows.rows], dtype=bool)
    values = np.where(rate, point.exact, point.values)
    assert certificate.violation == pytest.approx(rows.bounds.violation(values), abs=1e-8)
    assert certificate.complementarity == pytest.approx(rows.bounds.complementarity(values, run.multipliers), abs=1e-8)
    assert certificate.objective == pytest.approx(point.loss + 0.5 * regulariser * norm, rel=1e-9)


@st.composite
def awkward(draw: Any) -> tuple[Problem, list[list[int]], Constraint]:
    """Problems with repeated, constant, zero and ill-scaled columns and tiny slices, dealt to any number of parties."""
    columns = draw(st.integers(1, 8))
    problem = small(
        draw(st.integers(0, 10_000)), draw(st.integers(12, 80)), columns, draw(st.sampled_from(["ab", "abc"]))
    )
    matrix = problem.matrix.copy()
    for place in range(columns):
        kind = draw(st.sampled_from(["plain", "plain", "copy", "constant", "zero", "huge", "tiny"]))
        if kind == "copy":
            matrix[:, place] = matrix[:, 0]
        elif kind in ("constant", "zero"):
            matrix[:, place] = 3.0 if kind == "constant" else 0.0
        elif kind in ("huge", "tiny"):
            matrix[:, place] *= 1e4 if kind == "huge" else 1e-4
    order = draw(st.permutations(range(columns)))
    cuts = sorted(draw(st.lists(st.integers(1, columns - 1), unique=True))) if columns > 1 else []
    blocks = [list(order[a:b]) for a, b in zip([0, *cuts], [*cuts, columns], strict=True)]
    kinds = [EqualOpportunity, EqualizedOdds, LossParity, DemographicParity, GroupAgainstOverall]
    constraint = draw(st.sampled_from(kinds))(draw(st.sampled_from([0.0, 0.01, 0.1])))
    return Problem(matrix, problem.labels, problem.sensitive), blocks, constraint


@pytest.mark.filterwarnings("ignore::evenhand.errors.ExactRatesWarning")
@given(awkward(), st.integers(0, 8))
def test_any_problem_any_split_never_gets_worse_and_ends_with_a_true_certificate(given: Any, history: int) -> None:
    problem, blocks, constraint = given
    run = subspace(problem, constraint, blocks, max_rounds=25, options={"history": history})
    rows = bind(constraint, problem.labels, problem.sensitive)
    regulariser = 2.0 / len(problem.labels)
    check_certificate(run, deal(problem, blocks), problem.labels, rows, regulariser)
    if rows.measures and next(iter(rows.measures)).name == "loss":
        violation = run.history["violation"].to_numpy()
        assert (np.diff(violation) <= 1e-6).all()
        # Once the rows hold, the objective is the merit.
        objective = run.history["objective"].to_numpy()[violation <= 1e-6]
        assert (np.diff(objective) <= 1e-6).all()


@pytest.mark.filterwarnings("ignore::evenhand.errors.ExactRatesWarning")
@given(awkward())
def test_sums_in_fixed_point_end_with_a_true_certificate_too(given: Any) -> None:
    """Whatever the columns: what rounding has left too few digits of is not combined."""
    problem, blocks, constraint = given
    if len(blocks) < 3:
        return
    counts = [np.unique(problem.matrix[:, block], axis=0, return_counts=True)[1] for block in blocks[1:]]
    if any(len(problem.labels) - one.max() < LEAST_ROWS for one in counts):
        with pytest.raises(DataError, match="covers nothing"):
            subspace(problem, constraint, blocks, max_rounds=15, protection="masked")
        return
    run = subspace(problem, constraint, blocks, max_rounds=15, protection="masked")
    rows = bind(constraint, problem.labels, problem.sensitive)
    check_certificate(run, deal(problem, blocks), problem.labels, rows, 2.0 / len(problem.labels))


@pytest.mark.parametrize("seed", [28, 62, 82])
def test_rounding_of_sums_that_are_all_but_zero_makes_no_scores(seed: int) -> None:
    """Problems on which certificates were off by some per cent: coefficients of millions for columns of 10⁻⁹."""
    problem = small(seed, 28, 6, "ab")
    matrix = problem.matrix.copy()
    matrix[:, 1] = matrix[:, 0]
    matrix[:, 4] *= 1e4
    problem, blocks = Problem(matrix, problem.labels, problem.sensitive), [[0], [1], [3, 2, 4, 5]]
    run = subspace(problem, EqualOpportunity(0.01), blocks, max_rounds=15, protection="masked")
    rows = bind(EqualOpportunity(0.01), problem.labels, problem.sensitive)
    check_certificate(run, deal(problem, blocks), problem.labels, rows, 2.0 / 28)


@pytest.mark.parametrize("blocks", [None, [[0, 1], [2, 3]], [[3], [1], [0], [2]]])
@pytest.mark.parametrize(
    ("constraint", "labels"),
    [(EqualOpportunity(0.02), [1]), (EqualizedOdds(0.02), [1, -1]), (LossParity(0.02), [None])],
)
def test_the_limit_is_the_constrained_optimum_primal_and_dual(constraint: Any, labels: Any, blocks: Any) -> None:
    problem = small(4, rows=120)
    run = subspace(problem, constraint, blocks, tol=1e-10, max_rounds=300)
    reference = Reference(problem, parity_rows(problem, labels, 0.02), 2.0 / 120)
    weights, multipliers = reference.optimum()
    assert run.certificate.converged
    # Rows may be exceeded by 1e-7, which λ turns into as much of the objective.
    assert run.certificate.objective == pytest.approx(reference.objective(weights), rel=2e-7)
    np.testing.assert_allclose(pooled_weights(run, blocks), weights, atol=1e-4)
    np.testing.assert_allclose(run.multipliers, multipliers, atol=1e-4)


def test_neyman_pearson_holds_and_costs_the_other_class() -> None:
    problem = small(1, rows=200)
    free = subspace(problem)
    bounded = subspace(problem, NeymanPearson(0.3))
    positive = problem.labels > 0

    def mean_loss(run: VerticalRun, rows: np.ndarray) -> float:
        scores = sum(model.scores() for model in run.models.values())
        return float(np.mean(np.logaddexp(0.0, -problem.labels * scores)[rows]))

    assert mean_loss(free, positive) > 0.3
    assert mean_loss(bounded, positive) == pytest.approx(0.3, abs=1e-5)
    assert mean_loss(bounded, ~positive) > mean_loss(free, ~positive)


# Neither class can be fitted as well as this while the other is.
IMPOSSIBLE = (NeymanPearson(0.1, label=1), NeymanPearson(0.1, label=-1))


def test_rows_that_cannot_hold_are_approached_monotonically_then_given_up() -> None:
    problem = small(3, rows=60)
    run = subspace(problem, blocks=[[0, 1], [2, 3]], constraints=IMPOSSIBLE, max_rounds=1000, alpha=0.1)
    total = sum(np.maximum(run.history[name] - 0.1, 0.0) for name in run.history if name.startswith("value["))
    assert not run.certificate.converged
    assert run.certificate.violation > 0.1
    assert run.certificate.rounds < 100
    assert np.isfinite(run.multipliers).all()
    assert (np.diff(total) <= 1e-7).all()
    assert total.iloc[-1] < 0.9 * total.iloc[0]


@pytest.mark.parametrize("parties", [1, 2, 7, 50])
def test_any_number_of_parties_agrees(parties: int) -> None:
    problem = small(5, rows=300, columns=50)
    blocks = [list(part) for part in np.array_split(np.arange(50), parties)]
    run = subspace(problem, EqualOpportunity(0.01), blocks, tol=1e-8, max_rounds=300)
    assert run.certificate.converged
    assert run.certificate.objective == pytest.approx(
        subspace(problem, EqualOpportunity(0.01), tol=1e-10, max_rounds=300).certificate.objective, rel=1e-5
    )


def test_wide_sparse_and_dense_blocks_give_the_same_model() -> None:
    rng = np.random.default_rng(0)
    dense = np.where(rng.random((40, 120)) < 0.1, rng.standard_normal((40, 120)), 0.0)
    problem = small(0, rows=40)
    found = []
    for convert in (np.asarray, sp.csr_array):
        parties = [PartyColumns(f"p{k}", convert(dense[:, 60 * k : 60 * k + 60]), k == 0) for k in range(2)]
        job = Job(solver="subspace", constraints=(EqualOpportunity(0.01),), tol=1e-7, max_rounds=200)
        found.append(train_vertical(job, parties, problem.labels, problem.sensitive).certificate)
    assert found[0].converged
    assert found[0].objective == pytest.approx(found[1].objective, rel=1e-6)


def test_a_warm_start_ends_at_the_same_optimum_in_fewer_rounds() -> None:
    problem = small(6, rows=500, columns=12)
    blocks = [list(range(0, 4)), list(range(4, 12))]
    loose = subspace(problem, EqualOpportunity(0.2), blocks, tol=1e-7)
    cold = subspace(problem, EqualOpportunity(0.1), blocks, tol=1e-7)
    warm = subspace(problem, EqualOpportunity(0.1), blocks, tol=1e-7, runtime={"start": loose.as_start()})
    assert warm.certificate.objective == pytest.approx(cold.certificate.objective, rel=1e-5)
    assert warm.certificate.violation <= 1e-6
    assert warm.certificate.rounds < cold.certificate.rounds
    assert "scores" in set(warm.transcript.frame()["kind"])
    assert "scores" not in set(cold.transcript.frame()["kind"])


def test_starting_weights_of_another_size_are_refused() -> None:
    problem = small()
    start = subspace(problem, blocks=[[0], [1, 2, 3]]).as_start()
    with pytest.raises(InputError, match="p0: 2 weights to start from, 3 needed"):
        subspace(problem, blocks=[[0, 1], [2, 3]], runtime={"start": start})


def test_neural_parties_and_silly_histories_are_refused() -> None:
    with pytest.raises(InputError, match="needs model 'linear', not 'mlp'"):
        subspace(small(), model="mlp")
    with pytest.raises(InputError, match="history is -1"):
        Subspace(history=-1)


def test_bytes_of_a_round_are_the_arithmetic_sizes() -> None:
    problem = small(rows=80)
    run = subspace(problem, EqualOpportunity(0.01), [[0, 1], [2, 3]], max_rounds=2, tol=0.0, options={"history": 3})
    sizes = run.transcript.frame().groupby("kind")["nbytes"].unique()
    assert sizes["derivative"].tolist() == [8 * 80 + 2 * 8]
    assert sizes["direction"].tolist() == [8 * 80 + 8 * (4 * 4 + 4 + 4)]
    # The label holder has a coefficient for each of its two columns.
    assert sizes["own-columns"].tolist() == [8 * (2 * 80 + 2)]
    assert sizes["coefficients"].tolist() == [8 * (2 + 4), 8 * (4 + 4)]


@pytest.mark.parametrize("shape", [(50, 8), (8, 50), (30, 30)])
@pytest.mark.parametrize("limit", ["factored", "by rows", "iterated"])
@pytest.mark.parametrize("again", [True, False])
def test_every_preconditioner_solves_with_the_same_matrix(
    shape: Any, limit: str, again: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the weights of the round; where factoring again is too dear, with their bound."""
    rng = np.random.default_rng(1)
    matrix = rng.standard_normal(shape)
    if limit != "factored":
        monkeypatch.setattr(preconditioner, "LARGEST_FACTOR", shape[0] if limit == "by rows" else 0)
        if limit == "by rows" and shape[1] <= shape[0]:
            pytest.skip("a block no wider than it is tall is factored by columns")
    if not again:
        monkeypatch.setattr(preconditioner, "LARGEST_AGAIN", 0.0)
    gradient, weights = rng.standard_normal(shape[1]), 0.01 * rng.random(shape[0])
    # Conjugate gradients factor nothing, and stop early on purpose.
    used = weights if again or limit == "iterated" else np.full(shape[0], 0.01)
    expected = np.linalg.solve(matrix.T @ (used[:, None] * matrix) + 0.1 * np.eye(shape[1]), gradient)
    for block in (matrix, sp.csc_array(matrix), sp.csr_array(matrix)):
        found = make_preconditioner(block, 0.01, 0.1).solve(gradient, weights)[0]
        np.testing.assert_allclose(
            found, expected, rtol=0, atol=0.02 * np.abs(expected).max() if limit == "iterated" else 1e-9
        )


def test_a_party_knows_the_curvature_of_the_loss_from_its_slope_alone() -> None:
    problem = small(3, rows=50)
    scores = 3.0 * problem.matrix[:, 0]
    loss, curvature = Logistic(), Logistic().curvature(scores, problem.labels)
    np.testing.assert_allclose(loss.curvature_by_derivative(loss.derivative(scores, problem.labels)), curvature)
    # Tilted beyond what a loss can be: nothing is known but that it is small.
    assert loss.curvature_by_derivative(np.array([-1.7]))[0] == 0.0
    assert Squared().curvature_by_derivative(np.array([-1.7]))[0] == 1.0
    job = Job(solver="subspace")
    _, (party,) = Holdings.of(job, deal(problem), problem.labels, problem.sensitive).roles()
    assert isinstance(party, SubspaceParty)
    nu = Lagrangian(problem.labels, bind((), problem.labels)).at(scores).derivative(np.zeros((2, 0)))
    np.testing.assert_allclose(party._from_slopes(nu), np.maximum(curvature, 0.02) / 50)


def test_the_tiny_problem_is_solved_whatever_parties_promise() -> None:
    """At steep multipliers they promise a thousand times the objective, and a share of that is no tolerance."""
    problem = small(4, rows=60)
    job = Job("subspace", options={"own_columns": False})
    server, (party,) = Holdings.of(job, deal(problem), problem.labels, problem.sensitive).roles()
    (asked,) = server.start()
    before = server.objective(server.present())
    (answer,) = party.receive(asked)
    server.receive(Message(answer.sender, "server", answer.kind, {**answer.body, "decrement": np.array(1e6)}))
    assert server.objective(server.present()) < 0.95 * before


def test_a_singular_block_without_regulariser_still_has_finite_directions() -> None:
    matrix = np.repeat(np.arange(6.0)[:, None], 3, axis=1)
    direction = make_preconditioner(matrix, 0.25, 0.0).solve(np.ones(3), np.full(6, 0.2))
    assert np.isfinite(direction).all()
    run = subspace(
        Problem(matrix, np.array([1.0, -1, 1, -1, 1, -1]), pd.DataFrame({"g": list("ababab")})),
        alpha=0.0,
        max_rounds=20,
    )
    assert np.isfinite(run.certificate.objective)


def test_steps_kept_in_single_precision_cost_no_round_and_the_certificate_stays_true(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Tables that fill the memory have theirs so, unless a finer tolerance is asked for."""
    problem, kept = small(3, 400, 12, "ab"), set()
    constraint, blocks = EqualOpportunity(0.02), [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11]]
    options: dict[str, Any] = {"options": {"own_columns": False}, "tol": 1e-5}
    double = subspace(problem, constraint, blocks, **options)
    go = DirectionBlock.go

    def watched(block: DirectionBlock, coefficients: np.ndarray) -> float:
        grown = go(block, coefficients)
        kept.update(step.dtype.name for step in block._steps)
        return grown

    monkeypatch.setattr(DirectionBlock, "go", watched)
    monkeypatch.setattr(tiny_problem, "MOST_COPIED", 0)
    single = subspace(problem, constraint, blocks, **options)
    assert kept == {"float32"}
    assert single.certificate.converged
    assert single.certificate.rounds <= double.certificate.rounds
    assert single.certificate.objective == pytest.approx(double.certificate.objective, rel=1e-5)
    scores = sum(
        model.predict(problem.matrix[:, block]) for model, block in zip(single.models.values(), blocks, strict=True)
    )
    point = Lagrangian(problem.labels, bind([constraint], problem.labels, problem.groups)).at(np.asarray(scores))
    assert point.violation == pytest.approx(single.certificate.violation, abs=1e-6)
    for counted, tol in ((constraint, 1e-9), (EqualOpportunity(0.05, measure="error"), 1e-5)):
        kept.clear()
        subspace(problem, counted, blocks, **{**options, "tol": tol})
        assert kept == {"float64"}


@pytest.mark.portable
@pytest.mark.parametrize("bands", [1, 2])
@pytest.mark.parametrize("warm", [True, False])
def test_a_run_on_a_large_table_can_be_gone_on_with_at_any_moment(
    bands: int, warm: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bit for bit, where steps are in single precision and new ones take the places of old ones."""
    monkeypatch.setattr(tiny_problem, "MOST_COPIED", 0)
    problem, rng = small(3, 400, 12, "ab"), np.random.default_rng(0)
    parties = deal(problem, [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11]])
    options = {"own_columns": False, "history": 3, "bands": bands}
    job = Job("subspace", (), tol=1e-5, protection="none", options=options)
    weights = {one.name: rng.normal(size=4 + one.active) for one in parties}
    begin = Start(weights, np.zeros((2, 0))) if warm else None

    def make() -> dict[str, Any]:
        one, others = Holdings.of(job, parties, problem.labels, problem.sensitive, begin).roles()
        return {role.name: role for role in (one, *others)}

    clock = VirtualClock(latency=3e-7, speeds={"p1": 3e7})
    whole, reborn = InProcess(list(make().values()), clock), Reborn(make, clock, tmp_path, to_disk_every=5)
    whole.run()
    reborn.run()
    assert_same_ends(reborn, whole)


@pytest.mark.parametrize("single", [True, False])
@pytest.mark.parametrize(("bands", "history"), [(1, 0), (1, 1), (1, 3), (2, 1), (2, 3), (2, 4)])
def test_steps_are_what_their_coefficients_say_wherever_they_are_kept(bands: int, history: int, single: bool) -> None:
    rng, rows = np.random.default_rng(0), 5000
    block = DirectionBlock(bands, history, single=single)
    known: list[np.ndarray] = []
    memory = set()
    for _ in range(6):
        size = bands + history
        numbers = {name: np.array(1.0) for name in ("squared_norm", "squared_gradient", "decrement")}
        scores = rng.normal(size=(bands, rows))
        block.take({"scores": scores, "gram": np.eye(size), "linear": np.zeros(size), **numbers})
        share = rng.normal(size=block.width)
        expected = split_step(share, bands) @ np.array([*scores, *known])
        block.go(share)
        known = [*expected.astype(np.float32 if single else np.float64), *known][:history]
        assert len(block._steps) == len(known)
        for step, right in zip(block._steps, known, strict=True):
            np.testing.assert_allclose(step, right, rtol=1e-5 if single else 1e-12, atol=1e-6 if single else 1e-12)
        memory |= {step.__array_interface__["data"][0] for step in block._steps}
    assert len(memory) <= history + single
