"""A relay between participants that replaces, changes, repeats, moves, drops or invents messages is refused.

The relay is the network of the sites: it carries every packet and can do what it likes with it. It also has everything
that a server has, so these tests cover a server that passes on what parties send each other.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.clinics import write_clinics
from support.federation import LINKS, Network, run_sites, write_shops

from evenhand.errors import LostError, ProtocolError
from evenhand.jobs.federation.dispatch import party_part, server_part
from evenhand.jobs.federation.files import read_federation_job, site_env
from evenhand.privacy.key_exchange import PUBLIC_KEY, PUBLIC_KEYS, SEALED, Attempt, KeyParty, KeyServer
from evenhand.privacy.pairwise import new_secret, public_half
from evenhand.protocol.identity import make_identities
from evenhand.protocol.messages import Message
from evenhand.protocol.roles import SERVER, Sends
from evenhand.runtime.inprocess import InProcess
from evenhand.runtime.links import Packet
from evenhand.runtime.packets import packet_bytes, packet_from
from evenhand.runtime.threads import Threads
from evenhand.training.run import one_blas_thread

JOBS: dict[str, dict[str, Any]] = {
    "masked": {"solver": "subspace", "protection": "masked", "max_rounds": 2},
    "dealer": {"solver": "subspace", "protection": "dealer", "max_rounds": 2, "allow_experimental": True},
    "vfb2": {"solver": "vfb2-svrg", "max_rounds": 3, "tol": 0.0, "options": {"batch_size": 32}},
    "private ids": {"solver": "fairvfl", "ids": "private", "max_rounds": 2},
    "clients": {"solver": "sqp", "protection": "masked", "max_rounds": 2},
}
Relay = Callable[[str, str, Packet], Packet | None]


def run(folder: Path, name: str, relay: Relay, links: Any = LINKS) -> dict[str, Any]:
    """Everybody's end, with a relay that is shown every packet."""
    paths = (write_clinics if name == "clients" else write_shops)(folder, JOBS[name])
    job = read_federation_job(paths["job"])

    def meddle(sender: str, to: str, content: bytes) -> bytes:
        packet = relay(sender, to, packet_from(content))
        return b"" if packet is None else bytes(packet_bytes(packet))

    def server(site: Any) -> Any:
        return server_part(job, lambda: site_env(paths["bank"]), lambda: site.transcript, identity=paths["identity"])

    def other(party: str) -> Any:
        return lambda _: party_part(job, site_env(paths[party]), None)

    with one_blas_thread():
        programs = {SERVER: server, **{party: other(party) for party in job.parts}}
        return run_sites(programs, Network(meddle=meddle), links=links)


def changed(packet: Packet, **body: Any) -> Packet:
    message = packet.message
    assert message is not None
    return packet._replace(message=Message(message.sender, message.receiver, message.kind, {**message.body, **body}))


class Swapping:
    """Replaces one participant's key by the relay's own, as the first attack on the dealer did."""

    def __init__(self, victim: str, other: str) -> None:
        self.victim, self.other = victim, other
        self.key = np.frombuffer(public_half(new_secret()), np.uint8)
        self.done = False

    def __call__(self, sender: str, to: str, packet: Packet) -> Packet:
        if packet.message is None or packet.message.kind != PUBLIC_KEYS.kind or to != self.victim:
            return packet
        self.done = True
        keys = packet.message["keys"].copy()
        keys[self.place(len(keys))] = self.key
        return changed(packet, keys=keys)

    def place(self, count: int) -> int:
        return {"server": 0, "last": count - 1}[self.other]


@pytest.mark.parametrize(
    ("name", "victim", "other"),
    [
        ("masked", "shop", "last"),
        ("dealer", "shop", "last"),
        ("dealer", "shop", "server"),
        ("vfb2", "bank", "last"),
        ("private ids", "shop", "last"),
        ("clients", "north", "last"),
    ],
)
def test_a_swapped_key_is_refused_by_the_party_that_would_have_used_it(
    name: str, victim: str, other: str, tmp_path: Path
) -> None:
    relay = Swapping(victim, other)
    ends = run(tmp_path, name, relay)
    assert relay.done
    assert isinstance(ends[victim], ProtocolError), ends
    assert "is not signed by" in str(ends[victim])
    assert all(isinstance(end, Exception) for end in ends.values())


