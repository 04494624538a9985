"""One participant in its own process: its sequence of roles, its links, and its veto on outgoing messages.

A transport calls `arrived` with bytes and the verified sender, and `transmit` passes it bytes and a receiver. The
transport may lose, delay, duplicate and reorder them. A participant runs a program: a generator that yields one role
after the other and continues when the role is done.
"""

from __future__ import annotations

import contextlib
import ctypes
import math
import threading
import time
from collections.abc import Callable, Collection, Generator, Sequence
from types import TracebackType
from typing import Self, TypeAlias, TypeVar

from evenhand.errors import EvenhandError, LostError, ProtocolError, StoppedError
from evenhand.privacy.key_exchange import KeyParty
from evenhand.protocol.messages import Message
from evenhand.protocol.resuming import CHECKPOINT, SAVED
from evenhand.protocol.roles import SERVER, Report, Role, Sends
from evenhand.protocol.transcript import Transcript
from evenhand.runtime.consistent_cut import CheckpointedRole, ConsistentCut
from evenhand.runtime.endpoint import Endpoint, Veto, no_veto
from evenhand.runtime.links import LinkSettings, Packet
from evenhand.runtime.packets import Content, packet_bytes
from evenhand.runtime.silence import SilenceWatch, TellSilence

Result = TypeVar("Result")
Program: TypeAlias = Generator[Role, None, Result]
Transmit: TypeAlias = Callable[[str, Content], None]
_LAST_WORDS = 5.0
"""Seconds to wait after an error until the messages sent before it are acknowledged."""
_LONGEST_WAIT = 0.5
"""The longest wait in seconds before conditions are checked again."""


