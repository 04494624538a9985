"""VFB² as roles: the interleaver's trajectory, the optimum, bounded delays, masks, faults, and stragglers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chisquare
from support.contracts import assert_goes_on_from_any_checkpoint
from support.faults import Faults, FaultyInProcess
from support.keys import with_fixed_keys
from support.problems import Problem, Reference, deal, parity_rows, pooled_weights, small

from evenhand.constraints import EqualOpportunity
from evenhand.errors import DivergenceError, InputError, ProtocolError
from evenhand.privacy.fixed_point import decode
from evenhand.privacy.key_exchange import Session
from evenhand.privacy.masks import SECRET_WORDS, secret_masks
from evenhand.privacy.pairwise import PairwiseMasks
from evenhand.privacy.sum_trees import coalition_learns, two_trees
from evenhand.protocol.job import Job
from evenhand.protocol.messages import Message
from evenhand.protocol.roles import Role, Sends, Task
from evenhand.protocol.state import restore, snapshot
from evenhand.protocol.transcript import Transcript
from evenhand.runtime.inprocess import InProcess, VirtualClock
from evenhand.runtime.threads import Threads
from evenhand.training import run as running
from evenhand.training.vertical import VerticalRun
from evenhand.vertical.vfb2.aggregation import Aggregation
from evenhand.vertical.vfb2.blocks import BlockWork
from evenhand.vertical.vfb2.kernels import FRACTION_BITS, batch_theta, sigmoid
from evenhand.vertical.vfb2.messages import BEGIN, MASKED_SCORES, MASKED_TOTALS, SCORE_REQUEST, STALENESS, THETA
from evenhand.vertical.vfb2.party import VFB2Party
from evenhand.vertical.vfb2.plan import NORM_BITS
from evenhand.vertical.vfb2.staleness import Staleness
from evenhand_reproductions.in_memory import Holdings, train_vertical

PROBLEM = small(seed=3, rows=72, columns=6)
BLOCKS = [[4, 0], [1, 5], [3], [2]]
MU = 0.1
CLOCK = VirtualClock(latency=1e-6)
EXACT = ["vfb2-svrg", "vfb2-saga"]


def make_job(solver: str, options: dict[str, Any], **changes: Any) -> Job:
    return Job(solver=solver, options=options, **{"alpha": MU, "tol": 1e-8, "max_rounds": 800, **changes})


def train(
    job: Job,
    blocks: Sequence[Sequence[int]] = BLOCKS,
    active: Sequence[int] = (0, 2),
    problem: Problem = PROBLEM,
    **runtime: Any,
) -> VerticalRun:
    parties = deal(problem, blocks, active)
    return train_vertical(job, parties, problem.labels, problem.sensitive, **{"runtime": "messages", **runtime})


class OwnSecretOnly(Session):
    """Secrets without any that two parties share, to show what those are for."""

    def masks(self, purpose: str, members: Iterable[str]) -> PairwiseMasks:
        return PairwiseMasks(self.name, {})


def make_roles(
    job: Job,
    active: Sequence[int] = (0, 2),
    *,
    secret: bool = False,
    pairs: bool = False,
    blocks: Sequence[Sequence[int]] = BLOCKS,
) -> list[Role]:
    """With masks from keys that are agreed on anew, or from fixed secrets."""
    held = Holdings.of(job, deal(PROBLEM, blocks, active), PROBLEM.labels, PROBLEM.sensitive)
    if secret:
        held = with_fixed_keys(held, Session if pairs else OwnSecretOnly)
    server, roles = held.roles()
    return [server, *roles]


OPTIMUM = Reference(PROBLEM, [], MU).optimum()[0]


# -- the same as the other ways


@pytest.mark.parametrize("solver", ["vfb2-sgd", *EXACT, "afsvrg-vp"])
@pytest.mark.parametrize("regulariser", ["ridge", "bounded"])
def test_without_delays_the_trajectory_is_the_interleavers(solver: str, regulariser: str) -> None:
    options = {"batch_size": 1, "read_delay": 0, "message_delay": 0, "regulariser": regulariser}
    job = make_job(solver, options, max_rounds=6, tol=0.0)
    roles = train(job, active=(1,))
    interleaved = train(job, active=(1,), runtime="interleaved")
    np.testing.assert_allclose(roles.history["objective"], interleaved.history["objective"], rtol=1e-9)
    np.testing.assert_allclose(pooled_weights(roles, BLOCKS), pooled_weights(interleaved, BLOCKS), atol=1e-9)
    assert abs(pooled_weights(roles, BLOCKS)).max() > 0.01


@pytest.mark.parametrize("solver", EXACT)
def test_three_ways_end_at_the_optimum(solver: str) -> None:
    job = make_job(solver, {"batch_size": 4})
    for runtime in ("interleaved", "messages", "threads"):
        run = train(job, runtime=runtime)
        assert run.certificate.converged, runtime
        np.testing.assert_allclose(pooled_weights(run, BLOCKS), OPTIMUM, atol=1e-6, err_msg=runtime)


def test_constraints_are_met_where_parties_exchange_messages() -> None:
    rows = parity_rows(PROBLEM, [1], 0.02)
    weights, multipliers = Reference(PROBLEM, rows, MU).optimum()
    assert multipliers.max() > 0.01
    job = make_job("vfb2-svrg", {"batch_size": 8}, constraints=(EqualOpportunity(0.02),), max_rounds=3000, tol=1e-6)
    run = train(job)
    assert run.certificate.converged
    np.testing.assert_allclose(pooled_weights(run, BLOCKS), weights, atol=1e-4)
    np.testing.assert_allclose(run.multipliers, multipliers, atol=1e-4)


@pytest.mark.parametrize("blocks", [[[0, 1, 2, 3, 4, 5]], [[0, 1, 2], [3, 4, 5]], [[5], [0], [2], [1], [4], [3]]])
def test_any_number_of_parties(blocks: list[list[int]]) -> None:
    run = train(make_job("vfb2-saga", {"batch_size": 6}), blocks, active=(len(blocks) - 1,))
    np.testing.assert_allclose(pooled_weights(run, blocks), OPTIMUM, atol=1e-6)


def test_the_squared_loss_ends_at_least_squares() -> None:
    rng = np.random.default_rng(5)
    labels = PROBLEM.matrix @ rng.standard_normal(6) + rng.standard_normal(72)
    problem = Problem(PROBLEM.matrix, labels, PROBLEM.sensitive)
    run = train(make_job("vfb2-svrg", {"batch_size": 4}, loss="squared"), problem=problem)
    design = np.column_stack([PROBLEM.matrix, np.ones(72)])
    ridge = MU * np.diag([1.0] * 6 + [0.0])
    expected = np.linalg.solve(design.T @ design / 72 + ridge, design.T @ labels / 72)
    np.testing.assert_allclose(pooled_weights(run, BLOCKS), expected, atol=1e-6)


def test_only_active_parties_move_in_afsvrg_vp() -> None:
    run = train(make_job("afsvrg-vp", {"batch_size": 8}, max_rounds=20))
    for name, model in run.models.items():
        assert model.weights.any() == (name in ("p0", "p2"))


def test_a_run_may_begin_where_another_ended() -> None:
    job = make_job("vfb2-svrg", {"batch_size": 8})
    first = train(job)
    again = train(job, start=first.as_start())
    assert again.certificate.rounds == 0
    np.testing.assert_array_equal(pooled_weights(again, BLOCKS), pooled_weights(first, BLOCKS))


@pytest.mark.parametrize("solver", EXACT)
def test_the_interleaver_counts_the_messages_that_roles_send(solver: str) -> None:
    job = make_job(solver, {"batch_size": 5}, max_rounds=4, tol=0.0)
    counts = []
    for runtime in ("messages", "interleaved"):
        frame = train(job, runtime=runtime).transcript.frame()
        # Only the histogram of delays, which one loop need not send itself, is left out.
        frame = frame[frame["kind"] != STALENESS.kind]
        counts.append(frame.groupby(["sender", "receiver", "kind"])[["messages", "nbytes"]].sum())
    pd.testing.assert_frame_equal(*counts)


# -- delays


def times(low: float, high: float) -> st.SearchStrategy[float]:
    return st.floats(np.log10(low), np.log10(high)).map(lambda power: float(10.0**power))


@st.composite
def schedules(draw: st.DrawFn) -> dict[str, Any]:
    parties = draw(st.integers(1, 5))
    names = [f"p{place}" for place in range(parties)]
    active = draw(st.sets(st.integers(0, parties - 1), min_size=1))
    columns = draw(st.permutations(range(6)))
    cuts = sorted(draw(st.sets(st.integers(1, 5), min_size=parties - 1, max_size=parties - 1)))
    blocks = [list(columns[start:stop]) for start, stop in zip([0, *cuts], [*cuts, 6], strict=True)]
    clock = VirtualClock(
        latency=draw(times(1e-9, 1e-5)),
        latencies=draw(st.dictionaries(st.sampled_from([*names, "server"]), times(1e-9, 1e-4))),
        speeds=draw(st.dictionaries(st.sampled_from(names), times(1e5, 1e10))),
        bandwidth=draw(st.sampled_from([np.inf, 1e7])),
    )
    options = {
        "batch_size": draw(st.sampled_from([5, 12, 30])),
        "read_delay": draw(st.integers(0, 4)),
        "message_delay": draw(st.integers(0, 4)),
    }
    return {"blocks": blocks, "active": tuple(sorted(active)), "clock": clock, "options": options}


@settings(max_examples=12)
@given(schedules(), st.sampled_from(EXACT))
def test_any_schedule_converges_and_nothing_is_staler_than_allowed(schedule: dict[str, Any], solver: str) -> None:
    job = make_job(solver, schedule["options"], tol=1e-5)
    run = train(job, schedule["blocks"], schedule["active"], clock=schedule["clock"])
    assert run.certificate.converged
    np.testing.assert_allclose(pooled_weights(run, schedule["blocks"]), OPTIMUM, atol=1e-3)
    staleness = run.statistics["staleness"]
    assert len(staleness) == schedule["options"]["read_delay"] + schedule["options"]["message_delay"] + 1
    # Every party updates by every step: the others heard ϑ of each, and the dominator has its own.
    others = len(schedule["blocks"]) - 1
    if others:
        steps = sum(entry.kind == THETA.kind for entry in run.transcript) / others
        assert sum(staleness) == steps * len(schedule["blocks"])


@pytest.mark.parametrize("runtime", ["messages", "threads"])
@pytest.mark.parametrize("solver", ["vfb2-sgd", *EXACT])
def test_delays_mean_the_same_in_all_three_ways(solver: str, runtime: str) -> None:
    """With no delay allowed nothing is stale, however many dominators there are: one step follows upon the other."""
    options = {"batch_size": 5, "read_delay": 0, "message_delay": 0}
    job = make_job(solver, options, max_rounds=4, tol=0.0)
    interleaved = train(job, active=(0, 2, 3), runtime="interleaved")
    other = train(job, active=(0, 2, 3), runtime=runtime)
    assert other.statistics == interleaved.statistics
    assert len(other.statistics["staleness"]) == 1
    np.testing.assert_allclose(other.history["objective"], interleaved.history["objective"], rtol=1e-9)


@pytest.mark.parametrize("runtime", ["interleaved", "messages", "threads"])
def test_no_update_is_staler_than_both_delays_together(runtime: str) -> None:
    job = make_job("vfb2-svrg", {"batch_size": 2, "read_delay": 2, "message_delay": 1}, max_rounds=6, tol=0.0)
    staleness = train(job, active=(0, 1, 2), runtime=runtime).statistics["staleness"]
    assert len(staleness) == 4
    assert sum(staleness[1:]) > 0


@settings(max_examples=40)
@given(st.integers(0, 4), st.data())
def test_steps_are_scored_and_updated_by_in_order_and_none_too_early(limit: int, data: st.DataObject) -> None:
    """Requests and ϑ in any order, updates under way for any time."""
    staleness = Staleness(limit)
    unasked = list(range(20))
    scored: list[int] = []
    released: list[int] = []
    unheard: list[int] = []
    under_way: list[int] = []
    made: set[int] = set()
    while len(made) < 20:
        choices = [name for name, some in (("ask", unasked), ("hear", unheard), ("made", under_way)) if some]
        chosen = data.draw(st.sampled_from(choices))
        if chosen == "ask":
            staleness.ask(unasked.pop(data.draw(st.integers(0, len(unasked) - 1))))
        elif chosen == "hear":
            staleness.hear(unheard.pop(data.draw(st.integers(0, len(unheard) - 1))), np.zeros(1))
        else:
            made.add(done := under_way.pop(data.draw(st.integers(0, len(under_way) - 1))))
            staleness.made(done)
        new = [step for step, _ in staleness.release()]
        released += new
        under_way += new
        for step in staleness.to_score():
            assert all(earlier in made for earlier in range(step - limit))
            scored.append(step)
            unheard.append(step)
    assert scored == released == list(range(20))
    assert staleness.staleness.sum() == 20


def test_theta_of_a_step_that_was_not_scored_or_was_answered_is_refused() -> None:
    staleness = Staleness(1)
    for step in (0, 1, 3):
        staleness.ask(step)
    assert staleness.to_score() == [0, 1]
    staleness.hear(1, np.zeros(1))
    assert staleness.release() == []
    for step in (1, 3):
        with pytest.raises(ProtocolError, match="not expected"):
            staleness.hear(step, np.zeros(1))
    staleness.hear(0, np.zeros(1))
    assert [step for step, _ in staleness.release()] == [0, 1]
    assert staleness.updating


# -- what a straggler costs


@pytest.mark.parametrize("slowness", [1.0, 1.4])
@pytest.mark.parametrize(("latency", "gain"), [(0.0, 1.25), (4e-6, 1.8)])
def test_the_asynchronous_pace_costs_what_the_slowest_party_computes(
    slowness: float, latency: float, gain: float
) -> None:
    """No schedule can be faster, for every party has its part in every step; the synchronous one adds all the rest.

    In a step of 16 rows and 40 columns scoring takes 6.4 microseconds, and as much the update.
    """
    problem = small(seed=3, rows=240, columns=160)
    blocks = [list(range(first, first + 40)) for first in range(0, 160, 40)]
    clock = VirtualClock(speed=1e8, latency=latency, speeds={"p3": 1e8 / slowness, "server": 1e12})
    seconds = {}
    for pace in ("asynchronous", "synchronous"):
        options = {"batch_size": 16, "pace": pace, "step": 0.01, "growth": False}
        job = make_job("vfb2-svrg", options, max_rounds=8, tol=0.0)
        server, parties = Holdings.of(job, deal(problem, blocks, (0, 1)), problem.labels).roles()
        runtime = InProcess([server, *parties], clock)
        runtime.run()
        seconds[pace] = runtime.time
        busiest = max(clock.computing(party.name, party.effort) for party in parties)
        if pace == "asynchronous":
            assert busiest < runtime.time < 1.2 * busiest
    assert gain < seconds["synchronous"] / seconds["asynchronous"] < gain + 0.6


def test_effort_is_in_proportion_to_the_columns() -> None:
    job = make_job("vfb2-svrg", {"batch_size": 8}, max_rounds=4, tol=0.0)
    roles = make_roles(job, active=(0,))
    InProcess(roles).run()
    effort = {role.name: role.effort for role in roles}
    assert effort["p1"] == pytest.approx(2.0 * effort["p2"])
    assert effort["p2"] == effort["p3"]
    assert effort["server"] == 5 * len(PROBLEM.labels)


@pytest.mark.parametrize("solver", EXACT)
def test_with_synchronous_pace_nothing_is_stale(solver: str) -> None:
    run = train(make_job(solver, {"batch_size": 4, "pace": "synchronous"}), clock=CLOCK)
    np.testing.assert_allclose(pooled_weights(run, BLOCKS), OPTIMUM, atol=1e-6)
    staleness = run.statistics["staleness"]
    assert len(staleness) == 1
    assert staleness[0] > 0


# -- faults


@pytest.mark.parametrize("secret", [False, True])
@pytest.mark.parametrize("solver", EXACT)
@pytest.mark.parametrize("pace", ["asynchronous", "synchronous"])
def test_crashes_at_any_message_change_nothing(solver: str, pace: str, secret: bool) -> None:
    job = make_job(solver, {"batch_size": 8, "pace": pace}, max_rounds=5, tol=0.0)
    calm, shaken = make_roles(job, secret=secret), make_roles(job, secret=secret)
    InProcess(calm, CLOCK).run()
    crashes = {"p0": range(2, 400, 7), "p1": range(0, 400, 3), "p3": range(1, 400, 5), "server": range(1, 90, 4)}
    FaultyInProcess(shaken, Faults(crashes=crashes, save_every=4), CLOCK).run()
    for one, other in zip(calm, shaken, strict=True):
        left, right = one.snapshot(), other.snapshot()
        assert left.keys() == right.keys()
        for name, value in left.items():
            np.testing.assert_array_equal(value, right[name], err_msg=f"{one.name}: {name}")


@settings(max_examples=4)
@given(st.integers(0, 10**6), st.sampled_from(EXACT))
def test_under_any_faults_it_ends_at_the_optimum(seed: int, solver: str) -> None:
    rng = np.random.default_rng(seed)
    crashes = {name: rng.integers(0, 500, 10).tolist() for name in ("server", "p0", "p1", "p2", "p3")}
    faults = Faults(drop=0.1, duplicate=0.1, delay=2e-6, timeout=1e-5, crashes=crashes, save_every=5, seed=seed)
    roles = make_roles(make_job(solver, {"batch_size": 12}, tol=1e-7))
    FaultyInProcess(roles, faults, CLOCK).run()
    found = np.zeros(7)
    for role, block in zip(roles[1:], BLOCKS, strict=True):
        found[block] = role.model.weights[: len(block)]  # type: ignore[attr-defined]
    found[-1] = roles[1].model.weights[-1]  # type: ignore[attr-defined]
    np.testing.assert_allclose(found, OPTIMUM, atol=1e-5)


# -- what messages carry


class Watched:
    """Notes, at every scoring, the party's true partial scores of the rows."""

    def __init__(self, role: VFB2Party) -> None:
        self.scores: list[np.ndarray] = []
        inner, block = role.score, role._block

        def score(step: int, sums: Any) -> float:
            self.scores.append(block.scores()[role._steps.batches[step]])
            return inner(step, sums)

        role.score = score  # type: ignore[method-assign]


