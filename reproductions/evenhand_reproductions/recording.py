"""The records of a reproduction: the numbers a page is made from, what they were made with, and by which commands."""

from __future__ import annotations

import json
import platform
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Self

from evenhand.errors import RunError
from evenhand.runtime.files import write_bytes
from evenhand_reproductions.settings import Record, Settings

PACKAGES = ("evenhand", "numpy", "scipy", "scikit-learn", "fairlearn", "torch")


@dataclass(frozen=True)
class Making:
    """A command some of whose records are on a page.

    Attributes
    ----------
    commands
        It; or several whose records can no longer be told apart.
    draws
        Seeds of each set of which its records are there.
    replaced
        Whether others of its records were replaced since, by those of a later command.
    """

    commands: list[str]
    seconds: float
    versions: dict[str, str]
    draws: dict[str, list[int]]
    replaced: bool = False

    def without(self, draws: Collection[tuple[str, int]]) -> Self:
        left = {
            name: [seed for seed in seeds if (name, seed) not in draws]
            for name, seeds in self.draws.items()
            if any((name, seed) not in draws for seed in seeds)
        }
        return replace(self, draws=left, replaced=self.replaced or left != self.draws)


@dataclass(frozen=True)
class Recorded:
    """The numbers of a reproduction, and how they came about."""

    made: list[Making]
    records: list[Record]
    rounds: int | None = None
    """What was asked for instead of the usual number of rounds."""
    constants: dict[str, Record] = field(default_factory=dict)
    """What the records of a set were made with, where that was written down."""

    @classmethod
    def by(
        cls,
        command: str,
        seconds: float,
        records: list[Record],
        rounds: int | None = None,
        constants: dict[str, Record] | None = None,
    ) -> Recorded:
        """What a command has just computed."""
        return cls([Making([command], seconds, _versions(), _draws(records))], records, rounds, constants or {})

    def write(self, path: Path) -> None:
        lines = ",\n".join(json.dumps(record, default=float) for record in self.records)
        top = {"made": [asdict(one) for one in self.made], "rounds": self.rounds, "constants": self.constants}
        text = f'{json.dumps(top)[:-1]}, "records": [\n{lines}\n]}}\n'
        write_bytes(path, text.encode())

    @classmethod
    def read(cls, path: Path) -> Recorded:
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
            records = content["records"]
            made = [Making(**one) for one in content["made"]] if "made" in content else [_made_before(content)]
            return cls(made, records, content.get("rounds"), dict(content.get("constants", {})))
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise RunError(f"{path} holds no records to write a page from ({error}); run without --rewrite") from error

    @property
    def versions(self) -> dict[str, list[str]]:
        """Every version of each package that records are of."""
        found: dict[str, list[str]] = {}
        for one in self.made:
            for name, numbers in one.versions.items():
                known = found.setdefault(name, [])
                # Of commands that cannot be told apart, all stand in one text.
                known += [number for number in numbers.split(" and ") if number not in known]
        return found

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
        any seed of the sets that are `replaced`. Commands of which nothing is left are no longer named.

        What a set was made with stays unknown where it was for some of its seeds.
        """
        drawn = [_draw(record) for record in self.records]
        again = {_draw(record) for record in part.records} | {draw for draw in drawn if draw[0] in replaced}
        order = {name: place for place, name in enumerate(dict.fromkeys(name for name, _ in drawn))}
        kept = [record for record, draw in zip(self.records, drawn, strict=True) if draw not in again]
        known = self.constants.keys() | ({record["set"] for record in part.records} - {one["set"] for one in kept})
        left = [one.without(again) for one in self.made]
        return replace(
            self,
            made=[*(one for one in left if one.draws), *part.made],
            records=sorted([*kept, *part.records], key=lambda record: order.get(record["set"], len(order))),
            constants={name: made for name, made in {**self.constants, **part.constants}.items() if name in known},
        )


def as_written(constants: Record) -> Record:
    """Constants as they are read back from a file."""
    found: Record = json.loads(json.dumps(constants, default=str))
    return found


def _draw(record: Record) -> tuple[str, int]:
    """Which draw of which set a record is about."""
    return record["set"], record["seed"]


def _draws(records: list[Record]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for name, seed in dict.fromkeys(map(_draw, records)):
        found.setdefault(name, []).append(seed)
    return found


def _made_before(content: Record) -> Making:
    """Of files that do not say which command made what."""
    commands = [content["command"], *content.get("parts", [])]
    return Making(commands, content["seconds"], content["versions"], _draws(content["records"]))


def _versions() -> dict[str, str]:
    found = {"Python": platform.python_version()}
    for name in PACKAGES:
        # torch is an extra.
        with suppress(PackageNotFoundError):
            found[name] = version(name)
    return found
