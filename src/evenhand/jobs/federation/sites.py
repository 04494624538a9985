"""Vertical jobs between organisations: each participant's steps with its own file, then scoring.

The steps are those of one process (`training/vertical_steps.py`), so models come out the same. The server reads labels
and groups from its own copy of the label holder's table: it runs there, or where that party trusts it with both.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeAlias

import numpy as np
import pandas as pd

from evenhand.arrays import Array, Integers, Matrix
from evenhand.data.tables.absence import without_rows
from evenhand.data.tables.encoding import PartyEncoder
from evenhand.data.tables.party_tables import require_unchanged
from evenhand.data.tables.reference import Reference
from evenhand.errors import DataError, JobError, RunError
from evenhand.jobs.federation.checkpointing import (
    CheckpointManager,
    messages_of,
    new_attempt,
    own_secret,
    training_runner,
)
from evenhand.jobs.federation.files import FederationJob, PartyFile, identity_folder, run_place
from evenhand.jobs.federation.round_count import RoundCount
from evenhand.jobs.ledger import Ledger, data_name, run_name
from evenhand.jobs.tables import parts_of
from evenhand.jobs.vertical.extending import earlier_multipliers, earlier_part
from evenhand.jobs.vertical.rows import ServerRows, TableRows
from evenhand.jobs.vertical.runs import ServersWord, vertical_result, write_party
from evenhand.jobs.vertical.values import HELD_OUT
from evenhand.models.across import Routes
from evenhand.models.base import Scorer
from evenhand.models.saved import to_state
from evenhand.models.trees import TreesModel
from evenhand.models.weight_share import WeightShare
from evenhand.privacy.key_exchange import Session
from evenhand.protocol.align import id_sums
from evenhand.protocol.presence import AbsenceParty, AbsenceServer
from evenhand.protocol.roles import SERVER, Role
from evenhand.protocol.scoring import ScoreParty, ScoreServer
from evenhand.protocol.terms import Terms, VerticalTerms
from evenhand.protocol.transcript import Transcript
from evenhand.runtime.folder import RunFolder, is_run
from evenhand.runtime.site import Program
from evenhand.solvers.registry import check_takes_weights
from evenhand.solvers.roles import agrees_on_keys, choices_of_cut, vertical_terms
from evenhand.training.run import certified
from evenhand.training.together import alone
from evenhand.training.vertical import label_statement
from evenhand.training.vertical_sources import Alignment
from evenhand.training.vertical_steps import dealer_steps, party_steps, server_steps
from evenhand.vertical.problem import check_told, outputs
from evenhand.vertical.protected import build as protected
from evenhand.vertical.protected.layer import innermost

GONE: Final = "gone"
"""Key of a result with the parties that have gone for good during training, which the model is without."""
SAME_SCORES: Final = 1e-3
"""Maximum difference of a training row's score after training from that in training, where weights are in shares."""


def gone_parties(result: Mapping[str, Any]) -> list[str]:
    """Return the parties that went for good during training, by a participant's result."""
    return [one if isinstance(one, str) else one["party"] for one in result.get(GONE, ())]


KeepShares: TypeAlias = Callable[[Mapping[str, WeightShare]], None]
"""Keeps the server's shares of the parties' weights."""


def forget_shares(_: Mapping[str, WeightShare]) -> None:
    """Keep nothing: nobody asks this run for scores later."""


def keep_shares(folder: RunFolder, shares: Mapping[str, WeightShare]) -> None:
    """Write the server's shares of the parties' weights to its own run folder."""
    for name, share in shares.items():
        folder.write_share(name, to_state(share))


@dataclass(frozen=True, eq=False)
class PartyEnd:
    """What a party has at the end of the run, for its own run folder."""

    name: str
    terms: VerticalTerms
    encoder: PartyEncoder
    model: Scorer
    reference: Reference
    ids: pd.Index
    """Ids of the common rows."""
    gone: Sequence[str] = ()
    """Parties that have gone for good during training."""

    def write(self, folder: RunFolder) -> dict[str, Any]:
        """Write encoder and model; return the content of `result.json`. The party is not told the result."""
        write_party(folder, self.name, self.encoder, self.model, self.reference)
        folder.write_party(self.name, "rows", {"sums": id_sums(self.ids)[1]})
        return {"terms": self.terms.digest} | ({GONE: list(self.gone)} if self.gone else {})