@pytest.mark.parametrize("name", ["masked", "clients"])
def test_a_key_that_is_swapped_on_its_way_to_the_server_is_refused_there(name: str, tmp_path: Path) -> None:
    key = np.frombuffer(public_half(new_secret()), np.uint8)

    def relay(_sender: str, _to: str, packet: Packet) -> Packet:
        named = packet.message is not None and packet.message.kind == PUBLIC_KEY.kind
        return changed(packet, key=key) if named else packet

    ends = run(tmp_path, name, relay)
    assert isinstance(ends[SERVER], ProtocolError)
    assert "is not signed by" in str(ends[SERVER])


@pytest.mark.parametrize("name", sorted(JOBS))
def test_the_relay_sees_ciphertext_only_once_keys_are_agreed(name: str, tmp_path: Path) -> None:
    kinds: dict[tuple[str, str], list[str]] = {}

    def relay(sender: str, to: str, packet: Packet) -> Packet:
        if packet.message is not None:
            kinds.setdefault((sender, to), []).append(packet.message.kind)
        return packet

    ends = run(tmp_path, name, relay)
    assert not any(isinstance(end, Exception) for end in ends.values()), ends
    for (sender, to), seen in kinds.items():
        if SERVER in (sender, to):
            last = PUBLIC_KEYS.kind if sender == SERVER else PUBLIC_KEY.kind
            assert set(seen[seen.index(last) + 1 :]) <= {last, SEALED.kind}
        else:
            assert set(seen) == {SEALED.kind}
    assert sum(kind == SEALED.kind for seen in kinds.values() for kind in seen) > 10


