"""The constraints a model can be trained under, each a list of rows `lower ≤ a·g ≤ upper` over slice means.

Every constraint of the five papers is linear in slice means, so a constraint only has to say its rows
(`Constraint.rows`); `bind` then meets them with labels and groups, and everything after that is shared.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any, ClassVar, TypeAlias

import numpy as np
import pandas as pd

from evenhand.arrays import Array, Integers
from evenhand.constraints.measures import Measure, MeasureName
from evenhand.constraints.slices import BoundConstraints, ConstraintRow, Slice
from evenhand.errors import ConstraintError, DataError

Groups: TypeAlias = Mapping[str, Sequence[Hashable]]
"""The distinct values of each sensitive attribute."""


@dataclass(frozen=True)
class Constraint(ABC):
    """Base of all constraints. A subclass says its rows; see `docs/add-a-constraint.md`."""

    kind: ClassVar[str]
    compares_groups: ClassVar[bool] = True

    @abstractmethod
    def rows(self, groups: Groups) -> list[ConstraintRow]:
        """The rows of this constraint when the sensitive attributes take these values."""


def _check_bound(name: str, value: float) -> None:
    if not (np.isfinite(value) and value >= 0):
        raise ConstraintError(f"{name} is {value}; it must be a finite number, zero or more")


@dataclass(frozen=True)
class _Parity(Constraint):
    """Slice means of any two groups differ by at most epsilon, for each label in `labels`."""

    labels: ClassVar[tuple[int | None, ...]]

    epsilon: float = 0.01
    measure: MeasureName = "loss"
    temperature: float = 0.5

    def __post_init__(self) -> None:
        _check_bound("epsilon", self.epsilon)
        Measure(self.measure, self.temperature)

    def rows(self, groups: Groups) -> list[ConstraintRow]:
        measure = Measure(self.measure, self.temperature)
        return [
            ConstraintRow(
                ((1.0, Slice(label, attribute, a)), (-1.0, Slice(label, attribute, b))),
                -self.epsilon,
                self.epsilon,
                measure,
            )
            for label in self.labels
            for attribute, values in groups.items()
            for a, b in combinations(values, 2)
        ]


@dataclass(frozen=True)
class EqualOpportunity(_Parity):
    """Groups differ by at most epsilon among the positives: the papers' DEO ≤ ε with measure ``"loss"``."""

    kind: ClassVar[str] = "equal-opportunity"
    labels: ClassVar[tuple[int | None, ...]] = (1,)


@dataclass(frozen=True)
class EqualizedOdds(_Parity):
    """Groups differ by at most epsilon among the positives and among the negatives."""

    kind: ClassVar[str] = "equalized-odds"
    labels: ClassVar[tuple[int | None, ...]] = (1, -1)


@dataclass(frozen=True)
class LossParity(_Parity):
    """Groups' mean losses differ by at most epsilon, labels aside."""

    kind: ClassVar[str] = "loss-parity"
    labels: ClassVar[tuple[int | None, ...]] = (None,)


@dataclass(frozen=True)
class DemographicParity(_Parity):
    """Groups' (smooth) selection rates differ by at most epsilon."""

    kind: ClassVar[str] = "demographic-parity"
    labels: ClassVar[tuple[int | None, ...]] = (None,)

    measure: MeasureName = "positive"


@dataclass(frozen=True)
class GroupAgainstOverall(_Parity):
    """Each group's mean differs from the mean over everybody by at most epsilon (as in FPFL)."""

    kind: ClassVar[str] = "group-against-overall"
    labels: ClassVar[tuple[int | None, ...]] = (None,)

    def rows(self, groups: Groups) -> list[ConstraintRow]:
        measure = Measure(self.measure, self.temperature)
        return [
            ConstraintRow(
                ((1.0, Slice()), (-1.0, Slice(None, attribute, value))),
                -self.epsilon,
                self.epsilon,
                measure,
            )
            for attribute, values in groups.items()
            for value in values
        ]


