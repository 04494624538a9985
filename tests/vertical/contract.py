"""What every vertical solver owes, as one suite: a solver passes it by being listed in `SOLVERS`.

A subclass gives the fixture `solver`, a name. Nothing here knows a solver's messages or options, apart from the
settings in `SUITABLE` with which a small problem converges.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from support.contracts import (
    Reborn,
    assert_goes_on_from_any_checkpoint,
    assert_malformed_is_refused,
    assert_transcript_is_complete,
)
from support.problems import Reference, deal, parity_rows, pooled_weights, small

from evenhand.constraints import Constraint, EqualOpportunity, bind
from evenhand.constraints.lagrangian import Lagrangian
from evenhand.errors import InputError
from evenhand.protocol.job import Job
from evenhand.protocol.roles import Report, Role
from evenhand.runtime.clock import VirtualClock
from evenhand.training.vertical import VerticalRun, train_vertical
from evenhand.vertical.server import Server
from evenhand.vertical.solvers import SOLVERS, build_roles

SUITABLE: dict[str, dict[str, Any]] = {
    "fairvfl": {"step": 0.5, "dual_step": 0.5, "damping": 0.0},
    "fedbcd": {"step": 0.5},
    **{name: {"batch_size": 8} for name in ("vfb2-sgd", "vfb2-svrg", "vfb2-saga", "afsvrg-vp")},
}
"""Options with which a solver converges on these problems; a solver that is not named is run with its defaults."""

EPSILON, MU = 0.02, 0.05
PROBLEM = small(seed=1, rows=80)
BLOCKS = [[2, 0], [1], [3]]
CLOCK = VirtualClock(latency=3e-7, speeds={"p0": 2e9, "p1": 3e7, "p2": 1e8})


def make_job(solver: str, **changes: Any) -> Job:
    constraints = (EqualOpportunity(EPSILON),) if SOLVERS[solver].takes_constraints else ()
    settings: dict[str, Any] = {"alpha": MU, "max_rounds": 4000, "tol": 1e-8, "options": SUITABLE.get(solver, {})}
    return Job(solver=solver, constraints=constraints, **{**settings, **changes})


@cache
def bound(constraints: tuple[Constraint, ...]) -> Lagrangian:
    return Lagrangian(PROBLEM.labels, bind(constraints, PROBLEM.labels, PROBLEM.sensitive))


def make_roles(job: Job) -> dict[str, Role]:
    server, parties = build_roles(deal(PROBLEM, BLOCKS, (0, 2)), bound(job.constraints), job)
    return {role.name: role for role in [server, *parties]}


def reference_for(solver: str) -> Reference:
    rows = parity_rows(PROBLEM, [1], EPSILON) if SOLVERS[solver].takes_constraints else []
    return Reference(PROBLEM, rows, MU)


def train(
    job: Job, blocks: Sequence[Sequence[int]] = BLOCKS, active: Sequence[int] = (0, 2), **runtime: Any
) -> VerticalRun:
    parties = deal(PROBLEM, blocks, active)
    return train_vertical(job, parties, PROBLEM.labels, PROBLEM.sensitive, **{"clock": CLOCK, **runtime})


def require_exact(solver: str) -> None:
    if not SOLVERS[solver].exact:
        pytest.skip(f"{solver} does not end at the optimum")


def assert_same_run(one: VerticalRun, other: VerticalRun) -> None:
    """Bit for bit."""
    for name, model in one.models.items():
        assert model.weights.tobytes() == other.models[name].weights.tobytes()
    assert one.multipliers.tobytes() == other.multipliers.tobytes()
    assert one.certificate == other.certificate
    assert one.transcript.entries == other.transcript.entries
    pd.testing.assert_frame_equal(one.history, other.history, check_exact=True)


class SolverContract:
    """Every test here is run for every solver."""

    def test_two_runs_with_one_seed_are_the_same_run(self, solver: str) -> None:
        job = make_job(solver, max_rounds=6)
        assert_same_run(train(job), train(job))

    def test_neural_parties_begin_where_the_seed_says_or_are_refused(self, solver: str) -> None:
        if "mlp" not in SOLVERS[solver].models:
            with pytest.raises(InputError, match="not 'mlp' ones"):
                make_roles(make_job(solver, model="mlp"))
            return
        first, again, other = (
            make_roles(make_job(solver, model="mlp", hidden=(3, 2), seed=seed)) for seed in (4, 4, 5)
        )
        weights = [
            np.concatenate([role.model.weights for name, role in roles.items() if name != "server"])  # type: ignore[attr-defined]
            for roles in (first, again, other)
        ]
        np.testing.assert_array_equal(weights[0], weights[1])
        assert not np.array_equal(weights[0], weights[2])

    def test_a_role_restored_after_every_message_runs_as_if_it_had_not_been(self, solver: str, tmp_path: Path) -> None:
        job = make_job(solver, max_rounds=4, tol=0.0)
        whole, reports = train(job), list[Report]()
        reborn = Reborn(lambda: make_roles(job), CLOCK, tmp_path, reports.append, to_disk_every=10)
        reborn.run()
        assert reborn.transcript.entries == whole.transcript.entries
        pd.testing.assert_frame_equal(pd.DataFrame(reports), whole.history, check_exact=True)
        server = reborn.mailboxes["server"].role
        assert isinstance(server, Server)
        assert server.multipliers.tobytes() == whole.multipliers.tobytes()
        assert server.certificate == whole.certificate

    def test_a_run_taken_up_from_a_checkpoint_ends_the_same(self, solver: str) -> None:
        job = make_job(solver, max_rounds=4, tol=0.0)
        assert_goes_on_from_any_checkpoint(lambda: make_roles(job), CLOCK)

    @pytest.mark.parametrize(
        ("blocks", "active"),
        [([[0, 1, 2, 3]], (0,)), ([[3], [0, 1, 2]], (1,)), ([[1], [3], [0], [2]], (0, 1, 2, 3)), (BLOCKS, (0,))],
    )
    def test_any_partition_ends_at_the_pooled_optimum(
        self, solver: str, blocks: list[list[int]], active: tuple[int, ...]
    ) -> None:
        require_exact(solver)
        weights, multipliers = reference_for(solver).optimum()
        run = train(make_job(solver), blocks, active, clock=None)
        assert run.certificate.converged
        np.testing.assert_allclose(pooled_weights(run, blocks), weights, atol=1e-5)
        np.testing.assert_allclose(run.multipliers, multipliers, atol=1e-5)

    @pytest.mark.parametrize("rounds", [1, 3, 4000])
    def test_the_certificate_is_true(self, solver: str, rounds: int) -> None:
        if rounds == 4000:
            require_exact(solver)
        run, reference = train(make_job(solver, max_rounds=rounds)), reference_for(solver)
        weights, told = pooled_weights(run, BLOCKS), run.certificate
        excess = reference.excess(weights)
        gradient = reference.gradient(weights, run.multipliers)
        assert told.stationarity == pytest.approx(np.linalg.norm(gradient), rel=1e-6, abs=1e-12)
        assert told.violation == pytest.approx(np.max(excess, initial=0.0), abs=1e-12)
        assert told.complementarity == pytest.approx(np.abs(run.multipliers * excess).max(initial=0.0), abs=1e-12)
        assert told.objective == pytest.approx(reference.objective(weights), rel=1e-12)
        assert told.rounds <= rounds
        assert told.converged or rounds < 4000
        assert told.rounds == run.history["round"].iloc[-1]

    def test_a_malformed_message_is_refused_and_changes_nothing(self, solver: str) -> None:
        job = make_job(solver, max_rounds=2, tol=0.0)
        messages = train(job, keep_messages=True).transcript.messages or []
        assert_malformed_is_refused(make_roles(job), messages)

    def test_the_transcript_has_every_message_once(self, solver: str) -> None:
        job = make_job(solver, max_rounds=3)
        assert_transcript_is_complete(lambda: make_roles(job), CLOCK)

    def test_history_has_a_row_a_round_with_bytes_and_time_that_grow(self, solver: str) -> None:
        run = train(make_job(solver, max_rounds=5, tol=0.0))
        history = run.history
        assert list(history["round"]) == sorted(set(history["round"]))
        assert history["round"].iloc[-1] == 5
        assert history["bytes"].is_monotonic_increasing
        assert history["time"].is_monotonic_increasing
        assert history["bytes"].iloc[-1] <= run.transcript.total_bytes
        assert history[["objective", "violation", "bytes", "time"]].notna().all(axis=None)
        for name in run.row_names:
            for column in ("value", "exact", "upper multiplier", "lower multiplier"):
                assert history[f"{column}[{name}]"].notna().all()

    def test_an_unknown_option_is_refused(self, solver: str) -> None:
        with pytest.raises(InputError, match="no option 'no_such_option'"):
            train(make_job(solver, options={"no_such_option": 1}))

    def test_a_run_needs_an_active_party(self, solver: str) -> None:
        with pytest.raises(InputError, match="no party is active"):
            train(make_job(solver), active=())
