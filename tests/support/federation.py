"""A federation in threads: every participant on its own files, and a network between them that may do anything."""

from __future__ import annotations

import queue
import random
import re
import shutil
import threading
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import tomli_w

from evenhand.protocol.identity import make_identities
from evenhand.protocol.roles import SERVER
from evenhand.runtime.identityfiles import write_identity
from evenhand.runtime.links import LinkSettings
from evenhand.runtime.site import Program, Site, Veto, no_veto

LINKS = LinkSettings(window=16, retry=0.05, longest_retry=0.2, ping=0.5, patience=20.0)


@dataclass
class Network:
    """Carries bytes between sites in a thread; loses, doubles and reorders some."""

    loss: float = 0.0
    seed: int = 0
    meddle: Callable[[str, str, bytes], bytes] = lambda _sender, _to, content: content
    sites: dict[str, Site] = field(default_factory=dict)
    dead: set[str] = field(default_factory=set)
    """Participants that are gone: nothing comes from them."""
    _under_way: queue.SimpleQueue[tuple[str, str, bytes] | None] = field(default_factory=queue.SimpleQueue)

    def transmit(self, sender: str) -> Callable[[str, bytes], None]:
        return lambda to, content: self._under_way.put((sender, to, content))

    def carry(self) -> None:
        rng, kept = random.Random(self.seed), list[tuple[str, str, bytes]]()
        while (one := self._under_way.get()) is not None:
            if rng.random() < self.loss or one[0] in self.dead:
                continue
            kept.append(one)
            if rng.random() < self.loss:
                kept.append(one)
            if self.loss and len(kept) < 3 and rng.random() < self.loss:
                continue
            rng.shuffle(kept) if self.loss else None
            for sender, to, content in kept:
                self.sites[to].arrived(sender, self.meddle(sender, to, content))
            kept.clear()

    def stop(self) -> None:
        self._under_way.put(None)


def run_sites(
    programs: Mapping[str, Callable[[Site], Program[Any]]],
    network: Network,
    vetoes: Mapping[str, Veto] | None = None,
    links: LinkSettings = LINKS,
    over: threading.Event | None = None,
) -> dict[str, Any]:
    """What each program ends with: its result, or the error it ended with; `over` ends all from outside."""
    over = threading.Event() if over is None else over
    for name in programs:
        others = [one for one in programs if one != name]
        veto = (vetoes or {}).get(name, no_veto)
        network.sites[name] = Site(name, others, network.transmit(name), links=links, veto=veto, stopped=over.is_set)
    ends: dict[str, Any] = {}

    def run(name: str) -> None:
        site = network.sites[name]
        try:
            ends[name] = site.run(programs[name](site))
        except Exception as error:
            ends[name] = error
            if name in network.dead:
                return
            # As a supervisor would: it takes a moment to notice.
            threading.Timer(0.25, over.set).start()
        for other in network.sites.values():
            if other is not site:
                other.gone(name)

    carrier = threading.Thread(target=network.carry, daemon=True)
    threads = [threading.Thread(target=run, args=(name,), daemon=True) for name in programs]
    with ExitStack() as stack:
        for site in network.sites.values():
            stack.enter_context(site)
        carrier.start()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(300)
            assert not thread.is_alive(), "a participant hangs"
    network.stop()
    carrier.join(10)
    return ends


