"""Baselines of the field, a file for each method, as solvers of evenhand's registry.

`register_methods` makes them known to estimators and jobs, and the methods of other distributions as well: those with
an entry point of the group ``evenhand.methods``, whose object is a `Solver` or a sequence of them.
"""

from __future__ import annotations

from importlib.metadata import entry_points
from typing import Any, Final

from evenhand.errors import InputError
from evenhand.protocol.solver import Solver
from evenhand.solvers import register
from evenhand_reproductions.methods import (
    adaptive,
    adversarial_fairvfl,
    afl,
    fairbatch,
    fairfedavgalm_nova,
    fairgrad,
    fcfl,
    fedfb,
    fedminmax,
    fednova,
    fedprox,
    qffl,
    scaffold,
)

GROUP: Final = "evenhand.methods"
METHODS: Final[tuple[Solver[Any, Any], ...]] = (
    *adaptive.SOLVERS,
    fednova.SOLVER,
    fairfedavgalm_nova.SOLVER,
    fedprox.SOLVER,
    scaffold.SOLVER,
    qffl.SOLVER,
    afl.SOLVER,
    fedminmax.SOLVER,
    fairbatch.SOLVER,
    fedfb.SOLVER,
    fairgrad.SOLVER,
    fcfl.SOLVER,
)
"""Across clients."""
ACROSS_PARTIES: Final[tuple[Solver[Any, Any], ...]] = (adversarial_fairvfl.SOLVER,)


def register_methods() -> tuple[str, ...]:
    """Register the baselines and the methods of other distributions; return their names."""
    found = [*METHODS, *ACROSS_PARTIES]
    for point in entry_points(group=GROUP):
        given = point.load()
        for one in given if isinstance(given, (tuple, list)) else (given,):
            if not isinstance(one, Solver):
                raise InputError(f"entry point {point.name!r} of {GROUP} is {type(one).__name__}; it must be a Solver")
            found.append(one)
    for one in found:
        register(one)
    return tuple(one.name for one in found)
