"""Raw columns: tell numbers, dates and levels apart, and convert columns to the types that a user states."""

from __future__ import annotations

import difflib
import warnings
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, get_args

import numpy as np
import pandas as pd

from evenhand.arrays import Array, Booleans
from evenhand.data.tables.dates import read_dates
from evenhand.data.tables.numerals import Decimal, Numbers, decimal_of, example, guessed_numbers, read_numbers
from evenhand.errors import ColumnWarning, DataError, InputError
from evenhand.printing import listed, quoted, toml_key

if TYPE_CHECKING:
    import pyarrow as pa


NUMBER: Final = "number"
DATE: Final = "date"
# The kinds of levels, as messages name them.
LEVEL_TYPES: Final[dict[str, type]] = {"text": str, "integer": int, "decimal": float, "boolean": bool}
_LEVELS: Final = {"string": "text", "integer": "integer", "floating": "decimal", "boolean": "boolean"}
_NUMBERS: Final = ("integer", "floating", "decimal", "mixed-integer-float")
_DATES: Final = ("date", "datetime", "datetime64")
_A_DAY: Final = {"s": 86_400, "ms": 86_400_000, "us": 86_400_000_000}


@dataclass(frozen=True, eq=False)
class RawColumn:
    """A raw column in its simplest form.

    Attributes
    ----------
    series
        Floats for numbers and times of day (in hours), days since 1970 for dates; levels as they are.
    kind
        ``"number"``, ``"date"`` or the kind of the levels; None if all values are missing.
    """

    name: str
    series: pd.Series
    kind: str | None

    @classmethod
    def of(cls, column: pd.Series, name: str) -> RawColumn:
        """Find a column's kind; refuse one that cannot be a feature."""
        dtype = column.dtype
        if isinstance(dtype, pd.CategoricalDtype):
            return _category(column, name)
        if pd.api.types.is_bool_dtype(dtype):
            return cls(name, column, "boolean")
        if pd.api.types.is_complex_dtype(dtype):
            raise _no_feature(column, name, "complex")
        if pd.api.types.is_numeric_dtype(dtype):
            return cls(name, column, NUMBER)
        if pd.api.types.is_timedelta64_dtype(dtype):
            return cls(name, column.dt.total_seconds() / 86_400, NUMBER)
        if pd.api.types.is_datetime64_any_dtype(dtype) and not isinstance(dtype, pd.ArrowDtype):
            return cls(name, _days(column), DATE)
        inferred = pd.api.types.infer_dtype(column, skipna=True)
        if inferred in _NUMBERS:
            return cls(name, _floats(column, name), NUMBER)
        if inferred in _DATES or inferred == "period":
            return cls(name, _days(_datetimes(column, name, inferred)), DATE)
        if inferred == "time":
            hours = [np.nan if pd.isna(one) else one.hour + one.minute / 60 + one.second / 3600 for one in column]
            return cls(name, pd.Series(hours, column.index, dtype=np.float64), NUMBER)
        if inferred == "empty":
            return cls(name, column, None)
        if inferred not in _LEVELS:
            raise _no_feature(column, name, inferred)
        return cls(name, column, _LEVELS[inferred])

    @cached_property
    def numbers(self) -> Array:
        """Numbers and dates as floats, NaN where missing."""
        if isinstance(self.series.dtype, np.dtype):
            return self.series.to_numpy(dtype=np.float64)
        return self.series.to_numpy(dtype=np.float64, na_value=np.nan)

    @cached_property
    def missing(self) -> Booleans:
        """Which values are missing; infinite numbers count as missing."""
        if self.kind in (NUMBER, DATE):
            return ~np.isfinite(self.numbers)
        return self.series.isna().to_numpy(dtype=bool)

    @property
    def infinite(self) -> int:
        return int(np.count_nonzero(np.isinf(self.numbers))) if self.kind == NUMBER else 0

    @property
    def known(self) -> Array:
        """The numbers that are not missing."""
        return self.numbers[~self.missing] if self.missing.any() else self.numbers

    def refuse_missing(self) -> None:
        """Raise an error if values are missing."""
        rows = len(self.series)
        if missing := int(self.missing.sum()) - self.infinite:
            raise DataError(
                f"column {self.name!r}: {missing:,} of {rows:,} values are missing; fill them in, drop the rows or the "
                'column, or accept them with missing = "indicator"'
            )
        if self.infinite:
            raise DataError(
                f"column {self.name!r}: {self.infinite:,} of {rows:,} values are infinite; replace them, or take them "
                'as missing with missing = "indicator"'
            )

    def require(self, fitted: str) -> None:
        """Raise an error if values are of another kind than those at fit."""
        if self.kind not in (fitted, None) and not (self.kind == NUMBER and self.missing.all()):
            # One-hot rows of zeros would otherwise hide that codes such as "1" arrive as numbers.
            raise DataError(f"column {self.name!r} was fitted as {fitted} and now holds {self.kind} values; convert it")


