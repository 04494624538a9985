"""Tables as CSV that may be opened in a spreadsheet, whatever stands in the cells."""

from __future__ import annotations

import csv
import re
from typing import Any, Final

import pandas as pd

# What makes a formula of a cell, at its beginning or after a sign that some spreadsheets begin a new cell at.
_FORMULA: Final = re.compile(r"(?:^|(?<=[;\t\r\n]))(?=[=+\-@\t\r＝＋－＠])")
_NUMBER: Final = re.compile(r"[+-]?(?:\d+(?:[.,]\d*)?|[.,]\d+)(?:[eE][+-]?\d+)?")


def csv_text(table: pd.DataFrame, *, as_is: bool = False) -> str:
    """A table and its index as CSV.

    Parameters
    ----------
    as_is
        Leave text as it is. Otherwise an apostrophe goes before text that a spreadsheet would run as a formula: it
        begins with one of ``= + - @`` or a tab, and is no number.
    """
    if as_is:
        return _written(table, index=True)
    levels = [table.index.get_level_values(level) for level in range(table.index.nlevels)]
    columns = [level.to_series(index=pd.RangeIndex(len(table))) for level in levels]
    columns += [table.iloc[:, place].reset_index(drop=True) for place in range(table.shape[1])]
    names = [harmless("" if name is None else name) for name in (*table.index.names, *table.columns)]
    whole = pd.concat([_harmless_column(column) for column in columns], axis=1)
    return _written(whole, index=False, header=names)


def _written(table: pd.DataFrame, **settings: Any) -> str:
    text = table.to_csv(**settings)
    # Not quoted by itself before Python 3.13, though most programs end a row there.
    return table.to_csv(quoting=csv.QUOTE_NONNUMERIC, **settings) if "\r" in text else text


def harmless(cell: Any) -> Any:
    """A cell that a spreadsheet takes for what it is."""
    return _FORMULA.sub("'", cell) if isinstance(cell, str) and _NUMBER.fullmatch(cell) is None else cell


def _harmless_column(column: pd.Series) -> pd.Series:
    is_text = isinstance(column.dtype, pd.CategoricalDtype) or not pd.api.types.is_numeric_dtype(column)
    return column.astype(object).map(harmless) if is_text else column
