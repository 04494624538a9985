"""Audits of jobs: of a run that is finished, and of one that is planned."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
import pandas as pd

from evenhand.arrays import Array
from evenhand.auditing.findings import Audit
from evenhand.auditing.horizontal import HorizontalScene, audit_horizontal
from evenhand.auditing.vertical import audit_vertical
from evenhand.auditing.views import Scene, listening
from evenhand.errors import RunError
from evenhand.horizontal.problem import ClientRows
from evenhand.jobs.federation.files import AnyJob, FederationJob, parse_federation_job
from evenhand.jobs.federation.sites import align_party, align_server
from evenhand.jobs.file import JobFile, read_job
from evenhand.jobs.folder import own_job, require_password
from evenhand.jobs.horizontal.file import HorizontalJobFile, parse_horizontal
from evenhand.jobs.horizontal.tables import SERVER_ROWS, load_horizontal_tables
from evenhand.jobs.schema import read_toml
from evenhand.jobs.vertical.answering import answer_key
from evenhand.jobs.vertical.file import VerticalJobFile, parse_vertical
from evenhand.jobs.vertical.tables import load_vertical_tables
from evenhand.privacy.key_exchange import KeyParty, KeyServer
from evenhand.protocol.certificate import Certificate
from evenhand.protocol.scoring import ScoreParty, ScoreServer
from evenhand.protocol.terms import Part
from evenhand.protocol.transcript import Transcript
from evenhand.report.disclosure import schemas
from evenhand.runtime.folder import RunFolder
from evenhand.runtime.inprocess import InProcess
from evenhand.training.horizontal import train_clients
from evenhand.training.preparing import Preparation
from evenhand.training.vertical import train_vertical
from evenhand.vertical.problem import PartyColumns
from evenhand.vertical.solvers import SOLVERS, vertical_terms

REPEATS: Final = 1e-6
"""How closely the run that is attacked must end where the recorded one ended."""


def audit_run(folder: RunFolder, coalitions: Sequence[Sequence[str]] = ()) -> Audit:
    """Attack a finished run.

    A run folder keeps who sent what to whom, not the numbers themselves. So the run is gone through again, from the
    job in the folder and the tables it names: the messages are those that were sent (masks aside, which are drawn anew
    and say nothing either way). Tables that have changed since are noticed.
    """
    recorded = folder.result["certificate"]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if folder.split == "horizontal":
            audit, found = _horizontal(own_job(folder, HorizontalJobFile, parse_horizontal), folder, coalitions)
        else:
            audit, found = _vertical(own_job(folder, VerticalJobFile, parse_vertical), folder, coalitions)
    if found.rounds != recorded["rounds"] or _apart(found.objective, recorded["objective"]) > REPEATS:
        raise RunError(
            f"{folder.path} cannot be audited: gone through again, the run ends at {found.objective:.9g} after "
            f"{found.rounds} rounds, not at {recorded['objective']} after {recorded['rounds']}; the tables have changed"
        )
    return audit


def _apart(found: float, recorded: float | None) -> float:
    if recorded is None or np.isnan(found):
        return 0.0
    return abs(found - recorded) / max(1.0, abs(recorded))


def _vertical(
    job: VerticalJobFile, folder: RunFolder, coalitions: Sequence[Sequence[str]]
) -> tuple[Audit, Certificate]:
    for party in job.party:
        require_password(party.database)
    tables = load_vertical_tables(job, folder.base)
    train = ~tables.test
    transcript = listening()
    signs, sensitive = tables.signs[train], None if tables.sensitive is None else tables.sensitive[train]
    parties = tables.training_columns()
    run = train_vertical(
        job.to_job(),
        parties,
        signs,
        sensitive,
        runtime="messages",
        terms=tables.terms,
        transcript=transcript,
        key=answer_key(job.job.label_privacy, job.label_party.label, folder.base, job.job.seed, tables.ids[train]),
    )
    scene = Scene.of(transcript, parties, signs, sensitive, run.models, tables.terms)
    return audit_vertical(scene, coalitions=coalitions), run.certificate


def _horizontal(
    job: HorizontalJobFile, folder: RunFolder, coalitions: Sequence[Sequence[str]]
) -> tuple[Audit, Certificate]:
    for client in job.client:
        require_password(client.database)
    tables = load_horizontal_tables(job, folder.base)
    clients = [rows.training_rows(name) for name, rows in tables.clients.items()]
    preparation = Preparation(transcript=listening())
    run = train_clients(
        job.to_job(),
        clients,
        scope=job.to_where(),
        server=None if tables.server is None else tables.server.training_rows(SERVER_ROWS),
        groups=job.data.groups,
        classes=job.n_classes,
        protect=job.to_protection(),
        preparation=preparation,
    )
    rows = {one.name: one for one in clients}
    scene = HorizontalScene(run.transcript.messages or (), rows, run.model, run.statistics, run.terms)
    return audit_horizontal(scene, coalitions=coalitions), run.certificate


# -- before a run


class PlannedMessage(NamedTuple):
    """A kind of message that would go from one to another, and what it reveals."""

    sender: str
    receiver: str
    kind: str
    reveals: str


REHEARSED_ROWS: Final = 60
REHEARSED_EPSILON: Final = 8.0
REHEARSED_ROUNDS: Final = 12
"""Enough for every solver to have said all that it has to say, but for what depends on the rows."""


def read_planned(path: Path) -> JobFile | AnyJob:
    """A job of one process, or one between organisations, which says of nobody where its table is."""
    content = read_toml(path)
    sections = [one for name in ("party", "client") for one in content.get(name, ()) if isinstance(one, dict)]
    if sections and not any({"table", "database"} & one.keys() for one in sections):
        return parse_federation_job(content, path.name)
    return read_job(path)


def plan_of(job: JobFile | AnyJob) -> list[PlannedMessage]:
    """Which messages a job would send to whom, from its terms alone: no table is opened.

    The run is rehearsed on made-up rows for some rounds, and its messages are listed.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        transcript = _rehearse_horizontal(job) if isinstance(job, HorizontalJobFile) else _rehearse_vertical(job)
    said = dict.fromkeys((entry.sender, entry.receiver, entry.kind) for entry in transcript)
    return [PlannedMessage(*link, schemas()[link[2]].reveals + _with_privacy(job, link[2])) for link in said]


