"""Load the tables of a vertical job, with all parties in one process."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from evenhand.arrays import Booleans, Integers, Matrix
from evenhand.data.tables.encoding import PartyEncoder
from evenhand.data.tables.party_tables import PartyTable, SeenTable, with_one_kind_of_ids
from evenhand.errors import DataError
from evenhand.jobs.quality import QualityRows
from evenhand.jobs.tables import parts_of
from evenhand.jobs.vertical.file import VerticalJobFile
from evenhand.jobs.vertical.rows import TableRows
from evenhand.protocol.align import How
from evenhand.protocol.roles import SERVER
from evenhand.protocol.terms import Part, VerticalTerms
from evenhand.protocol.transcript import Transcript
from evenhand.solvers.roles import vertical_terms
from evenhand.training.together import Together
from evenhand.training.vertical_sources import Alignment, common_rows, named_problem
from evenhand.training.vertical_steps import VerticalTraining, steps_together
from evenhand.vertical.problem import PartyColumns, PartyData


@dataclass(frozen=True, eq=False)
class VerticalTables:
    """All parties' tables, aligned and encoded, and their steps up to training.

    Attributes
    ----------
    rows
        Each party's own rows, in the order of the job.
    together
        Steps of all participants; training continues them.
    """

    rows: Mapping[str, TableRows]
    together: Together[VerticalTraining]
    holder: str

    @property
    def stages(self) -> Mapping[str, VerticalTraining]:
        """Each participant's training stage, by name."""
        return self.together.to_training()

    @property
    def terms(self) -> VerticalTerms:
        """The terms that all participants have accepted."""
        return self.stages[SERVER].terms

    @property
    def transcript(self) -> Transcript:
        return self.together.transcript

    @property
    def ids(self) -> pd.Index:
        return next(iter(self.rows.values())).index

    @property
    def test(self) -> Booleans:
        """Which rows are held out."""
        return next(iter(self.rows.values())).test

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

    def training_columns(self) -> list[PartyColumns]:
        """Each party's encoded training rows."""
        found = []
        for name in self.rows:
            own = self.stages[name].own
            assert isinstance(own, PartyData)
            found.append(PartyColumns(name, own.matrix, name in self.terms.active, own.categorical))
        return found

    def parts(self) -> dict[str, Booleans]:
        return parts_of(self.test)

    def labelled(self) -> dict[str, QualityRows]:
        """Rows of each part, to measure quality on."""
        return self.rows[self.holder].labelled()


class _RowsHere(TableRows):
    """A party's rows if all parties are in this process, so that an error can name ids."""

    everybody: Mapping[str, TableRows]

    def unaligned(self, problem: str, _: Integers) -> DataError:
        ids = {name: one.open().known.index for name, one in self.everybody.items()}
        return _in_words_of_a_job(named_problem(ids, self._section.ids, problem))


def load_vertical_tables(job: VerticalJobFile, base: Path, transcript: Transcript | None = None) -> VerticalTables:
    """Read and check everything a job needs, before anything is trained or written.

    Parameters
    ----------
    transcript
        Records the messages; None creates a new one.
    """
    trained, holder = job.to_job(), job.label_party.name
    rows = {party.name: _RowsHere(party, job.job, base, trained) for party in job.party}
    for one in rows.values():
        one.everybody = rows
        one.look()
    parts: dict[str, Part] = {party.name: party.role for party in job.party}
    draft = vertical_terms(trained, parts, 0, {})
    opened = with_one_kind_of_ids({name: one.open() for name, one in rows.items()})
    for name, one in rows.items():
        one.table = opened[name]
    del opened
    alignment = Alignment(list(rows), holder, job.job.ids)
    tables = VerticalTables(rows, Together(steps_together(draft, rows, alignment), transcript), holder)
    tables.together.to_training()
    return tables


def align_parties(tables: Mapping[str, PartyTable], how: How) -> dict[str, PartyTable]:
    """Align tables to the same rows in the same order, by an exchange between the parties."""
    tables = with_one_kind_of_ids(tables)
    try:
        places = common_rows({name: table.known.index for name, table in tables.items()}, how)
    except DataError as error:
        raise _in_words_of_a_job(error) from error
    return {name: table.taken(places[name]) for name, table in tables.items()}


def _in_words_of_a_job(error: DataError) -> DataError:
    """Replace the function's argument in an error message by the key of the job file."""
    return DataError(str(error).replace('how="inner"', 'ids = "inner" in [job]'))
