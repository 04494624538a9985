"""Checks of products with a dealer: wrong words of a party or of the dealer are found with probability 1 − 2⁻⁴¹.

A `Sketch` is a secret 0/1 matrix R, (41, n). If some word of e is not zero modulo 2⁶⁴, then Re = 0 with probability at
most 2⁻⁴¹: divide e by the largest power of two that divides all its words; some word is odd then, and a random subset
of the words has an odd sum with probability ½. A random factor would not do: every even one multiplies 2⁶³ to zero.

In one product of scores the party has X, the server has v, and A, b, r, a are random words as in `dealing.py`. The
server holds E = X − A and y, the party's answer is o = X(y + a) + r, and the dealer sends c = Ab − r. The server sees
sums over parties of o and of c.

*The dealer's words*, under a sketch R of parties and server. The party sends T = RA + A₀ once, with A₀ dealt like A.
The dealer's c has 41 more words, A₀b − r₀, and the parties tell the sum of Rr + r₀. The server checks that Tb − Rc is
this sum, with the 41 words on both sides. An error e of the dealer passes only if Re = 0, and it does not know R.

*A party's words*, under a sketch S of dealer and server. The dealer sends G = SA + β once, and the server sends the
party W = SE + γ. Party and dealer know β, server and dealer know γ. Then, with fresh words q of party and dealer,

    So = y(SE + G) + (aW − yβ − q) + (q − aγ + aSA + Sr).

The server knows the first term, the parties tell the sum of the second, and the dealer that of the third. So the answer
is bound to E and to what the party has hidden of its shares, and no party knows S.

A consistent lie, from the first hidden column to the last answer, is another table. No check of products can find it.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from evenhand.privacy.pairwise import Words, stream

CHECKS: Final = 41
"""Rows of a sketch: an error is missed with probability 2⁻⁴¹ at most."""
_BLOCK: Final = 1 << 15
_HALF: Final = np.uint64(32)


class Sketch:
    """A secret 0/1 matrix, (CHECKS, n), that words are multiplied with modulo 2⁶⁴."""

    def __init__(self, seed: bytes, label: str, rows: int) -> None:
        words = stream(seed, f"sketch {label}", CHECKS * -(-rows // 64))
        self._bits = words.view(np.uint8).reshape(CHECKS, -1)
        self.rows = rows

    def __call__(self, words: Words) -> Words:
        """(q, n) words to (q, CHECKS).

        Halves of words are added up as floats, which is exact: a block of 2¹⁵ halves of 32 bits stays below 2⁴⁷.
        """
        total: Words = np.zeros((len(words), CHECKS), dtype=np.uint64)
        for first in range(0, self.rows, _BLOCK):
            bits = np.unpackbits(self._bits[:, first // 8 : (first + _BLOCK) // 8], axis=1)
            part = np.ascontiguousarray(words[:, first : first + _BLOCK], dtype="<u8")
            chosen = bits[:, : part.shape[1]].T.astype(np.float64)
            halves = part.view("<u4").reshape(*part.shape, 2)
            low, high = ((halves[..., half].astype(np.float64) @ chosen).astype(np.uint64) for half in (0, 1))
            total += low + (high << _HALF)
        return total