def party_program(
    job: FederationJob,
    own: PartyFile,
    base: Path,
    on_terms: Callable[[Terms], None] | None = None,
    checkpoints: CheckpointManager | None = None,
    run: str = "",
    runs: Path | None = None,
    secret: bytes | None = None,
) -> Program[PartyEnd]:
    """Run a party's steps, then score the rows.

    Parameters
    ----------
    base
        Folder that relative paths in the party's file start from.
    on_terms
        Called with terms that the party's policy has accepted, before anything about its rows is sent.
    checkpoints
        Takes checkpoints of the training.
    run
        Name of the run, where `checkpoints` does not know it.
    runs
        Folder of this site's runs, where it finds the run that the job extends.
    secret
        The party's own secret; None takes the one from `checkpoints`.
    """
    name = own.party.name
    if job.parts.get(name) != own.party.role:
        part = job.parts.get(name)
        said = f"has the role {part!r} in the job" if part else "is not a participant of the job"
        raise JobError(f"{name} {said}; its own file says {own.party.role!r}; change one of the two files")
    if (own.party.label is not None) != (name == job.holder):
        raise JobError(
            f"the label must be at {job.holder}, the first active party; correct [party.label] in {name}'s file"
        )
    if name == job.holder:
        _require_secret(job, own)
    _check_weight(job, own)
    if own.party.monotone:
        check_told(name, bool(job.to_job().options.get("monotone")))
    if job.job.values and not own.policy.values:
        raise RunError(
            f"the job measures what each party's data is worth (values = true), and {name}'s policy does not allow it; "
            "set values = true in its [policy], or remove the key from the job"
        )
    if own.policy.most_ids is not None and not job.job.private_ids:
        raise RunError(
            f"ids = {job.job.ids!r} lets the server compare {name}'s ids with any list, but {name}'s policy limits "
            'such lists (most_ids). Use ids = "private", or remove most_ids'
        )
    rows = table_rows(job, own, base)
    if (extended := _extended(job, runs)) is not None:
        rows.earlier = earlier_part(extended, own.party, job.job, job.to_job())

    secret = secret or own_secret(checkpoints)
    count = RoundCount(own, base, secret)
    # Terms that go on without a party allow sums over others: within this run.
    own_run = run_name(secret) if job.job.lost_party == "continue" else ""

    def accepted(terms: Terms) -> None:
        assert isinstance(terms, VerticalTerms)
        record_sum(terms, own, base, own_run)
        if on_terms is not None and len(terms.participants) == len(job.parts):
            on_terms(terms)

    def on_rows(places: Integers) -> None:
        count.policy.check_common(name, int((places >= 0).sum()))
        if checkpoints is not None:
            # With other rows in another attempt, the difference of two sums would tell about those that changed.
            checkpoints.answered_once()("the list of common rows", places.astype("<i8").tobytes())

    steps = party_steps(
        name,
        draft_terms(job),
        rows,
        replace(alignment_of(job), most_ids=own.policy.most_ids, own_least=own.policy.least_common),
        policy=count.policy,
        on_terms=accepted,
        on_rows=on_rows,
    )
    folder = identity_folder(own.identity, base)
    terms, model, session = yield from alone(
        steps, count.counted(training_runner(checkpoints)), partial(new_attempt, name, folder, checkpoints, run)
    )
    job = job.without(gone := [one for one in job.parts if one not in terms.participants])
    yield scoring_party(job, name, model, rows.matrix, terms, session)
    if terms.job.missing_party == "absent" and name != job.holder:
        yield AbsenceParty(name, _absence_scores(model, rows.encoder), outputs(terms))
    require_unchanged({rows.owner: rows.seen})
    return PartyEnd(name, terms, rows.encoder, model, rows.reference, rows.index, gone)


def _extended(job: FederationJob, runs: Path | None, *, at_server: bool = False) -> RunFolder | None:
    """Return this site's folder of the run that the job extends; None if there is none, or this site was not in it."""
    if job.job.extends is None:
        return None
    if runs is None:
        raise JobError("extends needs the folders of earlier runs, which this runtime does not keep")
    path = run_place(runs, job.job.extends, at_server=at_server)
    return RunFolder.open(path) if is_run(path) else None


def _absence_scores(model: Scorer, encoder: PartyEncoder) -> Array | None:
    """Return what a party adds to each score of a row that it lacks; None if it had all rows in training."""
    if not encoder.marks_absence:
        return None
    return np.ravel(model.predict(encoder.spread(without_rows(encoder.width_out), np.zeros(1, dtype=bool))))


