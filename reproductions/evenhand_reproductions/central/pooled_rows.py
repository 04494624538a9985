"""Check pooled scores, labels and groups for post-processing. Rows are matched by position."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import pandas as pd

from evenhand.arrays import Array, Booleans, Integers
from evenhand.constraints import groups_frame
from evenhand.errors import DataError, InputError

Seed: TypeAlias = int | np.random.RandomState | None


@dataclass(frozen=True)
class Groups:
    """The groups seen in fitting."""

    names: pd.Index[Any]

    @classmethod
    def of(cls, sensitive_features: Any, rows: int) -> Groups:
        column = _group_column(sensitive_features, rows)
        try:
            names = column.unique().sort_values()
        except TypeError as error:
            raise DataError(f"sensitive_features mixes values that have no common order: {error}") from error
        if len(names) < 2:
            raise DataError(f"sensitive_features holds only the group {names[0]!r}: rates are compared between two")
        return cls(names)

    def codes(self, sensitive_features: Any, rows: int) -> Integers:
        """Return each row's group as an index into ``names``."""
        column = _group_column(sensitive_features, rows)
        codes = self.names.get_indexer(column).astype(np.int64)
        if (codes < 0).any():
            unknown = column[codes < 0].unique().tolist()
            raise DataError(
                f"groups {unknown[:5]!r} were not there in fitting, only {self.names.tolist()!r}: fit again"
            )
        return codes


def finite_scores(values: Any, name: str = "scores") -> Array:
    """Read one finite number per row."""
    try:
        scores = pd.Series(values).to_numpy(dtype=np.float64, na_value=np.nan)
    except (TypeError, ValueError) as error:
        raise DataError(f"{name} is not one number per row: {error}") from error
    if not len(scores):
        raise DataError(f"{name} has no rows")
    if bad := int(np.count_nonzero(~np.isfinite(scores))):
        raise DataError(
            f"{name} has {bad} values that are missing, NaN or infinite: one finite number per row is needed"
        )
    return scores


def truths(labels: Any, rows: int, pos_label: Any = None) -> Booleans:
    """Return which rows have the label ``pos_label``, by default the larger of the two."""
    try:
        codes, levels = pd.factorize(pd.Series(labels), sort=True)
    except (TypeError, ValueError) as error:
        raise DataError(f"labels are not a single column of comparable values: {error}") from error
    if len(codes) != rows:
        raise DataError(f"there are {len(codes)} labels for {rows} scores: each row needs one of each")
    if missing := int(np.count_nonzero(codes < 0)):
        raise DataError(f"labels has {missing} missing values: drop these rows")
    if len(levels) != 2:
        raise DataError(f"labels has {len(levels)} distinct values, {levels[:5].tolist()!r}: two are needed")
    if pos_label is not None and pos_label not in levels:
        raise DataError(f"the positive label {pos_label!r} does not occur: pass pos_label= one of {levels.tolist()!r}")
    code = 1 if pos_label is None else levels.get_loc(pos_label)
    return np.asarray(codes == code)


def require_choice(name: str, value: Any, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise InputError(f"{name} is {value!r}: choose one of {', '.join(choices)}")


def require_rows(counted: Booleans, codes: Integers, groups: Groups, what: str) -> None:
    """Refuse a group without rows that its rate counts."""
    sizes = np.bincount(codes[counted], minlength=len(groups.names))
    if not sizes.all():
        group = groups.names[int(sizes.argmin())]
        raise DataError(f"group {group!r} has no {what}: merge it with another, leave it out, or fit on more rows")


def group_means(values: Array, codes: Integers) -> Array:
    """Return the mean of the values in each group."""
    return np.bincount(codes, weights=values) / np.bincount(codes)


def decisions(positive: Booleans) -> Integers:
    """Return ±1 for True and False."""
    return np.where(positive, 1, -1)


def _group_column(sensitive_features: Any, rows: int) -> pd.Index[Any]:
    try:
        frame = groups_frame(pd.DataFrame(sensitive_features), rows)
    except (TypeError, ValueError) as error:
        raise DataError(f"sensitive_features cannot be used: {error}") from error
    if frame.shape[1] != 1:
        raise DataError(
            f"sensitive_features has {frame.shape[1]} columns, one is needed: "
            "for intersections of attributes, pass a column that names them"
        )
    # As objects, so that 1 and 1.0, or a categorical and a list of strings, are the same groups.
    return pd.Index(frame.iloc[:, 0].astype(object))
