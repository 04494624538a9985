"""FairVFL and FedBCD against references written from the papers: iterates, limits, schedules, bytes, asynchrony."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import expit
from sklearn.linear_model import LogisticRegression
from support.problems import (
    Problem,
    Reference,
    ReferenceRow,
    parity_rows,
    pooled_weights,
    small,
    train,
)

from evenhand.constraints.kinds import (
    Constraint,
    DemographicParity,
    EqualizedOdds,
    EqualOpportunity,
    LossParity,
    NeymanPearson,
)
from evenhand.errors import DivergenceError, InputError
from evenhand.runtime.inprocess import VirtualClock
from evenhand.training.vertical import VerticalRun
from evenhand.vertical.fairvfl_schedule import Schedule

PROBLEM = small(seed=1, rows=80)
MU = 0.05
BLOCKS = [[2, 0], [1], [3]]


# -- (a) any partition gives the pooled iterates


@st.composite
def _partitions(draw: st.DrawFn) -> tuple[list[list[int]], list[int]]:
    """Columns in any order, cut anywhere, with any parties active, at least one of them."""
    columns = draw(st.permutations(range(5)))
    cuts = draw(st.sets(st.integers(1, 4)))
    places = [0, *sorted(cuts), 5]
    blocks = [columns[start:stop] for start, stop in pairwise(places)]
    active = draw(st.sets(st.integers(0, len(blocks) - 1), min_size=1))
    return blocks, sorted(active)


@given(partition=_partitions(), seed=st.integers(0, 100), pace=st.sampled_from(["exact", "until-server-speaks"]))
def test_any_partition_into_parties_gives_the_pooled_iterates(
    partition: tuple[list[list[int]], list[int]], seed: int, pace: str
) -> None:
    blocks, active = partition
    problem, constraint = small(seed, rows=40, columns=5), EqualizedOdds(0.02)
    options = {"step": 0.5, "dual_step": 0.5, "pace": pace}
    pooled = train(problem, constraint, options=options, max_rounds=15)
    split = train(problem, constraint, blocks, active, options=options, max_rounds=15)
    np.testing.assert_allclose(pooled_weights(split, blocks), pooled_weights(pooled), atol=1e-9)
    np.testing.assert_allclose(split.multipliers, pooled.multipliers, atol=1e-9)
    numbers = [name for name in pooled.history.columns if name not in ("bytes", "time")]
    np.testing.assert_allclose(split.history[numbers], pooled.history[numbers], atol=1e-9)


# -- (b) the limit is the constrained optimum, primal and dual

LIMITS: dict[str, tuple[Constraint, list[ReferenceRow]]] = {
    "equal opportunity": (EqualOpportunity(0.02), parity_rows(PROBLEM, [1], 0.02)),
    "equalized odds": (EqualizedOdds(0.05), parity_rows(PROBLEM, [1, -1], 0.05)),
    "equalized odds, error": (
        EqualizedOdds(0.03, measure="error", temperature=1.0),
        parity_rows(PROBLEM, [1, -1], 0.03, "error", 1.0),
    ),
    "loss parity": (LossParity(0.01), parity_rows(PROBLEM, [None], 0.01)),
    "loss parity, zero": (LossParity(0.0), parity_rows(PROBLEM, [None], 0.0)),
    "Neyman-Pearson": (NeymanPearson(0.3), [ReferenceRow([(1.0, PROBLEM.slice(1))], -np.inf, 0.3)]),
    "demographic parity": (
        DemographicParity(0.02, temperature=1.0),
        parity_rows(PROBLEM, [None], 0.02, "positive", 1.0),
    ),
}


@pytest.mark.parametrize(("constraint", "rows"), LIMITS.values(), ids=LIMITS)
def test_the_limit_is_the_constrained_optimum_primal_and_dual(constraint: Constraint, rows: list[ReferenceRow]) -> None:
    reference = Reference(PROBLEM, rows, MU)
    weights, multipliers = reference.optimum()
    assert np.abs(multipliers).max() > 0.05, "the constraint must bind for this to show anything"
    options = {"step": 0.5, "dual_step": 0.5, "damping": 0.0}
    run = train(PROBLEM, constraint, BLOCKS, alpha=MU, max_rounds=4000, tol=1e-8, options=options)
    assert run.certificate.converged
    np.testing.assert_allclose(pooled_weights(run, BLOCKS), weights, atol=1e-6)
    # With ε = 0 both sides of a row are tight and only the difference of their multipliers is determined.
    np.testing.assert_allclose(np.diff(run.multipliers, axis=0), np.diff(multipliers, axis=0), atol=1e-6)
    if all(row.lower < row.upper for row in rows):
        np.testing.assert_allclose(run.multipliers, multipliers, atol=1e-6)
    assert run.certificate.objective == pytest.approx(reference.objective(weights), abs=1e-7)


@pytest.mark.parametrize("pace", ["exact", "until-server-speaks"])
def test_local_steps_of_unequal_parties_end_at_the_same_optimum(pace: str) -> None:
    constraint, rows = LIMITS["equal opportunity"]
    weights, multipliers = Reference(PROBLEM, rows, MU).optimum()
    options = {"step": 0.3, "dual_step": 0.3, "damping": 0.0, "local_steps": 3, "pace": pace}
    clock = VirtualClock(speeds={"p1": 1e8, "p2": 3e8}, latency=1e-7)
    runtime = {"clock": clock}
    run = train(
        PROBLEM, constraint, BLOCKS, (0, 2), runtime=runtime, options=options, alpha=MU, max_rounds=4000, tol=1e-8
    )
    np.testing.assert_allclose(pooled_weights(run, BLOCKS), weights, atol=1e-6)
    np.testing.assert_allclose(run.multipliers, multipliers, atol=1e-6)


def test_a_penalty_ends_at_the_same_optimum_and_the_certificate_is_about_the_multipliers() -> None:
    """[λ + ρ · excess]₊ is λ at the solution; before it, the certificate is the plain Lagrangian's."""
    constraint, rows = LIMITS["equalized odds"]
    reference = Reference(PROBLEM, rows, MU)
    weights, multipliers = reference.optimum()
    options = {"step": 0.4, "dual_step": 0.4, "damping": 0.0, "penalty": 1.0}
    run = train(PROBLEM, constraint, BLOCKS, alpha=MU, max_rounds=4000, tol=1e-8, options=options)
    np.testing.assert_allclose(pooled_weights(run, BLOCKS), weights, atol=1e-6)
    np.testing.assert_allclose(run.multipliers, multipliers, atol=1e-6)
    early = train(PROBLEM, constraint, BLOCKS, alpha=MU, max_rounds=3, tol=0.0, options=options)
    _check_certificate(early, reference)


