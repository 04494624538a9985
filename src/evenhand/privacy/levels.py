"""Levels of protection as objects, for estimators: each is equal to the name that job files use."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from evenhand.errors import InputError
from evenhand.protocol.job import PROTECTIONS, Protection, Weights


@dataclass(frozen=True)
class Masked:
    """During training the server receives sums over parties or clients: masks that cancel hide each message.

    Parameters
    ----------
    least_summed
        Across clients: the fewest in every sum that the server can form; 1 accepts clients that drop out.
    """

    least_summed: int = 2


@dataclass(frozen=True)
class Dealer:
    """Passive parties hold their weights in shares: a third party without data deals random triples.

    Vertical only. In one process the dealer is simulated.

    Parameters
    ----------
    weights
        ``"shared"``: nobody knows a passive party's weights. ``"party"``: each party gets its own at the end, which
        tell it what any model tells of its labels; this needs `allow_experimental`.
    allow_experimental
        Required while a known attack breaks what is chosen; the error without it says which.
    """

    weights: Weights = "shared"
    allow_experimental: bool = False


@dataclass(frozen=True)
class Encrypted:
    """Passive parties hold their weights in shares, by encryption between each of them and the label holder.

    No third party is needed. Vertical only.

    Parameters
    ----------
    weights
        ``"shared"``: nobody knows a passive party's weights. ``"party"``: each party gets its own at the end, which
        tell it what any model tells of its labels; this needs `allow_experimental`.
    allow_experimental
        Required while a known attack breaks what is chosen; the error without it says which.
    """

    weights: Weights = "shared"
    allow_experimental: bool = False


_NAMES: dict[type, Protection] = {Masked: "masked", Dealer: "dealer", Encrypted: "encrypted"}


def protection_of(given: Any) -> dict[str, Any]:
    """Return the fields of a job that a protection sets, from its name or its object."""
    if type(given) in _NAMES:
        return {"protection": _NAMES[type(given)], **asdict(given)}
    if isinstance(given, str) and given in ("auto", *PROTECTIONS):
        return {"protection": given}
    known = ", ".join(map(repr, ("auto", *PROTECTIONS)))
    raise InputError(f"protection is {given!r}; choose one of {known}, or give Masked(), Dealer() or Encrypted()")