def test_no_message_carries_an_unmasked_partial_score() -> None:
    job = make_job("vfb2-svrg", {"batch_size": 6, "growth": False}, max_rounds=3, tol=0.0)
    roles = make_roles(job)
    watched = [Watched(role) for role in roles[1:]]  # type: ignore[arg-type]
    runtime = InProcess(roles, CLOCK)
    runtime.transcript.messages = []
    runtime.run()
    true = np.concatenate([scores for watch in watched for scores in watch.scores]).ravel()
    true = np.unique(np.abs(true[np.abs(true) > 1e-6]))
    assert len(true) > 300
    sums = 0
    for message in runtime.transcript.messages:
        for array in message.body.values():
            if array.ndim != 1:
                continue
            values = array.astype(np.float64) if array.dtype.kind == "f" else decode(array.view(np.uint64), 44)
            nearest = np.abs(np.abs(values)[:, None] - true[None, :]).min(axis=1)
            assert nearest.min() > 1e-11, message.kind
        if message.kind == MASKED_SCORES.kind:
            sums += 1
            # Uniform over ±2¹⁹ in this fixed point, where the scores themselves are below ten.
            assert np.abs(decode(message["sum"].view(np.uint64), 44)).max() > 1000.0
    assert sums > 100


def test_masks_are_the_partys_own_secret_and_the_model_does_not_know() -> None:
    """Who knows the job's seed knows all masks that follow from it: outside simulation they must not."""
    job = make_job("vfb2-svrg", {"batch_size": 6, "growth": False}, max_rounds=3, tol=0.0)
    sent, weights = [], []
    for secret in (False, True):
        roles = make_roles(job, secret=secret)
        transcript = Transcript(keep_messages=True)
        InProcess(roles, CLOCK, transcript).run()
        masked = (MASKED_SCORES.kind, MASKED_TOTALS.kind)
        sent.append(np.concatenate([one["sum"] for one in transcript.messages or () if one.kind in masked]))
        weights.append([role.model.weights for role in roles[1:]])  # type: ignore[attr-defined]
    assert not (sent[0] == sent[1]).any()
    for one, other in zip(*weights, strict=True):
        np.testing.assert_array_equal(one, other)


