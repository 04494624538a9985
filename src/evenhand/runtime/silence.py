"""Notice peers that fall silent while a run goes on, and those that are heard from again."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Final, TypeAlias

SILENT: Final = 15.0
"""Seconds of a peer's silence after which it is said; links ping every five seconds."""
_EVERY: Final = 1.0
TellSilence: TypeAlias = Callable[[str, float | None], None]
"""Is told a silent peer and the seconds of its silence, and None when the peer is heard from again."""


class SilenceWatch:
    """Tells each silence once, and its end."""

    def __init__(self, tell: TellSilence) -> None:
        self._tell = tell
        self._silent: set[str] = set()
        self._next = -math.inf

    def look(self, now: float, silences: Callable[[], Mapping[str, float]]) -> None:
        """Compare the peers' silences with those told before; calls in between cost nothing."""
        if now < self._next:
            return
        self._next = now + _EVERY
        found = {peer: seconds for peer, seconds in silences().items() if seconds > SILENT}
        for peer in sorted(self._silent - found.keys()):
            self._tell(peer, None)
        for peer in sorted(found.keys() - self._silent):
            self._tell(peer, found[peer])
        self._silent = set(found)
