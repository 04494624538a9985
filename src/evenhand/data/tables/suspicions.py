"""Columns of text that are something else: dates, numbers with words among them, free text."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final, NamedTuple

import pandas as pd

from evenhand.data.tables.dates import read_dates
from evenhand.data.tables.numerals import read_any_number
from evenhand.data.tables.raw import TypeName, is_text
from evenhand.printing import listed, toml_key

_LEAST_SHARE: Final = 0.5
"""A column is suspected to hold dates, or numbers, if at least this share of its cells are."""
_LEAST_LEVELS: Final = 10
"""Fewer different numbers may well be codes."""
_FREE_LEVELS: Final = 30
_FREE_ROWS: Final = 5
"""Text is free if it has more different values than the former, and fewer rows for each than the latter."""


class Suspicion(NamedTuple):
    """The type that a column of text seems to have, and a sentence that says why."""

    kind: TypeName
    said: str


def suspected(name: str, counts: Mapping[Any, int]) -> Suspicion | None:
    """Tell what a column of text seems to be, given how many rows have each value."""
    rows, levels = sum(counts.values()), len(counts)
    if levels < _LEAST_LEVELS:
        return None
    cost = f"each of its {levels:,} different values is a category"

    def as_type(kind: TypeName) -> str:
        return f'types = {{ {toml_key(name)} = "{kind}" }}'

    dates = read_dates(map(str, counts))
    read = sum(counts[one] for one in counts if str(one) in dates.values or str(one) in dates.unclear)
    if read >= _LEAST_SHARE * rows:
        ways = f"dates in {len(dates.formats)} formats" if len(dates.formats) > 1 else "dates"
        examples = listed(dates.formats or dates.unclear, most=3)
        others = f"; others, such as {listed(dates.words, most=2)}, would count as missing" if dates.words else ""
        advice = f"Read them with {as_type('date')}"
        if dates.unclear:
            advice = "Day and month cannot be told apart: write dates as 2020-12-31"
        said = f"column {name!r}: {_share(read, rows)} of {rows:,} cells are {ways}, such as {examples}{others}"
        return Suspicion("date", f"{said}. Now {cost}. {advice}")
    numbers = {one: value for one in counts if (value := read_any_number(str(one))) is not None}
    read = sum(counts[one] for one in numbers)
    codes = any(str(one).strip().lstrip("+-").startswith("0") and value >= 1 for one, value in numbers.items())
    if len(numbers) >= _LEAST_LEVELS and read >= _LEAST_SHARE * rows and not codes:
        words = [one for one in counts if one not in numbers]
        said = (
            f"column {name!r}: {_share(rows - read, rows)} of {rows:,} cells are no numbers, such as "
            f"{listed(words, most=3)}; the others are, such as {listed(numbers, most=2)}"
        )
        if not words:
            said = f"column {name!r} has numbers with different decimal signs, such as {listed(numbers, most=3)}"
        return Suspicion("number", f"{said}. Now {cost}. Read it with {as_type('number')}: words then count as missing")
    if levels > _FREE_LEVELS and rows < _FREE_ROWS * levels:
        said = f"column {name!r}: {levels:,} different values in {rows:,} cells"
        return Suspicion(
            "leave out",
            f"{said}, such as {listed(counts, most=2)}: free text perhaps. Now {cost}. Leave it out with "
            f"{as_type('leave out')}, or keep the most frequent values with max_levels = 100",
        )
    return None


def suspicions_in(frame: pd.DataFrame, columns: Sequence[str], declared: Collection[str] = ()) -> dict[str, Suspicion]:
    """Return what columns of text seem to be, by name; those of `declared` types are what they are said to be."""
    found = {}
    for name in columns:
        if name not in declared and name in frame.columns and is_text(frame[name]):
            counts = frame[name].value_counts().to_dict()
            if (looks := suspected(name, counts)) is not None:
                found[name] = looks
    return found


def _share(part: int, whole: int) -> str:
    """Return a share in per cent; only all is 100 % and only nothing is 0 %."""
    if part in (0, whole):
        return "all" if part else "none"
    return f"{min(max(100 * part / whole, 0.1), 99.9):.3g} %"
