"""Send packets over NVIDIA FLARE's cells, on a separate channel.

FLARE's auxiliary messages name their own sender. The origin of a cell message cannot be forged: the server compares it
with the origin that the sender's token was issued to. So only the origin counts here, and it must be a cell of this
job.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

from nvflare.fuel.f3.cellnet.defs import MessageHeaderKey
from nvflare.fuel.f3.message import Message as CellMessage

from evenhand.errors import RunError
from evenhand.protocol.roles import SERVER
from evenhand.runtime.nvflare.guard import shield
from evenhand.runtime.packets import Content

CHANNEL: Final = "evenhand"
_TOPIC: Final = "packet"
_WORD: Final = "word"
_LARGEST_WORD: Final = 2**16
_SIMULATED: Final = "simulate_job"
"""Name of every job in FLARE's simulator; its server has one cell for all."""


class FlareTransport:
    """Transport of one participant in one job.

    Parameters
    ----------
    engine
        FLARE's engine in this process.
    job_id
        FLARE's id of the job; every participant has its own cell in it.
    peers
        All other participants.
    """

    def __init__(self, engine: Any, job_id: str, peers: Sequence[str]) -> None:
        cell = engine.get_cell()
        if cell is None:
            raise RunError("NVIDIA FLARE gave this job no cell to send from; see its log")
        # The core cell sends a packet as one message; streams need another answer for each.
        self._cell = cell.core_cell
        shield(self._cell)
        self.peers = list(peers)
        self._address = {peer: f"{peer}.{job_id}" for peer in peers}
        if job_id == _SIMULATED and SERVER in peers:
            self._address[SERVER] = SERVER
        self._peer = {address: peer for peer, address in self._address.items()}
        self._arrived: Callable[[str, Content], None] | None = None
        self.strangers: list[str] = []
        """Origins outside this job that sent something."""
        self.words: dict[str, bytes] = {}
        """The last word of each peer about the end of the run, outside of links: it arrives when they are over."""
        self._cell.register_request_cb(channel=CHANNEL, topic=_TOPIC, cb=self._take)
        self._cell.register_request_cb(channel=CHANNEL, topic=_WORD, cb=self._take_word)

    def open(self, arrived: Callable[[str, Content], None]) -> None:
        """Deliver packets from now on; earlier packets are dropped, and will be sent again."""
        self._arrived = arrived

    def close(self) -> None:
        self._arrived = None

    def transmit(self, peer: str, content: Content) -> None:
        self._send(_TOPIC, peer, content)

    def say(self, word: bytes, peers: Iterable[str]) -> None:
        """Send peers a last word; it may be lost."""
        for peer in peers:
            self._send(_WORD, peer, word)

    def _send(self, topic: str, peer: str, content: Content) -> None:
        self._cell.fire_and_forget(
            channel=CHANNEL,
            topic=topic,
            targets=self._address[peer],
            message=CellMessage(payload=content),
            optional=True,
        )

    def _take_word(self, request: CellMessage) -> None:
        peer, content = self._peer.get(str(request.get_header(MessageHeaderKey.ORIGIN))), request.payload
        if peer is not None and isinstance(content, (bytes, bytearray, memoryview)) and len(content) <= _LARGEST_WORD:
            self.words[peer] = bytes(content)

    def _take(self, request: CellMessage) -> None:
        origin, content = str(request.get_header(MessageHeaderKey.ORIGIN)), request.payload
        peer = self._peer.get(origin)
        if peer is None:
            self.strangers.append(origin)
        elif self._arrived is not None and isinstance(content, (bytes, bytearray, memoryview)):
            # Not copied here: a large packet is copied once, when its arrays are decoded.
            self._arrived(peer, content)


def peers_of(name: str, parties: Sequence[str]) -> list[str]:
    return [one for one in (SERVER, *parties) if one != name]
