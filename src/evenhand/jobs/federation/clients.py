"""Each one's part of a job across rows: a client has its own table, the server has none.

The same exchanges as in one process (`jobs/horizontal`, `solvers/agreeing`), so models come out the same. In the end
everybody has the model, and the server the counts that quality is made of.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from evenhand.data.tables.encoding import PartyEncoder
from evenhand.data.tables.unchanged import SeenTable, require_unchanged
from evenhand.errors import DataError, JobError, ProtocolError, RunError
from evenhand.horizontal.problem import ClientData, ClientRows, HorizontalServerData
from evenhand.jobs.federation.counting import counted_cells, measured_quality, scores_of
from evenhand.jobs.federation.files import ClientsJob, PartyFile
from evenhand.jobs.federation.keeping import CheckpointManager, messages_of, own_secret, to_its_end
from evenhand.jobs.horizontal.runs import check_epsilon, model_state, scorer, servers_result, stated_privacy
from evenhand.jobs.horizontal.tables import (
    agreed_encoder,
    client_test_rows,
    encoded_rows,
    feature_columns,
    learned_encoder,
    numbers_read,
    open_frame,
)
from evenhand.jobs.labels import Labels, label_column, two_labels
from evenhand.jobs.schema import located
from evenhand.jobs.tables import naming
from evenhand.protocol.agree import AgreeClient, AgreeServer, Summary
from evenhand.protocol.enrol import EnrolParty, EnrolServer
from evenhand.protocol.measuring import MeasureClient, MeasureServer
from evenhand.protocol.state import State
from evenhand.protocol.terms import HorizontalTerms, Terms
from evenhand.protocol.transcript import Transcript
from evenhand.runtime.folder import RunFolder
from evenhand.runtime.site import Program
from evenhand.runtime.statefiles import state_bytes, state_from
from evenhand.solvers.agreeing import coming_to_terms, draft_terms, held_values
from evenhand.solvers.roles import client, clients_server
from evenhand.training.run import certified
from evenhand.training.together import accepted_terms, check_enrolled


@dataclass(frozen=True, eq=False)
class ClientEnd:
    """What a client has when the run is over, for its own run folder."""

    terms: HorizontalTerms
    encoder: PartyEncoder
    state: State
    labels: Labels

    def write(self, folder: RunFolder) -> dict[str, Any]:
        """Keep the model that all share; what the client's `result.json` says."""
        folder.write_model("encoder", self.encoder.to_state())
        folder.write_model("weights", self.state)
        return {"terms": self.terms.digest, "labels": self.labels._asdict()}


def client_program(
    job: ClientsJob,
    own: PartyFile,
    base: Path,
    on_terms: Callable[[Terms], None] | None = None,
    keeping: CheckpointManager | None = None,
    secret: bytes | None = None,
) -> Program[ClientEnd]:
    """What a client does; parameters are those of a party's.

    Parameters
    ----------
    secret
        The client's own, for its noise; None takes that of `keeping`.
    """
    name, data = own.party.name, job.data
    if own.party.role != "client" or name not in job.parts:
        raise JobError(f"by the job, clients are {', '.join(job.parts)}; {name}'s own file says {own.party.role!r}")
    policy = own.policy.to_policy()
    enrolled = EnrolParty(name, HorizontalTerms, policy, _draft(job))
    yield enrolled
    accepted = accepted_terms(enrolled, HorizontalTerms)
    if on_terms is not None:
        on_terms(accepted)

    owner = f"client {name!r}"
    with naming(owner):
        seen = SeenTable.of(located(own.party, base))
    frame = open_frame(own.party, data, base, owner)
    columns = feature_columns({name: frame}, data)
    own.policy.check_columns([*columns, data.label.column, *data.sensitive])
    frame = numbers_read(frame, own.party, columns, data, owner)
    test = client_test_rows(frame.index, name, job)
    with naming(owner):
        values = label_column(frame, data.label, list(frame.columns))
    told = AgreeClient(name, {"labels": values.unique().tolist()})
    yield told
    labels = Labels(**(told.agreed or {}))
    encoder = yield from _encoder(job, name, frame, test, columns, base)
    with naming(owner):
        rows = encoded_rows(encoder, frame, labels, data, test, job.to_job().model == "trees")
    del frame
    training = rows.training_rows(name)
    yield from _agree_as_client(job, training)
    again = EnrolParty(name, HorizontalTerms, policy, accepted)
    yield again
    offered = accepted_terms(again, HorizontalTerms)
    terms = replace(offered, groups=held_values(offered.groups, [training]))

    protect = job.to_protection()
    drawn_from = None if protect is None else secret or own_secret(keeping)
    its = ClientData(training, protect=protect, secret=drawn_from)
    role = client(terms, name, its)
    yield from to_its_end(keeping, role, terms.to_plain(), training.features, training.labels, training.groups)

    measuring = MeasureClient(name, lambda model: counted_cells(rows, scorer(_state(model))(rows.features)))
    yield measuring
    require_unchanged({owner: seen})
    assert measuring.model is not None
    return ClientEnd(terms, encoder, _state(measuring.model), labels)


