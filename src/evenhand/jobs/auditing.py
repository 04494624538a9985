"""Audits of jobs: attack a finished run, or list the messages of a planned one."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar

import numpy as np
import pandas as pd

from evenhand.arrays import Array, Booleans, Integers
from evenhand.auditing.audits import audit_horizontal, audit_vertical
from evenhand.auditing.client_views import HorizontalAuditInput
from evenhand.auditing.findings import Audit, Progress
from evenhand.auditing.views import listening
from evenhand.constraints.groups import PATTERNS, groups_frame
from evenhand.constraints.labelled_rows import LabelledRows
from evenhand.constraints.presence import OTHERS
from evenhand.errors import DataError, RunError
from evenhand.horizontal.problem import ClientData, ClientRows, HorizontalServerData
from evenhand.jobs.federation.files import AnyJob, FederationJob, parse_federation_job
from evenhand.jobs.federation.sites import alignment_of, scoring_party, scoring_server
from evenhand.jobs.folder import JobFile, own_job, read_job, require_password
from evenhand.jobs.horizontal.file import HorizontalJobFile, parse_horizontal
from evenhand.jobs.horizontal.rows import SERVER_ROWS
from evenhand.jobs.horizontal.runs import load_horizontal_tables
from evenhand.jobs.parsing import read_toml
from evenhand.jobs.vertical.file import VerticalJobFile, parse_vertical
from evenhand.jobs.vertical.runs import load_vertical_tables
from evenhand.privacy.mechanism import noise_terms
from evenhand.privacy.randomised_response import AnswerKey
from evenhand.protocol.job import Job
from evenhand.protocol.roles import SERVER, Role
from evenhand.protocol.solver import Certificate
from evenhand.protocol.terms import Part
from evenhand.protocol.transcript import Transcript
from evenhand.runtime.folder import RunFolder
from evenhand.solvers.agreeing import KnownBefore, draft_terms
from evenhand.solvers.announcing import schemas
from evenhand.solvers.roles import vertical_terms
from evenhand.training import horizontal, horizontal_steps
from evenhand.training.auditing import audit_input
from evenhand.training.together import Steps, Together
from evenhand.training.vertical import train_together
from evenhand.training.vertical_sources import Alignment, EncodedColumns, HeldLabels, HowAligned
from evenhand.training.vertical_steps import (
    TrainedDealer,
    TrainedParty,
    TrainedServer,
    dealer_steps,
    party_steps,
    server_steps,
    steps_together,
)
from evenhand.vertical.protected.build import scoring_dealer

Own = TypeVar("Own")
REPEATS: Final = 1e-6
"""Tolerance between the objective of the repeated run and that of the recorded run."""


def audit_run(
    folder: RunFolder, coalitions: Sequence[Sequence[str]] = (), progress: Progress = lambda _: None
) -> Audit:
    """Attack a finished run; `progress` is told what the audit does.

    A run folder records sender, receiver and size of each message, not its numbers. So the run is repeated, from the
    job in the folder and the tables it names. The messages are the same, except for masks, which are drawn again and
    carry no information. The audit refuses tables that have changed since.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if folder.split == "horizontal":
            return _horizontal(own_job(folder, HorizontalJobFile, parse_horizontal), folder, coalitions, progress)
        return _vertical(own_job(folder, VerticalJobFile, parse_vertical), folder, coalitions, progress)


def _check_repeated(folder: RunFolder, found: Certificate) -> None:
    """Refuse a repeated run that is not the recorded one, before it is attacked."""
    recorded = folder.result["certificate"]
    if found.rounds != recorded["rounds"] or _apart(found.objective, recorded["objective"]) > REPEATS:
        raise RunError(
            f"{folder.path} cannot be audited: the repeated run has objective {found.objective:.9g} after "
            f"{found.rounds} rounds, but the recorded run has {recorded['objective']} after {recorded['rounds']}; "
            "the tables have changed"
        )


def _apart(found: float, recorded: float | None) -> float:
    if recorded is None or np.isnan(found):
        return 0.0
    return abs(found - recorded) / max(1.0, abs(recorded))


def _vertical(
    job: VerticalJobFile, folder: RunFolder, coalitions: Sequence[Sequence[str]], progress: Progress
) -> Audit:
    for party in job.party:
        require_password(party.database)
    tables = load_vertical_tables(job, folder.base, listening())
    run = train_together(tables.together, runtime="messages")
    _check_repeated(folder, run.certificate)
    truth = tables.rows[tables.holder].labels().truth
    scene = audit_input(run.transcript, tables.training_columns(), truth.labels, truth.groups, run.models, tables.terms)
    return audit_vertical(scene, coalitions=coalitions, progress=progress)


