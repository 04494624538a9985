"""Run roles in real threads: a group of threads and a queue for each role.

VFB² is meant to run like this: parties in parallel, and within a party several threads that update one block without a
lock (VFB² Algorithm 3). A role's state does not allow that, so only its tasks overlap: one thread at a time calls
`begin` and `finish`, messages are begun in the order of arrival, and `Task.run` runs outside any lock.

After a message, a thread asks its role for `work` until another message arrives.

The order of events depends on the machine's scheduler: no two runs are the same, and a run cannot be resumed.
"""

from __future__ import annotations

import contextvars
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from queue import SimpleQueue

from evenhand.errors import EvenhandError, InputError, ProtocolError
from evenhand.protocol.messages import Message
from evenhand.protocol.roles import SERVER, Report, Role, Sends, Task
from evenhand.protocol.transcript import Transcript


class Post:
    """State of one role in the runtime."""

    def __init__(self, role: Role, slowdown: float) -> None:
        self.role = role
        self.slowdown = slowdown
        self.inbox: SimpleQueue[Message | None] = SimpleQueue()
        self.lock = threading.Lock()
        """Held while the role's state changes."""
        self.door = threading.Lock()
        """Held by the thread that waits for the next message, so that messages are begun in order."""

    def take(self, over: threading.Event) -> Message | None:
        """Return the next message with the role's lock held, or None without it at the end."""
        with self.door:
            message = self.inbox.get()
            if message is None or over.is_set():
                self.inbox.put(None)
                return None
            self.lock.acquire()
            return message


class Threads:
    """Run roles to the end, each in its own threads.

    Parameters
    ----------
    roles
        All roles of the run.
    transcript
        Records the messages, with seconds since the start; a new one by default.
    on_report
        Called by the thread that called `run`, with each row of history, with bytes and seconds.
    workers
        k, the number of threads of each party; the server has one.
    slowdown
        Stragglers: a role with factor 1.4 sleeps after each task, for 0.4 times as long as the task took.
    """

    def __init__(
        self,
        roles: Sequence[Role],
        transcript: Transcript | None = None,
        on_report: Callable[[Report], None] | None = None,
        workers: int = 2,
        slowdown: Mapping[str, float] | None = None,
    ) -> None:
        factors = dict(slowdown or {})
        self.posts = {role.name: Post(role, factors.get(role.name, 1.0)) for role in roles}
        if len(self.posts) != len(roles):
            raise ProtocolError("two roles have the same name")
        if workers < 1:
            raise InputError(f"workers is {workers}; every party needs at least one thread")
        for name, factor in factors.items():
            if name not in self.posts or not factor >= 1.0:
                raise InputError(f"slowdown of {name!r} is {factor}; it must be 1 or more, and for a role of the run")
        self.transcript = Transcript() if transcript is None else transcript
        self.on_report = on_report
        self.workers = workers
        self._over = threading.Event()
        self._books = threading.Lock()
        self._in_flight = 0
        self._news: SimpleQueue[Report | BaseException | None] = SimpleQueue()
        """For the thread that called `run`: rows of history, an error, or None at the end."""
        self._began = 0.0

    def run(self) -> None:
        """Start the roles and run until no message is in flight; errors of threads are raised here."""
        self._began = time.perf_counter()
        # The server has one thread, whatever the number of workers.
        threads = [
            threading.Thread(target=contextvars.copy_context().run, args=(self._serve, post), name=name, daemon=True)
            for name, post in self.posts.items()
            for _ in range(1 if name == SERVER else self.workers)
        ]
        try:
            # The start counts as a message in flight, so that the run does not end before all roles have started.
            self._in_flight = 1
            for post in self.posts.values():
                self._send(post, post.role.start())
            for thread in threads:
                thread.start()
            self._count_down()
            self._listen()
        finally:
            self._over.set()
            for post in self.posts.values():
                post.inbox.put(None)
            for thread in threads:
                if thread.ident is not None:
                    thread.join()
        waiting = [name for name, post in self.posts.items() if not post.role.done]
        if waiting:
            raise ProtocolError(f"the run stalled: no message is in flight, but {', '.join(waiting)} wait for messages")

    def _listen(self) -> None:
        while (news := self._news.get()) is not None:
            if isinstance(news, BaseException):
                raise news
            if self.on_report is not None:
                self.on_report(news)

    def _serve(self, post: Post) -> None:
        """Take messages until the end: begin each, run its task, finish it."""
        try:
            while (message := post.take(self._over)) is not None:
                try:
                    outcome = self._sent(post, post.role.begin(message))
                finally:
                    post.lock.release()
                while isinstance(outcome, Task):
                    self._do(post, outcome)
                    with post.lock:
                        outcome = self._sent(post, post.role.finish(outcome))
                self._work(post)
                self._count_down()
        except BaseException as error:
            if isinstance(error, EvenhandError):
                error.args = (str(error) if post.role.name in str(error) else f"{post.role.name}: {error}",)
            error.add_note(f"raised in a thread of {post.role.name}")
            self._news.put(error)

    def _work(self, post: Post) -> None:
        """Do a role's local work while no message has arrived; the last message counts as in flight until then."""
        while post.inbox.empty() and not self._over.is_set():
            with post.lock:
                sends = post.role.work()
                self._send(post, sends)
            if not sends:
                return

    def _do(self, post: Post, task: Task) -> None:
        began = time.perf_counter()
        task.run()
        if post.slowdown > 1.0:
            time.sleep((post.slowdown - 1.0) * (time.perf_counter() - began))

    def _sent(self, post: Post, outcome: Task | Sends) -> Task | Sends:
        """Send messages in the order in which the role's state changed; the caller holds its lock."""
        self._send(post, outcome.sends if isinstance(outcome, Task) else outcome)
        return outcome

    def _send(self, post: Post, sends: Sends) -> None:
        reports = post.role.take_reports()
        name = post.role.name
        for message in sends:
            if message.sender != name or message.receiver not in self.posts:
                raise ProtocolError(
                    f"{name} tried to send {message.kind!r} from {message.sender} to {message.receiver}"
                )
        with self._books:
            seconds = time.perf_counter() - self._began
            bytes_until_now = self.transcript.total_bytes
            self._in_flight += len(sends)
            for message in sends:
                self.transcript.add(seconds, message)
            for traffic in post.role.take_traffic():
                self.transcript.count(seconds, traffic)
        for report in reports:
            self._news.put({**report, "bytes": bytes_until_now, "time": seconds})
        for message in sends:
            self.posts[message.receiver].inbox.put(message)

    def _count_down(self) -> None:
        """Note that a message has been handled and its answers sent; when none is left, the run ends."""
        with self._books:
            self._in_flight -= 1
            if self._in_flight == 0:
                self._news.put(None)
