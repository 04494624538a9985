"""Vertical jobs between organisations: each participant's steps with its own file, then scoring.

The steps are those of one process (`training/vertical_steps.py`), so models come out the same. The server reads labels
and groups from its own copy of the label holder's table: it runs there, or where that party trusts it with both.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from evenhand.arrays import Matrix
from evenhand.data.tables.encoding import PartyEncoder
from evenhand.data.tables.party_tables import require_unchanged
from evenhand.errors import JobError
from evenhand.jobs.federation.checkpointing import CheckpointManager, keeper, messages_of
from evenhand.jobs.federation.files import FederationJob, PartyFile
from evenhand.jobs.tables import parts_of
from evenhand.jobs.vertical.rows import ServerRows, TableRows
from evenhand.jobs.vertical.runs import ServersWord, vertical_result, write_party
from evenhand.models.across import Routes
from evenhand.models.base import Scorer
from evenhand.models.trees import TreesModel
from evenhand.privacy.masks import SECRET_WORDS, fresh_masks
from evenhand.protocol.scoring import ScoreParty, ScoreServer
from evenhand.protocol.terms import Terms, VerticalTerms
from evenhand.protocol.transcript import Transcript
from evenhand.runtime.folder import RunFolder
from evenhand.runtime.site import Program
from evenhand.solvers.checking import check_takes_weights
from evenhand.solvers.vertical_terms import vertical_terms
from evenhand.training.run import certified
from evenhand.training.together import alone
from evenhand.training.vertical import label_statement
from evenhand.training.vertical_sources import Alignment
from evenhand.training.vertical_steps import dealer_steps, party_steps, server_steps


@dataclass(frozen=True, eq=False)
class PartyEnd:
    """What a party has when the run is over, for its own run folder."""

    name: str
    terms: VerticalTerms
    encoder: PartyEncoder
    model: Scorer

    def write(self, folder: RunFolder) -> dict[str, Any]:
        """Keep it; what the party's `result.json` says. A party is told no result."""
        write_party(folder, self.name, self.encoder, self.model)
        return {"terms": self.terms.digest}


def party_program(
    job: FederationJob,
    own: PartyFile,
    base: Path,
    on_terms: Callable[[Terms], None] | None = None,
    keeping: CheckpointManager | None = None,
) -> Program[PartyEnd]:
    """What a party does.

    Parameters
    ----------
    base
        Folder that relative paths of the party's file start from.
    on_terms
        Called with terms that the party's policy has accepted, before anything about its rows is said.
    keeping
        Takes checkpoints of the training.
    """
    name = own.party.name
    if job.parts.get(name) != own.party.role:
        part = job.parts.get(name)
        said = f"it is {part!r}" if part else "it takes no part"
        raise JobError(f"by the job {said}; {name}'s own file says {own.party.role!r}")
    if (own.party.label is not None) != (name == job.holder):
        raise JobError(f"the label is at {job.holder}, the first active party of the job; {name}'s own file differs")
    if name == job.holder:
        _require_secret(job, own)
    _check_weight(job, own)
    rows = table_rows(job, own, base)
    steps = party_steps(
        name,
        draft_terms(job),
        rows,
        alignment_of(job),
        policy=own.policy.to_policy(),
        on_terms=on_terms,
        secret=fresh_masks(SECRET_WORDS),
    )
    terms, model = yield from alone(steps, keeper(keeping))
    yield scoring_party(job, name, model, rows.matrix)
    require_unchanged({rows.owner: rows.seen})
    return PartyEnd(name, terms, rows.encoder, model)


