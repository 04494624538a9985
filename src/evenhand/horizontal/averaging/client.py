"""What clients of every averaging solver have in common: rows of their own, and the closing measurements."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Protocol

from evenhand.arrays import Array
from evenhand.errors import ProtocolError
from evenhand.horizontal.averaging.messages import FINAL, GRADIENT, SUMS, TILT, VOCABULARY
from evenhand.horizontal.problem import Single
from evenhand.horizontal.roles import HorizontalClient
from evenhand.protocol.messages import Message
from evenhand.protocol.roles import SERVER, Sends


@dataclass(frozen=True, eq=False)
class Measured:
    """A model on one client's rows, in sums that add up over clients.

    Attributes
    ----------
    loss
        Sum of the loss over the client's rows.
    sums, exact, counts
        For each part of the constraint rows: sum of the measure, sum of its exact companion, number of rows.
    """

    loss: float
    sums: Array
    exact: Array
    counts: Array


class Learner(Protocol):
    """A model on one client's rows; nothing else of the client's touches its data."""

    n_rows: int
    effort: float
    """Multiplications of one pass over the client's data."""

    def measure(self, weights: Single, statistics: Single) -> Measured: ...

    def gradient(self, weights: Single, statistics: Single, total_rows: int, tilt: Array) -> Single:
        """Gradient of Σ_i loss_i / total_rows + Σ_parts tilt · (sum of the measure over the part's slice)."""
        ...


class ClosingClient(HorizontalClient):
    """Holds rows behind a learner; they never leave it, only what its messages say."""

    vocabulary = VOCABULARY
    state_fields: ClassVar = {"round": int, "final": tuple[Single, Single] | None}

    def __init__(self, name: str, sizes: Mapping[str, int], learner: Learner) -> None:
        super().__init__(name, sizes)
        self.learner = learner
        self.round = 0
        # The final model, between its measurement and its gradient.
        self.final: tuple[Single, Single] | None = None

    def handle(self, message: Message) -> Sends:
        """The closing exchange, which is the same for all solvers: measure the final model, then its gradient."""
        if message.kind == FINAL.kind:
            self.round = message.integer("round")
            self.done = not message.integer("measure")
            if self.done:
                return ()
            self.final = (message["weights"], message["statistics"])
            return [self.sums(*self.final)]
        if message.kind == TILT.kind and self.final is not None:
            if (everybody := message.integer("rows")) < self.learner.n_rows:
                raise ProtocolError(f"{self.name} is told that all have {everybody} rows, fewer than its own; refused")
            self.effort += 2.0 * self.learner.effort
            gradient = self.learner.gradient(*self.final, everybody, message["tilt"])
            self.final, self.done = None, True
            return [GRADIENT.message(self.name, SERVER, weights=gradient)]
        raise ProtocolError(f"{self.name} takes no {message.kind!r} at this point")

    def sums(self, weights: Single, statistics: Single) -> Message:
        self.effort += self.learner.effort
        found = self.learner.measure(weights, statistics)
        return SUMS.message(
            self.name,
            SERVER,
            round=self.round,
            rows=self.learner.n_rows,
            loss=found.loss,
            sums=found.sums,
            exact=found.exact,
            counts=found.counts,
        )
