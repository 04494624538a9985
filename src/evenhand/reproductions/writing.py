"""Result files: a page of Markdown, its figure, and the records both were made from."""

from __future__ import annotations

import json
import platform
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import numpy as np
import pandas as pd

from evenhand.errors import RunError
from evenhand.reproductions.settings import Record, Settings
from evenhand.runtime.files import write_bytes

PACKAGES = ("evenhand", "numpy", "scipy", "scikit-learn", "fairlearn", "torch")


@dataclass(frozen=True)
class Page:
    """What a result file says."""

    ran: Sequence[str]
    """What was run, a sentence each."""
    tables: Sequence[tuple[str, str]]
    """Heading and Markdown of each table."""
    notes: Sequence[str]
    """A sentence for each thing to know when comparing."""
    checks: Sequence[str] = ()
    """Targets, and whether they were met."""
    figure: Callable[[Path], None] | None = field(default=None)


@dataclass(frozen=True)
class Recorded:
    """The numbers of a reproduction, and how they came about."""

    command: str
    seconds: float
    records: list[Record]
    versions: dict[str, str] = field(default_factory=lambda: _versions())
    rounds: int | None = None
    """What was asked for instead of the usual number of rounds."""
    parts: list[str] = field(default_factory=list)
    """Commands whose records have taken the place of earlier ones since."""
    constants: dict[str, Record] = field(default_factory=dict)
    """What the records of a set were made with, where that was written down."""

    def write(self, path: Path) -> None:
        lines = ",\n".join(json.dumps(record, default=float) for record in self.records)
        top = {"command": self.command, "seconds": self.seconds, "versions": self.versions}
        top |= {name: value for name in ("rounds", "parts", "constants") if (value := getattr(self, name))}
        text = f'{json.dumps(top)[:-1]}, "records": [\n{lines}\n]}}\n'
        write_bytes(path, text.encode())

    @classmethod
    def read(cls, path: Path) -> Recorded:
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
            command, seconds, records = content["command"], content["seconds"], content["records"]
            parts, constants = list(content.get("parts", [])), dict(content.get("constants", {}))
            return cls(command, seconds, records, content["versions"], content.get("rounds"), parts, constants)
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise RunError(f"{path} holds no records to write a page from ({error}); run without --rewrite") from error

    def check_takes(self, settings: Settings, constants: Mapping[str, Record], path: Path) -> None:
        """Refuse, before anything is trained, a part that was not made as what it would stand beside."""
        if settings.rounds != self.rounds:
            said = ["as usual" if number is None else f"{number}" for number in (self.rounds, settings.rounds)]
            raise RunError(
                f"{path} holds records of another number of rounds ({said[0]}, now {said[1]}), and one page cannot "
                "show both; choose another folder with --out"
            )
        for name, now in constants.items():
            before = self.constants.get(name, now)
            other = sorted(key for key in before.keys() | now.keys() if before.get(key) != now.get(key))
            if other and not settings.replaces(name, self.seeds(name)):
                said = [f"{key} {before.get(key)}, now {now.get(key)}" for key in other]
                raise RunError(
                    f"{path} holds records of {name} that were made with other settings ({'; '.join(said)}); run all "
                    f"of the set again (--set {name} without --runs and --seed), or choose another folder with --out"
                )

    def seeds(self, name: str) -> set[int]:
        return {record["seed"] for record in self.records if record["set"] == name}

    def with_part(self, part: Recorded, replaced: Collection[str] = ()) -> Recorded:
        """These records, with those of the part in the place of what was recorded for the same sets and seeds, or for
        any seed of the sets that are `replaced`.

        What a set was made with stays unknown where it was for some of its seeds.
        """
        again = {_draw(record) for record in part.records}
        order = {name: place for place, name in enumerate(dict.fromkeys(record["set"] for record in self.records))}
        kept = [record for record in self.records if record["set"] not in replaced and _draw(record) not in again]
        known = self.constants.keys() | ({record["set"] for record in part.records} - {one["set"] for one in kept})
        merged = sorted([*kept, *part.records], key=lambda record: order.get(record["set"], len(order)))
        return replace(
            self,
            seconds=self.seconds + part.seconds,
            records=merged,
            versions={name: _both(self.versions.get(name), now) for name, now in part.versions.items()},
            # What the page names first is not named again.
            parts=[one for one in dict.fromkeys([*self.parts, part.command]) if one != self.command],
            constants={name: made for name, made in {**self.constants, **part.constants}.items() if name in known},
        )


