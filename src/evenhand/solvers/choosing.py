"""Which solver a job means."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from evenhand.protocol.job import Job
from evenhand.solvers.registry import HORIZONTAL, VERTICAL, find

_OF_MODEL: Final = {"linear": "subspace", "mlp": "fairvfl", "trees": "trees"}


def solver_name(job: Job) -> str:
    """Return the name of a vertical job's solver; ``"auto"`` is the one for the parties' model."""
    return _OF_MODEL.get(job.model, "subspace") if job.solver == "auto" else job.solver


def resolve(job: Job, tol: float | None) -> Job:
    """Return a vertical job with its solver named and this tolerance; None is the solver's own."""
    name = solver_name(job)
    known = VERTICAL.get(name)
    if tol is None:
        tol = job.tol if known is None else known.tol
    return replace(job, solver=name, tol=tol)


def choose_solver(
    solver: str, *, model: str, constrained: bool, two_classes: bool = True, protected: bool = False
) -> str:
    """Return the name of a horizontal job's solver; ``"auto"`` is the best one for model, classes and protection.

    ``"sqp"`` trains a linear model of two classes, with or without constraints. It ends at the optimum in about a dozen
    rounds and needs no step size, but clients cannot add noise. ``"trees"`` trains trees. Otherwise ``"auto"`` is
    ``"fairfedavgalm"`` under a constraint and ``"fedavg"`` without.
    """
    if solver != "auto":
        return find("horizontal", solver).name
    if model == "trees":
        return "trees"
    best = HORIZONTAL["sqp"]
    if model in best.models and (two_classes or best.many_classes) and (not protected or best.takes_noise):
        return best.name
    return "fairfedavgalm" if constrained else "fedavg"


def has_multipliers(solver: str, constrained: bool) -> bool:
    """Return whether updates that clients may add noise to hold changes of multipliers beside those of weights."""
    found = HORIZONTAL[solver]
    return found.takes_noise and bool(constrained or found.default_constraints)
