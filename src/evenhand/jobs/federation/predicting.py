"""Scores of new rows from a finished run of a federation: each party uses its own weights, the server adds them up.

The question holds hashes of ids. Each party reads its table again, so rows may have been added since training.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final

import numpy as np
from filelock import FileLock
from pydantic import Field

from evenhand.arrays import Array
from evenhand.data.tables.party_tables import FrameTable, open_table
from evenhand.errors import RunError
from evenhand.jobs.federation.checkpointing import new_attempt
from evenhand.jobs.federation.files import FederationJob, PartyFile, identity_folder, parse_federation_job
from evenhand.jobs.federation.sites import (
    draft_terms,
    gone_parties,
    joint_scores,
    record_sum,
    scoring_party,
    scoring_server,
)
from evenhand.jobs.new_rows import check_away, resting_on
from evenhand.jobs.parsing import Strict
from evenhand.jobs.party_parts import party_encoder, party_model
from evenhand.jobs.tables import naming
from evenhand.jobs.vertical.file import table_source
from evenhand.models.saved import from_state
from evenhand.models.weight_share import WeightShare
from evenhand.privacy.key_exchange import KeyParty, KeyServer, Session
from evenhand.protocol.asking import AskedParty, AskServer
from evenhand.protocol.policy import OwnPolicy
from evenhand.protocol.roles import SERVER
from evenhand.protocol.terms import Terms, VerticalTerms
from evenhand.runtime.files import write_bytes
from evenhand.runtime.folder import RunFolder
from evenhand.runtime.links import LinkSettings
from evenhand.runtime.manifest import parse_json
from evenhand.runtime.site import Program
from evenhand.solvers.roles import agrees_on_keys
from evenhand.training.together import enrolled, offer
from evenhand.training.vertical_sources import check_ids
from evenhand.vertical.protected.build import scoring_dealer

BATCH: Final = 10_000
"""Number of rows that are scored in one exchange."""
_STARTING: Final = 60.0
"""Seconds that a party's process may take to start, in which it is silent."""
ASKED_FOR: Final = "asked.json"
"""File of a party's run folder that counts the people asked for after the run."""


