"""Which solver a job means."""

from __future__ import annotations

from dataclasses import MISSING, fields, is_dataclass, replace
from typing import Any, Final

from evenhand.errors import InputError
from evenhand.protocol.job import Job
from evenhand.protocol.solver import Split
from evenhand.solvers.registry import HORIZONTAL, VERTICAL, find

_OF_MODEL: Final = {"linear": "subspace", "mlp": "fairvfl", "trees": "trees"}


def solver_name(job: Job) -> str:
    """Return the name of a vertical job's solver; ``"auto"`` is the one for the parties' model."""
    return _OF_MODEL.get(job.model, "subspace") if job.solver == "auto" else job.solver


def named_solver(split: Split, given: Any) -> tuple[str, dict[str, Any]]:
    """Return the name and the options of a solver, which a user gives by name or as an object with its options.

    Only options that differ from their defaults are returned, so that an object with defaults equals the name alone.
    """
    if isinstance(given, str):
        return given, {}
    listed: dict[str, Any] = {**(VERTICAL if split == "vertical" else HORIZONTAL)}
    for name, solver in listed.items():
        if type(given) is solver.options:
            return name, changed_fields(given)
    known = ", ".join(sorted(solver.options.__name__ for solver in listed.values()))
    raise InputError(f"solver is {given!r}; give a name such as {next(iter(listed))!r}, or an object of {known}")


def changed_fields(given: Any) -> dict[str, Any]:
    """Return the fields of a dataclass object that differ from their defaults."""
    assert is_dataclass(given)
    found = {}
    for one in fields(given):
        default = one.default if one.default_factory is MISSING else one.default_factory()
        if (value := getattr(given, one.name)) != default:
            found[one.name] = value
    return found


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