@dataclass(frozen=True)
class NeymanPearson(Constraint):
    """The mean over one class is at most `limit`.

    The objective stays the mean loss over everybody: where the row is active, the constrained class contributes a
    constant, so the minimiser is that of the other class's loss, as in the textbook form.
    """

    kind: ClassVar[str] = "neyman-pearson"
    compares_groups: ClassVar[bool] = False

    limit: float = 0.1
    label: int = 1
    measure: MeasureName = "loss"
    temperature: float = 0.5

    def __post_init__(self) -> None:
        _check_bound("limit", self.limit)
        Measure(self.measure, self.temperature)
        if self.label not in (-1, 1):
            raise ConstraintError(f"label is {self.label!r}; it must be 1 (the positive class) or -1")

    def rows(self, groups: Groups) -> list[ConstraintRow]:
        measure = Measure(self.measure, self.temperature)
        return [ConstraintRow(((1.0, Slice(self.label)),), -np.inf, self.limit, measure)]


Constraints: TypeAlias = Constraint | Iterable[Constraint] | None
KINDS: dict[str, type[Constraint]] = {
    kind.kind: kind
    for kind in (
        EqualOpportunity,
        EqualizedOdds,
        LossParity,
        DemographicParity,
        GroupAgainstOverall,
        NeymanPearson,
    )
}


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


def bind(constraints: Constraints, labels: Array, sensitive: pd.DataFrame | None = None) -> BoundConstraints:
    """Meet constraints with labels (±1) and groups; an empty slice is an error that names it."""
    wanted = as_list(constraints)
    frame = groups_frame(sensitive, len(labels))
    codes: dict[str, Integers] = {}
    groups: dict[str, list[Hashable]] = {}
    for name in frame.columns:
        code, values = pd.factorize(frame[name], sort=True)
        if len(values) < 2:
            raise DataError(f"sensitive attribute {name!r} has one group only ({values[0]!r}); it needs two or more")
        codes[name], groups[name] = code.astype(np.int64), list(values)
    lacking = [constraint.kind for constraint in wanted if constraint.compares_groups and not groups]
    if lacking:
        raise DataError(f"constraint {lacking[0]} compares groups: give sensitive_features")
    rows = tuple(row for constraint in wanted for row in constraint.rows(groups))
    cell, cells = _cells(labels, codes)
    sizes = np.bincount(cell, minlength=len(cells))
    weights = np.zeros((len(rows), len(cells)))
    for index, row in enumerate(rows):
        for coefficient, part in row.terms:
            inside = _inside(part, cells, groups)
            count = sizes[inside].sum()
            if count == 0:
                raise ConstraintError(
                    f"slice [{part}] is empty: no row of the {len(labels)} has it, so {row} has no meaning; "
                    "merge or drop that group, or choose another constraint"
                )
            weights[index, inside] += coefficient / count
    return BoundConstraints(rows, cell, weights)


def as_list(constraints: Constraints) -> list[Constraint]:
    if constraints is None:
        return []
    wanted: list[Any] = [constraints]
    if isinstance(constraints, Iterable) and not isinstance(constraints, (str, type)):
        wanted = list(constraints)
    for constraint in wanted:
        if not isinstance(constraint, Constraint):
            raise ConstraintError(
                f"{constraint!r} is not a constraint; use for example evenhand.EqualOpportunity(epsilon=0.01)"
            )
    return wanted


def _cells(labels: Array, codes: Mapping[str, Integers]) -> tuple[Integers, pd.DataFrame]:
    """Number the combinations of label and groups that occur; return each row's number and what each stands for."""
    table = pd.DataFrame({"label": labels.astype(np.int64), **{f"group:{name}": code for name, code in codes.items()}})
    keys = table.drop_duplicates().sort_values(list(table.columns)).reset_index(drop=True)
    keys["cell"] = np.arange(len(keys))
    cell = table.merge(keys, how="left")["cell"].to_numpy(dtype=np.int64)
    return cell, keys


def _inside(part: Slice, cells: pd.DataFrame, groups: Mapping[str, list[Hashable]]) -> np.ndarray:
    inside = np.ones(len(cells), dtype=bool)
    if part.label is not None:
        inside &= (cells["label"] == part.label).to_numpy()
    if part.attribute is not None:
        inside &= (cells[f"group:{part.attribute}"] == groups[part.attribute].index(part.group)).to_numpy()
    return inside
