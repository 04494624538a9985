"""Server side of Flower: carry packets for each party to its node, and its answers back.

A node is visited when there is a message for its party, one visit at a time. Acknowledgements alone wait for the next
visit. Messages between parties pass through here.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Final

from flwr.app import Message, MessageType
from flwr.serverapp import Grid

from evenhand.errors import ProtocolError, RunError
from evenhand.protocol.roles import SERVER
from evenhand.runtime.flower.records import packets_in, to_records, value_in
from evenhand.runtime.packets import Content, number_in, only_acknowledges
from evenhand.runtime.site import Site

_TRIES: Final = 3
"""Attempts of a visit that Flower reports as failed; the party's state is then that of the last visit."""
_PAUSE: Final = 0.1
"""Seconds between two polls for answers."""


class GridPost:
    """Carry packets between a site at the server and the parties' nodes.

    Parameters
    ----------
    nodes
        Flower's id of each party's node, which is bound to the node's key.
    at_once
        Most nodes that are visited at the same time; 0 is all. Flower restarts the process of a visit that has not
        begun after half a minute, so if many nodes share a machine, fewer at a time are faster.
    most_seconds
        Most seconds of a visit.

    Attributes
    ----------
    visits
        Number of answers of each party.
    words
        Reasons why parties have stopped, if they give any.
    """

    def __init__(self, grid: Grid, nodes: Mapping[str, int], at_once: int = 0, most_seconds: float = 3600.0) -> None:
        self._grid = grid
        self._nodes = nodes
        self._at_once = at_once or len(nodes)
        self._most_seconds = most_seconds
        self._mail: dict[str, list[tuple[str, Content]]] = {name: [] for name in nodes}
        self.visits = dict.fromkeys(nodes, 0)
        self._tries = dict.fromkeys(nodes, 0)
        self._in_flight: dict[str, tuple[str, list[tuple[str, Content]]]] = {}
        """Receiver and packets of each message, by Flower's id of the message."""
        self._news = threading.Condition()
        self._over = False
        self._left: set[str] = set()
        """Parties that the run goes on without."""
        self.words: dict[str, str] = {}

    @contextmanager
    def serves(self, site: Site) -> Iterator[None]:
        """Carry packets to and from a site while this context is active."""
        thread = threading.Thread(target=self._carry, args=(site,), name="visits", daemon=True)
        thread.start()
        try:
            yield
        finally:
            with self._news:
                self._over = True
                self._news.notify_all()
            thread.join()

    def transmit(self, peer: str, content: Content) -> None:
        self._add(peer, SERVER, content)

    def _add(self, receiver: str, sender: str, content: Content) -> None:
        with self._news:
            mail = self._mail[receiver]
            if only_acknowledges(content):
                # The last acknowledgement includes all earlier ones.
                mail[:] = [one for one in mail if one[0] != sender or not only_acknowledges(one[1])]
            mail.append((sender, content))
            self._news.notify_all()

    # -- the thread

    def _carry(self, site: Site) -> None:
        try:
            while True:
                with self._news:
                    if self._over:
                        return
                    ready = self._ready()
                    if not ready:
                        self._news.wait(_PAUSE if self._in_flight else None)
                for name in ready:
                    self._set_out(name)
                if self._in_flight:
                    for reply in self._grid.pull_messages(list(self._in_flight)):
                        self._came_back(site, reply)
        except Exception as error:
            self.words[SERVER] = str(error) or repr(error)

    def _ready(self) -> list[str]:
        busy = {name for name, _ in self._in_flight.values()}
        none = {*busy, *self.words, *self._left}
        waiting = (name for name in self._mail if name not in none)
        ready = [name for name in waiting if not all(only_acknowledges(content) for _, content in self._mail[name])]
        return ready[: self._at_once - len(busy)]

    def _set_out(self, name: str) -> None:
        with self._news:
            mail, self._mail[name] = self._mail[name], []
        message = Message(
            to_records(mail, visit=self.visits[name], name=name),
            dst_node_id=self._nodes[name],
            message_type=MessageType.TRAIN,
            ttl=self._most_seconds,
        )
        # Push messages one by one: several at once may be too large together.
        pushed = list(self._grid.push_messages([message]))
        if not pushed or not pushed[0]:
            raise RunError(f"Flower did not accept a message for {name} of {sum(len(one) for _, one in mail):,} bytes")
        self._in_flight[pushed[0]] = name, mail

    def _came_back(self, site: Site, reply: Message) -> None:
        name, mail = self._in_flight.pop(reply.metadata.reply_to_message_id)
        if reply.has_error():
            self._failed(site, name, mail, f"{reply.error.reason or 'no reason given'} (code {reply.error.code})")
            return
        if reply.metadata.src_node_id != self._nodes[name]:
            raise RunError(f"refused an answer in the name of {name} from a node that is not its own")
        self.visits[name] += 1
        self._tries[name] = 0
        try:
            if word := value_in(reply.content, "word", str):
                self.words[name] = word
            for receiver, content in packets_in(reply.content):
                if receiver == SERVER:
                    site.arrived(name, content)
                elif receiver in self._nodes:
                    self._add(receiver, name, content)
            if name not in self.words:
                site.visited(
                    name, max((number_in(content) for sender, content in mail if sender == SERVER), default=-1)
                )
            if value_in(reply.content, "ended", bool):
                site.gone(name)
        except ProtocolError as error:
            self.words[name] = f"it answered in other words than agreed ({error})"

    def _failed(self, site: Site, name: str, mail: Iterable[tuple[str, Content]], why: str) -> None:
        self._tries[name] += 1
        if self._tries[name] >= _TRIES:
            reason = site.lose(name)
            if reason is None:
                self._left.add(name)
            else:
                said = f"; the run cannot go on without it: {reason}" if reason else ""
                self.words[name] = f"its node failed {_TRIES} times: {why}{said}"
            return
        with self._news:
            self._mail[name][:0] = mail


def registered_nodes(grid: Grid, parties: Iterable[str]) -> dict[str, int]:
    """Return the node of each party: the one with a key registered under the party's name."""
    found: dict[str, list[int]] = {}
    for node in grid.get_nodes():
        if node.name:
            found.setdefault(node.name, []).append(node.node_id)
    missing = [name for name in parties if name not in found]
    if missing:
        raise RunError(
            f"no node is registered under the name of {', '.join(missing)}; register its key with: flwr supernode "
            "register KEY --name NAME, and check that its SuperNode runs"
        )
    twice = [name for name in parties if len(found[name]) > 1]
    if twice:
        raise RunError(f"{len(found[twice[0]])} nodes are registered as {twice[0]}; unregister all but one")
    return {name: found[name][0] for name in parties}
