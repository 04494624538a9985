"""Summarise each client's rows and combine the summaries: shape, classes, groups, crossings and counts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np
import pandas as pd

from evenhand.arrays import Booleans
from evenhand.constraints.binding import inequalities
from evenhand.constraints.families import check_targets
from evenhand.constraints.groups import CROSSES, Groups, crossed_name
from evenhand.constraints.inequality_parts import InequalityParts
from evenhand.constraints.kinds import Constraint
from evenhand.constraints.losses import by_measure
from evenhand.constraints.scope import ConstraintScope
from evenhand.constraints.slices import Inequality, Slice
from evenhand.errors import ConstraintError, DataError
from evenhand.horizontal.problem import ClientRows
from evenhand.protocol.agree import Summary
from evenhand.protocol.job import Job
from evenhand.protocol.roles import SERVER
from evenhand.protocol.terms import HorizontalTerms, plain

SliceCounts = Mapping[Slice, int]


@dataclass(frozen=True)
class RowsSummary:
    """Summary of a client's rows, sent before the client knows the others'.

    Attributes
    ----------
    labels
        Labels that occur.
    groups
        Values that occur, for each sensitive attribute.
    """

    name: str
    shape: tuple[int, ...]
    labels: tuple[float, ...]
    groups: Mapping[str, tuple[Hashable, ...]]

    def to_plain(self) -> Summary:
        """Return the summary as plain JSON values. The number of rows is sent later, if it is needed."""
        groups = {name: [plain(value) for value in values] for name, values in self.groups.items()}
        return {"shape": list(self.shape), "labels": list(self.labels), "groups": groups}

    @classmethod
    def from_plain(cls, name: str, content: Summary) -> RowsSummary:
        """Read a client's summary; errors name the client."""
        try:
            groups = {str(key): tuple(values) for key, values in content["groups"].items()}
            labels = tuple(float(label) for label in content["labels"])
            return cls(name, tuple(int(size) for size in content["shape"]), labels, groups)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise DataError(f"client {name!r} sent an unreadable summary of its rows: {error!r}") from error


def unlabelled(rows: ClientRows, job: Job) -> ClientRows:
    """Return the rows to summarise; targets that are numbers are left out, because no slice needs them.

    A client refuses targets that the loss cannot have.
    """
    if job.loss_function.classifies:
        return rows
    try:
        check_targets(job.loss, rows.labels, all_rows=False)
    except DataError as error:
        raise DataError(f"client {rows.name!r}: {error}") from error
    nothing = np.zeros(rows.n_rows)
    return replace(rows, labels=nothing)


def summarise(rows: ClientRows) -> RowsSummary:
    assert rows.groups is not None
    seen = {str(name): tuple(rows.groups[name].unique().tolist()) for name in rows.groups.columns}
    labels = tuple(np.unique(rows.labels).tolist())
    return RowsSummary(rows.name, tuple(rows.features.shape[1:]), labels, seen)


def count_slices(rows: ClientRows, inequalities: Sequence[Inequality]) -> dict[Slice, int]:
    """Count a client's rows in each slice of the inequalities."""
    assert rows.groups is not None
    parts = dict.fromkeys(part for row in inequalities for _, part in row.terms)
    return {part: int(part.inside(rows.labels, rows.groups).sum()) for part in parts}


def weigh_slices(rows: ClientRows, inequalities: Sequence[Inequality]) -> list[float]:
    """Return the total weight of a client's rows, and that of its rows in each slice of the inequalities."""
    assert rows.groups is not None
    parts = dict.fromkeys(part for row in inequalities for _, part in row.terms)
    inside = [part.inside(rows.labels, rows.groups) for part in parts]
    return [float(rows.weight_of_rows[one].sum()) for one in [np.ones(rows.n_rows, dtype=bool), *inside]]


