"""Settings of a reproduction (repeats, length, data sets), and the display of its progress."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeAlias

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from evenhand.data import load
from evenhand.data.public.loaders import Dataset
from evenhand.errors import InputError
from evenhand_reproductions.papers import FAIRVFL_SETS

Record: TypeAlias = dict[str, Any]
"""Numbers and names of one fit, or of one point of a curve."""

SETS = {
    "adult": "Adult",
    "compas": "COMPAS",
    "communities-crime": "Crime",
    "credit-default": "Credit default",
    "give-me-some-credit": "Give me some credit",
    "a9a": "a9a",
    "20newsgroups": "20 Newsgroups",
    "synthetic": "synthetic",
    "biased-digits": "Coloured digits",
    "symmetric-digits": "Coloured digits, groups alike",
    "framed-digits": "Framed digits",
    "digit-pairs": "Digit pairs",
    "imsitu": "imSitu",
    "celeba": "CelebA",
    "breast-cancer-wisc": "breast-cancer-wisc",
    "monks-1": "monks-1",
    "adult-a": "adult-a",
    "adult-b": "adult-b",
    "quadratic": "quadratic programs",
}
"""Names in print."""
FIRST_SEED = 10
"""Seeds 0 to 4 were used while the solver was made; the tables use others."""


@dataclass(frozen=True)
class Settings:
    """What the command line was asked for; None leaves the choice to the reproduction."""

    runs: int | None = None
    rounds: int | None = None
    source: Path | None = None
    sets: tuple[str, ...] = FAIRVFL_SETS
    seed: int = FIRST_SEED
    part: bool = False
    """Whether this is less, or something else, than what the committed page shows."""

    def __post_init__(self) -> None:
        for name in self.sets:
            if name not in SETS:
                raise InputError(f"there is no set {name!r} in the papers; there is {', '.join(SETS)}")

    def datasets(self) -> dict[str, Dataset]:
        return {name: load(name, source=self.source) for name in self.sets}

    def draws(self, runs: int | Mapping[str, int]) -> list[tuple[str, int]]:
        """(set, seed) for each run; `runs` is what is done unless the user says otherwise."""
        usual = {name: runs if isinstance(runs, int) else runs[name] for name in self.sets}
        return [(name, self.seed + run) for name in self.sets for run in range(self.runs or usual[name])]

    def replaces(self, name: str, seeds: set[int]) -> bool:
        """Whether this run is all that there is to be of a set, whose records have these seeds so far."""
        if self.runs is None:
            return name in self.sets and self.seed == FIRST_SEED
        return name in self.sets and seeds <= set(range(self.seed, self.seed + self.runs))

    def rounds_or(self, usual: int) -> int:
        return self.rounds or usual


class Meter:
    """A bar over the fits of a reproduction that names the one under way."""

    def __init__(self, *, show: bool = True) -> None:
        columns = (BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TextColumn("{task.description}"))
        self._bar = Progress(*columns, console=Console(stderr=True), disable=not show)
        self._task = self._bar.add_task("reading the data", total=None)
        self._started = False

    def expect(self, fits: int) -> None:
        self._bar.update(self._task, total=fits)

    def at(self, what: str) -> None:
        """The fit before this one is done."""
        self._bar.update(self._task, description=what, advance=int(self._started))
        self._started = True

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.at("done")
        self._bar.stop()
