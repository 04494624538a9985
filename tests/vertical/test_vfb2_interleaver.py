"""VFB² in the compiled loop: rates, exactness of masked sums, delays, sparse data, losses and regularisers."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize
from support.problems import Problem, Reference, ReferenceRow, deal, parity_rows, pooled_weights, small

from evenhand.constraints import EqualizedOdds, EqualOpportunity, NeymanPearson
from evenhand.errors import DataError, DivergenceError, InputError, ProtocolError
from evenhand.privacy.compiled import decode_scalar
from evenhand.protocol.job import Job
from evenhand.protocol.transcript import Transcript
from evenhand.runtime.inprocess import InProcess
from evenhand.solvers.roles import compiled as compiled_run
from evenhand.training.vertical import VerticalRun
from evenhand.vertical.messages import GRADIENT_NORM
from evenhand.vertical.problem import PartyColumns
from evenhand.vertical.server import CompiledRun
from evenhand.vertical.vfb2.blocks import Block
from evenhand.vertical.vfb2.kernels import SCALE, row_score
from evenhand.vertical.vfb2.options import VFB2
from evenhand_reproductions.in_memory import Holdings, train_vertical

MU = 0.02
BLOCKS = [[2, 0], [1], [3, 4], [5]]
PROBLEM = small(seed=3, rows=400, columns=6)
REFERENCE = Reference(PROBLEM, [], MU)


def run(
    solver: str,
    problem: Problem = PROBLEM,
    blocks: list[list[int]] = BLOCKS,
    active: tuple[int, ...] = (0, 2),
    constraints: tuple[Any, ...] = (),
    rounds: int = 60,
    tol: float = 0.0,
    **options: Any,
) -> VerticalRun:
    job = Job(solver, constraints, alpha=MU, max_rounds=rounds, tol=tol, options=options)
    return train_vertical(job, deal(problem, blocks, active), problem.labels, problem.sensitive, runtime="interleaved")


def build_compiled(job: Job) -> CompiledRun:
    held = Holdings.of(job, deal(PROBLEM, BLOCKS, (0, 2)), PROBLEM.labels, PROBLEM.sensitive)
    made = compiled_run(held.terms, held.server, held.parties)
    assert made is not None
    return made


def gaps(made: VerticalRun) -> np.ndarray:
    best = REFERENCE.objective(REFERENCE.optimum()[0])
    return np.asarray(made.history["objective"]) - best


@pytest.mark.parametrize("solver", ["vfb2-svrg", "vfb2-saga"])
@pytest.mark.parametrize("sampling", ["balanced", "uniform"])
def test_variance_reduced_rules_converge_linearly(solver: str, sampling: str) -> None:
    gap = gaps(run(solver, sampling=sampling))
    assert gap[-1] < 1e-9
    reached = [int(np.argmax(gap < bound)) for bound in (1e-3, 1e-4, 1e-5, 1e-6)]
    assert all(rounds > 0 for rounds in reached)
    # Linear: each further digit costs about as many rounds as the one before.
    assert reached[-1] - reached[-2] <= 3 * max(1, reached[1] - reached[0]) + 3


def test_plain_sgd_does_not_converge_linearly() -> None:
    gap = gaps(run("vfb2-sgd"))
    assert gap[-1] > 1e-6
    assert gap[-1] < 0.02


@pytest.mark.portable
@settings(max_examples=15)
@given(
    seed=st.integers(0, 99),
    read=st.integers(0, 6),
    message=st.integers(0, 6),
    batch=st.integers(1, 9),
    parties=st.integers(1, 6),
    rule=st.sampled_from(["vfb2-svrg", "vfb2-saga"]),
)
def test_any_seed_delay_batch_and_partition_ends_at_the_pooled_optimum(
    seed: int, read: int, message: int, batch: int, parties: int, rule: str
) -> None:
    columns = np.random.default_rng(seed).permutation(6)
    blocks = [list(part) for part in np.array_split(columns, parties)]
    active = tuple(range(0, parties, 2))
    job = Job(rule, alpha=MU, max_rounds=400, tol=1e-7, seed=seed)
    job = Job(
        rule,
        alpha=MU,
        max_rounds=400,
        tol=1e-7,
        seed=seed,
        options={"read_delay": read, "message_delay": message, "batch_size": batch},
    )
    made = train_vertical(job, deal(PROBLEM, blocks, active), PROBLEM.labels)
    assert made.certificate.converged
    np.testing.assert_allclose(pooled_weights(made, blocks), REFERENCE.optimum()[0], atol=1e-5)
    staleness = made.statistics["staleness"]
    assert len(staleness) == read + message + 1
    if made.certificate.rounds > 20 and parties > 1 and max(read, message) <= 2:
        # Both bounds are reached; one party alone has no message to wait for, and of long delays the longest are rare.
        assert staleness[-1] > 0
    steps = [-(-len(range(400)) // batch)]
    # Updates were counted once for each party and step.
    assert sum(staleness) % parties == 0
    assert sum(staleness) >= parties * steps[0]


@pytest.mark.portable
def test_scores_do_not_depend_on_who_has_which_columns() -> None:
    """Terms are rounded one by one: without delays every partition takes the same steps, to the bit."""
    options = {"read_delay": 0, "message_delay": 0, "sampling": "uniform", "step": 0.05}
    ends = [
        pooled_weights(run("vfb2-svrg", blocks=blocks, active=(0,), rounds=8, **options), blocks)
        for blocks in ([[0, 1, 2, 3, 4, 5]], BLOCKS, [[5], [3], [4], [0], [1], [2]])
    ]
    assert ends[0].any()
    for other in ends[1:]:
        np.testing.assert_array_equal(other, ends[0])


@pytest.mark.portable
def test_a_dominator_updates_its_own_block_without_waiting_for_a_message() -> None:
    """VFB² Algorithm 2, step 5: τ₂ delays ϑ on its way to the others, and the dominator has it already."""
    matrix = PROBLEM.matrix.copy()
    # The other party's column is zero, so the dominator's steps depend on its own block alone.
    matrix[:, 0] = 0.0
    problem = replace(PROBLEM, matrix=matrix)
    options = {"read_delay": 0, "sampling": "uniform", "step": 0.05, "growth": False}
    for solver in ("vfb2-sgd", "vfb2-svrg", "vfb2-saga"):
        made = [
            run(solver, problem, [[0], [1, 2, 3, 4, 5]], (1,), rounds=3, message_delay=delay, **options)
            for delay in (0, 5)
        ]
        first, second = (one.models["p1"].weights for one in made)
        assert first.any()
        np.testing.assert_array_equal(first, second)


def test_short_epochs_come_first_and_sagas_table_is_then_kept() -> None:
    options = VFB2().resolved("saga", on_rates=False, dominators=1, in_one_loop=True)
    assert [options.share_of_rows(number) for number in (1, 2, 5, 6, 7, 50)] == [1 / 32, 1 / 16, 1 / 2, 1, 1, 1]
    assert [options.renews_references("saga", number) for number in (1, 2, 5, 6, 7, 50)] == [True] * 4 + [False] * 2
    assert all(options.renews_references("svrg", number) for number in (1, 7, 50))
    assert not any(options.renews_references("sgd", number) for number in (1, 7, 50))
    whole = VFB2(growth=False).resolved("saga", on_rates=False, dominators=1, in_one_loop=True)
    assert [whole.renews_references("saga", number) for number in (1, 2, 3)] == [True, False, False]


def test_masked_sums_are_the_scores() -> None:
    compiled: Any = build_compiled(Job("vfb2-svrg", max_rounds=3))
    for _ in range(3):
        compiled.work()
    weights = np.zeros(6)
    for block, columns in zip(compiled._blocks, BLOCKS, strict=True):
        weights[columns] = block.weights[: len(columns)]
    intercept = compiled._blocks[0].weights[-1]
    told = compiled.present().scores
    assert np.abs(told).max() > 0.1
    np.testing.assert_allclose(told, PROBLEM.matrix @ weights + intercept, atol=1e-11)
    # No masks are drawn here, and any would cancel exactly: the same to the bit.
    storage, rng = compiled._storage, np.random.default_rng(0)
    for row, found in enumerate(compiled._scores[:20]):
        ends = storage.starts[row]
        parts = [
            row_score(storage.indices, storage.data, first, stop, storage.columns)[0] for first, stop in pairwise(ends)
        ]
        masks = [int(mask) for mask in rng.integers(2**64, size=len(parts), dtype=np.uint64)]
        masked = sum(int(part) + mask for part, mask in zip(parts, masks, strict=True)) - sum(masks)
        assert decode_scalar(np.uint64(masked % 2**64), SCALE) == found


@pytest.mark.portable
@pytest.mark.parametrize("solver", ["vfb2-sgd", "vfb2-svrg", "vfb2-saga"])
@pytest.mark.parametrize("constraints", [(), (EqualOpportunity(0.02),)])
def test_resumed_from_any_round_it_ends_bit_for_bit_the_same(solver: str, constraints: tuple[Any, ...]) -> None:
    job = Job(solver, constraints, alpha=MU, max_rounds=6, tol=0.0)

    def runtime() -> InProcess:
        return InProcess([build_compiled(job)])

    taken: list[dict[str, Any]] = []
    whole = runtime()
    whole.on_report = lambda _: taken.append(whole.snapshot())
    whole.run()
    end = whole.mailboxes["server"].role.snapshot()
    for states in taken:
        resumed = runtime()
        resumed.restore(states)
        resumed.run()
        role: Any = resumed.mailboxes["server"].role
        for name, value in role.snapshot().items():
            np.testing.assert_array_equal(value, end[name], err_msg=name)
        # Also from the very last checkpoint, after which there is nothing left to do.
        weights = np.concatenate([model.weights for model in role.models.values()])
        np.testing.assert_array_equal(weights, end["_arrays.0"][:, 0])


def test_sparse_blocks_give_the_same_run_as_dense_ones() -> None:
    rng = np.random.default_rng(5)
    matrix = rng.standard_normal((300, 40)) * (rng.random((300, 40)) < 0.1)
    labels = np.where(matrix.sum(axis=1) + rng.logistic(size=300) > 0, 1.0, -1.0)
    runs = []
    for make in (np.asarray, sp.csr_array, sp.csc_matrix):
        parties = [PartyColumns("a", make(matrix[:, :25]), True), PartyColumns("b", make(matrix[:, 25:]))]
        runs.append(train_vertical(Job("vfb2-saga", alpha=1e-3, max_rounds=5, tol=0.0), parties, labels))
    for other in runs[1:]:
        for name, model in runs[0].models.items():
            assert model.weights.tobytes() == other.models[name].weights.tobytes()
    # Rare columns, whose regulariser is taken implicitly, still end at the optimum.
    job = Job("vfb2-svrg", alpha=1e-3, max_rounds=300, tol=1e-6)
    made = train_vertical(job, [PartyColumns("a", sp.csr_array(matrix), True)], labels)
    assert made.certificate.converged
    assert made.certificate.stationarity < 1e-6


def bounded_gradient(weights: np.ndarray) -> np.ndarray:
    """Of Eq. 14's objective, from the definition."""
    matrix = np.column_stack([PROBLEM.matrix, np.ones(len(PROBLEM.labels))])
    z = matrix @ weights
    slope = -PROBLEM.labels / (1.0 + np.exp(PROBLEM.labels * z)) / len(z)
    ridge = MU * weights / (1.0 + weights**2) ** 2
    ridge[-1] = 0.0
    return matrix.T @ slope + ridge


