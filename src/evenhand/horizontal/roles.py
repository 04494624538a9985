"""Base classes of the server's and clients' roles of horizontal solvers; see `docs/add-a-solver.md`."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from evenhand.arrays import Array
from evenhand.constraints.proving import Proof
from evenhand.horizontal.problem import Single
from evenhand.protocol.certificate import Certificate
from evenhand.protocol.roles import Follower, Role


class HorizontalModel(Protocol):
    """The model all clients share."""

    def predict(self, features: npt.ArrayLike) -> Array:
        """One score a row, positive for label +1; with more than two classes one score a class."""
        ...


@dataclass(frozen=True, eq=False)
class Outcome:
    """What a server ends with.

    Attributes
    ----------
    model
        The trained model.
    weights, statistics
        Its weights and running statistics (of batch normalisation), flat.
    multipliers
        λ⁺ and λ⁻ of constraint rows, (2, rows), by holder: a client's name, ``"server"`` or ``"shared"``. Those that
        only a client knows are with the client.
    raw_multipliers
        As the solver has them itself, for another run to begin with; None where the tables say it all.
    """

    model: HorizontalModel
    weights: Single | Array
    statistics: Single
    multipliers: Mapping[str, Array]
    raw_multipliers: Array | None = None


class HorizontalServer(Role):
    """What every solver's server has once it is done."""

    @property
    @abstractmethod
    def certificate(self) -> Certificate | None:
        """How well the model satisfies the optimality conditions on everybody's rows; None before the end."""

    @abstractmethod
    def outcome(self) -> Outcome:
        """The result of the finished run."""

    def sizes_of(self, client: str) -> dict[str, int]:
        """Sizes of fields that differ from client to client."""
        return {}

    def shortfall(self) -> str:
        """What of the result is not as it was asked for, beyond the certificate, in words; empty if nothing is."""
        return ""

    def proofs(self) -> list[Proof]:
        """What the training rows prove of new people, where a constraint asks for confidence."""
        return []

    def record(self) -> dict[str, Any]:
        """What else is worth keeping of a finished run, as plain values."""
        return {}


class HorizontalClient(Follower):
    """What every solver's client has once it is done."""

    @property
    def least_summed(self) -> int:
        """Of how many clients' answers a sum must be made, where this one helps to take the masks off."""
        return 2

    def own_multipliers(self) -> Array:
        """(2, rows): λ⁺ and λ⁻ of constraint rows that nobody else knows the multipliers of."""
        return np.zeros((2, 0))
