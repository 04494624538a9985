"""From parties' tables to columns ready for training: read, align by id, hold out test rows, encode."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from evenhand.arrays import Array, Booleans, Matrix
from evenhand.constraints import Constraint, bind, groups_frame
from evenhand.constraints.small_slices import warn_of_small_slices
from evenhand.data.tables.encoding import PartyEncoder
from evenhand.data.tables.party_tables import PartyTable, open_table, with_one_kind_of_ids
from evenhand.data.tables.unchanged import SeenTable
from evenhand.errors import DataError
from evenhand.jobs.labels import Classes, Labels, label_column, two_labels
from evenhand.jobs.quality import QualityRows
from evenhand.jobs.tables import hold_out, naming, parts_of, tell
from evenhand.jobs.vertical.file import PartySection, VerticalJobFile, table_source
from evenhand.printing import listed
from evenhand.protocol.align import How
from evenhand.protocol.terms import Part, VerticalTerms
from evenhand.protocol.transcript import Transcript
from evenhand.training.preparing import Preparation, take_rows
from evenhand.vertical.problem import PartyColumns
from evenhand.vertical.solvers import vertical_terms


@dataclass(frozen=True, eq=False)
class VerticalTables:
    """Aligned, encoded tables of all parties, with training and test rows apart.

    Attributes
    ----------
    terms, transcript
        What the parties have agreed on, and the messages of the exchanges that led there.
    encoders
        Each party's own, fitted on its training rows.
    matrices
        Each party's encoded columns for all rows.
    signs
        ±1, +1 for the positive label.
    sensitive
        One column for each sensitive attribute; None where no party names any.
    people
        How many people each row stands for, where the job names a weight.
    test
        Which rows are held out.
    seen
        What each table was when it was read, by whose it is.
    sizes
        How many rows each party's own table has.
    """

    ids: pd.Index
    terms: VerticalTerms
    transcript: Transcript
    encoders: Mapping[str, PartyEncoder]
    matrices: Mapping[str, Matrix]
    labels: Labels | Classes
    signs: Array
    sensitive: pd.DataFrame | None
    people: Array | None
    test: Booleans
    seen: Mapping[str, SeenTable]
    sizes: Mapping[str, int]

    def training_columns(self) -> list[PartyColumns]:
        # Choosing rows copies them: not where all are chosen.
        rows = np.flatnonzero(~self.test) if self.test.any() else slice(None)
        return [
            PartyColumns(
                name,
                matrix if isinstance(rows, slice) else matrix[rows],
                name in self.terms.active,
                self.encoders[name].categorical,
            )
            for name, matrix in self.matrices.items()
        ]

    def parts(self) -> dict[str, Booleans]:
        return parts_of(self.test)

    def labelled(self) -> dict[str, QualityRows]:
        """The rows of each part, to measure quality on."""
        return by_part(QualityRows(self.labels, self.signs, self.sensitive, self.people), self.test)


def load_vertical_tables(job: VerticalJobFile, base: Path) -> VerticalTables:
    """Read and check everything a job needs, before anything is trained or written."""
    names = [party.name for party in job.party]
    seen = {f"party {party.name!r}": _look(party, base) for party in job.party}
    parts: dict[str, Part] = {party.name: party.role for party in job.party}
    trained, preparation = job.to_job(), Preparation()
    preparation.enrol(vertical_terms(trained, parts, 0, {}))
    opened = {party.name: open_party(party, base) for party in job.party}
    sizes = {name: len(table.known) for name, table in opened.items()}
    tables = align_parties(opened, job.job.ids, preparation)
    del opened
    ids = tables[names[0]].known.index
    test = hold_out(ids, job.job.test_fraction, job.job.seed)
    holder = job.label_party
    with naming(f"party {holder.name!r}"):
        held = held_labels(tables[holder.name], holder, test, trained.constraints)
        known = None if held.sensitive is None else held.sensitive[~test]
        terms = preparation.vertical_terms(trained, parts, holder.name, held.signs[~test], known)
    encoders, matrices = {}, {}
    for party in job.party:
        with naming(f"party {party.name!r}"):
            # Taken out of the rest, so that a raw table is let go as soon as it is encoded.
            table = tables.pop(party.name)
            encoders[party.name], matrices[party.name] = table.encode(
                ~test, job.job.scale, trained.model == "trees", party.to_rules()
            )
            del table
        tell(f"party {party.name!r}", encoders[party.name].remarks)
    labelled = held.labels, held.signs, held.sensitive, held.people
    return VerticalTables(ids, terms, preparation.transcript, encoders, matrices, *labelled, test, seen, sizes)


def _look(party: PartySection, base: Path) -> SeenTable:
    with naming(f"party {party.name!r}"):
        return SeenTable.of(table_source(party, base))


def open_party(party: PartySection, base: Path) -> PartyTable:
    """A party's table; label and sensitive columns are features only if they are named."""
    label = [] if party.label is None else [party.label.column]
    weight = [] if party.weight is None else [party.weight]
    with naming(f"party {party.name!r}"):
        table = open_table(table_source(party, base), party.columns, [*label, *party.sensitive, *weight])
        for column in party.sensitive:
            if column not in table.known.columns:
                raise DataError(f"no sensitive column {column!r}; there is {listed(table.names)}")
    return table