# -- (c) FedBCD


@pytest.mark.parametrize("pace", ["exact", "until-server-speaks"])
def test_a_large_epsilon_recovers_fedbcd_exactly(pace: str) -> None:
    options = {"step": 0.3, "local_steps": 3, "pace": pace}
    settings: dict[str, Any] = {"options": options, "max_rounds": 40, "tol": 1e-9}
    fair = train(PROBLEM, EqualOpportunity(1e3), BLOCKS, (0, 1), **settings)
    free = train(PROBLEM, None, BLOCKS, (0, 1), solver="fedbcd", **settings)
    for name, model in fair.models.items():
        np.testing.assert_array_equal(model.weights, free.models[name].weights)
    for column in ("objective", "violation", "gap"):
        np.testing.assert_array_equal(fair.history[column], free.history[column])
    assert not fair.multipliers.any()


def test_fedbcd_refuses_a_constraint() -> None:
    with pytest.raises(InputError, match="'fedbcd' does not support constraints"):
        train(PROBLEM, EqualOpportunity(0.1), solver="fedbcd")


@pytest.mark.parametrize("alpha", [MU, None])
def test_the_limit_of_fedbcd_is_logistic_regression(alpha: float | None) -> None:
    run = train(PROBLEM, None, BLOCKS, solver="fedbcd", alpha=alpha, max_rounds=4000, tol=1e-9, options={"step": 1.0})
    n = len(PROBLEM.labels)
    pooled = LogisticRegression(C=1 / (n * (2 / n if alpha is None else alpha)), tol=1e-12, solver="newton-cholesky")
    pooled.fit(PROBLEM.matrix, PROBLEM.labels)
    np.testing.assert_allclose(pooled_weights(run, BLOCKS), [*pooled.coef_[0], *pooled.intercept_], atol=1e-6)


