"""The kind of a raw column, whatever its pandas type: numbers, dates, or levels of a category."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import numpy as np
import pandas as pd

from evenhand.arrays import Array, Booleans
from evenhand.errors import DataError

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
