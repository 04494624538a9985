"""Users' own programs across clients, solved by the roles of `prox-al` and `sqp` in this process."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from evenhand.arrays import Array
from evenhand.constraints.slices import NO_BOUNDS, Bounds
from evenhand.errors import InputError
from evenhand.horizontal.program_server import ProgramServer, ServerPart
from evenhand.horizontal.prox_al.batched import solve_together
from evenhand.horizontal.prox_al.client import ProxALClient
from evenhand.horizontal.prox_al.options import ProxAL
from evenhand.horizontal.prox_al.server import ProxALServer
from evenhand.horizontal.roles import HorizontalClient
from evenhand.horizontal.sqp.client import SQPClient
from evenhand.horizontal.sqp.options import SQP
from evenhand.horizontal.sqp.server import SQPServer
from evenhand.programs.optimality import SHARED, Solution
from evenhand.programs.program import Program
from evenhand.programs.regularisers import ZERO, Regulariser
from evenhand.protocol.roles import Report
from evenhand.protocol.terms import check_name
from evenhand.training.run import RunSettings, carry_out

Clients = Sequence[Program] | Mapping[str, Program]


@dataclass(frozen=True, eq=False)
class DealtProgram:
    """A program dealt to clients, checked to fit together.

    Attributes
    ----------
    clients
        f_i, c_i and summands of the shared inequalities, by name.
    server
        c_0, with data of the server's own.
    shared
        Bounds of the inequalities that all clients have summands of.
    regulariser
        h.
    start
        w⁰.
    """

    clients: Mapping[str, Program]
    server: Program | None
    shared: Bounds
    regulariser: Regulariser
    start: Array

    def server_part(self) -> ServerPart:
        bounds = {name: program.own for name, program in self.clients.items()}
        return ServerPart(bounds, self.server, self.shared, self.regulariser, self.start)


def deal(
    clients: Clients,
    server: Program | None = None,
    regulariser: Regulariser | None = None,
    shared: Bounds = NO_BOUNDS,
    start: npt.ArrayLike | None = None,
) -> DealtProgram:
    """Assemble a program; refuse parts that do not fit together."""
    programs = _named(clients)
    size = _check_fit(programs, server, shared)
    first: Array = np.zeros(size) if start is None else np.array(start, dtype=np.float64)
    if first.shape != (size,) or not np.isfinite(first).all():
        raise InputError(f"start must be {size} finite numbers; it has shape {first.shape}")
    return DealtProgram(programs, server, shared, ZERO if regulariser is None else regulariser, first)


def prox_al(
    clients: Clients,
    server: Program | None = None,
    regulariser: Regulariser | None = None,
    *,
    shared: Bounds = NO_BOUNDS,
    start: npt.ArrayLike | None = None,
    **options: Any,
) -> Solution:
    """Solve a program across clients by the proximal augmented Lagrangian method with inexact ADMM.

    Parameters
    ----------
    clients
        f_i and c_i, in a list or by name.
    server
        c_0, with data of the server's own.
    regulariser
        h, one of `evenhand.programs.L1`, `Box`, `Ball`; None is zero.
    shared
        Bounds of inequalities that all clients have summands of; they are decoupled as in proximal AL Eq. 4.
    start
        w⁰; the origin by default.
    options
        Those of `ProxAL`.
    """
    dealt, settings = deal(clients, server, regulariser, shared, start), ProxAL(**options)
    return solve(lambda: prox_al_roles(dealt, settings))


def sqp(
    clients: Clients,
    server: Program | None = None,
    regulariser: Regulariser | None = None,
    *,
    shared: Bounds = NO_BOUNDS,
    start: npt.ArrayLike | None = None,
    **options: Any,
) -> Solution:
    """Solve a program across clients by sequential quadratic programming: about a dozen rounds.

    Parameters are those of `prox_al`, options those of `SQP`.
    """
    dealt, settings = deal(clients, server, regulariser, shared, start), SQP(**options)
    return solve(lambda: sqp_roles(dealt, settings))


def prox_al_roles(dealt: DealtProgram, options: ProxAL) -> tuple[ProxALServer, list[ProxALClient]]:
    """Build the roles of a run of `prox_al`."""
    head = ProxALServer(dealt.server_part(), options)
    names = list(dealt.clients)
    clients = [ProxALClient(name, own, names, dealt.shared, options) for name, own in dealt.clients.items()]
    solve_together(clients)
    return head, clients


def sqp_roles(dealt: DealtProgram, options: SQP) -> tuple[SQPServer, list[SQPClient]]:
    """Build the roles of a run of `sqp`."""
    exact = options.is_exact(len(dealt.start))
    lacking = [name for name, program in dealt.clients.items() if program.curvature == "none"]
    if exact and lacking:
        raise InputError(f"client {lacking[0]!r} has no second derivatives; use curvature='bfgs'")
    head = SQPServer(dealt.server_part(), options)
    return head, [SQPClient(name, program, exact=exact) for name, program in dealt.clients.items()]


def solve(build: Callable[[], tuple[ProgramServer, Sequence[HorizontalClient]]]) -> Solution:
    """Run roles to the end, and return their solution."""
    finished = carry_out(build, RunSettings(), lambda _: ())
    return solution(finished.server, finished.others, finished.history)


def solution(server: ProgramServer, clients: Sequence[HorizontalClient], history: Sequence[Report] = ()) -> Solution:
    """Return the solution of finished roles."""
    if server.status is None or server.residual is None:
        raise InputError("the run has not ended; there is no solution yet")
    # Clients hold the multipliers that the server does not know.
    tables = {client.name: client.own_multipliers() for client in clients} | server.tables()
    return Solution(server.answer, tables, server.residual, server.status, server.rounds, server.outer, history)


def _named(clients: Clients) -> dict[str, Program]:
    """Return clients by name, in the order of names; unnamed clients are called c00, c01, ..."""
    if not clients:
        raise InputError("a program needs at least one client")
    if not isinstance(clients, Mapping):
        digits = len(str(len(clients) - 1))
        clients = {f"c{place:0{digits}d}": client for place, client in enumerate(clients)}
    for name in clients:
        check_name("client", name)
        if name == SHARED:
            raise InputError(f"a client is called {SHARED!r}, which is a reserved name; rename the client")
    return dict(sorted(clients.items()))


def _check_fit(clients: Mapping[str, Program], server: Program | None, shared: Bounds) -> int:
    """Return d, if all programs have the same number of weights and the same shared inequalities."""
    sizes = {program.weights for program in [*clients.values(), *([] if server is None else [server])]}
    if len(sizes) > 1:
        raise InputError(f"programs have {sorted(sizes)} weights; all need the same number")
    for name, program in clients.items():
        if program.shared != shared.n_rows:
            raise InputError(
                f"client {name!r} has {program.shared} shared inequalities, but bounds are given for {shared.n_rows}"
            )
    if server is not None and server.shared:
        raise InputError("the server's program has shared inequalities; only clients may have them")
    return sizes.pop()