# -- (d) the updates, by hand


def test_iterates_multipliers_and_gaps_are_equations_10_to_13() -> None:
    """Gradient descent ascent written out for the pooled problem, with a damping that matters."""
    constraint, rows = LIMITS["equal opportunity"]
    step, beta, damping, rounds = 0.8, 2.0, 0.4, 25
    options = {"step": step, "dual_step": beta, "damping": damping}
    run = train(PROBLEM, constraint, BLOCKS, alpha=MU, options=options, max_rounds=rounds, tol=0.0)
    reference = Reference(PROBLEM, rows, MU)
    weights, multipliers = np.zeros(5), reference.no_multipliers()
    uppers, lowers, gaps, objectives = [], [], [np.nan], []
    for t in range(rounds + 1):
        slope = reference.excess(weights)
        multipliers = np.maximum(multipliers + beta * (slope - damping * multipliers), 0.0)
        uppers.append(multipliers[0, 0])
        lowers.append(multipliers[1, 0])
        objectives.append(reference.objective(weights))
        if t < rounds:
            gradient = reference.gradient(weights, multipliers)
            dual = (multipliers - np.maximum(multipliers + beta * slope, 0.0)) / beta
            gaps.append(np.sqrt(np.sum(gradient**2) + np.sum(dual**2)))
            weights = weights - step * gradient
    name = run.row_names[0]
    np.testing.assert_allclose(run.history[f"upper multiplier[{name}]"], uppers, atol=1e-12)
    np.testing.assert_allclose(run.history[f"lower multiplier[{name}]"], lowers, atol=1e-12)
    np.testing.assert_allclose(run.history["objective"], objectives, rtol=1e-12)
    np.testing.assert_allclose(run.history["gap"], gaps, rtol=1e-9)
    np.testing.assert_allclose(pooled_weights(run, BLOCKS), weights, atol=1e-12)
    # The damping acted: without it the multipliers end elsewhere.
    undamped = train(
        PROBLEM, constraint, BLOCKS, alpha=MU, options={**options, "damping": 0.0}, max_rounds=rounds, tol=0.0
    )
    assert np.abs(undamped.multipliers - run.multipliers).max() > 0.01


def test_damping_leaves_a_bias_that_vanishes_with_it() -> None:
    """With c > 0 the fixed point has λ = max(0, excess / c): the constraint is exceeded by c λ."""
    constraint, rows = LIMITS["equal opportunity"]
    options = {"step": 0.5, "dual_step": 0.5, "damping": 0.05}
    run = train(PROBLEM, constraint, BLOCKS, alpha=MU, options=options, max_rounds=800, tol=0.0)
    value = Reference(PROBLEM, rows, MU).values(pooled_weights(run, BLOCKS))[0]
    assert run.multipliers[0, 0] == pytest.approx((value - 0.02) / 0.05, abs=1e-7)
    assert run.certificate.violation == pytest.approx(0.05 * run.multipliers[0, 0], abs=1e-7)


# -- (e) the theorem's schedule