@pytest.mark.parametrize("solver", ["vfb2-svrg", "vfb2-saga"])
def test_the_nonconvex_regulariser_ends_at_a_stationary_point(solver: str) -> None:
    made = run(solver, regulariser="bounded", rounds=400, tol=1e-7)
    weights = pooled_weights(made, BLOCKS)
    assert np.linalg.norm(bounded_gradient(weights)) == pytest.approx(made.certificate.stationarity, abs=1e-9)
    assert made.certificate.stationarity < 1e-6
    matrix = np.column_stack([PROBLEM.matrix, np.ones(len(PROBLEM.labels))])
    squares = weights[:-1] ** 2
    objective = np.logaddexp(0, -PROBLEM.labels * (matrix @ weights)).mean() + MU / 2 * (squares / (1 + squares)).sum()
    assert made.certificate.objective == pytest.approx(objective, rel=1e-9)
    assert np.linalg.norm(weights - pooled_weights(run(solver, rounds=200), BLOCKS)) > 0.01


@pytest.mark.parametrize("solver", ["vfb2-svrg", "vfb2-saga"])
def test_the_squared_loss_is_ridge_regression(solver: str) -> None:
    rng = np.random.default_rng(2)
    target = PROBLEM.matrix @ rng.standard_normal(6) + 3.0 + 0.1 * rng.standard_normal(400)
    job = Job(solver, alpha=MU, max_rounds=600, tol=1e-8, loss="squared")
    made = train_vertical(job, deal(PROBLEM, BLOCKS, (0,)), target)
    matrix = np.column_stack([PROBLEM.matrix, np.ones(400)])
    penalty = np.diag([MU] * 6 + [0.0])
    closed = np.linalg.solve(matrix.T @ matrix / 400 + penalty, matrix.T @ target / 400)
    np.testing.assert_allclose(pooled_weights(made, BLOCKS), closed, atol=1e-6)


