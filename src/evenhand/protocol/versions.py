"""Versions that participants exchange when they enrol.

Participants with different protocol numbers do not understand each other's messages in the same way, so one of them
refuses. Participants with different package versions train together with a warning: numbers may differ from those of
one process.
"""

from __future__ import annotations

import re
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from typing import Final, NamedTuple

PROTOCOL: Final = 2
"""Raised whenever a message, or what follows from it, changes so that older participants would go another way."""
_FORM: Final = re.compile(r"(\d{1,6}) ([0-9A-Za-z.+!-]{1,60})")


class Version(NamedTuple):
    """What a participant runs: the number of its protocol, and the version of its package."""

    protocol: int
    package: str

    def __str__(self) -> str:
        return f"protocol {self.protocol} (evenhand {self.package})"

    def to_text(self) -> str:
        return f"{self.protocol} {self.package}"


@cache
def own_version() -> Version:
    """Return the version of this process."""
    try:
        return Version(PROTOCOL, version("evenhand"))
    except PackageNotFoundError:
        return Version(PROTOCOL, "unknown")


def read_version(text: str) -> Version | None:
    """Read what another participant sent; None if it is not a version."""
    found = _FORM.fullmatch(text)
    return None if found is None else Version(int(found[1]), found[2])


def objection(party: str, server: str) -> str | None:
    """Return why a party and the server with these versions cannot train together, or None."""
    one, other = read_version(party), read_version(server)
    if one is not None and other is not None and one.protocol == other.protocol:
        return None
    mine, servers = ("no version that can be read" if it is None else str(it) for it in (one, other))
    return f"it runs {mine}, the server runs {servers}; install the same version of evenhand at all participants"


def difference(text: str, whose: str) -> str | None:
    """Return a warning if the other version is not this one, or None."""
    other, own = read_version(text), own_version()
    if other is None or other.package == own.package:
        return None
    return f"{whose} runs evenhand {other.package}, and this participant {own.package}; results may differ slightly"