def test_the_theorem_schedule_is_the_printed_formula() -> None:
    """η_t and c_(t−1) with L, L₁₂, K, Q, τ recomputed here, β being the theorem's 1/β; objective and gap go down."""
    beta, steps, rounds = 2.0, 3, 60
    options = {"schedule": "theorem", "dual_step": beta, "local_steps": steps}
    run = train(
        PROBLEM,
        EqualOpportunity(0.0),
        BLOCKS,
        (0, 1),
        alpha=MU,
        options=options,
        max_rounds=rounds,
        tol=0.0,
        runtime={"keep_messages": True},
    )
    messages = run.transcript.messages or []
    spectra = [message.number("squared_norm") for message in messages if message.kind == "spectrum"]
    design = np.column_stack([PROBLEM.matrix, np.ones(80)])
    squared = sum(spectra)
    assert squared >= np.linalg.norm(design, 2) ** 2
    in_a, in_b = PROBLEM.slice(1, "a").sum(), PROBLEM.slice(1, "b").sum()
    coupling = 2 * (1 / in_a + 1 / in_b) * squared
    kq, tau = 3 * steps, Schedule.TAU
    assert tau > 8
    broadcasts = {m.integer("round"): m for m in messages if m.receiver == "p0" and not m.integer("last")}
    assert sorted(broadcasts) == list(range(1, rounds + 1))
    name = run.row_names[0]
    upper, lower = (run.history[f"{side} multiplier[{name}]"].to_numpy() for side in ("upper", "lower"))
    for t, message in broadcasts.items():
        net = abs(upper[t - 1] - lower[t - 1])
        smooth = 0.25 * (1 / 80 + net / min(in_a, in_b)) * squared + MU
        eta = (smooth**2 * (kq + 2) * (kq - 1) + 2 * (smooth + 1)) / 4
        eta += coupling * kq * (1 + 32 * tau * np.sqrt(t)) * beta / 2
        assert 1 / message.number("step") == pytest.approx(eta, rel=1e-12)
    values = run.history[f"value[{name}]"].to_numpy()
    for t in range(1, rounds + 1):
        c = max(t - 1, 1) ** -0.25 / (2 * beta)
        for side, sign in ((upper, 1.0), (lower, -1.0)):
            expected = max(0.0, side[t - 1] + beta * (sign * values[t] - c * side[t - 1]))
            assert side[t] == pytest.approx(expected, abs=1e-13)
    assert (np.diff(run.history["objective"]) < 0).all()
    assert run.history["gap"].iloc[-1] < run.history["gap"].iloc[1]


def test_linear_parties_step_by_the_curvature_unless_told_otherwise() -> None:
    asked = {"alpha": MU, "max_rounds": 5, "tol": 0.0}
    usual, auto, papers = (
        train(PROBLEM, None, BLOCKS, **asked, options=options) for options in ({}, {"step": "auto"}, {"step": 0.01})
    )
    np.testing.assert_array_equal(pooled_weights(usual, BLOCKS), pooled_weights(auto, BLOCKS))
    assert usual.certificate.objective < papers.certificate.objective
    adam = [
        train(PROBLEM, None, BLOCKS, **asked, options={"optimiser": "adam", **more}) for more in ({}, {"step": 0.01})
    ]
    np.testing.assert_array_equal(*(pooled_weights(run, BLOCKS) for run in adam))


def test_an_automatic_step_is_one_over_the_curvature_and_descends() -> None:
    run = train(
        PROBLEM,
        None,
        BLOCKS,
        solver="fedbcd",
        alpha=MU,
        options={"step": "auto"},
        max_rounds=50,
        runtime={"keep_messages": True},
    )
    messages = run.transcript.messages or []
    squared = sum(message.number("squared_norm") for message in messages if message.kind == "spectrum")
    steps = {message.number("step") for message in messages if message.kind == "combined-scores"} - {0.0}
    assert list(steps) == pytest.approx([1 / (0.25 * squared / 80 + MU)])
    assert (np.diff(run.history["objective"]) < 0).all()


# -- (f) more local steps, fewer rounds


@pytest.mark.parametrize("epsilon", [0.02, 0.3])
def test_more_local_steps_reach_an_objective_in_fewer_rounds(epsilon: float) -> None:
    """Q = 1, 4, 7 with every party active and exactly Q steps, as in Figure 2 of the first version."""
    problem = small(seed=3, rows=100, columns=6)
    blocks = [[0, 1], [2, 3], [4, 5]]
    rounds = {}
    for steps in (1, 4, 7):
        options = {"step": 0.05, "dual_step": 0.1, "local_steps": steps}
        run = train(
            problem, EqualOpportunity(epsilon), blocks, (0, 1, 2), options=options, alpha=MU, max_rounds=150, tol=0.0
        )
        objective = run.history["objective"].to_numpy()
        if steps == 1:
            target = objective[-1] + 0.05 * (objective[0] - objective[-1])
        rounds[steps] = int(np.argmax(objective <= target))
        assert objective.min() <= target
    assert rounds[7] < rounds[4] < rounds[1]
    assert rounds[4] < rounds[1] / 2


