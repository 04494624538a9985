"""What tables of both splits have in common: an error says whose table it is about, and test rows are held out."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import pandas as pd

from evenhand.arrays import Booleans
from evenhand.data.splits import held_out
from evenhand.errors import ColumnWarning, ConstraintError, DataError


@contextmanager
def naming(owner: str) -> Iterator[None]:
    """Say whose table an error is about."""
    try:
        yield
    except (DataError, ConstraintError) as error:
        raise type(error)(f"{owner}: {error}") from error


def tell(owner: str, remarks: Iterable[str]) -> None:
    """Warn of what was made of somebody's columns."""
    for remark in remarks:
        warnings.warn(f"{owner}: {remark}", ColumnWarning, stacklevel=3)


def not_used(sizes: Mapping[str, int], used: int, what: str) -> list[str]:
    """In words how many of each party's rows are not used, where there are any."""
    lacking = [f"{rows - used:,} of {name}'s {rows:,} rows" for name, rows in sizes.items() if rows > used]
    if not lacking:
        return []
    return [f"{used:,} rows are in all tables and {what}; {', '.join(lacking)} are not, since somebody lacks them"]


def hold_out(ids: pd.Index | Sequence[Any], fraction: float, seed: int, *, none_is_fine: bool = False) -> Booleans:
    """Which rows are test rows, by a hash of the id; some must be left to train on."""
    if fraction == 0:
        return np.zeros(len(ids), dtype=bool)
    test = held_out(ids, fraction, seed)
    if test.all() or not (none_is_fine or test.any()):
        part = "all" if test.all() else "none"
        raise DataError(f"test_fraction = {fraction} holds out {part} of the {len(ids)} rows; change it, or the seed")
    return test


def parts_of(test: Booleans) -> dict[str, Booleans]:
    """Which rows are ``"train"`` and which ``"test"`` rows, if there are any."""
    return {name: rows for name, rows in {"train": ~test, "test": test}.items() if rows.any()}