def _category(column: pd.Series, name: str) -> RawColumn:
    categories = column.dtype.categories  # type: ignore[union-attr]
    inferred = pd.api.types.infer_dtype(categories, skipna=False)
    if inferred == "empty":
        return RawColumn(name, column, None)
    if inferred in ("interval", *_DATES):
        # As pandas.cut makes them; the text of each is its name.
        return RawColumn(name, column.cat.rename_categories([str(one) for one in categories]), "text")
    if inferred not in _LEVELS:
        raise _no_feature(column, name, inferred)
    return RawColumn(name, column, _LEVELS[inferred])


def _no_feature(column: pd.Series, name: str, what: str) -> DataError:
    return DataError(
        f"column {name!r} holds {what} values ({column.dtype}), which cannot be encoded: make it a number, "
        "text, a boolean or a category of one of these"
    )


def _floats(column: pd.Series, name: str) -> pd.Series:
    try:
        return pd.Series(column.to_numpy(dtype=np.float64, na_value=np.nan), column.index)
    except (OverflowError, TypeError, ValueError) as error:
        raise DataError(f"column {name!r} holds numbers that 64 bits cannot: {error}; rescale them") from error


def _datetimes(column: pd.Series, name: str, inferred: str) -> pd.Series:
    try:
        if inferred == "period":
            return pd.Series(pd.PeriodIndex(column).to_timestamp(), column.index)
        # One by one: a date may lie beyond the range of nanoseconds in pandas.
        plain = [np.datetime64("NaT", "us") if pd.isna(one) else _naive(one) for one in column]
        return pd.Series(np.array(plain, dtype="datetime64[us]"), column.index)
    except (AttributeError, OverflowError, TypeError, ValueError) as error:
        raise DataError(f"column {name!r} holds dates that cannot be counted: {error}") from error


def _naive(one: Any) -> np.datetime64:
    """Return local time without its time zone."""
    return np.datetime64(one.replace(tzinfo=None) if getattr(one, "tzinfo", None) is not None else one)


def _days(column: pd.Series) -> pd.Series:
    """Return days since 1970 in local time, NaN where a date is missing."""
    plain = column.dt.tz_localize(None) if getattr(column.dtype, "tz", None) is not None else column
    moments = plain.to_numpy()
    if moments.dtype == "datetime64[ns]":
        moments = moments.astype("datetime64[us]")
    # Coarser units stay: dates far away would overflow in microseconds.
    days = moments.astype(np.int64) / _A_DAY[np.datetime_data(moments.dtype)[0]]
    return pd.Series(np.where(np.isnat(moments), np.nan, days), column.index)


# -- types that the user states

TypeName: TypeAlias = Literal["number", "category", "date", "leave out"]
TYPES: Final = ("number", "category", "date", "leave out")
_MOST_WORDS: Final = 0.1
"""At most this share of a column of dates is no date, and counts as missing."""


