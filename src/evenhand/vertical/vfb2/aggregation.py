"""One party's part in VFB² Algorithm 1: masking its values, adding its children's sums, and passing the sum on.

A child's sum may arrive before the party itself is asked. Early sums are kept until the rest arrives.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, TypeAlias

import numpy as np
from numpy.typing import NDArray

from evenhand.errors import ProtocolError
from evenhand.privacy.key_exchange import Session
from evenhand.privacy.masks import secret_masks
from evenhand.privacy.sum_trees import ROOT, two_trees

Sums = NDArray[np.uint64]
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