def clients_server_program(
    job: ClientsJob, transcript: Callable[[], Transcript], keeping: CheckpointManager | None = None
) -> Program[dict[str, Any]]:
    """What the server does, which has no rows; it ends with what `result.json` holds."""
    names, data = sorted(job.parts), job.data
    check_epsilon(job, data.encoder is None)
    draft = EnrolServer(_draft(job))
    yield draft
    check_enrolled(draft)
    found = AgreeServer(names, lambda told: _two_labels(job, told))
    yield found
    labels = Labels(**(found.agreed or {}))
    yield AgreeServer(names, lambda told: _same_encoder(told) if data.encoder else _common_encoder(job, told))
    steps = coming_to_terms(job.to_job(), names, [], **_agreed_on(job))
    agreed: Summary | None = None
    while True:
        try:
            _, combine = next(steps) if agreed is None else steps.send(agreed)
        except StopIteration as end:
            terms: HorizontalTerms = end.value
            break
        exchange = AgreeServer(names, combine)
        yield exchange
        agreed = exchange.agreed
    whole = EnrolServer(terms)
    yield whole
    check_enrolled(whole)
    server = clients_server(terms, HorizontalServerData())
    yield from to_its_end(keeping, server, terms.to_plain())
    trained_with = messages_of(transcript(), keeping)
    outcome = server.outcome()
    model = model_state(job, terms.shape, outcome.model, outcome.weights, outcome.statistics)
    measuring = MeasureServer(names, state_bytes(model))
    yield measuring
    cells = measuring.cells
    said = servers_result(
        job, certified(server.certificate), server.proofs(), labels, scores_of(cells, job), trained_with
    )
    result = {**said, **measured_quality(job, labels, cells)}
    if job.privacy is not None:
        result["privacy"] = stated_privacy(
            job, names, job.to_protection(), trained_with, data.encoder is None, secret_noise=True
        )
    return result


def _state(model: bytes) -> State:
    """The model that the server has handed out."""
    try:
        return state_from(model, Path("the model"))
    except RunError as error:
        raise ProtocolError(f"what the server handed out is no model: {error}") from error


def _draft(job: ClientsJob) -> HorizontalTerms:
    settings = _agreed_on(job)
    settings.pop("groups")
    return draft_terms(job.to_job(), list(job.parts), **settings)


def _agreed_on(job: ClientsJob) -> dict[str, Any]:
    """What the job says of the terms."""
    return {
        "groups": job.data.groups,
        "scope": job.to_scope(),
        "protected": job.privacy is not None,
    }


def _agree_as_client(job: ClientsJob, training: ClientRows) -> Program[None]:
    """Go through the exchanges that terms come from, with the client's own rows."""
    steps = coming_to_terms(job.to_job(), sorted(job.parts), [training], **_agreed_on(job))
    agreed: Summary | None = None
    while True:
        try:
            said, _ = next(steps) if agreed is None else steps.send(agreed)
        except StopIteration:
            return
        exchange = AgreeClient(training.name, said[training.name])
        yield exchange
        agreed = exchange.agreed


def _encoder(
    job: ClientsJob, name: str, frame: pd.DataFrame, test: np.ndarray[Any, Any], columns: list[str], base: Path
) -> Program[PartyEncoder]:
    """The encoder given, if all have the same, or one from what clients share of their training rows."""
    data = job.data
    if data.encoder is not None:
        path = base / Path(data.encoder).expanduser()
        given = agreed_encoder(path, columns)
        yield AgreeClient(name, {"encoder": hashlib.sha256(path.read_bytes()).hexdigest()})
        return given
    with naming(f"client {name!r}"):
        learned = learned_encoder(frame, test, columns, data, job.to_job().model == "trees")
    shared = AgreeClient(name, learned.to_summary())
    yield shared
    return PartyEncoder.from_state(dict(shared.agreed or {}))


def _two_labels(job: ClientsJob, told: Mapping[str, Summary]) -> Summary:
    columns = [pd.Series(list(one["labels"]), dtype=object) for one in told.values()]
    return two_labels(columns, job.data.label, over=" over all clients")._asdict()


def _common_encoder(job: ClientsJob, told: Mapping[str, Summary]) -> Summary:
    rules = vars(job.data.to_rules())
    made = PartyEncoder.from_summaries(told, scale=job.data.scale, as_is=job.to_job().model == "trees", **rules)
    return made.to_state()


def _same_encoder(told: Mapping[str, Summary]) -> Summary:
    if len({one.get("encoder") for one in told.values()}) > 1:
        raise DataError("data.encoder: clients have different encoders of this name; hand the agreed one to everybody")
    return {}
