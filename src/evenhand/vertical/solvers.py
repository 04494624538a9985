"""The vertical solvers by name."""

from __future__ import annotations

from collections.abc import Sequence

from evenhand.constraints.lagrangian import Lagrangian
from evenhand.errors import InputError
from evenhand.protocol.job import Job
from evenhand.protocol.options import check_options
from evenhand.vertical import fairvfl, fedbcd, subspace, vfb2
from evenhand.vertical.parties import Party
from evenhand.vertical.problem import PartyColumns, Start
from evenhand.vertical.server import CompiledRun, Server

SOLVERS = {"subspace": subspace.SOLVER, "fairvfl": fairvfl.SOLVER, "fedbcd": fedbcd.SOLVER, **vfb2.SOLVERS}


def solver_name(job: Job) -> str:
    """The job's solver; ``"auto"`` is the subspace solver, or FairVFL where parties are neural."""
    if job.solver == "auto":
        return "subspace" if job.model == "linear" else "fairvfl"
    return job.solver


def check_job(job: Job) -> None:
    """Refuse an unknown solver or option, or a constraint the solver would ignore."""
    solver = SOLVERS.get(solver_name(job))
    if solver is None:
        raise InputError(f"solver is {job.solver!r}; choose 'auto' or one of {', '.join(map(repr, SOLVERS))}")
    if job.constraints and not solver.takes_constraints:
        raise InputError(f"solver {job.solver!r} trains without constraints; choose another, or drop the constraint")
    if job.loss not in solver.losses:
        named = [name for name, one in SOLVERS.items() if job.loss in one.losses]
        raise InputError(f"solver {job.solver!r} does not take the {job.loss} loss; choose {' or '.join(named)}")
    if job.model not in solver.models:
        raise InputError(f"solver {job.solver!r} takes {' or '.join(solver.models)} parties, not {job.model!r} ones")
    check_options(solver_name(job), solver.options, job.options)


def build_roles(
    parties: Sequence[PartyColumns], lagrangian: Lagrangian, job: Job, start: Start | None = None
) -> tuple[Server, list[Party]]:
    """The server and the parties of a run, ready to be handed to a runtime."""
    check_job(job)
    _require_active(parties)
    server, roles = SOLVERS[solver_name(job)].build(parties, lagrangian, job, start)
    _take_multipliers(server, start)
    return server, roles


def build_compiled(
    parties: Sequence[PartyColumns], lagrangian: Lagrangian, job: Job, start: Start | None = None
) -> CompiledRun | None:
    """The one role that plays everybody, where the solver has one."""
    check_job(job)
    _require_active(parties)
    make = SOLVERS[solver_name(job)].compiled
    if make is None:
        return None
    compiled = make(parties, lagrangian, job, start)
    _take_multipliers(compiled, start)
    return compiled


def _require_active(parties: Sequence[PartyColumns]) -> None:
    if not any(party.active for party in parties):
        raise InputError("no party is active; the one that holds the labels must be")


def _take_multipliers(server: Server, start: Start | None) -> None:
    if start is not None and start.multipliers.shape == server.multipliers.shape:
        server.multipliers = start.multipliers.copy()
