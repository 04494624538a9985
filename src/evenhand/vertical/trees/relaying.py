"""Grow trees of one party inside a coarse partition by another party: some of their interaction, in two rounds.

Every party grows a small tree. Its leaves are the party's *relay leaves*. Each party (the taker) then receives the
relay leaves of one other party (the giver), a different one each time, and grows a tree in each of them. Together they
form trees that cross two parties: first the relay leaves of the giver, then the leaves of the taker.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from evenhand.arrays import Array, Integers
from evenhand.models.across import LEAF, CrossTree
from evenhand.protocol.messages import Message

MAX_RELAY_LEAVES = 4
"""Maximum number of relay leaves of a party: two bits a row."""
RELAYING = 2
"""Value of `across` in derivatives that ask for relay leaves."""


def leaves_inside(leaves: int) -> int:
    """Return the maximum number of leaves in one relay leaf; over all relay leaves a byte numbers them."""
    return max(min(leaves // 2, 256 // MAX_RELAY_LEAVES), 2)


def are_relay_leaves(message: Message) -> bool:
    """Return whether a message contains valid relay leaves."""
    count = message.integer("count")
    return 0 < count <= MAX_RELAY_LEAVES and bool((message["relay_leaves"] < count).all())


class Relay:
    """The relay leaves of all parties, and which party grows inside the relay leaves of which.

    Attributes
    ----------
    relay leaves
        (parties, n): each row's relay leaf.
    counts
        Number of relay leaves of each party.
    shift
        Offset from each taker to its giver in the order of parties.
    """

    state_fields: ClassVar = {"relay_leaves": npt.NDArray[np.uint8], "counts": Integers, "shift": int}

    def __init__(self, relay_leaves: npt.NDArray[np.uint8], counts: Integers, shift: int) -> None:
        self.relay_leaves, self.counts, self.shift = relay_leaves, counts, shift

    @classmethod
    def of(cls, answers: Sequence[Message], turn: int) -> Relay:
        """Build from the relay leaves of all parties; `turn` is the number of relays before."""
        relay_leaves = np.array([answer["relay_leaves"] for answer in answers])
        counts = np.array([answer.integer("count") for answer in answers])
        return cls(relay_leaves, counts, 1 + turn % (len(answers) - 1))

    def giver(self, place: int) -> int:
        return (place + self.shift) % len(self.relay_leaves)

    def told(self, place: int) -> tuple[int, npt.NDArray[np.uint8]]:
        """Return the relay leaves inside which a party grows."""
        giver = self.giver(place)
        return int(self.counts[giver]), self.relay_leaves[giver]

    def fits(self, place: int, message: Message, leaves: int) -> bool:
        """Return whether a taker's message contains valid leaves in its relay leaves."""
        (count, relay_leaves), counts = self.told(place), message["counts"]
        if len(counts) != count or ((counts < 1) | (counts > leaves_inside(leaves))).any():
            return False
        return bool((message["leaves"] < counts[relay_leaves]).all())

    def leaves(self, answers: Sequence[Message]) -> tuple[npt.NDArray[np.uint8], Integers]:
        """Return each row's leaf in each taker's tree, over all relay leaves, and each tree's leaf count.

        The leaves are an array (n, parties).
        """
        found = []
        for place, answer in enumerate(answers):
            first = np.concatenate([[0], np.cumsum(answer["counts"])[:-1]])
            found.append((first[self.told(place)[1]] + answer["leaves"]).astype(np.uint8))
        return np.stack(found, axis=1), np.array([answer["counts"].sum() for answer in answers])

    def tree(self, place: int, counts: Integers, relay_split: int, first_split: int, values: Array) -> CrossTree:
        """Return a taker's tree.

        Parameters
        ----------
        counts
            Number of leaves in each relay leaf.
        relay_split, first_split
            Index of the giver's relay leaves among its splits, and of the first tree in them among the taker's splits.
        values
            Values of all leaves, relay leaf after relay leaf.
        """
        relay_leaves = len(counts)
        nodes, found = [[self.giver(place), relay_split, 1, relay_leaves]], [np.zeros(1)]
        following, split, value = relay_leaves + 1, first_split, 0
        below: list[Array] = []
        for count in counts:
            own = values[value : value + count]
            value += count
            if count == 1:
                nodes.append([LEAF, 0, 0, 0])
                found.append(own)
                continue
            nodes.append([place, split, following, following + count - 1])
            found.append(np.zeros(1))
            below.append(own)
            following, split = following + count, split + 1
        leaves = sum(len(one) for one in below)
        whole = np.array(nodes + [[LEAF, 0, 0, 0]] * leaves, dtype=np.int64)
        return CrossTree(whole, np.concatenate([*found, *below]))
