"""Score rows that some party lacks, or without the table of a party that is away.

A score is a sum over all parties of the trained model. Where a party has no row, the model has a number in its place,
if there were such rows in training.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from evenhand.arrays import Booleans, Matrix
from evenhand.data.tables.absence import without_rows
from evenhand.data.tables.encoding import PartyEncoder
from evenhand.errors import DataError
from evenhand.estimators.tables import encode
from evenhand.training.vertical_sources import check_ids, check_same_kind, check_unique


class RowsToScore(NamedTuple):
    """Encoded rows of all parties, in the order of the label holder's table, and which of them each party has."""

    matrices: dict[str, Matrix]
    there: pd.DataFrame


def rows_to_score(tables: Mapping[str, Any], encoders: Mapping[str, PartyEncoder], holder: str) -> RowsToScore:
    """Return the label holder's rows as all parties encode them, absent ones included.

    Parameters
    ----------
    tables
        The tables of the parties that are there.
    encoders
        The encoders of all parties of the model, fitted.
    """
    if holder not in tables:
        raise DataError(f"the table of {holder} is missing; it holds the labels, and the rows to score are its rows")
    base = tables[holder]
    n_rows = int(base.shape[0])
    if n_rows == 0:
        raise DataError(f"{holder} has no rows")
    ids = base.index if isinstance(base, pd.DataFrame) else None
    matrices, there = {}, {}
    for name, encoder in encoders.items():
        if name not in tables:
            encoded, here = without_rows(encoder.width_out), np.zeros(n_rows, dtype=bool)
        else:
            table, here = _found(tables[name], ids, n_rows, name, holder)
            encoded = encode(name, encoder, table) if here.any() else without_rows(encoder.width_out)
        encoder.require_learned(name, here)
        matrices[name], there[name] = encoder.spread(encoded, here), here
    return RowsToScore(matrices, pd.DataFrame(there, index=pd.RangeIndex(n_rows) if ids is None else ids))


def _found(table: Any, ids: pd.Index | None, n_rows: int, name: str, holder: str) -> tuple[Any, Booleans]:
    """Return a party's rows of these ids, in order, and which of the ids it has."""
    if ids is None or not isinstance(table, pd.DataFrame):
        if (rows := int(table.shape[0])) != n_rows:
            raise DataError(f"{name} has {rows} rows, {holder} has {n_rows}, and no ids to find absent rows by")
        return table, np.ones(n_rows, dtype=bool)
    for index, owner in ((ids, holder), (table.index, name)):
        check_ids(index, owner)
        check_unique(index, owner)
    check_same_kind([ids, table.index], [holder, name])
    places = table.index.get_indexer(ids)
    return table.iloc[places[places >= 0]], places >= 0
