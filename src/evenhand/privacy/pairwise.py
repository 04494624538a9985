"""Masks that two agree on and that cancel in the sum: whoever adds everybody's words learns the sum, and nothing else.

Everybody draws an X25519 key and tells all others its public half. Two then have a secret in common that nobody who has
seen both public halves can work out. From it, and from the name of what is being sent, both draw the same stream of
words (ChaCha20, libsodium's deterministic generator); one adds it, the other subtracts it. What everybody sends is
uniform over all 64 bits to whoever lacks the secrets, and in the sum modulo 2⁶⁴ the streams cancel exactly.

A label may be used once: two messages under the same masks give away their difference.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import ClassVar, Final

import numpy as np
from nacl import bindings
from numpy.typing import NDArray

from evenhand.errors import ProtocolError

KEY_BYTES: Final = 32
BLOCK: Final = 1 << 15
"""Words drawn at once: a million would have to be fetched from memory again to be added, three times as slow."""
Words = NDArray[np.uint64]
_PURPOSE: Final = b"evenhand pairs 1"


def new_secret() -> bytes:
    """The secret half of a key, from the operating system's generator."""
    return bytes(bindings.crypto_box_keypair()[1])


def public_half(secret: bytes) -> bytes:
    return bytes(bindings.crypto_scalarmult_base(secret))


def shared_seed(secret: bytes, other: bytes, context: bytes) -> bytes:
    """What two have in common, from one's own secret and the other's public half: the same for both.

    Parameters
    ----------
    context
        What the masks are for, such as the digest of a run's terms: another context has other masks.
    """
    try:
        point = bindings.crypto_scalarmult(secret, other)
    except Exception as error:
        # The library refuses points of small order, which would give everybody the same secret.
        raise ProtocolError("a public key is none; it is refused") from error
    ends = b"".join(sorted([public_half(secret), other]))
    return hashlib.blake2b(point + ends + context, digest_size=KEY_BYTES, person=_PURPOSE).digest()


def stream(seed: bytes, label: str, size: int) -> Words:
    """As many words, uniform to whoever lacks the seed; each label has its own."""
    words = np.zeros(size, dtype=np.uint64)
    _draw(seed, label, words, np.add)
    return words


def _draw(seed: bytes, label: str, onto: Words, put: np.ufunc) -> None:
    """Add a stream of words to others, or subtract it, block by block: each block has a key of its own."""
    head = hashlib.blake2b(label.encode(), digest_size=KEY_BYTES, key=seed, person=_PURPOSE).digest()
    for number, start in enumerate(range(0, len(onto), BLOCK)):
        part = onto[start : start + BLOCK]
        key = hashlib.blake2b(number.to_bytes(8, "little"), digest_size=KEY_BYTES, key=head, person=_PURPOSE).digest()
        drawn = bindings.randombytes_buf_deterministic(8 * len(part), key)
        put(part, np.frombuffer(drawn, dtype="<u8"), out=part)


class PairwiseMasks:
    """One participant's masks, against those of all others.

    Parameters
    ----------
    name
        Whose they are. Of two names the one that sorts first adds, the other subtracts.
    seeds
        By name, what it has in common with each of the others.
    """

    state_fields: ClassVar = {"name": str, "seeds": dict[str, bytes]}

    def __init__(self, name: str, seeds: Mapping[str, bytes]) -> None:
        self.name = name
        self.seeds = dict(seeds)

    @classmethod
    def agreed(cls, name: str, secret: bytes, public: Mapping[str, bytes], context: bytes) -> PairwiseMasks:
        """From everybody's public keys, by name; one's own is passed over."""
        return cls(name, {peer: shared_seed(secret, key, context) for peer, key in public.items() if peer != name})

    def mask(self, label: str, size: int) -> Words:
        """The sum of one's masks: over all participants these add up to zero."""
        total = np.zeros(size, dtype=np.uint64)
        for peer, seed in self.seeds.items():
            _draw(seed, label, total, np.add if self.name < peer else np.subtract)
        return total
