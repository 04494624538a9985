"""What every vertical solver owes, as one suite: a solver passes it by being listed in `VERTICAL`.

A subclass gives the fixture `solver`, a name. Nothing here knows a solver's messages or options, apart from the
settings in `SUITABLE` with which a small problem converges.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from support.contracts import (
    OnDemand,
    Reborn,
    assert_goes_on_from_any_checkpoint,
    assert_malformed_is_refused,
    assert_transcript_is_complete,
)
from support.keys import fixed_sessions, with_fixed_keys
from support.problems import Reference, deal, parity_rows, pooled_weights, small

from evenhand.constraints import EqualOpportunity
from evenhand.constraints.labelled_rows import LabelledRows
from evenhand.errors import InputError
from evenhand.protocol.job import Job
from evenhand.protocol.roles import SERVER, Report, Role
from evenhand.protocol.terms import Part, VerticalTerms
from evenhand.runtime.inprocess import InProcess, VirtualClock
from evenhand.solvers.registry import VERTICAL
from evenhand.solvers.roles import party, server, vertical_terms
from evenhand.training.vertical import VerticalRun
from evenhand.vertical.problem import Party, PartyData, ServerData, Start
from evenhand.vertical.server import Server
from evenhand.vertical.vfb2.options import METHODS
from evenhand_reproductions.in_memory import Holdings, train_vertical

SUITABLE: dict[str, dict[str, Any]] = {
    "trees": {"patience": 10},
    "learners": {"patience": 10},
    "fairvfl": {"step": 0.5, "dual_step": 0.5, "damping": 0.0},
    "fedbcd": {"step": 0.5},
    **{name: {"batch_size": 8} for name in METHODS},
}
"""Options with which a solver converges on these problems; a solver that is not named is run with its defaults."""

EPSILON, MU = 0.02, 0.05
PROBLEM = small(seed=1, rows=80)
BLOCKS = [[2, 0], [1], [3]]
CLOCK = VirtualClock(latency=3e-7, speeds={"p0": 2e9, "p1": 3e7, "p2": 1e8})


def make_job(solver: str, **changes: Any) -> Job:
    constraints = (EqualOpportunity(EPSILON),) if VERTICAL[solver].takes_constraints else ()
    settings: dict[str, Any] = {"alpha": MU, "max_rounds": 4000, "tol": 1e-8, "options": SUITABLE.get(solver, {})}
    # The solver itself; protection around it is tested in `test_protected.py`.
    settings["protection"] = "none"
    return Job(solver=solver, constraints=constraints, **{**settings, **changes})


def make_roles(job: Job) -> Mapping[str, Role]:
    held = Holdings.of(job, deal(PROBLEM, BLOCKS, (0, 2)), PROBLEM.labels, PROBLEM.sensitive)
    # Some callers build each role in a process of its own.
    held = with_fixed_keys(held) if VERTICAL[job.solver].agrees_on_keys else held
    parties = {name: partial(party, held.terms, name, own) for name, own in held.parties.items()}
    return OnDemand({SERVER: partial(server, held.terms, held.server), **parties})


def server_alone(terms: str, labels: np.ndarray, sensitive: pd.DataFrame, multipliers: np.ndarray | None) -> Server:
    """The server's role where nobody else is: from the terms as they were received, and what it holds."""
    return server(VerticalTerms.from_plain(json.loads(terms)), ServerData(labels, sensitive, multipliers))


def party_alone(
    terms: str, name: str, matrix: np.ndarray, weights: np.ndarray | None, known: LabelledRows | None = None
) -> Party:
    """The same of a party; a passive one is given nothing but its own columns."""
    agreed = VerticalTerms.from_plain(json.loads(terms))
    session = fixed_sessions(agreed.names)[name] if VERTICAL[agreed.job.solver].agrees_on_keys else None
    return party(agreed, name, PartyData(matrix, weights, known, session=session))


def build_apart(job: Job, start: Start | None) -> list[Role]:
    """Every role made with everybody else's data absent."""
    parts: dict[str, Part] = {"p0": "active", "p1": "passive", "p2": "active"}
    terms = json.dumps(vertical_terms(job, parts, 80, {"group": ("a", "b")}, warm=start is not None).to_plain())

    def labels() -> tuple[np.ndarray, pd.DataFrame]:
        return PROBLEM.labels.copy(), PROBLEM.sensitive.copy()

    roles: list[Role] = [server_alone(terms, *labels(), None if start is None else start.multipliers.copy())]
    for (name, part), block in zip(parts.items(), BLOCKS, strict=True):
        weights = None if start is None else start.weights[name].copy()
        known = LabelledRows(*labels()) if part == "active" else None
        roles.append(party_alone(terms, name, PROBLEM.matrix[:, block].copy(), weights, known))
    return roles


