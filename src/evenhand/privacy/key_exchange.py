"""Exchange keys between parties before a run with masked messages.

Each party draws an X25519 key and sends the public half to the server, which forwards all of them. Each pair then
shares a secret (`pairwise.py`) that neither the server nor any other party has.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Final

import numpy as np

from evenhand.errors import ProtocolError
from evenhand.privacy.pairwise import KEY_BYTES, PairwiseMasks, new_secret, public_half
from evenhand.protocol.disclosure import PARTY_TO_SERVER, SERVER_TO_PARTIES
from evenhand.protocol.messages import Field, Message, Schema, Vocabulary
from evenhand.protocol.roles import SERVER, Role, Sends

KEY: Final = Field("u1", (KEY_BYTES,))
PUBLIC_KEY = Schema(
    "public-key",
    {"key": KEY},
    direction=PARTY_TO_SERVER,
    reveals="Nothing: the public half of an X25519 key that was drawn for this run.",
)
PUBLIC_KEYS = Schema(
    "public-keys",
    {"keys": Field("u1", (None, KEY_BYTES))},
    direction=SERVER_TO_PARTIES,
    reveals=(
        "Nothing: all participants' public keys, from which each two derive a shared secret that the server does not "
        "have. A server that sends its own keys instead can remove all masks: masks protect against a server that "
        "follows the protocol and is curious."
    ),
)
VOCABULARY = Vocabulary(PUBLIC_KEY, PUBLIC_KEYS, title="Before training: agreeing on keys")


class KeyParty(Role):
    """Draws a key, and learns those of the others.

    Parameters
    ----------
    members
        Everybody who agrees on keys, in the order of the terms.
    context
        What tells this run from any other.

    Attributes
    ----------
    masks
        What it has in common with each of the others, once their keys are known.
    """

    vocabulary = VOCABULARY
    state_fields: ClassVar = {"_secret": bytes, "_keys": list[bytes]}

    def __init__(self, name: str, members: Sequence[str], context: bytes) -> None:
        super().__init__(name, {})
        self.members, self._context = tuple(members), context
        self._secret = new_secret()
        self._keys: list[bytes] = []

    @property
    def masks(self) -> PairwiseMasks:
        return PairwiseMasks.agreed(
            self.name, self._secret, dict(zip(self.members, self._keys, strict=True)), self._context
        )

    def start(self) -> Sends:
        return [PUBLIC_KEY.message(self.name, SERVER, key=np.frombuffer(public_half(self._secret), np.uint8))]

    def handle(self, message: Message) -> Sends:
        keys = [key.tobytes() for key in message["keys"]] if message.kind == PUBLIC_KEYS.kind else []
        if message.sender != SERVER or self.done or len(keys) != len(self.members):
            raise ProtocolError(f"{self.name} takes no {message.kind!r} from {message.sender!r} at this point")
        if keys[self.members.index(self.name)] != public_half(self._secret):
            raise ProtocolError(f"{self.name}: the server passes on a key for it that is not its own; refused")
        self._keys, self.done = keys, True
        return ()


class KeyServer(Role):
    """Forward public keys."""

    vocabulary = VOCABULARY
    state_fields: ClassVar = {"_keys": dict[str, bytes]}

    def __init__(self, members: Sequence[str]) -> None:
        super().__init__(SERVER, {})
        self.members = tuple(members)
        self._keys: dict[str, bytes] = {}

    def handle(self, message: Message) -> Sends:
        sender = message.sender
        if message.kind != PUBLIC_KEY.kind or sender not in self.members or sender in self._keys:
            raise ProtocolError(f"the server takes no {message.kind!r} from {sender!r} at this point")
        self._keys[sender] = message["key"].tobytes()
        if len(self._keys) < len(self.members):
            return ()
        self.done = True
        keys = np.frombuffer(b"".join(self._keys[name] for name in self.members), np.uint8).reshape(-1, KEY_BYTES)
        return [PUBLIC_KEYS.message(SERVER, name, keys=keys) for name in self.members]