class OnSealed:
    """Does something to the third sealed message between two participants."""

    def __init__(self, sender: str, to: str, what: str) -> None:
        self.link, self.what = (sender, to), what
        self.seen: dict[int, Packet] = {}

    def __call__(self, sender: str, to: str, packet: Packet) -> Packet | None:
        message = packet.message
        if (sender, to) != self.link or message is None or message.kind != SEALED.kind:
            return packet
        self.seen[packet.number] = packet
        if len(self.seen) < 3:
            return packet
        first, second = (self.seen[number] for number in sorted(self.seen)[:2])
        box = message["box"]
        if self.what == "changed":
            return changed(packet, box=np.where(np.arange(len(box)) == len(box) // 2, box ^ 1, box))
        if self.what == "repeated":
            assert first.message is not None
            return packet._replace(message=first.message)
        if self.what == "moved":
            assert second.message is not None
            return changed(packet, box=second.message["box"])
        if self.what == "invented":
            return packet._replace(message=Message(sender, to, "direction", {"words": np.zeros(3)}))
        raise AssertionError


LINES = [
    ("masked", ("shop", SERVER)),
    ("masked", (SERVER, "shop")),
    ("vfb2", ("bank", "shop")),
    ("clients", ("north", SERVER)),
]


@pytest.mark.parametrize(
    ("name", "link", "what"),
    [(*line, what) for line in LINES for what in ("changed", "repeated", "moved", "invented")],
)
def test_a_message_that_was_tampered_with_is_refused_by_its_receiver(
    name: str, link: tuple[str, str], what: str, tmp_path: Path
) -> None:
    ends = run(tmp_path, name, OnSealed(*link, what))
    refused = ends[link[1]]
    assert isinstance(refused, ProtocolError), ends
    said = {"invented": "came unsealed after keys were agreed", "repeated": "in the place of message"}
    assert said.get(what, "somebody between the two" if what == "dropped" else "Somebody between the two") in str(
        refused
    )
    assert link[0] in str(refused)


def dropping(link: tuple[str, str], acknowledges: bool) -> Relay:
    """Drop the first sealed message of a link, whenever it comes; answer in the receiver's name that it has arrived."""
    dropped: list[int] = []

    def relay(sender: str, to: str, packet: Packet) -> Packet | None:
        sealed = packet.message is not None and packet.message.kind == SEALED.kind
        if (sender, to) == link and sealed:
            dropped[:] = dropped or [packet.number]
            return None if packet.number == dropped[0] else packet
        forged = acknowledges and (to, sender) == link and dropped
        return packet._replace(have=max(packet.have, dropped[0] + 1)) if forged else packet

    return relay


@pytest.mark.parametrize(("name", "link"), LINES)
def test_a_message_that_is_dropped_and_acknowledged_ends_the_run(
    name: str, link: tuple[str, str], tmp_path: Path
) -> None:
    ends = run(tmp_path, name, dropping(link, acknowledges=True))
    assert isinstance(ends[link[0]], ProtocolError), ends
    assert f"a packet in the name of {link[1]} says what {link[1]} has not said" in str(ends[link[0]])


def test_a_message_that_is_dropped_again_and_again_is_missed_by_its_receiver(tmp_path: Path) -> None:
    links = type(LINKS)(window=16, retry=0.05, longest_retry=0.2, ping=0.2, patience=6.0)
    ends = run(tmp_path, "masked", dropping((SERVER, "shop"), acknowledges=False), links)
    assert isinstance(ends["shop"], LostError), ends
    assert "of server has not arrived" in str(ends["shop"])


def test_a_message_in_the_name_of_another_is_refused(tmp_path: Path) -> None:
    """What phone has sent to the server comes as if shop had sent it."""
    phones: list[Message] = []

    def relay(sender: str, to: str, packet: Packet) -> Packet | None:
        message = packet.message
        if to != SERVER or message is None or message.kind != SEALED.kind:
            return packet
        if sender == "phone":
            phones.append(message)
        return changed(packet, box=phones[-1]["box"]) if sender == "shop" and phones else packet

    ends = run(tmp_path, "masked", relay)
    assert isinstance(ends[SERVER], ProtocolError), ends
    assert "from shop was changed, replaced or moved" in str(ends[SERVER])


def test_messages_that_never_arrive_end_the_run_with_a_word(tmp_path: Path) -> None:
    def relay(sender: str, to: str, packet: Packet) -> Packet | None:
        sealed = packet.message is not None and packet.message.kind == SEALED.kind
        return None if sealed and (sender, to) == (SERVER, "shop") else packet

    links = type(LINKS)(window=16, retry=0.05, longest_retry=0.2, ping=0.2, patience=1.0)

    def silent(sender: str, to: str, packet: Packet) -> Packet | None:
        found = relay(sender, to, packet)
        # The relay swallows what the link says about it as well.
        return None if found is None or ((sender, to) == (SERVER, "shop") and silent.begun) else found

    silent.begun = False  # type: ignore[attr-defined]

    def begins(sender: str, to: str, packet: Packet) -> Packet | None:
        silent.begun |= packet.message is not None and packet.message.kind == SEALED.kind  # type: ignore[attr-defined]
        return silent(sender, to, packet)

    ends = run(tmp_path, "masked", begins, links)
    assert isinstance(ends["shop"], LostError)
    assert "server" in str(ends["shop"])


class SwappingServer(KeyServer):
    """A server's role that passes on a key of its own in a party's name."""

    def handle(self, message: Message) -> Sends:
        told = []
        for one in super().handle(message):
            keys = one["keys"].copy()
            keys[2] = np.frombuffer(public_half(new_secret()), np.uint8)
            told.append(Message(one.sender, one.receiver, one.kind, {**one.body, "keys": keys}))
        return told


@pytest.mark.parametrize("runtime", [InProcess, Threads])
def test_a_server_in_one_process_cannot_swap_keys_either(runtime: Any) -> None:
    names = ("a", "b", "c")
    identities = make_identities([SERVER, *names])
    server = SwappingServer(Attempt(identities[SERVER]), names, "terms")
    parties = [KeyParty(Attempt(identities[name]), names, "terms") for name in names]
    with pytest.raises(ProtocolError, match=r"a key in the name of b is not signed by b's identity|not its own"):
        runtime([server, *parties]).run()
