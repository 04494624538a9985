"""What a VFB² party does between epochs: its part in sums over all rows, behind masks (Algorithm 1)."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable

import numpy as np

from evenhand.arrays import Array
from evenhand.errors import DivergenceError, ProtocolError
from evenhand.models.base import PartyModel
from evenhand.privacy.masks import decode, largest
from evenhand.privacy.sum_trees import ROOT
from evenhand.protocol.messages import Message
from evenhand.protocol.roles import Sends, State, Task
from evenhand.vertical.parties import Party
from evenhand.vertical.server import SERVER
from evenhand.vertical.vfb2.aggregation import FULL_SUM, Aggregation, Passed, Sums
from evenhand.vertical.vfb2.batches import fill_masks, mask_values
from evenhand.vertical.vfb2.blocks import Block
from evenhand.vertical.vfb2.interleaver import FRACTION_BITS
from evenhand.vertical.vfb2.messages import CHANCES, FULL_PASS, MASKED_TOTALS, TOTALS, VOCABULARY
from evenhand.vertical.vfb2.sampler import RowSampler
from evenhand.vertical.vfb2.setting import NORM_BITS, OF_NORMS, OF_SCORES, Setting


class FullPassParty(Party):
    """Answers with tasks where there is work to do, masks, adds up, and knows the rows' chances.

    Parameters
    ----------
    place
        The party's place among those of the `setting`.
    """

    vocabulary = VOCABULARY

    def __init__(self, setting: Setting, place: int, block: Block, model: PartyModel) -> None:
        super().__init__(block.name, model, setting.constraints)
        self.sizes = setting.sizes
        self.setting = setting
        self.place = place
        self.others = tuple(name for name in setting.names if name != self.name)
        self._places = {name: number for number, name in enumerate(setting.names)}
        self._block = block
        self._block.sort_rows(setting.order)
        self._weights: Array = np.zeros(0)
        """1 / (n p_i) of each row, in the order in which the block has them."""
        self._masks = setting.mask_state(place)
        self._sums = Aggregation(place, len(setting.names), setting.active)
        self._sampler: RowSampler | None = None
        self._full_pass_waits = False
        self._handlers: dict[str, Callable[[Message], Task | Sends]] = {
            FULL_PASS.kind: self._begin_full_pass,
            CHANCES.kind: self._take_chances,
            MASKED_TOTALS.kind: self._add_to_total,
        }
        self._from_server = {FULL_PASS.kind, CHANCES.kind}

    def check(self, message: Message) -> None:
        """Parties of VFB² also hear each other."""
        if message.kind not in self._handlers:
            raise ProtocolError(f"{self.name} takes no {message.kind!r}; it is refused")
        expected = message.sender == SERVER if message.kind in self._from_server else message.sender in self.others
        if not expected:
            raise ProtocolError(f"{self.name} takes no {message.kind!r} of {message.sender!r}; it is refused")
        self.vocabulary.check(message, self.sizes)

    def handle(self, message: Message) -> Task | Sends:
        return self._handlers[message.kind](message)

    @abstractmethod
    def _turn(self, sends: list[Message], steps: list[int]) -> Task | Sends:
        """What is to be done now, after these messages: what has become possible, and the scoring of these steps."""

    def _begin_full_pass(self, message: Message) -> Task | Sends:
        expected = message.integer("round") == self.round and message.integer("what") == self._what
        if self._full_pass_waits or not expected:
            raise ProtocolError(f"{self.name} is in round {self.round} and cannot take this look; it is refused")
        self._full_pass_waits = True
        return self._turn([], [])

    def _answer_full_pass(self, sends: list[Message]) -> None:
        """The party's part of a sum over all rows."""
        self._full_pass_waits = False
        self.model.weights = self._block.weights.copy()
        values = np.empty(self._block.rows)
        values[self.setting.order] = self._block.squared_norms() if self._what == OF_NORMS else self._block.scores()
        self.effort += len(self._block.data)
        masks = self._next_masks(len(values))
        sums = np.empty_like(masks)
        fits = mask_values(values, 2.0**self._bits, largest(len(self.setting.names), self._bits), masks, sums)
        if self._what == OF_NORMS and not fits:
            raise DivergenceError(f"{self.name}: rows are too large for their norms to be masked; scale the columns")
        self._refuse_divergence(fits)
        for tree, part in enumerate((sums, masks)):
            self._pass_total(tree, self._sums.add(FULL_SUM, 0, tree, self.place, part), sends)

    def _add_to_total(self, message: Message) -> Task | Sends:
        if message.integer("round") != self.round:
            raise ProtocolError(f"{self.name} is in round {self.round} and takes no sum of another; it is refused")
        sends: list[Message] = []
        tree, values = message.integer("tree"), message["sum"].view(np.uint64)
        passed = self._sums.add(FULL_SUM, 0, tree, self._places[message.sender], values)
        self._pass_total(tree, passed, sends)
        return sends

    def _refuse_divergence(self, fits: bool) -> None:
        if not fits:
            raise DivergenceError(
                f"{self.name}: scores grew beyond what can be masked in round {self.round}; the steps are too long. "
                "Scale the columns, or choose a smaller step"
            )

    def _next_masks(self, count: int) -> Sums:
        masks = np.empty(count, dtype=np.uint64)
        fill_masks(self._masks, masks)
        return masks

    @property
    def _what(self) -> int:
        """What the present look is at: norms until chances are known."""
        return OF_NORMS if self._sampler is None else OF_SCORES

    @property
    def _bits(self) -> int:
        return NORM_BITS if self._what == OF_NORMS else FRACTION_BITS

    def _pass_total(self, tree: int, passed: Passed | None, sends: list[Message]) -> None:
        if passed is None:
            return
        if passed.parent != ROOT:
            body = {"round": self.round, "tree": tree, "sum": passed.values.view(np.int64)}
            sends.append(MASKED_TOTALS.message(self.name, self.setting.names[passed.parent], **body))
        else:
            total = decode(passed.values, self._bits)
            sends.append(TOTALS.message(self.name, SERVER, round=self.round, what=self._what, total=total))

    def _take_chances(self, message: Message) -> Sends:
        if self._sampler is not None or message["chances"].min() <= 0.0:
            raise ProtocolError(f"{self.name} cannot take these chances; they are refused")
        self._set_chances(message["chances"])
        return ()

    def _set_chances(self, chances: Array) -> None:
        self._sampler = RowSampler.with_chances(chances, self.setting.options.sampling, self.setting.seed)
        self._block.set_chances(chances[self.setting.order])
        self._weights = self._sampler.weights[self.setting.order]

    def snapshot(self) -> State:
        own: State = {
            "masks": self._masks.view(np.int64).copy(),
            "chances": np.zeros(0) if self._sampler is None else self._sampler.chances.copy(),
            "look_waits": self._full_pass_waits,
        }
        return super().snapshot() | self._sums.snapshot() | own

    def restore(self, state: State) -> None:
        super().restore(state)
        self._sums.restore(state)
        self._masks = np.array(state["masks"]).view(np.uint64)
        self._sampler = None
        if len(state["chances"]):
            self._set_chances(np.array(state["chances"]))
        self._full_pass_waits = bool(state["look_waits"])
