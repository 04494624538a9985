"""Find slices that are too small for a constraint, before training.

Rates are unknown before training, so a slice is reported only if it is too small for any model:

- one row is more than ε/2 of it, so its rate moves in steps of about ε;
- even without errors z·SE > ε, so no model could prove ε.

`evenhand.metrics` reports what a trained model proves.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Final

import numpy as np
import pandas as pd

from evenhand.arrays import Array
from evenhand.constraints.binding import compared_groups, empty_slice, inequalities
from evenhand.constraints.groups import CROSSES, Groups, crossed_name
from evenhand.constraints.kinds import Constraints, as_list
from evenhand.constraints.proving import LEVEL, critical_value, rate_variance
from evenhand.constraints.slices import Inequality, Slice
from evenhand.errors import SmallSliceWarning

# For an ε of zero, report slices in which one row is more than a twentieth.
_INSTEAD_OF_ZERO: Final = 0.1
_MOST_NAMED: Final = 8


@dataclass(frozen=True)
class SmallSlice:
    """A slice that is too small for a bound.

    Attributes
    ----------
    rows
        How many rows of data are in it.
    tolerance
        The bound: ε, or a limit.
    standard_error
        Of its mean: an upper bound for a rate, a rough value for a mean loss (a standard deviation of one).
    """

    part: Slice
    rows: int
    tolerance: float
    standard_error: float
    is_rate: bool

    def __str__(self) -> str:
        about = "at most" if self.is_rate else "about"
        rows = "1 row" if self.rows == 1 else f"{self.rows} rows"
        return f"[{self.part}] ({rows}, standard error {about} {self.standard_error:.2g}, bound {self.tolerance:g})"


def small_slices(
    rows: Sequence[Inequality], counts: Mapping[Slice, int], level: float = LEVEL
) -> tuple[SmallSlice, ...]:
    """Return the slices that are too small for the bounds; `counts` has the number of rows of each slice.

    A slice is named once, with the tightest bound it is too small for. Empty slices are refused elsewhere.
    """
    z = critical_value(level, len(rows))
    found: dict[Slice, SmallSlice] = {}
    for row in rows:
        is_rate = row.measure.is_rate
        tolerance = min(abs(bound) for bound in (row.lower, row.upper) if np.isfinite(bound)) or _INSTEAD_OF_ZERO
        sizes = {part: counts[part] for _, part in row.terms}
        least_error = float(np.sqrt(rate_variance(0.0, list(sizes.values())).sum()))
        for part, size in sizes.items():
            unresolved = size * tolerance < 2.0
            unproven = is_rate and z * least_error > tolerance and size == min(sizes.values())
            known = found.get(part)
            if size and (unresolved or unproven) and (known is None or known.tolerance > tolerance):
                spread = 0.5 if is_rate else 1.0
                found[part] = SmallSlice(part, size, tolerance, spread / np.sqrt(size), is_rate)
    return tuple(sorted(found.values(), key=lambda one: one.rows))


def left_out(groups: Groups) -> list[str]:
    """Return combinations of the attributes' groups that the crossing leaves out."""
    crossing = crossed_name(groups)
    if crossing is None:
        return []
    everything = product(*(map(str, groups[name]) for name in crossing.split(CROSSES)))
    compared = set(groups[crossing])
    return [joined for values in everything if (joined := CROSSES.join(values)) not in compared]


def check_slices(
    constraints: Constraints,
    labels: Array,
    frame: pd.DataFrame,
    groups: Groups | None = None,
    *,
    owner: str = "",
    stacklevel: int = 3,
) -> None:
    """Refuse empty slices; warn of slices that are too small for the constraints, and of crossings that are left out.

    Parameters
    ----------
    labels, frame
        Labels (±1) and sensitive attributes of the rows that the constraints are over.
    groups
        Agreed values of the attributes, if any.
    owner
        Owner of the rows, if they are not all rows.
    """
    frame, groups = compared_groups(constraints, labels, frame, groups)
    rows = inequalities(constraints, groups)
    counts = {part: int(part.inside(labels, frame).sum()) for row in rows for _, part in row.terms}
    for row in rows:
        for _, part in row.terms:
            if not counts[part]:
                raise empty_slice(part, row, len(labels))
    crossed = any(constraint.crosses for constraint in as_list(constraints))
    warn_of_counts(rows, counts, groups if crossed else {}, owner=owner, stacklevel=stacklevel + 1)


def warn_of_counts(
    rows: Sequence[Inequality],
    counts: Mapping[Slice, int],
    crossed: Groups,
    *,
    owner: str = "",
    stacklevel: int = 3,
) -> None:
    """Warn as `check_slices` does, from the number of rows in each slice.

    Parameters
    ----------
    crossed
        Groups of the attributes and of their crossing, if a constraint asks for it.
    """
    prefix = f"{owner}: " if owner else ""
    if small := small_slices(rows, counts):
        warnings.warn(
            f"{prefix}too few rows to say anything about the bound: {_named(small)}. What holds on these rows may not "
            "hold for new people: merge such groups, widen the bound, or get more rows",
            SmallSliceWarning,
            stacklevel=stacklevel,
        )
    if missing := left_out(crossed):
        warnings.warn(
            f"{prefix}crossings without rows in a compared slice are left out: {_named(missing)}",
            SmallSliceWarning,
            stacklevel=stacklevel,
        )


def _named(things: Sequence[object]) -> str:
    more = f"; and {len(things) - _MOST_NAMED} more" if len(things) > _MOST_NAMED else ""
    return "; ".join(map(str, things[:_MOST_NAMED])) + more
