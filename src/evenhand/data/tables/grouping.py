"""Sensitive columns as banks have them: numbers become bands, and small groups are merged."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final

import numpy as np
import pandas as pd

from evenhand.errors import DataError, InputError
from evenhand.printing import listed, quoted

OTHER: Final = "other"
"""Name of the group that small groups are merged into."""
_UNDER: Final = re.compile(r"under ([1-9][0-9]*)")


@dataclass(frozen=True)
class Grouping:
    """How sensitive columns become groups.

    Attributes
    ----------
    bands
        Numbers at which a new band begins, by column.
    merge
        By column: ``"under 50"`` merges groups with fewer rows into ``"other"``; a mapping names new groups and the
        groups in each.
    """

    bands: Mapping[str, Sequence[float]] = field(default_factory=dict)
    merge: Mapping[str, str | Mapping[str, Sequence[str]]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name, edges in self.bands.items():
            if not edges or not np.isfinite(edges).all() or (np.diff(edges) <= 0).any():
                raise InputError(f"bands.{name} is {quoted(list(edges))}; give rising numbers, such as [30, 60]")
        for name, rule in self.merge.items():
            if isinstance(rule, str) and _UNDER.fullmatch(rule) is None:
                raise InputError(f'merge.{name} is {quoted(rule)}; write it as "under 50", or name the groups')

            if isinstance(rule, str):
                continue
            listed_groups = [group for groups in rule.values() for group in groups]
            if not rule or any(not new.strip() or not groups for new, groups in rule.items()):
                raise InputError(
                    f"merge.{name} has a group without a name, or without groups to merge into it; write it as "
                    f'{{ {name} = {{ other = ["one", "another"] }} }}'
                )
            if twice := next((group for group in listed_groups if listed_groups.count(group) > 1), None):
                raise InputError(f"merge.{name} names {quoted(twice)} twice; merge each group into one")

    def groups(
        self, frame: pd.DataFrame | pd.Series, trained: Mapping[str, AbstractSet[str]] | None = None
    ) -> pd.DataFrame:
        """Return sensitive columns with bands and merged groups; other columns stay as they are.

        Parameters
        ----------
        frame
            Sensitive columns, or a Series with a name; all columns of `bands` and `merge` must be there.
        trained
            For new rows: the groups of the training rows by column. A group that was merged there is merged here.
        """
        frame = frame.to_frame() if isinstance(frame, pd.Series) else frame
        found = {}
        for key in ("bands", "merge"):
            if strange := [name for name in getattr(self, key) if name not in frame.columns]:
                raise InputError(f"{key} names {strange[0]!r}, which is not a column; there is {listed(frame.columns)}")
        for name in map(str, frame.columns):
            column = frame[name]
            if name in self.bands:
                column = _banded(column, self.bands[name])
            if name in self.merge:
                column = _merged(column, self.merge[name], None if trained is None else trained.get(name, set()))
            found[name] = column
        return pd.DataFrame(found, index=frame.index)


def _banded(column: pd.Series, edges: Sequence[float]) -> pd.Series:
    numbers = pd.to_numeric(column, errors="coerce")
    if strange := column[numbers.isna() & column.notna()].unique().tolist():
        raise DataError(
            f"bands.{column.name}: the column holds {quoted(strange[0])}, which is no number; merge groups of text "
            "with merge"
        )
    ends = [f"{edge:g}" for edge in edges]
    between = [f"{low} to under {high}" for low, high in pairwise(ends)]
    names = np.array([f"under {ends[0]}", *between, f"{ends[-1]} and over"], dtype=object)
    places = np.searchsorted(np.asarray(edges, dtype=np.float64), numbers.to_numpy(dtype=np.float64), side="right")
    return pd.Series(names[places], column.index, name=column.name).where(numbers.notna(), None)


def merged_groups(sizes: pd.Series, least: int) -> set[str]:
    """Return the groups to merge: those with fewer rows, and the next smallest while all of them have fewer."""
    rising = sizes.sort_values(kind="stable")
    before = rising.cumsum() - rising
    return set(rising.index[(rising < least) | ((before > 0) & (before < least))])


def _merged(
    column: pd.Series, rule: str | Mapping[str, Sequence[str]], trained: AbstractSet[str] | None = None
) -> pd.Series:
    text = column.map(str).where(column.notna(), None)
    if isinstance(rule, str):
        sizes, least = text.value_counts(), int(rule.removeprefix("under "))
        small = merged_groups(sizes, least) if trained is None else set(sizes.index) - trained
        return text.where(~text.isin(small), OTHER) if small else text
    known = set(text.dropna())
    into = {}
    for name, groups in rule.items():
        for group in groups:
            if trained is None and group not in known:
                raise DataError(f"merge.{column.name} names {group!r}; the groups are {listed(sorted(known))}")
            into[group] = name
    return text.map(lambda value: into.get(value, value))