def record_sum(terms: VerticalTerms, own: PartyFile, base: Path, run: str = "") -> None:
    """Record which parties' messages are added up behind masks; refuse others than in earlier jobs on this table.

    The label holder, which the server is trusted by, knows its own part of a sum over all parties.

    Parameters
    ----------
    run
        Name of a run that may have sums over several sets of parties.
    """
    members = terms.passive if terms.only_sums or len(terms.active) == 1 else terms.names
    if agrees_on_keys(terms) and own.party.name in members and len(members) > 1:
        Ledger(base).add_sum(data_name(own.party, base), run, members, own.policy.least_summed, nested=bool(run))


def server_program(
    job: FederationJob,
    holder: PartyFile,
    base: Path,
    transcript: Callable[[], Transcript],
    checkpoints: CheckpointManager | None = None,
    identity: Path | None = None,
    run: str = "",
    keep: KeepShares = forget_shares,
    runs: Path | None = None,
) -> Program[dict[str, Any]]:
    """Run the server's steps, then score the rows; return the content of `result.json`.

    Parameters
    ----------
    holder
        File of the party that holds the labels. Only ids, labels and groups are read from its table.
    transcript
        Returns the transcript of this site.
    identity
        Folder of the server's own identity; None is that of its start-up kit.
    keep
        Called with the server's shares of the parties' weights after training, to keep them for `predict --remote`.
    runs
        Folder of the server's runs, where it finds the run that the job extends.
    """
    if holder.party.name != job.holder or holder.party.label is None:
        raise JobError(f"the server needs the party file of {job.holder}, which holds the label in this job")
    _check_weight(job, holder)
    _require_secret(job, holder)
    rows = ServerRows(table_rows(job, holder, base))
    extended = _extended(job, runs, at_server=True)
    if job.job.extends is not None and extended is None:
        raise JobError(f"the server has no run {job.job.extends!r}, so no job can extend it")
    steps = server_steps(
        draft_terms(job),
        rows,
        alignment_of(job),
        start=lambda: None if extended is None else earlier_multipliers(extended),
    )
    folder = identity_folder(identity, base)
    attempt = partial(new_attempt, SERVER, folder, checkpoints, run)
    trained_by = yield from alone(steps, training_runner(checkpoints), attempt)
    terms, server, key, session, unseen, gone = trained_by
    del trained_by
    job = job.without([one.party for one in gone])
    found = terms.job.cut if choices_of_cut(terms) else None
    told, shares = (
        ServersWord(certified(server.certificate), server.proofs(), server.statistics(), unseen, found),
        server.weight_shares,
    )
    trained = server.present().scores if shares and not terms.job.finishes else None
    # Release the solver's server: it holds large arrays that are no longer needed.
    del server
    keep(shares)
    scoring = scoring_server(job, len(rows.test), terms, session, shares)
    yield scoring
    scores = joint_scores(scoring).T
    del scoring
    absence = AbsenceServer([name for name in job.parties if name != job.holder], outputs(terms))
    if terms.job.missing_party == "absent":
        yield absence
    trained_with = messages_of(transcript(), checkpoints)
    of_parts = {name: scores[part] for name, part in parts_of(rows.test).items()}
    if trained is not None:
        _check_same_scores(trained, of_parts["train"])
    result = vertical_result(terms, told, of_parts, rows.measured, trained_with, job.job)
    if job.job.values:
        result[HELD_OUT] = held_out_losses(terms, rows, of_parts)
    if (stated := label_statement(terms, key)) is not None:
        result["privacy"] = {job.holder: stated.as_dict()}
    if gone:
        result[GONE] = [one._asdict() for one in gone]
        result["certificate"]["without"] = ", ".join(f"{one.party} (gone in round {one.round})" for one in gone)
    if terms.job.missing_party == "absent":
        result["absence"] = {name: None if one is None else one.tolist() for name, one in absence.scores.items()}
    return result


def held_out_losses(terms: VerticalTerms, rows: ServerRows, scores: Mapping[str, Array]) -> dict[str, Any]:
    """Return the loss of each held-out row, for the server's own folder, and a checksum that names the rows."""
    if "test" not in scores:
        raise DataError("no rows are held out to measure values on; set test_fraction in [job]")
    measured = rows.measured["test"]
    losses = terms.job.loss_function.value(scores["test"], measured.labels)
    weights = np.ones(len(losses)) if measured.sample_weight is None else measured.sample_weight
    named = hashlib.blake2b(measured.labels.tobytes() + np.packbits(rows.test).tobytes(), digest_size=16)
    return {"losses": losses.tolist(), "weights": weights.tolist(), "rows": named.hexdigest()}


