"""Provide what the clients of all averaging solvers share: own rows, and the closing measurements."""

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
    """Measurements of a model on one client's rows, as sums that add up over clients.

    Attributes
    ----------
    loss
        Sum of the loss over the client's rows.
    sums, exact, counts
        For each part of the inequalities: sum of the measure, sum of its exact counterpart, number of rows.
    """

    loss: float
    sums: Array
    exact: Array
    counts: Array


class Learner(Protocol):
    """Model on one client's rows; only the learner accesses the client's data."""

    n_rows: int
    effort: float
    """Multiplications of one pass over the client's data."""

    def measure(self, weights: Single, statistics: Single) -> Measured: ...

    def gradient(self, weights: Single, statistics: Single, total_rows: int, tilt: Array) -> Single:
        """Return the gradient of Σ_i loss_i / total_rows + Σ_parts tilt · (sum of the measure over the slice)."""
        ...


class ClosingClient(HorizontalClient):
    """Client with rows behind a learner; rows never leave it, only the contents of its messages do."""

    vocabulary = VOCABULARY
    state_fields: ClassVar = {"round": int, "closed": bool, "final": tuple[Single, Single] | None}

    def __init__(
        self, name: str, sizes: Mapping[str, int], learner: Learner, *, max_rounds: int, measures: bool
    ) -> None:
        super().__init__(name, sizes)
        self.learner = learner
        self.max_rounds = max_rounds
        # Whether the terms let the client measure models on its rows. No noise covers measurements.
        self.measures = measures
        self.round = 0
        self.closed = False
        # The final model, from its measurement until its gradient.
        self.final: tuple[Single, Single] | None = None

    def handle(self, message: Message) -> Sends:
        """Answer the closing exchange, equal for all solvers: measure the final model, then compute its gradient.

        Each question is answered once, after the last round, and only if the terms let clients measure models.
        """
        if message.kind == FINAL.kind and not self.closed and message.integer("round") == self.max_rounds:
            asked = bool(message.integer("measure"))
            if asked and not self.measures:
                raise ProtocolError(
                    f"{self.name} refuses to measure the final model: by the terms clients send noisy updates only, "
                    "and no noise covers measurements"
                )
            self.round, self.closed, self.done = self.max_rounds, True, not asked
            if self.done:
                return ()
            self.final = (message["weights"], message["statistics"])
            return [self.sums(*self.final)]
        if message.kind == TILT.kind and self.final is not None:
            if (everybody := message.integer("rows")) < self.learner.n_rows:
                raise ProtocolError(f"{self.name} refuses a total of {everybody} rows, which is fewer than its own")
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
