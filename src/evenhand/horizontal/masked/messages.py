"""Messages that add up the clients' answers under masks, so that no single answer is seen."""

from __future__ import annotations

from evenhand.protocol.disclosure import CLIENT_TO_SERVER, SERVER_TO_CLIENTS, Coverage
from evenhand.protocol.messages import TEXT, Field, Schema, Vocabulary

INTEGER = Field("i8")
PLACES = Field("i8", (None,))
BYTES = Field("u1", (None,))
BOXES = Field("u1", (None, None))

KEY = Schema(
    "masking-key",
    {"key": Field("u1", (32,))},
    direction=CLIENT_TO_SERVER,
    reveals="The client's public key, which reveals nothing.",
    coverage=Coverage(noise_covers=True),
)

KEYS = Schema(
    "masking-keys",
    {"keys": Field("u1", (None, 32))},
    direction=SERVER_TO_CLIENTS,
    reveals="The public keys of all clients, to every client.",
)

EXCHANGE = Schema(
    "exchange",
    {"exchange": INTEGER, "members": PLACES},
    direction=SERVER_TO_CLIENTS,
    reveals="The clients of the exchange, so that they can agree on masks.",
)

MASKED = Schema(
    "masked-answer",
    {"exchange": INTEGER, "kinds": TEXT, "alike": PLACES, "free": PLACES, "words": PLACES, "sealed": BOXES},
    direction=CLIENT_TO_SERVER,
    reveals=(
        "The client's answer in fixed point modulo 2⁶⁴ under masks that cancel only in the sum over clients: uniform "
        "words, which reveal nothing alone, and shares of the masks' secrets, sealed for other clients. The server "
        "learns the sum. The entry of the answer's own kind says what the sum reveals. A sum over few clients, or many "
        "sums over changing clients, can reveal more about single clients."
    ),
    coverage=Coverage(noise_covers=True),
)

UNMASK = Schema(
    "unmask",
    {"exchange": INTEGER, "present": PLACES, "sealed": BOXES},
    direction=SERVER_TO_CLIENTS,
    reveals="The clients with received answers, and sealed shares of their masks' secrets, for this client to open.",
)

OPENED = Schema(
    "opened-shares",
    {"exchange": INTEGER, "shares": BYTES},
    direction=CLIENT_TO_SERVER,
    reveals=(
        "Shares of secrets of this exchange: of each present neighbour's own mask, and of the masks it shares with "
        "clients without an answer. Enough of them remove the masks from the sum, but not from a single answer."
    ),
    coverage=Coverage(noise_covers=True),
)

VOCABULARY = Vocabulary(KEY, KEYS, EXCHANGE, MASKED, UNMASK, OPENED, title="Horizontal: masked sums")
