"""Find features that tell a sensitive column: a recoded one, or a year of birth beside bands of age."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import numpy as np
import pandas as pd

from evenhand.arrays import Integers
from evenhand.printing import toml_key

_LEAST_ROWS: Final = 20
_MOST_ERRORS: Final = 0.05
"""A twin is wrong about the group at most this often, relative to chance."""


def twins(features: Iterable[tuple[str, pd.Series]], groups: pd.DataFrame) -> list[str]:
    """Return a remark for each feature that tells a row's group.

    Rows are sorted by the feature, rows with the same value at random. The feature is a twin if neighbours nearly
    always have the same group. This also finds numbers of which each range is one group.
    """
    said = []
    codes = {str(name): pd.factorize(groups[name])[0] for name in groups.columns}
    for name, column in features:
        for attribute, own in codes.items():
            if name != attribute and len(column) >= _LEAST_ROWS and (share := _told(column, own)) is not None:
                said.append(
                    f"column {name!r} tells {attribute!r} of {share} rows, and {attribute!r} is sensitive. Models with "
                    f"{name!r} can use it in place of {attribute!r}. Leave the column out, in a job file with "
                    f'types = {{ {toml_key(name)} = "leave out" }}, unless that is meant'
                )
    return said


def _told(column: pd.Series, groups: Integers) -> str | None:
    """Return the share of rows of which the group is told, as text; None if it is not."""
    shares = np.bincount(groups[groups >= 0]) / max(int((groups >= 0).sum()), 1)
    chance = 1.0 - float(np.square(shares).sum())
    if chance == 0.0 or column.isna().all():
        return None
    values, levels = pd.factorize(column.astype(str) if column.dtype == object else column)
    numeric = pd.api.types.is_numeric_dtype(column) or pd.api.types.is_datetime64_any_dtype(column)
    if numeric:
        values = np.argsort(np.argsort(levels))[values]
    elif len(levels) > len(column) / 2:
        # Text that differs in most rows has no neighbours.
        return None
    mixed = np.random.default_rng(0).permutation(len(values))
    order = mixed[np.argsort(values[mixed], kind="stable")]
    beside = groups[order]
    errors = int(np.count_nonzero(beside[1:] != beside[:-1]))
    # However well a column tells the group, it changes between two levels of text, and between two ranges of numbers.
    changes = int(np.count_nonzero(shares)) - 1 if numeric else len(levels) - 1
    if max(errors - changes, 0) > _MOST_ERRORS * chance * (len(values) - 1):
        return None
    wrong = max(errors - min(changes, errors), 0) / (len(values) - 1)
    return "all" if wrong == 0 else f"{100 * (1 - wrong):.1f} % of the"
