"""From parties' tables to columns ready for training: read, align by id, hold out test rows, encode."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

import numpy as np
import pandas as pd

from evenhand.arrays import Array, Booleans, Matrix
from evenhand.constraints import bind
from evenhand.data.splits import held_out
from evenhand.data.tables.encoding import PartyEncoder
from evenhand.data.tables.party_tables import PartyTable, align_tables, open_table
from evenhand.errors import ConstraintError, DataError
from evenhand.jobs.vertical.file import PartySection, VerticalJobFile, table_source
from evenhand.vertical.problem import PartyColumns

# A job file may say "true" in quotes of a column that holds booleans.
_WORDS: Final = {"true": True, "false": False}


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
    negative, positive
        The two labels.
    """

    ids: pd.Index
    active: Mapping[str, bool]
    encoders: Mapping[str, PartyEncoder]
    matrices: Mapping[str, Matrix]
    signs: Array
    sensitive: pd.DataFrame | None
    test: Booleans
    negative: Any
    positive: Any

    def training_columns(self) -> list[PartyColumns]:
        # Choosing rows copies them: not where all are chosen.
        if not self.test.any():
            return [PartyColumns(name, matrix, self.active[name]) for name, matrix in self.matrices.items()]
        train = np.flatnonzero(~self.test)
        return [PartyColumns(name, matrix[train], self.active[name]) for name, matrix in self.matrices.items()]


def load_tables(job: VerticalJobFile, base: Path) -> VerticalTables:
    """Read and check everything a job needs, before anything is trained or written."""
    names = [party.name for party in job.party]
    opened = [_open(party, base) for party in job.party]
    tables = dict(zip(names, align_parties(opened, names, job.job.ids), strict=True))
    # What was read before it was aligned is held no longer.
    del opened
    ids = tables[names[0]].known.index
    test = _held_out(ids, job.job.test_fraction, job.job.seed)
    holder = job.label_party
    with naming(holder.name):
        signs, negative, positive = _labels(tables[holder.name], holder)
        sensitive = tables[holder.name].known[holder.sensitive] if holder.sensitive else None
        if len(set(signs[~test])) < 2:
            raise DataError("the training rows all have one label; hold out fewer test rows, or choose another seed")
        # Bound here once, so that an empty slice or a single group is found before training.
        bind(job.to_job().constraints, signs[~test], None if sensitive is None else sensitive[~test])
    encoders, matrices = {}, {}
    for party in job.party:
        with naming(party.name):
            # Taken out of the rest, so that a raw table is let go as soon as it is encoded.
            encoders[party.name], matrices[party.name] = tables.pop(party.name).encode(~test, job.job.scale)
    active = {party.name: party.role == "active" for party in job.party}
    return VerticalTables(ids, active, encoders, matrices, signs, sensitive, test, negative, positive)


def _open(party: PartySection, base: Path) -> PartyTable:
    """A party's table; label and sensitive columns are features only if they are named."""
    label = [] if party.label is None else [party.label.column]
    with naming(party.name):
        table = open_table(table_source(party, base), party.columns, [*label, *party.sensitive])
        for column in party.sensitive:
            if column not in table.known.columns:
                raise DataError(f"no sensitive column {column!r}; there is {', '.join(map(repr, table.names))}")
    return table


@contextmanager
def naming(party: str) -> Iterator[None]:
    """Say whose table an error is about."""
    try:
        yield
    except (DataError, ConstraintError) as error:
        raise type(error)(f"party {party!r}: {error}") from error


def align_parties(
    tables: Sequence[PartyTable], names: Sequence[str], how: Literal["equal", "inner"]
) -> list[PartyTable]:
    try:
        return align_tables(tables, names, how)
    except DataError as error:
        # The advice is in the words of the function; a job file says it with a key.
        raise DataError(str(error).replace('how="inner"', 'ids = "inner" in [job]')) from error


def _held_out(ids: pd.Index, fraction: float, seed: int) -> Booleans:
    if fraction == 0:
        return np.zeros(len(ids), dtype=bool)
    test = held_out(ids, fraction, seed)
    if test.all() or not test.any():
        part = "all" if test.all() else "none"
        raise DataError(f"test_fraction = {fraction} holds out {part} of the {len(ids)} rows; change it, or the seed")
    return test


def _labels(table: PartyTable, party: PartySection) -> tuple[Array, Any, Any]:
    assert party.label is not None
    column, positive = party.label.column, party.label.positive
    where = f"label column {column!r}"
    if column not in table.known.columns:
        raise DataError(f"{where} is not in the table; there is {', '.join(map(repr, table.names))}")
    values = table.known[column]
    if missing := int(values.isna().sum()):
        raise DataError(f"{where} has {missing} missing values; drop those rows")
    classes = np.unique(values.to_numpy()).tolist()
    if len(classes) != 2:
        raise DataError(f"{where} has {len(classes)} different values ({classes[:5]}); it needs exactly two")
    if pd.api.types.is_datetime64_any_dtype(values) or not isinstance(classes[0], (str, int, float)):
        raise DataError(f"{where} holds {values.dtype} values; labels are text, numbers, true or false")
    if isinstance(positive, str) and isinstance(classes[0], bool):
        positive = _WORDS.get(positive.lower(), positive)
    positive = classes[1] if positive is None else positive
    if positive not in classes:
        raise DataError(f"{where}: positive is {positive!r}, the values are {classes[0]!r} and {classes[1]!r}")
    # The table's own value: a job file may say 1 where the table holds 1.0 or true.
    place = classes.index(positive)
    return np.where(values.to_numpy() == classes[place], 1.0, -1.0), classes[1 - place], classes[place]
