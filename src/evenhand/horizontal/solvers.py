"""The horizontal solvers by name."""

from __future__ import annotations

from dataclasses import fields

from evenhand.errors import InputError
from evenhand.horizontal.averaging import fairalm, fairfed, fairfedavgalm, fedavg, fpfl
from evenhand.horizontal.solver import Roles, Setup
from evenhand.protocol.job import Job

SOLVERS = {
    "fedavg": fedavg.SOLVER,
    "fairfedavgalm": fairfedavgalm.SOLVER,
    "fairalm": fairalm.SOLVER,
    "fairfed": fairfed.SOLVER,
    "fpfl": fpfl.SOLVER,
}


def solver_name(job: Job) -> str:
    """The job's solver; ``"auto"`` is FairFedAvgALM, or FedAvg where there is no constraint."""
    if job.solver == "auto":
        return "fairfedavgalm" if job.constraints else "fedavg"
    return job.solver


def check_job(job: Job) -> None:
    """Refuse an unknown solver or option, or a constraint the solver would ignore."""
    solver = SOLVERS.get(solver_name(job))
    if solver is None:
        raise InputError(f"solver is {job.solver!r}; choose 'auto' or one of {', '.join(map(repr, SOLVERS))}")
    if job.constraints and not solver.takes_constraints:
        raise InputError(f"solver {job.solver!r} trains without constraints; choose another, or drop the constraint")
    known = [field.name for field in fields(solver.options)]
    for name in job.options:
        if name not in known:
            raise InputError(f"solver {solver_name(job)!r} has no option {name!r}; it has {', '.join(known)}")
    solver.options(**job.options)


def build_roles(setup: Setup) -> Roles:
    """The server, the clients and the model of a run, ready to be handed to a runtime."""
    check_job(setup.job)
    return SOLVERS[solver_name(setup.job)].build(setup)
