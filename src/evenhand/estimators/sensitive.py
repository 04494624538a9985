"""Sensitive features that are named rather than given: columns of the table beside the labels, and no features then."""

from __future__ import annotations

from typing import Any

import pandas as pd

from evenhand.errors import DataError
from evenhand.printing import listed


def named_columns(sensitive: Any, rows: int) -> list[str] | None:
    """Names of columns, if that is what was given; a list of text with an entry for each row is groups."""
    if isinstance(sensitive, str):
        return [sensitive]
    if (
        isinstance(sensitive, (list, tuple))
        and len(sensitive) != rows
        and all(isinstance(one, str) for one in sensitive)
    ):
        return list(sensitive)
    return None


def split_off(table: Any, names: list[str], owner: str) -> tuple[pd.DataFrame, pd.DataFrame]:
    """A table without these columns, and the columns."""
    if not isinstance(table, pd.DataFrame):
        raise DataError(f"{owner} is no DataFrame, so sensitive_features {listed(names)} cannot be found by name in it")
    for name in names:
        if name not in table.columns:
            raise DataError(f"{owner} has no column {name!r} for sensitive_features; there is {listed(table.columns)}")
    return table.drop(columns=names), table[names]
