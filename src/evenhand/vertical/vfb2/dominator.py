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

    The k-th step is launched when its own ϑ up to k − τ₁ − 1 are sent and the others' have come that precede it by more
    than τ₂ rounds of launches: see `staleness` for what follows from that. With synchronous pace the server says when.
    """

    def __init__(self, terms: VerticalTerms, name: str, own: PartyData) -> None:
        super().__init__(terms, name, own)
        self.lagrangian = party_lagrangian(terms, name, own)
        self._number = self.setting.active.index(self.place)
        self._weighting = self.lagrangian.constraints.bounds.no_multipliers()
        self._theta_inputs = theta_inputs(self.lagrangian, self._weighting, self.setting.order)
        self._launching = False
        self._launched = 0
        # For each dominator, how many of its steps have ϑ, counted without gaps.
        self._heard_in_a_row = np.zeros(len(self.setting.active), dtype=np.int64)
        self._handlers |= {COMBINED_SCORES.kind: self._take_scores, PROCEED.kind: self._proceed}

    def _take_scores(self, message: Message) -> Sends:
        nu = self.lagrangian.at(message["scores"]).derivative(message["multipliers"])
        sends = self._open(message, nu[self.setting.order])
        self.effort += EFFORT_OF_THETA * len(nu)
        if not self.done:
            self._weigh(message["multipliers"])
            self._launched = 0
            self._heard_in_a_row[:] = 0
        return sends

    def _weigh(self, multipliers: Array) -> None:
        self._weighting = multipliers
        self._theta_inputs = self._theta_inputs._replace(tilts=cell_tilts(self.lagrangian, multipliers))

    def _begin_epoch(self, message: Message) -> Task | Sends:
        super()._begin_epoch(message)
        if self._launched:
            raise ProtocolError(f"{self.name} has begun round {self.round} already; it is refused")
        self._launching = self.setting.options.pace == "asynchronous"
        return self._turn([], [])

    def _proceed(self, message: Message) -> Task | Sends:
        step, dominators = message.integer("step"), len(self.setting.active)
        inside = step < len(self._steps) and message.integer("round") == self.round
        if not inside or step != self._number + dominators * self._launched:
            raise ProtocolError(f"{self.name} cannot proceed with step {step} of this round; it is refused")
        sends: list[Message] = []
        self._launch(step, sends)
        return self._turn(sends, [step])

    def _turn(self, sends: list[Message], steps: list[int]) -> Task | Sends:
        if self._launching:
            steps = [*steps, *self._launch_what_may_be(sends)]
        return super()._turn(sends, steps)

    def _launch_what_may_be(self, sends: list[Message]) -> list[int]:
        launched = []
        dominators = len(self.setting.active)
        own_steps = len(range(self._number, len(self._steps), dominators))
        while self._launched < own_steps and self._may_launch():
            launched.append(self._number + dominators * self._launched)
            self._launch(launched[-1], sends)
        if self._heard_in_a_row[self._number] == own_steps:
            self._launching = False
            sends.append(FINISHED.message(self.name, SERVER, round=self.round))
        return launched

    def _may_launch(self) -> bool:
        options, upcoming = self.setting.options, self._launched
        for number, heard in enumerate(self._heard_in_a_row.tolist()):
            if number == self._number:
                if heard < upcoming - options.read_delay:
                    return False
            elif heard < upcoming - options.message_delay - (number > self._number):
                return False
        return True

    def _launch(self, step: int, sends: list[Message]) -> None:
        """VFB² Algorithm 2, steps 2-3: have the rows scored by everybody."""
        self._launched += 1
        sends += self.to_others(SCORE_REQUEST, request=step, rows=self._steps.rows[step])

    def _send_theta(self, step: int, scores: Array, sends: list[Message]) -> None:
        """VFB² Algorithm 2, steps 4-5: ϑ, to everybody."""
        rows = self._steps.batches[step]
        batch_theta(self._theta_inputs, rows, scores)
        self.effort += EFFORT_OF_THETA * len(rows)
        sends += self.to_others(THETA, request=step, theta=scores)
        self._hear(step, scores)

    def _hear(self, step: int, theta: Array) -> None:
        super()._hear(step, theta)
        number, dominators = self._steps.dominator(step), len(self.setting.active)
        upcoming = number + dominators * int(self._heard_in_a_row[number])
        while upcoming < len(self._steps) and self._steps.progress[upcoming] == HEARD:
            self._heard_in_a_row[number] += 1
            upcoming += dominators

    def snapshot(self) -> State:
        return super().snapshot() | {
            "weighting": self._weighting.copy(),
            "heard_in_a_row": self._heard_in_a_row.copy(),
            "launched": self._launched,
            "launching": self._launching,
        }

    def restore(self, state: State) -> None:
        super().restore(state)
        self._weigh(np.array(state["weighting"]))
        self._heard_in_a_row = np.array(state["heard_in_a_row"])
        self._launched = int(state["launched"])
        self._launching = bool(state["launching"])
