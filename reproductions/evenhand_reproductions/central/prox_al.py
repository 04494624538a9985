"""The pooled proximal augmented Lagrangian method (proximal AL Algorithm 3), the reference for the federated one."""

from __future__ import annotations

from typing import Any

import numpy as np

from evenhand.arrays import Array
from evenhand.errors import InputError
from evenhand.programs.augmented import Augmented
from evenhand.programs.minimise import Method, Minimiser, Pull
from evenhand.programs.optimality import SHARED, ProxALTolerances, Residual, SolveStatus, is_infeasible
from evenhand.programs.program import Program
from evenhand.protocol.roles import Report
from evenhand_reproductions.programs.composite import minimise_composite
from evenhand_reproductions.programs.pooled import Pooled
from evenhand_reproductions.programs.regularisers import ZERO, Regulariser
from evenhand_reproductions.programs.solving import Solution, residual_at


def prox_al(
    program: Program,
    regulariser: Regulariser | None = None,
    *,
    start: Array | None = None,
    method: Method = "auto",
    **options: Any,
) -> Solution:
    """Solve a pooled program by proximal AL Algorithm 3.

    Parameters
    ----------
    program
        `evenhand.programs.Pooled(clients, server, shared)`, or any one program.
    regulariser
        h.
    start
        w⁰; the origin by default.
    method
        How subproblems are solved, see `evenhand.programs.minimise`.
    options
        Those of `ProxALTolerances`.
    """
    tolerances = ProxALTolerances(**options)
    regulariser = ZERO if regulariser is None else regulariser
    if program.shared:
        raise InputError("the program has summands of shared rows; pool all clients first")
    sides, beta = program.own, tolerances.penalty
    weights = np.zeros(program.weights) if start is None else np.asarray(start, dtype=np.float64)
    weights = regulariser.prox(weights, 0.0)
    multipliers = np.zeros(sides.n_sides)
    minimiser, still = Minimiser(method), np.zeros(program.weights)
    history: list[Report] = []
    status, outer = SolveStatus.LIMIT, 0
    residual: Residual | None = None
    while outer < tolerances.max_outer:
        augmented = Augmented(program, multipliers, beta, weights, 1.0 / beta)
        pull = Pull(still, weights, 0.0)
        found = minimise_composite(
            minimiser, augmented, augmented.at(weights), pull, regulariser, tolerances.tau(outer)
        )
        after = found.point
        moved = float(np.max(np.abs(after.weights - weights), initial=0.0))
        changed = float(np.max(np.abs(after.pushed - multipliers), initial=0.0))
        weights, multipliers, outer = after.weights, after.pushed, outer + 1
        before, residual = residual, residual_at(after.point, program, weights, multipliers, regulariser)
        history.append({"outer": outer, "moved": moved, "changed": changed, **residual.__dict__})
        if not found.reached:
            status = SolveStatus.STALLED
            break
        done = tolerances.rule(outer - 1, moved, changed)
        if done or (tolerances.stop == "residual" and residual.within(*tolerances.tolerances)):
            status = SolveStatus.CONVERGED
            break
        missed = sides.missed(after.point.constraints)
        slope = sides.net(missed) @ after.point.jacobian
        stuck = before is not None and residual.violation > 0.99 * before.violation
        apart = residual.violation > tolerances.tolerances[1] and stuck
        if apart and is_infeasible(0.5 * float(missed @ missed), slope, weights):
            status = SolveStatus.INFEASIBLE
            break
    assert residual is not None
    table = sides.table(multipliers)
    tables = {"pooled": table}
    if isinstance(program, Pooled):
        names = [f"client {place}" for place in range(len(program.members))]
        tables = program.tables(table, names) | {SHARED: table[:, sides.n_rows - program.bounds.n_rows :]}
    return Solution(weights, tables, residual, status, 0, outer, history)
