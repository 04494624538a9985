"""Messages by which a run goes on without a participant that is gone.

The server ends the training, waits until all others have ended it too, and says who is gone. Links keep the order of
messages, so none of the training that has ended reaches the next one.
"""

from __future__ import annotations

from typing import Final

from evenhand.protocol.disclosure import PARTICIPANT_TO_SERVER, SERVER_TO_PARTICIPANTS
from evenhand.protocol.messages import Field, Schema, Vocabulary

_MOST: Final = 8
"""How often a training may be told: a role itself takes each message once. The limit over all attempts is a multiple
of this one, and a resumed run may lose a party again. These messages ask for no answer about data."""

PAUSE = Schema(
    "pause",
    {"round": Field("i8")},
    direction=SERVER_TO_PARTICIPANTS,
    reveals="That a party is gone, and in which round of the training, which ends here.",
    most=(0, _MOST),
)
PAUSED = Schema(
    "paused",
    {"round": Field("i8")},
    direction=PARTICIPANT_TO_SERVER,
    reveals="That the party has ended the training; the messages that it had sent before are dropped.",
)
GO_ON = Schema(
    "go-on",
    {"parties": Field("i8", (None,)), "round": Field("i8")},
    direction=SERVER_TO_PARTICIPANTS,
    reveals=(
        "Which parties are gone, by their numbers in the terms, and the round. The others train a model without "
        "them: behind masks, the sums before and after differ by what these parties had added, so the server can read "
        "their scores of that round. Nobody is named where the training is complete."
    ),
    most=(0, _MOST),
)
VOCABULARY = Vocabulary(PAUSE, PAUSED, GO_ON, title="During training: a party is gone")
