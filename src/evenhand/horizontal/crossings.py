"""Which crossings of sensitive attributes are compared: each client says which of its own occur, and with which labels.

Nobody can tell from the groups of each attribute which combinations there are. A crossing is compared if somebody has
rows in every slice that a constraint compares it in; those without are left out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

from evenhand.constraints.binding import constraint_rows
from evenhand.constraints.groups import CROSSES, Groups, crossed_name
from evenhand.constraints.kinds import Constraint
from evenhand.errors import DataError
from evenhand.horizontal.problem import ClientRows
from evenhand.protocol.agree import Summary

Combine: TypeAlias = Callable[[Mapping[str, Summary]], Summary]
"""Puts everybody's summaries together."""
Held: TypeAlias = frozenset[tuple[float, str]]
"""Labels and crossings that occur together."""


def learns_crossings(constraints: Sequence[Constraint], groups: Groups | None) -> bool:
    """Whether crossings are compared that nobody has agreed on beforehand."""
    return any(one.crosses for one in constraints) and (groups is None or crossed_name(groups) is None)


def held_crossings(rows: ClientRows, groups: Groups) -> list[list[Any]]:
    """Return which crossings a client's rows have, each with a label that occurs with it."""
    return [list(pair) for pair in sorted(_held(rows, CROSSES.join(groups)))]


def common_crossings(
    constraints: Sequence[Constraint], groups: Groups, server: ClientRows | None, told: Mapping[str, Summary]
) -> Summary:
    """Return the crossings that are compared, from what clients have said of theirs.

    Constraints are over the server's rows if it has any: then its crossings count, and no others.
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
        raise DataError(f"client {client!r} has said nothing that its crossed groups could be: {error!r}") from error


def _compared(constraints: Sequence[Constraint], groups: Groups, name: str, held: Held) -> tuple[str, ...]:
    """Of the crossings that occur, those with rows in every slice that they are compared in."""
    occurring = tuple(sorted({group for _, group in held}))
    rows = constraint_rows(constraints, {**groups, name: occurring})
    parts = {(part.label, part.group) for row in rows for _, part in row.terms if part.attribute == name}
    empty = {group for label, group in parts if label is not None and (label, group) not in held}
    return tuple(group for group in occurring if group not in empty)
