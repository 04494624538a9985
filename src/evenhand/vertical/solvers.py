"""The vertical solvers by name."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields

from evenhand.errors import InputError
from evenhand.job import Job
from evenhand.lagrangian import Lagrangian
from evenhand.vertical import fairvfl, fedbcd
from evenhand.vertical.parties import Party
from evenhand.vertical.problem import PartyColumns
from evenhand.vertical.server import Server

SOLVERS = {"fairvfl": fairvfl.SOLVER, "fedbcd": fedbcd.SOLVER}


def check_job(job: Job) -> None:
    """Refuse an unknown solver or option, or a constraint the solver would ignore."""
    solver = SOLVERS.get(job.solver)
    if solver is None:
        raise InputError(f"solver is {job.solver!r}; choose one of {', '.join(map(repr, SOLVERS))}")
    if job.constraints and not solver.takes_constraints:
        raise InputError(f"solver {job.solver!r} trains without constraints; choose another, or drop the constraint")
    known = [field.name for field in fields(solver.options)]
    for name in job.options:
        if name not in known:
            raise InputError(f"solver {job.solver!r} has no option {name!r}; it has {', '.join(known)}")
    solver.options(**job.options)


def build_roles(parties: Sequence[PartyColumns], lagrangian: Lagrangian, job: Job) -> tuple[Server, list[Party]]:
    """The server and the parties of a run, ready to be handed to a runtime."""
    check_job(job)
    if not any(party.active for party in parties):
        raise InputError("no party is active; the one that holds the labels must be")
    return SOLVERS[job.solver].build(parties, lagrangian, job)
