"""Vertical jobs: load the tables of all participants in one process, train, and write the run folder."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import pandas as pd

from evenhand.arrays import Array, Booleans, Integers, Matrix
from evenhand.constraints.proving import Proof
from evenhand.constraints.thresholds import Cut
from evenhand.data.tables.encoding import PartyEncoder
from evenhand.data.tables.party_tables import (
    PartyTable,
    SeenTable,
    require_unchanged,
    with_one_kind_of_ids,
)
from evenhand.data.tables.reference import Reference
from evenhand.errors import DataError
from evenhand.jobs.cuts import chosen_cut, cut_by_group, searched_cut
from evenhand.jobs.folder import FinishedRun, check_place, job_content, record_in
from evenhand.jobs.quality import QualityRows, check_measurable, not_shown, quality
from evenhand.jobs.results import later_shortfalls, recalibrated, run_result
from evenhand.jobs.tables import absent_rows, not_used, parts_of
from evenhand.jobs.vertical.extending import check_extended, earlier_multipliers, earlier_part
from evenhand.jobs.vertical.file import VerticalJobFile, VerticalJobSection
from evenhand.jobs.vertical.rows import TableRows
from evenhand.models.base import Scorer
from evenhand.models.importances import permutation_importances
from evenhand.models.learned import LearnedModel
from evenhand.models.linear import LinearModel
from evenhand.models.saved import joint_scores, to_state
from evenhand.models.trees import TreesModel
from evenhand.protocol.align import How, held_places
from evenhand.protocol.roles import SERVER, Report
from evenhand.protocol.solver import Certificate
from evenhand.protocol.terms import Part, VerticalTerms
from evenhand.protocol.transcript import Transcript
from evenhand.runtime.folder import RunFolder
from evenhand.solvers.roles import vertical_terms
from evenhand.solvers.statement import disclosure
from evenhand.training.together import Together
from evenhand.training.vertical import VerticalRun, train_together
from evenhand.training.vertical_sources import Alignment, HowAligned, common_rows, named_problem
from evenhand.training.vertical_steps import VerticalTraining, steps_together
from evenhand.vertical.problem import PartyColumns, PartyData
from evenhand.vertical.server import UnseenScores


@dataclass(frozen=True, eq=False)
class VerticalTables:
    """All parties' tables, aligned and encoded, and their steps up to training.

    Attributes
    ----------
    rows
        Each party's own rows, in the order of the job.
    together
        Steps of all participants; training continues them.
    keeps_all
        Whether all rows of the label holder are kept, also those that other parties lack.
    """

    rows: Mapping[str, TableRows]
    together: Together[VerticalTraining]
    holder: str
    keeps_all: bool = False

    @property
    def stages(self) -> Mapping[str, VerticalTraining]:
        """Each participant's training stage, by name."""
        return self.together.to_training()

    @property
    def terms(self) -> VerticalTerms:
        """The terms that all participants have accepted."""
        return self.stages[SERVER].terms

    @property
    def ids(self) -> pd.Index:
        """Ids of the common rows."""
        return self.rows[self.holder].index

    @property
    def test(self) -> Booleans:
        """Which rows are held out."""
        return self.rows[self.holder].test

    @property
    def held(self) -> QualityRows:
        """Labels and groups of all rows."""
        return self.rows[self.holder].held

    @property
    def encoders(self) -> dict[str, PartyEncoder]:
        """Each party's own encoder, fitted on its training rows."""
        return {name: one.encoder for name, one in self.rows.items()}

    @property
    def matrices(self) -> dict[str, Matrix]:
        """Each party's encoded columns for all rows."""
        return {name: one.matrix for name, one in self.rows.items()}

    @property
    def seen(self) -> dict[str, SeenTable]:
        """The state of each table when it was read, by owner."""
        return {one.owner: one.seen for one in self.rows.values()}

    @property
    def sizes(self) -> dict[str, int]:
        """Number of rows of each party's own table."""
        return {name: one.size for name, one in self.rows.items()}

    @property
    def there(self) -> dict[str, int]:
        """Number of the common rows that each party has."""
        return {name: int(one.there.sum()) for name, one in self.rows.items()}

    def not_used(self) -> list[str]:
        """Return a remark on rows that not every party has, if there are any."""
        if self.keeps_all:
            return absent_rows(self.there, len(self.ids), "used")
        return not_used(self.sizes, len(self.ids), "used")

    def training_columns(self) -> list[PartyColumns]:
        """Each party's encoded training rows."""
        found = []
        for name in self.rows:
            own = self.stages[name].own
            assert isinstance(own, PartyData)
            found.append(PartyColumns(name, own.matrix, name in self.terms.active, own.categorical, own.signs))
        return found

    def parts(self) -> dict[str, Booleans]:
        return parts_of(self.test)

    def labelled(self) -> dict[str, QualityRows]:
        """Rows of each part, to measure quality on."""
        return self.rows[self.holder].labelled()

    def not_shown(self) -> list[str]:
        """Return a remark if nothing will be shown for new people, unless the job file asks for that."""
        asked = self.rows[self.holder].asks_for_test_rows
        return not_shown({"in common": len(self.ids)}, self.test, self.labelled(), asked)


