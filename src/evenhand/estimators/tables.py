"""Bring the tables, labels and groups of an estimator's input to one order of rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd
from sklearn.utils.validation import column_or_1d

from evenhand.arrays import Array, Integers
from evenhand.data.tables.encoding import PartyEncoder
from evenhand.errors import DataError
from evenhand.printing import listed
from evenhand.training.vertical_sources import align

Tables = Sequence[Any] | Mapping[str, Any]
"""One table for each party."""


class Beside(NamedTuple):
    """Labels, groups and weights of the label holder, as given to `fit`."""

    y: Any
    groups: Any
    weights: Any = None

    @property
    def ids(self) -> pd.Index | None:
        """Ids of the labels or groups, if they have any."""
        indexed = (one for one in (self.y, self.groups) if isinstance(one, (pd.DataFrame, pd.Series)))
        return next((one.index for one in indexed), None)


def in_pandas(table: Any) -> Any:
    """Convert Arrow and polars tables to DataFrames without ids; return other tables unchanged."""
    return table.to_pandas() if hasattr(table, "to_pandas") else table


def named_tables(X: Tables) -> dict[str, Any]:
    if len(getattr(X, "shape", ())) == 2:
        raise DataError(
            "X is one table; give one for each party, such as fit([bank, shop], y), or a mapping of names to tables. "
            "SplitTableClassifier deals the columns of one table out to parties"
        )
    given = X.items() if isinstance(X, Mapping) else ((f"party{place}", table) for place, table in enumerate(X))
    tables = {name: in_pandas(table) for name, table in given}
    if not tables:
        raise DataError("there is no table; give one for each party")
    for name, table in tables.items():
        if isinstance(table, (pd.Series, str)) or not hasattr(table, "shape") or len(table.shape) != 2:
            raise DataError(f"{name}: expected a table of two dimensions (DataFrame, array or sparse matrix)")
    return tables


def align_rows(
    tables: dict[str, Any], y: Any, sensitive: Any, how: Literal["equal", "inner"] = "equal"
) -> tuple[dict[str, Any], npt.NDArray[Any], Any]:
    """Bring inputs with a pandas index to the first table's order; others must have the same number of rows."""
    named = {
        **tables,
        **({} if y is None else {"y": y}),
        **({} if sensitive is None else {"sensitive_features": in_pandas(sensitive)}),
    }
    indexed = {name: item for name, item in named.items() if isinstance(item, (pd.DataFrame, pd.Series))}
    if len(indexed) > 1:
        try:
            named |= dict(zip(indexed, align(list(indexed.values()), list(indexed), how), strict=True))
        except DataError as error:
            raise in_words_of_fit(error) from error
    first = next(iter(tables))
    rows = named[first].shape[0]
    if rows == 0:
        raise DataError(f"{first} has no rows")
    for name, item in named.items():
        size = item.shape[0] if hasattr(item, "shape") and item.shape else len(item)
        if size != rows:
            raise DataError(f"{name} has {size} rows, {first} has {rows}")
    labels = column_or_1d(named["y"], warn=True) if y is not None else np.empty(0)
    return {name: named[name] for name in tables}, labels, named.get("sensitive_features")


def in_words_of_fit(error: DataError) -> DataError:
    """Replace the argument in an error of the aligning function by that of `fit`."""
    kept = 'how="inner" keeps the common ids'
    said = 'fit(..., ids="inner") keeps the common ids, ids="left" all of the label holder'
    return DataError(str(error).replace(kept, said))


def weights_beside(y: Any, weights: Any) -> tuple[Array, Any]:
    """Return weights in the order of the labels, and positions to align in place of the labels."""
    rows = len(y)
    if isinstance(weights, pd.Series) and isinstance(y, pd.Series):
        if not weights.index.is_unique or not weights.index.sort_values().equals(y.index.sort_values()):
            raise DataError("sample_weight has other ids than y; give one weight for each label")
        weights = weights.loc[y.index]
    try:
        found = np.asarray(weights, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise DataError(f"sample_weight holds values that are not numbers ({error})") from error
    if found.shape != (rows,):
        raise DataError(f"sample_weight has the shape {found.shape}; give one number for each of the {rows} labels")
    places = np.arange(rows)
    return found, pd.Series(places, y.index) if isinstance(y, (pd.Series, pd.DataFrame)) else places


def align_all(
    tables: dict[str, Any], beside: Beside, how: Literal["equal", "inner"] = "equal"
) -> tuple[dict[str, Any], Beside]:
    """Bring tables, and labels, groups and weights beside them, to one order of rows."""
    weights, y = (None, beside.y) if beside.weights is None else weights_beside(beside.y, beside.weights)
    tables, labels, groups = align_rows(tables, y, beside.groups, how)
    if weights is not None:
        # Positions were aligned in place of the labels.
        order = labels.astype(np.int64)
        labels, weights = np.asarray(beside.y)[order], weights[order]
    return tables, Beside(labels, groups if groups is None or hasattr(groups, "shape") else np.asarray(groups), weights)


def row_ids(tables: Mapping[str, Any], rows: int) -> pd.Index:
    """Return the ids of aligned rows; their positions if no table has ids."""
    return next((one.index for one in tables.values() if isinstance(one, pd.DataFrame)), pd.RangeIndex(rows))


def take_rows(table: Any, places: Integers) -> Any:
    """Return rows of a table, series or array in this order; the object itself if nothing changes."""
    n_rows = table.shape[0]
    if len(places) == n_rows and bool((places == np.arange(n_rows)).all()):
        return table
    return table.iloc[places] if isinstance(table, (pd.DataFrame, pd.Series)) else table[places]


def encode(name: str, encoder: PartyEncoder, table: Any) -> Any:
    try:
        return encoder.transform(table)
    except DataError as error:
        raise DataError(f"{name}: {error}") from error


def named_columns(sensitive: Any, rows: int) -> list[str] | None:
    """Return sensitive features as names of columns, if they are; a list of text with an entry a row is groups."""
    if isinstance(sensitive, str):
        return [sensitive]
    is_list = isinstance(sensitive, (list, tuple)) and len(sensitive) != rows
    return list(sensitive) if is_list and all(isinstance(one, str) for one in sensitive) else None


def split_off(table: Any, names: list[str], owner: str) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return a table without these columns, and the columns."""
    if not isinstance(table, pd.DataFrame):
        raise DataError(
            f"{owner} is not a DataFrame, so sensitive_features {listed(names)} cannot be column names in it"
        )
    for name in names:
        if name not in table.columns:
            raise DataError(f"{owner} has no column {name!r} for sensitive_features; it has {listed(table.columns)}")
    return table.drop(columns=names), table[names]