class Site:
    """A participant's roles and links. Use it as a context manager: the links are active inside.

    Parameters
    ----------
    name
        Name of the participant.
    peers
        Names of all other participants.
    transmit
        Sends bytes to a peer, or loses them; it may be slow.
    veto
        The participant's own rule on outgoing messages: if it returns a reason, the message is not sent and the run
        ends.
    stopped
        Returns whether the run was stopped from outside.
    most_silence
        Maximum seconds without progress while all participants are connected.
    on_report
        Called with each row of history a role reports, with seconds since the start and the bytes so far.
    on_silence
        Told which peers fall silent, and which are heard from again.
    """

    def __init__(
        self,
        name: str,
        peers: Sequence[str],
        transmit: Transmit,
        *,
        links: LinkSettings | None = None,
        veto: Veto = no_veto,
        stopped: Callable[[], bool] = lambda: False,
        most_silence: float = 3600.0,
        on_report: Callable[[Report], None] | None = None,
        on_silence: TellSilence = lambda peer, seconds: None,
    ) -> None:
        self.name = name
        self._watch = SilenceWatch(on_silence)
        self._transmit = transmit
        self._stopped = stopped
        self._most_silence = most_silence
        self._on_report = on_report
        self._began = time.monotonic()
        self._links = LinkSettings(linger=0.25) if links is None else links
        self._endpoint = Endpoint(name, peers, self._links, self._began, veto)
        self._changing = threading.Lock()
        """Held while the endpoint changes."""
        self._news = threading.Condition(self._changing)
        """For the roles' thread."""
        self._sooner = threading.Condition(self._changing)
        """Wakes the link thread when something is due before its next check."""
        self._looks_at = -math.inf
        self._failure: BaseException | None = None
        self._over = False
        self._gone: set[str] = set()
        self._role: Role | None = None
        """The role at present."""
        self._lost: list[str] = []
        """Peers that are gone for good, and that the role has not been told of."""
        self._without: set[str] = set()
        """Peers that are gone for good."""
        self._checkpointed: CheckpointedRole | None = None
        self._cut: ConsistentCut | None = None
        self._leaving: Sequence[Message] = ()
        self._post = threading.Thread(target=self._carry, name=f"links of {name}", daemon=True)

    @property
    def transcript(self) -> Transcript:
        """Every message sent, and every message received and handled."""
        return self._endpoint.transcript

    @property
    def without(self) -> Collection[str]:
        """Peers that are gone for good, and that the run goes on without."""
        return self._without

    @property
    def refused(self) -> list[str]:
        """The reasons why packets were refused."""
        return self._endpoint.refused

    def __enter__(self) -> Self:
        self._post.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._changing:
            self._over = True
            self._sooner.notify()
        self._post.join()

    # -- called by the transport

    def arrived(self, sender: str, content: Content) -> None:
        """Take bytes from `sender`; invalid ones are refused and change nothing."""
        packet = self._endpoint.opened(sender, content)
        if packet is not None:
            with self._changing:
                if sender in self._without:
                    return
                try:
                    messages = self._endpoint.arrive(time.monotonic(), sender, packet)
                except ProtocolError as error:
                    # A message that was tampered with ends the run.
                    self._failure = self._failure or error
                    self._news.notify()
                    return
                if self._cut is not None:
                    self._cut.arrived(*messages)
                self._mind(sender)
                self._news.notify()

    def visited(self, peer: str, number: int) -> None:
        """Check that a visit has lost nothing; `number` is the last message that it brought to the peer."""
        with self._changing:
            try:
                self._endpoint.check_complete(peer, number)
            except ProtocolError as error:
                self._failure = self._failure or error
                self._news.notify()

    def gone(self, peer: str) -> None:
        """Note that a peer has finished: it needs nothing more, and no longer answers."""
        with self._changing:
            self._gone.add(peer)
            self._news.notify()

    def lose(self, peer: str) -> str | None:
        """Note that a peer is gone for good; return None if the run goes on without it, else why not, if known."""
        with self._changing:
            return self._loses(peer)

    def _loses(self, peer: str) -> str | None:
        """Go on without a peer if the role can; else return why it cannot, if known."""
        if peer in self._without:
            return None
        reason = "" if self._role is None else self._role.reason_to_end(peer)
        if reason is None:
            self._leave(peer)
            self._lost.append(peer)
            self._news.notify()
        return reason

    def _leave(self, peer: str) -> None:
        self._gone.add(peer)
        self._without.add(peer)
        self._endpoint.forget(peer)

    # -- links

    def _carry(self) -> None:
        """Send what is due, until the end; the link thread runs this."""
        try:
            while True:
                self._watch.look(time.monotonic(), self.silences)
                with self._changing:
                    # At the end, send delayed acknowledgements: peers wait for them.
                    lingering = self._links.linger if self._over else 0.0
                    due = self._due(time.monotonic() + lingering)
                    if self._over and not due:
                        return
                    if not due:
                        self._wait_until_due()
                        continue
                self._transmit_all(due)
                del due
        except BaseException as error:
            with self._changing:
                self._failure = error
                self._news.notify()

    def _due(self, now: float) -> list[tuple[str, Packet]]:
        """Return the packets to send now. A peer that is silent for too long ends the run, or it goes on without it."""
        while True:
            try:
                return self._endpoint.due(now, self._gone)
            except LostError as error:
                reasons = {peer: self._loses(peer) for peer in error.missing}
                if not reasons or any(one is not None for one in reasons.values()):
                    said = "; ".join(
                        f"the run cannot go on without {peer}: {one}" for peer, one in reasons.items() if one
                    )
                    raise (LostError(f"{error}; {said}", error.missing) if said else error) from error

    def silences(self) -> dict[str, float]:
        """Return the seconds since each peer was last heard from, without those that have finished."""
        now = time.monotonic()
        with self._changing:
            return {peer: end.silence(now) for peer, end in self._endpoint.ends.items() if peer not in self._gone}

    def resent(self) -> dict[str, int]:
        """Return how often messages were sent again to each peer."""
        with self._changing:
            return {peer: end.outgoing.resent for peer, end in self._endpoint.ends.items()}

    def _transmit_all(self, due: list[tuple[str, Packet]]) -> None:
        for peer, packet in due:
            self._transmit(peer, packet_bytes(packet))

    def _wait_until_due(self) -> None:
        now = time.monotonic()
        ends = (end for peer, end in self._endpoint.ends.items() if peer not in self._gone)
        at = min((end.wakes_at() for end in ends), default=math.inf)
        self._looks_at = min(at, now + _LONGEST_WAIT)
        self._sooner.wait(max(self._looks_at - now, 0.0))
        self._looks_at = -math.inf

    def _mind(self, peer: str) -> None:
        """Wake the link thread if something for this peer is due before its next check.

        Waking it only when needed matters: each time it takes the interpreter lock from the other threads.
        """
        if self._endpoint.ends[peer].wakes_at() < self._looks_at:
            self._sooner.notify()

    # -- roles

    def run(self, program: Program[Result]) -> Result:
        """Run a program to its end, and wait until the peers have all messages."""
        with contextlib.closing(program):
            try:
                # No variable holds a role: its memory is freed when it is done, before the next is made.
                while True:
                    self._drive(next(program))
            except StopIteration as end:
                result: Result = end.value
            except EvenhandError:
                # The last messages tell the peers why.
                with contextlib.suppress(EvenhandError):
                    self._wait_for(self._delivered, _LAST_WORDS)
                raise
        self._wait_for(self._delivered, self._most_silence)
        return result

    def _delivered(self) -> bool:
        return all(end.delivered or peer in self._gone for peer, end in self._endpoint.ends.items())

    def _drive(self, role: Role) -> None:
        give_back()
        with self._changing:
            self._role = role
        checkpointed = self._checkpointed_as(role)
        if checkpointed is None or not checkpointed.begun:
            self._send(role.start())
        else:
            self._send([*role.resumed(), *self._leaving])
            self._leaving = ()
        while not role.done:
            if checkpointed is not None:
                self._mind_checkpoints(checkpointed)
            if self._lost:
                self._tell_lost(role)
                continue
            message, held_up = self._next(role)
            if message is not None:
                self._after(role, role.receive(message))
                # Otherwise a large message would be held until the next arrives.
                del message
            elif held_up:
                self._wait_for(lambda: self._is_called(role) or not self._held_up(), self._most_silence)
            elif not self._works(role):
                self._wait_for(lambda: self._is_called(role), self._most_silence)
        with self._changing:
            self._role = None
            for peer in role.without:
                self._leave(peer)
            if isinstance(role, KeyParty):
                self._endpoint.secure(role.session)
        # A role that is done needs no more checkpoints.
        self._cut = None
        if checkpointed is not None:
            self._checkpointed = None

    def _tell_lost(self, role: Role) -> None:
        """Tell the role of peers that are gone for good."""
        while self._lost:
            peer = self._lost.pop(0)
            if role.reason_to_end(peer) is not None:
                # It was gone when the role before this one had just ended.
                raise LostError(
                    f"{peer} is gone; check that it runs and can be reached, then resume from the last checkpoint",
                    [peer],
                )
            self._after(role, role.lost(peer))

    def _is_called(self, role: Role) -> bool:
        """Return whether there is a message for the role, or one about checkpoints, or a peer is gone for good."""
        if self._lost:
            return True
        checkpointed = self._checkpointed_as(role)
        about_checkpoints = checkpointed is not None and bool(self._endpoint.checkpoint_messages())
        return about_checkpoints or self._endpoint.has_mail(role)

    def _works(self, role: Role) -> bool:
        before = role.effort
        sends = role.work()
        self._after(role, sends)
        return bool(sends) or role.effort != before

    def _next(self, role: Role) -> tuple[Message | None, bool]:
        """Return the next message for a role, and whether peers are so slow that local work should wait."""
        with self._changing:
            message = self._endpoint.take(role)
            if message is None:
                return None, self._held_up()
            self._mind(message.sender)
            return message, False

    def _held_up(self) -> bool:
        return any(end.holds_up for peer, end in self._endpoint.ends.items() if peer not in self._gone)

    def _after(self, role: Role, sends: Sends) -> None:
        checkpointed = self._checkpointed_as(role)
        # Begun before the answer is sent, so that nobody has acted on it.
        if self.name == SERVER and checkpointed is not None and not role.done and self._begins(checkpointed):
            self._begin_checkpoint(checkpointed, sends)
        so_far = self.transcript.total_bytes
        self._send(sends)
        # Values under masks and encryption are kept for audits; there is none here.
        role.take_opened()
        for report in role.take_reports():
            if self._on_report is not None:
                self._on_report({**report, "bytes": so_far, "time": time.monotonic() - self._began})

    def _send(self, sends: Sends) -> None:
        self._endpoint.check_leaving(sends)
        if not sends:
            return
        with self._changing:
            self._endpoint.post(time.monotonic(), sends)
            due = self._due(time.monotonic())
            for message in sends:
                self._mind(message.receiver)
        # Sent from this thread; the link thread sends retries.
        self._transmit_all(due)

    # -- checkpoints

    def keep(
        self,
        checkpointed: CheckpointedRole,
        in_flight: Sequence[Message] = (),
        seconds: float = 0.0,
        leaving: Sequence[Message] = (),
    ) -> None:
        """Take checkpoints of one of the program's roles, at intervals or when other participants start one.

        Parameters
        ----------
        in_flight
            For a restored role: messages that had been sent to it, and that it had not handled.
        seconds
            Seconds that the run had taken by then.
        leaving
            Messages that it had returned, and that had not been sent.
        """
        self._leaving = leaving
        with self._changing:
            self._checkpointed = checkpointed
            self._endpoint.resume_from(in_flight, seconds)
            self._began -= seconds

    def _checkpointed_as(self, role: Role) -> CheckpointedRole | None:
        return self._checkpointed if self._checkpointed is not None and self._checkpointed.role is role else None

    def _begins(self, checkpointed: CheckpointedRole) -> bool:
        with self._changing:
            words = self._endpoint.checkpoint_messages()
        return self._cut is None and checkpointed.calls_for_one(words, time.monotonic())

    def _begin_checkpoint(self, checkpointed: CheckpointedRole, leaving: Sends = ()) -> None:
        """Save the role's state, and announce that to all peers before anything else is sent."""
        state = checkpointed.role.snapshot()
        with self._changing:
            checkpointed.begin(time.monotonic())
            ends, waiting = self._endpoint.ends, self._endpoint.waiting
            self._cut = ConsistentCut(checkpointed.number, state, ends, waiting, leaving)
        checkpointed.store.note()
        number = checkpointed.number
        self._send([CHECKPOINT.message(self.name, peer, number=number) for peer in ends])

    def _mind_checkpoints(self, checkpointed: CheckpointedRole) -> None:
        """Begin a checkpoint if the server has, and write it when all peers have answered."""
        if self.name != SERVER and self._begins(checkpointed):
            self._begin_checkpoint(checkpointed)
        with self._changing:
            for word in self._endpoint.take_checkpoint_messages():
                checkpointed.hear(word)
            complete = self._cut if self._cut is not None and self._cut.complete else None
        if complete is not None:
            self._cut = None
            checkpointed.store.keep(complete)
            if self.name != SERVER:
                self._send([SAVED.message(self.name, SERVER, number=complete.number)])

    def _wait_for(self, happens: Callable[[], bool], at_most: float) -> None:
        waited_since = time.monotonic()
        with self._changing:
            while not happens():
                if self._failure is not None:
                    raise self._failure
                if self._stopped():
                    raise StoppedError("the run was stopped from outside")
                if time.monotonic() - waited_since > at_most:
                    raise LostError(
                        f"{self.name} has waited for {at_most:.0f} seconds; all participants are connected, but the "
                        "run has stalled. Resume from the last checkpoint, or give the run more time"
                    )
                self._news.wait(_LONGEST_WAIT)


def give_back() -> None:
    """Return freed memory to the operating system, if the C library can (glibc).

    It keeps freed arrays of up to 32 MB. Between reading a table and training there are many, and none is used again.
    """
    with contextlib.suppress(AttributeError, OSError, TypeError):
        ctypes.CDLL(None).malloc_trim(0)