class _RowsHere(TableRows):
    """A party's rows if all parties are in this process, so that an error can name ids."""

    everybody: Mapping[str, TableRows]

    def unaligned(self, problem: str, _: Integers) -> DataError:
        ids = {name: one.open().known.index for name, one in self.everybody.items()}
        return _in_words_of_a_job(named_problem(ids, _how(self._section.ids), problem))


def load_vertical_tables(job: VerticalJobFile, base: Path, transcript: Transcript | None = None) -> VerticalTables:
    """Read and check everything a job needs, before anything is trained or written.

    Parameters
    ----------
    transcript
        Records the messages; None creates a new one.
    """
    trained, holder = job.to_job(), job.label_party.name
    extended = None if job.job.extends is None else RunFolder.open(base / Path(job.job.extends).expanduser())
    if extended is not None:
        check_extended(extended, [party.name for party in job.party])
    rows = {
        party.name: _RowsHere(
            party,
            job.job,
            base,
            trained,
            earlier=None if extended is None else earlier_part(extended, party, job.job, trained),
        )
        for party in job.party
    }
    for one in rows.values():
        one.everybody = rows
        one.look()
    parts: dict[str, Part] = {party.name: party.role for party in job.party}
    draft = vertical_terms(trained, parts, 0, {})
    opened = with_one_kind_of_ids({name: one.open() for name, one in rows.items()})
    for name, one in rows.items():
        one.table = opened[name]
    del opened
    alignment = Alignment(list(rows), holder, job.job.ids, job.job.least_common)
    steps = steps_together(draft, rows, alignment, lambda: None if extended is None else earlier_multipliers(extended))
    tables = VerticalTables(rows, Together(steps, transcript), holder, alignment.left)
    tables.together.to_training()
    return tables


def align_parties(
    tables: Mapping[str, PartyTable], ids: HowAligned, holder: str | None = None
) -> dict[str, PartyTable]:
    """Align tables to the same rows in the same order, by an exchange between the parties; see `common_rows`.

    With ``"left"`` a party has only those of the label holder's rows that are in its table. The tables are all in this
    process, so private ids need no blinding.
    """
    tables = with_one_kind_of_ids(tables)
    try:
        places = common_rows({name: table.known.index for name, table in tables.items()}, _how(ids), holder)
    except DataError as error:
        raise _in_words_of_a_job(error) from error
    return {name: table.taken(held_places(places[name])) for name, table in tables.items()}


def _how(ids: HowAligned) -> How:
    """Return which rows are kept: private ids keep the common ones, or all of the label holder."""
    known: dict[HowAligned, How] = {"private": "inner", "private-left": "left", "hidden-left": "left"}
    return known.get(ids, ids)  # type: ignore[arg-type]


def _in_words_of_a_job(error: DataError) -> DataError:
    """Replace the function's argument in an error message by the key of the job file."""
    return DataError(str(error).replace('how="inner"', 'ids = "inner" in [job]'))


FinishedVerticalRun: TypeAlias = FinishedRun[VerticalRun]


