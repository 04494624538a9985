"""Crossed attributes across clients: each derives the crossing from its own rows; the groups are those that occur."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pandas as pd

from evenhand.constraints.binding import compared_groups
from evenhand.constraints.groups import Groups, crossed_name, with_crossing
from evenhand.constraints.kinds import Constraint
from evenhand.horizontal.problem import ClientRows, agree


def crossed_clients(
    constraints: Sequence[Constraint],
    clients: Sequence[ClientRows],
    server: ClientRows | None = None,
    groups: Groups | None = None,
    classes: int | None = None,
) -> tuple[Sequence[ClientRows], ClientRows | None, Groups | None]:
    """Clients, the server's own rows and the groups with the crossing, if a constraint asks for it; else as they are.

    A crossing that lacks rows in a slice of the constraints is left out: over the server's rows if it has any, since
    constraints are over them then, else over everybody's. Groups that were agreed beforehand stay as they are, the
    crossing's too if it is among them.
    """
    if not any(constraint.crosses for constraint in constraints):
        return clients, server, groups
    if groups is None or crossed_name(groups) is None:
        groups = agree(clients, groups, classes).groups
    clients = [_crossed(client) for client in clients]
    server = None if server is None else _crossed(server)
    holders = clients if server is None else [server]
    labels = np.concatenate([one.labels for one in holders])
    frame = pd.concat([one.groups for one in holders if one.groups is not None], ignore_index=True)
    return clients, server, compared_groups(constraints, labels, frame, groups)[1]


def _crossed(client: ClientRows) -> ClientRows:
    assert client.groups is not None
    return replace(client, groups=with_crossing(client.groups))