def _with_privacy(job: JobFile | AnyJob, kind: str) -> str:
    """What label privacy makes of a message that tells labels."""
    asked = None if isinstance(job, HorizontalJobFile) else job.to_job().label_privacy
    return "" if asked is None or not schemas()[kind].coverage.from_labels else f" {asked.words}"


def _made_up(rows: int, seed: int) -> tuple[Array, Array]:
    rng = np.random.default_rng(seed)
    features = rng.normal(size=(rows, 3))
    return features, np.where(features[:, 0] + rng.normal(size=rows) > 0, 1.0, -1.0)


def _groups(rows: int, names: Sequence[str]) -> pd.DataFrame | None:
    """Each attribute with two groups that occur with both labels, whatever the others are."""
    places = np.arange(rows)
    return pd.DataFrame({name: (places >> shift) & 1 for shift, name in enumerate(names)}) if names else None


def _rehearse_vertical(job: VerticalJobFile | FederationJob) -> Transcript:
    trained = replace(job.to_job(), max_rounds=REHEARSED_ROUNDS)
    if trained.label_privacy is not None:
        # What is said does not depend on ε, but slices of so few rows would drown in answers.
        trained = replace(trained, label_privacy=replace(trained.label_privacy, epsilon=REHEARSED_EPSILON, groups=None))
    between = job if isinstance(job, FederationJob) else None
    preparation = Preparation()
    parts: dict[str, Part]
    if isinstance(job, FederationJob):
        # Which attributes are sensitive only their holder knows.
        parts, names, holder, sensitive = job.parts, job.parties, job.holder, ["group"]
        ids = pd.Index([f"person {number}" for number in range(REHEARSED_ROWS)])
        preparation.enrol(vertical_terms(trained, parts, 0, {}))
        preparation.run(align_server(job), [align_party(job, name, ids) for name in names])
    else:
        parts = {party.name: party.role for party in job.party}
        names, holder, sensitive = list(parts), job.label_party.name, job.label_party.sensitive
        preparation.enrol(vertical_terms(trained, parts, 0, {}))
        preparation.align(dict.fromkeys(names, REHEARSED_ROWS))
    _, labels = _made_up(REHEARSED_ROWS, 0)
    groups = _groups(REHEARSED_ROWS, sensitive)
    terms = preparation.vertical_terms(trained, parts, holder, labels, groups)
    if between is not None and SOLVERS[terms.job.solver].agrees_on_keys:
        preparation.run(KeyServer(names), [KeyParty(name, names, b"rehearsal") for name in names])
    parties = [
        PartyColumns(name, _made_up(REHEARSED_ROWS, seed)[0], parts[name] == "active")
        for seed, name in enumerate(names)
    ]
    run = train_vertical(
        trained, parties, labels, groups, runtime="messages", terms=terms, transcript=preparation.transcript
    )
    if between is not None and not between.crosses_trees:
        measured = [ScoreParty(name, np.zeros(REHEARSED_ROWS)) for name in names]
        InProcess([ScoreServer(names, REHEARSED_ROWS), *measured], transcript=run.transcript).run()
    return run.transcript


def _rehearse_horizontal(job: HorizontalJobFile) -> Transcript:
    trained = replace(job.to_job(), max_rounds=REHEARSED_ROUNDS)
    clients = []
    for seed, client in enumerate(job.client):
        features, labels = _made_up(REHEARSED_ROWS, seed)
        clients.append(ClientRows(client.name, features, labels, _groups(REHEARSED_ROWS, job.data.sensitive)))
    server = None
    if job.server.has_rows:
        server = ClientRows(SERVER_ROWS, *_made_up(REHEARSED_ROWS, 99), _groups(REHEARSED_ROWS, job.data.sensitive))
    run = train_clients(
        trained,
        clients,
        scope=job.to_where(),
        server=server,
        protect=job.to_protection(),
        preparation=Preparation(),
    )
    return run.transcript
