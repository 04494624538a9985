"""An active party of VFB²: a collaborator that also launches dominated updates (VFB² Algorithm 2)."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from evenhand.arrays import Array
from evenhand.errors import ProtocolError
from evenhand.protocol.messages import Message
from evenhand.protocol.roles import SERVER, Sends, Task
from evenhand.protocol.terms import VerticalTerms
from evenhand.vertical.messages import COMBINED_SCORES
from evenhand.vertical.problem import PartyData, party_lagrangian
from evenhand.vertical.vfb2.blocks import Sums
from evenhand.vertical.vfb2.epochs import stratum_tilts, theta_inputs
from evenhand.vertical.vfb2.kernels import batch_theta
from evenhand.vertical.vfb2.messages import FINISHED, PROCEED, SCORE_REQUEST, THETA
from evenhand.vertical.vfb2.party import VFB2Party
from evenhand.vertical.vfb2.plan import HEARD

EFFORT_OF_THETA = 10.0
"""Cost of ϑ of one row, in multiplications."""


class VFB2ActiveParty(VFB2Party):
    """A party with labels and groups, which launches every m-th step and answers its scores with ϑ.

    Step t is launched when ϑ of all steps before t − τ₁ have arrived; `staleness` describes the consequences. With
    synchronous pace the server gives the order.
    """

    state_fields: ClassVar = {"_weighting": Array, "_heard": int, "_launched": int, "_launching": bool}

    def __init__(self, terms: VerticalTerms, name: str, own: PartyData) -> None:
        super().__init__(terms, name, own)
        self.lagrangian = party_lagrangian(terms, name, own)
        self._number = self.plan.active.index(self.place)
        self._weighting = self.lagrangian.constraints.bounds.no_multipliers()
        self._theta_inputs = theta_inputs(self.lagrangian, self._weighting, self.plan.order)
        self._ahead = self.plan.options.launch_ahead
        self._launched = 0
        # ϑ of all steps before this one have arrived.
        self._heard = 0
        self._take(COMBINED_SCORES, self._take_scores)
        self._take(PROCEED, self._proceed)

    def _take_scores(self, message: Message) -> Sends:
        nu = self.lagrangian.at(message["scores"]).derivative(message["multipliers"])
        sends = self._open(message, nu[self.plan.order])
        self.effort += EFFORT_OF_THETA * len(nu)
        if not self.done:
            self._weigh(message["multipliers"])
            self._launched = self._heard = 0
        return sends

    def _weigh(self, multipliers: Array) -> None:
        self._weighting = multipliers
        self._theta_inputs = self._theta_inputs._replace(tilts=stratum_tilts(self.lagrangian, multipliers))

    def _begin_epoch(self, message: Message) -> Task | Sends:
        super()._begin_epoch(message)
        if self._launched:
            raise ProtocolError(f"{self.name} has begun round {self.round} already; it is refused")
        self._launching = self.plan.options.pace == "asynchronous"
        return self._turn([])

    def _proceed(self, message: Message) -> Task | Sends:
        step = message.integer("step")
        inside = step < len(self._steps) and message.integer("round") == self.round
        if not inside or step != self._next_step():
            raise ProtocolError(f"{self.name} cannot proceed with step {step} of this round; it is refused")
        sends: list[Message] = []
        self._launch(step, sends)
        return self._turn(sends)

    def _next_step(self) -> int:
        """Return the step that this party launches next. It may lie beyond the epoch."""
        return self._number + len(self.plan.active) * self._launched

    def _launch_what_may_be(self, sends: list[Message]) -> None:
        steps, step = len(self._steps), self._next_step()
        while step < steps and step - self._heard <= self._ahead:
            self._launch(step, sends)
            step = self._next_step()
        # Its own last step precedes the one that it would launch next.
        if step >= steps and self._heard > step - len(self.plan.active):
            self._launching = False
            sends.append(FINISHED.message(self.name, SERVER, round=self.round))

    def _launch(self, step: int, sends: list[Message]) -> None:
        """Ask all parties to score the rows of a step (VFB² Algorithm 2, steps 2-3)."""
        self._launched += 1
        self._ask(step)
        sends += self.to_others(SCORE_REQUEST, request=step, rows=self._steps.rows[step])

    def _send_theta(self, step: int, sums: Sums, sends: list[Message]) -> None:
        """Send ϑ to all parties (VFB² Algorithm 2, steps 4-5)."""
        rows, theta = self._steps.batches[step], np.empty(len(sums))
        batch_theta(self._theta_inputs, rows, sums, theta)
        self.effort += EFFORT_OF_THETA * len(rows)
        sends += self.to_others(THETA, request=step, theta=theta)
        self._hear(step, theta)

    def _hear(self, step: int, theta: Array) -> None:
        super()._hear(step, theta)
        while self._heard < len(self._steps) and self._steps.progress[self._heard] == HEARD:
            self._heard += 1

    def restored(self) -> None:
        super().restored()
        self._weigh(self._weighting)
