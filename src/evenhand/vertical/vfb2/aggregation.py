"""One party's part in VFB² Algorithm 1: masking its values, adding its children's sums, and passing the sum on.

A child's sum may arrive before the party itself is asked. Early sums are kept until the rest arrives.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, TypeAlias

import numpy as np

from evenhand.arrays import Array
from evenhand.errors import ProtocolError
from evenhand.privacy.fixed_point import decode, largest
from evenhand.privacy.key_exchange import Session
from evenhand.privacy.masks import secret_masks
from evenhand.privacy.sum_trees import ROOT, two_trees
from evenhand.protocol.messages import Message
from evenhand.protocol.roles import SERVER
from evenhand.vertical.vfb2.blocks import Sums
from evenhand.vertical.vfb2.kernels import FRACTION_BITS, mask_values
from evenhand.vertical.vfb2.messages import MASKED_TOTALS, TOTALS
from evenhand.vertical.vfb2.plan import NORM_BITS, OF_NORMS, VFB2Plan

FULL_SUM = -1
"""Key of the sum over all rows. The key of a batch's sum is its step, from zero."""


class MaskStream:
    """A party's own masks, each used once.

    Within an attempt the stream continues from its saved position. A new attempt has a new session, and new masks.

    Parameters
    ----------
    session
        The party's secrets in this attempt. Masks that two parties have agreed on cancel in the sum over all parties.
        With them no coalition learns more than that sum, wherever its members are in the trees.
    context
        Digest of the terms.
    names
        All parties.
    """

    state_fields: ClassVar = {"_taken": int}

    def __init__(self, session: Session, context: str, names: Sequence[str]) -> None:
        self._secret = np.frombuffer(session.secret(f"vfb2 {context}"), dtype="<u8").astype(np.uint64)
        self._pairs = session.masks(f"vfb2 {context}", names)
        self._taken = 0

    def take(self, count: int) -> Sums:
        self._taken += 1
        return secret_masks(self._secret, self._taken, count)

    def agreed(self, values: Sums, *label: str | int) -> Sums:
        """Return values behind the pairwise masks of this label. Each label is used once."""
        return values + self._pairs.mask(" ".join(map(str, label)), len(values))


Passed: TypeAlias = tuple[int, Sums]
"""The receiver of a finished sum, and the sum. For `ROOT` it is the total."""


class Unfinished:
    """The sums of one key in both trees: the missing contributors, and the sum of those that have arrived."""

    state_fields: ClassVar = {"missing": list[int], "sums": list[Sums | None]}

    __slots__ = ("missing", "sums")

    def __init__(self, missing: list[int], sums: list[Sums | None]) -> None:
        self.missing = missing
        self.sums = sums


class Aggregation:
    """Unfinished sums of one party, for trees rooted at each of the dominators.

    Parameters
    ----------
    place
        Index of the party among all `parties`.
    roots
        Indices of the active parties.
    """

    state_fields: ClassVar = {"_unfinished": dict[int, Unfinished]}

    def __init__(self, place: int, parties: int, roots: tuple[int, ...]) -> None:
        self._place = place
        pairs = [two_trees(parties, root) for root in roots]
        self._parents = [[int(tree.parent[place]) for tree in pair] for pair in pairs]
        # Sets of parties are stored as the bits of an integer.
        self._contributors = [
            [sum(1 << child for child in (place, *tree.children(place))) for tree in pair] for pair in pairs
        ]
        self._unfinished: dict[int, Unfinished] = {}

    def add(self, key: int, dominator: int, tree: int, sender: int, values: Sums) -> Passed | None:
        """Add one sum, a child's or the party's own, and return what to pass on if that completes it."""
        found = self._unfinished.get(key)
        missing = self._contributors[dominator] if found is None else found.missing
        if not 0 <= tree <= 1 or not missing[tree] >> sender & 1:
            raise ProtocolError(f"a sum of party {sender} for step {key}, tree {tree}, is not expected; it is refused")
        if found is None:
            found = self._unfinished[key] = Unfinished(list(missing), [None, None])
            missing = found.missing
        before = found.sums[tree]
        total = found.sums[tree] = values if before is None else before + values
        missing[tree] &= ~(1 << sender)
        if missing[tree]:
            return None
        both = not missing[1 - tree]
        if both:
            del self._unfinished[key]
        parent = self._parents[dominator][tree]
        if parent != ROOT:
            return parent, total
        if not both:
            return None
        masked, masks = found.sums
        assert masked is not None
        assert masks is not None
        return ROOT, masked - masks

    def expects(self, key: int) -> bool:
        """Return whether a sum is in progress."""
        return key in self._unfinished


class FullPass:
    """Masks the party's values of all rows, and passes sums on: of squared norms once, of scores before every round.

    Attributes
    ----------
    waits
        Whether a sum has been requested that the party has not contributed to yet. Updates of the epoch come first.
    """

    state_fields: ClassVar = {"waits": bool}

    def __init__(self, name: str, plan: VFB2Plan, masks: MaskStream, sums: Aggregation) -> None:
        self.waits = False
        self._name = name
        self._plan = plan
        self._masks = masks
        self._sums = sums

    def begin(self, message: Message, round_number: int, what: int) -> None:
        expected = message.integer("round") == round_number and message.integer("what") == what
        if self.waits or not expected:
            raise ProtocolError(f"{self._name} is in round {round_number} and cannot begin this full pass; refused")
        self.waits = True

    def answer(self, values: Array, round_number: int, what: int) -> list[Message] | None:
        """Return messages with the party's masked values, or None if a value is too large to be masked."""
        self.waits = False
        masks = self._masks.take(len(values))
        sums = np.empty_like(masks)
        bits = _fraction_bits(what)
        if not mask_values(values, 2.0**bits, largest(len(self._plan.names), bits), masks, sums):
            return None
        sends: list[Message] = []
        hidden = self._masks.agreed(sums, "total", round_number, what)
        for tree, part in enumerate((hidden, masks)):
            passed = self._sums.add(FULL_SUM, 0, tree, self._plan.names.index(self._name), part)
            sends += self._pass_on(tree, passed, round_number, what)
        return sends

    def add(self, message: Message, round_number: int, what: int) -> list[Message]:
        """Add a child's sum."""
        if message.integer("round") != round_number:
            raise ProtocolError(f"{self._name} is in round {round_number} and takes no sum of another; it is refused")
        tree, sender = message.integer("tree"), self._plan.names.index(message.sender)
        passed = self._sums.add(FULL_SUM, 0, tree, sender, message["sum"].view(np.uint64))
        return self._pass_on(tree, passed, round_number, what)

    def _pass_on(self, tree: int, passed: Passed | None, round_number: int, what: int) -> list[Message]:
        if passed is None:
            return []
        parent, values = passed
        if parent == ROOT:
            total = decode(values, _fraction_bits(what))
            return [TOTALS.message(self._name, SERVER, round=round_number, what=what, total=total)]
        body = {"round": round_number, "tree": tree, "sum": values.view(np.int64)}
        return [MASKED_TOTALS.message(self._name, self._plan.names[parent], **body)]


def _fraction_bits(what: int) -> int:
    return NORM_BITS if what == OF_NORMS else FRACTION_BITS
