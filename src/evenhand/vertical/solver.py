"""What a file of `vertical/` must provide to be a solver; see `docs/add-a-solver.md`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from evenhand.constraints.lagrangian import Lagrangian
from evenhand.protocol.job import Job
from evenhand.vertical.parties import Party
from evenhand.vertical.problem import PartyColumns, Start
from evenhand.vertical.server import CompiledRun, Server


@dataclass(frozen=True)
class Solver:
    """A solver's options (a dataclass that checks itself) and the functions that build its roles.

    Attributes
    ----------
    build
        The server and the parties, as roles that exchange messages.
    ensemble
        The same in one role that plays everybody and only counts messages; None where there is no faster way.
    models, losses
        The kinds of parties and of losses it can train.
    exact
        Whether it ends at the optimum, rather than near it or at that of a smaller problem.
    """

    options: type[Any]
    build: Callable[[Sequence[PartyColumns], Lagrangian, Job, Start | None], tuple[Server, list[Party]]]
    takes_constraints: bool = True
    models: tuple[str, ...] = ("linear", "mlp")
    losses: tuple[str, ...] = ("logistic",)
    compiled: Callable[[Sequence[PartyColumns], Lagrangian, Job, Start | None], CompiledRun] | None = None
    exact: bool = True