# -- (g) asynchronous, inconsistent reads


def _nu(problem: Problem, scores: np.ndarray, multipliers: np.ndarray) -> np.ndarray:
    """Equation 12."""
    slope = -problem.labels * expit(-problem.labels * scores)
    in_a, in_b = problem.slice(1, "a"), problem.slice(1, "b")
    tilt = (multipliers[0, 0] - multipliers[1, 0]) * (in_a / in_a.sum() - in_b / in_b.sum())
    return (1 / len(slope) + tilt) * slope


@pytest.mark.parametrize("slow", [5.3, 40.7])
def test_active_parties_use_their_own_fresh_scores_and_the_others_as_last_received(slow: float) -> None:
    """The run replayed from its messages: every local step, what the server had read, and when things arrived."""
    speeds = {"server": 1e9, "p0": 1e9, "p1": 1e9 / slow, "p2": 4.1e8}
    clock = VirtualClock(latency=2e-7, bandwidth=5e9, speeds=speeds)
    options = {"step": 0.3, "dual_step": 0.5, "local_steps": 6, "pace": "until-server-speaks"}
    run = train(
        PROBLEM,
        EqualOpportunity(0.0),
        BLOCKS,
        (0, 2),
        alpha=MU,
        options=options,
        max_rounds=15,
        tol=0.0,
        runtime={"clock": clock, "keep_messages": True},
    )
    sent = list(zip(run.transcript.entries, run.transcript.messages or [], strict=True))

    def arrival(entry: Any) -> float:
        return entry.time + clock.sending(entry.sender, entry.receiver, entry.nbytes)

    scores = {(m.sender, m.integer("sequence")): (e, m) for e, m in sent if m.kind == "scores"}
    extra_steps = 0
    for party, block, intercept in (("p0", BLOCKS[0], 1), ("p2", BLOCKS[2], 0)):
        columns = np.column_stack([PROBLEM.matrix[:, block], np.ones((80, intercept))])
        broadcasts = {m.integer("round"): (e, m) for e, m in sent if m.receiver == party and not m.integer("last")}
        # What an active party spends on one local step: ν, and one pass each for gradient and scores.
        effort = (10 * 80 + 2 * 80 * len(block)) / speeds[party]
        weights, own, previous = np.zeros(columns.shape[1]), np.zeros(80), -1
        mine = sorted(number for sender, number in scores if sender == party)
        assert mine == list(range(1, len(mine) + 1))
        for number in mine:
            entry, message = scores[party, number]
            t = message.integer("round")
            if t > 0:
                heard_entry, heard = broadcasts[t]
                read = heard.integer("sequence")
                others = heard["scores"] - scores[party, read][1]["scores"]
                gradient = columns.T @ _nu(PROBLEM, others + own, heard["multipliers"])
                gradient[: len(block)] += MU * weights[: len(block)]
                weights = weights - 0.3 * gradient
                own = columns @ weights
                extra_steps += t == previous
                # It began after the broadcast came, and before the next one did.
                begun = entry.time - effort
                assert begun >= arrival(heard_entry) - 1e-15
                if t + 1 in broadcasts:
                    assert begun < arrival(broadcasts[t + 1][0]) + 1e-15
            np.testing.assert_allclose(message["scores"], own, atol=1e-10)
            previous = t
        # What the server read is the newest that had arrived, and what it sent is the sum of what it read.
        for t, (heard_entry, heard) in broadcasts.items():
            spoke = heard_entry.time - 20 * 80 / speeds["server"]
            newest = max(number for number in mine if arrival(scores[party, number][0]) <= spoke + 1e-15)
            assert heard.integer("sequence") == newest
            read_by_all = [scores["p1", t][1]["scores"]]
            for active in ("p0", "p2"):
                other = next(
                    m
                    for _, m in sent
                    if m.receiver == active and m.kind == "combined-scores" and m.integer("round") == t
                )
                read_by_all.append(scores[active, other.integer("sequence")][1]["scores"])
            np.testing.assert_allclose(heard["scores"], np.sum(read_by_all, axis=0), atol=1e-12)
    assert extra_steps > 0, "nobody stepped while the server was silent: the case shows nothing"


