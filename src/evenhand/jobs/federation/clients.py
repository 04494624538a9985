"""Horizontal jobs between organisations: a client has its own table, the server has none.

Both take the same steps as in one process (`training/horizontal_steps.py`), so the models are the same. At the end
all participants have the model, and the server has the counts from which quality is computed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from evenhand.constraints.thresholds import Cut
from evenhand.data.tables.encoding import PartyEncoder
from evenhand.data.tables.party_tables import require_unchanged
from evenhand.data.tables.reference import Reference
from evenhand.errors import JobError, ProtocolError, RunError
from evenhand.horizontal.problem import ClientData, Once
from evenhand.jobs.cuts import run_cut, stated_cut
from evenhand.jobs.federation.checkpointing import (
    CheckpointManager,
    messages_of,
    new_attempt,
    own_secret,
    training_runner,
)
from evenhand.jobs.federation.counting import count_decisions, measured_quality, no_groups, scores_of
from evenhand.jobs.federation.files import ClientsJob, PartyFile, identity_folder
from evenhand.jobs.federation.round_count import RoundCount
from evenhand.jobs.horizontal.rows import ClientTable, EncodedRows, ServerSide, feature_columns
from evenhand.jobs.horizontal.runs import check_epsilon, clients_disclosure, stated_privacy
from evenhand.jobs.ledger import Ledger, data_name, run_name
from evenhand.jobs.quality import QualityRows, quality
from evenhand.jobs.results import later_shortfalls, run_result
from evenhand.jobs.tables import Labels, NumericTargets, parts_of
from evenhand.protocol.agree import Summary
from evenhand.protocol.measuring import MeasureClient, MeasureServer
from evenhand.protocol.roles import SERVER
from evenhand.protocol.state import State
from evenhand.protocol.terms import HorizontalTerms, Terms
from evenhand.protocol.transcript import Transcript
from evenhand.runtime.checkpointfiles import state_bytes, state_from
from evenhand.runtime.folder import RunFolder
from evenhand.runtime.site import Program
from evenhand.solvers.agreeing import KnownBefore, draft_terms
from evenhand.training.horizontal_steps import client_steps, server_steps
from evenhand.training.run import certified
from evenhand.training.shared_model import model_state, scorer
from evenhand.training.together import Steps, alone


@dataclass(frozen=True, eq=False)
class ClientEnd:
    """What a client has at the end of the run, for its own run folder."""

    terms: HorizontalTerms
    encoder: PartyEncoder
    state: State
    labels: Labels | NumericTargets
    name: str
    reference: Reference
    quality: Mapping[str, Any] = field(default_factory=dict)
    """Quality of the model on the client's own rows, if the client keeps its counts at home."""

    def write(self, folder: RunFolder) -> dict[str, Any]:
        """Write the shared model; return the content of the client's `result.json`."""
        folder.write_model("encoder", self.encoder.to_state())
        folder.write_client(self.name, "reference", self.reference.to_state())
        folder.write_model("weights", self.state)
        told = {"terms": self.terms.digest, "labels": self.labels._asdict(), **self.quality}
        if isinstance(self.labels, NumericTargets):
            return told
        return told | {"cut": stated_cut(run_cut(self.terms))}


class _OwnTable(ClientTable):
    """A client's table at its own site; clients agree on labels and on an encoder."""

    labels: Labels | NumericTargets
    encoder: PartyEncoder

    def steps(self, own: PartyFile, secret: bytes, once: Once | None) -> Steps[ClientData]:
        """Read the table, agree with others, and encode; refuse columns that the client's policy does not allow."""
        data = self._job.data
        self.look()
        self.open()
        columns = feature_columns({self.name: self.frame}, data)
        own.policy.check_columns([*columns, *data.beside])
        self.take(columns)
        self.hold_out()
        self.labels = yield from self.agree_on_labels()
        agreeing = self.agree_on_encoder() if data.encoder is None else self.agree_on_given_encoder()
        self.encoder = yield from agreeing
        training, update_noise = self.encode(self.encoder, self.labels), self._job.to_protection()
        # A resumed run has the same secret: it repeats its noise and spends nothing.
        noise = self._job.to_noise()
        run, ledger, table = run_name(secret), Ledger(self._base), data_name(own.party, self._base)
        if update_noise is None:
            least = own.policy.least_summed
            return ClientData(training, once=once, summed=lambda names: ledger.add_sum(table, run, names, least))
        # Nothing with noise has left yet.
        if noise["epsilon"] is not None:
            ledger.spend(table, run, noise["epsilon"], noise["delta"], own.policy.limits)
        return ClientData(training, update_noise=update_noise, secret=secret, once=once)


def client_program(
    job: ClientsJob,
    own: PartyFile,
    base: Path,
    on_terms: Callable[[Terms], None] | None = None,
    checkpoints: CheckpointManager | None = None,
    secret: bytes | None = None,
    run: str = "",
) -> Program[ClientEnd]:
    """Return a client's program; see `party_program` for the other parameters.

    Parameters
    ----------
    secret
        The client's own secret, for its noise; None takes the one from `checkpoints`.
    """
    once = None if checkpoints is None else checkpoints.answered_once()
    count = RoundCount(own, base, secret or own_secret(checkpoints))
    steps = _client(job, own, base, on_terms, count, once)
    attempt = partial(new_attempt, own.party.name, identity_folder(own.identity, base), checkpoints, run)
    return alone(steps, count.counted(training_runner(checkpoints)), attempt)


