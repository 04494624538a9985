"""The solvers of both splits by name. Being listed here puts a solver under the contract suites."""

from __future__ import annotations

from typing import Any, Final

from evenhand.errors import InputError
from evenhand.horizontal import prox_al, sqp
from evenhand.horizontal import trees as histogram_trees
from evenhand.horizontal.averaging import fairalm, fairfed, fairfedavgalm, fedavg, fpfl
from evenhand.horizontal.roles import HorizontalClient, HorizontalServer
from evenhand.protocol.solver import Solver, Split
from evenhand.vertical import fairvfl, fedbcd, subspace, trees, vfb2
from evenhand.vertical.parties import Party
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
    """Name the solvers of a split that a field allows something, for errors: its value is `value`, or contains it."""

    def allows(solver: Solver[Any, Any]) -> bool:
        found = getattr(solver, field)
        return value in found if isinstance(found, tuple) else found == value

    return " or ".join(repr(name) for name, solver in _LISTS[split].items() if allows(solver))