def total_weights(told: Mapping[str, Summary], parts: Sequence[Slice]) -> tuple[float, dict[Slice, float]] | None:
    """Return the total weight of all clients' rows, and that of each slice; None if all rows weigh alike."""
    weighted = {name for name, one in told.items() if "weights" in one}
    if not weighted:
        return None
    if without := sorted({*told} - weighted):
        raise DataError(
            f"client {without[0]!r} has no sample weights, but client {min(weighted)!r} has; give all clients weights"
        )
    for name, one in told.items():
        try:
            found = np.array(one["weights"], dtype=np.float64)
        except (TypeError, ValueError) as error:
            raise DataError(f"client {name!r} sent unreadable totals of weights: {error!r}") from error
        if found.shape != (1 + len(parts),) or not (np.isfinite(found).all() and (found >= 0.0).all()):
            raise DataError(f"client {name!r} sent totals of weights that are not numbers of zero or more")
    # In the order of names, so that all clients add up to the same digits.
    every = sum((np.array(told[name]["weights"], dtype=np.float64) for name in sorted(told)), np.zeros(1 + len(parts)))
    for part, weight in zip(parts, every[1:], strict=True):
        if weight == 0.0:
            raise ConstraintError(f"slice [{part}] has no weight at any client; merge or drop that group")
    return float(every[0]), dict(zip(parts, map(float, every[1:]), strict=True))


# -- combining summaries


def common_shape(summaries: Sequence[RowsSummary]) -> tuple[int, ...]:
    if not summaries:
        raise DataError("a run needs at least one client")
    first = summaries[0]
    for one in summaries:
        if one.shape != first.shape:
            raise DataError(
                f"client {one.name!r} has rows of shape {one.shape}, client {first.name!r} of shape {first.shape}; all "
                "clients need the same columns"
            )
    return first.shape


def common_classes(
    summaries: Sequence[RowsSummary], classes: int | None = None, *, classifies: bool = True
) -> int | None:
    """Return the number of classes, given or inferred; None for labels of ±1 and for targets that are numbers."""
    if not classifies:
        return None
    found = sorted({label for one in summaries for label in one.labels})
    if classes is None and set(found) <= {-1.0, 1.0}:
        if len(found) < 2:
            raise DataError(f"all labels of all clients are {found[0]:+g}; give rows of both labels")
        return None
    if classes is None and set(found) <= {0.0, 1.0}:
        raise DataError("labels are 0 and 1; write two classes as -1 and +1, or set classes=2")
    count = int(found[-1]) + 1 if classes is None else classes
    for one in summaries:
        if not all(0 <= label < count and label == int(label) for label in one.labels):
            wrong = "±1, or whole numbers from 0" if classes is None else f"whole numbers from 0 to {count - 1}"
            raise DataError(f"client {one.name!r} has labels that are not {wrong}")
    if count < 2:
        raise DataError("all rows have the same class; give rows of at least two classes")
    return count


def common_groups(
    summaries: Sequence[RowsSummary], groups: Groups | None = None, *, crosses: bool = False
) -> dict[str, tuple[Hashable, ...]]:
    """Return the values of each sensitive attribute: those given, or all that occur at any client.

    Parameters
    ----------
    crosses
        Whether a constraint crosses the attributes. A client that has the attributes then has their crossing.
    """
    attributes = list(summaries[0].groups if groups is None else groups)
    crossing = crossed_name(attributes) if crosses else None
    derived = () if crossing is None else (crossing,)
    for one in summaries:
        if sorted({*one.groups, *derived}) != sorted(attributes):
            raise DataError(
                f"client {one.name!r} has the sensitive attributes {sorted(one.groups)}, expected {sorted(attributes)}"
            )
    if groups is None:
        seen = {name: [value for one in summaries for value in one.groups[name]] for name in attributes}
        groups = {name: tuple(pd.factorize(pd.Series(values), sort=True)[1]) for name, values in seen.items()}
    for name in attributes:
        if len(groups[name]) < 2:
            raise DataError(
                f"sensitive attribute {name!r} has one group only ({groups[name]}); it needs two or more: change its "
                "groups, or leave it out"
            )
    return {name: tuple(groups[name]) for name in attributes}


def added(counts: Iterable[SliceCounts]) -> Counter[Slice]:
    """Add the counts of several holders."""
    total: Counter[Slice] = Counter()
    for one in counts:
        total.update(one)
    return total


def check_known_groups(summaries: Sequence[RowsSummary], groups: Groups, crosses: bool) -> None:
    """Refuse attributes and values that are not among the agreed ones."""
    common_groups(summaries, groups, crosses=crosses)
    crossing = crossed_name(groups)
    for one in summaries:
        for name, values in groups.items():
            # Rows of a crossing that is left out are in none of its slices.
            if name == crossing:
                continue
            unknown = [value for value in one.groups[name] if value not in values]
            if unknown:
                raise DataError(
                    f"client {one.name!r}: {name!r} has the value {unknown[0]!r}, which is not among the agreed groups "
                    f"{list(values)}"
                )


