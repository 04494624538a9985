"""Choose which combinations of sensitive attributes constraints compare.

The groups of each attribute do not tell which combinations (crossings) occur. So each client reports the crossings of
its own rows, with the labels that occur with them. A crossing is compared if it has rows in every slice that a
constraint needs; other crossings are left out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

from evenhand.constraints.binding import inequalities
from evenhand.constraints.groups import CROSSES, Groups, crossed_name
from evenhand.constraints.kinds import Constraint
from evenhand.errors import DataError
from evenhand.horizontal.problem import ClientRows
from evenhand.protocol.agree import Summary

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
