"""Encoded columns as nodes of an ONNX graph: the same features as the encoder gives, in double precision.

A text column is an input of strings, with "" for a missing value. All other columns are inputs of numbers, with NaN for
a missing value: booleans as 0 and 1, dates as days since 1970.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from evenhand.data.tables.category_columns import CategoryColumn
from evenhand.data.tables.columns import EncodedColumn
from evenhand.data.tables.curve_columns import CurveColumn
from evenhand.data.tables.encoding import PartyEncoder
from evenhand.data.tables.numeric_columns import NumericColumn
from evenhand.errors import InputError
from evenhand.jobs.exporting.graph import Graph


def features(graph: Graph, encoder: PartyEncoder, owner: str) -> str:
    """Add the inputs of an owner's raw columns; return the owner's encoded features side by side."""
    if encoder.sparse_columns is not None:
        raise InputError(f"{owner} has a sparse matrix; only named columns are exported")
    blocks: list[str] = []
    for column in encoder.encoded_columns:
        if isinstance(column, CategoryColumn) and not column.levels:
            # An id, or a column without values: neither scores nor features depend on it.
            if encoder.as_is:
                raise InputError(f"{owner}: column {column.name!r} has no values; leave it out and train again")
            continue
        blocks += _Column(graph, column, encoder.as_is).blocks()
    if not blocks:
        raise InputError(f"{owner} has no column that the score depends on: there is nothing to export")
    return graph.side_by_side(blocks)


class _Column:
    """One column: its input, and the nodes of its features."""

    def __init__(self, graph: Graph, column: EncodedColumn, as_is: bool) -> None:
        self.graph, self.column, self.as_is = graph, column, as_is
        self.text = isinstance(column, CategoryColumn) and column.kind == "text"
        self.raw = graph.input(column.name, str if self.text else float)
        if self.text:
            self.known = graph.apply("Less", self.code([""]), self.number(0))
        else:
            self.known = graph.apply(
                "Not", graph.apply("Or", graph.apply("IsNaN", self.raw), graph.apply("IsInf", self.raw))
            )

    def number(self, value: float) -> str:
        return self.graph.constant(np.array([[value]], dtype=np.int64 if isinstance(value, int) else np.float64))

    def blocks(self) -> list[str]:
        column = self.column
        if isinstance(column, CurveColumn):
            found = self._curve(column)
        elif isinstance(column, CategoryColumn):
            return [self._category(column)]
        elif isinstance(column, NumericColumn):
            found = self._standardised(column)
        else:
            raise InputError(f"column {column.name!r}: columns of this kind cannot be exported")
        if column.missing == "seen" and not self.as_is:
            found.append(self.graph.numbers(self.graph.apply("Not", self.known)))
        return found

    def filled(self, value: float) -> str:
        return self.graph.apply("Where", self.known, self.raw, self.number(float(value)))

    def one_hot(self, codes: str, width: int) -> str:
        """Return a feature for each code; a code outside of them gives zeros."""
        return self.graph.numbers(self.graph.apply("Equal", codes, self.graph.constant(np.arange(width)[None])))

    def or_nan(self, codes: str, there: str) -> str:
        return self.graph.apply("Where", there, self.graph.numbers(codes), self.number(np.nan))

    # -- numbers and dates

    def _standardised(self, column: NumericColumn) -> list[str]:
        graph = self.graph
        filled = self.filled(np.nan if column.missing == "refused" or self.as_is else column.fill)
        number = graph.apply("Sub", filled, self.number(column.mean))
        found = [graph.apply("Div", number, self.number(column.scale))]
        for part in column.calendar:
            codes, width = self._calendar(part)
            found.append(self.or_nan(codes, self.known) if self.as_is else self._known_one_hot(codes, width))
        return found

    def _known_one_hot(self, codes: str, width: int) -> str:
        return self.graph.apply("Mul", self.one_hot(codes, width), self.graph.numbers(self.known))

    def _calendar(self, part: str) -> tuple[str, int]:
        """Return the place of a date's month, weekday or hour, and how many there are."""
        graph = self.graph
        date = self.filled(0.0)
        day = graph.apply("Floor", date)
        if part == "hour":
            hours = graph.apply("Mul", graph.apply("Sub", date, day), self.number(24.0))
            return self._modulo(graph.apply("Floor", graph.apply("Add", hours, self.number(1.4e-10))), 24), 24
        if part == "weekday":
            return self._modulo(graph.apply("Add", day, self.number(3.0)), 7), 7
        # The month of a day, counted in cycles of 400 years from the first of March of the year 0 (146,097 days each).
        cycle = graph.apply("Mod", graph.apply("Add", graph.whole(day), self.number(719_468)), self.number(146_097))

        def quotient(value: str, divisor: int) -> str:
            return graph.apply("Div", value, self.number(divisor))

        leaps = graph.apply("Sub", graph.apply("Sub", cycle, quotient(cycle, 1_460)), quotient(cycle, 146_096))
        year = quotient(graph.apply("Add", leaps, quotient(cycle, 36_524)), 365)
        days = graph.apply("Mul", year, self.number(365))
        days = graph.apply("Sub", graph.apply("Add", days, quotient(year, 4)), quotient(year, 100))
        of_year = graph.apply("Sub", cycle, days)
        month = quotient(graph.apply("Add", graph.apply("Mul", of_year, self.number(5)), self.number(2)), 153)
        return graph.apply("Mod", graph.apply("Add", month, self.number(2)), self.number(12)), 12

    def _modulo(self, number: str, divisor: int) -> str:
        return self.graph.apply("Mod", self.graph.whole(number), self.number(divisor))

    # -- curves

    def _curve(self, column: CurveColumn) -> list[str]:
        graph = self.graph
        known = graph.numbers(self.known)
        ranks = self._ranks(column)
        if column.steps:
            inner = graph.constant(np.array([column.knots[1:-1]]).reshape(1, -1))
            if column.segments == 1:
                return [known]
            place = graph.total(graph.whole(graph.apply("GreaterOrEqual", ranks, inner)))
            return [graph.apply("Mul", self.one_hot(place, column.segments), known)]
        low, high = (np.array([ends]) for ends in zip(*pairwise(column.knots), strict=True))
        rise = graph.apply("Div", graph.apply("Sub", ranks, graph.constant(low)), graph.constant(high - low))
        rise = graph.apply("Clip", rise, graph.constant(np.float64(0.0)), graph.constant(np.float64(1.0)))
        centred = graph.apply("Sub", rise, graph.constant(np.array([column.means])))
        if column.missing == "refused":
            return [graph.apply("Where", self.known, centred, self.number(np.nan))]
        return [graph.apply("Where", self.known, centred, self.number(0.0))]

    def _ranks(self, column: CurveColumn) -> str:
        """Interpolate the ranks of values, as `numpy.interp` does."""
        graph = self.graph
        values, ranks = np.array(column.values), np.array(column.ranks)
        ends = (graph.constant(np.float64(values[0])), graph.constant(np.float64(values[-1])))
        number = graph.apply("Clip", self.filled(values[0]), *ends)
        above = graph.apply("GreaterOrEqual", number, graph.constant(values[None]))
        place = graph.apply("Sub", graph.total(graph.whole(above)), self.number(1))
        # The slope after the last value is never used: numbers end there.
        slopes = np.append(np.diff(ranks) / np.diff(values), 0.0)
        start, slope, rank = (graph.apply("Gather", graph.constant(one), place) for one in (values, slopes, ranks))
        return graph.apply("Add", rank, graph.apply("Mul", slope, graph.apply("Sub", number, start)))

    # -- categories

    def code(self, levels: Sequence[str]) -> str:
        """Return each text's place among the levels, −1 for another one."""
        places = list(range(len(levels)))
        return self.graph.apply(
            "LabelEncoder", self.raw, ml=True, keys_strings=list(levels), values_int64s=places, default_int64=-1
        )

    def _category(self, column: CategoryColumn) -> str:
        graph, levels = self.graph, column.levels
        if self.text:
            codes = self.code(list(map(str, levels)))
        else:
            equal = graph.apply("Equal", self.raw, graph.constant(np.array([levels], dtype=np.float64)))
            places = graph.apply("Mul", graph.whole(equal), graph.constant(np.arange(1, len(levels) + 1)[None]))
            codes = graph.apply("Sub", graph.total(places), self.number(1))
        unseen = graph.apply("Less", codes, self.number(0))
        if column.other:
            codes = graph.apply("Where", graph.both(unseen, self.known), self.number(len(levels)), codes)
        width = column.widths[0]
        if column.missing == "seen":
            codes = graph.apply("Where", self.known, codes, self.number(width - 1))
        if self.as_is:
            return self.or_nan(codes, graph.apply("GreaterOrEqual", codes, self.number(0)))
        found = self.one_hot(codes, width)
        if column.missing == "refused":
            found = graph.apply("Where", self.known, found, self.number(np.nan))
        return found