def test_masks_agreed_on_keep_from_a_coalition_what_the_trees_do_not() -> None:
    """Of six parties p0, p1 and p2 hear p4's masked values in one tree, and its masks with p2's in the other."""
    blocks = [[4], [0], [1], [5], [3], [2]]
    assert frozenset({4}) in coalition_learns(*two_trees(6, 0), (0, 1, 2))
    gained = []
    for pairs in (False, True):
        job = make_job("vfb2-svrg", {"batch_size": 6}, max_rounds=1, tol=0.0)
        transcript = Transcript(keep_messages=True)
        InProcess(make_roles(job, (0,), secret=True, pairs=pairs, blocks=blocks), CLOCK, transcript).run()
        seen = {}
        for one in transcript.messages or ():
            if one.kind == MASKED_TOTALS.kind:
                # The first are those of squared norms.
                seen.setdefault((one.sender, one.receiver, one.integer("tree")), one["sum"].view(np.uint64))
        gained.append(seen["p4", "p1", 0] - (seen["p4", "p0", 1] - seen["p2", "p4", 1]))
    np.testing.assert_allclose(decode(gained[0], NORM_BITS), PROBLEM.matrix[:, 3] ** 2, atol=1e-6)
    assert np.abs(decode(gained[1], NORM_BITS)).min() > PROBLEM.matrix.max() ** 2
    assert chisquare(np.bincount(gained[1].view(np.uint8) >> 4, minlength=16)).pvalue > 1e-6