def held_labels(
    table: PartyTable, party: PartySection, test: Booleans, constraints: Sequence[Constraint]
) -> QualityRows:
    """Labels and groups of all rows, from the party that holds them; what cannot be trained on is refused."""
    assert party.label is not None
    values = label_column(table.known, party.label, table.names)
    labels = two_labels([values], party.label)
    signs = labels.signs(values)
    sensitive = table.known[party.sensitive] if party.sensitive else None
    if len(set(signs[~test])) < 2:
        raise DataError("the training rows all have one label; hold out fewer test rows, or choose another seed")
    known = None if sensitive is None else sensitive[~test]
    # Bound here once, so that an empty slice or a single group is found before training.
    bind(constraints, signs[~test], known)
    warn_of_small_slices(constraints, signs[~test], groups_frame(known, int((~test).sum())))
    people = None if party.weight is None else weight_column(table.known, party.weight, table.names)
    if people is not None and not people[~test].any():
        raise DataError(f"weight column {party.weight!r} is zero in all training rows")
    return QualityRows(labels, signs, sensitive, people)


def weight_column(table: pd.DataFrame, name: str, names: Sequence[str]) -> Array:
    """How many people each row stands for; `names` are all columns there are, for the error message."""
    if name not in table.columns:
        raise DataError(f"weight column {name!r} is not in the table; there is {listed(names)}")
    people: Array = pd.to_numeric(table[name], errors="coerce").to_numpy(np.float64)
    if wrong := int((~(np.isfinite(people) & (people >= 0))).sum()):
        raise DataError(f"weight column {name!r} has {wrong} values that are no number of zero or more")
    return people


def by_part(rows: QualityRows, test: Booleans) -> dict[str, QualityRows]:
    """The rows of each part that has any, to measure quality on."""
    return {name: rows.some(part) for name, part in parts_of(test).items()}


def align_parties(tables: Mapping[str, PartyTable], how: How, preparation: Preparation) -> dict[str, PartyTable]:
    """Bring tables onto the same rows in the same order, by an exchange between the parties."""
    tables = with_one_kind_of_ids(tables)
    try:
        places = preparation.align({name: table.known.index for name, table in tables.items()}, how)
    except DataError as error:
        # The advice is in the words of the function; a job file says it with a key.
        raise DataError(str(error).replace('how="inner"', 'ids = "inner" in [job]')) from error
    first = next(iter(tables))
    ids = take_rows(tables[first].known, places[first]).index
    return {name: table.aligned(ids) for name, table in tables.items()}
