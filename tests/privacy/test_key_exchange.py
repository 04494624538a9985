"""Keys, agreed on two by two over a server that learns none of the secrets."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from support.contracts import Reborn, assert_same_ends

from evenhand.errors import ProtocolError
from evenhand.privacy.key_exchange import PUBLIC_KEY, PUBLIC_KEYS, KeyParty, KeyServer
from evenhand.privacy.pairwise import new_secret, public_half
from evenhand.protocol.roles import SERVER, Role
from evenhand.protocol.transcript import Transcript
from evenhand.runtime.inprocess import InProcess, VirtualClock

NAMES = ("bank", "shop", "phone")
CLOCK = VirtualClock(latency=1e-6)


def agreed(context: bytes = b"run") -> tuple[list[KeyParty], Transcript]:
    parties, transcript = [KeyParty(name, NAMES, context) for name in NAMES], Transcript(keep_messages=True)
    InProcess([KeyServer(NAMES), *parties], CLOCK, transcript).run()
    return parties, transcript


def test_masks_cancel_and_nothing_but_public_halves_was_sent() -> None:
    parties, transcript = agreed()
    drawn = [party.masks.mask("sums 1", 50) for party in parties]
    np.testing.assert_array_equal(sum(drawn), np.zeros(50, dtype=np.uint64))
    assert all(mask.any() for mask in drawn)
    sent = b"".join(one["key"].tobytes() for one in transcript.messages or () if one.kind == PUBLIC_KEY.kind)
    assert len(sent) == 32 * len(NAMES)
    assert not any(seed in sent for party in parties for seed in party.masks.seeds.values())


def test_what_does_not_belong_is_refused() -> None:
    party, server = KeyParty("shop", NAMES, b"run"), KeyServer(NAMES)
    foreign = np.frombuffer(b"".join(public_half(new_secret()) for _ in NAMES), np.uint8).reshape(-1, 32)
    with pytest.raises(ProtocolError, match="a key for it that is not its own"):
        party.receive(PUBLIC_KEYS.message(SERVER, "shop", keys=foreign))
    with pytest.raises(ProtocolError, match="takes no 'public-keys'"):
        party.receive(PUBLIC_KEYS.message(SERVER, "shop", keys=foreign[:2]))
    (key,) = party.start()
    server.receive(key)
    for again in (key, PUBLIC_KEY.message("thief", SERVER, key=foreign[0])):
        with pytest.raises(ProtocolError, match="takes no 'public-key'"):
            server.receive(again)


def test_roles_are_made_anew_after_every_turn(tmp_path: Path) -> None:
    secrets = {name: new_secret() for name in NAMES}

    def make() -> dict[str, Role]:
        roles: dict[str, Role] = {SERVER: KeyServer(NAMES)}
        for name in NAMES:
            party = KeyParty(name, NAMES, b"run")
            party.restore(party.snapshot() | {"_secret": np.frombuffer(secrets[name], np.uint8)})
            roles[name] = party
        return roles

    whole, reborn = InProcess(list(make().values()), CLOCK), Reborn(make, CLOCK, tmp_path)
    whole.run()
    reborn.run()
    assert_same_ends(reborn, whole)
