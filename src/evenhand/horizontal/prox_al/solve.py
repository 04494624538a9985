"""Programs across clients by a proximal augmented Lagrangian method with inexact ADMM (Algorithms 1 and 2)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from evenhand.arrays import Array
from evenhand.constraints.bounds import NO_BOUNDS, Bounds
from evenhand.errors import InputError
from evenhand.horizontal.programs_delivery import check_fit, deliver, named
from evenhand.horizontal.prox_al.batched import form_batches
from evenhand.horizontal.prox_al.client import ProxALClient
from evenhand.horizontal.prox_al.options import ProxALOptions
from evenhand.horizontal.prox_al.server import ProxALServer
from evenhand.programs.optimality import SERVER, SHARED, Solution, measure
from evenhand.programs.program import Program
from evenhand.programs.regularisers import ZERO, Regulariser
from evenhand.programs.shared import OnFirst, decouple, widened_start
from evenhand.protocol.roles import Report


class ProxALRoles(NamedTuple):
    """Roles for a runtime, and the programs they stand for."""

    server: ProxALServer
    clients: Sequence[ProxALClient]
    programs: Mapping[str, Program]
    server_program: Program | None
    shared: Bounds
    simple: Regulariser

    def solution(self, history: Sequence[Report] = ()) -> Solution:
        """What the finished roles found, measured on the programs as they were given."""
        inner = next(iter(self.programs.values())).weights
        weights = self.server.weights[:inner]
        tables = {
            role.name: role.program.own.table(role.multipliers)[:, : self.programs[role.name].own.n_rows]
            for role in self.clients
        }
        whole = self.server.program.own.table(self.server.multipliers)
        own = whole.shape[1] - self.shared.n_rows
        if self.server_program is not None:
            tables[SERVER] = whole[:, :own]
        if self.shared.n_rows:
            tables[SHARED] = whole[:, own:]
        if self.server.status is None:
            raise InputError("the run has not ended; there is no solution yet")
        residual = measure(weights, tables, self.programs, self.server_program, self.shared, self.simple)
        return Solution(weights, tables, residual, self.server.status, self.server.rounds, self.server.outer, history)


def prox_al_roles(
    clients: Sequence[Program] | Mapping[str, Program],
    server: Program | None = None,
    simple: Regulariser | None = None,
    *,
    shared: Bounds = NO_BOUNDS,
    start: npt.ArrayLike | None = None,
    options: ProxALOptions | None = None,
) -> ProxALRoles:
    """The roles of a run, ready to be handed to a runtime; see `prox_al`."""
    options = ProxALOptions() if options is None else options
    simple = ZERO if simple is None else simple
    programs = named(clients)
    size = check_fit(programs, server, shared)
    first: Array = np.zeros(size) if start is None else np.array(start, dtype=np.float64)
    if first.shape != (size,) or not np.isfinite(first).all():
        raise InputError(f"start must be {size} finite numbers; it has shape {first.shape}")
    first = simple.prox(first, 0.0)
    own, head = decouple(list(programs.values()), server, shared)
    wide = OnFirst(simple, size) if shared.n_rows else simple
    roles = [ProxALClient(name, program, len(own), options) for name, program in zip(programs, own, strict=True)]
    batches = form_batches(roles)
    for role in roles:
        role.batched = batches.get(id(role))
    begin = widened_start(first, list(programs.values()), shared)
    return ProxALRoles(
        ProxALServer(list(programs), head, wide, begin, options), roles, programs, server, shared, simple
    )


def prox_al(
    clients: Sequence[Program] | Mapping[str, Program],
    server: Program | None = None,
    simple: Regulariser | None = None,
    *,
    shared: Bounds = NO_BOUNDS,
    start: npt.ArrayLike | None = None,
    **options: Any,
) -> Solution:
    """Solve a program across clients, all roles in this process.

    Parameters
    ----------
    clients
        f_i and c_i, in a list or by name.
    server
        c_0, with data of the server's own.
    simple
        h, one of `evenhand.programs.L1`, `Box`, `Ball`; None is zero.
    shared
        Bounds of rows that all clients have summands of; they are decoupled as in Eq. (4).
    start
        w⁰; the origin by default.
    options
        Those of `ProxALOptions`.
    """
    roles = prox_al_roles(clients, server, simple, shared=shared, start=start, options=ProxALOptions(**options))
    return roles.solution(deliver([roles.server, *roles.clients]))
