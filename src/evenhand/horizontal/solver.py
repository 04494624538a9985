"""What a file of `horizontal/` must provide to be a solver; see `docs/add-a-solver.md`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from evenhand.arrays import Array
from evenhand.constraints.kinds import Constraint
from evenhand.horizontal.averaging.client import Client
from evenhand.horizontal.averaging.server import Server
from evenhand.horizontal.problem import Agreement, ClientRows, Single, Start
from evenhand.protocol.job import Job


class Protection(Protocol):
    """What a client does to its update before it is sent, for instance clipping and Gaussian noise."""

    def protect(
        self, delta_weights: Single, delta_multipliers: Array, rng: np.random.Generator
    ) -> tuple[Single, Array]: ...


class HorizontalModel(Protocol):
    """The model all clients share."""

    def load(self, weights: Single, statistics: Single) -> None: ...

    def predict(self, features: npt.ArrayLike) -> Array:
        """One score a row, positive for label +1; with more than two classes one score a class."""
        ...


@dataclass(frozen=True, eq=False)
class Setup:
    """All that a solver may build its roles from.

    Attributes
    ----------
    network
        ``"logistic"``, ``"mlp"``, ``"resnet18"``, a `torch.nn.Module` or a function that makes one; None takes what
        the job's `model` says.
    protect
        Each client's protection, by name; clients that are not named send their updates as they are.
    """

    clients: Sequence[ClientRows]
    agreement: Agreement
    job: Job
    network: Any = None
    start: Start | None = None
    protect: Mapping[str, Protection] | None = None


class Roles(NamedTuple):
    """What a solver builds: the roles, and the model that the server's final weights belong to."""

    server: Server
    clients: Sequence[Client]
    model: HorizontalModel


@dataclass(frozen=True)
class Solver:
    """A solver's options (a dataclass that checks itself) and the function that builds its roles.

    Attributes
    ----------
    default_constraints
        What the solver trains under when the job names no constraint.
    """

    options: type[Any]
    build: Callable[[Setup], Roles]
    takes_constraints: bool = True
    default_constraints: tuple[Constraint, ...] = ()
