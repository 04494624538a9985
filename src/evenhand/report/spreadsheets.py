"""Write CSV that is safe to open in a spreadsheet."""

from __future__ import annotations

import csv
import re
from typing import Any, Final

import pandas as pd

# A cell becomes a formula by its first character, or by one after a separator that some spreadsheets honour.
_FORMULA: Final = re.compile(r"(?:^|(?<=[;\t\r\n]))(?=[=+\-@\t\r＝＋－＠])")
_NUMBER: Final = re.compile(r"[+-]?(?:\d+(?:[.,]\d*)?|[.,]\d+)(?:[eE][+-]?\d+)?")


def csv_text(table: pd.DataFrame, *, as_is: bool = False) -> str:
    """Return a table and its index as CSV.

    Parameters
    ----------
    as_is
        Do not escape text. By default an apostrophe is put before text that a spreadsheet would run as a formula:
        text that begins with ``= + - @`` or a tab and is not a number.
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
    # Python before 3.13 does not quote a carriage return, which most programs read as a row end.
    return table.to_csv(quoting=csv.QUOTE_NONNUMERIC, **settings) if "\r" in text else text


def harmless(cell: Any) -> Any:
    """Return a cell that a spreadsheet does not run as a formula."""
    return _FORMULA.sub("'", cell) if isinstance(cell, str) and _NUMBER.fullmatch(cell) is None else cell


def _harmless_column(column: pd.Series) -> pd.Series:
    is_text = isinstance(column.dtype, pd.CategoricalDtype) or not pd.api.types.is_numeric_dtype(column)
    return column.astype(object).map(harmless) if is_text else column
