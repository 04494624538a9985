"""The kinds of columns: choose the class that fits, summarises or reads a column."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import pandas as pd

from evenhand.arrays import Array
from evenhand.data.tables.category_columns import CategoryColumn, CategorySummary
from evenhand.data.tables.columns import ColumnSummary, EncodedColumn, FitRules, is_text, require
from evenhand.data.tables.curve_columns import CurveColumn
from evenhand.data.tables.numeric_columns import DateColumn, NumericColumn, NumericSummary
from evenhand.data.tables.raw import DATE, LEVEL_TYPES, NUMBER, RawColumn
from evenhand.errors import DataError


@dataclass(frozen=True)
class EmptySummary(ColumnSummary):
    """A column of which no value was seen; `kind` is ``"number"`` if its type is numeric, else None."""

    kind: str | None = None

    def fitted(self, rules: FitRules) -> EncodedColumn:
        """Return a number for trees, which take a number that is always missing, and else a column of no features."""
        if rules.as_is and self.kind == NUMBER:
            return NumericColumn(self.name)
        return CategoryColumn.empty(self.name, rules)

    def values_to_state(self, rules: FitRules) -> Mapping[str, Any]:
        return {}


def summarise(raw: RawColumn, seen: ColumnSummary) -> ColumnSummary:
    """Add a batch of rows to the summary of those seen so far."""
    if raw.missing.all() and not (raw.kind is not None and isinstance(raw.series.dtype, pd.CategoricalDtype)):
        kind = NUMBER if raw.kind == NUMBER else None
        return seen.merge(EmptySummary(raw.name, kind, missing=True, infinite=raw.infinite))
    if raw.kind in (NUMBER, DATE):
        # All batches count from one origin.
        return seen.merge(NumericSummary.of(raw, getattr(seen, "origin", None)))
    return seen.merge(CategorySummary.of(raw))


def fit_column(raw: RawColumn, rules: FitRules) -> EncodedColumn:
    """Fit a column on the rows given and no others."""
    if rules.refuses(raw.name):
        raw.refuse_missing()
    if raw.kind is None or (raw.kind in (NUMBER, DATE) and not raw.known.size):
        return EmptySummary(raw.name, raw.kind).fitted(rules)
    if raw.kind in (NUMBER, DATE):
        return fit_numbers(NumericColumn.fit(raw, rules), raw.known, rules)
    return CategorySummary.of(raw).fitted(rules)


def fit_numbers(column: EncodedColumn, known: Array, rules: FitRules) -> EncodedColumn:
    """Return a column of numbers as the rules want it, given its known values."""
    if not becomes_curve(column, rules):
        return column
    made = CurveColumn.fit(column.name, known, column.missing == "seen", rules)
    return column if made is None else replace(made, remarks=column.remarks)


def becomes_curve(column: EncodedColumn, rules: FitRules) -> bool:
    """Tell whether the rules make a curve, or bins, of a column."""
    return column.kind == NUMBER and rules.scale and rules.numbers_of(column.name) != "standard"


def summary_from_state(state: Mapping[str, Any]) -> ColumnSummary:
    """Read another client's summary; anything wrong with it is a DataError."""
    try:
        if int(state["rows"]) == 0:
            return EmptySummary(str(state["name"]), missing=bool(state["missing"]))
        kind = NumericSummary if state["kind"] in (NUMBER, DATE) else CategorySummary
        return kind.from_state(state)
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise DataError(f"this is not a summary of a column: {error!r}") from error


def column_from_state(state: Any, where: str, scale: bool) -> EncodedColumn:
    """Read a fitted column; refuse a state that an encoder could not have written."""
    require(isinstance(state, dict), where, "a column")
    kind, missing = state.get("kind"), state.get("missing")
    require(isinstance(kind, str) and kind in (NUMBER, DATE, *LEVEL_TYPES), f"{where}.kind", "a known kind")
    require(is_text(state.get("name")), f"{where}.name", "text")
    known = isinstance(missing, str) and missing in ("refused", "unseen", "seen")
    require(known, f"{where}.missing", "refused, unseen or seen")
    if kind in LEVEL_TYPES:
        return CategoryColumn.from_state(state, where)
    if kind == NUMBER and "knots" in state:
        require(scale, where, "unscaled, as in an encoder that does not scale")
        return CurveColumn.from_state(state, where)
    return (DateColumn if kind == DATE else NumericColumn).from_state(state, where, scale)
