"""Sum masked scores along two trees, so that no party sees a single score: VFB² Algorithm 1.

Party ℓ has a partial score x_ℓ = w_Gℓᵀ(x_i)_Gℓ and draws a mask δ_ℓ. Sums of x_ℓ + δ_ℓ travel along T₁ (step 4), and
sums of δ_ℓ along T₂ (step 5). Every party adds the sums of its children to its own value and sends the result to its
parent. The root, which requested the score, subtracts: wᵀx_i = ξ₁ − ξ₂.

**When scores are hidden.** The paper requires "totally different" trees. What must differ is what each *receiver* gets.
A party receives from each child the sum over the child's subtree. With masks uniform modulo 2⁶⁴, it can unmask a sum
over a set of parties if and only if that set is a union of subtrees it receives in T₁ *and* a union of subtrees it
receives in T₂. Leaves count: a leaf below the same parent in both trees sends it x + δ and δ. Hence

- a party other than the root learns nothing if it is a leaf in one of the trees;
- the root learns nothing but the total if it has one child in one of the trees.

`two_trees` meets both. Two parties cannot be protected: see `protects`.

**Limits.** The total counts as public, because the ϑ that the root sends back reveals it. Beyond the total and their
own scores, no party (threat model 1), and no *two* colluding parties, can compute anything about the others, for 3 to
64 parties (tested for each). From five parties on, some groups of three can; `coalition_learns` says what. All this is
about one sum with fresh masks. What successive totals of a changing model reveal is a separate question.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from evenhand.errors import InputError

ROOT = -1
"""The parent of the root."""

# Parents by place (place 0 is the root), for three and four parties. There the general construction fails: with three
# it gives two chains with inner nodes that cover the same set; with four, one pair of parties would learn more than the
# total.
SMALL: dict[int, tuple[tuple[int, ...], tuple[int, ...]]] = {
    1: ((ROOT,), (ROOT,)),
    2: ((ROOT, 0), (ROOT, 0)),
    3: ((ROOT, 0, 1), (ROOT, 0, 0)),
    4: ((ROOT, 0, 1, 2), (ROOT, 3, 0, 0)),
}


@dataclass(frozen=True, eq=False)
class Tree:
    """A tree of partial sums: which party passes its sum to which.

    Attributes
    ----------
    root
        The party that starts the aggregation and ends with the sum.
    parent
        Each party's parent; −1 for the root.
    order
        All parties, children before parents: adding in this order leaves the whole sum at the root.
    """

    root: int
    parent: NDArray[np.int64]
    order: NDArray[np.int64]

    @classmethod
    def from_parents(cls, parent: Iterable[int]) -> Tree:
        """Return the tree with these parents; refuse them unless there is one root that every party reaches."""
        parents = [int(value) for value in parent]
        roots = [party for party, above in enumerate(parents) if above == ROOT]
        if len(roots) != 1 or not all(ROOT <= above < len(parents) for above in parents):
            raise InputError(f"parents {parents} are no tree: exactly one party has parent -1, the others name a party")
        below: list[list[int]] = [[] for _ in parents]
        for party, above in enumerate(parents):
            if above != ROOT:
                below[above].append(party)
        level = list(roots)
        reached: list[int] = []
        while level:
            reached += level
            level = [child for party in level for child in below[party]]
        if len(reached) != len(parents):
            lost = sorted(set(range(len(parents))) - set(reached))
            raise InputError(f"parents {parents} are no tree: {lost} never reach the root {roots[0]}")
        return cls(roots[0], np.array(parents, dtype=np.int64), np.array(reached[::-1], dtype=np.int64))

    @property
    def parties(self) -> int:
        return len(self.parent)

    def children(self, party: int) -> tuple[int, ...]:
        return tuple(int(child) for child in np.flatnonzero(self.parent == party))

    def covered(self, party: int) -> frozenset[int]:
        """Return the parties in the sum that `party` passes on: itself and all below it."""
        return self._subtrees[party]

    @property
    def inner(self) -> tuple[int, ...]:
        """Return the parties that are neither the root nor a leaf."""
        return tuple(k for k in range(self.parties) if k != self.root and len(self.covered(k)) > 1)

    @cached_property
    def depth(self) -> int:
        """Return the number of sequential messages until the root has the sum: the latency."""
        steps = np.zeros(self.parties, dtype=np.int64)
        for party in self.order[::-1][1:]:
            steps[party] = steps[self.parent[party]] + 1
        return int(steps.max())

    @cached_property
    def _subtrees(self) -> list[frozenset[int]]:
        subtrees = [{party} for party in range(self.parties)]
        for party in self.order[:-1]:
            subtrees[self.parent[party]] |= subtrees[party]
        return [frozenset(subtree) for subtree in subtrees]


def protects(parties: int) -> bool:
    """Return whether masks can hide a partial score among this many parties.

    With two parties they cannot: each subtracts its own partial score from the total and has the other's. With three,
    each learns the sum of the other two (the total minus its own), but not the two parts. The root gets both others'
    masks along T₂, but only the sum of their masked scores along T₁; its child in T₁ gets the third party's masked
    score but no mask; the third gets nothing.
    """
    return parties >= 3


def two_trees(parties: int, root: int) -> tuple[Tree, Tree]:
    """Return T₁ and T₂ of VFB² Algorithm 1 for an aggregation that `root` starts.

    The parties after the root, in cyclic order, are divided into two halves. The first half are inner nodes in T₁ and
    leaves in T₂, the second half the opposite, so that no party is inner in both. Inner nodes form a binary heap (in T₁
    below one child of the root, in T₂ below two). Leaves hang below them one each, starting at the last inner node. T₂
    takes the halves in an order for which no two parties together learn anything either. T₁ has depth ⌈log₂ q⌉ and T₂
    is no deeper; with four parties T₁ has depth 3.

    Parameters
    ----------
    parties
        q. With fewer than three the trees exist but hide nothing (`protects`).
    root
        The party that starts the aggregation, from 0.
    """
    if parties < 1 or not 0 <= root < parties:
        raise InputError(f"no trees for {parties} parties with root {root}: the root is a party from 0 to parties - 1")
    first, second = SMALL[parties] if parties in SMALL else _general(parties)
    return _placed(first, root), _placed(second, root)


def coalition_learns(first: Tree, second: Tree, coalition: Iterable[int]) -> tuple[frozenset[int], ...]:
    """Return what colluding parties learn about the others' partial scores.

    The result divides the other parties into blocks. The coalition learns the sum of the partial scores over each block
    and nothing more. One block is unavoidable: the total minus the coalition's own scores. A block of one party is that
    party's partial score.

    The view of a coalition C is linear in (x, δ): 1_S·(x + δ) for each subtree S received in T₁, 1_S·δ for each
    received in T₂, its own x and δ, and 1·x. It determines a·x if and only if a lies in span{1, U₁ ∩ U₂}, with U_j the
    span of the 1_S received in T_j and C's unit vectors. The sets of one tree are nested or disjoint, so U_j is the
    span of *disjoint* pieces. A vector in both spans is constant on every piece of either, and zero on parties that
    appear in only one. So overlapping pieces are merged, and pieces merged with a party that does not appear belong to
    the rest. The rows of two nested families form a totally unimodular matrix; so the same holds modulo 2⁶⁴, and
    uniform masks hide all else perfectly, not just from linear attacks.
    """
    members = frozenset(coalition)
    if first.parties != second.parties or not members <= set(range(first.parties)):
        raise InputError(
            f"coalition {sorted(members)} is not of the {first.parties} and {second.parties} parties of the trees"
        )
    rest = first.parties
    block = list(range(rest + 1))
    for tree in (first, second):
        unheard = set(range(tree.parties))
        for piece in _pieces(tree, members):
            _join(block, piece)
            unheard -= piece
        _join(block, unheard | {rest})
    others = [party for party in range(rest) if party not in members]
    names = dict.fromkeys(block[party] for party in others)
    return tuple(frozenset(party for party in others if block[party] == name) for name in names)


def leaks(first: Tree, second: Tree) -> dict[int, tuple[frozenset[int], ...]]:
    """Return parties that learn more than the total alone (threat model 1), with the blocks of which they learn the
    sums.

    Empty for every pair from `two_trees`; also for two parties, where the total itself reveals the other (`protects`).
    """
    learned = {party: coalition_learns(first, second, (party,)) for party in range(first.parties)}
    return {party: blocks for party, blocks in learned.items() if len(blocks) > 1}


def _general(parties: int) -> tuple[list[int], list[int]]:
    """Return parents by position for five or more parties."""
    half = (parties - 1) // 2
    one, two = list(range(1, half + 1)), list(range(half + 1, parties))
    first = _heap_with_leaves(parties, inner=one, leaves=two, tops=1)
    # Reversed, with the leaves shifted by one: found by search. With most other orders, some pairs of parties can
    # compute
    # a partial sum by subtraction; the tests check every pair.
    second = _heap_with_leaves(parties, inner=two[::-1], leaves=one[-2::-1] + one[-1:], tops=2)
    return first, second


def _heap_with_leaves(parties: int, inner: list[int], leaves: list[int], tops: int) -> list[int]:
    parent = [ROOT] * parties
    for place, node in enumerate(inner):
        parent[node] = 0 if place < tops else inner[(place - tops) // 2]
    for place, node in enumerate(leaves):
        parent[node] = inner[-1 - place % len(inner)]
    return parent


def _placed(parent: Iterable[int], root: int) -> Tree:
    """Return the tree by positions, with position 0 at `root` and the others after it in cyclic order."""
    by_place = list(parent)
    parties = len(by_place)
    moved = [ROOT] * parties
    for place, above in enumerate(by_place):
        if above != ROOT:
            moved[(place + root) % parties] = (above + root) % parties
    return Tree.from_parents(moved)


def _pieces(tree: Tree, members: frozenset[int]) -> list[set[int]]:
    """Return disjoint sets that span what `members` receive in this tree: each subtree less those inside it."""
    heard = {tree.covered(child) for member in members for child in tree.children(member)}
    heard |= {frozenset((member,)) for member in members}
    pieces, taken = [], set[int]()
    # From small to large: remove inner subtrees from outer ones.
    for subtree in sorted(heard, key=len):
        pieces.append(set(subtree - taken))
        taken |= subtree
    return [piece for piece in pieces if piece]


def _join(block: list[int], together: set[int]) -> None:
    names = {block[party] for party in together}
    name = max(names)
    block[:] = [name if old in names else old for old in block]
