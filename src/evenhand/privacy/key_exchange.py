"""Agree on secrets two by two, with signed keys: one exchange for each attempt at a run.

Every participant, the server included, draws an X25519 key for this attempt. It signs the public half with its identity
(`protocol/identity.py`), together with its name, the terms, the run and the number of the attempt. The server forwards
all keys, and everybody verifies all signatures. A relay or server that replaces, repeats or invents a key is refused.

The result is a `Session`. All masks, shares, triples and sealed messages of the attempt are derived from it:

- `Session.seed(peer, purpose)`: 32 bytes that only these two have;
- `Session.masks(purpose, members)`: pairwise masks that cancel in the sum over the members;
- `Session.secret(purpose)`: 32 bytes that only this participant has;
- `Session.seal` and `Session.open`: messages that only the receiver can read, and only once;
- `Session.code` and `Session.is_code`: codes for the numbers of packets, so that acknowledgements cannot be invented.

A resumed run is a new attempt with a new session, and checkpoints hold no secret of a session: state that comes back
brings no used mask with it. On Flower, a node holds the state of its role between messages of one attempt, secrets
included. An older copy that is put back there repeats masks (`docs/privacy.md`).

The number of the attempt only rises: each participant keeps its own on disk, and refuses a peer's number that it has
already seen.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final

import numpy as np
from nacl import bindings
from nacl.exceptions import CryptoError

from evenhand.errors import ProtocolError
from evenhand.privacy.pairwise import KEY_BYTES, PairwiseMasks, new_secret, public_half, shared_seed
from evenhand.protocol.disclosure import PARTICIPANT_TO_SERVER, SERVER_TO_PARTICIPANTS, Coverage, Direction
from evenhand.protocol.identity import SIGNATURE_BYTES, Identity, make_identities
from evenhand.protocol.messages import Field, Message, Schema, Vocabulary
from evenhand.protocol.roles import SERVER, Role, Sends

PUBLIC_KEY = Schema(
    "public-key",
    {"key": Field("u1", (KEY_BYTES,)), "attempt": Field("i8"), "signature": Field("u1", (SIGNATURE_BYTES,))},
    direction=PARTICIPANT_TO_SERVER,
    reveals=(
        "Nothing about data: the public half of an X25519 key that was drawn for this attempt, how often the run was "
        "attempted, and the sender's signature of both."
    ),
    coverage=Coverage(noise_covers=True),
)
PUBLIC_KEYS = Schema(
    "public-keys",
    {
        "keys": Field("u1", (None, KEY_BYTES)),
        "attempts": Field("i8", (None,)),
        "signatures": Field("u1", (None, SIGNATURE_BYTES)),
    },
    direction=SERVER_TO_PARTICIPANTS,
    reveals=(
        "Nothing about data: everybody's public keys with their signatures, from which each two derive a secret that "
        "the server does not have. A server that sends a key of its own in another's name is refused."
    ),
)
SEALED = Schema(
    "sealed",
    {"number": Field("i8"), "box": Field("u1", (None,))},
    direction=Direction("server or participant", "server or participant"),
    reveals=(
        "To the relay: the length of a message, and its place among those from this sender to this receiver. Its kind "
        "and content are encrypted for the receiver (ChaCha20-Poly1305), who refuses a changed, repeated, moved or "
        "invented one. Between machines every message takes this form once keys are agreed."
    ),
    coverage=Coverage(noise_covers=True),
)
VOCABULARY = Vocabulary(PUBLIC_KEY, PUBLIC_KEYS, title="Before training: agreeing on keys")
SEALING = Vocabulary(SEALED, title="Between machines: sealed messages")
_PURPOSE: Final = b"evenhand keys 1"
CODE_BYTES: Final = 16


def _unrecorded(_: Mapping[str, int]) -> None:
    pass


@dataclass(frozen=True, eq=False)
class Attempt:
    """One participant's attempt at a run.

    Attributes
    ----------
    identity
        The participant's identity.
    run
        Name of the run.
    number
        Number of the attempt. A participant never uses a number twice in a run.
    seen
        Highest attempt of each peer that took part before; a key with this number or a lower one is refused.
    record
        Called with everybody's attempts once they are verified, to keep them for the next attempt.
    """

    identity: Identity
    run: str = ""
    number: int = 1
    seen: Mapping[str, int] = field(default_factory=dict)
    record: Callable[[Mapping[str, int]], None] = _unrecorded


class Session:
    """Secrets of one participant in one attempt; see the module's text for what to derive from it.

    Parameters
    ----------
    name
        The participant.
    secret
        Secret half of its key.
    public
        Everybody's public halves by name.
    agreed
        Checksum of all that was signed. Every secret depends on it, so participants that were shown different keys have
        no secret in common.

    Attributes
    ----------
    tag
        Public number of the session. It marks messages that make sense under its keys only.
    """

    def __init__(self, name: str, secret: bytes, public: Mapping[str, bytes], agreed: bytes) -> None:
        self.name = name
        self.tag = int.from_bytes(hashlib.blake2b(b"tag" + agreed, digest_size=7).digest(), "big")
        self._secret, self._public, self._agreed = secret, dict(public), agreed
        self._bases: dict[str, bytes] = {}

    @property
    def peers(self) -> tuple[str, ...]:
        """Everybody else."""
        return tuple(name for name in self._public if name != self.name)

    def seed(self, peer: str, purpose: str) -> bytes:
        """Return 32 bytes that only this participant and the peer have; each purpose has its own."""
        if peer not in self._public or peer == self.name:
            raise ProtocolError(f"{self.name} has agreed on no key with {peer!r}")
        if peer not in self._bases:
            # Each costs a multiplication on the curve, and most of a thousand clients are no neighbours.
            self._bases[peer] = shared_seed(self._secret, self._public[peer], self._agreed)
        return _derived(self._bases[peer], purpose)

    def secret(self, purpose: str) -> bytes:
        """Return 32 bytes that nobody else has; each purpose has its own."""
        return _derived(self._secret, f"own {purpose}", self._agreed)

    def masks(self, purpose: str, members: Iterable[str]) -> PairwiseMasks:
        """Return this participant's masks against the other members; over all members they add up to zero."""
        return PairwiseMasks(self.name, {peer: self.seed(peer, purpose) for peer in members if peer != self.name})

    def seal(self, receiver: str, number: int, content: bytes) -> bytes:
        """Encrypt what only the receiver can read. Each number is used once in each direction."""
        key = self.seed(receiver, f"from {self.name}")
        bound = self._bound(self.name, receiver, number)
        return bytes(bindings.crypto_aead_chacha20poly1305_ietf_encrypt(content, bound, _nonce(number), key))

    def open(self, sender: str, number: int, box: bytes) -> bytes:
        """Decrypt what the sender has sealed for this participant under this number; refuse everything else."""
        key = self.seed(sender, f"from {sender}")
        bound = self._bound(sender, self.name, number)
        try:
            return bytes(bindings.crypto_aead_chacha20poly1305_ietf_decrypt(box, bound, _nonce(number), key))
        except (CryptoError, ValueError) as error:
            raise ProtocolError(
                f"{self.name}: message {number} from {sender} was changed, replaced or moved to another place under "
                "way; it is refused. Somebody between the two is not honest, or the two are in different attempts"
            ) from error

    def code(self, receiver: str, content: bytes) -> bytes:
        """Return a code for a content that only this participant and the receiver can make."""
        key = self.seed(receiver, f"code from {self.name}")
        return hashlib.blake2b(content, digest_size=CODE_BYTES, key=key, person=_PURPOSE).digest()

    def is_code(self, sender: str, content: bytes, code: bytes) -> bool:
        """Return whether the sender has made this code for the content, towards this participant."""
        key = self.seed(sender, f"code from {sender}")
        return hmac.compare_digest(
            hashlib.blake2b(content, digest_size=CODE_BYTES, key=key, person=_PURPOSE).digest(), code
        )

    def _bound(self, sender: str, receiver: str, number: int) -> bytes:
        """Return what a box is bound to; the checksum covers names, terms, run and attempts."""
        return self._agreed + _joined([sender.encode(), receiver.encode(), str(number).encode()])


