"""Sensitive attributes: their columns, their values, and each row's value as a code.

Attributes can be crossed: sex × race is one more attribute; its groups are the combinations of groups that occur
("Female × Black"). Its name joins the attributes' names, so that all holders of the attributes derive the same column.
Slices and solvers treat it like any other attribute.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Final, TypeAlias

import numpy as np
import pandas as pd

from evenhand.arrays import Integers
from evenhand.errors import DataError
from evenhand.printing import listed, quoted

Groups: TypeAlias = Mapping[str, Sequence[Hashable]]
"""The distinct values of each sensitive attribute, in the order that numbers them."""
CROSSES: Final = " × "
"""Joins the names of crossed attributes, and of their groups."""
PATTERNS: Final = "also at"
"""Names the column that says which other parties have each row; see `presence`. It is no sensitive attribute."""


def groups_frame(sensitive: pd.DataFrame | pd.Series | np.ndarray | None, rows: int) -> pd.DataFrame:
    """Return sensitive features, in any of the usual containers, as a frame with one column per attribute."""
    if sensitive is None:
        return pd.DataFrame(index=range(rows))
    if isinstance(sensitive, pd.DataFrame):
        frame = sensitive.rename(columns=str)
    elif isinstance(sensitive, pd.Series):
        name = "group" if sensitive.name is None else str(sensitive.name)
        frame = sensitive.to_frame(name)
    else:
        values = np.asarray(sensitive)
        values = values[:, None] if values.ndim == 1 else values
        if values.ndim != 2:
            raise DataError(f"sensitive features have {values.ndim} dimensions; give one column per attribute")
        names = ["group"] if values.shape[1] == 1 else [f"group{i}" for i in range(values.shape[1])]
        frame = pd.DataFrame(values, columns=names)
    if not frame.columns.is_unique:
        twice = listed(frame.columns[frame.columns.duplicated()].unique())
        raise DataError(f"two sensitive attributes have one name ({twice}); names must differ")
    if len(frame) != rows:
        raise DataError(f"sensitive features have {len(frame)} rows, the data has {rows}")
    for name in frame.columns:
        missing = int(frame[name].isna().sum())
        if missing:
            raise DataError(f"sensitive attribute {name!r} has {missing} missing values; fill or drop those rows")
    return frame


def groups_of(frame: pd.DataFrame) -> dict[str, tuple[Hashable, ...]]:
    """Return the values that occur, sorted."""
    return {str(name): tuple(_sorted_values(str(name), frame[name])) for name in frame.columns}


def _sorted_values(name: str, column: pd.Series) -> Iterable[Hashable]:
    try:
        return pd.factorize(column, sort=True)[1]
    except TypeError as error:
        raise DataError(
            f"sensitive attribute {name!r} has values that cannot be put in order ({error}); make all of them text, or "
            "all numbers"
        ) from error


def check_groups(groups: Groups) -> None:
    """Refuse an attribute with fewer than two groups."""
    for name, values in groups.items():
        if len(values) < 2 and name != PATTERNS:
            only = f"one group only ({values[0]!r})" if values else "no group that can be compared"
            raise DataError(
                f"sensitive attribute {name!r} has {only}; it needs two or more: change its groups, or leave it out"
            )


def group_codes(frame: pd.DataFrame, groups: Groups) -> dict[str, Integers]:
    """Return each row's group of each attribute, as its place among the agreed values; -1 for a left-out crossing."""
    crossing = crossed_name(groups)
    found: dict[str, Integers] = {}
    for attribute, values in groups.items():
        # Look up each distinct value once. A missing value has code -1 and is not found.
        codes, occurring = pd.factorize(frame[attribute])
        place = np.append(pd.Index(list(values)).get_indexer(pd.Index(occurring)), -1)[codes]
        if (place < 0).any() and attribute != crossing:
            unknown = frame[attribute].iloc[int(np.flatnonzero(place < 0)[0])]
            raise DataError(
                f"{attribute!r} has the value {quoted(unknown)}, which is not among the agreed groups {listed(values)}"
            )
        found[attribute] = place.astype(np.int64)
    return found


def crossed_name(attributes: Iterable[object]) -> str | None:
    """Return the attribute that is the crossing of all others; None if there is none."""
    names = [str(name) for name in attributes if name != PATTERNS]
    return next((name for name in names if len(names) > 2 and _crosses(name, names)), None)


def _crosses(name: str, attributes: Sequence[str]) -> bool:
    return sorted(name.split(CROSSES)) == sorted(other for other in attributes if other != name)


def with_crossing(frame: pd.DataFrame, name: str | None = None) -> pd.DataFrame:
    """Add the crossing of all sensitive attributes as a column, unless the frame already has it.

    Parameters
    ----------
    name
        Name of the crossing, which gives the order of attributes; None takes the order of the columns.
    """
    present = crossed_name(frame.columns)
    if present is not None and name in (None, present):
        return frame
    attributes = [str(column) for column in frame.columns if str(column) not in (present, PATTERNS)]
    if len(attributes) < 2:
        had = listed(frame.columns) or "none"
        raise DataError(f"cross=True crosses two or more sensitive attributes; there is {had}")
    words = frame.astype(object).map(str)
    for column in attributes:
        # The separator inside a name would make crossings ambiguous.
        unclear = [column] if CROSSES in column else [one for one in words[column].unique() if CROSSES in one]
        if unclear:
            raise DataError(
                f"{quoted(unclear[0])} contains {CROSSES.strip()}, the separator of crossed groups; rename it"
            )
    ordered = words[attributes if name is None else name.split(CROSSES)]
    joined = ordered.iloc[:, 0].str.cat(ordered.iloc[:, 1:], sep=CROSSES)
    return frame.assign(**{CROSSES.join(ordered.columns): joined})
