"""Hold and show what `evenhand check` finds in a job's tables."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from rich.table import Table

from evenhand.constraints.kinds import Constraint, DemographicParity, EqualizedOdds, EqualOpportunity
from evenhand.constraints.proving import LEVEL, smallest_gap
from evenhand.printing import toml_text
from evenhand.report.tables import BareTable, as_text

_GAPS_OF_RATES: Final = (EqualOpportunity, EqualizedOdds, DemographicParity)
_OPTIMISM: Final = 1.2
"""Bounds that are proposed have room for what a model gains on its training rows."""
_WIDEST: Final = 0.5
"""No wider bound is proposed."""


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
    constraints: Sequence[Constraint] = ()
    """The job's constraints, if its solver can prove them."""

    def to_paste(self) -> str:
        """Return the lines that the job file lacks, as text; empty if there are none."""
        return "\n".join(line for heading, lines in self.proposed.items() for line in (f"# in {heading}", *lines))

    def to_show(self) -> str:
        """Return constraints that these rows can show for new people, if they may not show those of the job."""
        asked = [one for one in self.constraints if isinstance(one, _GAPS_OF_RATES) and one.measure != "loss"]
        short = [one for one in asked if not one.cross and one.epsilon < self._provable(type(one))]
        if len(self.labels) != 2 or not self.groups or not short:
            return ""
        lines = []
        for kind in _GAPS_OF_RATES:
            least = _OPTIMISM * self._provable(kind)
            if least <= _WIDEST:
                step = 0.05 if least > 0.1 else 0.01
                measure = {} if kind is DemographicParity else {"measure": "error"}
                bound = {"epsilon": round(step * math.ceil(least / step), 2), "confidence": LEVEL}
                lines.append(f"constraint = {toml_text({'kind': kind.kind, **measure, **bound})}")
        told = "; ".join(f"{one.kind} within {one.epsilon:g}" for one in short)
        ways = [
            "compare fewer and larger groups",
            *(["or take one of these, which they are likely to show"] if lines else []),
        ]
        return "\n".join([f"so few rows may not show {told} for new people: {', '.join(ways)}", *lines])

    def _provable(self, kind: type[Constraint]) -> float:
        """Return the gap that these rows prove for all attributes at once, with half of the decisions wrong."""
        labels = getattr(kind, "labels", (None,))
        sizes = [
            [sum(one.counts) if label is None else one.counts[0 if label > 0 else 1] for one in groups]
            for groups in self._by_attribute().values()
            for label in labels
        ]
        comparisons = sum(math.comb(len(one), 2) for one in sizes)
        return max(smallest_gap(one, comparisons=comparisons).worst for one in sizes)

    def _by_attribute(self) -> dict[str, list[GroupFound]]:
        found: dict[str, list[GroupFound]] = {}
        for one in self.groups:
            found.setdefault(one.attribute, []).append(one)
        return found

    def shown(self) -> Iterator[Table]:
        """Yield the findings as tables."""
        if self.tables:
            table = BareTable("tables", "owner", "rows", "used", "held out")
            for one in self.tables:
                table.add_row(as_text(one.owner), f"{one.rows:,}", _count(one.used), _count(one.test))
            yield table
        if self.columns:
            table = BareTable("columns", "owner", "column", "kind", "missing", "features")
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
        table = BareTable("training rows by group and label", "attribute", "group")
        for label in self.labels:
            table.add_column(as_text(label), justify="right")
        for one in self.groups:
            table.add_row(as_text(one.attribute), as_text(one.group), *(f"{count:,}" for count in one.counts))
        return table

    def _gaps(self) -> Table:
        """Return the smallest gap between any two groups that these rows can prove for new people."""
        table = BareTable(
            "smallest gap that these rows can prove for new people, at 95 % confidence", "attribute", "gap in"
        )
        table.add_column("at best", justify="right")
        table.add_column("at worst", justify="right")
        names = [f"rates of errors among {label} (equalized odds)" for label in self.labels]
        whole = "rates of each prediction (demographic parity)"
        if len(self.labels) == 2:
            names = ["false-negative rates (equal opportunity)", "false-positive rates"]
            whole = "selection rates (demographic parity)"
        for attribute, groups in self._by_attribute().items():
            counts = {name: [one.counts[place] for one in groups] for place, name in enumerate(names)}
            counts[whole] = [sum(one.counts) for one in groups]
            for name, rows in counts.items():
                gap = smallest_gap(rows)
                table.add_row(as_text(attribute), as_text(name), f"{gap.best:.3f}", f"{gap.worst:.3f}")
        return table


def _count(value: int | None) -> str:
    return "" if value is None else f"{value:,}"
