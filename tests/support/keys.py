"""Sessions with fixed secrets, for roles that are built apart from each other and so cannot agree on keys."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import replace

from evenhand.privacy.key_exchange import Session
from evenhand.privacy.pairwise import public_half
from evenhand.protocol.roles import SERVER
from evenhand_reproductions.in_memory import Holdings


def fixed_sessions(names: Sequence[str], kind: type[Session] = Session) -> dict[str, Session]:
    """Return a session for the server and each participant."""
    keys = {name: hashlib.sha256(name.encode()).digest() for name in (SERVER, *names)}
    public = {name: public_half(key) for name, key in keys.items()}
    return {name: kind(name, key, public, b"test") for name, key in keys.items()}


def with_fixed_keys(held: Holdings, kind: type[Session] = Session) -> Holdings:
    """Return holdings whose participants have these sessions."""
    found = fixed_sessions(list(held.parties), kind)
    parties = {name: replace(own, session=found[name]) for name, own in held.parties.items()}
    return replace(held, server=replace(held.server, session=found[SERVER]), parties=parties)
