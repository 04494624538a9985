"""Splits of rows among clients: at random, or skewed by label, by sensitive attribute, by both, or in conflict."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np
import pandas as pd

from evenhand.arrays import Integers
from evenhand.errors import InputError
from evenhand_reproductions.data.clients import dirichlet_clients, iid_clients

SKEW: Final = 0.5
"""α of the Dirichlet draws."""


def _both(labels: pd.Series, groups: pd.Series) -> pd.Series:
    return labels.astype(str) + " and " + groups.astype(str)


def _agreement(labels: pd.Series, groups: pd.Series) -> pd.Series:
    """Whether a row's label and group are both the more frequent one, or both are not.

    Clients with many such rows favour one group, and clients with few favour the other: a model that is fair at one is
    unfair at the other (the attribute conflict of FeDa4Fair, Heilmann et al., 2025).
    """
    common = labels == labels.mode()[0]
    return common == (groups == groups.mode()[0])


_STRATA: Final[dict[str, Callable[[pd.Series, pd.Series], pd.Series]]] = {
    "label": lambda labels, groups: labels,
    "sensitive": lambda labels, groups: groups,
    "both": _both,
    "conflicting": _agreement,
}
SPLITS: Final = ("iid", *_STRATA)


def client_numbers(split: str, labels: pd.Series, groups: pd.Series, clients: int, seed: int) -> Integers:
    """Return the client of each row: at random, or by Dirichlet draws over strata of the rows."""
    if split == "iid":
        return iid_clients(len(labels), clients, seed)
    if split not in _STRATA:
        raise InputError(f"split is {split!r}; choose one of {', '.join(map(repr, SPLITS))}")
    strata = np.asarray(_STRATA[split](labels.reset_index(drop=True), groups.reset_index(drop=True)).astype(str))
    return dirichlet_clients(strata, clients, SKEW, seed)