def _client(
    job: ClientsJob,
    own: PartyFile,
    base: Path,
    on_terms: Callable[[Terms], None] | None,
    count: RoundCount,
    once: Once | None,
) -> Steps[ClientEnd]:
    name = own.party.name
    if own.party.role != "client" or name not in job.parts:
        raise JobError(
            f"the clients of the job are {', '.join(job.parts)}; the file of {name} has the role {own.party.role!r}"
        )
    table = _OwnTable(own.party, name, f"client {name!r}", job, base)
    terms = yield from client_steps(
        name,
        _draft(job),
        KnownBefore(job.data.groups),
        table.steps(own, count.secret, once),
        policy=count.policy,
        on_terms=on_terms,
    )
    rows = table.rows
    assert rows is not None
    # No noise covers exact counts: a client that protects its updates keeps them at home. Numbers are not counted.
    at_home = keeps_counts(terms)
    cut = run_cut(terms)
    measuring = MeasureClient(name, None if at_home else lambda model: _counts(rows, model, cut))
    yield measuring
    require_unchanged({table.owner: table.seen})
    assert measuring.model is not None
    found: dict[str, Any] = {}
    if isinstance(table.labels, NumericTargets):
        found = _own_quality(job, rows, table.labels, measuring.model)
    elif at_home:
        found = measured_quality(job, table.labels, {name: _counts(rows, measuring.model, cut)}, cut)
    return ClientEnd(terms, table.encoder, _state(measuring.model), table.labels, table.name, table.reference, found)


def keeps_counts(terms: HorizontalTerms) -> bool:
    """Return whether quality is measured at each client alone: counts have no noise, or targets are numbers."""
    return terms.protected or not terms.job.loss_function.classifies


def _own_quality(job: ClientsJob, rows: EncodedRows, names: NumericTargets, model: bytes) -> dict[str, Any]:
    """Return the quality of predictions of numbers on a client's own rows."""
    scores = scorer(_state(model))(rows.features)
    everybody = QualityRows(rows.labels, rows.groups, sample_weight=rows.sample_weight, names=names)
    parts = parts_of(rows.test)
    found = {part: everybody.some(inside) for part, inside in parts.items()}
    told = {part: scores[inside] for part, inside in parts.items()}
    return quality(found, told, constraints=job.to_job().asked)


def _counts(rows: EncodedRows, model: bytes, cut: Cut) -> Summary:
    return count_decisions(rows, scorer(_state(model))(rows.features), cut.of_rows(rows.groups))


def clients_server_program(
    job: ClientsJob,
    transcript: Callable[[], Transcript],
    checkpoints: CheckpointManager | None = None,
    identity: Path | None = None,
    run: str = "",
) -> Program[dict[str, Any]]:
    """Return the server's program, which ends with the content of `result.json`. The server has no rows."""
    attempt = partial(new_attempt, SERVER, identity_folder(identity, Path()), checkpoints, run)
    return alone(_server(job, lambda: messages_of(transcript(), checkpoints)), training_runner(checkpoints), attempt)


def _server(job: ClientsJob, sent: Callable[[], Transcript]) -> Steps[dict[str, Any]]:
    names, learned = sorted(job.parts), job.data.encoder is None
    check_epsilon(job, learned)
    side = ServerSide(job, names)
    terms, server = yield from server_steps(_draft(job), KnownBefore(job.data.groups), side.steps())
    trained_with = sent()
    outcome = server.outcome()
    model = model_state(terms, outcome.model, outcome.weights, outcome.statistics)
    measuring = MeasureServer(names, state_bytes(model), counts=not keeps_counts(terms))
    yield measuring
    counts, labels = measuring.counts, side.labels
    assert isinstance(labels, (Labels, NumericTargets))
    trained, cut = job.to_job(), run_cut(terms)
    scores, groups = scores_of(counts, job, cut) if counts else (np.zeros(0), no_groups(job))
    result = run_result(
        trained, certified(server.certificate), server.proofs(), labels, scores, trained_with, cut, groups
    )
    result |= {"solver": trained.solver, "disclosure": clients_disclosure(job)}
    if counts:
        assert isinstance(labels, Labels)
        result |= measured_quality(job, labels, counts, cut)
        result["shortfalls"] += later_shortfalls(trained, result)
    if job.privacy is not None:
        result["privacy"] = stated_privacy(job, names, trained_with, learned, secret_noise=True)
    return result


def _state(model: bytes) -> State:
    """Read the model that the server has sent."""
    try:
        return state_from(model, Path("the model"))
    except RunError as error:
        raise ProtocolError(f"the server sent a model that cannot be read: {error}") from error


def _draft(job: ClientsJob) -> HorizontalTerms:
    return draft_terms(job.to_job(), list(job.parts), scope=job.to_scope(), noise=job.to_noise())
