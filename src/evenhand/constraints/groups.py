"""Sensitive attributes: one column for each, the values it takes, and each row's value as a number."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import TypeAlias

import numpy as np
import pandas as pd

from evenhand.arrays import Integers
from evenhand.errors import DataError

Groups: TypeAlias = Mapping[str, Sequence[Hashable]]
"""The distinct values of each sensitive attribute, in the order that numbers them."""


def groups_frame(sensitive: pd.DataFrame | pd.Series | np.ndarray | None, rows: int) -> pd.DataFrame:
    """Sensitive features in any of the usual containers, as a frame with one column per attribute."""
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
    if len(frame) != rows:
        raise DataError(f"sensitive features have {len(frame)} rows, the data has {rows}")
    for name in frame.columns:
        missing = int(frame[name].isna().sum())
        if missing:
            raise DataError(f"sensitive attribute {name!r} has {missing} missing values; fill or drop those rows")
    return frame


def groups_of(frame: pd.DataFrame) -> dict[str, tuple[Hashable, ...]]:
    """The values that occur, sorted."""
    return {str(name): tuple(pd.factorize(frame[name], sort=True)[1]) for name in frame.columns}


def check_groups(groups: Groups) -> None:
    """Refuse an attribute that does not tell anybody apart."""
    for name, values in groups.items():
        if len(values) < 2:
            raise DataError(f"sensitive attribute {name!r} has one group only ({values[0]!r}); it needs two or more")


def group_codes(frame: pd.DataFrame, groups: Groups) -> dict[str, Integers]:
    """Each row's group of each attribute, as its place among the agreed values."""
    found: dict[str, Integers] = {}
    for attribute, values in groups.items():
        place = pd.Index(list(values)).get_indexer(pd.Index(frame[attribute]))
        if (place < 0).any():
            unknown = frame[attribute].iloc[int(np.flatnonzero(place < 0)[0])]
            raise DataError(
                f"{attribute!r} has the value {unknown!r}, which is not among the agreed groups {list(values)}"
            )
        found[attribute] = place.astype(np.int64)
    return found
