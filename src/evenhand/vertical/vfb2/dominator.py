"""An active party of VFB²: besides its part as a collaborator it launches dominated updates (VFB² Algorithm 2)."""

from __future__ import annotations

import numpy as np

from evenhand.arrays import Array
from evenhand.errors import ProtocolError
from evenhand.protocol.messages import Message
from evenhand.protocol.roles import SERVER, Sends, State, Task
from evenhand.protocol.terms import VerticalTerms
from evenhand.vertical.messages import COMBINED_SCORES
from evenhand.vertical.problem import PartyData, party_lagrangian
from evenhand.vertical.vfb2.batches import batch_theta
from evenhand.vertical.vfb2.epochs import cell_tilts, theta_inputs
from evenhand.vertical.vfb2.messages import FINISHED, PROCEED, SCORE_REQUEST, THETA
from evenhand.vertical.vfb2.party import VFB2Party
from evenhand.vertical.vfb2.steps import HEARD

EFFORT_OF_THETA = 10.0
"""Multiplications that ϑ of one row is worth."""


class VFB2ActiveParty(VFB2Party):
    """Holds labels and groups as well, launches every m-th step, and answers its scores with ϑ.

    Step t is launched when ϑ of all steps before t − τ₁ are there: see `staleness` for what follows from that. With
    synchronous pace the server says when, and the party asks the others.
    """

    def __init__(self, terms: VerticalTerms, name: str, own: PartyData) -> None:
        super().__init__(terms, name, own)
        self.lagrangian = party_lagrangian(terms, name, own)
        self._number = self.setting.active.index(self.place)
        self._weighting = self.lagrangian.constraints.bounds.no_multipliers()
        self._theta_inputs = theta_inputs(self.lagrangian, self._weighting, self.setting.order)
        self._finished = False
        # All steps before this one have ϑ.
        self._heard = 0
        self._handlers |= {COMBINED_SCORES.kind: self._take_scores, PROCEED.kind: self._proceed}

    def _take_scores(self, message: Message) -> Sends:
        nu = self.lagrangian.at(message["scores"]).derivative(message["multipliers"])
        sends = self._open(message, nu[self.setting.order])
        self.effort += EFFORT_OF_THETA * len(nu)
        if not self.done:
            self._weigh(message["multipliers"])
            self._heard, self._finished = 0, False
        return sends

    def _weigh(self, multipliers: Array) -> None:
        self._weighting = multipliers
        self._theta_inputs = self._theta_inputs._replace(tilts=cell_tilts(self.lagrangian, multipliers))

    def _proceed(self, message: Message) -> Task | Sends:
        """With synchronous pace: VFB² Algorithm 2, steps 2-3, have the rows of one step scored by everybody."""
        step = message.integer("step")
        inside = step < len(self._steps) and message.integer("round") == self.round
        if not inside or step != self._staleness.launched or self._steps.dominator(step) != self._number:
            raise ProtocolError(f"{self.name} cannot proceed with step {step} of this round; it is refused")
        self._staleness.launch(step + 1)
        return [*self.to_others(SCORE_REQUEST, request=step, rows=self._steps.rows[step]), *self.work()]

    def _launch_what_may_be(self) -> None:
        """Up to the first step of its own that is more than τ₁ ahead of the ϑ it has."""
        dominators = len(self.setting.active)
        first = self._heard + self.setting.options.launch_ahead + 1
        self._staleness.launch(min(first + (self._number - first) % dominators, len(self._steps)))

    def _turn(self, sends: list[Message]) -> Task | Sends:
        if self._begun and not self._finished and self.setting.options.pace == "asynchronous":
            self._launch_what_may_be()
            # All steps have ϑ but some at the end that others launch.
            if self._heard > len(self._steps) - 1 - (len(self._steps) - 1 - self._number) % len(self.setting.active):
                self._finished = True
                sends.append(FINISHED.message(self.name, SERVER, round=self.round))
        return super()._turn(sends)

    def _send_theta(self, step: int, scores: Array, sends: list[Message]) -> None:
        """VFB² Algorithm 2, steps 4-5: ϑ and the rows it is of, to everybody."""
        rows = self._steps.batches[step]
        batch_theta(self._theta_inputs, rows, scores)
        self.effort += EFFORT_OF_THETA * len(rows)
        sends += self.to_others(THETA, request=step, rows=self._steps.rows[step], theta=scores)
        self._hear(step, scores)

    def _hear(self, step: int, theta: Array) -> None:
        super()._hear(step, theta)
        while self._heard < len(self._steps) and self._steps.progress[self._heard] == HEARD:
            self._heard += 1

    def snapshot(self) -> State:
        return super().snapshot() | {
            "weighting": self._weighting.copy(),
            "heard so far": self._heard,
            "finished": self._finished,
        }

    def restore(self, state: State) -> None:
        super().restore(state)
        self._weigh(np.array(state["weighting"]))
        self._heard = int(state["heard so far"])
        self._finished = bool(state["finished"])