def test_masks_agreed_on_change_no_model_and_no_label_is_used_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    job = make_job("vfb2-svrg", {"batch_size": 6, "growth": False}, max_rounds=3, tol=0.0)
    weights, used = [], []
    plain = PairwiseMasks.mask

    def noted(self: PairwiseMasks, label: str, size: int) -> Any:
        if self.seeds:
            used.append((self.name, label))
        return plain(self, label, size)

    monkeypatch.setattr(PairwiseMasks, "mask", noted)
    for pairs in (False, True):
        roles = make_roles(job, secret=True, pairs=pairs)
        InProcess(roles, CLOCK).run()
        weights.append([role.model.weights.tobytes() for role in roles[1:]])  # type: ignore[attr-defined]
    assert weights[0] == weights[1]
    assert len(used) == len(set(used)) > 100


def test_masks_agreed_on_go_on_from_a_checkpoint() -> None:
    job = make_job("vfb2-svrg", {"batch_size": 24}, max_rounds=2, tol=0.0)

    def make() -> dict[str, Role]:
        return {role.name: role for role in make_roles(job, secret=True, pairs=True)}

    assert_goes_on_from_any_checkpoint(make, CLOCK)


def test_a_secrets_masks_never_repeat_and_are_told_by_nothing_else() -> None:
    secrets = np.arange(2 * SECRET_WORDS, dtype=np.uint64).reshape(2, -1)
    first = [secret_masks(secrets[0], number, 500) for number in (1, 2)]
    other = secret_masks(secrets[1], 1, 500)
    assert len(np.unique(np.concatenate([*first, other]))) == 1500
    np.testing.assert_array_equal(first[0], secret_masks(secrets[0], 1, 500))
    bits = np.unpackbits(first[0].view(np.uint8))
    assert abs(bits.mean() - 0.5) < 0.01


