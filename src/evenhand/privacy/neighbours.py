"""Who masks against whom, and how many of them must stay: SecAgg+ (Bell, Bonawitz, Gascón, Lepoint, Raykova, 2020).

With everybody masking against everybody, work grows with the square of their number. A ring in random order, in which
each masks against the k/2 before and the k/2 after, is enough if, except with a small probability,

- no one's holders of shares hold a majority of those who tell the server what they know (secrecy),
- every one's holders keep a majority that is still there at the end (nothing is lost),
- those who neither tell nor have gone stay connected: no k/2 in a row are among the others.

The number of either among k others is hypergeometric. The least even k that meets all three is taken; where there is
none, everybody masks against everybody, and a majority of all must stay.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Final

import numpy as np

from evenhand.errors import ProtocolError

TELLING: Final = 0.1
"""Share of the participants that may tell the server all they know."""
GONE: Final = 0.1
"""Share of them that may go away during an exchange."""
SECRECY: Final = 40
"""Chances of a breach are below 2⁻⁴⁰, of an exchange that must be given up below 2⁻²⁰."""
LOSS: Final = 20


@cache
def degree(count: int) -> int:
    """How many others each masks against."""
    # Imported here: it takes longer to load than all else that a site needs, and few runs hide among neighbours.
    from scipy.stats import hypergeom

    telling, gone = int(TELLING * count), int(GONE * count)
    for each in range(4, count - 1, 2):
        needed = majority(each + 1)
        # One's own share is with oneself: of the others a breach needs all that are needed, a loss one fewer.
        breach = count * float(hypergeom.sf(needed - 1, count - 1, telling, each))
        loss = count * float(hypergeom.cdf(needed - 2, count - 1, count - 1 - gone, each))
        cut = count * (TELLING + GONE) ** (each // 2)
        if breach <= 2.0**-SECRECY and loss <= 2.0**-LOSS and cut <= 2.0**-SECRECY:
            return each
    return count - 1


def majority(count: int) -> int:
    return count // 2 + 1


def least_of(count: int) -> int:
    """Of how many at least a sum may be learned, where so many were asked."""
    return max(2, majority(count))


@dataclass(frozen=True)
class Company:
    """Those who take part in one exchange.

    Parameters
    ----------
    members
        Their places in the terms, in that order.
    label
        Names the exchange: another one has another ring.
    """

    members: tuple[int, ...]
    label: str

    def __post_init__(self) -> None:
        if len(self.members) < 2 or list(self.members) != sorted(set(self.members)):
            raise ProtocolError(f"{len(self.members)} participants have no sum to hide in; there must be two or more")

    @property
    def threshold(self) -> int:
        """How many of one's holders (its neighbours and itself) must stay, and are needed to learn anything."""
        return majority(degree(len(self.members)) + 1)

    @property
    def least(self) -> int:
        """Of how many at least a sum may be learned."""
        return least_of(len(self.members))

    def neighbours(self, place: int) -> list[int]:
        """Whom this one masks against, in the order of places."""
        ring, each = self._ring(), degree(len(self.members))
        if each == len(self.members) - 1:
            return [other for other in self.members if other != place]
        here = ring.index(place)
        steps = [step for step in range(-(each // 2), each // 2 + 1) if step]
        return sorted(ring[(here + step) % len(ring)] for step in steps)

    def holders(self, place: int) -> list[int]:
        """Who has a share of this one's secrets."""
        return sorted([place, *self.neighbours(place)])

    def _ring(self) -> Sequence[int]:
        return _ring(self.members, self.label)


@cache
def _ring(members: tuple[int, ...], label: str) -> list[int]:
    """In an order that everybody can work out, and that nobody chose."""
    seed = hashlib.blake2b(f"{label} {members}".encode(), digest_size=16).digest()
    order = np.random.Generator(np.random.PCG64(int.from_bytes(seed, "big"))).permutation(len(members))
    return [members[place] for place in order]
