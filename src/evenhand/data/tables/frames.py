"""Checks on every table, from any source: distinct columns, those asked for, one row for each id."""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import pandas as pd

from evenhand.errors import DataError
from evenhand.printing import listed, quoted

if TYPE_CHECKING:
    import pyarrow as pa

_LONGEST: Final = 300


def require_distinct(names: Sequence[str], where: str) -> None:
    """Refuse a table with two columns of the same name."""
    twice = sorted(name for name, times in Counter(names).items() if times > 1)
    if twice:
        raise DataError(
            f"{where} gives columns {', '.join(twice)} more than once\n"
            'names must differ: rename them in the file, or with "as" in the sql'
        )


def require_columns(wanted: Sequence[str], found: Sequence[str], where: str) -> None:
    """Refuse columns that the table does not have; the message names similar ones."""
    problems = []
    for name in wanted:
        if name not in found:
            close = difflib.get_close_matches(name, found, n=3) or list(found[:10])
            problems.append(f"no column {quoted(name)} (there is {listed(close)})")
    if problems:
        raise DataError(f"{where} has {'; '.join(problems)}")


def to_pandas(table: pa.Table, where: str) -> pd.DataFrame:
    """Convert to pandas, with decimals as floats: as objects they would become categories."""
    import pyarrow as pa

    try:
        # Text from a damaged file may be invalid, and pandas would fail at any time later.
        table.validate(full=True)
        for k, column in enumerate(table.schema):
            numeric = (column.metadata or {}).get(b"ADBC:postgresql:typname") == b"numeric"
            if numeric or pa.types.is_decimal(column.type):
                plain = table.column(k).combine_chunks()
                storage = getattr(plain, "storage", plain)
                table = table.set_column(k, column.name, storage.cast(pa.float64()))
        return table.to_pandas()
    except (pa.ArrowException, ValueError, OverflowError, MemoryError) as error:
        # A date may lie beyond the range of Python's dates.
        raise DataError(f"{where} holds values that cannot be used: {brief(error)}") from error


def index_by(frame: pd.DataFrame, name: str, where: str) -> pd.DataFrame:
    """Make an id column the index; refuse rows without an id, and duplicate ids."""
    missing = int(frame[name].isna().sum())
    if missing:
        raise DataError(f"{where}: {missing:,} of {len(frame):,} rows have no {name!r}")
    if (kind := pd.api.types.infer_dtype(frame[name], skipna=False)).startswith("mixed"):
        raise DataError(f"{where}: {name!r} holds {kind} values, lists perhaps; an id is text, a number or a date")
    repeated = frame.loc[frame[name].duplicated(), name].unique()
    if len(repeated):
        some = listed((getattr(one, "item", lambda one=one: one)() for one in repeated), most=3)
        raise DataError(f"{where}: {len(repeated):,} values of {name!r} occur more than once, such as {some}")
    return frame.set_index(name)


def brief(error: BaseException) -> str:
    """Shorten another library's error message to one line."""
    said = next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
    return said if len(said) <= _LONGEST else f"{said[: _LONGEST - 3]}..."