class KeyParty(Role):
    """Draw a key, sign it, and verify everybody's.

    Parameters
    ----------
    attempt
        The participant's identity, and which attempt this is.
    members
        Everybody who agrees on keys except the server, in the order of the terms.
    context
        Digest of the terms.

    Attributes
    ----------
    session
        The secrets, once all keys are verified.
    """

    vocabulary = VOCABULARY
    state_fields: ClassVar = {
        "_number": int,
        "_secret": bytes,
        "_keys": list[bytes],
        "_attempts": list[int],
    }

    def __init__(self, attempt: Attempt, members: Sequence[str], context: str) -> None:
        super().__init__(attempt.identity.name, {})
        self.attempt, self.members, self._context = attempt, (SERVER, *members), context
        if len(set(self.members)) != len(self.members) or self.name not in self.members:
            raise ProtocolError(f"{self.name} cannot agree on keys with {', '.join(members)}")
        self._number = attempt.number
        self._secret = new_secret()
        self._keys: list[bytes] = []
        self._attempts: list[int] = []

    @property
    def session(self) -> Session:
        if not self._keys:
            raise ProtocolError(f"{self.name} has not agreed on keys yet")
        return Session(
            self.name,
            self._secret,
            dict(zip(self.members, self._keys, strict=True)),
            _derived(b"", "agreed", *map(self._signed, self.members, self._keys, self._attempts)),
        )

    def _signed(self, name: str, key: bytes, attempt: int) -> bytes:
        """Return what a participant signs."""
        parts = [self.attempt.run, str(attempt), self._context, name, *self.members]
        return _joined([_PURPOSE, key, *(one.encode() for one in parts)])

    def _own(self) -> dict[str, Any]:
        """Return the fields of the participant's own key."""
        key = public_half(self._secret)
        signature = self.attempt.identity.sign(self._signed(self.name, key, self._number))
        return {"key": _array(key), "attempt": self._number, "signature": _array(signature)}

    def start(self) -> Sends:
        return [PUBLIC_KEY.message(self.name, SERVER, **self._own())]

    def handle(self, message: Message) -> Sends:
        fits = message.kind == PUBLIC_KEYS.kind and message.sender == SERVER and not self.done
        if not fits or {len(message[name]) for name in ("keys", "attempts", "signatures")} != {len(self.members)}:
            raise ProtocolError(f"{self.name} takes no {message.kind!r} from {message.sender!r} at this point")
        keys = [one.tobytes() for one in message["keys"]]
        attempts = message["attempts"].tolist()
        for name, key, number, signature in zip(self.members, keys, attempts, message["signatures"], strict=True):
            self._verify(name, key, number, signature.tobytes())
        self._agree(keys, attempts)
        return ()

    def _verify(self, name: str, key: bytes, attempt: int, signature: bytes) -> None:
        if name == self.name:
            if (key, attempt) != (public_half(self._secret), self._number):
                raise ProtocolError(f"{self.name}: the server passes on a key for it that is not its own; refused")
            return
        self.attempt.identity.verify(name, self._signed(name, key, attempt), signature)
        if attempt <= self.attempt.seen.get(name, 0):
            raise ProtocolError(
                f"{self.name}: the key of {name} belongs to attempt {attempt}, which is over; a key is used in one "
                "attempt only, so it is refused"
            )

    def _agree(self, keys: list[bytes], attempts: list[int]) -> None:
        self._keys, self._attempts, self.done = keys, attempts, True
        self.attempt.record(dict(zip(self.members, attempts, strict=True)))