def as_types(frame: pd.DataFrame, types: Mapping[str, TypeName], decimal: Decimal, where: str) -> pd.DataFrame:
    """Convert columns to the types in `types`, by name; names without a column are ignored."""
    changed = {}
    for name, kind in types.items():
        if name not in frame.columns or kind == "leave out":
            continue
        try:
            changed[name] = _as_type(frame[name], name, kind, decimal)
        except DataError as error:
            raise DataError(f"{where}: {error}") from error
    return frame.assign(**changed) if changed else frame


def _as_type(column: pd.Series, name: str, kind: TypeName, decimal: Decimal) -> pd.Series:
    raw = RawColumn.of(column, name)
    if raw.kind is None:
        return column
    if kind == "category":
        return _text(column, raw).astype("category")
    if kind == "date":
        return column if raw.kind == DATE else _dates(raw)
    if raw.kind in (NUMBER, DATE):
        return pd.Series(raw.numbers, column.index)
    if raw.kind != "text":
        return column.astype("Float64")
    found = read_numbers(column, decimal)
    if np.isnan(found.values).all():
        raise DataError(
            f"column {name!r} holds {listed(found.words, most=3)} and no numbers; types says it does: mend types"
        )
    return pd.Series(found.values, column.index)


def _text(column: pd.Series, raw: RawColumn) -> pd.Series:
    """Convert levels to text: whole numbers without a fraction, also if missing values made floats of them."""
    if raw.kind == NUMBER and bool((raw.known == np.floor(raw.known)).all()):
        return raw.series.where(~raw.missing).map(lambda one: str(int(one)), na_action="ignore")
    return column.map(str, na_action="ignore")


def _dates(raw: RawColumn) -> pd.Series:
    if raw.kind != "text":
        raise DataError(f"column {raw.name!r} holds {raw.kind} values, no dates; types says it does: mend types")
    text = raw.series.astype(object).where(~raw.missing, None)
    found = read_dates(text.dropna().unique())
    if found.unclear:
        some = listed(found.unclear, most=3)
        raise DataError(f"column {raw.name!r} can be read as dates in more than one way ({some}); write 2020-12-31")
    known = int(text.notna().sum())
    if (strange := known - int(text.isin(list(found.values)).sum())) > _MOST_WORDS * known:
        some = listed(found.words, most=3)
        raise DataError(
            f"column {raw.name!r}: {strange:,} of {known:,} cells can be read as dates in no known way ({some}); "
            "write them as 2020-12-31, or leave them empty"
        )
    return pd.to_datetime(text.map(found.values))


def with_numbers(
    frame: pd.DataFrame, columns: Sequence[str], known: Mapping[str, TypeName], where: str, *, typed: bool = False
) -> pd.DataFrame:
    """Convert text that holds numbers to numbers, with a warning; columns with `known` types stay as they are.

    Parameters
    ----------
    typed
        Whether the table's columns have types, as in Parquet files and databases: text of only whole numbers is meant
        as text there.
    """
    changed = {}
    for name in columns:
        if name in known or name not in frame.columns:
            continue
        if (found := numbers_in(frame[name], name, where, typed=typed)) is not None:
            changed[name] = pd.Series(found.values, frame.index)
    return frame.assign(**changed) if changed else frame


def numbers_in(column: pd.Series, name: str, where: str, *, typed: bool) -> Numbers | None:
    """Return the numbers in a column of text, with a warning; None if it holds none."""
    if not is_text(column) or (typed and column.dropna().astype(str).str.fullmatch(r"\s*[-+]?\d+\s*").all()):
        return None
    if (found := guessed_numbers(column)) is None:
        return None
    cell = example(column, found.words) or str(column.dropna().iloc[0])
    said = f"{where}: column {name!r} is read as numbers, though it has cells such as {quoted(cell)}"
    if found.words:
        said += f"; cells that are not numbers ({listed(found.words, most=3)}) count as missing"
    else:
        said += f" (read as {read_numbers(pd.Series([cell]), found.decimal).values[0]:g})"
    said += f'. Say what it is with types = {{ {toml_key(name)} = "number" }}, or "category"'
    warnings.warn(said, ColumnWarning, stacklevel=3)
    return found


def is_text(column: pd.Series) -> bool:
    """Tell whether a column that is not a pandas category holds text."""
    return pd.api.types.infer_dtype(column, skipna=True) == "string"


