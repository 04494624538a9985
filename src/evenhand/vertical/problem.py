"""A vertical training problem, and the roles that solve it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Literal

import numpy as np

from evenhand.arrays import Array, Matrix
from evenhand.constraints import Constraints
from evenhand.errors import InputError
from evenhand.lagrangian import Lagrangian
from evenhand.models.base import PartyModel
from evenhand.models.linear import LinearModel
from evenhand.models.mlp import MLPModel
from evenhand.vertical.fairvfl import ActiveParty, FairVFLOptions, FairVFLServer, PassiveParty
from evenhand.vertical.fedbcd import FedBCDOptions, refuse_constraints
from evenhand.vertical.parties import Party
from evenhand.vertical.server import Server

ModelName = Literal["linear", "mlp"]
SOLVERS: dict[str, type[FairVFLOptions]] = {"fairvfl": FairVFLOptions, "fedbcd": FedBCDOptions}


@dataclass(frozen=True, eq=False)
class PartyColumns:
    """One party's encoded columns for the aligned training rows."""

    name: str
    matrix: Matrix
    active: bool


@dataclass(frozen=True)
class Settings:
    """How to solve: everything about a vertical run that is not data.

    Parameters
    ----------
    alpha
        μ of (μ/2)‖θ‖²; None is 2/n, the papers' choice.
    options
        The solver's own settings by name, for instance ``{"local_steps": 7}``.
    hidden
        Widths of the hidden layers of a neural party.
    """

    solver: str = "fairvfl"
    model: ModelName = "linear"
    alpha: float | None = None
    max_rounds: int = 1000
    tol: float = 1e-4
    seed: int = 0
    fit_intercept: bool = True
    hidden: tuple[int, ...] = (32, 16)
    options: Mapping[str, Any] | None = None

    def __post_init__(self) -> None:
        if self.solver not in SOLVERS:
            raise InputError(f"solver is {self.solver!r}; choose one of {', '.join(map(repr, SOLVERS))}")
        if self.model not in ("linear", "mlp"):
            raise InputError(f"model is {self.model!r}; choose 'linear' or 'mlp'")
        if self.alpha is not None and not 0 <= self.alpha < np.inf:
            raise InputError(f"alpha is {self.alpha}; it must be zero or more, or None for 2/n")
        if not self.max_rounds >= 1:
            raise InputError(f"max_rounds is {self.max_rounds}; it must be at least 1")
        if not self.tol >= 0:
            raise InputError(f"tol is {self.tol}; it must be zero or more")

    def solver_options(self) -> FairVFLOptions:
        kind = SOLVERS[self.solver]
        given = dict(self.options or {})
        known = [field.name for field in fields(kind)]
        for name in given:
            if name not in known:
                raise InputError(f"solver {self.solver!r} has no option {name!r}; it has {', '.join(known)}")
        return kind(**given)

    def regulariser(self, rows: int) -> float:
        return 2.0 / rows if self.alpha is None else self.alpha


def build_roles(
    parties: Sequence[PartyColumns], lagrangian: Lagrangian, settings: Settings
) -> tuple[Server, list[Party]]:
    """The server and the parties of a run, ready to be handed to a runtime."""
    names = [party.name for party in parties]
    active = [party.name for party in parties if party.active]
    if not active:
        raise InputError("no party is active; the one that holds labels must be")
    options = settings.solver_options()
    regulariser = settings.regulariser(len(lagrangian.labels))
    server = FairVFLServer(lagrangian, names, active, regulariser, options, settings.max_rounds, settings.tol)
    seeds = np.random.SeedSequence(settings.seed).generate_state(len(parties))
    roles: list[Party] = []
    for party, seed in zip(parties, seeds, strict=True):
        model = _model(party, settings, regulariser, intercept=party.name == active[0], seed=int(seed))
        if party.active:
            roles.append(ActiveParty(party.name, model, lagrangian, options))
        else:
            roles.append(PassiveParty(party.name, model, len(lagrangian.rows.rows), options))
    return server, roles


def _model(party: PartyColumns, settings: Settings, regulariser: float, intercept: bool, seed: int) -> PartyModel:
    """The intercept sits at the first active party; a neural party has its own biases."""
    if settings.model == "mlp":
        return MLPModel(party.matrix, regulariser, settings.hidden, seed)
    return LinearModel(party.matrix, regulariser, intercept=intercept and settings.fit_intercept)


def check_solver_takes(constraints: Constraints, settings: Settings) -> None:
    if settings.solver == "fedbcd":
        refuse_constraints(constraints)


def signed_labels(positive: Array) -> Array:
    """±1 from an indicator of the positive class."""
    return np.where(positive, 1.0, -1.0)
