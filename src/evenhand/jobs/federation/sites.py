"""Each one's part of a job between organisations, as a program: one role after the other, from enrolling to measuring.

The same roles in the same order as in one process (`jobs/vertical`, `training/preparing`), so models come out the same;
here everybody has nothing but its own file. The server reads labels and groups from the file of the party that holds
them: it runs there, or with somebody whom that party trusts with both.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import scipy.sparse as sp

from evenhand.arrays import Booleans, Integers, Matrix
from evenhand.constraints.binding import compared_groups
from evenhand.constraints.groups import crossed_name, group_codes, groups_frame
from evenhand.data.tables.align import check_ids
from evenhand.data.tables.encoding import PartyEncoder
from evenhand.data.tables.party_tables import FrameTable, PartyTable
from evenhand.data.tables.unchanged import SeenTable, require_unchanged
from evenhand.errors import DataError, JobError, RunError
from evenhand.jobs.federation.enrolling import accepted_terms, check_enrolled
from evenhand.jobs.federation.files import FederationJob, PartyFile
from evenhand.jobs.federation.keeping import Keeping, messages_of, to_its_end
from evenhand.jobs.quality import QualityRows, check_measurable
from evenhand.jobs.tables import hold_out, naming, parts_of, tell
from evenhand.jobs.vertical.answering import answer_key
from evenhand.jobs.vertical.file import table_source
from evenhand.jobs.vertical.runs import ServersWord, vertical_result, write_party
from evenhand.jobs.vertical.tables import by_part, held_labels, open_party
from evenhand.models.across import Routes
from evenhand.models.base import Scorer
from evenhand.models.trees import TreesModel
from evenhand.privacy.key_exchange import KeyParty, KeyServer
from evenhand.privacy.masks import SECRET_WORDS, fresh_masks
from evenhand.privacy.pairwise import PairwiseMasks
from evenhand.privacy.private_align import PrivateAlignParty, PrivateAlignServer
from evenhand.protocol.agree import LabelParty, LabelServer
from evenhand.protocol.align import AlignParty, AlignServer
from evenhand.protocol.enrol import EnrolParty, EnrolServer
from evenhand.protocol.scoring import ScoreParty, ScoreServer
from evenhand.protocol.terms import Terms, VerticalTerms
from evenhand.protocol.transcript import Transcript
from evenhand.runtime.folder import RunFolder
from evenhand.runtime.site import Program
from evenhand.training.run import certified
from evenhand.training.vertical import label_statement
from evenhand.vertical import solvers
from evenhand.vertical.finishing import FinishParty, FinishServer
from evenhand.vertical.problem import LabelData, PartyData, ServerData, answered


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
    keeping: Keeping | None = None,
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
    name, section = own.party.name, job.job
    if job.parts.get(name) != own.party.role:
        part = job.parts.get(name)
        said = f"it is {part!r}" if part else "it takes no part"
        raise JobError(f"by the job {said}; {name}'s own file says {own.party.role!r}")
    if (own.party.label is not None) != (name == job.holder):
        raise JobError(f"the label is at {job.holder}, the first active party of the job; {name}'s own file differs")
    if name == job.holder:
        _require_secret(job, own)
    policy = own.policy.to_policy()
    _check_weight(job, own)
    draft = solvers.vertical_terms(job.to_job(), job.parts, 0, {})
    enrolled = EnrolParty(name, VerticalTerms, policy, draft)
    yield enrolled
    accepted = accepted_terms(enrolled, VerticalTerms)
    if on_terms is not None:
        on_terms(accepted)

    with naming(f"party {name!r}"):
        seen = SeenTable.of(table_source(own.party, base))
        table = _opened(job, own, base)
        check_ids(table.known.index, name)
    aligned = align_party(job, name, table.known.index)
    yield aligned
    if aligned.places is None:
        lacking = f"{aligned.problem}; {len(aligned.unmatched):,} are of {name}"
        raise DataError(f"the rows cannot be aligned: {lacking}{_advice(aligned.problem)}")
    table = table.taken(aligned.places)
    # Lists of everybody are let go as soon as they have served: there may be many millions.
    del aligned
    test = hold_out(table.known.index, section.test_fraction, section.seed)

    again = EnrolParty(name, VerticalTerms, policy, accepted)
    yield again
    terms = accepted_terms(again, VerticalTerms)
    if terms.n_rows != int((~test).sum()):
        raise RunError(f"the terms are about {terms.n_rows} rows, {name} has {int((~test).sum())} to train on")
    known = truth = None
    if name == job.holder:
        held = _apart(held_labels(table, own.party, test, job.to_job().constraints).some(~test))
        truth = LabelData(held.signs, held.sensitive, people=held.people)
        key = answer_key(section.label_privacy, own.party.label, base, section.seed, table.known.index[~test])
        known = answered(terms, truth, key)
    elif name in terms.active:
        told = LabelParty(name, terms.n_rows, _attributes(terms))
        yield told
        assert told.labels is not None
        known = LabelData(told.labels, _groups(terms, told.codes))

    with naming(f"party {name!r}"):
        encoder, matrix = table.encode(~test, section.scale, terms.job.model == "trees", own.party.to_rules())
        tell(f"party {name!r}", encoder.remarks)
    del table
    training = _training_rows(matrix, test)
    pairs = yield from _pairs(terms, name)
    own_data = PartyData(training, None, known, encoder.categorical, fresh_masks(SECRET_WORDS), pairs=pairs)
    role = solvers.party(terms, name, own_data)
    yield from to_its_end(keeping, role, terms.to_plain(), training)
    model = solvers.solvers_party(role).model
    if truth is not None and section.finishes:
        yield FinishParty(terms, model, truth)
    yield scoring_party(job, name, model, matrix)
    require_unchanged({f"party {name!r}": seen})
    return PartyEnd(name, terms, encoder, model)


def server_program(
    job: FederationJob,
    holder: PartyFile,
    base: Path,
    transcript: Callable[[], Transcript],
    keeping: Keeping | None = None,
) -> Program[dict[str, Any]]:
    """What the server does; it ends with what `result.json` holds.

    Parameters
    ----------
    holder
        The file of the party that holds the labels; nothing but ids, labels and groups is read from its table.
    transcript
        Of this site.
    """
    trained, section, names = job.to_job(), job.job, job.parties
    if holder.party.name != job.holder or holder.party.label is None:
        raise JobError(f"the server needs the file of {job.holder}, who holds the label by the job")
    _check_weight(job, holder)
    _require_secret(job, holder)
    draft = EnrolServer(solvers.vertical_terms(trained, job.parts, 0, {}))
    yield draft
    check_enrolled(draft)
    alignment = align_server(job)
    yield alignment
    if alignment.problem:
        raise DataError(f"the rows cannot be aligned: {alignment.problem}{_advice(alignment.problem)}")
    with naming(f"party {job.holder!r}"):
        table = _opened(job, holder, base).taken(alignment.places[job.holder])
        del alignment
        test = hold_out(table.known.index, section.test_fraction, section.seed)
        held = _apart(held_labels(table, holder.party, test, trained.constraints))
        measured = by_part(held, test)
        check_measurable(measured)
    ids = table.known.index
    del table
    held = held.some(~test)
    labels, known = held.signs, held.sensitive
    key = answer_key(section.label_privacy, holder.party.label, base, section.seed, ids[~test])
    del ids
    frame = groups_frame(known, len(labels))
    _, groups = compared_groups(trained.constraints, labels, frame)
    terms = solvers.vertical_terms(trained, job.parts, len(labels), groups)
    whole = EnrolServer(terms)
    yield whole
    check_enrolled(whole)
    if others := [name for name in terms.active if name != job.holder]:
        attributes = {name: terms.groups[name] for name in _attributes(terms)}
        yield LabelServer(others, labels, group_codes(frame, attributes))
    said = answered(terms, LabelData(labels, known, people=held.people), key)
    if solvers.SOLVERS[terms.job.solver].agrees_on_keys:
        yield KeyServer(terms.names)
    server = solvers.server(terms, ServerData(said.labels, said.sensitive, people=said.people, answers=said.answers))
    weights = () if held.people is None else (held.people,)
    yield from to_its_end(keeping, server, terms.to_plain(), labels, frame, *weights)
    trained_server = solvers.solvers_server(server)
    if section.finishes:
        yield FinishServer(terms, trained_server.present().scores)
    certificate = certified(trained_server.certificate)
    told = ServersWord(certificate, trained_server.proofs(), trained_server.statistics())
    del server, trained_server
    scoring = ScoreServer(names, len(test), job.holder if job.crosses_trees else None)
    yield scoring
    scores = scoring.scores
    del scoring
    trained_with = messages_of(transcript(), keeping)
    of_parts = {name: scores[rows] for name, rows in parts_of(test).items()}
    result = vertical_result(trained, told, of_parts, measured, trained_with)
    if (stated := label_statement(terms, key)) is not None:
        result["privacy"] = {job.holder: stated.as_dict()}
    return result


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
    solvers.check_takes_weights(job.to_job())
    if list(job.parts.values()).count("active") > 1:
        raise JobError("between organisations, weights of rows are told to nobody: they go with one active party")


def _pairs(terms: VerticalTerms, name: str) -> Program[PairwiseMasks | None]:
    """What a party has in common with each of the others, where they hide from each other what they send."""
    if not solvers.SOLVERS[terms.job.solver].agrees_on_keys:
        return None
    keys = KeyParty(name, terms.names, terms.digest.encode())
    yield keys
    return keys.masks


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


def align_party(job: FederationJob, name: str, ids: pd.Index) -> AlignParty | PrivateAlignParty:
    if job.job.ids == "private":
        # The server reads the table of the party that holds the labels, and knows its ids.
        return PrivateAlignParty(name, ids, job.parties, in_order=name == job.holder)
    return AlignParty(name, ids)


def align_server(job: FederationJob) -> AlignServer | PrivateAlignServer:
    parties, ids, least = job.parties, job.job.ids, job.job.least_common
    return PrivateAlignServer(parties, least) if ids == "private" else AlignServer(parties, ids, least)


def _opened(job: FederationJob, own: PartyFile, base: Path) -> PartyTable:
    table = open_party(own.party, base)
    return table.with_text_ids() if job.job.text_ids and isinstance(table, FrameTable) else table


def _advice(problem: str) -> str:
    """In the words of a job file."""
    return (
        "; where those of a CSV file are meant as text: text_ids = true in [job]"
        if "different kinds" in problem
        else ""
    )


def _apart(held: QualityRows) -> QualityRows:
    """By themselves: as a part of the party's table, groups would keep its other columns and its ids in memory."""
    return held if held.sensitive is None else replace(held, sensitive=held.sensitive.reset_index(drop=True).copy())


def _training_rows(matrix: Matrix, test: Booleans) -> Matrix:
    """Those that are not held out, stored by column as linear models store theirs: no further copy is made."""
    if not test.any():
        return matrix
    places = np.flatnonzero(~test)
    return matrix[places] if sp.issparse(matrix) else np.take(matrix.T, places, axis=1).T


def _attributes(terms: VerticalTerms) -> list[str]:
    """The sensitive attributes themselves, without their crossing."""
    return [name for name in terms.groups if name != crossed_name(terms.groups)]


def _groups(terms: VerticalTerms, codes: dict[str, Integers]) -> pd.DataFrame | None:
    """Groups by value again, from their places among the agreed ones."""
    if not codes:
        return None
    return pd.DataFrame({name: pd.Index(terms.groups[name]).take(places) for name, places in codes.items()})