def test_exactly_q_local_steps_each_refresh_the_partys_own_block_alone() -> None:
    """FairVFL Algorithm 2 at a fixed pace, replayed: Q steps a round, whose scores are sent after the last of them."""
    step, local_steps = 0.7, 3
    options = {"step": step, "dual_step": 0.5, "local_steps": local_steps, "pace": "exact"}
    asked = {"alpha": MU, "options": options, "max_rounds": 8, "tol": 0.0, "runtime": {"keep_messages": True}}
    run = train(PROBLEM, EqualOpportunity(0.0), BLOCKS, (0, 2), **asked)
    messages = run.transcript.messages or []
    weights = {
        name: np.zeros(len(block) + (name == "p0")) for name, block in zip(("p0", "p1", "p2"), BLOCKS, strict=True)
    }
    own = dict.fromkeys(weights, np.zeros(80))
    for message in messages:
        if message.sender == "server" and not message.integer("last"):
            name = message.receiver
            block = BLOCKS[int(name[1])]
            columns = np.column_stack([PROBLEM.matrix[:, block], np.ones((80, int(name == "p0")))])
            passive = message.kind == "weighted-derivative"
            # A passive party steps once, with the server's ν.
            others = None if passive else message["scores"] - own[name]
            for _ in range(1 if passive else local_steps):
                nu = message["nu"] if passive else _nu(PROBLEM, others + own[name], message["multipliers"])
                gradient = columns.T @ nu
                gradient[: len(block)] += MU * weights[name][: len(block)]
                weights[name] = weights[name] - step * gradient
                own[name] = columns @ weights[name]
        elif message.kind == "scores":
            np.testing.assert_allclose(message["scores"], own[message.sender], atol=1e-12)
    np.testing.assert_allclose(pooled_weights(run, BLOCKS), _joined(weights), atol=1e-12)


def _joined(weights: dict[str, np.ndarray]) -> np.ndarray:
    """Everybody's weights in the order of the pooled columns, then the intercept, which the first party has."""
    found = np.zeros(5)
    for name, block in zip(("p0", "p1", "p2"), BLOCKS, strict=True):
        found[block] = weights[name][: len(block)]
    found[4] = weights["p0"][-1]
    return found


@pytest.mark.parametrize("everywhere", [False, True])
def test_stochastic_fedbcd_is_that_of_its_paper(everywhere: bool) -> None:
    """FedBCD-p, from its description: rows drawn for a round, Q steps on them with the others' scores of its start."""
    step, local_steps, batch, rounds, rows = 0.4, 3, 24, 5, 80
    options = {"step": step, "local_steps": local_steps, "batch_size": batch}
    options |= {"local_steps_at": "all" if everywhere else "active"}
    run = train(PROBLEM, None, BLOCKS, (0, 2), solver="fedbcd", alpha=MU, options=options, max_rounds=rounds, tol=0.0)
    ones = np.ones((rows, 1))
    columns = {f"p{k}": np.hstack([PROBLEM.matrix[:, block], ones[:, : k == 0]]) for k, block in enumerate(BLOCKS)}
    weights = {name: np.zeros(matrix.shape[1]) for name, matrix in columns.items()}
    for turn in range(1, rounds + 1):
        drawn = np.random.default_rng([0, turn]).choice(rows, batch, replace=False)
        scores = {name: columns[name] @ weights[name] for name in columns}
        start = sum(scores.values())
        for name, matrix in columns.items():
            own = weights[name]
            for _ in range(local_steps if everywhere or name != "p1" else 1):
                # Who has labels knows how its own step moves the scores; who has none keeps the derivatives.
                at = start if name == "p1" else start - scores[name] + matrix @ own
                y = PROBLEM.labels[drawn]
                gradient = matrix[drawn].T @ (-y * expit(-y * at[drawn])) / batch
                gradient[: len(BLOCKS[int(name[1])])] += MU * own[: len(BLOCKS[int(name[1])])]
                own = own - step * gradient
            weights[name] = own
    np.testing.assert_allclose(pooled_weights(run, BLOCKS), _joined(weights), atol=1e-12)
    # The certificate is of all rows: the gradient of the mean loss at these weights.
    total = sum(columns[name] @ weights[name] for name in columns)
    slope = -PROBLEM.labels * expit(-PROBLEM.labels * total) / rows
    norms = []
    for name, matrix in columns.items():
        gradient = matrix.T @ slope
        gradient[: len(BLOCKS[int(name[1])])] += MU * weights[name][: len(BLOCKS[int(name[1])])]
        norms.append(gradient)
    assert run.certificate.stationarity == pytest.approx(np.linalg.norm(np.concatenate(norms)), rel=1e-6)


