"""What a file of `vertical/` must provide to be a solver; see `docs/add-a-solver.md`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from evenhand.job import Job
from evenhand.lagrangian import Lagrangian
from evenhand.vertical.parties import Party
from evenhand.vertical.problem import PartyColumns, Start
from evenhand.vertical.server import Server


@dataclass(frozen=True)
class Solver:
    """A solver's options (a dataclass that checks itself) and the function that builds its roles."""

    options: type[Any]
    build: Callable[[Sequence[PartyColumns], Lagrangian, Job, Start | None], tuple[Server, list[Party]]]
    takes_constraints: bool = True
    models: tuple[str, ...] = ("linear", "mlp")
