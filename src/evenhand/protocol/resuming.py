"""Resume a run: find the newest checkpoint that all participants have.

All participants take a checkpoint at one consistent point of the run (`runtime/consistent_cut.py`). After a restart
each reports which of its checkpoints are complete. The run resumes from the newest one that all have.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from evenhand.errors import ProtocolError
from evenhand.protocol.asking import Answers
from evenhand.protocol.disclosure import PARTICIPANT_TO_SERVER, SERVER_TO_PARTICIPANTS, Direction
from evenhand.protocol.messages import Field, Message, Schema, Vocabulary
from evenhand.protocol.roles import SERVER, Follower, Role, Sends

CHECKPOINT = Schema(
    "checkpoint",
    {"number": Field("i8")},
    direction=Direction("server or participant", "server or participant"),
    reveals="That all participants save their state now, and the number of this checkpoint.",
)
SAVED = Schema(
    "saved",
    {"number": Field("i8")},
    direction=PARTICIPANT_TO_SERVER,
    reveals="That a party has written the checkpoint with this number to its disk.",
)
HAVE = Schema(
    "have",
    {"numbers": Field("i8", (None,))},
    direction=PARTICIPANT_TO_SERVER,
    reveals="The numbers of the party's checkpoints of the run to resume.",
)
RESUME = Schema(
    "resume",
    {"number": Field("i8")},
    direction=SERVER_TO_PARTICIPANTS,
    reveals="The newest checkpoint that all participants have, from which the run resumes; zero is the start.",
)
CHECKPOINTING = Vocabulary(CHECKPOINT, SAVED, title="Between machines: checkpoints")
VOCABULARY = Vocabulary(HAVE, RESUME, title="Between machines: resuming")


class ResumeServer(Role):
    """Find the newest checkpoint that all have.

    Attributes
    ----------
    number
        Number of that checkpoint; zero if there is none.
    """

    vocabulary = VOCABULARY
    state_fields: ClassVar = {"answers": Answers, "number": int}

    def __init__(self, parties: Sequence[str], numbers: Sequence[int]) -> None:
        super().__init__(SERVER, {})
        self.parties = tuple(parties)
        self._own = frozenset(numbers)
        self.answers = Answers()
        self.number = 0

    def handle(self, message: Message) -> Sends:
        if message.kind != HAVE.kind or message.sender not in self.parties or self.done:
            raise ProtocolError(f"the server takes no {message.kind!r} from {message.sender!r} at this point")
        self.answers.add(message)
        if not self.answers.complete([HAVE.kind], self.parties):
            return ()
        told = self.answers.of(HAVE.kind).values()
        common = self._own.intersection(*(map(int, body["numbers"]) for body in told))
        self.number, self.done = max(common, default=0), True
        return [RESUME.message(SERVER, name, number=self.number) for name in self.parties]


class ResumeParty(Follower):
    """Say which checkpoints the participant has, and learn which one to resume from."""

    vocabulary = VOCABULARY
    state_fields: ClassVar = {"number": int}

    def __init__(self, name: str, numbers: Sequence[int]) -> None:
        super().__init__(name, {})
        self._own = tuple(numbers)
        self.number = 0

    def start(self) -> Sends:
        return [HAVE.message(self.name, SERVER, numbers=self._own)]

    def handle(self, message: Message) -> Sends:
        number = message.integer("number") if message.kind == RESUME.kind else -1
        if self.done or (number and number not in self._own):
            raise ProtocolError(f"{self.name} cannot go on from checkpoint {number}; the message was refused")
        self.number, self.done = number, True
        return ()
