"""Which crossings of sensitive attributes are compared: each client says which of its own occur, and with which labels.

Nobody can tell from the groups of each attribute which combinations there are. A crossing is compared if somebody has
rows in every slice that a constraint compares it in; those without are left out.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Hashable, Mapping, Sequence
from typing import TypeAlias

from evenhand.constraints.binding import constraint_rows
from evenhand.constraints.groups import CROSSES, Groups, crossed_name
from evenhand.constraints.kinds import Constraint
from evenhand.errors import DataError
from evenhand.horizontal.problem import ClientRows
from evenhand.protocol.agree import Summary

Combine: TypeAlias = Callable[[Mapping[str, Summary]], Summary]
"""Puts everybody's summaries together."""
Agree: TypeAlias = Callable[[Mapping[str, Summary], Combine], Summary]
"""Takes everybody's summaries, and gives what comes out when they are put together."""
Held: TypeAlias = frozenset[tuple[float, str]]
"""Labels and crossings that occur together."""


def learns_crossings(constraints: Sequence[Constraint], groups: Groups | None) -> bool:
    """Whether crossings are compared that nobody has agreed on beforehand."""
    return any(one.crosses for one in constraints) and (groups is None or crossed_name(groups) is None)


def crossed_groups(
    constraints: Sequence[Constraint],
    groups: Mapping[str, tuple[Hashable, ...]],
    clients: Sequence[ClientRows],
    server: ClientRows | None,
) -> Generator[tuple[Mapping[str, Summary], Combine], Summary, dict[str, tuple[Hashable, ...]]]:
    """The groups with the crossing of all attributes; constraints are over the server's rows if it has any.

    Clients are those that are here: what they say is handed over, and what came out of everybody's word comes back.
    """
    name = CROSSES.join(groups)
    if server is not None:
        return {**groups, name: _compared(constraints, groups, name, _held(server, name))}

    def combine(summaries: Mapping[str, Summary]) -> Summary:
        everywhere = frozenset().union(*(_told(client, one) for client, one in summaries.items()))
        return {"crossed": list(_compared(constraints, groups, name, everywhere))}

    ordered = sorted(clients, key=lambda one: one.name)
    said = {one.name: {"crossed": [list(pair) for pair in sorted(_held(one, name))]} for one in ordered}
    agreed = yield said, combine
    return {**groups, name: tuple(agreed["crossed"])}


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
