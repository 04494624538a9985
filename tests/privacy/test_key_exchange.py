"""Keys, agreed on two by two over a server that learns none of the secrets and can replace none of the keys."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.contracts import Reborn, assert_same_ends

from evenhand.errors import InputError, ProtocolError
from evenhand.privacy.key_exchange import PUBLIC_KEY, PUBLIC_KEYS, Attempt, KeyParty, KeyServer, Session, agree_here
from evenhand.privacy.pairwise import new_secret, public_half
from evenhand.protocol.identity import Identity, fingerprint, make_identities, new_identity
from evenhand.protocol.messages import Message
from evenhand.protocol.roles import SERVER, Role
from evenhand.protocol.transcript import Transcript
from evenhand.runtime.inprocess import InProcess, VirtualClock

NAMES = ("bank", "shop", "phone")
CLOCK = VirtualClock(latency=1e-6)


def make_roles(context: str = "terms", run: str = "run", numbers: dict[str, int] | None = None) -> dict[str, KeyParty]:
    identities = make_identities([SERVER, *NAMES])

    def attempt(name: str) -> Attempt:
        return Attempt(identities[name], run, (numbers or {}).get(name, 1))

    return {SERVER: KeyServer(attempt(SERVER), NAMES, context)} | {
        name: KeyParty(attempt(name), NAMES, context) for name in NAMES
    }


def test_masks_cancel_and_nothing_but_public_halves_was_sent() -> None:
    roles, transcript = make_roles(), Transcript(keep_messages=True)
    InProcess(list(roles.values()), CLOCK, transcript).run()
    sessions = [roles[name].session for name in NAMES]
    drawn = [session.masks("sums", NAMES).mask("1", 50) for session in sessions]
    np.testing.assert_array_equal(sum(drawn), np.zeros(50, dtype=np.uint64))
    assert all(mask.any() for mask in drawn)
    assert len({session.tag for session in sessions}) == 1
    sent = b"".join(array.tobytes() for one in transcript.messages or () for array in one.body.values())
    for one in sessions:
        assert not any(one.seed(peer, "sums") in sent for peer in one.peers)
        assert one._secret not in sent


def test_two_have_the_same_seed_and_nobody_else_has_it() -> None:
    sessions = agree_here(NAMES, "terms")
    seeds = {(one, two): sessions[one].seed(two, "x") for one in sessions for two in sessions[one].peers}
    assert all(seed == seeds[two, one] for (one, two), seed in seeds.items())
    assert len(set(seeds.values())) == len(seeds) / 2
    assert sessions["bank"].seed("shop", "x") != sessions["bank"].seed("shop", "y")
    assert len({one.secret("x") for one in sessions.values()}) == len(sessions)
    assert agree_here(NAMES, "terms")["bank"].seed("shop", "x") not in seeds.values()
    with pytest.raises(ProtocolError, match="has agreed on no key with 'thief'"):
        sessions["bank"].seed("thief", "x")


def test_a_box_opens_for_its_receiver_at_its_place_only() -> None:
    sessions = agree_here(NAMES, "terms")
    box = sessions["bank"].seal("shop", 3, b"content")
    assert b"content" not in box
    assert sessions["shop"].open("bank", 3, box) == b"content"
    other = agree_here(NAMES, "terms")
    wrong: list[tuple[Session, str, int, bytes]] = [
        (sessions["shop"], "bank", 4, box),
        (sessions["shop"], "phone", 3, box),
        (sessions["phone"], "bank", 3, box),
        (sessions["bank"], "shop", 3, box),
        (sessions["shop"], "bank", 3, box[:-1] + bytes([box[-1] ^ 1])),
        (sessions["shop"], "bank", 3, b""),
        (other["shop"], "bank", 3, box),
    ]
    for session, sender, number, content in wrong:
        with pytest.raises(ProtocolError, match="changed, replaced or moved"):
            session.open(sender, number, content)


def told(roles: dict[str, KeyParty]) -> dict[str, Message]:
    """What the server sends to each party, once all keys are there."""
    sends = [one for name in NAMES for key in roles[name].start() for one in roles[SERVER].receive(key)]
    return {one.receiver: one for one in sends}


def changed(message: Message, **body: Any) -> Message:
    return Message(message.sender, message.receiver, message.kind, {**message.body, **body})


def test_a_server_that_replaces_a_key_is_refused_by_the_others() -> None:
    roles = make_roles()
    honest = told(roles)["shop"]
    keys = honest["keys"].copy()
    keys[1] = np.frombuffer(public_half(new_secret()), np.uint8)
    with pytest.raises(ProtocolError, match="shop: a key in the name of bank is not signed by bank's identity"):
        roles["shop"].receive(changed(honest, keys=keys))
    keys = honest["keys"].copy()
    keys[2] = keys[1]
    with pytest.raises(ProtocolError, match="a key for it that is not its own"):
        roles["shop"].receive(changed(honest, keys=keys))
    roles["shop"].receive(honest)
    with pytest.raises(ProtocolError, match="takes no 'public-keys'"):
        roles["shop"].receive(honest)


def test_a_key_of_other_terms_of_another_run_or_of_another_name_is_refused() -> None:
    identities = make_identities([SERVER, *NAMES])
    server = KeyServer(Attempt(identities[SERVER], "run"), NAMES, "terms")
    others = [
        KeyParty(Attempt(identities["bank"], "run"), NAMES, "other terms"),
        KeyParty(Attempt(identities["bank"], "other run"), NAMES, "terms"),
        KeyParty(Attempt(identities["bank"], "run"), (*NAMES, "thief"), "terms"),
    ]
    for party in others:
        with pytest.raises(ProtocolError, match="a key in the name of bank is not signed"):
            server.receive(party.start()[0])
    (key,) = KeyParty(Attempt(identities["bank"], "run"), NAMES, "terms").start()
    with pytest.raises(ProtocolError, match="in the name of shop is not signed"):
        server.receive(Message("shop", SERVER, key.kind, key.body))
    server.receive(key)
    for again in (key, Message("thief", SERVER, key.kind, key.body)):
        with pytest.raises(ProtocolError, match="takes no 'public-key'"):
            server.receive(again)


def test_a_key_of_an_attempt_that_is_over_is_refused() -> None:
    identities = make_identities([SERVER, *NAMES])
    seen: dict[str, int] = {}
    first = KeyServer(Attempt(identities[SERVER], "run", record=seen.update), NAMES, "terms")
    old = [KeyParty(Attempt(identities[name], "run"), NAMES, "terms").start()[0] for name in NAMES]
    for key in old:
        first.receive(key)
    assert seen == {SERVER: 1, "bank": 1, "shop": 1, "phone": 1}
    second = KeyServer(Attempt(identities[SERVER], "run", 2, seen), NAMES, "terms")
    with pytest.raises(ProtocolError, match="the key of bank belongs to attempt 1, which is over"):
        second.receive(old[0])
    second.receive(KeyParty(Attempt(identities["bank"], "run", 2), NAMES, "terms").start()[0])


def test_participants_that_are_shown_different_keys_have_no_secret_in_common() -> None:
    """A party that plays two attempts at once under its own identity gains nothing but garbage."""
    identities = make_identities([SERVER, *NAMES])

    def run(phones: int) -> dict[str, KeyParty]:
        return {SERVER: KeyServer(Attempt(identities[SERVER]), NAMES, "terms")} | {
            name: KeyParty(Attempt(identities[name], "", phones if name == "phone" else 1), NAMES, "terms")
            for name in NAMES
        }

    one, two = run(1), run(2)
    for name in ("bank", "shop"):
        two[name]._secret = one[name]._secret
    for roles in (one, two):
        for name, message in told(roles).items():
            roles[name].receive(message)
    assert one["bank"].session.seed("shop", "x") != two["bank"].session.seed("shop", "x")


def test_who_is_not_known_is_refused() -> None:
    identities = make_identities([SERVER, *NAMES])
    known = {name: one.public for name, one in identities.items() if name != "phone"}
    server = KeyServer(Attempt(Identity(SERVER, identities[SERVER].secret, known)), NAMES, "terms")
    with pytest.raises(ProtocolError, match="server knows no identity of 'phone'; add its public key"):
        server.receive(KeyParty(Attempt(identities["phone"]), NAMES, "terms").start()[0])
    with pytest.raises(InputError, match="another key for bank than its own file"):
        Identity("bank", new_identity(), known)
    with pytest.raises(InputError, match="is damaged"):
        Identity("bank", b"short", {})


def test_fingerprints_can_be_read_out() -> None:
    prints = {fingerprint(Identity("bank", new_identity(), {}).public) for _ in range(20)}
    assert len(prints) == 20
    assert all([len(group) for group in one.split()] == [5] * 8 and one.replace(" ", "").isdecimal() for one in prints)


def test_roles_are_made_anew_after_every_turn(tmp_path: Path) -> None:
    identities, secrets = make_identities([SERVER, *NAMES]), {name: new_secret() for name in (SERVER, *NAMES)}

    def make() -> dict[str, Role]:
        roles: dict[str, Role] = {SERVER: KeyServer(Attempt(identities[SERVER]), NAMES, "terms")}
        roles |= {name: KeyParty(Attempt(identities[name]), NAMES, "terms") for name in NAMES}
        for name, role in roles.items():
            role.restore(role.snapshot() | {"_secret": np.frombuffer(secrets[name], np.uint8)})
        return roles

    whole, reborn = InProcess(list(make().values()), CLOCK), Reborn(make, CLOCK, tmp_path)
    whole.run()
    reborn.run()
    assert_same_ends(reborn, whole)


def test_schemas_of_both_messages_have_the_same_fields() -> None:
    assert [f"{name}s" for name in PUBLIC_KEY.fields] == list(PUBLIC_KEYS.fields)