# -- (h) bytes


@given(
    rows=st.integers(8, 30),
    active=st.sets(st.integers(0, 2), min_size=1),
    rounds=st.integers(1, 6),
    groups=st.sampled_from(["ab", "abc"]),
    step=st.sampled_from([0.1, "auto"]),
)
def test_bytes_are_the_arithmetic_sizes(rows: int, active: set[int], rounds: int, groups: str, step: Any) -> None:
    problem = small(rows=rows, groups=groups)
    constraint = EqualOpportunity(0.05)
    options = {"step": step, "local_steps": 2}
    run = train(problem, constraint, BLOCKS, sorted(active), options=options, max_rounds=rounds, tol=0.0)
    constraints = 1 if groups == "ab" else 3
    up, passive_down, active_down = 8 * rows + 32, 8 * rows + 24, 8 * rows + 32 + 16 * constraints
    down = (3 - len(active)) * passive_down + len(active) * active_down
    start = 3 * up + (3 * 8 if step == "auto" else 0)
    total = start + rounds * (down + 3 * up) + down + 3 * 8
    assert run.transcript.total_bytes == total
    assert sum(entry.nbytes for entry in run.transcript) == total
    expected = [start + t * (down + 3 * up) for t in range(rounds + 1)]
    assert list(run.history["bytes"]) == expected
    for place in range(3):
        link = run.transcript.by_link()["nbytes"]
        down_link = active_down if place in active else passive_down
        assert link["server", f"p{place}"] == (rounds + 1) * down_link


# -- (i) divergence


@pytest.mark.parametrize("step", [1e3, 1e8, 1e160, 1e300])
@pytest.mark.parametrize("pace", ["exact", "until-server-speaks"])
def test_an_absurd_step_is_a_divergence_that_names_the_party(step: float, pace: str) -> None:
    options = {"step": step, "pace": pace, "local_steps": 2}
    with pytest.raises(DivergenceError, match=r"p\d.*smaller step"):
        train(PROBLEM, EqualOpportunity(0.01), BLOCKS, alpha=MU, options=options, max_rounds=2000, tol=0.0)


def test_an_absurd_dual_step_is_a_divergence() -> None:
    options = {"step": 0.1, "dual_step": 1e300}
    with pytest.raises(DivergenceError, match="step"):
        train(PROBLEM, EqualOpportunity(0.0), BLOCKS, alpha=MU, options=options, max_rounds=200, tol=0.0)


# -- (j) the certificate


def _check_certificate(run: VerticalRun, reference: Reference) -> None:
    weights, multipliers = pooled_weights(run, BLOCKS), run.multipliers
    excess = reference.excess(weights)
    told = run.certificate
    assert told.stationarity == pytest.approx(np.linalg.norm(reference.gradient(weights, multipliers)), rel=1e-9)
    assert told.violation == pytest.approx(max(0.0, excess.max()), abs=1e-12)
    finite = np.isfinite(excess)
    assert told.complementarity == pytest.approx(np.abs(multipliers[finite] * excess[finite]).max(), abs=1e-12)
    assert told.objective == pytest.approx(reference.objective(weights), rel=1e-12)


@pytest.mark.parametrize(("constraint", "rows"), LIMITS.values(), ids=LIMITS)
@pytest.mark.parametrize("rounds", [1, 20])
def test_the_certificate_is_true_wherever_the_run_stops(
    constraint: Constraint, rows: list[ReferenceRow], rounds: int
) -> None:
    options = {"step": 0.4, "dual_step": 0.5, "local_steps": 2}
    run = train(PROBLEM, constraint, BLOCKS, (0, 2), alpha=MU, options=options, max_rounds=rounds, tol=0.0)
    _check_certificate(run, Reference(PROBLEM, rows, MU))
    assert (run.certificate.rounds, run.certificate.converged) == (rounds, False)


