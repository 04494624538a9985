"""Solve programs across clients by the roles of `prox-al` and `sqp`, in this process."""

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
from evenhand.horizontal.prox_al.client import ProxALClient
from evenhand.horizontal.prox_al.options import ProxAL
from evenhand.horizontal.roles import HorizontalClient
from evenhand.horizontal.sqp.client import SQPClient
from evenhand.horizontal.sqp.options import SQP
from evenhand.programs.optimality import SHARED, Residual, SolveStatus, kkt_residual
from evenhand.programs.program import Program, ProgramPoint
from evenhand.protocol.roles import SERVER, Report
from evenhand.protocol.solver import Certificate
from evenhand.protocol.terms import check_name
from evenhand.training.run import RunSettings, carry_out
from evenhand_reproductions.programs.batched import solve_together
from evenhand_reproductions.programs.quadratic import ExactSolve, is_quadratic
from evenhand_reproductions.programs.regularised import RegularisedProxALServer, RegularisedSQPServer, with_regulariser
from evenhand_reproductions.programs.regularisers import ZERO, Regulariser

Clients = Sequence[Program] | Mapping[str, Program]


@dataclass(frozen=True, eq=False)
class DealtProgram:
    """A program split over clients, checked for consistency.

    Attributes
    ----------
    clients
        f_i, c_i and summands of the shared inequalities, by name.
    server
        c_0, over the server's own data.
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
        return ServerPart(bounds, self.server, self.shared, self.start)


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
        h, one of `L1`, `Box`, `Ball`; None is zero.
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


def prox_al_roles(dealt: DealtProgram, options: ProxAL) -> tuple[RegularisedProxALServer, list[ProxALClient]]:
    """Build the roles of a run of `prox_al`."""
    head = RegularisedProxALServer(dealt.server_part(), options, dealt.regulariser)
    names = list(dealt.clients)
    clients = [ProxALClient(name, own, names, dealt.shared, options) for name, own in dealt.clients.items()]
    solve_together(clients)
    for client in clients:
        if is_quadratic(client.program):
            client.steps = ExactSolve(client.program)
    return head, clients


def sqp_roles(dealt: DealtProgram, options: SQP) -> tuple[RegularisedSQPServer, list[SQPClient]]:
    """Build the roles of a run of `sqp`."""
    exact = options.is_exact(len(dealt.start))
    lacking = [name for name, program in dealt.clients.items() if program.curvature == "none"]
    if exact and lacking:
        raise InputError(f"client {lacking[0]!r} has no second derivatives; use curvature='bfgs'")
    head = RegularisedSQPServer(dealt.server_part(), options, dealt.regulariser)
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
            raise InputError(f"a client is named {SHARED!r}, which is reserved; rename the client")
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


@dataclass(frozen=True, eq=False)
class Solution:
    """Result of a solver of programs.

    Attributes
    ----------
    weights
        w.
    multipliers
        (2, rows): λ⁺ and λ⁻ of each row, by holder: the clients' names, ``"server"`` and ``"shared"``.
    residual
        The optimality conditions at these weights and multipliers.
    rounds
        Exchanges of messages between the server and all clients.
    outer
        Outer iterations (steps of the multipliers, or quadratic programs).
    history
        One entry per outer iteration.
    """

    weights: Array
    multipliers: Mapping[str, Array]
    residual: Residual
    status: SolveStatus
    rounds: int
    outer: int
    history: Sequence[Report] = ()

    @property
    def converged(self) -> bool:
        return self.status is SolveStatus.CONVERGED

    @property
    def certificate(self) -> Certificate:
        return self.residual.certificate(self.rounds, self.converged)


def measure(
    weights: Array,
    multipliers: Mapping[str, Array],
    clients: Mapping[str, Program],
    server: Program | None = None,
    shared: Bounds = NO_BOUNDS,
    regulariser: Regulariser = ZERO,
) -> Residual:
    """Measure the residual at w and at the multipliers of a `Solution`, on all participants' functions."""
    slope, value = np.zeros(len(weights)), 0.0
    sums = np.zeros(shared.n_rows)
    everybody = dict(clients) if server is None else {**clients, SERVER: server}
    parts: list[tuple[Bounds, Array, Array]] = []
    shared_table = multipliers.get(SHARED, np.zeros((2, shared.n_rows)))
    for name, program in everybody.items():
        point = program.at(weights)
        table = multipliers.get(name, np.zeros((2, program.own.n_rows)))
        own = program.own.n_rows
        net = np.concatenate([table[0] - table[1], (shared_table[0] - shared_table[1])[: program.shared]])
        value += point.value
        slope += point.gradient + net @ point.jacobian
        sums[: program.shared] += point.constraints[own:]
        parts.append((program.own, point.constraints[:own], table))
    parts.append((shared, sums, shared_table))
    known = [(bounds, values, bounds.table(bounds.of_net(table[0] - table[1]))) for bounds, values, table in parts]
    return with_regulariser(kkt_residual(value, slope, known), weights, slope, regulariser)


def residual_at(
    point: ProgramPoint, program: Program, weights: Array, multipliers: Array, regulariser: Regulariser
) -> Residual:
    """Compute the optimality conditions of one program at an evaluated point."""
    bounds = program.own
    slope = point.gradient + bounds.net(multipliers) @ point.jacobian
    found = kkt_residual(point.value, slope, [(bounds, point.constraints, bounds.table(multipliers))])
    return with_regulariser(found, weights, slope, regulariser)