@pytest.mark.parametrize("solver", ["vfb2-svrg", "vfb2-saga"])
def test_constraints_are_met_and_multipliers_are_those_of_an_independent_solver(solver: str) -> None:
    reference = Reference(PROBLEM, parity_rows(PROBLEM, [1, -1], 0.02), MU)
    weights, multipliers = reference.optimum()
    made = run(solver, constraints=(EqualizedOdds(0.02),), rounds=2000, tol=1e-7)
    assert made.certificate.converged
    assert multipliers.max() > 0.01
    np.testing.assert_allclose(pooled_weights(made, BLOCKS), weights, atol=1e-4)
    np.testing.assert_allclose(made.multipliers, multipliers, atol=1e-4)


@pytest.mark.parametrize("runtime", ["interleaved", "messages"])
def test_a_row_with_one_bound_is_met(runtime: Any) -> None:
    positive = ReferenceRow([(1.0, PROBLEM.slice(1))], -np.inf, 0.4)
    weights, multipliers = Reference(PROBLEM, [positive], MU).optimum()
    assert multipliers.max() > 0.01
    job = Job("vfb2-svrg", (NeymanPearson(0.4),), alpha=MU, max_rounds=1000, tol=1e-7, options={"batch_size": 4})
    made = train_vertical(job, deal(PROBLEM, BLOCKS, (0, 2)), PROBLEM.labels, runtime=runtime)
    assert made.certificate.converged
    np.testing.assert_allclose(pooled_weights(made, BLOCKS), weights, atol=1e-4)
    np.testing.assert_allclose(made.multipliers, multipliers, atol=1e-4)


