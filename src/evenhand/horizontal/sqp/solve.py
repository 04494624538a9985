"""Programs across clients by sequential quadratic programming: about a dozen rounds, one quadratic program each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from evenhand.arrays import Array
from evenhand.constraints.bounds import NO_BOUNDS, Bounds
from evenhand.errors import InputError
from evenhand.horizontal.programs_delivery import check_fit, deliver, named
from evenhand.horizontal.sqp.client import SQPClient
from evenhand.horizontal.sqp.options import SQPOptions
from evenhand.horizontal.sqp.server import SQPServer
from evenhand.programs.optimality import Solution
from evenhand.programs.program import Program
from evenhand.programs.regularisers import ZERO, Regulariser
from evenhand.protocol.roles import Report


class SQPRoles(NamedTuple):
    """Roles for a runtime."""

    server: SQPServer
    clients: Sequence[SQPClient]

    def solution(self, history: Sequence[Report] = ()) -> Solution:
        """What the finished roles found."""
        server = self.server
        if server.status is None or server.residual is None:
            raise InputError("the run has not ended; there is no solution yet")
        whole = np.stack([np.maximum(server.net, 0.0), np.maximum(-server.net, 0.0)])
        tables = {name: whole[:, place] for name, place in server.places.items()}
        return Solution(server.weights, tables, server.residual, server.status, server.round, server.steps, history)


def sqp_roles(
    clients: Sequence[Program] | Mapping[str, Program],
    server: Program | None = None,
    simple: Regulariser | None = None,
    *,
    shared: Bounds = NO_BOUNDS,
    start: npt.ArrayLike | None = None,
    options: SQPOptions | None = None,
) -> SQPRoles:
    """The roles of a run, ready to be handed to a runtime; see `sqp`."""
    options = SQPOptions() if options is None else options
    programs = named(clients)
    size = check_fit(programs, server, shared)
    first: Array = np.zeros(size) if start is None else np.array(start, dtype=np.float64)
    if first.shape != (size,) or not np.isfinite(first).all():
        raise InputError(f"start must be {size} finite numbers; it has shape {first.shape}")
    exact = options.is_exact(size)
    lacking = [name for name, program in programs.items() if program.curvature == "none"]
    if exact and lacking:
        raise InputError(f"client {lacking[0]!r} has no second derivatives; use curvature='bfgs'")
    bounds = {name: program.own for name, program in programs.items()}
    head = SQPServer(bounds, server, shared, ZERO if simple is None else simple, first, options)
    return SQPRoles(head, [SQPClient(name, program, exact=exact) for name, program in programs.items()])


def sqp(
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
        f_i, c_i and summands of the shared rows, in a list or by name.
    server
        c_0, with data of the server's own.
    simple
        h, one of `evenhand.programs.L1`, `Box`, `Ball`; None is zero.
    shared
        Bounds of the rows that all clients have summands of.
    start
        w⁰; the origin by default.
    options
        Those of `SQPOptions`.
    """
    roles = sqp_roles(clients, server, simple, shared=shared, start=start, options=SQPOptions(**options))
    return roles.solution(deliver([roles.server, *roles.clients]))
