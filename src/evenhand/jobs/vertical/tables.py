"""From parties' tables to columns ready for training: read, align by id, hold out test rows, encode."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import pandas as pd

from evenhand.arrays import Array, Booleans, Matrix
from evenhand.constraints import bind
from evenhand.data.tables.encoding import PartyEncoder
from evenhand.data.tables.party_tables import PartyTable, align_tables, open_table
from evenhand.data.tables.unchanged import SeenTable
from evenhand.errors import DataError
from evenhand.jobs.labels import Labels, label_column, two_labels
from evenhand.jobs.quality import QualityRows
from evenhand.jobs.tables import hold_out, naming
from evenhand.jobs.vertical.file import PartySection, VerticalJobFile, table_source
from evenhand.vertical.problem import PartyColumns


@dataclass(frozen=True, eq=False)
class VerticalTables:
    """Aligned, encoded tables of all parties, with training and test rows apart.

    Attributes
    ----------
    encoders
        Each party's own, fitted on its training rows.
    matrices
        Each party's encoded columns for all rows.
    signs
        ±1, +1 for the positive label.
    sensitive
        One column for each sensitive attribute; None where no party names any.
    test
        Which rows are held out.
    seen
        What each table was when it was read, by whose it is.
    """

    ids: pd.Index
    active: Mapping[str, bool]
    encoders: Mapping[str, PartyEncoder]
    matrices: Mapping[str, Matrix]
    labels: Labels
    signs: Array
    sensitive: pd.DataFrame | None
    test: Booleans
    seen: Mapping[str, SeenTable]

    def training_columns(self) -> list[PartyColumns]:
        # Choosing rows copies them: not where all are chosen.
        if not self.test.any():
            return [PartyColumns(name, matrix, self.active[name]) for name, matrix in self.matrices.items()]
        train = np.flatnonzero(~self.test)
        return [PartyColumns(name, matrix[train], self.active[name]) for name, matrix in self.matrices.items()]

    def parts(self) -> dict[str, Booleans]:
        """Which rows are ``"train"`` and which ``"test"`` rows, if there are any."""
        parts = {"train": ~self.test, "test": self.test}
        return {name: rows for name, rows in parts.items() if rows.any()}

    def labelled(self) -> dict[str, QualityRows]:
        """The same parts, to measure quality on."""
        return {
            name: QualityRows(self.labels, self.signs[rows], None if self.sensitive is None else self.sensitive[rows])
            for name, rows in self.parts().items()
        }


def load_vertical_tables(job: VerticalJobFile, base: Path) -> VerticalTables:
    """Read and check everything a job needs, before anything is trained or written."""
    names = [party.name for party in job.party]
    seen = {f"party {party.name!r}": _look(party, base) for party in job.party}
    opened = [_open(party, base) for party in job.party]
    tables = dict(zip(names, align_parties(opened, names, job.job.ids), strict=True))
    # What was read before it was aligned is held no longer.
    del opened
    ids = tables[names[0]].known.index
    test = hold_out(ids, job.job.test_fraction, job.job.seed)
    holder = job.label_party
    with naming(f"party {holder.name!r}"):
        labels, signs = _labels(tables[holder.name], holder)
        sensitive = tables[holder.name].known[holder.sensitive] if holder.sensitive else None
        if len(set(signs[~test])) < 2:
            raise DataError("the training rows all have one label; hold out fewer test rows, or choose another seed")
        # Bound here once, so that an empty slice or a single group is found before training.
        bind(job.to_job().constraints, signs[~test], None if sensitive is None else sensitive[~test])
    encoders, matrices = {}, {}
    for party in job.party:
        with naming(f"party {party.name!r}"):
            # Taken out of the rest, so that a raw table is let go as soon as it is encoded.
            encoders[party.name], matrices[party.name] = tables.pop(party.name).encode(~test, job.job.scale)
    active = {party.name: party.role == "active" for party in job.party}
    return VerticalTables(ids, active, encoders, matrices, labels, signs, sensitive, test, seen)


def _look(party: PartySection, base: Path) -> SeenTable:
    with naming(f"party {party.name!r}"):
        return SeenTable.of(table_source(party, base))


def _open(party: PartySection, base: Path) -> PartyTable:
    """A party's table; label and sensitive columns are features only if they are named."""
    label = [] if party.label is None else [party.label.column]
    with naming(f"party {party.name!r}"):
        table = open_table(table_source(party, base), party.columns, [*label, *party.sensitive])
        for column in party.sensitive:
            if column not in table.known.columns:
                raise DataError(f"no sensitive column {column!r}; there is {', '.join(map(repr, table.names))}")
    return table


def _labels(table: PartyTable, party: PartySection) -> tuple[Labels, Array]:
    assert party.label is not None
    values = label_column(table.known, party.label, table.names)
    labels = two_labels([values], party.label)
    return labels, labels.signs(values)


def align_parties(
    tables: Sequence[PartyTable], names: Sequence[str], how: Literal["equal", "inner"]
) -> list[PartyTable]:
    try:
        return align_tables(tables, names, how)
    except DataError as error:
        # The advice is in the words of the function; a job file says it with a key.
        raise DataError(str(error).replace('how="inner"', 'ids = "inner" in [job]')) from error
