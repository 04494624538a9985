"""Choose neighbours for masking: SecAgg+ (Bell, Bonawitz, Gascón, Lepoint, Raykova, 2020).

If all participants mask against all others, work grows with the square of their number. A ring in random order, in
which each masks against the k/2 before and the k/2 after it, is enough if three things hold except with a small
probability:

- colluding participants are not a majority of anyone's share holders (secrecy),
- a majority of everyone's share holders stays until the end (nothing is lost),
- the honest participants that stay are connected: no k/2 in a row collude or drop out.

The number of either among k others is hypergeometric. The least even k that meets all three is taken. If there is none,
all mask against all, and a majority of all must stay.
"""

from __future__ import annotations

import hashlib
import itertools
from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Final

import numpy as np

from evenhand.errors import ProtocolError

TELLING: Final = 0.1
"""Share of the participants that may collude with the server."""
GONE: Final = 0.1
"""Share of the participants that may drop out during an exchange."""
SECRECY: Final = 40
"""A breach has a probability below 2⁻⁴⁰, an exchange that must be abandoned one below 2⁻²⁰."""
LOSS: Final = 20


@cache
def degree(count: int) -> int:
    """Return the number of neighbours of each participant."""
    # Imported here: it takes longer to load than everything else a site needs, and few runs use neighbours.
    from scipy.stats import hypergeom

    telling, gone = int(TELLING * count), int(GONE * count)
    for each in range(4, count - 1, 2):
        needed = majority(each + 1)
        # A participant holds its own share: a breach needs `threshold` of the others, a loss one fewer.
        breach = count * float(hypergeom.sf(needed - 1, count - 1, telling, each))
        loss = count * float(hypergeom.cdf(needed - 2, count - 1, count - 1 - gone, each))
        cut = count * (TELLING + GONE) ** (each // 2)
        if breach <= 2.0**-SECRECY and loss <= 2.0**-LOSS and cut <= 2.0**-SECRECY:
            return each
    return count - 1


def majority(count: int) -> int:
    return count // 2 + 1


def least_of(count: int) -> int:
    """Return the minimum number of members of a sum, out of those asked."""
    return max(2, majority(count))


def ascending(places: Sequence[int]) -> bool:
    """Return whether positions are in order and each is named once."""
    return all(one < other for one, other in itertools.pairwise(places))


def smallest_sum(sums: Iterable[Iterable[Hashable]]) -> int:
    """Return a lower bound on the number of participants in any sum that linear combinations of these sums can give.

    Participants that are in the same sums always have the same coefficient. So a combination holds all of such a class
    or none of it, and the smallest class is the bound.
    """
    signatures: dict[Hashable, list[int]] = {}
    for number, members in enumerate(sums):
        for one in members:
            signatures.setdefault(one, []).append(number)
    classes = Counter(map(tuple, signatures.values()))
    return min(classes.values(), default=0)


@dataclass(frozen=True)
class Company:
    """The participants of one exchange.

    Parameters
    ----------
    members
        Their positions in the terms, in that order.
    label
        Names the exchange: each exchange has its own ring.
    """

    members: tuple[int, ...]
    label: str

    def __post_init__(self) -> None:
        if len(self.members) < 2 or not ascending(self.members):
            raise ProtocolError(
                f"the members {list(self.members)} have no sum to hide in; there must be two or more, each once"
            )

    @property
    def threshold(self) -> int:
        """Return how many share holders must stay; as many are needed to learn a secret."""
        return majority(degree(len(self.members)) + 1)

    @property
    def least(self) -> int:
        """Return the minimum number of members of a sum."""
        return least_of(len(self.members))

    @property
    def quorum(self) -> int:
        """Return how many share holders must vouch for the same set of present members.

        Two sets would each need this many. Honest holders vouch once, so the holders would need more colluders than
        assumed.
        """
        return (degree(len(self.members)) + 1 + int(TELLING * len(self.members))) // 2 + 1

    def neighbours(self, place: int) -> list[int]:
        """Return the neighbours that a member masks against, in the order of positions."""
        ring, each = self._ring(), degree(len(self.members))
        if each == len(self.members) - 1:
            return [other for other in self.members if other != place]
        here = ring.index(place)
        steps = [step for step in range(-(each // 2), each // 2 + 1) if step]
        return sorted(ring[(here + step) % len(ring)] for step in steps)

    def holders(self, place: int) -> list[int]:
        """Return the holders of shares of a member's secrets."""
        return sorted([place, *self.neighbours(place)])

    def _ring(self) -> Sequence[int]:
        return _ring(self.members, self.label)


@cache
def _ring(members: tuple[int, ...], label: str) -> list[int]:
    """Return an order that everyone can compute and that no participant chooses."""
    seed = hashlib.blake2b(f"{label} {members}".encode(), digest_size=16).digest()
    order = np.random.Generator(np.random.PCG64(int.from_bytes(seed, "big"))).permutation(len(members))
    return [members[place] for place in order]
