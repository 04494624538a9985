"""Messages that add up the clients' answers under masks, so that no single answer is seen."""

from __future__ import annotations

from evenhand.privacy.secret_sums import VOUCHER_BYTES
from evenhand.protocol.disclosure import CLIENT_TO_SERVER, SERVER_TO_CLIENTS, Coverage
from evenhand.protocol.messages import TEXT, Field, Schema, Vocabulary

INTEGER = Field("i8")
PLACES = Field("i8", (None,))
BYTES = Field("u1", (None,))
BOXES = Field("u1", (None, None))
VOUCHERS = Field("u1", (None, VOUCHER_BYTES))

EXCHANGE = Schema(
    "exchange",
    {"exchange": INTEGER, "members": PLACES},
    direction=SERVER_TO_CLIENTS,
    reveals="Which other clients receive the same request, so that masks can be agreed on.",
    most=(3, 2),
)

MASKED = Schema(
    "masked-answer",
    {"exchange": INTEGER, "kinds": TEXT, "alike": PLACES, "free": PLACES, "words": PLACES, "sealed": BOXES},
    direction=CLIENT_TO_SERVER,
    reveals=(
        "The client's answer in fixed point modulo 2⁶⁴, under masks that cancel only in the sum over clients: "
        "uniform words, which reveal nothing by themselves. Also shares of the masks' secrets, encrypted for "
        "other clients. The server learns the sum; the answer's own kind says what that reveals. Sums over changing "
        "sets of clients can be subtracted: clients open a sum only if every combination of all sums so far holds "
        "`least_summed` clients or more, or if noise covers each answer."
    ),
    coverage=Coverage(noise_covers=True),
)

UNMASK = Schema(
    "unmask",
    {"exchange": INTEGER, "present": PLACES, "sealed": BOXES},
    direction=SERVER_TO_CLIENTS,
    reveals=(
        "Which clients have answered, and encrypted shares of the secrets of their masks, for this client to decrypt."
    ),
    most=(3, 2),
)

VOUCHED = Schema(
    "vouched",
    {"exchange": INTEGER, "vouchers": VOUCHERS},
    direction=CLIENT_TO_SERVER,
    reveals="Nothing: codes by which other clients check that they were told the same clients have answered.",
    coverage=Coverage(noise_covers=True),
)

AGREED = Schema(
    "present-agreed",
    {"exchange": INTEGER, "vouchers": VOUCHERS},
    direction=SERVER_TO_CLIENTS,
    reveals=(
        "Nothing: the codes of other clients for this client. Those of clients that have disconnected are zeros. The "
        "client opens its shares only if enough of them are about the set that it was told."
    ),
    most=(3, 2),
)

OPENED = Schema(
    "opened-shares",
    {"exchange": INTEGER, "shares": BYTES},
    direction=CLIENT_TO_SERVER,
    reveals=(
        "Shares of secrets of this exchange: of the own mask of each neighbour that has answered, and of the "
        "masks that it shares with clients that have not. Enough shares remove the masks from the sum, not "
        "from any single answer."
    ),
    coverage=Coverage(noise_covers=True),
)

VOCABULARY = Vocabulary(EXCHANGE, MASKED, UNMASK, VOUCHED, AGREED, OPENED, title="Horizontal: masked sums")
