"""Silent peers are told once, and once more when they are heard from again."""

from __future__ import annotations

import threading
import time

from support.federation import LINKS

from evenhand.runtime.silence import SILENT, SilenceWatch
from evenhand.runtime.site import Site


def test_each_silence_is_told_once_and_so_is_its_end() -> None:
    told: list[tuple[str, float | None]] = []
    watch = SilenceWatch(lambda peer, seconds: told.append((peer, seconds)))
    heard = {"shop": 0.0, "bank": 0.0}
    for now in range(100):
        if now < 20 or now >= 60:
            heard["shop"] = float(now)
        heard["bank"] = float(now)
        watch.look(float(now), lambda now=now: {peer: now - at for peer, at in heard.items()})
    assert [peer for peer, _ in told] == ["shop", "shop"]
    assert told[0][1] == SILENT + 1.0
    assert told[1][1] is None


def test_looks_within_a_second_ask_nobody() -> None:
    asked: list[float] = []
    watch = SilenceWatch(lambda peer, seconds: None)

    def silences() -> dict[str, float]:
        asked.append(0.0)
        return {}

    for number in range(100):
        watch.look(number / 100.0, silences)
    assert len(asked) == 1


def test_a_site_looks_while_it_waits() -> None:
    """A peer that never answers is told while the run goes on."""
    told = threading.Event()
    site = Site("bank", ["shop"], lambda peer, content: None, links=LINKS, on_silence=lambda peer, s: told.set())
    site._endpoint.ends["shop"].wake(time.monotonic() - SILENT - 2.0)
    with site:
        assert told.wait(30)
    assert site.silences()["shop"] > SILENT