def reference_for(solver: str) -> Reference:
    rows = parity_rows(PROBLEM, [1], EPSILON) if VERTICAL[solver].takes_constraints else []
    return Reference(PROBLEM, rows, MU)


def train(
    job: Job, blocks: Sequence[Sequence[int]] = BLOCKS, active: Sequence[int] = (0, 2), **runtime: Any
) -> VerticalRun:
    parties = deal(PROBLEM, blocks, active)
    return train_vertical(job, parties, PROBLEM.labels, PROBLEM.sensitive, **{"clock": CLOCK, **runtime})


def require_exact(solver: str) -> None:
    if not VERTICAL[solver].exact:
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

    @pytest.mark.portable
    def test_two_runs_with_one_seed_are_the_same_run(self, solver: str) -> None:
        job = make_job(solver, max_rounds=6)
        assert_same_run(train(job), train(job))

    @pytest.mark.portable
    @pytest.mark.parametrize("interleaved", [False, True])
    @pytest.mark.parametrize("model", ["linear", "mlp"])
    def test_the_order_of_parties_changes_nothing(self, solver: str, model: str, interleaved: bool) -> None:
        """Bit for bit, the first active party aside: it has the intercept."""
        if model not in VERTICAL[solver].models:
            pytest.skip(f"{solver} takes no {model} parties")
        if interleaved and VERTICAL[solver].compiled is None:
            pytest.skip(f"{solver} does not run interleaved")
        job = make_job(solver, model=model, hidden=(3, 2), max_rounds=5, tol=0.0)
        runtime = {"runtime": "interleaved"} if interleaved else {"runtime": "messages", "clock": CLOCK}
        parties = deal(PROBLEM, [[2], [0], [1], [3]], (1, 3))
        one, *others = (
            train_vertical(job, [parties[place] for place in order], PROBLEM.labels, PROBLEM.sensitive, **runtime)
            for order in ([0, 1, 2, 3], [1, 2, 0, 3], [2, 0, 1, 3], [1, 3, 2, 0])
        )
        for other in others:
            assert_same_run(one, other)

    def test_neural_parties_begin_where_the_seed_says_or_are_refused(self, solver: str) -> None:
        if "mlp" not in VERTICAL[solver].models:
            with pytest.raises(InputError, match="not 'mlp'"):
                dict(make_roles(make_job(solver, model="mlp")))
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

    @pytest.mark.portable
    @pytest.mark.parametrize("warm", [False, True])
    @pytest.mark.parametrize("model", ["linear", "mlp", "trees"])
    def test_roles_that_are_built_apart_run_as_roles_that_are_built_together(
        self, solver: str, model: str, warm: bool
    ) -> None:
        if model not in VERTICAL[solver].models:
            pytest.skip(f"{solver} takes no {model} parties")
        if warm and model == "trees":
            pytest.skip("trees begin anew")
        job = make_job(solver, model=model, hidden=(3, 2), max_rounds=5, tol=0.0)
        start = train(job).as_start() if warm else None
        together, reports = train(job, start=start), list[Report]()
        apart = build_apart(job, start)
        runtime = InProcess(apart, CLOCK, on_report=reports.append)
        runtime.run()
        weights = {role.name: role.model.weights for role in apart if isinstance(role, Party)}
        for name, one in together.models.items():
            assert weights[name].tobytes() == one.weights.tobytes()
        first = apart[0]
        assert isinstance(first, Server)
        assert first.multipliers.tobytes() == together.multipliers.tobytes()
        assert first.certificate == together.certificate
        assert runtime.transcript.entries == together.transcript.entries
        pd.testing.assert_frame_equal(pd.DataFrame(reports), together.history, check_exact=True)

    @pytest.mark.portable
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

    @pytest.mark.portable
    def test_a_run_taken_up_from_a_checkpoint_ends_the_same(self, solver: str) -> None:
        job = make_job(solver, max_rounds=4, tol=0.0)
        assert_goes_on_from_any_checkpoint(lambda: make_roles(job), CLOCK)

    @pytest.mark.portable
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
        if "linear" not in VERTICAL[solver].models:
            pytest.skip(f"{solver} trains no linear parties; its own tests say what its certificate is worth")
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
        # Subspace ends earlier where no round gains anything.
        assert history["round"].iloc[-1] == (run.certificate.rounds if solver == "subspace" else 5)
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
