"""Identities of participants: Ed25519 keys that say who has sent something, independent of who carries it.

Every participant has a secret half, which stays with it, and knows the public halves of all others. Between
organisations `evenhand federation provision` or `evenhand identity` makes them; a process that holds all participants
makes new ones for each run.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final

from nacl import bindings
from nacl.exceptions import CryptoError

from evenhand.errors import InputError, ProtocolError

SECRET_BYTES: Final = 32
PUBLIC_BYTES: Final = 32
SIGNATURE_BYTES: Final = 64
_PURPOSE: Final = b"evenhand ident 1"
_GROUPS, _DIGITS = 8, 5


@dataclass(frozen=True, eq=False)
class Identity:
    """One participant's own secret half, and the public halves that it knows.

    Attributes
    ----------
    name
        The participant's name.
    secret
        Its secret half: 32 bytes.
    known
        Public halves by name, of all participants and of the server.
    """

    name: str
    secret: bytes = field(repr=False)
    known: Mapping[str, bytes]

    def __post_init__(self) -> None:
        if len(self.secret) != SECRET_BYTES or any(len(one) != PUBLIC_BYTES for one in self.known.values()):
            raise InputError(f"the identity of {self.name} is damaged: a key must have {SECRET_BYTES} bytes")
        if self.known.get(self.name, self.public) != self.public:
            raise InputError(
                f"the list of identities has another key for {self.name} than its own file; get the list again from "
                "the person who made it, and compare fingerprints"
            )

    @property
    def public(self) -> bytes:
        """The public half."""
        return bytes(bindings.crypto_sign_seed_keypair(self.secret)[0])

    def sign(self, content: bytes) -> bytes:
        """Return the signature of a content: 64 bytes."""
        _, secret = bindings.crypto_sign_seed_keypair(self.secret)
        return bytes(bindings.crypto_sign(content, secret)[:SIGNATURE_BYTES])

    def verify(self, name: str, content: bytes, signature: bytes) -> None:
        """Refuse a content that the named participant has not signed."""
        if name not in self.known:
            raise ProtocolError(
                f"{self.name} knows no identity of {name!r}; add its public key to the list of identities, and compare "
                "fingerprints over the telephone"
            )
        if not is_signed(self.known[name], content, signature):
            raise ProtocolError(
                f"{self.name}: a key in the name of {name} is not signed by {name}'s identity. It was replaced under "
                "way, or belongs to other terms or to another run; it is refused"
            )


# One process that holds many clients verifies the same signatures at each of them.
@lru_cache(4096)
def is_signed(public: bytes, content: bytes, signature: bytes) -> bool:
    """Return whether the owner of a public half has signed a content."""
    try:
        bindings.crypto_sign_open(signature + content, public)
    except (CryptoError, ValueError):
        return False
    return True


def new_identity() -> bytes:
    """Draw the secret half of an identity from the operating system's generator."""
    return bytes(bindings.randombytes(SECRET_BYTES))


def make_identities(names: Iterable[str]) -> dict[str, Identity]:
    """Make identities of participants that know each other."""
    secrets = {name: new_identity() for name in names}
    known = {name: Identity(name, secret, {}).public for name, secret in secrets.items()}
    return {name: Identity(name, secret, known) for name, secret in secrets.items()}


def fingerprint(public: bytes) -> str:
    """Return a short form of a public half to read out over the telephone: eight groups of five digits (132 bits)."""
    number = int.from_bytes(hashlib.blake2b(public, digest_size=32, person=_PURPOSE).digest(), "big")
    digits = f"{number % 10 ** (_GROUPS * _DIGITS):0{_GROUPS * _DIGITS}d}"
    return " ".join(digits[start : start + _DIGITS] for start in range(0, len(digits), _DIGITS))