class Question(Strict):
    """Rows to score, and the run to score them with; ids are hashed by `id_sums`. Parties may be away.

    A party that is silent for `patience` seconds, and a minute more to start its process, ends the question.
    """

    run: str
    patience: float = Field(default=60.0, ge=0.0, le=3600.0)
    away: list[str] = Field(default_factory=list)
    kind: str
    sums: list[Annotated[list[int], Field(min_length=2, max_length=2)]] = Field(min_length=1)

    @property
    def links(self) -> LinkSettings:
        """Settings of the server's links."""
        return LinkSettings(linger=0.25, patience=_STARTING + self.patience)

    @property
    def batches(self) -> int:
        return -(-len(self.sums) // BATCH)

    def asked_of(self, job: FederationJob) -> FederationJob:
        """Return the job without the parties that are away; refuse if its terms want all of them."""
        if not self.away:
            return job
        check_away(self.away, list(job.parts), job.holder, job.job.missing_party)
        return job.model_copy(update={"party": [one for one in job.party if one.name not in self.away]})


def asked_run(path: Path) -> tuple[RunFolder, FederationJob]:
    """Return the finished run and its job, from this participant's own folder, without parties that were gone."""
    folder = RunFolder.open(path)
    if not folder.finished:
        raise RunError(
            f"the run in {folder.path} has not finished; resume it with: evenhand federation submit --resume"
        )
    job = parse_federation_job({key: folder.description.get(key) for key in ("job", "party")}, str(folder.path))
    if not isinstance(job, FederationJob):
        raise RunError(
            "after a horizontal run every client has the whole model; score the rows locally with: evenhand predict"
        )
    return folder, job.without(gone_parties(folder.result))


def asking_program(
    folder: RunFolder, job: FederationJob, question: Question, identity: Path | None = None
) -> Program[dict[str, Any]]:
    """Run the server's steps; return a score for each row, or None if a party does not have the row.

    Parameters
    ----------
    identity
        Folder of the server's own identity; None is that of its start-up kit.
    """
    job, absence = question.asked_of(job), _absences(folder, question.away)
    names, terms = job.parties, draft_terms(job)
    yield from offer(terms)
    session = yield from _session(SERVER, terms, question, identity_folder(identity, folder.path))
    shares = {name: _servers_share(folder, name) for name in terms.passive} if terms.shares_weights else {}
    sums = np.array(question.sums, dtype=np.int64)
    # A row for each person, and with three classes or more a column for each.
    scores = np.full((len(sums), *([len(job.job.classes)] if job.job.classes else [])), np.nan)
    needed = [job.holder] if job.job.missing_party == "absent" else names
    there = {name: np.zeros(len(sums), dtype=bool) for name in names}
    for first in range(0, len(sums), BATCH):
        asked = AskServer(names, question.kind, sums[first : first + BATCH], needed)
        yield asked
        for name, held in asked.held.items():
            there[name][first : first + BATCH] = held
        scoring = scoring_server(job, len(asked.places), terms, session, shares, first // BATCH)
        yield scoring
        scores[first + asked.places] = joint_scores(scoring).T
    for number in absence.values():
        scores += number
    told = [None if np.isnan(one).any() else one.tolist() for one in scores]
    used: dict[str, Any] = {name: folder.result[name] for name in ("cut", "probability") if name in folder.result}
    if job.job.missing_party == "absent":
        used["parties"] = resting_on(there)
    return {"scores": told, "labels": folder.labels, **used}


def _absences(folder: RunFolder, away: Sequence[str]) -> dict[str, Array]:
    """Return what parties that are away add to each score; refuse parties that have learned nothing of that."""
    known = folder.result.get("absence", {})
    if unknown := [name for name in away if known.get(name) is None]:
        raise RunError(
            f"{unknown[0]} is away, and had all rows in training: the model has learned nothing for rows that it "
            "lacks, so no score is given without it"
        )
    return {name: np.squeeze(np.array(known[name], dtype=np.float64)) for name in away}


def _servers_share(folder: RunFolder, name: str) -> WeightShare:
    """Return the server's share of a party's weights from its run folder."""
    found = from_state(folder.read_share(name))
    assert isinstance(found, WeightShare)
    return found


def _session(name: str, terms: VerticalTerms, question: Question, identity: Path | None) -> Program[Session | None]:
    """Agree on keys where parties send their scores behind masks. Every question has new ones."""
    if not agrees_on_keys(terms):
        return None
    attempt = new_attempt(name, identity, None, f"predict {question.run}")
    kind = KeyServer if name == SERVER else KeyParty
    keys = kind(attempt, tuple(terms.participants), terms.digest)
    yield keys
    return keys.session


@dataclass(frozen=True)
class Counted:
    """Count the people asked for after one run on disk, before the answer leaves; refuse more than a policy allows."""

    path: Path
    policy: OwnPolicy

    def __call__(self, asked: int) -> None:
        # Questions at the same time are counted one after the other.
        with FileLock(self.path.with_name(f".{self.path.name}.lock"), mode=0o600):
            before = int(parse_json(self.path, self.path.read_bytes())["people"]) if self.path.exists() else 0
            self.policy.admit(asked, before)
            write_bytes(self.path, json.dumps({"people": before + asked}).encode(), private=True)


@dataclass(frozen=True)
class Answered:
    """A party's record of a question: the run, and how many of its rows were scored."""

    run: str
    people: int

    def write(self, _: RunFolder) -> dict[str, Any]:
        return {"asked": self.run, "people": self.people}


def answering_program(
    folder: RunFolder,
    job: FederationJob,
    question: Question,
    own: PartyFile,
    base: Path,
    on_terms: Callable[[Terms], None] | None = None,
) -> Program[Answered]:
    """Run a party's steps; its policy decides on the terms, as before training."""
    name, job = own.party.name, question.asked_of(job)

    def decided(terms: Terms) -> None:
        assert isinstance(terms, VerticalTerms)
        if question.away:
            # Sums over fewer parties: their difference from others shows what the parties that are away added.
            record_sum(terms, own, base)
        if on_terms is not None:
            on_terms(terms)

    accepted = yield from enrolled(name, draft_terms(job), own.policy.to_policy(), decided)
    session = yield from _session(name, accepted, question, identity_folder(own.identity, base))
    if name == accepted.dealer:
        for batch in range(question.batches if accepted.shares_weights else 0):
            yield scoring_dealer(accepted, session, batch)
        return Answered(question.run, 0)
    with naming(f"party {name!r}"):
        encoder = party_encoder(folder, name)
        table = open_table(table_source(own.party, base), own.party.columns, own.party.sensitive, encoder)
        if job.job.text_ids and isinstance(table, FrameTable):
            table = table.with_text_ids()
        check_ids(table.known.index, name)
        model, matrix = party_model(folder, name, encoder), table.transform(encoder)
    lacking = job.job.missing_party == "absent" and name != job.holder
    people, policy = 0, own.policy.to_policy()
    admit = Counted(folder.path / ASKED_FOR, policy)
    trained_only = (policy.questions or ("trained" if job.job.private_ids else "any")) == "trained"
    among = folder.read_party(name, "rows")["sums"] if trained_only else None

    for batch in range(question.batches):
        asked = AskedParty(name, table.known.index, among, admit, lacking=lacking)
        yield asked
        there = asked.rows >= 0
        encoder.require_learned(name, there)
        people += int(there.sum())
        rows = encoder.spread(matrix[asked.rows[there]], there)
        yield scoring_party(job, name, model, rows, accepted, session, batch, asked.people)
    return Answered(question.run, people)