class KeyServer(KeyParty):
    """The server: verifies everybody's key, adds its own, and forwards all of them."""

    state_fields: ClassVar = {"_came": dict[str, Message]}

    def __init__(self, attempt: Attempt, members: Sequence[str], context: str) -> None:
        super().__init__(attempt, members, context)
        self._came: dict[str, Message] = {}

    def start(self) -> Sends:
        return ()

    def handle(self, message: Message) -> Sends:
        sender = message.sender
        if message.kind != PUBLIC_KEY.kind or sender not in self.members[1:] or sender in self._came:
            raise ProtocolError(f"the server takes no {message.kind!r} from {sender!r} at this point")
        self._verify(sender, message["key"].tobytes(), message.integer("attempt"), message["signature"].tobytes())
        self._came[sender] = message
        if len(self._came) < len(self.members) - 1:
            return ()
        told = [self._own(), *(self._came[name].body for name in self.members[1:])]
        self._agree([one["key"].tobytes() for one in told], [int(one["attempt"]) for one in told])
        body = {f"{name}s": np.stack([one[name] for one in told]) for name in PUBLIC_KEY.fields}
        return PUBLIC_KEYS.messages(SERVER, self.members[1:], **body)


def agree_here(members: Sequence[str], context: str) -> dict[str, Session]:
    """Agree on keys among participants of one process, with identities made for this; the server's is included."""
    identities = make_identities([SERVER, *members])
    server = KeyServer(Attempt(identities[SERVER]), members, context)
    parties = {name: KeyParty(Attempt(identities[name]), members, context) for name in members}
    sent = [message for party in parties.values() for key in party.start() for message in server.receive(key)]
    for message in sent:
        parties[message.receiver].receive(message)
    return {SERVER: server.session} | {name: party.session for name, party in parties.items()}


def _derived(key: bytes, label: str, *more: bytes) -> bytes:
    return hashlib.blake2b(_joined([label.encode(), *more]), digest_size=KEY_BYTES, key=key, person=_PURPOSE).digest()


def _joined(parts: Iterable[bytes]) -> bytes:
    """Join parts so that no two lists give the same bytes."""
    return b"".join(len(one).to_bytes(8, "little") + one for one in parts)


def _nonce(number: int) -> bytes:
    return number.to_bytes(bindings.crypto_aead_chacha20poly1305_ietf_NPUBBYTES, "little")


def _array(content: bytes) -> Any:
    return np.frombuffer(content, dtype=np.uint8)
