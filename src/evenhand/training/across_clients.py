"""What the fronts of horizontal training share: which solver is meant, what fits with it, and one call for all."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, Final

import numpy as np
import pandas as pd

from evenhand.constraints.groups import Groups
from evenhand.constraints.scope import EVERYWHERE, SERVER, ConstraintScope
from evenhand.constraints.small_slices import warn_of_small_slices
from evenhand.errors import InputError
from evenhand.horizontal import solvers
from evenhand.horizontal.crossing import crossed_clients
from evenhand.horizontal.problem import ClientRows, agree
from evenhand.horizontal.solver import Protection
from evenhand.protocol.job import Job
from evenhand.protocol.roles import Report
from evenhand.runtime.clock import VirtualClock
from evenhand.runtime.folder import RunFolder
from evenhand.training.horizontal import HorizontalRun, train_horizontal
from evenhand.training.programs import PROGRAM_SOLVERS, program_options, train_programs

AVERAGING_SOLVERS: Final = tuple(name for name in solvers.SOLVERS if name not in PROGRAM_SOLVERS)
SOLVER_NAMES: Final = (*AVERAGING_SOLVERS, *PROGRAM_SOLVERS)

# The averaging solvers end with their rounds; those of programs when they are done, and these are caps.
_ROUNDS: Final = {"prox-al": 100_000, "sqp": 200}
_AVERAGING_ROUNDS: Final = 100


def choose_solver(
    solver: str, *, linear: bool, constrained: bool, two_classes: bool = True, protected: bool = False
) -> str:
    """The solver that ``"auto"`` means here; any other name is taken as it is, if there is such a solver.

    ``"sqp"`` for a linear model of two classes, with or without constraints: it ends at the optimum, in about a dozen
    rounds, and needs no step to be chosen. It cannot protect what clients send. Otherwise ``"fairfedavgalm"`` under a
    constraint and ``"fedavg"`` without.
    """
    if solver == "auto":
        if linear and two_classes and not protected:
            return "sqp"
        return "fairfedavgalm" if constrained else "fedavg"
    if solver not in SOLVER_NAMES:
        raise InputError(f"solver is {solver!r}; choose 'auto' or one of {', '.join(map(repr, SOLVER_NAMES))}")
    return solver


def default_rounds(solver: str) -> int:
    """Most rounds where the user does not say."""
    return _ROUNDS.get(solver, _AVERAGING_ROUNDS)


def solver_options(solver: str) -> type[Any]:
    """The dataclass of a solver's options."""
    return PROGRAM_SOLVERS[solver] if solver in PROGRAM_SOLVERS else solvers.SOLVERS[solver].options


def has_multipliers(solver: str, constrained: bool) -> bool:
    """Whether clients send changes of multipliers beside those of weights."""
    return solver not in PROGRAM_SOLVERS and bool(constrained or solvers.SOLVERS[solver].default_constraints)


def check_settings(
    job: Job,
    *,
    linear: bool,
    where: ConstraintScope = EVERYWHERE,
    has_server: bool = False,
    protected: bool = False,
) -> None:
    """Refuse settings that the job's solver would not heed, before data are looked at."""
    if job.solver in PROGRAM_SOLVERS:
        if not linear:
            raise InputError(f"solver {job.solver!r} trains linear models; choose model 'logistic', or another solver")
        if protected:
            raise InputError(
                f"solver {job.solver!r} cannot protect what clients send; choose "
                f"{' or '.join(map(repr, AVERAGING_SOLVERS))}"
            )
        program_options(job)
        return
    if where.scope != "global" or where.limits or has_server:
        asked = f"scope {where.scope!r}" if where.scope != "global" else "limits or rows of the server's own"
        raise InputError(
            f"{asked} cannot be had with solver {job.solver!r}, which trains under constraints over everybody's rows; "
            f"choose {' or '.join(map(repr, PROGRAM_SOLVERS))}"
        )
    solvers.check_job(job)


def train_clients(
    job: Job,
    clients: Sequence[ClientRows],
    *,
    model: Any = "logistic",
    where: ConstraintScope = EVERYWHERE,
    server: ClientRows | None = None,
    groups: Mapping[str, Sequence[Hashable]] | None = None,
    classes: int | None = None,
    protect: Protection | Mapping[str, Protection] | None = None,
    clock: VirtualClock | None = None,
    folder: RunFolder | None = None,
    checkpoint_seconds: float = 10.0,
    on_round: Callable[[Report], None] | None = None,
) -> HorizontalRun:
    """Train by whichever solver the job names; see `train_horizontal` and `train_programs` for the parameters."""
    recording: dict[str, Any] = {
        "clock": clock,
        "folder": folder,
        "checkpoint_seconds": checkpoint_seconds,
        "on_round": on_round,
    }
    clients, server, groups = crossed_clients(job.constraints, clients, server, groups, classes)
    if job.constraints:
        _warn_of_small_slices(job, clients, where, server, agree(clients, groups, classes).groups)
    if job.solver in PROGRAM_SOLVERS:
        return train_programs(job, clients, where=where, server=server, groups=groups, **recording)
    return train_horizontal(job, clients, model=model, groups=groups, classes=classes, protect=protect, **recording)


def _warn_of_small_slices(
    job: Job, clients: Sequence[ClientRows], where: ConstraintScope, server: ClientRows | None, groups: Groups
) -> None:
    """Of slices of everybody's rows, or the server's, for a global constraint; of each client's, for a local one."""
    holders = {} if where.scope == "local" else {SERVER: clients if server is None else [server]}
    if where.scope != "global":
        holders |= {client.name: [client] for client in clients}
    for name, rows in holders.items():
        labels = np.concatenate([one.labels for one in rows])
        frame = pd.concat([one.groups for one in rows if one.groups is not None], ignore_index=True)
        constraints = where.constraints_of(name, job.constraints)
        owner = "" if name == SERVER else f"client {name!r}"
        warn_of_small_slices(constraints, labels, frame, groups, owner=owner, stacklevel=5)