@pytest.mark.parametrize("solver", EXACT)
def test_sagas_updates_never_overlap_and_those_of_svrg_may(solver: str) -> None:
    """As threads would have it: another ϑ comes while the update by the one before is under way."""
    job = make_job(solver, {"batch_size": 8, "read_delay": 3, "growth": False}, max_rounds=1, tol=0.0)
    transcript = Transcript(keep_messages=True)
    InProcess(make_roles(job, active=(0,)), CLOCK, transcript).run()
    heard = [message for message in transcript.messages or () if message.receiver == "p1"]
    begins = [message.kind for message in heard].index(BEGIN.kind) + 1
    during = {kind: [one for one in heard[begins:] if one.kind == kind] for kind in (SCORE_REQUEST.kind, THETA.kind)}

    party = next(role for role in make_roles(job, active=(0,)) if role.name == "p1")
    assert isinstance(party, VFB2Party)
    for message in [*heard[:begins], *during[SCORE_REQUEST.kind][:3]]:
        party.receive(message)
    before = party._block.weights.copy()
    first = party.begin(during[THETA.kind][0])
    assert updates_of(first) == [0]
    assert isinstance(first, BlockWork)
    second = party.begin(during[THETA.kind][1])
    third = party.begin(during[THETA.kind][2])
    assert updates_of(second) + updates_of(third) == ([] if solver == "vfb2-saga" else [1, 2])
    assert np.array_equal(party._block.weights, before), "an update is work outside the role's lock"
    first.run()
    assert not np.array_equal(party._block.weights, before)
    assert updates_of(party.finish(first)) == ([1, 2] if solver == "vfb2-saga" else [])