def test_without_backward_updating_only_the_active_blocks_are_trained() -> None:
    made = run("afsvrg-vp", rounds=200)
    assert not made.models["p1"].weights.any()
    assert not made.models["p3"].weights.any()
    matrix = np.column_stack([PROBLEM.matrix[:, [2, 0, 3, 4]], np.ones(400)])

    def objective(weights: np.ndarray) -> float:
        return np.logaddexp(0, -PROBLEM.labels * (matrix @ weights)).mean() + MU / 2 * (weights[:-1] ** 2).sum()

    assert made.certificate.objective == pytest.approx(minimize(objective, np.zeros(5)).fun, abs=1e-8)
    assert made.certificate.objective > REFERENCE.objective(REFERENCE.optimum()[0]) + 1e-3


def test_the_messages_that_would_have_been_sent_are_counted() -> None:
    made = run("vfb2-svrg", rounds=2, growth=False, batch_size=10)
    sent = made.transcript.frame()
    per_kind = sent.groupby("kind")["messages"].sum()
    assert per_kind["theta"] == per_kind["score-request"] == 2 * 40 * 3
    assert per_kind["masked-scores"] == 2 * 40 * 3 * 2
    assert per_kind["masked-totals"] == (3 + 1) * 3 * 2
    assert (sent.loc[sent["kind"] == "theta", "nbytes"] == 8 * 11 * sent.loc[sent["kind"] == "theta", "messages"]).all()
    assert made.history["bytes"].is_monotonic_increasing
    assert made.transcript.by_link()["nbytes"].sum() == made.transcript.total_bytes