@given(
    slow=st.floats(1, 1e4),
    latency=st.floats(0, 1e-5),
    rounds=st.integers(1, 6),
    slow_party=st.sampled_from(["p1", "p2"]),
)
def test_the_certificate_is_true_when_scores_are_under_way_at_the_end(
    slow: float, latency: float, rounds: int, slow_party: str
) -> None:
    constraint, rows = LIMITS["equal opportunity"]
    options = {"step": 0.4, "dual_step": 0.5, "local_steps": 5, "pace": "until-server-speaks"}
    clock = VirtualClock(latency=latency, speeds={slow_party: 1e9 / slow})
    run = train(
        PROBLEM,
        constraint,
        BLOCKS,
        (0, 2),
        alpha=MU,
        options=options,
        max_rounds=rounds,
        tol=0.0,
        runtime={"clock": clock},
    )
    _check_certificate(run, Reference(PROBLEM, rows, MU))


def test_the_run_stops_when_the_gap_is_at_most_the_tolerance() -> None:
    run = train(PROBLEM, None, BLOCKS, solver="fedbcd", alpha=MU, options={"step": 1.0}, max_rounds=1000, tol=1e-4)
    gaps = run.history["gap"].to_numpy()
    assert run.certificate.converged
    assert gaps[-1] <= 1e-4
    assert (gaps[1:-1] > 1e-4).all()
    assert run.certificate.rounds == run.history["round"].iloc[-1] == len(gaps) - 1


# -- settings that make no sense


@pytest.mark.parametrize(
    "options",
    [
        {"step": 0.0},
        {"step": -1.0},
        {"step": float("nan")},
        {"step": float("inf")},
        {"step": "fast"},
        {"step": []},
        {"step": True},
        {"dual_step": 0.0},
        {"dual_step": float("nan")},
        {"dual_step": float("inf")},
        {"dual_step": "0.1"},
        {"damping": -0.1},
        {"damping": float("inf")},
        {"damping": None},
        {"local_steps": 0},
        {"local_steps": 1.5},
        {"local_steps": "7"},
        {"penalty": -1.0},
        {"penalty": float("inf")},
        {"penalty": None},
        {"optimiser": "newton"},
        {"pace": "slow"},
        {"schedule": "cosine"},
        {"momentum": 0.9},
    ],
    ids=str,
)
def test_an_option_that_makes_no_sense_is_refused_by_name(options: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=next(iter(options))):
        train(PROBLEM, None, BLOCKS, options=options, max_rounds=2)


def test_a_run_without_an_active_party_is_refused() -> None:
    with pytest.raises(InputError, match="no party is active"):
        train(PROBLEM, None, BLOCKS, active=())


def test_an_intercept_can_be_left_out() -> None:
    run = train(PROBLEM, None, BLOCKS, fit_intercept=False, alpha=MU, options={"step": 1.0}, max_rounds=2000, tol=1e-9)
    pooled = LogisticRegression(C=1 / (80 * MU), tol=1e-12, fit_intercept=False).fit(PROBLEM.matrix, PROBLEM.labels)
    np.testing.assert_allclose(pooled_weights(run, BLOCKS), pooled.coef_[0], atol=1e-5)


def test_neural_parties_learn_under_a_constraint() -> None:
    """From other scores than zero, with a model that is not linear, the objective falls and the violation too."""
    options = {"step": 0.1, "dual_step": 0.2, "local_steps": 2}
    run = train(
        PROBLEM,
        EqualOpportunity(0.01),
        BLOCKS,
        (0, 1),
        model="mlp",
        hidden=(8, 4),
        alpha=1e-3,
        options=options,
        max_rounds=300,
        tol=0.0,
        seed=2,
    )
    history = run.history
    assert history["objective"].iloc[-1] < history["objective"].iloc[0] - 0.1
    assert run.certificate.violation < 0.02
    assert run.certificate.stationarity < 0.05
