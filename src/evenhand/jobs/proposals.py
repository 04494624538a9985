"""Propose keys of a job file for tables as they are: bands, merged groups, types, duplicate ids, incomplete rows."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pandas as pd

from evenhand.data.tables.columns import ID_ROWS
from evenhand.data.tables.grouping import OTHER, Grouping, merged_groups
from evenhand.data.tables.numerals import Decimal, guessed_numbers
from evenhand.data.tables.raw import Duplicates, TypeName, as_types, is_text
from evenhand.data.tables.suspicions import suspected
from evenhand.errors import DataError
from evenhand.printing import quoted, toml_text

MOST_GROUPS: Final = 12
"""A sensitive column of numbers with more different values becomes bands."""
LEAST_ROWS: Final = 50
"""Smaller groups are merged."""
_AGES: Final = ("age", "alter", "edad", "eta")
_AGE_BANDS: Final = (30.0, 60.0)


@dataclass(frozen=True)
class Proposal:
    """A key of a section, the value to give it, why, and whether a person has given it."""

    key: str
    value: Any
    why: str
    given: bool = False

    def line(self) -> str:
        """Return the line of the job file."""
        return f"{self.key} = {toml_text(self.value)}"


def proposals(
    frame: pd.DataFrame,
    *,
    id: str | None,
    features: Sequence[str],
    label: str | None = None,
    sensitive: Sequence[str] = (),
    decimal: Decimal = ".",
    said: Collection[str] = (),
    types: Mapping[str, TypeName] | None = None,
    grouping: Grouping | None = None,
    by_name: bool = False,
) -> list[Proposal]:
    """Return what a table needs beyond what its section says.

    Parameters
    ----------
    frame
        The table as it is, with the id as a column.
    decimal
        The decimal sign that the section states.
    said
        Keys of the section that are set: `duplicates` and `incomplete` are not proposed again.
    types, grouping
        What the section says of columns. A proposal includes it.
    by_name
        Whether groups can only be merged by name, as across clients.
    """
    found: list[Proposal | None] = []
    if id is not None and id in frame.columns and "duplicates" not in said:
        found.append(_duplicates(frame, id))
    needed = [name for name in (label, *sensitive) if name is not None and name in frame.columns]
    if label is not None and "incomplete" not in said:
        found.append(_incomplete(frame, needed))
    given = grouping or Grouping()
    bands, merge = dict(given.bands), dict(given.merge)
    reasons: dict[str, list[str]] = {"bands": [], "merge": []}
    for name in sensitive:
        if name not in frame.columns:
            continue
        column = frame[name].dropna()
        if name not in bands and (edges := _bands(column)) is not None:
            bands[name] = edges
            reasons["bands"].append(f"{name} has {column.nunique():,} different numbers; groups need bands")
        if name not in merge and (small := _small(column, bands.get(name))) is not None:
            merge[name] = {OTHER: small_groups(column)} if by_name else f"under {LEAST_ROWS}"
            reasons["merge"].append(small)
    for key, value in (("bands", bands), ("merge", merge)):
        if reasons[key]:
            found.append(Proposal(key, value, "; ".join(reasons[key])))
    more, why = _types(frame, features, types or {}, decimal)
    if more:
        found.append(Proposal("types", {**(types or {}), **more}, why))
    return [one for one in found if one is not None]


def _duplicates(frame: pd.DataFrame, id: str) -> Proposal | None:
    again = int(frame[id].duplicated().sum())
    if not again or frame[id].isna().any():
        return None
    inside = frame[frame[id].duplicated(keep=False)]
    rule: Duplicates = "first" if inside.drop_duplicates().shape[0] == inside[id].nunique() else "sum"
    how = "all alike" if rule == "first" else "which differ; sum adds up their numbers"
    return Proposal("duplicates", rule, f"{inside[id].nunique():,} ids have more than one row, {how}")


def _incomplete(frame: pd.DataFrame, needed: Iterable[str]) -> Proposal | None:
    lacking = {name: int(frame[name].isna().sum()) for name in needed}
    some = [f"{count:,} rows have no {name}" for name, count in lacking.items() if count]
    return Proposal("incomplete", "drop", ", ".join(some)) if some else None


def _bands(column: pd.Series) -> list[float] | None:
    """Return edges of three bands: 30 and 60 for ages, and else round numbers near the terciles."""
    if pd.api.types.is_bool_dtype(column) or not pd.api.types.is_numeric_dtype(column):
        return None
    if column.nunique() <= MOST_GROUPS:
        return None
    numbers = column.to_numpy(dtype=np.float64)
    words = str(column.name).lower().replace("-", "_").split("_")
    if any(word in _AGES for word in words) and min(_rows_of(numbers, _AGE_BANDS)) >= LEAST_ROWS:
        return list(_AGE_BANDS)
    low, high = np.quantile(numbers, [1 / 3, 2 / 3])
    for digits in range(1, 16):
        step = 10.0 ** (np.floor(np.log10(max(np.ptp(numbers), 1e-300))) - digits)
        edges = [float(f"{round(one / step) * step:.12g}") for one in (low, high)]
        if edges[0] < edges[1] and min(_rows_of(numbers, edges)) > 0:
            return edges
    return [float(np.median(numbers))]


def _rows_of(numbers: Any, edges: Sequence[float]) -> list[int]:
    return np.bincount(np.searchsorted(edges, numbers, side="right"), minlength=len(edges) + 1).tolist()


def _small(column: pd.Series, bands: Sequence[float] | None) -> str | None:
    if bands is not None or column.nunique() > len(column) / 2:
        return None
    sizes = column.map(str).value_counts()
    few = sizes[sizes < LEAST_ROWS]
    # Without two groups left there is nothing to compare.
    if few.empty or len(sizes) - len(few) < 2:
        return None
    shown = ", ".join(f"{quoted(name)} has {rows} rows" for name, rows in few.head(3).items())
    return f"of {column.name}, {shown}{', ...' if len(few) > 3 else ''}"


def small_groups(column: pd.Series) -> list[str]:
    """Return the groups that ``"under 50"`` would merge, by name."""
    return sorted(merged_groups(column.map(str).value_counts(), LEAST_ROWS))


def _types(
    frame: pd.DataFrame, features: Sequence[str], declared: Mapping[str, TypeName], decimal: Decimal
) -> tuple[dict[str, TypeName], str]:
    found = {
        name: kind
        for name in features
        if name not in declared and name in frame.columns and (kind := proposed_type(frame[name], decimal)) is not None
    }
    examples = (f"{name} has {quoted(frame[name].dropna().iloc[0])}" for name in list(found)[:3])
    return found, "; ".join(examples)


def proposed_type(column: pd.Series, decimal: Decimal) -> TypeName | None:
    """Return the type that a column of text should be stated to have."""
    if not is_text(column):
        return None
    if (numbers := guessed_numbers(column)) is not None:
        return "number" if numbers.decimal == decimal else None
    known = column.dropna()
    if (looks := suspected(str(column.name), known.value_counts().to_dict())) is not None:
        return looks.kind if looks.kind != "date" or _reads_as_dates(column, decimal) else None
    if _reads_as_dates(column, decimal):
        return "date"
    return "leave out" if len(known) >= ID_ROWS and known.is_unique else None


def _reads_as_dates(column: pd.Series, decimal: Decimal) -> bool:
    try:
        as_types(column.to_frame(), {str(column.name): "date"}, decimal, "")
    except DataError:
        return False
    return True