def test_whoever_keeps_messages_has_them_sent() -> None:
    problem = small(seed=1, rows=30, columns=4)
    job, parties = Job(solver="vfb2-sgd", max_rounds=1), deal(problem, [[0, 1], [2, 3]], (0,))
    hows: list[dict[str, Any]] = [{"keep_messages": True}, {"transcript": Transcript(keep_messages=True)}]
    for how in hows:
        run = train_vertical(job, parties, problem.labels, **how)
        assert {"theta", "masked-scores"} <= {message.kind for message in run.transcript.messages or ()}
        with pytest.raises(InputError, match="so none can be kept"):
            train_vertical(job, parties, problem.labels, runtime="interleaved", **how)


def test_a_step_that_is_too_long_is_said_to_be() -> None:
    with pytest.raises(DivergenceError, match="steps are too long"):
        run("vfb2-svrg", step=1e6, rounds=50)


@pytest.mark.parametrize(
    ("matrix", "problem"),
    [
        (np.array([[1.0, np.nan], [0.0, 1.0]]), "missing or infinite"),
        (np.array([[1.0, np.inf], [0.0, 1.0]]), "missing or infinite"),
        (sp.csr_matrix((np.ones(2), np.array([0, 7]), np.array([0, 1, 2])), shape=(2, 8))[:, :8], None),
    ],
)
def test_bad_rows_are_refused(matrix: Any, problem: str | None) -> None:
    labels = np.array([1.0, -1.0])
    parties = [PartyColumns("shop", matrix, True)]
    if problem is None:
        # An index that scipy let through: as if the file had been made by hand.
        matrix.indices[1] = 8
        problem = "names column 8, but there are 8"
    with pytest.raises(DataError, match=f"shop: .*{problem}"):
        train_vertical(Job("vfb2-svrg", max_rounds=1), parties, labels)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"step": 0}, "step is 0"),
        ({"regulariser": "l1"}, "regulariser is 'l1'"),
        ({"batch_size": 0}, "batch_size is 0"),
        ({"sampling": "odd"}, "sampling is 'odd'"),
        ({"read_delay": -1}, "read_delay is -1"),
        ({"message_delay": 1.5}, "message_delay is 1.5"),
        ({"growth": 1}, "growth is 1"),
        ({"pace": "slow"}, "pace is 'slow'"),
        ({"dual_step": 0}, "dual_step is 0"),
        ({"penalty": -1}, "penalty is -1"),
    ],
)
def test_wrong_settings_are_refused(options: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=said):
        run("vfb2-svrg", **options)


def test_a_runtime_that_the_solver_does_not_have_is_refused() -> None:
    parties = deal(PROBLEM, BLOCKS, (0,))
    with pytest.raises(InputError, match="does not run interleaved"):
        train_vertical(Job("subspace"), parties, PROBLEM.labels, runtime="interleaved")
    with pytest.raises(InputError, match="choose one of 'auto'"):
        train_vertical(Job("subspace"), parties, PROBLEM.labels, runtime="cloud")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="does not support the squared loss; choose 'subspace' or 'trees'"):
        train_vertical(Job("fairvfl", loss="squared"), parties, PROBLEM.labels)


def test_rows_that_another_store_has_taken_over_are_let_go_of() -> None:
    """An empty part of an array would keep the whole of it."""
    block = Block("a", sp.csr_array(np.eye(4)), 0.1, VFB2(), intercept=True)
    block.give_up_rows()
    assert all(part.size == 0 and part.base is None for part in (block.starts, block.indices, block.data))


def test_the_compiled_run_takes_no_message() -> None:
    with pytest.raises(ProtocolError, match="takes no message"):
        build_compiled(Job("vfb2-sgd")).handle(GRADIENT_NORM.message("p0", "server", squared_gradient=1.0))