def _horizontal(
    job: HorizontalJobFile, folder: RunFolder, coalitions: Sequence[Sequence[str]], progress: Progress
) -> Audit:
    for client in job.client:
        require_password(client.database)
    tables = load_horizontal_tables(job, folder.base, listening())
    run = horizontal.train_together(tables.together)
    _check_repeated(folder, run.certificate)
    scene = HorizontalAuditInput(run.transcript.messages or (), tables.training, run.model, run.statistics, run.terms)
    return audit_horizontal(scene, coalitions=coalitions, progress=progress)


# -- before a run


class PlannedMessage(NamedTuple):
    """A kind of message, its sender and receiver, and what it reveals."""

    sender: str
    receiver: str
    kind: str
    reveals: str


REHEARSED_ROWS: Final = 60
REHEARSED_EPSILON: Final = 8.0
REHEARSED_ROUNDS: Final = 12
"""Rounds after which every solver has sent each kind of message, except those that depend on the rows."""


def read_planned(path: Path) -> JobFile | AnyJob:
    """A job in one process, or a job between organisations, which names no tables."""
    content = read_toml(path)
    sections = [one for name in ("party", "client") for one in content.get(name, ()) if isinstance(one, dict)]
    if sections and not any({"table", "database"} & one.keys() for one in sections):
        return parse_federation_job(content, path.name)
    return read_job(path)


def plan_of(job: JobFile | AnyJob) -> list[PlannedMessage]:
    """List the messages that a job would send, from its terms alone; no table is opened.

    The job is run on synthetic rows for a few rounds, and its messages are listed.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        transcript = _rehearse_horizontal(job) if isinstance(job, HorizontalJobFile) else _rehearse_vertical(job)
    said = dict.fromkeys((entry.sender, entry.receiver, entry.kind) for entry in transcript)
    return [PlannedMessage(*link, schemas()[link[2]].reveals + _with_privacy(job, link[2])) for link in said]


def _with_privacy(job: JobFile | AnyJob, kind: str) -> str:
    """Say how label privacy changes a message that reveals labels."""
    asked = None if isinstance(job, HorizontalJobFile) else job.to_job().label_privacy
    return "" if asked is None or not schemas()[kind].coverage.from_labels else f" {asked.words}"


def _made_up(rows: int, seed: int, job: Job, classes: int | None = None) -> tuple[Array, Array]:
    """Return synthetic features, and labels of both classes, indices of `classes`, or targets that every loss has."""
    rng = np.random.default_rng(seed)
    features = rng.normal(size=(rows, 3))
    if classes is not None:
        # Groups alternate fast: each class has rows of every group.
        return features, (np.arange(rows) * classes // rows).astype(np.float64)
    upper = features[:, 0] + rng.normal(size=rows) > 0
    return features, np.where(upper, 1.0, -1.0 if job.loss_function.classifies else 2.0)


def _groups(rows: int, names: Sequence[str]) -> pd.DataFrame | None:
    """Return synthetic groups: two for each attribute, and both labels in each group."""
    places = np.arange(rows)
    return pd.DataFrame({name: (places >> shift) & 1 for shift, name in enumerate(names)}) if names else None


class _MadeUpRows:
    """A party's synthetic rows for listing messages; no table is opened."""

    def __init__(self, ids: pd.Index | int, number: int, sensitive: Sequence[str], job: Job) -> None:
        self._ids, self._sensitive, self._job = ids, sensitive, job
        self.matrix, _ = _made_up(REHEARSED_ROWS, number, job)

    def ids(self) -> pd.Index | int:
        return self._ids

    def unaligned(self, problem: str, _: Integers | None = None) -> DataError:
        return DataError(problem)

    def take(self, _: Integers, __: Booleans | None = None) -> int:
        return REHEARSED_ROWS

    def held_out(self) -> Booleans:
        return np.zeros(REHEARSED_ROWS, dtype=bool)

    def labels(self, *_: object) -> HeldLabels:
        classes = len(self._job.classes) or None
        groups = _groups(REHEARSED_ROWS, self._sensitive)
        if any(one.splits_patterns for one in self._job.asked):
            groups = groups_frame(groups, REHEARSED_ROWS).assign(**{PATTERNS: OTHERS})
        truth = LabelledRows(_made_up(REHEARSED_ROWS, 0, self._job, classes)[1], groups)
        return HeldLabels(truth, AnswerKey.from_seed(0))

    def columns(self) -> EncodedColumns:
        return EncodedColumns(self.matrix)