def write_shops(folder: Path, job: dict[str, Any], active: tuple[str, ...] = ("bank",)) -> dict[str, Path]:
    """Three parties' tables and files, a job for a federation, and the same as a job of one process.

    Between organisations a dealer is somebody: with protection "dealer", a notary.
    """
    rng = np.random.default_rng(5)
    ids = [f"c{number:03d}" for number in rng.permutation(120)]
    numbers = rng.normal(size=(120, 5))
    sex = np.where(rng.random(120) < 0.4, "f", "m")
    good = numbers @ rng.normal(size=5) + (sex == "f") + rng.logistic(size=120) > 0
    frames = {
        "bank": pd.DataFrame({"income": numbers[:, 0], "debt": numbers[:, 1], "good": np.where(good, "yes", "no")}),
        "shop": pd.DataFrame({"visits": numbers[:, 2], "town": rng.choice(["x", "y", "z"], 120)}),
        "phone": pd.DataFrame({"calls": numbers[:, 3], "age": numbers[:, 4]}),
    }
    frames["bank"]["sex"] = sex
    paths: dict[str, Path] = {}
    sections: dict[str, dict[str, Any]] = {}
    for name, frame in frames.items():
        own = folder / name
        own.mkdir(parents=True)
        frame.assign(id=ids).iloc[rng.permutation(120)].to_csv(own / "table.csv", index=False)
        sections[name] = {
            "name": name,
            "role": "active" if name in active else "passive",
            "table": "table.csv",
            "id": "id",
        }
        if name == "bank":
            sections[name] |= {"label": {"column": "good", "positive": "yes"}, "sensitive": ["sex"]}
        paths[name] = own / "party.toml"
        paths[name].write_text(tomli_w.dumps({"identity": "identity", "party": sections[name]}))
    members = [{"name": name, "role": section["role"]} for name, section in sections.items()]
    if job.get("protection") == "dealer":
        members.append({"name": "notary", "role": "dealer"})
        paths["notary"] = folder / "notary" / "party.toml"
        paths["notary"].parent.mkdir()
        paths["notary"].write_text(tomli_w.dumps({"identity": "identity", "party": members[-1]}))
    paths |= write_identities(folder, [one["name"] for one in members])
    paths["job"] = folder / "job.toml"
    paths["job"].write_text(tomli_w.dumps({"job": job, "party": members}))
    together = [section | {"table": f"{name}/table.csv"} for name, section in sections.items()]
    paths["together"] = folder / "together.toml"
    paths["together"].write_text(tomli_w.dumps({"job": job, "party": together}))
    return paths


def write_identities(folder: Path, names: Iterable[str]) -> dict[str, Path]:
    """Write everybody's identity beside its own file, and the server's, whose folder is returned as "identity"."""
    for name, identity in make_identities([SERVER, *names]).items():
        write_identity(folder / name / "identity", identity)
    return {"identity": folder / SERVER / "identity"}


def servers_copy(holder: Path) -> Path:
    """The server's own copy of the label holder's file and table, with the rows in another order."""
    folder = holder.parent.with_name("server's copy")
    shutil.copytree(holder.parent, folder)
    table = folder / "table.csv"
    heading, *rows = table.read_text().splitlines()
    table.write_text("\n".join([heading, *rows[::-1]]) + "\n")
    return folder / holder.name


def told_kinds(text: str) -> tuple[set[str], set[str]]:
    """Return the kinds of messages that the last notice in a text says will leave its site, and reach it."""
    _, _, last = text.rpartition("terms of this run")
    found = [re.search(rf"messages that this site will {verb}.*\n((?:  .*\n?)*)", last) for verb in ("send", "receive")]
    assert all(found), "the text holds no complete notice"
    leaving, reaching = ({line.strip().partition(": ")[0] for line in one[1].splitlines()} for one in found if one)
    return leaving, reaching


def assert_told(name: str, text: str, messages: Iterable[tuple[str, str, str]]) -> None:
    """Check that a notice covers every message of a site's transcript, given as kind, sender and receiver."""
    leaving, reaching = told_kinds(text)
    messages = list(messages)
    sent = {kind for kind, sender, _ in messages if sender == name}
    received = {kind for kind, _, receiver in messages if receiver == name}
    assert len(sent | received) > 5
    assert sent <= leaving, f"{name} was not told that {sorted(sent - leaving)} will leave it"
    assert received <= reaching, f"{name} was not told that {sorted(received - reaching)} will reach it"


def assert_alike(found: Any, expected: Any) -> None:
    """Check that results agree but for the last digits: masked sums of scores are in fixed point."""
    if isinstance(expected, dict):
        assert found.keys() == expected.keys()
        for key, value in expected.items():
            assert_alike(found[key], value)
    elif isinstance(expected, (list, tuple)):
        assert len(found) == len(expected)
        for one, other in zip(found, expected, strict=True):
            assert_alike(one, other)
    else:
        assert found == (
            pytest.approx(expected, rel=1e-9, abs=1e-9, nan_ok=True) if isinstance(expected, float) else expected
        )


def assert_close(one: Any, other: Any) -> None:
    """The server's scores are masked sums in fixed point: numbers agree to a millionth, all else is the same.

    What is left of a gradient depends on the step at which a solver ends.
    """
    if isinstance(one, dict):
        assert one.keys() == other.keys()
        for name in one:
            if name == "stationarity":
                assert one[name] == pytest.approx(other[name], rel=1e-6, abs=1e-5)
            else:
                assert_close(one[name], other[name])
    elif isinstance(one, list):
        for left, right in zip(one, other, strict=True):
            assert_close(left, right)
    else:
        assert one == (pytest.approx(other, rel=1e-6, abs=1e-6) if isinstance(other, float) else other)
