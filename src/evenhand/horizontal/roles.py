"""Base classes of the server's and clients' roles of horizontal solvers; see `docs/add-a-solver.md`."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol

import numpy as np
import numpy.typing as npt

from evenhand.arrays import Array
from evenhand.constraints.proving import Proof
from evenhand.horizontal.problem import Once, Single
from evenhand.protocol.messages import Message
from evenhand.protocol.roles import Follower, Role, Sends, Task
from evenhand.protocol.solver import Certificate


class HorizontalModel(Protocol):
    """Model that all clients share."""

    def predict(self, features: npt.ArrayLike) -> Array:
        """Return one score a row, positive for label +1; with more than two classes, one score a class."""
        ...


@dataclass(frozen=True, eq=False)
class Outcome:
    """Result of a server's run.

    Attributes
    ----------
    model
        The trained model.
    weights, statistics
        Its weights and the running statistics of its batch normalisation, as flat arrays.
    multipliers
        λ⁺ and λ⁻ of inequalities, (2, rows), by holder: a client's name, ``"server"`` or ``"shared"``. Multipliers
        that only a client knows stay with the client.
    raw_multipliers
        Multipliers in the solver's own form, to start another run from. None if `multipliers` holds all of them.
    """

    model: HorizontalModel
    weights: Single | Array
    statistics: Single
    multipliers: Mapping[str, Array]
    raw_multipliers: Array | None = None


class HorizontalServer(Role):
    """Base class of the servers of all horizontal solvers."""

    @property
    @abstractmethod
    def certificate(self) -> Certificate | None:
        """Residuals of the optimality conditions on all rows; None before the end."""

    @abstractmethod
    def outcome(self) -> Outcome:
        """Return the result of the finished run."""

    def sizes_of(self, client: str) -> dict[str, int]:
        """Return the sizes of fields that differ between clients."""
        return {}

    def shortfall(self) -> str:
        """Return warnings about the result, beyond the certificate; empty if there are none."""
        return ""

    def proofs(self) -> list[Proof]:
        """Return the bounds that the training rows prove for new people, if a constraint has a confidence."""
        return []

    def record(self) -> dict[str, Any]:
        """Return further statistics of a finished run, as plain values."""
        return {}


PLACE: Final = ("round", "outer", "inner", "exchange")
"""Fields that say where in a run a question belongs."""


class HorizontalClient(Follower):
    """Base class of the clients of all horizontal solvers.

    Attributes
    ----------
    once
        Record of questions, kept by the participant beside its checkpoints; None in a simulation.
    """

    once: Once | None = None

    def begin(self, message: Message) -> Task | Sends:
        if self.once is not None:
            self.check(message)
            if content := self.asked(message):
                place = [f"{name} {message.integer(name)}" for name in PLACE if name in message.body]
                self.once(" ".join([message.kind, *place]), content)
        return super().begin(message)

    def asked(self, message: Message) -> bytes:
        """Return all of a question that its answer depends on; empty for what may come again with another content."""
        return b"".join(name.encode() + value.tobytes() for name, value in sorted(message.body.items()))

    @property
    def least_summed(self) -> int:
        """Smallest number of clients in a sum that this client helps to unmask."""
        return 2

    def own_multipliers(self) -> Array:
        """Return λ⁺ and λ⁻, (2, rows), of inequalities with multipliers that only this client knows."""
        return np.zeros((2, 0))
