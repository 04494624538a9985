"""Hold and show what `evenhand check` finds in a job's tables."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from rich.table import Table

from evenhand.constraints.proving import smallest_gap
from evenhand.report.tables import as_text, bare_table


class TableFound(NamedTuple):
    """A table: its rows, the rows used, and how many of them are held out."""

    owner: str
    rows: int
    used: int | None
    test: int | None


class ColumnFound(NamedTuple):
    """A raw column, its detected kind, its number of features, and its missing values among the rows used."""

    owner: str
    name: str
    kind: str
    features: int
    missing: int


class GroupFound(NamedTuple):
    """The number of training rows of a group with each label: the positive and the negative one, or each class."""

    attribute: str
    group: str
    counts: tuple[int, ...]


@dataclass(frozen=True)
class Checkup:
    """Everything that was found."""

    problems: Sequence[str] = ()
    tables: Sequence[TableFound] = ()
    columns: Sequence[ColumnFound] = ()
    groups: Sequence[GroupFound] = ()
    labels: tuple[str, ...] = ("+1", "-1")
    """The positive and the negative label, or all of three and more."""
    proposed: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Lines for the job file, by the heading of their section."""

    def to_paste(self) -> str:
        """Return the lines that the job file lacks, as text; empty if there are none."""
        return "\n".join(line for heading, lines in self.proposed.items() for line in (f"# in {heading}", *lines))

    def shown(self) -> Iterator[Table]:
        """Yield the findings as tables."""
        if self.tables:
            table = bare_table("tables", "owner", "rows", "used", "held out")
            for one in self.tables:
                table.add_row(as_text(one.owner), f"{one.rows:,}", _count(one.used), _count(one.test))
            yield table
        if self.columns:
            table = bare_table("columns", "owner", "column", "kind", "missing", "features")
            for column in self.columns:
                table.add_row(
                    as_text(column.owner),
                    as_text(column.name),
                    column.kind,
                    _count(column.missing),
                    str(column.features),
                )
            yield table
        if self.groups:
            yield self._groups()
            yield self._gaps()

    def _groups(self) -> Table:
        table = bare_table("training rows by group and label", "attribute", "group")
        for label in self.labels:
            table.add_column(as_text(label), justify="right")
        for one in self.groups:
            table.add_row(as_text(one.attribute), as_text(one.group), *(f"{count:,}" for count in one.counts))
        return table

    def _gaps(self) -> Table:
        """Return the smallest gap between any two groups that these rows can prove for new people."""
        table = bare_table(
            "smallest gap that these rows can prove for new people, at 95 % confidence", "attribute", "gap in"
        )
        table.add_column("at best", justify="right")
        table.add_column("at worst", justify="right")
        names = [f"rates of errors among {label} (equalized odds)" for label in self.labels]
        whole = "rates of each prediction (demographic parity)"
        if len(self.labels) == 2:
            names = ["false-negative rates (equal opportunity)", "false-positive rates"]
            whole = "selection rates (demographic parity)"
        for attribute in dict.fromkeys(one.attribute for one in self.groups):
            groups = [one for one in self.groups if one.attribute == attribute]
            counts = {name: [one.counts[place] for one in groups] for place, name in enumerate(names)}
            counts[whole] = [sum(one.counts) for one in groups]
            for name, rows in counts.items():
                gap = smallest_gap(rows)
                table.add_row(as_text(attribute), as_text(name), f"{gap.best:.3f}", f"{gap.worst:.3f}")
        return table


def _count(value: int | None) -> str:
    return "" if value is None else f"{value:,}"