def _rehearse_vertical(job: VerticalJobFile | FederationJob) -> Transcript:
    trained = replace(job.to_job(), max_rounds=REHEARSED_ROUNDS)
    if trained.label_privacy is not None:
        # The messages do not depend on ε. So few rows would have empty slices after randomised response.
        trained = replace(trained, label_privacy=replace(trained.label_privacy, epsilon=REHEARSED_EPSILON, groups=None))
    between = job if isinstance(job, FederationJob) else None
    parts: dict[str, Part]
    ids: pd.Index | int = REHEARSED_ROWS
    if isinstance(job, FederationJob):
        # Only the label holder knows which attributes are sensitive.
        parts, sensitive, alignment = job.parts, ["group"], alignment_of(job)
        ids = pd.Index([f"person {number}" for number in range(REHEARSED_ROWS)])
    else:
        parts = {party.name: party.role for party in job.party}
        how: HowAligned = "left" if job.job.keeps_all else "equal"
        alignment, sensitive = Alignment(list(parts), job.label_party.name, how), job.label_party.sensitive
    draft = vertical_terms(trained, parts, 0, {})
    rows = {name: _MadeUpRows(ids, seed, sensitive, trained) for seed, name in enumerate(alignment.parties)}
    if between is None:
        return train_together(Together(steps_together(draft, rows, alignment)), runtime="messages").transcript
    server = server_steps(draft, rows[alignment.holder], alignment)
    steps: dict[str, Steps[Any]] = {SERVER: _then_score(server, lambda end: _scores(between, end))}
    for name, own in rows.items():
        party = party_steps(name, draft, own, alignment)
        steps[name] = _then_score(party, partial(_own_scores, between, name, own.matrix))
    if draft.dealer is not None:
        dealer = dealer_steps(draft.dealer, draft)
        steps[draft.dealer] = _then_score(dealer, _dealt_scores) if draft.shares_weights else dealer
    return train_together(Together(steps), runtime="messages").transcript


def _scores(job: FederationJob, end: TrainedServer) -> Role:
    return scoring_server(job, REHEARSED_ROWS, end.terms, end.session, end.server.weight_shares)


def _own_scores(job: FederationJob, name: str, matrix: Array, end: TrainedParty) -> Role:
    return scoring_party(job, name, end.model, matrix, end.terms, end.session)


def _dealt_scores(end: TrainedDealer) -> Role:
    return scoring_dealer(end.terms, end.session)


def _then_score(steps: Steps[Any], role: Callable[[Any], Role]) -> Steps[Any]:
    """Append the steps that measure the trained model, as in jobs between organisations."""
    end = yield from steps
    yield role(end)
    return end


def _rehearse_horizontal(job: HorizontalJobFile) -> Transcript:
    trained = replace(job.to_job(), max_rounds=REHEARSED_ROUNDS)
    sensitive, update_noise, classes = job.data.sensitive, job.to_protection(), job.n_classes
    rows = {
        client.name: ClientRows(
            client.name, *_made_up(REHEARSED_ROWS, seed, trained, classes), _groups(REHEARSED_ROWS, sensitive)
        )
        for seed, client in enumerate(job.client)
    }
    server = None
    if job.server.has_rows:
        server = ClientRows(
            SERVER_ROWS, *_made_up(REHEARSED_ROWS, 99, trained, classes), _groups(REHEARSED_ROWS, sensitive)
        )
    draft = draft_terms(
        trained,
        list(rows),
        scope=job.to_scope(),
        noise=noise_terms(update_noise),
        two_classes=classes is None,
        server_rows=server is not None,
    )
    known = KnownBefore(classes=classes, simulated=True)
    steps: dict[str, Steps[Any]] = {
        SERVER: horizontal_steps.server_steps(
            draft, known, _holding(HorizontalServerData(server)), everybody=lambda: rows, warns=False
        )
    }
    for name in sorted(rows):
        steps[name] = horizontal_steps.client_steps(
            name, draft, known, _holding(ClientData(rows[name], update_noise=update_noise))
        )
    return horizontal.train_together(Together(steps)).transcript


def _holding(own: Own) -> Steps[Own]:
    """Return a participant's data without any exchange."""
    yield from ()
    return own
