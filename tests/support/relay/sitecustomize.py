"""A dishonest NVIDIA FLARE server: Python runs this at the start of every process that has this folder in its path.

What it does to the packets of others is in a file, so that one running server can do different things to different
jobs. `EVENHAND_TEST_RELAY` names the file; without it nothing happens.
"""

import os


def _meddle() -> None:
    from typing import Any

    from nvflare.fuel.f3.cellnet.core_cell import CoreCell
    from nvflare.fuel.f3.cellnet.defs import MessageHeaderKey

    from evenhand.protocol.messages import Message
    from evenhand.runtime.nvflare.flare_transport import CHANNEL, FlareTransport
    from evenhand.runtime.packets import packet_bytes, packet_from

    told = os.environ["EVENHAND_TEST_RELAY"]
    sealed: dict[tuple[str, str], list[Any]] = {}
    transmit, take, forward = FlareTransport.transmit, FlareTransport._take, CoreCell._forward

    def mode() -> str:
        with open(told, encoding="utf-8") as file:
            return file.read().strip()

    def with_box(packet: Any, box: Any, **body: Any) -> bytes:
        message = packet.message
        new = Message(message.sender, message.receiver, message.kind, {**message.body, "box": box, **body})
        return bytes(packet_bytes(packet._replace(message=new)))

    def changed(packet: Any) -> bytes:
        box = packet.message["box"].copy()
        box[len(box) // 2] ^= 1
        return with_box(packet, box)

    def number_of(link: tuple[str, str], packet: Any) -> int:
        """Return which sealed message of its link a packet brings, from 1; 0 if it brings none."""
        if packet.message is None or packet.message.kind != "sealed":
            return 0
        seen = sealed.setdefault(link, [])
        if packet.number not in [one.number for one in seen]:
            seen.append(packet)
        return 1 + [one.number for one in seen].index(packet.number)

    def send(self: Any, peer: str, content: Any) -> None:
        packet = packet_from(content)
        number = number_of(("server", peer), packet)
        if peer == "shop" and number >= 2:
            if mode() == "changed":
                content = changed(packet)
            elif mode() == "repeated":
                content = bytes(packet_bytes(packet._replace(message=sealed["server", peer][0].message)))
            elif mode() == "acknowledged" and number == 2:
                return
        transmit(self, peer, content)

    def receive(self: Any, request: Any) -> None:
        peer = self._peer.get(str(request.get_header(MessageHeaderKey.ORIGIN)))
        if peer in ("shop", "phone"):
            packet = packet_from(request.payload)
            number = number_of((peer, "server"), packet)
            dropped = sealed.get(("server", "shop"), [])[1:2]
            if peer == "shop" and mode() == "acknowledged" and dropped:
                have = max(packet.have, dropped[0].number + 1)
                request.payload = bytes(packet_bytes(packet._replace(have=have)))
            elif peer == "shop" and mode() == "named" and number and sealed.get(("phone", "server")):
                request.payload = with_box(packet, sealed["phone", "server"][-1].message["box"])
        take(self, request)

    def pass_on(self: Any, endpoint: Any, origin: str, destination: str, msg_type: str, message: Any) -> Any:
        if message.get_header(MessageHeaderKey.CHANNEL) == CHANNEL and mode() == "forwarded":
            packet = packet_from(bytes(message.payload))
            if number_of((origin, destination), packet) >= 2:
                message.payload = changed(packet)
        return forward(self, endpoint, origin, destination, msg_type, message)

    FlareTransport.transmit = send
    FlareTransport._take = receive
    CoreCell._forward = pass_on


if os.environ.get("EVENHAND_TEST_RELAY"):
    _meddle()
