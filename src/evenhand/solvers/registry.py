"""The solvers of both splits by name. The contract test suites cover every solver listed here.

`choose_solver` picks the solver of a job that names none.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass, replace
from typing import Any, Final, Literal

from evenhand.errors import InputError
from evenhand.horizontal import prox_al, sqp
from evenhand.horizontal import trees as histogram_trees
from evenhand.horizontal.averaging import fairalm, fairfed, fairfedavgalm, fedavg, fpfl
from evenhand.horizontal.roles import HorizontalClient, HorizontalServer
from evenhand.protocol.job import Job
from evenhand.protocol.solver import Solver, Split
from evenhand.vertical import fairvfl, fedbcd, subspace, trees, vfb2
from evenhand.vertical.problem import Party
from evenhand.vertical.server import Server

VERTICAL: Final[dict[str, Solver[Server, Party]]] = {
    one.name: one for one in (subspace.SOLVER, trees.SOLVER, fairvfl.SOLVER, fedbcd.SOLVER, *vfb2.SOLVERS)
}
HORIZONTAL: Final[dict[str, Solver[HorizontalServer, HorizontalClient]]] = {
    one.name: one
    for one in (
        fedavg.SOLVER,
        fairfedavgalm.SOLVER,
        fairalm.SOLVER,
        fairfed.SOLVER,
        fpfl.SOLVER,
        prox_al.SOLVER,
        sqp.SOLVER,
        histogram_trees.SOLVER,
    )
}
_LISTS: Final[dict[Split, dict[str, Any]]] = {"vertical": VERTICAL, "horizontal": HORIZONTAL}


def register(solver: Solver[Any, Any]) -> None:
    """Add a solver of your own, so that jobs and estimators can name it.

    Every participant's process must register it: the terms carry its name, not its code.
    """
    listed = _LISTS[solver.split]
    if solver.name == "auto" or listed.get(solver.name, solver) is not solver:
        raise InputError(f"there is a {solver.split} solver {solver.name!r} already; choose another name")
    listed[solver.name] = solver


def find(split: Split, name: str) -> Solver[Any, Any]:
    """Return a solver by name, or refuse the name."""
    listed = _LISTS[split]
    if name not in listed:
        raise InputError(f"solver is {name!r}; choose 'auto' or one of {', '.join(map(repr, listed))}")
    found: Solver[Any, Any] = listed[name]
    return found


def able(split: Split, field: str, value: Any = True) -> str:
    """Name the solvers of a split for error messages: those with a field equal to `value`, or containing it."""

    def allows(solver: Solver[Any, Any]) -> bool:
        found = getattr(solver, field)
        return value in found if isinstance(found, tuple) else found == value

    return " or ".join(repr(name) for name, solver in _LISTS[split].items() if allows(solver))


_OF_MODEL: Final = {"linear": "subspace", "mlp": "fairvfl", "trees": "trees"}


def solver_name(job: Job) -> str:
    """Return the name of a vertical job's solver; ``"auto"`` chooses the solver for the job's model."""
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
    """Return a vertical job with an explicit solver name and this tolerance; None takes the solver's default."""
    name = solver_name(job)
    known = VERTICAL.get(name)
    if tol is not None:
        return replace(job, solver=name, tol=tol)
    return job.resolved(solver=name, tol=job.tol if known is None else known.tol)


def choose_solver(
    solver: str, *, model: str, constrained: bool, two_classes: bool = True, protected: bool = False
) -> str:
    """Return the name of a horizontal job's solver; ``"auto"`` chooses it by model, classes and protection.

    ``"sqp"`` trains a linear model of two classes, with or without constraints. It reaches the optimum in about a dozen
    rounds and needs no step size, but clients cannot add noise. ``"trees"`` trains trees. Otherwise ``"auto"`` is
    ``"fairfedavgalm"`` with a constraint and ``"fedavg"`` without.
    """
    if solver != "auto":
        return find("horizontal", solver).name
    if model == "trees":
        return "trees"
    best = HORIZONTAL["sqp"]
    if model in best.models and (two_classes or best.many_classes) and (not protected or best.takes_noise):
        return best.name
    return "fairfedavgalm" if constrained else "fedavg"


def stopping(
    solver: str, options: Mapping[str, Any], tol: float | None, max_rounds: int | None
) -> dict[Literal["tol", "max_rounds"], Any]:
    """Return tolerance and rounds of a horizontal job; None takes the solver's default.

    A tolerance or a number of rounds that is given twice, in the job and in the solver's options, must be the same.
    """
    for option, name, given in (
        ("stationarity", "tol", tol),
        ("feasibility", "tol", tol),
        ("max_rounds", "max_rounds", max_rounds),
    ):
        if given is not None and options.get(option) not in (None, given):
            raise InputError(
                f"{name} is {given!r} and the solver's {option} is {options[option]!r}; give one of them only"
            )
    found = HORIZONTAL[solver]
    rounds = found.default_rounds if max_rounds is None else max_rounds
    return {"tol": found.tol if tol is None else tol, "max_rounds": rounds}


def has_multipliers(solver: str, constrained: bool) -> bool:
    """Return whether clients' updates contain changes of multipliers in addition to changes of weights."""
    found = HORIZONTAL[solver]
    return found.takes_noise and bool(constrained or found.default_constraints)