def total_counts(counts: Mapping[str, SliceCounts], rows: Sequence[Inequality]) -> dict[Slice, int]:
    """Count the rows of all clients in each slice of these inequalities; refuse empty slices."""
    together = added(counts.values())
    total = {part: together[part] for row in rows for _, part in row.terms}
    for part, count in total.items():
        if count == 0:
            raise ConstraintError(
                f"slice [{part}] is empty: no client has a row in it; merge or drop that group, or choose another "
                "constraint"
            )
    return total


def inequalities_without_rows(
    name: str, counts: SliceCounts, rows: Sequence[Inequality], scope: ConstraintScope
) -> list[int]:
    """Return the indices of the inequalities that are undefined at a client because it has no rows in a slice."""
    found = []
    for place, row in enumerate(rows):
        empty = [part for _, part in row.terms if not counts[part]]
        if empty and (scope.missing_slices == "refuse" or name == SERVER):
            who = "the server" if name == SERVER else f"client {name!r}"
            raise ConstraintError(
                f"{who} has no rows in the slice [{empty[0]}], so {row} is undefined there; merge or drop that group"
                + (
                    ""
                    if name == SERVER
                    else ", use scope 'global', or leave such constraints out with missing_slices 'leave out'"
                )
            )
        if empty:
            found.append(place)
    return found


class SliceMeans(InequalityParts):
    """Inequalities of the terms, over the rows of all clients."""

    def __init__(self, terms: HorizontalTerms) -> None:
        super().__init__(terms.inequalities)
        self.terms = terms
        self.row_measures = by_measure(row.measure for row in self.inequalities)

    def membership(self, client: ClientRows) -> Booleans:
        """Return (n, P): whether each of the client's rows is in the slice of each part."""
        client = client.agreed(self.terms.groups)
        assert client.groups is not None
        return self.inside(client.labels, client.groups)


# -- crossings: the groups of each attribute do not tell which combinations occur
#
# Each client reports the crossings of its own rows, with the labels that occur with them. A crossing is compared if it
# has rows in every slice that a constraint needs; other crossings are left out.

Combine: TypeAlias = Callable[[Mapping[str, Summary]], Summary]
"""Function that combines the summaries of all clients."""
Held: TypeAlias = frozenset[tuple[float, str]]
"""Pairs of a label and a crossing that occur together."""


def learns_crossings(constraints: Sequence[Constraint], groups: Groups | None) -> bool:
    """Return whether a constraint compares crossings that were not agreed on beforehand."""
    return any(one.crosses for one in constraints) and (groups is None or crossed_name(groups) is None)


def held_crossings(rows: ClientRows, groups: Groups) -> list[list[Any]]:
    """Return the pairs of label and crossing that occur in a client's rows."""
    return [list(pair) for pair in sorted(_held(rows, CROSSES.join(groups)))]


def common_crossings(
    constraints: Sequence[Constraint], groups: Groups, server: ClientRows | None, told: Mapping[str, Summary]
) -> Summary:
    """Return the crossings to compare, given the reports of all clients.

    If the server has rows, constraints are over these, and only the server's crossings count.
    """
    name = CROSSES.join(groups)
    if server is not None:
        held = _held(server, name)
    else:
        held = frozenset().union(*(_told(client, one) for client, one in told.items()))
    return {"crossed": list(_compared(constraints, groups, name, held))}


def _held(rows: ClientRows, name: str) -> Held:
    column = rows.crossed(name).groups
    assert column is not None
    return frozenset(zip(rows.labels.tolist(), column[name], strict=True))


def _told(client: str, content: Summary) -> Held:
    try:
        return frozenset((float(label), str(group)) for label, group in content["crossed"])
    except (KeyError, TypeError, ValueError) as error:
        raise DataError(f"client {client!r} sent an unreadable list of crossed groups: {error!r}") from error


def _compared(constraints: Sequence[Constraint], groups: Groups, name: str, held: Held) -> tuple[str, ...]:
    """Return the occurring crossings that have rows in every slice that is compared."""
    occurring = tuple(sorted({group for _, group in held}))
    rows = inequalities(constraints, {**groups, name: occurring})
    parts = {(part.label, part.group) for row in rows for _, part in row.terms if part.attribute == name}
    empty = {group for label, group in parts if label is not None and (label, group) not in held}
    return tuple(group for group in occurring if group not in empty)
