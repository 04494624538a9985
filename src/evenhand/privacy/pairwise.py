"""Pairwise masks that cancel in the sum: the receiver of all masked words learns the sum and nothing else.

Each participant draws an X25519 key and publishes the public half. Two participants then share a secret that no one can
derive from the public halves. From it, and from the label of the message, both draw the same stream of words (ChaCha20,
libsodium's deterministic generator). One adds the stream and the other subtracts it. Each message is uniform over all
64 bits without the secrets, and in the sum modulo 2⁶⁴ the streams cancel exactly.

A label may be used once: two messages under the same masks reveal their difference.
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
"""Words drawn at a time, so that they stay in the processor's cache; a million at a time is three times as slow."""
Words = NDArray[np.uint64]
_PURPOSE: Final = b"evenhand pairs 1"


def new_secret() -> bytes:
    """Draw the secret half of a key from the operating system's generator."""
    return bytes(bindings.crypto_box_keypair()[1])


def public_half(secret: bytes) -> bytes:
    return bytes(bindings.crypto_scalarmult_base(secret))


def shared_seed(secret: bytes, other: bytes, context: bytes) -> bytes:
    """Derive the shared secret of two participants from one's secret half and the other's public half.

    Parameters
    ----------
    context
        What the masks are for, such as the digest of a run's terms: each context has other masks.
    """
    try:
        point = bindings.crypto_scalarmult(secret, other)
    except Exception as error:
        # The library refuses points of small order, which would give everyone the same secret.
        raise ProtocolError("a public key is none; it is refused") from error
    ends = b"".join(sorted([public_half(secret), other]))
    return hashlib.blake2b(point + ends + context, digest_size=KEY_BYTES, person=_PURPOSE).digest()


def stream(seed: bytes, label: str, size: int) -> Words:
    """Return words that are uniform without the seed; each label has its own."""
    words = np.zeros(size, dtype=np.uint64)
    _draw(seed, label, words, np.add)
    return words


def _draw(seed: bytes, label: str, onto: Words, put: np.ufunc) -> None:
    """Add a stream of words to others, or subtract it, block by block; each block has its own key."""
    head = hashlib.blake2b(label.encode(), digest_size=KEY_BYTES, key=seed, person=_PURPOSE).digest()
    for number, start in enumerate(range(0, len(onto), BLOCK)):
        part = onto[start : start + BLOCK]
        key = hashlib.blake2b(number.to_bytes(8, "little"), digest_size=KEY_BYTES, key=head, person=_PURPOSE).digest()
        drawn = bindings.randombytes_buf_deterministic(8 * len(part), key)
        put(part, np.frombuffer(drawn, dtype="<u8"), out=part)


class PairwiseMasks:
    """One participant's masks against all others.

    Parameters
    ----------
    name
        The participant. Of two names, the one that sorts first adds and the other subtracts.
    seeds
        Shared secrets by the name of the other participant.
    """

    state_fields: ClassVar = {"name": str, "seeds": dict[str, bytes]}

    def __init__(self, name: str, seeds: Mapping[str, bytes]) -> None:
        self.name = name
        self.seeds = dict(seeds)

    @classmethod
    def agreed(cls, name: str, secret: bytes, public: Mapping[str, bytes], context: bytes) -> PairwiseMasks:
        """Build the masks from all public keys by name; the participant's own is skipped."""
        return cls(name, {peer: shared_seed(secret, key, context) for peer, key in public.items() if peer != name})

    def mask(self, label: str, size: int) -> Words:
        """Return the sum of a participant's masks; over all participants these sums add up to zero."""
        total = np.zeros(size, dtype=np.uint64)
        for peer, seed in self.seeds.items():
            _draw(seed, label, total, np.add if self.name < peer else np.subtract)
        return total
