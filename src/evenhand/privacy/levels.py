"""Levels of protection as objects, for estimators: each is equal to the name that job files use."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from evenhand.errors import InputError
from evenhand.protocol.job import PROTECTIONS, Protection


@dataclass(frozen=True)
class Masked:
    """The server learns sums over parties or clients only: masks that cancel in the sum hide each message."""


@dataclass(frozen=True)
class Dealer:
    """Passive parties receive sums over rows only: a third party without data deals random triples.

    Vertical only. In one process the dealer is simulated.
    """


@dataclass(frozen=True)
class Encrypted:
    """Passive parties receive sums over rows only: derivatives travel encrypted. Vertical only.

    It needs no third party, but the ``encrypted`` extra and more time.
    """


_NAMES: dict[type, Protection] = {Masked: "masked", Dealer: "dealer", Encrypted: "encrypted"}


def protection_name(given: Any) -> Protection:
    """Return the name of a level of protection, which a user gives by name or as an object."""
    if type(given) in _NAMES:
        return _NAMES[type(given)]
    for name in ("auto", *PROTECTIONS):
        if isinstance(given, str) and given == name:
            return name
    known = ", ".join(map(repr, ("auto", *PROTECTIONS)))
    raise InputError(f"protection is {given!r}; choose one of {known}, or give Masked(), Dealer() or Encrypted()")
