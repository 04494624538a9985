"""Shamir's secret sharing (1979): enough holders recover the secret, fewer learn nothing.

A secret of 32 bytes is the value at zero of a polynomial modulo the first prime above 2²⁵⁶; a share is its value
elsewhere. With a threshold of t, any t shares determine the polynomial, and t − 1 leave every secret equally likely.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from typing import Final

from evenhand.errors import InputError, ProtocolError

PRIME: Final = 2**256 + 297
SECRET_BYTES: Final = 32
SHARE_BYTES: Final = 33
_PURPOSE: Final = b"evenhand shares"


def deal(secret: bytes, places: Iterable[int], threshold: int, randomness: bytes) -> dict[int, bytes]:
    """Return a share for each holder.

    Parameters
    ----------
    places
        Positive integers, one for each holder.
    randomness
        32 secret bytes, used for nothing else. The same bytes give the same shares again, so that a resumed participant
        reveals nothing new.
    """
    holders = list(places)
    if len(secret) != SECRET_BYTES or not 1 <= threshold <= len(set(holders)) == len(holders) or min(holders) < 1:
        raise InputError(f"no shares of {len(secret)} bytes among {holders} with a threshold of {threshold}")
    coefficients = [int.from_bytes(secret, "big")]
    coefficients += [_coefficient(randomness, power) for power in range(1, threshold)]
    return {place: _value(coefficients, place).to_bytes(SHARE_BYTES, "big") for place in holders}


def join(shares: Mapping[int, bytes]) -> bytes:
    """Recover the secret from at least `threshold` shares; fewer give a wrong secret without notice."""
    if not shares:
        raise ProtocolError("there is no share to put a secret together from")
    values = {place: int.from_bytes(share, "big") for place, share in shares.items()}
    if any(not 0 <= value < PRIME for value in values.values()):
        raise ProtocolError("a share is out of range; it is refused")
    total = 0
    for place, value in values.items():
        above = below = 1
        for other in values:
            if other != place:
                above = above * other % PRIME
                below = below * (other - place) % PRIME
        total = (total + value * above * pow(below, -1, PRIME)) % PRIME
    if total >= 2**256:
        raise ProtocolError("the shares do not fit together")
    return total.to_bytes(SECRET_BYTES, "big")


def _coefficient(randomness: bytes, power: int) -> int:
    drawn = hashlib.blake2b(power.to_bytes(4, "big"), key=randomness, person=_PURPOSE, digest_size=64).digest()
    # Twice as long as the prime, so that the remainder is uniform to 2⁻²⁵⁵.
    return int.from_bytes(drawn, "big") % PRIME


def _value(coefficients: list[int], place: int) -> int:
    value = 0
    for coefficient in reversed(coefficients):
        value = (value * place + coefficient) % PRIME
    return value