def as_written(constants: Record) -> Record:
    """Constants as they are read back from a file."""
    found: Record = json.loads(json.dumps(constants, default=str))
    return found


def _both(before: str | None, now: str) -> str:
    known = [] if before is None else before.split(" and ")
    return " and ".join(known if now in known else [*known, now])


def _draw(record: Record) -> tuple[str, int]:
    """Which draw of which set a record is about."""
    return record["set"], record["seed"]


def _versions() -> dict[str, str]:
    found = {"Python": platform.python_version()}
    for name in PACKAGES:
        # torch is an extra.
        with suppress(PackageNotFoundError):
            found[name] = version(name)
    return found


def write_page(name: str, title: str, recorded: Recorded, page: Page, out: Path) -> list[Path]:
    """Write the result files of a reproduction; returns their paths."""
    paths = [out / f"{name}.md", out / f"{name}.json"]
    recorded.write(paths[1])
    versions = ", ".join(f"{package} {number}" for package, number in recorded.versions.items())
    parts = [f"# {title}", "\n".join(f"    {command}" for command in (recorded.command, *recorded.parts))]
    parts += [f"{versions}. {recorded.seconds:.0f} seconds in all."]
    parts += ["## What was run", bullets(page.ran)]
    if page.figure is not None:
        paths.append(out / f"{name}.png")
        page.figure(paths[-1])
        parts.append(f"![{title}]({name}.png)")
    for heading, table in page.tables:
        parts += [f"## {heading}", table]
    if page.checks:
        parts += ["## Targets", bullets(page.checks)]
    parts += ["## Where ours and the paper's differ, and why", bullets(page.notes)]
    write_bytes(paths[0], ("\n\n".join(parts) + "\n").encode())
    return paths


def bullets(lines: Sequence[str]) -> str:
    return "\n".join(f"- {line}" for line in lines)


def markdown_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [header, ["---", *["---:"] * (len(header) - 1)], *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def spread(values: pd.Series, scale: float = 1.0, digits: int = 3) -> str:
    """Mean ± standard deviation over runs; the mean alone if there is one run."""
    numbers = scale * values.to_numpy(dtype=np.float64)
    mean = f"{numbers.mean():.{digits}f}"
    return mean if len(numbers) == 1 else f"{mean} ± {numbers.std(ddof=1):.{digits}f}"


def counted(number: int, what: str = "run") -> str:
    """3 runs, 1 run."""
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def seeds_of(seeds: Iterable[int]) -> str:
    """Seeds 10-12, or seed 10; one by one where some between are missing."""
    found = sorted({int(seed) for seed in seeds})
    if len(found) == 1:
        return f"seed {found[0]}"
    whole = found == list(range(found[0], found[-1] + 1))
    return f"seeds {found[0]}-{found[-1]}" if whole else f"seeds {', '.join(map(str, found))}"


def runs_of(seeds: Iterable[int], what: str = "run") -> str:
    """3 runs (seeds 10-12)."""
    found = {int(seed) for seed in seeds}
    return f"{counted(len(found), what)} ({seeds_of(found)})"


def means(records: pd.DataFrame, column: str) -> pd.Series:
    """Mean over runs of each (set, method)."""
    return records.groupby(["set", "method"], sort=False)[column].mean()
