"""The contract between solvers and runtimes.

A role (server, active party, passive party, client) is a state machine without I/O: it takes a message, changes its own
state, and returns messages. A runtime carries messages, keeps time and writes files, so the same role runs in one
process, over a network, or under injected faults.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple, TypeAlias

from evenhand.errors import ProtocolError, RunError
from evenhand.protocol import state
from evenhand.protocol.messages import Message, Vocabulary
from evenhand.protocol.state import State

SERVER = "server"
"""The server's name in every run."""

Sends: TypeAlias = Sequence[Message]
Report: TypeAlias = dict[str, float | int]
"""One row of history: a role's progress in plain numbers."""


class Traffic(NamedTuple):
    """Messages that a role would have sent if it did not do several parties' work: their number and total bytes."""

    sender: str
    receiver: str
    kind: str
    messages: int
    nbytes: int


class Task:
    """Work that a role has begun and that may continue while it takes other messages.

    Attributes
    ----------
    sends
        What the role sends before the work is done.
    """

    sends: Sends = ()

    def run(self) -> None:
        """Do the work. Other tasks of the same role may run at the same time; the role's other state is not touched."""


class Role(ABC):
    """Base of all roles.

    Attributes
    ----------
    name
        Unique among the roles of a run.
    done
        True once the role expects no further message and has no more work.
    effort
        Multiplications so far; the virtual clock turns them into time.
    reports
        Rows of history since the runtime last took them.
    traffic
        Messages that parties would exchange, if this role does their work, since the runtime last took them.
    round_limit
        Communication rounds of the accepted terms, if this role counts what it is asked itself; None counts nothing.
    trainings
        How often the run trains, each time for as many rounds: several times where a rule chooses the cut.
    in_attempts
        Messages by sender and kind that were handled before: in earlier attempts at the run, beyond the checkpoint, and
        in earlier trainings of this one.
    on_round
        Called before the role handles the first message of a round, if it counts. The question after the last round
        counts as a round too, unless all accepted rounds were counted.
    quiet
        Whether rows of history are dropped: those of a training that only finds the cut.
    without
        Participants that have gone for good, where the run goes on without them.
    opened
        Unmasked or decrypted messages that a protection layer passes to the role inside it, since the runtime last took
        them. They were never sent; an audit measures what they reveal.
    """

    vocabulary: Vocabulary
    state_fields: ClassVar[Mapping[str, Any]] = {"done": bool, "effort": float, "_tally": dict[str, int], "_begun": int}
    """Attributes that change during a run, with their types (see `evenhand.protocol.state`). Each class declares its
    own; those of its base classes are included.
    """

    def __init__(self, name: str, sizes: Mapping[str, int]) -> None:
        self.name = name
        self.sizes = sizes
        self.done = False
        self.effort = 0.0
        self.round_limit: int | None = None
        self.trainings = 1
        self.in_attempts: Mapping[str, int] = {}
        self.on_round: Callable[[], None] | None = None
        self.quiet = False
        self._begun = 0
        self.without: tuple[str, ...] = ()
        self._tally: dict[str, int] = {}
        self.reports: list[Report] = []
        self.traffic: list[Traffic] = []
        self.opened: list[Message] = []

    def start(self) -> Sends:
        """Return the first messages."""
        return ()

    @property
    def at_rest(self) -> bool:
        """Whether the server may take a checkpoint now, before it sends what it has just answered.

        Where masks are used, only between two rounds: nobody has sent half of a sum, and nothing is in flight. The
        attempt that resumes from there has new masks.
        """
        return True

    def resumed(self) -> Sends:
        """Return the messages that a restored role sends at the beginning of a new attempt, in place of `start`.

        The attempt has new keys, so whatever was agreed or sent once under the old ones is sent again here. Checkpoints
        of runs with keys lie between two rounds (`at_rest`): no sum is half complete.
        """
        return ()

    def receive(self, message: Message) -> Sends:
        """Take one message and return any number of messages."""
        outcome = self.begin(message)
        if not isinstance(outcome, Task):
            return outcome
        sends: list[Message] = []
        while isinstance(outcome, Task):
            sends += outcome.sends
            outcome.run()
            outcome = self.finish(outcome)
        return [*sends, *outcome]

    def begin(self, message: Message) -> Task | Sends:
        """Start to handle a message, for a runtime of threads.

        One thread at a time calls `begin` and `finish`, in the order of messages. Any thread may run the task between.
        """
        self.check(message)
        self.check_limit(message)
        outcome = self.handle(message)
        self.tally(message)
        return outcome

    def check_limit(self, message: Message) -> None:
        """Refuse a message of a kind that its sender has sent as often as the accepted terms allow.

        The receiver counts by itself: a limit that only the sender keeps is no limit.
        """
        if self.round_limit is None:
            return
        key = f"{message.sender} {message.kind}"
        before, most = self._tally.get(key, 0), self.most_of(message, self.round_limit)
        if (ever := before + self.in_attempts.get(key, 0)) >= (allowed := 2 * most * self.trainings):
            times = "" if self.trainings == 1 else f" in {self.trainings} trainings"
            raise ProtocolError(
                f"{self.name} has handled {message.kind!r} of {message.sender} {ever} times in all attempts at this "
                f"run, and {self.round_limit} rounds{times} allow {allowed}; another is refused. Submit the job as a "
                "new run"
            )
        if before >= most:
            raise ProtocolError(
                f"{message.sender} has sent {self.name} {message.kind!r} {before} times, and {self.round_limit} rounds "
                f"allow {most}; another is refused"
            )
        if self.on_round is not None and self._round_of(message, self.round_limit) > self._begun:
            self.on_round()

    def tally(self, message: Message) -> None:
        """Count a message that was handled."""
        if self.round_limit is not None:
            self._begun = max(self._begun, self._round_of(message, self.round_limit))
            key = f"{message.sender} {message.kind}"
            self._tally[key] = self._tally.get(key, 0) + 1

    def _round_of(self, message: Message, most: int) -> int:
        """Return the round that the next message of this kind and sender belongs to."""
        a_round, _ = self.vocabulary[message.kind].most
        return min(self._tally.get(f"{message.sender} {message.kind}", 0) // max(a_round, 1) + 1, most)

    @property
    def handled(self) -> Mapping[str, int]:
        """Return the number of messages that were handled, by sender and kind, if the role counts."""
        return self._tally

    def most_of(self, message: Message, max_rounds: int) -> int:
        """Return how often a sender may send a kind of message in so many rounds."""
        a_round, besides = self.vocabulary[message.kind].most
        # A message that says whether it is the last takes its place beyond the last round only if it is.
        working = "last" in message.body and not message.integer("last")
        return a_round * max_rounds + (0 if working else besides)

    def finish(self, task: Task) -> Task | Sends:
        """Take the result of a task; there may be another task to follow."""
        return ()

    def check(self, message: Message) -> None:
        """Refuse what the schema does not allow, before it touches the state."""
        self.vocabulary.check(message, self.sizes)

    @abstractmethod
    def handle(self, message: Message) -> Task | Sends:
        """Handle a message that has passed the check; threads may run a returned task concurrently."""

    def work(self) -> Sends:
        """Do local work while the inbox is empty; return nothing, without effort, if there is none."""
        return ()

    def reason_to_end(self, name: str) -> str | None:
        """Return why the role cannot go on if a participant is gone; empty if it never can, None if it can."""
        return ""

    def lost(self, name: str) -> Sends:
        """Handle the loss of a participant: continue without it, or raise an error."""
        raise RunError(f"{name} is gone, and {self.name} cannot go on without it; see whether it runs, then resume")

    def take_reports(self) -> list[Report]:
        taken, self.reports = self.reports, []
        return [] if self.quiet else taken

    def take_traffic(self) -> list[Traffic]:
        taken, self.traffic = self.traffic, []
        return taken

    def take_opened(self) -> list[Message]:
        taken, self.opened = self.opened, []
        return taken

    def snapshot(self) -> State:
        """Return everything that changes during a run. Data given to the constructor is not included."""
        return state.snapshot(self)

    def restore(self, saved: State) -> None:
        """Set the state to what `snapshot` returned for a role that was made in the same way."""
        state.restore(self, saved)


class Follower(Role):
    """A role that accepts messages from the server only."""

    def check(self, message: Message) -> None:
        if message.sender != SERVER:
            raise ProtocolError(f"{self.name} takes messages of the server only, not of {message.sender!r}")
        super().check(message)
