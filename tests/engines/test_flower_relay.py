"""A dishonest SuperLink, on Flower's simulation: what it does to messages of others is refused with a word."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("flwr", reason="make flower runs these in an environment with Flower")

from engines.test_flower import asked, file_of, simulate
from flwr.app import ConfigRecord, Context, RecordDict
from flwr.app import Message as FlowerMessage
from flwr.serverapp import Grid
from support.federation import servers_copy, write_shops

from evenhand.errors import EvenhandError
from evenhand.jobs.federation.files import site_env
from evenhand.jobs.federation.flower import client_app, server_app
from evenhand.privacy.key_exchange import SEALED
from evenhand.protocol.messages import Message
from evenhand.runtime.packets import packet_bytes, packet_from

pytestmark = [
    pytest.mark.timeout(600),
    # Flower's and Ray's own.
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning", "ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


class Dishonest:
    """A grid that does something to the second sealed packet of shop, on its way there or back."""

    def __init__(self, grid: Grid, what: str) -> None:
        self._grid, self._what = grid, what
        self._shop = 0
        self._kept: list[bytes] = []
        self.done = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._grid, name)

    def push_messages(self, messages: Iterable[FlowerMessage]) -> Any:
        given = list(messages)
        for one in given:
            record = _record(one.content)
            if record is not None and record.get("name") == "shop":
                self._shop = one.metadata.dst_node_id
                self._meddle(record, there=True)
        return self._grid.push_messages(given)

    def pull_messages(self, ids: Iterable[str]) -> list[FlowerMessage]:
        found = list(self._grid.pull_messages(ids))
        for one in found:
            record = None if one.has_error() else _record(one.content)
            if record is not None and one.metadata.src_node_id == self._shop:
                self._meddle(record, there=False)
        return found

    def _meddle(self, record: ConfigRecord, *, there: bool) -> None:
        names, packets = list(record["names"]), [bytes(one) for one in record["packets"]]
        for place, content in enumerate(packets):
            message = packet_from(content).message
            if self.done or message is None or message.kind != SEALED.kind or there != self._what.endswith("there"):
                continue
            self._kept.append(content)
            if len(self._kept) < 2:
                continue
            self.done = True
            if self._what.startswith("dropped"):
                del names[place], packets[place]
                break
            packets[place] = self._other(content)
        record["names"], record["packets"] = names, packets

    def _other(self, content: bytes) -> bytes:
        packet, first = packet_from(content), packet_from(self._kept[0])
        assert packet.message is not None
        assert first.message is not None
        if self._what.startswith("repeated"):
            return bytes(packet_bytes(packet._replace(message=first.message)))
        box = packet.message["box"].copy()
        box[len(box) // 2] ^= 1
        changed = Message(
            packet.message.sender, packet.message.receiver, SEALED.kind, {**packet.message.body, "box": box}
        )
        return bytes(packet_bytes(packet._replace(message=changed)))


def _record(content: RecordDict) -> ConfigRecord | None:
    found = content.get("evenhand")
    return found if isinstance(found, ConfigRecord) and "packets" in found else None


@pytest.mark.parametrize(
    ("what", "said"),
    [
        ("changed there", r"shop: it stopped \(ProtocolError\)"),
        ("repeated there", r"shop: it stopped \(ProtocolError\)"),
        ("dropped there", "shop has not confirmed message"),
        ("changed back", "from shop was changed, replaced or moved"),
        ("dropped back", "has not arrived; somebody between the two has dropped it|has not confirmed message"),
    ],
)
def test_a_superlink_that_meddles_is_refused(what: str, said: str, tmp_path: Path) -> None:
    job = {"solver": "subspace", "protection": "masked", "max_rounds": 3}
    paths = write_shops(tmp_path / "sites", job, ("bank",))
    text, runs = paths["job"].read_text(), tmp_path / "runs"
    copy = servers_copy(paths["bank"])
    server = server_app(text, asked, lambda: site_env(copy, str(runs / "bank")), paths["identity"])
    grids: list[Dishonest] = []

    def serve(grid: Grid, context: Context) -> None:
        grids.append(Dishonest(grid, what))
        server(grids[0], context)  # type: ignore[arg-type]

    with pytest.raises(EvenhandError, match=said):
        simulate(serve, client_app(text, partial(file_of, paths, runs)), 3)
    assert grids[0].done