def server_program(
    job: FederationJob,
    holder: PartyFile,
    base: Path,
    transcript: Callable[[], Transcript],
    keeping: CheckpointManager | None = None,
) -> Program[dict[str, Any]]:
    """What the server does; it ends with what `result.json` holds.

    Parameters
    ----------
    holder
        The file of the party that holds the labels; nothing but ids, labels and groups is read from its table.
    transcript
        Of this site.
    """
    if holder.party.name != job.holder or holder.party.label is None:
        raise JobError(f"the server needs the file of {job.holder}, who holds the label by the job")
    _check_weight(job, holder)
    _require_secret(job, holder)
    rows = ServerRows(table_rows(job, holder, base))
    steps = server_steps(draft_terms(job), rows, alignment_of(job))
    terms, server, key = yield from alone(steps, keeper(keeping))
    told = ServersWord(certified(server.certificate), server.proofs(), server.statistics())
    # A solver's server holds much that is not needed any more.
    del server
    scoring = scoring_server(job, len(rows.test))
    yield scoring
    scores = scoring.scores
    del scoring
    trained_with = messages_of(transcript(), keeping)
    of_parts = {name: scores[part] for name, part in parts_of(rows.test).items()}
    result = vertical_result(terms.job, told, of_parts, rows.measured, trained_with)
    if (stated := label_statement(terms, key)) is not None:
        result["privacy"] = {job.holder: stated.as_dict()}
    return result


def draft_terms(job: FederationJob) -> VerticalTerms:
    """Return the terms as far as they follow from the job alone."""
    return vertical_terms(job.to_job(), job.parts, 0, {})


def alignment_of(job: FederationJob) -> Alignment:
    """Return how the job's parties find their common rows."""
    return Alignment(job.parties, job.holder, job.job.ids, job.job.least_common)


def table_rows(job: FederationJob, own: PartyFile, base: Path) -> TableRows:
    """Return the rows of the table that a party's own file names."""
    return TableRows(own.party, job.job, base, job.to_job(), text_ids=job.job.text_ids)


def _require_secret(job: FederationJob, holder: PartyFile) -> None:
    """Label privacy between organisations draws from what nobody else knows; party and server read the same file."""
    if job.job.label_privacy is not None and (holder.party.label is None or holder.party.label.secret is None):
        raise JobError(
            f"the job has label_privacy, and {job.holder}'s own file names no secret to draw answers from: "
            'secret = "labels.secret" beside column, in [party.label]; the file is made where there is none'
        )


def _check_weight(job: FederationJob, own: PartyFile) -> None:
    """Refuse a weight that somebody who needs it would not be told."""
    if own.party.weight is None:
        return
    check_takes_weights(job.to_job())
    if list(job.parts.values()).count("active") > 1:
        raise JobError("between organisations, weights of rows are told to nobody: they go with one active party")


def scoring_server(job: FederationJob, n_rows: int) -> ScoreServer:
    """Return the server's role in scoring."""
    return ScoreServer(job.parties, n_rows, job.holder if job.crosses_trees else None)


def scoring_party(job: FederationJob, name: str, model: Scorer, matrix: Matrix) -> ScoreParty:
    """A party's part of the scores; of trees that cross parties, only the holder of the labels knows how."""
    if not job.crosses_trees:
        return ScoreParty(name, model.predict(matrix))
    assert isinstance(model, TreesModel)
    routes, others = model.routes, [one for one in job.parties if one != name]
    scores, sides = model.predict(matrix), model.sides(matrix)
    if name != job.holder:
        return ScoreParty(name, scores, sides, job.holder)
    across = routes.scores if isinstance(routes, Routes) else lambda _: np.zeros(len(scores))
    return ScoreParty(name, scores, sides, name, across, others)


@dataclass(frozen=True, eq=False)
class DealerEnd:
    """What a dealer has when the run is over."""

    terms: VerticalTerms

    def write(self, _: RunFolder) -> dict[str, Any]:
        """What the dealer's `result.json` says: it keeps nothing else."""
        return {"terms": self.terms.digest}


def dealer_program(
    job: FederationJob,
    own: PartyFile,
    on_terms: Callable[[Terms], None] | None = None,
    keeping: CheckpointManager | None = None,
) -> Program[DealerEnd]:
    """What the dealer does; parameters are those of a party's."""
    name = own.party.name
    if job.parts.get(name) != "dealer":
        raise JobError(f"by the job {name} is not the dealer, as its own file says")
    steps = dealer_steps(name, draft_terms(job), policy=own.policy.to_policy(), on_terms=on_terms)
    return DealerEnd((yield from alone(steps, keeper(keeping))))
