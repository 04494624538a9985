"""Columns as they are, for trees: numbers with their gaps, categories as codes, one feature a column.

A gap, or a level not seen at fit, is NaN: where it goes is learned, or is the tree's default. A date is the number of
its day, and the numbers of its parts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from evenhand.arrays import Array
from evenhand.data.tables.columns import Column, GapColumn, LevelColumn, NumberColumn, PartColumn
from evenhand.data.tables.learning import PartialColumn
from evenhand.data.tables.making import Made, Rules, fit_column
from evenhand.data.tables.raw import NUMBER, RawColumn


def learn_column(raw: RawColumn, rules: Rules) -> Made:
    """A number, a date, or a category with its levels, from the values that are there."""
    if raw.kind == NUMBER and not raw.known.size:
        if rules.refuses(raw.name):
            raw.refuse_gaps()
        return Made((NumberColumn(raw.name, 0.0, 1.0, "unseen"),))
    return as_they_are(fit_column(raw, False, rules))


def learn_more(seen: PartialColumn, raw: RawColumn) -> PartialColumn:
    """The same batch by batch: of a batch of nothing but gaps only its type is learned."""
    if raw.kind == NUMBER and not raw.known.size:
        return replace(seen.after(raw), kind=seen.kind or NUMBER)
    return seen.after(raw)


def learned(seen: PartialColumn, rules: Rules) -> Made:
    if seen.kind == NUMBER and not seen.rows:
        return Made((NumberColumn(seen.name, 0.0, 1.0, "unseen"),))
    return as_they_are(seen.made(False, rules))


def as_they_are(made: Made) -> Made:
    """Without flags for gaps, which stay gaps."""
    columns = []
    for column in made.columns:
        if isinstance(column, (NumberColumn, LevelColumn)):
            column = replace(column, missing="refused" if column.missing == "refused" else "unseen")
            column = replace(column, fill=0.0) if isinstance(column, NumberColumn) else column
        if not isinstance(column, GapColumn):
            columns.append(column)
    return Made(tuple(columns), made.remarks)


def assemble_as_is(columns: Sequence[Column], found: Sequence[RawColumn], rows: int) -> Array:
    """Encode into a float64 array, one feature a column."""
    out = np.full((rows, len(columns)), np.nan)
    for place, (column, raw) in enumerate(zip(columns, found, strict=True)):
        there = ~raw.gaps
        if isinstance(column, (NumberColumn, LevelColumn)) and column.missing == "refused":
            raw.refuse_gaps()
        if not there.any() or raw.kind is None:
            continue
        if isinstance(column, NumberColumn):
            raw.require(column.kind)
            out[there, place] = raw.numbers[there]
        else:
            codes = column.codes(raw).astype(np.float64)
            out[:, place] = np.where(codes < 0, np.nan, codes)
    return out


def names_as_is(columns: Sequence[Column]) -> list[str]:
    return [f"{one.name} {one.part}" if isinstance(one, PartColumn) else one.name for one in columns]


def categorical_places(columns: Sequence[Column]) -> tuple[int, ...]:
    """Which features hold codes."""
    return tuple(place for place, column in enumerate(columns) if isinstance(column, LevelColumn))
