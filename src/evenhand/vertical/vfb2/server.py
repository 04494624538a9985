"""The server of VFB²: it opens and closes rounds, and takes no part in an epoch's steps.

Round:

1. The server asks for a full pass. Parties sum their scores of all rows behind masks; the server gets the totals.
2. From the totals it computes the multipliers, the weighting of the constraints and the step.
3. It sends passive parties ν, and active parties the totals and the weighting. Each answers with its gradient norm.
4. It stops when the gap meets the tolerance, or at the round limit. Otherwise it starts an epoch.
5. In the epoch active parties have mini-batches scored and send ϑ to all parties. Each party updates its own block.
6. The next round begins when the active parties have finished their steps.

Before the first round, one more full pass sums the squared norms of the rows, from which row probabilities follow.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from evenhand.arrays import Array, Booleans
from evenhand.constraints.evaluation import Point
from evenhand.errors import ProtocolError
from evenhand.protocol.messages import Message, Schema
from evenhand.protocol.roles import SERVER, Sends
from evenhand.protocol.terms import VerticalTerms
from evenhand.vertical.messages import COMBINED_SCORES, WEIGHTED_DERIVATIVE
from evenhand.vertical.problem import ServerData
from evenhand.vertical.vfb2.epochs import EpochServer
from evenhand.vertical.vfb2.messages import (
    APPLIED,
    BEGIN,
    CHANCES,
    FINISHED,
    FULL_PASS,
    NORMS,
    PROCEED,
    STALENESS,
    TOTALS,
    VOCABULARY,
)
from evenhand.vertical.vfb2.plan import LAST, LAST_AT_KEPT, OF_NORMS, OF_SCORES, RowSampler, VFB2Plan

SUMMING, OPENING, EPOCH, CLOSING = "full pass", "opening", "epoch", "closing"
"""Phases, by what the server waits for: a sum over all rows, all norms, the end of an epoch, all last norms."""


class VFB2Server(EpochServer):
    """Keeps all parties in the same round."""

    vocabulary = VOCABULARY
    state_fields: ClassVar = {
        "phase": str,
        "_norms": Array,
        "_scores": Array,
        "_awaited": Booleans,
        "_steps": int,
        "_at_step": int,
    }

    def __init__(self, terms: VerticalTerms, own: ServerData) -> None:
        super().__init__(terms, own, VFB2Plan(terms))
        self.sizes = self.plan.sizes
        self.phase = SUMMING
        self._synchronous = self.options.pace == "synchronous"
        self._sampler: RowSampler | None = None
        self._norms: Array = np.zeros(0)
        self._scores: Array = np.zeros(terms.n_rows)
        self._awaited = np.zeros(len(self.parties), dtype=bool)
        self._steps = 0
        self._at_step = 0

    @property
    def at_rest(self) -> bool:
        # A report ends a round: all messages of the round have arrived.
        return bool(self.reports)

    def start(self) -> Sends:
        return self._to_all(FULL_PASS, round=self.round, what=OF_NORMS)

    def present(self) -> Point:
        return self.lagrangian.at(self._scores)

    def handle(self, message: Message) -> Sends:
        place = self.place(message)
        if message.kind == STALENESS.kind and self.phase == CLOSING and self._awaited[place]:
            self.staleness += message["staleness"]
            return ()
        if message.kind == TOTALS.kind and self.phase == SUMMING and self._is_asked_for(message):
            return self._take_norms(message) if self._sampler is None else self._take_scores(message)
        if message.kind == NORMS.kind and self.phase in (OPENING, CLOSING) and self._awaited[place]:
            return self._take_gradient(place, message)
        if self.phase == EPOCH and self._awaited[place] and message.integer("round") == self.round:
            if message.kind == FINISHED.kind and not self._synchronous:
                return self._take_finished(place)
            if message.kind == APPLIED.kind and message.integer("step") == self._at_step and self._synchronous:
                return self._take_applied(place)
        raise ProtocolError(f"the server takes no {message.kind!r} from {message.sender} at this point")

    def _is_asked_for(self, message: Message) -> bool:
        what = OF_NORMS if self._sampler is None else OF_SCORES
        from_root = message.sender == self.terms.active[0]
        return from_root and message.integer("what") == what and message.integer("round") == self.round

    def _take_norms(self, message: Message) -> Sends:
        self._set_norms(message["total"])
        assert self._sampler is not None
        return [*self._to_all(CHANCES, chances=self._sampler.chances), *self._sum_scores()]

    def _set_norms(self, norms: Array) -> None:
        # Rounding may make the norm of a row without entries slightly negative.
        self._norms = np.maximum(norms, 0.0)
        self._sampler = RowSampler(self._norms, self.options.sampling, self.job.seed)

    def _sum_scores(self) -> Sends:
        self.phase = SUMMING
        return self._to_all(FULL_PASS, round=self.round, what=OF_SCORES)

    def _take_scores(self, message: Message) -> Sends:
        assert self._sampler is not None
        self._scores = message["total"]
        self.effort += len(self._scores)
        point = self.present()
        self.open_round(point, self._sampler)
        self.phase = OPENING
        return self._ask_for_norms(point, self.weighting, last=0)

    def _ask_for_norms(self, point: Point, multipliers: Array, last: int) -> Sends:
        self._awaited[:] = True
        head = {"round": self.round + 1, "last": last, "step": self.step}
        body = {"sequence": 0, "scores": point.scores, "multipliers": multipliers}
        to_active = [
            COMBINED_SCORES.message(SERVER, party, **head, **body) for party in self.parties if party in self.active
        ]
        if len(to_active) == len(self.parties):
            return to_active
        nu = point.derivative(multipliers)
        passive = [party for party in self.parties if party not in self.active]
        return [*to_active, *(WEIGHTED_DERIVATIVE.message(SERVER, party, **head, nu=nu) for party in passive)]

    def _take_gradient(self, place: int, message: Message) -> Sends:
        if message.integer("round") != self.round + 1:
            raise ProtocolError(f"{message.sender} sends norms of another round; they are refused")
        self.squared_gradients[place] = message.number("squared_gradient")
        self.squared_norms[place] = message.number("penalty")
        self._awaited[place] = False
        if self._awaited.any():
            return ()
        point = self.present()
        if self.phase == CLOSING:
            self.certify(point, converged=bool(self.gap <= self.job.tol))
            return ()
        if self.close_round(point):
            self.phase = CLOSING
            if self.goes_back():
                self._scores = self.best.scores
                return self._ask_for_norms(self.present(), self.multipliers, last=LAST_AT_KEPT)
            return self._ask_for_norms(point, self.multipliers, last=LAST)
        return self._begin_epoch()

    def _begin_epoch(self) -> Sends:
        assert self._sampler is not None
        self.round += 1
        self.phase = EPOCH
        sends = self._to_all(BEGIN, round=self.round, keep=int(self.best.is_present))
        if not self._synchronous:
            self._awaited[list(self.plan.active)] = True
            return sends
        share = self.options.share_of_rows(self.round)
        self._steps = -(-len(self._sampler.places(self.round, share)) // self.batch_size)
        return [*sends, self._proceed_with(0)]

    def _proceed_with(self, step: int) -> Message:
        self._at_step = step
        self._awaited[:] = True
        dominator = self.terms.active[step % len(self.active)]
        return PROCEED.message(SERVER, dominator, round=self.round, step=step)

    def _take_finished(self, place: int) -> Sends:
        self._awaited[place] = False
        return () if self._awaited.any() else self._sum_scores()

    def _take_applied(self, place: int) -> Sends:
        self._awaited[place] = False
        if self._awaited.any():
            return ()
        if self._at_step + 1 < self._steps:
            return [self._proceed_with(self._at_step + 1)]
        return self._sum_scores()

    def _to_all(self, schema: Schema, **values: Any) -> list[Message]:
        return [schema.message(SERVER, party, **values) for party in self.parties]

    def restored(self) -> None:
        self._sampler = None
        if len(self._norms):
            self._set_norms(self._norms)
