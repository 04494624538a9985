"""What clients and server say to each other so that answers add up and nobody sees one."""

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
    reveals="The public half of a client's key, which says nothing.",
    coverage=Coverage(noise_covers=True),
)

KEYS = Schema(
    "masking-keys",
    {"keys": Field("u1", (None, 32))},
    direction=SERVER_TO_CLIENTS,
    reveals="Everybody's public halves, to every client.",
)

EXCHANGE = Schema(
    "exchange",
    {"exchange": INTEGER, "members": PLACES},
    direction=SERVER_TO_CLIENTS,
    reveals="Who else is asked the same, so that masks can be agreed on.",
)

MASKED = Schema(
    "masked-answer",
    {"exchange": INTEGER, "kinds": TEXT, "alike": PLACES, "free": PLACES, "words": PLACES, "sealed": BOXES},
    direction=CLIENT_TO_SERVER,
    reveals=(
        "The client's answer in fixed point modulo 2⁶⁴ under masks that cancel in the sum over clients only: uniform "
        "words, which say nothing by themselves, and shares of the masks' secrets, sealed for other clients. The "
        "server learns the sum. What the sum tells it is said of the answer's own kind; of a sum over few clients, or "
        "of many sums over changing ones, that can be more than one would like."
    ),
    coverage=Coverage(noise_covers=True),
)

UNMASK = Schema(
    "unmask",
    {"exchange": INTEGER, "present": PLACES, "sealed": BOXES},
    direction=SERVER_TO_CLIENTS,
    reveals="Whose answers have come, and others' sealed shares of their masks' secrets, for this client to open.",
)

OPENED = Schema(
    "opened-shares",
    {"exchange": INTEGER, "shares": BYTES},
    direction=CLIENT_TO_SERVER,
    reveals=(
        "Shares of secrets of this exchange: of each present neighbour's own mask, and of those it shares with clients "
        "whose answers are missing. Enough of them take the masks off the sum, not off any answer."
    ),
    coverage=Coverage(noise_covers=True),
)

VOCABULARY = Vocabulary(KEY, KEYS, EXCHANGE, MASKED, UNMASK, OPENED, title="Horizontal: masked sums")
