"""An active party of VFB²: besides its part as a collaborator it launches dominated updates (Algorithm 2)."""

from __future__ import annotations

import numpy as np

from evenhand.arrays import Array
from evenhand.constraints.lagrangian import Lagrangian
from evenhand.errors import ProtocolError
from evenhand.models.base import PartyModel
from evenhand.protocol.messages import Message
from evenhand.protocol.roles import Sends, State, Task
from evenhand.vertical.messages import COMBINED_SCORES
from evenhand.vertical.server import SERVER
from evenhand.vertical.vfb2.batches import batch_theta
from evenhand.vertical.vfb2.blocks import Block
from evenhand.vertical.vfb2.epochs import cell_tilts, measure_codes
from evenhand.vertical.vfb2.interleaver import ThetaInputs
from evenhand.vertical.vfb2.kernels import LOSSES
from evenhand.vertical.vfb2.messages import FINISHED, PROCEED, SCORE_REQUEST, THETA
from evenhand.vertical.vfb2.party import HEARD, VFB2Party
from evenhand.vertical.vfb2.setting import Setting

EFFORT_OF_THETA = 10.0
"""Multiplications that ϑ of one row is worth."""


class ActiveParty(VFB2Party):
    """Holds labels and groups as well, launches every m-th step, and judges its scores.

    The k-th step is launched when its own ϑ up to k − τ₁ − 1 are sent and the others' have come that precede it by more
    than τ₂ rounds of launches: see `lateness` for what follows from that. With synchronous pace the server says when.
    """

    def __init__(
        self, setting: Setting, place: int, block: Block, model: PartyModel, moves: bool, lagrangian: Lagrangian
    ) -> None:
        super().__init__(setting, place, block, model, moves)
        self.lagrangian = lagrangian
        self._number = setting.active.index(place)
        self._weighting = lagrangian.constraints.bounds.no_multipliers()
        kinds, temperatures = measure_codes(lagrangian)
        self._theta_inputs = ThetaInputs(
            LOSSES.index(lagrangian.loss.name),
            lagrangian.labels[setting.order],
            lagrangian.constraints.cell[setting.order],
            cell_tilts(lagrangian, self._weighting),
            kinds,
            temperatures,
        )
        self._launching = False
        self._launched = 0
        # For each dominator, how many of its steps have ϑ, counted without gaps.
        self._heard_in_a_row = np.zeros(len(setting.active), dtype=np.int64)
        self._handlers |= {COMBINED_SCORES.kind: self._take_scores, PROCEED.kind: self._proceed}
        self._from_server |= {COMBINED_SCORES.kind, PROCEED.kind}

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
        inside = step < len(self._batches) and message.integer("round") == self.round
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
        own_steps = len(range(self._number, len(self._batches), dominators))
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
        """Algorithm 2, steps 2-3: have the rows scored by everybody."""
        self._launched += 1
        sends += self.to_others(SCORE_REQUEST, request=step, rows=self._rows[step])

    def _judge(self, step: int, scores: Array, sends: list[Message]) -> None:
        """Algorithm 2, steps 4-5: ϑ, to everybody."""
        rows = self._batches[step]
        batch_theta(self._theta_inputs, rows, scores)
        self.effort += EFFORT_OF_THETA * len(rows)
        sends += self.to_others(THETA, request=step, theta=scores)
        self._hear(step, scores)

    def _hear(self, step: int, theta: Array) -> None:
        super()._hear(step, theta)
        number, dominators = step % len(self.setting.active), len(self.setting.active)
        upcoming = number + dominators * int(self._heard_in_a_row[number])
        while upcoming < len(self._progress) and self._progress[upcoming] == HEARD:
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