def _check_same_scores(trained: Array, scores: Array) -> None:
    """Refuse shares of weights that score the training rows otherwise than training did."""
    if not np.abs(trained - scores).max(initial=0.0) <= SAME_SCORES:
        raise RunError(
            "the shares of weights score the training rows otherwise than training did: a share or a triple is wrong, "
            "of a passive party or of the dealer. Train again, and find out who was wrong if it happens again"
        )


def draft_terms(job: FederationJob) -> VerticalTerms:
    """Return the terms as far as they follow from the job alone."""
    return vertical_terms(job.to_job(), job.parts, 0, {})


def alignment_of(job: FederationJob) -> Alignment:
    """Return how the job's parties find their common rows."""
    return Alignment(job.parties, job.holder, job.job.ids, job.job.least_common)


def table_rows(job: FederationJob, own: PartyFile, base: Path) -> TableRows:
    """Return the rows of the table that a party's own file names."""
    limits = own.policy.limits
    return TableRows(own.party, job.job, base, job.to_job(), text_ids=job.job.text_ids, limits=limits)


def _require_secret(job: FederationJob, holder: PartyFile) -> None:
    """Refuse label privacy without a secret file; party and server draw randomised responses from the same file."""
    if job.job.label_privacy is not None and (holder.party.label is None or holder.party.label.secret is None):
        raise JobError(
            f"the job has label_privacy, but {job.holder}'s own file names no secret for the randomised responses; "
            'add secret = "labels.secret" to [party.label]; the file is created if it does not exist'
        )


def _check_weight(job: FederationJob, own: PartyFile) -> None:
    """Refuse row weights that another participant needs but does not receive."""
    if own.party.weight is None:
        return
    check_takes_weights(job.to_job())
    if list(job.parts.values()).count("active") > 1:
        raise JobError(
            "row weights are not sent between organisations; a weight column needs a job with a single active party"
        )


def scoring_server(
    job: FederationJob,
    n_rows: int,
    terms: VerticalTerms,
    session: Session | None,
    shares: Mapping[str, WeightShare],
    batch: int = 0,
) -> Role:
    """Return the server's role in scoring; where masks hide scores in training, only sums over parties arrive."""
    if agrees_on_keys(terms):
        return protected.scoring_server(terms, n_rows, session, shares, batch)
    return ScoreServer(job.parties, n_rows, job.holder if job.crosses_trees else None, outputs(terms))


def joint_scores(scoring: Role) -> Array:
    """Return the sum of all parties' scores after scoring."""
    server = innermost(scoring)
    assert isinstance(server, ScoreServer)
    return server.scores


def scoring_party(
    job: FederationJob,
    name: str,
    model: Scorer,
    matrix: Matrix,
    terms: VerticalTerms,
    session: Session | None,
    batch: int = 0,
    people: str = "",
) -> Role:
    """Return a party's role in scoring; only the label holder can evaluate trees that cross parties."""
    if agrees_on_keys(terms):
        return protected.scoring_party(terms, name, model, matrix, session, batch, people)
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
    """What a dealer has at the end of the run."""

    terms: VerticalTerms

    def write(self, _: RunFolder) -> dict[str, Any]:
        """Return the content of the dealer's `result.json`; the dealer saves nothing else."""
        return {"terms": self.terms.digest}


def dealer_program(
    job: FederationJob,
    own: PartyFile,
    base: Path,
    on_terms: Callable[[Terms], None] | None = None,
    checkpoints: CheckpointManager | None = None,
    run: str = "",
) -> Program[DealerEnd]:
    """Run the dealer's steps; see `party_program` for the parameters.

    The dealer has no data: it gives the parties correlated random numbers. It accepts the terms by its own policy, and
    learns the number of rows and each party's number of columns.
    """
    name = own.party.name
    if job.parts.get(name) != "dealer":
        raise JobError(f"{name} is not the dealer of this job, but its own file says so; change one of the two files")
    steps = dealer_steps(name, draft_terms(job), policy=own.policy.to_policy(), on_terms=on_terms)
    attempt = partial(new_attempt, name, identity_folder(own.identity, base), checkpoints, run)
    terms, session = yield from alone(steps, training_runner(checkpoints), attempt)
    if terms.shares_weights:
        yield protected.scoring_dealer(terms, session)
    return DealerEnd(terms)