def run_vertical_job(
    job: VerticalJobFile,
    base: Path,
    out: Path,
    *,
    resume: bool = False,
    on_round: Callable[[Report], None] | None = None,
    checkpoint_seconds: float = 10.0,
    tables: VerticalTables | None = None,
) -> FinishedVerticalRun:
    """Train a job and write a run folder.

    Parameters
    ----------
    base
        Folder that relative paths in the job start from.
    resume
        Resume the run in `out` if there is one; otherwise an existing folder is an error.
    tables
        The job's tables, if they have been loaded already.
    """
    check_place(out, resume)
    tables = load_vertical_tables(job, base) if tables is None else tables
    check_measurable(tables.labelled())
    with record_in(out, job_content(job), base, resume) as folder:
        run = train_together(
            tables.together,
            runtime=job.job.runtime,
            clock=job.to_clock(),
            folder=folder,
            checkpoint_seconds=checkpoint_seconds,
            on_round=on_round,
        )
        require_unchanged(tables.seen)
        for name, model in run.models.items():
            write_party(folder, name, tables.encoders[name], model, tables.rows[name].reference)
        result = _result(run, tables, job.job)
        if run.label_privacy is not None:
            result["privacy"] = {tables.holder: run.label_privacy.as_dict()}
        folder.finish(result)
    return FinishedVerticalRun(run, folder, result)


def write_party(folder: RunFolder, name: str, encoder: PartyEncoder, model: Scorer, reference: Reference) -> None:
    """Write a party's part of the model to the party's own folder."""
    folder.write_party(name, "encoder", encoder.to_state())
    folder.write_party(name, "reference", reference.to_state())
    folder.write_party(name, "weights", to_state(model))
    if isinstance(model, LinearModel) and model.uncertainty is not None:
        spread = model.uncertainty()
        # A mark of rows that the party lacks is one more weight.
        if spread is not None and len(spread) == encoder.width_out and (bands := encoder.bands(spread)):
            folder.write_party(name, "bands", {"columns": bands})
    if isinstance(model, LearnedModel) and model.matrix is not None:
        found = permutation_importances(model, model.matrix)
        if found is not None:
            table = dict(zip(encoder.feature_names_out, found.tolist(), strict=True))
            folder.write_party(name, "importances", table)
    if isinstance(model, TreesModel):
        folder.write_trees(name, "trees", model.text)
        if model.splits:
            folder.write_trees(name, "splits", model.splits_text)


def _of_parts(run: VerticalRun, tables: VerticalTables) -> dict[str, Array]:
    scores = joint_scores(run.models, tables.matrices).T
    return {name: scores[rows] for name, rows in tables.parts().items()}


def _result(run: VerticalRun, tables: VerticalTables, section: VerticalJobSection) -> dict[str, Any]:
    told = ServersWord(run.certificate, run.proofs, run.statistics, run.unseen_scores, run.cut)
    of_parts = _of_parts(run, tables)
    return vertical_result(tables.terms, told, of_parts, tables.labelled(), run.transcript, section)


class ServersWord(NamedTuple):
    """Results that the server reports at the end of a run."""

    certificate: Certificate
    proofs: Sequence[Proof]
    statistics: Mapping[str, Any]
    unseen_scores: UnseenScores | None
    cut: float | None = None
    """The cut that earlier trainings of the run have found, if they looked for one."""


def vertical_result(
    terms: VerticalTerms,
    told: ServersWord,
    scores: Mapping[str, Array],
    rows: Mapping[str, QualityRows],
    transcript: Transcript,
    section: VerticalJobSection,
) -> dict[str, Any]:
    """Return the content of `result.json` for a vertical run; scores and rows are by part of the data."""
    job, labels, threshold = terms.job, rows["train"].names, section.to_threshold()
    if job.classes:
        cut = Cut()
    elif told.cut is None:
        cut = chosen_cut(threshold, rows["train"].labels, scores["train"], told.unseen_scores)
    else:
        cut = searched_cut(job, told.cut, told.unseen_scores)
    cut = cut_by_group(cut, job, rows["train"], scores["train"], told.unseen_scores)
    groups = rows["train"].groups
    result = {
        **run_result(job, told.certificate, told.proofs, labels, scores["train"], transcript, cut, groups),
        **quality(rows, scores, constraints=job.asked, cut=cut),
        **recalibrated(job, rows, scores, told.unseen_scores),
        "statistics": dict(told.statistics),
        "disclosure": disclosure(job, terms.participants, marks=section.hides_presence),
    }
    result["shortfalls"] += later_shortfalls(job, result)
    return result
