"""From what is known of a raw column to its encoded columns, with a remark where that may surprise."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple, TypeAlias

import numpy as np
import pandas as pd

from evenhand.data.tables.columns import (
    Column,
    GapColumn,
    Level,
    LevelColumn,
    Missing,
    NumberColumn,
    PartColumn,
    count_levels,
    has_hours,
    standardised,
)
from evenhand.data.tables.raw import DATE, NUMBER, RawColumn
from evenhand.errors import InputError
from evenhand.printing import quoted, toml_key

MissingRule: TypeAlias = Literal["indicator", "refuse"]
NOTHING_SEEN: Final = "text"
"""The kind of a column of which nothing but gaps was seen."""
ID_ROWS: Final = 50
"""From so many rows on, text that is different in each of them says who a row is."""
MANY_LEVELS: Final = 500


@dataclass(frozen=True)
class Rules:
    """What is done about gaps, for all columns or by column, and how many levels of a column are kept."""

    missing: MissingRule | Mapping[str, MissingRule] = "indicator"
    max_levels: int | None = None

    def __post_init__(self) -> None:
        by_column = isinstance(self.missing, Mapping)
        for rule in self.missing.values() if isinstance(self.missing, Mapping) else [self.missing]:
            if rule not in ("indicator", "refuse"):
                where = " for a column" if by_column else ""
                raise InputError(f"missing is {quoted(rule)}{where}; choose 'indicator' or 'refuse'")
        if self.max_levels is not None and (type(self.max_levels) is not int or self.max_levels < 1):
            raise InputError(f"max_levels is {quoted(self.max_levels)}; it is a whole number above 0, or None")

    def refuses(self, name: str) -> bool:
        rule = self.missing.get(name, "indicator") if isinstance(self.missing, Mapping) else self.missing
        return rule == "refuse"

    def of(self, name: str, gaps: bool) -> Missing:
        """What a column's encoding does about gaps, given whether the rows seen have any."""
        return "refused" if self.refuses(name) else "seen" if gaps else "unseen"


AS_THEY_COME: Final = Rules()


class Made(NamedTuple):
    """A raw column's encoded columns, and what should be said about them."""

    columns: tuple[Column, ...]
    remarks: tuple[str, ...] = ()


def fit_column(raw: RawColumn, scale: bool, rules: Rules) -> Made:
    """Learn mean, scale and median of a column, or its levels, from the rows given and no others."""
    gaps = bool(raw.gaps.any())
    if rules.refuses(raw.name):
        raw.refuse_gaps()
    if raw.kind is None or (raw.kind in (NUMBER, DATE) and not raw.known.size):
        return nothing_known(raw.name, rules)
    missing = rules.of(raw.name, gaps)
    if raw.kind in (NUMBER, DATE):
        values = raw.known
        with np.errstate(over="ignore", invalid="ignore"):
            mean, deviation = float(values.mean()), float(values.std())
        low, high = float(values.min()), float(values.max())
        # Where no row of these has a gap, a later one is put at the mean.
        fill = float(np.median(values)) if gaps else mean
        centre, divisor = standardised(raw.name, low, high, mean, deviation) if scale else (0.0, 1.0)
        number = NumberColumn(raw.name, centre, divisor, missing, _finite(fill), raw.kind)
        return number_columns(number, timed=raw.kind == DATE and has_hours(values), infinite=raw.infinite)
    counts = count_levels(raw)
    unique = not isinstance(raw.series.dtype, pd.CategoricalDtype) and set(counts.values()) == {1}
    return level_columns(raw.name, raw.kind, counts, missing, unique, rules)


def _finite(value: float) -> float:
    """A mean of huge numbers may overflow; where they are not standardised nothing else would notice."""
    return value if np.isfinite(value) else 0.0


def number_columns(number: NumberColumn, *, timed: bool, infinite: int = 0) -> Made:
    """A number with a flag for its gaps; a date also with parts of the calendar, hours if it has any."""
    columns: list[Column] = [number]
    if number.kind == DATE:
        columns += [PartColumn(number.name, part) for part in ("month", "weekday", *(["hour"] if timed else []))]
    if number.missing == "seen":
        columns.append(GapColumn(number.name))
    if not infinite:
        return Made(tuple(columns))
    return Made(
        tuple(columns),
        (
            f"column {number.name!r}: {infinite:,} infinite values count as missing; replace them, or refuse them with "
            f'missing = {{ {toml_key(number.name)} = "refuse" }}',
        ),
    )


def level_columns(
    name: str, kind: str, counts: Mapping[Level, int], missing: Missing, unique: bool, rules: Rules
) -> Made:
    """One feature a level, but for an id, of which nothing is made."""
    if unique and kind == "text" and len(counts) >= ID_ROWS:
        said = (
            f"column {name!r} has another value in each of {len(counts):,} rows, as an id has: it is left out. Say so "
            f'with types = {{ {toml_key(name)} = "leave out" }}, or keep it with "category"'
        )
        return Made((LevelColumn(name, kind, (), "unseen"),), (said,))
    most = rules.max_levels
    if most is not None and len(counts) > most:
        # The most frequent; of those that are as frequent as each other the first.
        order = sorted(counts, key=lambda level: (-counts[level], level))
        kept = tuple(sorted(order[:most]))
        return Made((LevelColumn(name, kind, kept, missing, other=True),))
    column = LevelColumn(name, kind, tuple(counts), missing)
    if len(counts) <= MANY_LEVELS:
        return Made((column,))
    said = (
        f"column {name!r} has {len(counts):,} different values, and as many features were made of it; keep the most "
        "frequent with max_levels = 100, or leave the column out"
    )
    return Made((column,), (said,))


def nothing_known(name: str, rules: Rules) -> Made:
    """Of a column of nothing but gaps nothing can be made."""
    missing: Missing = "refused" if rules.refuses(name) else "unseen"
    said = f"column {name!r} has no value in the training rows: nothing is made of it"
    return Made((LevelColumn(name, NOTHING_SEEN, (), missing),), (said,))