def updates_of(outcome: Task | Sends) -> list[int]:
    return [step for step, _ in outcome.updates] if isinstance(outcome, BlockWork) else []


@pytest.mark.parametrize("active", [(0,), (0, 2), (0, 1, 3)])
@pytest.mark.parametrize("workers", [None, 1, 2])
def test_threads_have_as_many_workers_as_asked_for(
    active: tuple[int, ...], workers: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[int] = []

    class Counted(Threads):
        def run(self) -> None:
            made.append(self.workers)
            super().run()

    monkeypatch.setattr(running, "Threads", Counted)
    job = make_job("vfb2-svrg", {"batch_size": 8}, max_rounds=2)
    train(job, active=active, runtime="threads", workers=workers)
    expected = len(active) if workers is None else workers
    assert made == [expected], "as many as there are active parties, unless told otherwise"


def test_only_threads_have_workers() -> None:
    with pytest.raises(InputError, match="the runtime is 'messages'"):
        train(make_job("vfb2-svrg", {}), runtime="messages", workers=2)


def test_masks_cancel() -> None:
    """What goes up the trees of a step adds up, at the dominator, to the sum of all partial scores."""
    rng = np.random.default_rng(0)
    scores = rng.integers(-(2**40), 2**40, size=(5, 3)).astype(np.int64).view(np.uint64)
    masks = rng.integers(0, 2**64, size=(5, 3), dtype=np.uint64)
    parties = [Aggregation(place, 5, (1, 3)) for place in range(5)]
    for dominator, root in enumerate((1, 3)):
        waiting = [(place, tree, place, (scores + masks, masks)[tree][place]) for place in range(5) for tree in (0, 1)]
        rng.shuffle(waiting)
        totals = []
        while waiting:
            place, tree, sender, values = waiting.pop()
            passed = parties[place].add(7, dominator, tree, sender, values)
            if passed is None:
                continue
            parent, total = passed
            if parent >= 0:
                waiting.append((parent, tree, place, total))
            else:
                totals.append((place, total))
        assert [place for place, _ in totals] == [root]
        np.testing.assert_array_equal(totals[0][1], scores.sum(axis=0, dtype=np.uint64))
        assert not any(party.expects(7) for party in parties)


@settings(max_examples=40)
@given(st.data())
def test_a_sum_is_taken_once_and_only_of_a_child(data: st.DataObject) -> None:
    """Whatever has come before it, and if its own tree is done while the other is not."""
    place, dominator = data.draw(st.integers(0, 6)), data.draw(st.integers(0, 1))
    roots = (1, 4)
    expected = [(tree, one) for tree in (0, 1) for one in contributors(place, roots[dominator], tree)]
    sums, values = Aggregation(place, 7, roots), np.ones(1, dtype=np.uint64)
    done: list[tuple[int, int]] = []
    for tree, sender in data.draw(st.permutations(expected)):
        for wrong in [
            *done,
            *((tree, other) for other in range(7) if (tree, other) not in expected),
            (2, place),
            (-1, 0),
        ]:
            before = snapshot(sums)
            with pytest.raises(ProtocolError, match="not expected"):
                sums.add(5, dominator, wrong[0], wrong[1], values)
            assert str(snapshot(sums)) == str(before)
        sums.add(5, dominator, tree, sender, values)
        done.append((tree, sender))
        assert sums.expects(5) == (len(done) < len(expected))
        again = Aggregation(place, 7, roots)
        restore(again, snapshot(sums))
        sums = again


def contributors(place: int, root: int, tree: int) -> list[int]:
    return [place, *map(int, two_trees(7, root)[tree].children(place))]


def test_theta_follows_from_the_sum_as_messages_have_it() -> None:
    """One compiled call takes the sum out of fixed point, to the bit as `decode` does; unused places have no ϑ."""
    party = make_roles(make_job("vfb2-svrg", {"batch_size": 4}))[1]
    rng = np.random.default_rng(2)
    sums = rng.integers(-(2**47), 2**47, 3).view(np.uint64)
    rows, thetas = np.array([5, -1, 9]), np.full(3, np.nan)
    inputs = party._theta_inputs  # type: ignore[attr-defined]
    batch_theta(inputs, rows, sums, thetas)
    margins = inputs.labels[rows] * decode(sums, FRACTION_BITS)
    expected = -inputs.labels[rows] * [sigmoid(-margin) for margin in margins]
    np.testing.assert_array_equal(thetas, np.where(rows >= 0, expected, 0.0))


# -- refusals


def test_what_does_not_fit_the_protocol_is_refused() -> None:
    """A party that is in the middle of an epoch."""
    job = make_job("vfb2-svrg", {"batch_size": 6, "growth": False}, max_rounds=2, tol=0.0)
    roles = make_roles(job)
    seen: list[Message] = []
    party = roles[2]
    inner = party.receive

    def receive(message: Message) -> Any:
        sends = inner(message)
        seen.append(message)
        if sum(one.kind == THETA.kind for one in seen) == 3:
            raise StopIteration
        return sends

    party.receive = receive  # type: ignore[method-assign]
    with pytest.raises(StopIteration):
        InProcess(roles, CLOCK).run()
    kinds = {kind: [one for one in seen if one.kind == kind] for kind in {one.kind for one in seen}}
    request, theta = kinds[SCORE_REQUEST.kind][-1], kinds[THETA.kind][-1]
    # Again, from the wrong sender, or for another step or round: each is refused.
    wrong = [messages[-1] for kind, messages in kinds.items() if kind != BEGIN.kind]
    wrong += [BEGIN.message("server", "p1", round=2, keep=0)]
    other = {"p0": "p2", "p2": "p0"}[theta.sender]
    wrong += [Message(other, "p1", one.kind, one.body) for one in (request, theta)]
    wrong += [Message(request.sender, "p1", request.kind, {**request.body, "request": np.array(99)})]
    wrong += [Message(request.sender, "p1", request.kind, {**request.body, "rows": request["rows"][::-1].copy()})]
    before = party.snapshot()
    for message in wrong:
        with pytest.raises(ProtocolError):
            inner(message)
    for name, value in party.snapshot().items():
        np.testing.assert_array_equal(value, before[name], err_msg=name)


def test_steps_that_are_too_long_are_told() -> None:
    with pytest.raises(DivergenceError, match="choose a smaller step"):
        train(make_job("vfb2-svrg", {"batch_size": 4, "step": 1e6}, loss="squared"))


def test_rows_too_large_to_be_masked_are_told() -> None:
    problem = Problem(PROBLEM.matrix * 1e6, PROBLEM.labels, PROBLEM.sensitive)
    with pytest.raises(DivergenceError, match="scale the columns"):
        train(make_job("vfb2-svrg", {}), problem=problem)
