"""A party of VFB² in an epoch: it scores rows behind masks, and updates its own block by every ϑ (Algorithm 3).

Nothing waits for anything but what is said in `lateness`; sums that come early are kept (`aggregation`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from evenhand.arrays import Array, Integers
from evenhand.errors import ProtocolError
from evenhand.models.base import PartyModel
from evenhand.privacy.masks import decode
from evenhand.privacy.sum_trees import ROOT
from evenhand.protocol.messages import Message, Schema
from evenhand.protocol.roles import Sends, State, Task
from evenhand.vertical.messages import WEIGHTED_DERIVATIVE
from evenhand.vertical.server import SERVER
from evenhand.vertical.vfb2.aggregation import Sums
from evenhand.vertical.vfb2.batches import batch_scores, batch_update
from evenhand.vertical.vfb2.block_work import BlockWork
from evenhand.vertical.vfb2.blocks import Block
from evenhand.vertical.vfb2.full_pass import FullPassParty
from evenhand.vertical.vfb2.interleaver import FRACTION_BITS, RULES
from evenhand.vertical.vfb2.messages import (
    APPLIED,
    BEGIN,
    MASKED_SCORES,
    NORMS,
    SCORE_REQUEST,
    STALENESS,
    THETA,
)
from evenhand.vertical.vfb2.setting import Setting
from evenhand.vertical.vfb2.staleness import Staleness, most_stale

UNASKED, ASKED, ADDED, HEARD = 0, 1, 2, 3
"""How far a step is at a party: asked for its scores, has added them to the sum, has ϑ."""


class VFB2Party(FullPassParty):
    """What active and passive parties share.

    Parameters
    ----------
    moves
        Whether the party's block is updated at all.
    """

    def __init__(self, setting: Setting, place: int, block: Block, model: PartyModel, moves: bool) -> None:
        super().__init__(setting, place, block, model)
        self._moves = moves
        self._references: Array = np.zeros(model.rows if setting.rule != "sgd" else 0)
        self._staleness = Staleness(most_stale(setting.options, len(setting.active)))
        self._batches: Integers = np.zeros((0, setting.batch_size), dtype=np.int64)
        """The rows of each step as places in the block; `_rows` has their own numbers, as messages do."""
        self._rows = self._batches
        self._progress = np.zeros(0, dtype=np.int8)
        self._updated = 0
        self._step = 0.0
        self._handlers |= {
            BEGIN.kind: self._begin_epoch,
            SCORE_REQUEST.kind: self._take_request,
            MASKED_SCORES.kind: self._add_to_scores,
            THETA.kind: self._take_theta,
        }
        self._from_server.add(BEGIN.kind)

    # -- one message after the other

    def finish(self, task: Task) -> Task | Sends:
        assert isinstance(task, BlockWork)
        self.effort += task.effort
        sends: list[Message] = []
        self._count_updates(task.updates, sends)
        for (step, masks), sums in zip(task.scorings, task.sums, strict=True):
            self._progress[step] = ADDED
            self._add(step, 0, self.place, sums, sends)
            self._add(step, 1, self.place, masks, sends)
        return self._turn(sends, [])

    def _turn(self, sends: list[Message], steps: list[int]) -> Task | Sends:
        """What is to be done now: updates that may be made, and the scoring of these steps."""
        updates = self._staleness.release()
        if updates and self.setting.rule == "saga":
            # Table and mean gradient must change together, so no two updates of SAGA may overlap.
            self.effort += sum(self.update(step, theta) for step, theta in updates)
            self._count_updates(updates, sends)
            updates = []
        scorings = [(step, self._next_masks(self.setting.batch_size)) for step in steps]
        for step in steps:
            self._progress[step] = ASKED
            self._staleness.score(step)
        if updates or scorings:
            return BlockWork(self.update, self.score, sends, updates, scorings)
        if self._full_pass_waits and self._updated == len(self._batches):
            self._answer_full_pass(sends)
        return sends

    def _count_updates(self, updates: Sequence[tuple[int, Array]], sends: list[Message]) -> None:
        self._updated += len(updates)
        if self.setting.options.pace == "synchronous":
            sends += [APPLIED.message(self.name, SERVER, round=self.round, step=step) for step, _ in updates]

    # -- arithmetic, free of any state but the block's

    def update(self, step: int, theta: Array) -> float:
        block, rows = self._block, self._batches[step]
        if not self._moves:
            return 0.0
        return float(
            batch_update(
                *(block.starts, block.indices, block.data, block.columns, block.regulariser),
                *(RULES.index(self.setting.rule), self._step),
                *(rows, self._weights, theta, self._references),
            )
        )

    def score(self, step: int, masks: Sums, sums: Sums) -> float:
        block = self._block
        effort = batch_scores(
            *(block.starts, block.indices, block.data, block.columns),
            *(self._batches[step], self.setting.largest_score, masks, sums),
        )
        self._refuse_divergence(effort >= 0)
        return float(effort)

    # -- between epochs

    def _open(self, message: Message, nu: Array) -> Sends:
        """Gradient and norms at ν, in the block's order; unless this is the end, the coming epoch is prepared."""
        number, last = message.integer("round"), message.integer("last")
        # The last exchange is about the round that has just been opened and is not to be played.
        if self._sampler is None or number != self.round + (not last):
            raise ProtocolError(f"{self.name} is in round {self.round} and cannot open this one; it is refused")
        gradient = self._block.loss_gradient(nu)
        self.effort += len(self._block.data)
        sends: list[Message] = []
        if last:
            self.done = True
            sends.append(STALENESS.message(self.name, SERVER, staleness=self._staleness.staleness))
        squared, penalty = self._block.squared_gradient(gradient), self._block.penalty()
        body: dict[str, Any] = {"round": number, "squared_gradient": squared, "penalty": penalty}
        sends.append(NORMS.message(self.name, SERVER, **body))
        if not self.done:
            self._prepare(message, nu, gradient)
        return sends

    def _prepare(self, message: Message, nu: Array, gradient: Array) -> None:
        self.round, self._step = message.integer("round"), message.number("step")
        if self.setting.rule == "svrg" or (self.setting.rule == "saga" and self.round == 1):
            self._references = len(nu) * nu
            self._block.set_drift(gradient)
        self._block.set_step(self._step)
        self._draw_batches()
        self._progress = np.zeros(len(self._batches), dtype=np.int8)
        self._updated = 0
        self._staleness.begin_epoch()

    def _draw_batches(self) -> None:
        """The rows of each step of this epoch; −1 fills up the last."""
        assert self._sampler is not None
        share = self.setting.options.share_of_rows(self.round)
        places = self._sampler.places(self.round, share)
        steps = -(-len(places) // self.setting.batch_size)
        self._batches = np.full((steps, self.setting.batch_size), -1, dtype=np.int64)
        self._batches.ravel()[: len(places)] = places
        self._rows = np.where(self._batches >= 0, self.setting.order[self._batches], -1)

    # -- during an epoch

    def _begin_epoch(self, message: Message) -> Task | Sends:
        """Said to everybody; only dominators have something to begin."""
        if message.integer("round") != self.round:
            raise ProtocolError(f"{self.name} is in round {self.round} and cannot begin this one; it is refused")
        return ()

    def _take_request(self, message: Message) -> Task | Sends:
        step = self._known_step(message)
        wrong = message.sender != self._dominator(step) or self._progress[step] != UNASKED
        if wrong or not np.array_equal(message["rows"], self._rows[step]):
            raise ProtocolError(f"{self.name} does not expect {message.sender} to ask for step {step}; it is refused")
        return self._turn([], [step])

    def _add_to_scores(self, message: Message) -> Task | Sends:
        step = self._known_step(message)
        if message.integer("dominator") != step % len(self.setting.active):
            raise ProtocolError(f"{message.sender} names the wrong dominator of step {step}; its sum is refused")
        if self._progress[step] >= ADDED and not self._sums.expects(step):
            raise ProtocolError(f"{self.name} has all sums of step {step}; that of {message.sender} is refused")
        sends: list[Message] = []
        sender = self._places[message.sender]
        self._add(step, message.integer("tree"), sender, message["sum"].view(np.uint64), sends)
        return self._turn(sends, [])

    def _take_theta(self, message: Message) -> Task | Sends:
        step = self._known_step(message)
        if message.sender != self._dominator(step):
            raise ProtocolError(f"{message.sender} is not the dominator of step {step}; its ϑ is refused")
        self._hear(step, message["theta"])
        return self._turn([], [])

    def _known_step(self, message: Message) -> int:
        step = message.integer("request")
        if not 0 <= step < len(self._batches):
            raise ProtocolError(f"{self.name}: this epoch has {len(self._batches)} steps, and none {step}; refused")
        return step

    def _dominator(self, step: int) -> str:
        return self.setting.names[self.setting.active[step % len(self.setting.active)]]

    def _hear(self, step: int, theta: Array) -> None:
        self._staleness.hear(step, theta)
        self._progress[step] = HEARD

    def _add(self, step: int, tree: int, sender: int, values: Sums, sends: list[Message]) -> None:
        """A sum for the rows of one step, from a child or from the party itself."""
        dominator = step % len(self.setting.active)
        passed = self._sums.add(step, dominator, tree, sender, values)
        if passed is None:
            return
        if passed.parent == ROOT:
            self._judge(step, decode(passed.values, FRACTION_BITS), sends)
        else:
            body = {"dominator": dominator, "request": step, "tree": tree, "sum": passed.values.view(np.int64)}
            sends.append(MASKED_SCORES.message(self.name, self.setting.names[passed.parent], **body))

    def _judge(self, step: int, scores: Array, sends: list[Message]) -> None:
        raise ProtocolError(f"{self.name} is passive and judges no scores")

    def to_others(self, schema: Schema, **values: Any) -> list[Message]:
        """The same to every other party."""
        body = schema.message(self.name, self.name, **values).body
        return [Message(self.name, other, schema.kind, body) for other in self.others]

    # -- state

    def snapshot(self) -> State:
        own: State = {
            "columns": self._block.columns.copy(),
            "references": self._references.copy(),
            "progress": self._progress.copy(),
            "updated": self._updated,
            "step": self._step,
        }
        return super().snapshot() | self._staleness.snapshot() | own

    def restore(self, state: State) -> None:
        super().restore(state)
        self._staleness.restore(state)
        self._block.columns[:] = state["columns"]
        self._references = np.array(state["references"])
        self._progress = np.array(state["progress"])
        self._updated = int(state["updated"])
        self._step = float(state["step"])
        self._batches = np.zeros((0, self.setting.batch_size), dtype=np.int64)
        if self.round > 0:
            self._draw_batches()


class PassiveParty(VFB2Party):
    """Holds columns only."""

    def __init__(self, setting: Setting, place: int, block: Block, model: PartyModel, moves: bool) -> None:
        super().__init__(setting, place, block, model, moves)
        self._handlers[WEIGHTED_DERIVATIVE.kind] = lambda message: self._open(message, message["nu"][setting.order])
        self._from_server.add(WEIGHTED_DERIVATIVE.kind)
