"""Where a row comes from: natural clients of unequal size, in place of a draw.

Adult names the country of birth, and Communities and Crime the state of each community (by its FIPS code). Regions are
the clients.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final

import pandas as pd

from evenhand.data.compressed import read_plain
from evenhand.data.public.catalog import lookup
from evenhand.data.public.fetch import fetch
from evenhand.data.public.loaders import Dataset
from evenhand.errors import InputError

PLACE: Final = "place"
_NEAR: Final = (
    "Mexico Puerto-Rico El-Salvador Cuba Jamaica Dominican-Republic Guatemala Columbia Haiti Nicaragua Peru Ecuador "
    "Trinadad&Tobago Honduras Canada"
)
_ASIA: Final = "Philippines India China South Japan Vietnam Iran Taiwan Thailand Hong Cambodia Laos"
_AT_HOME: Final = "United-States Outlying-US(Guam-USVI-etc)"
_BY_COUNTRY: Final = {
    **dict.fromkeys(_AT_HOME.split(), "United States"),
    **dict.fromkeys(_NEAR.split(), "rest of the Americas"),
    **dict.fromkeys(_ASIA.split(), "Asia"),
}
"""All other countries are in Europe. "South" is South Korea in most readings of the set."""

_NORTHEAST: Final = (9, 23, 25, 33, 34, 36, 42, 44, 50)
_MIDWEST: Final = (17, 18, 19, 20, 26, 27, 29, 31, 38, 39, 46, 55)
_SOUTH: Final = (1, 5, 10, 11, 12, 13, 21, 22, 24, 28, 37, 40, 45, 47, 48, 51, 54)
_BY_STATE: Final = {
    **dict.fromkeys(_NORTHEAST, "Northeast"),
    **dict.fromkeys(_MIDWEST, "Midwest"),
    **dict.fromkeys(_SOUTH, "South"),
}
"""The regions of the Census Bureau; all other states are in the West."""


def _adult(table: Dataset, source: Path | None) -> pd.Series:
    return table.frame["native-country"].astype(str).map(lambda country: _BY_COUNTRY.get(country, "Europe"))


def _crime(table: Dataset, source: Path | None) -> pd.Series:
    raw = read_plain(fetch(lookup("communities-crime"), source=source)["communities.data"])
    states = [int(line.split(",", 1)[0]) for line in raw.decode().splitlines() if line]
    return pd.Series([_BY_STATE.get(state, "West") for state in states], index=table.frame.index)


_PLACES: Final[dict[str, Callable[[Dataset, Path | None], pd.Series]]] = {"adult": _adult, "communities-crime": _crime}
REGIONS: Final = 4
"""Clients of a split by place."""


def places(name: str, table: Dataset, source: Path | None) -> pd.Series:
    """Return the region of each row of a table."""
    if name not in _PLACES:
        raise InputError(f"{name} does not say where its rows come from; split by place needs {' or '.join(_PLACES)}")
    return _PLACES[name](table, source)
