"""The reproductions by name. Modules are loaded when they are run: the list itself must be quick to show."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Protocol, cast

from evenhand.errors import InputError

if TYPE_CHECKING:
    import pandas as pd

    from evenhand.reproductions.settings import Meter, Record, Settings
    from evenhand.reproductions.writing import Page


class Experiment(Protocol):
    """What a module of a table or figure provides."""

    def compute(self, settings: Settings, meter: Meter) -> list[Record]: ...

    def page(self, records: pd.DataFrame) -> Page: ...


@dataclass(frozen=True)
class Entry:
    """A table or figure: its name, what it shows in a line, and the module that makes it."""

    name: str
    title: str
    module: str

    def load(self) -> Experiment:
        return cast(Experiment, import_module(f"evenhand.reproductions.{self.module}"))


_ENTRIES = (
    Entry("fairvfl-table1", "FairVFL, Table 1: accuracy and gaps in error rates, linear model", "fairvfl_table1"),
    Entry("fairvfl-table2", "FairVFL, Table 2: the same, neural parties", "fairvfl_table2"),
    Entry("fairvfl-fig1", "FairVFL, Figure 1: objective and DEO over rounds, linear model", "fairvfl_fig1"),
    Entry("fairvfl-fig2", "FairVFL, Figure 2: objective and DEO over rounds, neural parties", "fairvfl_fig2"),
    Entry("fairvfl-v1-table1", "first version, Table I: accuracy, fairness, harmonic mean", "fairvfl_v1_table1"),
    Entry("fairvfl-v1-fig1", "first version, Figure 1: effect of ε on accuracy and fairness", "fairvfl_v1_fig1"),
    Entry("fairvfl-v1-fig2", "first version, Figure 2: effect of the number Q of local steps", "fairvfl_v1_fig2"),
)
REPRODUCTIONS = {entry.name: entry for entry in _ENTRIES}


def find(name: str) -> Entry:
    if name not in REPRODUCTIONS:
        raise InputError(f"there is no reproduction {name!r}; there is {', '.join(REPRODUCTIONS)}")
    return REPRODUCTIONS[name]
