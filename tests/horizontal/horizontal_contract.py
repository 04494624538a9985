"""What every horizontal solver owes, as one suite: a solver passes it by being listed in `HORIZONTAL`.

A subclass gives the fixture `case`: a solver and a scope that it takes. What a solver is asked for follows from what it
declares; nothing here knows its messages, and of its options only those in `SUITABLE`.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, fields
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from support.certificates import from_outside, held_rows, part
from support.clients import as_reference, deal_rows, unequal
from support.contracts import (
    Make,
    Reborn,
    assert_goes_on_from_any_checkpoint,
    assert_malformed_is_refused,
    assert_same_state,
    assert_transcript_is_complete,
)
from support.faults import Faults, FaultyInProcess
from support.problems import Problem, small

from evenhand.constraints.kinds import (
    Constraint,
    DemographicParity,
    EqualizedOdds,
    EqualOpportunity,
    GroupAgainstOverall,
    LossParity,
    NeymanPearson,
)
from evenhand.constraints.scope import ConstraintScope, Scope
from evenhand.errors import InputError, ProtocolError
from evenhand.horizontal.averaging.options import AveragingOptions
from evenhand.horizontal.problem import ClientData, ClientRows, HorizontalServerData
from evenhand.horizontal.roles import HorizontalServer
from evenhand.privacy import key_exchange
from evenhand.privacy.key_exchange import agree_here
from evenhand.protocol.job import Job, Protection
from evenhand.protocol.messages import Message
from evenhand.protocol.roles import Report, Role
from evenhand.protocol.solver import Solver
from evenhand.protocol.terms import HorizontalTerms
from evenhand.protocol.transcript import Entry
from evenhand.runtime.folder import RunFolder
from evenhand.runtime.inprocess import InProcess, VirtualClock
from evenhand.solvers.registry import HORIZONTAL
from evenhand.solvers.roles import client, clients_server
from evenhand.training.horizontal import HorizontalRun, build_roles
from evenhand_reproductions.in_memory import horizontal_terms, train_clients

PROBLEM = small(seed=3, rows=90)
PARTS = unequal(PROBLEM, 3)
CLIENTS = {f"c{place}": part(PROBLEM, rows) for place, rows in enumerate(PARTS)}
AT_SERVER = small(seed=8, rows=24)
CLOCK = VirtualClock(latency=3e-7, speeds={"c0": 2e9, "c1": 3e7, "c2": 1e8}, latencies={"c2": 2e-6})
ALPHA = 0.03

SUITABLE: dict[str, dict[str, Any]] = {
    "prox-al": {"penalty": 30.0, "subproblem": 0.01, "rho": 0.1},
    "trees": {"rows_a_leaf": 5, "depth": 2},
}
"""Options with which a solver gets somewhere on this problem; one that is not named is run with its defaults."""
KINDS: list[Constraint] = [
    EqualOpportunity(0.02),
    EqualizedOdds(0.05, "error"),
    LossParity(0.01),
    DemographicParity(0.1),
    GroupAgainstOverall(0.02),
    NeymanPearson(0.4),
]


@dataclass(frozen=True)
class Case:
    """A solver, where its constraints hold, and how answers are protected."""

    solver: str
    scope: Scope = "global"
    protection: Protection = "none"

    @property
    def declared(self) -> Solver[Any, Any]:
        return HORIZONTAL[self.solver]

    def has_option(self, name: str) -> bool:
        return name in [field.name for field in fields(self.declared.options)]

    @property
    def few_rounds(self) -> int:
        """As few as anything comes of."""
        return 6 if self.solver == "trees" else 2

    def is_linear(self) -> None:
        """What is found from outside is found of linear models."""
        if "linear" not in self.declared.models:
            pytest.skip(f"{self.solver} trains no linear model")

    def job(self, **changes: Any) -> Job:
        """A few rounds; of a perceptron where the solver trains one."""
        averaging = issubclass(self.declared.options, AveragingOptions)
        options = {"batch_size": 16, "step": 0.1, "local_epochs": 1} if averaging else SUITABLE.get(self.solver, {})
        constraints: tuple[Constraint, ...] = ()
        if self.declared.takes_constraints and not self.declared.default_constraints:
            constraints = (LossParity(0.05),)
        settings: dict[str, Any] = {
            "constraints": constraints,
            "max_rounds": 4 if self.declared.fixed_rounds else 12,
            "model": "mlp" if "mlp" in self.declared.models else "linear",
            "hidden": (3, 2),
            "tol": 1e-6,
        }
        options = {**options, **changes.pop("options", {})}
        settings |= {"options": options, "protection": self.protection}
        return Job(solver=self.solver, **{**settings, **changes})

    def terms(self, job: Job, **more: Any) -> HorizontalTerms:
        clients, scope = deal_rows(PROBLEM, PARTS), ConstraintScope(self.scope)
        return horizontal_terms(job, clients, scope=scope, **more)

    def maker(self, job: Job) -> Make:
        """Makes all roles anew each time, on the same terms."""
        clients = {client.name: ClientData(client) for client in deal_rows(PROBLEM, PARTS)}
        terms = self.terms(job)

        def make() -> dict[str, Role]:
            server, others = build_roles(terms, HorizontalServerData(), clients)
            return {role.name: role for role in [server, *others]}

        return make

    def train(self, job: Job, clients: Sequence[ClientRows] | None = None, **settings: Any) -> HorizontalRun:
        clients = deal_rows(PROBLEM, PARTS) if clients is None else clients
        return train_clients(job, clients, **{"clock": CLOCK, "scope": ConstraintScope(self.scope), **settings})


def assert_same_run(one: HorizontalRun, other: HorizontalRun) -> None:
    """Bit for bit."""
    assert one.weights.tobytes() == other.weights.tobytes()
    assert one.multipliers.tobytes() == other.multipliers.tobytes()
    assert one.certificate == other.certificate
    assert trained(one)[0] == trained(other)[0]
    pd.testing.assert_frame_equal(one.history, other.history, check_exact=True)


def trained(run: HorizontalRun) -> tuple[list[Entry], pd.DataFrame]:
    """Messages and history of training alone, without the exchange of keys before it."""
    before = [one for one in run.transcript if key_exchange.VOCABULARY.has(one.kind)]
    entries = [one for one in run.transcript if not key_exchange.VOCABULARY.has(one.kind)]
    return entries, run.history.assign(bytes=run.history["bytes"] - sum(one.nbytes for one in before))


def assert_ends_like(server: Role, run: HorizontalRun) -> None:
    """Bit for bit."""
    assert isinstance(server, HorizontalServer)
    assert server.outcome().weights.tobytes() == run.weights.tobytes()
    assert server.certificate == run.certificate


def assert_certificate_is_true(
    case: Case,
    run: HorizontalRun,
    constraints: Sequence[Constraint],
    at_server: Problem | None = None,
    limits: dict[str, float] | None = None,
) -> None:
    """What the run says of itself is what anybody finds who has the model, the multipliers and all rows."""
    held = held_rows(constraints, PROBLEM, CLIENTS, at_server, case.scope, limits)
    # Solvers of programs leave the intercept out, and take the largest entry of the gradient for its length.
    averaging = case.declared.fixed_rounds
    regulariser = ALPHA * np.append(np.ones(4), 1.0 if averaging else 0.0)
    assert len(run.row_names) == len(held)
    counted = case.has_option("exact_rates")
    true = from_outside(as_reference(run), run.multipliers, PROBLEM, held, regulariser, counted)
    told = run.certificate
    near = {"rel": 1e-4, "abs": 1e-6} if averaging else {"rel": 1e-8, "abs": 1e-12}
    length = np.linalg.norm(true.gradient, 2 if averaging else np.inf)
    assert told.stationarity == pytest.approx(length, **near)
    assert told.violation == pytest.approx(true.violation, **near)
    assert told.complementarity == pytest.approx(true.complementarity, **near)
    assert told.objective == pytest.approx(true.objective, rel=1e-6 if averaging else 1e-12)
    assert told.rounds == run.history["round"].iloc[-1]


class HorizontalContract:
    """Every test here is run for every solver in every scope that it takes."""

    @pytest.mark.portable
    def test_two_runs_with_one_seed_are_the_same_run(self, case: Case) -> None:
        assert_same_run(case.train(case.job()), case.train(case.job()))

    def test_another_seed_is_another_run_where_anything_is_drawn(self, case: Case) -> None:
        options = {"participation": 0.4} if case.has_option("participation") else {}
        one, other = (case.train(case.job(seed=seed, options=options)) for seed in (1, 2))
        assert np.array_equal(one.weights, other.weights) == (not options)

    @pytest.mark.portable
    def test_a_role_needs_nothing_but_the_terms_and_what_its_owner_has(self, case: Case) -> None:
        """Each role is made on its own, from terms that came as JSON; nobody else's rows exist at that moment."""
        job = case.job()
        text = json.dumps(case.terms(job).to_plain())

        def alone(place: int) -> Role:
            (rows,) = deal_rows(PROBLEM, PARTS)[place : place + 1]
            terms = HorizontalTerms.from_plain(json.loads(text))
            return client(terms, rows.name, ClientData(rows, session=sessions.get(rows.name)))

        terms = HorizontalTerms.from_plain(json.loads(text))
        sessions = agree_here(terms.names, terms.digest) if terms.only_sums else {}
        server = clients_server(terms, HorizontalServerData())
        reports: list[Report] = []
        apart = InProcess([server, *map(alone, range(3))], CLOCK, on_report=reports.append)
        apart.run()
        together = case.train(job)
        assert_ends_like(server, together)
        entries, history = trained(together)
        assert apart.transcript.entries == entries
        pd.testing.assert_frame_equal(pd.DataFrame(reports), history, check_exact=True)

    @pytest.mark.portable
    def test_a_role_restored_after_every_message_runs_as_if_it_had_not_been(self, case: Case, tmp_path: Path) -> None:
        job = case.job(max_rounds=3 if case.declared.fixed_rounds else 8)
        whole, reports = case.train(job), list[Report]()
        reborn = Reborn(case.maker(job), CLOCK, tmp_path, reports.append)
        reborn.run()
        entries, history = trained(whole)
        assert reborn.transcript.entries == entries
        pd.testing.assert_frame_equal(pd.DataFrame(reports), history, check_exact=True)
        assert_ends_like(reborn.mailboxes["server"].role, whole)

    @pytest.mark.portable
    def test_a_run_taken_up_from_a_checkpoint_ends_the_same(self, case: Case) -> None:
        assert_goes_on_from_any_checkpoint(case.maker(case.job()), CLOCK)

    @pytest.mark.portable
    def test_a_run_that_was_killed_goes_on_in_its_folder(self, case: Case, tmp_path: Path) -> None:
        class Killed(Exception):
            pass

        seen = count(1)

        def kill(_: Report) -> None:
            if next(seen) == 2:
                raise Killed

        job = case.job()
        folder = RunFolder.create(tmp_path / "run", {})
        with pytest.raises(Killed):
            case.train(job, folder=folder, checkpoint_seconds=0.0, on_round=kill)
        assert_same_run(case.train(job, folder=folder, checkpoint_seconds=0.0), case.train(job))

    @pytest.mark.portable
    def test_faults_change_nothing(self, case: Case) -> None:
        crashes = {"c1": [1, 3], "server": [5]}
        faults = Faults(drop=0.2, duplicate=0.2, delay=1e-6, timeout=1e-5, crashes=crashes, seed=4)
        runtime = FaultyInProcess(list(case.maker(case.job())().values()), faults, CLOCK)
        runtime.run()
        assert_ends_like(runtime.mailboxes["server"].role, case.train(case.job()))

    @pytest.mark.portable
    def test_the_order_of_clients_changes_nothing(self, case: Case) -> None:
        options = {"participation": 0.7} if case.has_option("participation") else {}
        job, clients = case.job(options=options), deal_rows(PROBLEM, PARTS)
        assert_same_run(case.train(job, clients), case.train(job, clients[::-1]))

    @pytest.mark.parametrize("rounds", [2, 5, 60])
    def test_the_certificate_is_true(self, case: Case, rounds: int) -> None:
        case.is_linear()
        job = case.job(model="linear", max_rounds=rounds, alpha=ALPHA)
        run = case.train(job)
        assert_certificate_is_true(case, run, run.terms.job.constraints)
        assert run.certificate.rounds <= rounds
        if case.declared.fixed_rounds:
            assert run.certificate.rounds == rounds
            # They train all their rounds, and promise the constraint alone.
            assert run.certificate.converged == (run.certificate.violation <= job.tol)

    @pytest.mark.filterwarnings("ignore::evenhand.errors.ExactRatesWarning")
    @pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.kind)
    def test_the_certificate_is_true_of_every_constraint(self, case: Case, kind: Constraint) -> None:
        if not case.declared.takes_constraints:
            pytest.skip(f"{case.solver} takes no constraints")
        case.is_linear()
        job = case.job(model="linear", max_rounds=25, alpha=ALPHA, constraints=(kind,))
        lacking = ConstraintScope(case.scope, None, "refuse")
        assert_certificate_is_true(case, case.train(job, scope=lacking), [kind])

    def test_the_certificate_is_true_where_the_server_has_rows_and_clients_limits(self, case: Case) -> None:
        if not case.declared.takes_server_rows or case.scope == "local":
            pytest.skip("no rows of the server's own here")
        limits = {"server": 0.07} | ({"c1": 0.2} if case.scope == "both" else {})
        rows = ClientRows("rows of the server", AT_SERVER.matrix, AT_SERVER.labels, AT_SERVER.sensitive)
        job = case.job(alpha=ALPHA, max_rounds=30, constraints=(LossParity(0.05),))
        for server in (None, rows):
            run = case.train(job, scope=ConstraintScope(case.scope, limits), server=server)
            held = None if server is None else AT_SERVER
            assert_certificate_is_true(case, run, job.constraints, held, limits)

    def test_a_malformed_message_is_refused_and_changes_nothing(self, case: Case) -> None:
        job = case.job(max_rounds=case.few_rounds)
        told = case.train(job, keep_messages=True).transcript.messages or []
        roles = case.maker(job)()
        roles["server"].start()
        assert_malformed_is_refused(roles, told)

    def test_an_answer_out_of_turn_is_refused_and_changes_nothing(self, case: Case) -> None:
        job = case.job()
        told = case.train(job, keep_messages=True).transcript.messages or []
        sent = [one for one in told if one.receiver == "server" and not key_exchange.VOCABULARY.has(one.kind)]
        server = case.maker(job)()["server"]
        server.start()
        late, first = sent[-1], next(message for message in sent if message.sender == "c0")
        server.receive(first)
        before = server.snapshot()
        another = {name: first[name] + 1 for name in ("round", "outer", "inner") if name in first.body}
        other_round = Message(first.sender, "server", first.kind, {**first.body, **another})
        for wrong in (late, first, other_round):
            with pytest.raises(ProtocolError):
                server.receive(wrong)
            assert_same_state(server.snapshot(), before)

    def test_the_transcript_has_every_message_once(self, case: Case) -> None:
        assert_transcript_is_complete(case.maker(case.job()), CLOCK)

    def test_history_tells_every_constraint_row_with_bytes_and_time_that_grow(self, case: Case) -> None:
        run = case.train(case.job())
        history = run.history
        assert history["round"].is_monotonic_increasing
        assert history["round"].iloc[-1] == run.certificate.rounds
        if case.declared.fixed_rounds:
            assert list(history["round"]) == [0, 1, 2, 3, 4]
        assert history["bytes"].is_monotonic_increasing
        assert history["time"].is_monotonic_increasing
        assert history["bytes"].iloc[-1] <= run.transcript.total_bytes
        assert history[["objective", "violation", "bytes", "time"]].notna().all(axis=None)
        assert len(run.row_names) == run.multipliers.shape[1]
        last = history.iloc[-1]
        for place, name in enumerate(run.row_names):
            assert history[f"value[{name}]"].notna().all()
            for side, column in enumerate((f"upper multiplier[{name}]", f"lower multiplier[{name}]")):
                # Those that only a client knows are not in the history.
                assert column not in history or last[column] == run.multipliers[side, place]

    def test_training_lowers_the_loss(self, case: Case) -> None:
        options = {"step": 0.05} if case.has_option("step") else {}
        rounds = 10 if case.declared.fixed_rounds else 100
        run = case.train(case.job(model="linear", max_rounds=rounds, options=options))
        assert run.history["objective"].iloc[-1] < run.history["objective"].iloc[0] - 0.02

    def test_an_unknown_option_is_refused(self, case: Case) -> None:
        with pytest.raises(InputError, match="no option 'no_such_option'"):
            case.train(case.job(options={"no_such_option": 1}))

    def test_what_the_solver_would_not_heed_is_refused(self, case: Case) -> None:
        declared, job = case.declared, case.job()
        refused: list[dict[str, Any]] = []
        if not declared.takes_noise:
            refused.append({"update_noise": object()})
        if not declared.takes_server_rows or case.scope == "local":
            rows = ClientRows("rows of the server", AT_SERVER.matrix, AT_SERVER.labels, AT_SERVER.sensitive)
            refused.append({"server": rows})
        if "mlp" not in declared.models:
            refused.append({"model": "mlp"})
        refused += [{"scope": ConstraintScope(one)} for one in ("local", "both") if one not in declared.scopes]
        assert refused or declared.takes_noise
        for settings in refused:
            with pytest.raises(InputError):
                case.train(job, **settings)