def numbers_as_fitted(frame: pd.DataFrame, kinds: Mapping[str, str], decimal: Decimal) -> pd.DataFrame:
    """Convert columns of new rows to numbers if they were numbers at fit, however few or odd their cells.

    The cells determine the decimal sign; `decimal` is used if they leave it open.
    """
    changed = {
        name: pd.Series(read_numbers(frame[name], decimal_of(frame[name]) or decimal).values, frame.index)
        for name, kind in kinds.items()
        if kind == NUMBER and name in frame.columns and is_text(frame[name])
    }
    return frame.assign(**changed) if changed else frame


# -- names and ids of a table as it was read

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
        joined = len(found) == 1 and any(sign in found[0] for sign in ",;\t|")
        way = ". The whole line is one column: name the sign between columns with delimiter" if joined else ""
        raise DataError(f"{where} has {'; '.join(problems)}{way}")


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


Duplicates: TypeAlias = Literal["refuse", "first", "last", "sum"]
"""What to do with rows of the same id."""


def index_by(frame: pd.DataFrame, name: str, where: str, duplicates: Duplicates = "refuse") -> pd.DataFrame:
    """Make an id column the index; refuse rows without an id, and duplicate ids unless a rule says which row counts."""
    missing = int(frame[name].isna().sum())
    if missing:
        raise DataError(f"{where}: {missing:,} of {len(frame):,} rows have no {name!r}")
    if (kind := pd.api.types.infer_dtype(frame[name], skipna=False)).startswith("mixed"):
        raise DataError(f"{where}: {name!r} holds {kind} values, lists perhaps; an id is text, a number or a date")
    repeated = frame.loc[frame[name].duplicated(), name].unique()
    if len(repeated) and duplicates in ("first", "last"):
        frame = frame.drop_duplicates(name, keep=duplicates)
    elif len(repeated) and duplicates == "sum":
        frame = _summed(frame, name)
    elif len(repeated):
        some = listed((getattr(one, "item", lambda one=one: one)() for one in repeated), most=3)
        raise DataError(
            f"{where}: {len(repeated):,} values of {name!r} occur more than once, such as {some}; say which row counts "
            "with duplicates = 'first', 'last' or 'sum'"
        )
    return frame.set_index(name)


def one_row_per_id(frame: pd.DataFrame, duplicates: Duplicates) -> pd.DataFrame:
    """Return a table, indexed by id, with one row for each id.

    Parameters
    ----------
    duplicates
        Which row of an id counts: the ``"first"``, the ``"last"``, or the ``"sum"`` of each number with the first of
        other values; ``"refuse"`` raises an error if an id has several rows.
    """
    if duplicates not in get_args(Duplicates):
        raise InputError(f"duplicates is {quoted(duplicates)}; choose 'first', 'last', 'sum' or 'refuse'")
    name = "id" if frame.index.name is None else str(frame.index.name)
    if name in frame.columns:
        raise InputError(f"the index and a column are both called {name!r}; rename one of them")
    found = index_by(frame.rename_axis(name).reset_index(), name, "the table", duplicates)
    found.index.name = frame.index.name
    return found


def _summed(frame: pd.DataFrame, name: str) -> pd.DataFrame:
    """Return one row for each id: sums of numbers, and the first of other values."""
    others = [column for column in frame.columns if column != name]
    numbers = {
        column: pd.api.types.is_numeric_dtype(frame[column]) and not pd.api.types.is_bool_dtype(frame[column])
        for column in others
    }
    by = frame.groupby(name, sort=False, dropna=False)
    # A sum over missing values alone is missing.
    parts = {column: by[column].sum(min_count=1) if numbers[column] else by[column].first() for column in others}
    return pd.DataFrame(parts, index=by.size().index).rename_axis(name).reset_index()


def brief(error: BaseException) -> str:
    """Shorten another library's error message to one line."""
    said = next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
    return said if len(said) <= _LONGEST else f"{said[: _LONGEST - 3]}..."
