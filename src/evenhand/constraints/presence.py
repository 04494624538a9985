"""Patterns of presence: people whose rows the same other parties have, for constraints that hold in each pattern.

A pattern that is rare in some compared slice has no bound of its own: rare patterns share one.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import replace
from typing import Final

import numpy as np
import pandas as pd

from evenhand.arrays import Array, Booleans
from evenhand.constraints.binding import compared_groups, inequalities
from evenhand.constraints.groups import PATTERNS
from evenhand.constraints.kinds import Constraint, Constraints, as_list
from evenhand.errors import ConstraintError, DataError, SmallSliceWarning

NOBODY: Final = "no other party"
OTHERS: Final = "other parties (rare patterns)"
ANY: Final = "any parties (all patterns)"
FEWEST_IN_PATTERN: Final = 100
"""Fewest training rows of a pattern in each slice that a constraint compares, for a bound of its own."""

Presence = Mapping[str, Booleans]
"""For each party other than the label holder: which of the label holder's rows it has."""


def patterns_of(presence: Presence) -> Array:
    """Return each row's pattern: names of the other parties that have it."""
    names, bits = list(presence), np.array(list(presence.values()), dtype=bool)
    kinds, which = np.unique(bits.T, axis=0, return_inverse=True)
    words = [" + ".join(name for name, one in zip(names, kind, strict=True) if one) or NOBODY for kind in kinds]
    return np.array(words, dtype=object)[which.ravel()]


def frequent(patterns: Array) -> Array:
    """Return the patterns, with one name for those of fewer than `FEWEST_IN_PATTERN` rows, for tables."""
    names, counts = np.unique(patterns, return_counts=True)
    rare = set(names[counts < FEWEST_IN_PATTERN])
    return np.array([OTHERS if one in rare else one for one in patterns], dtype=object)


def with_patterns(
    constraints: Constraints,
    labels: Array,
    frame: pd.DataFrame,
    presence: Presence | None,
    training: Booleans | None = None,
) -> pd.DataFrame:
    """Add each row's pattern as a column, if a constraint holds by pattern; else return the frame as it is.

    Parameters
    ----------
    labels, frame
        Labels and sensitive attributes of the rows.
    presence
        Who has which of these rows; None if nobody says.
    training
        Which of these rows are training rows: they decide which patterns are rare. None is all. A pattern without
        training rows counts as the rarest.
    """
    asked = [one for one in as_list(constraints) if one.splits_patterns]
    if not asked:
        return frame
    if PATTERNS in frame:
        raise DataError(f"a sensitive attribute is called {PATTERNS!r}, which is reserved for presence; rename it")
    if not presence:
        raise ConstraintError(
            f"constraint {asked[0].kind} has by_presence=True, but nobody says which parties have which rows; train "
            'with ids = "left" or "private-left"'
        )
    known = np.ones(len(labels), dtype=bool) if training is None else training
    patterns = patterns_of(presence)
    merged = _merged(patterns[known], _slices(asked, labels[known], frame[known]))
    if ANY in merged.values():
        warnings.warn(
            f"constraint {asked[0].kind}: fewer than two patterns of presence have {FEWEST_IN_PATTERN} training rows "
            "in each compared slice, so that by_presence bounds all rows together; get more rows, or merge groups",
            SmallSliceWarning,
            stacklevel=3,
        )
    rarest = min(merged.values(), key=lambda one: (one != OTHERS, (patterns == one).sum()))
    return frame.assign(**{PATTERNS: [merged.get(one, rarest) for one in patterns]})


def _slices(constraints: list[Constraint], labels: Array, frame: pd.DataFrame) -> list[Booleans]:
    """Return which rows are in each slice that the constraints compare."""
    whole = [replace(one, **{"by_presence": False}) for one in constraints]
    frame, groups = compared_groups(whole, labels, frame)
    parts = dict.fromkeys(part for row in inequalities(whole, groups) for _, part in row.terms)
    return [part.inside(labels, frame) for part in parts]


def _merged(patterns: Array, slices: list[Booleans]) -> dict[str, str]:
    """Return what each pattern is called: its own name, or that of the patterns that share one bound."""
    names, rows = np.unique(patterns, return_inverse=True)
    counts = np.array([np.bincount(rows[one], minlength=len(names)) for one in slices]).reshape(-1, len(names))
    rare = counts.min(axis=0) < FEWEST_IN_PATTERN
    by_size = np.argsort(np.bincount(rows, minlength=len(names)), kind="stable")
    for place in by_size:
        if rare.any() and counts[:, rare].sum(axis=1).min() < FEWEST_IN_PATTERN:
            rare[place] = True
    shared = ANY if rare.all() and len(names) > 1 else OTHERS
    return {str(name): shared if one else str(name) for name, one in zip(names, rare, strict=True)}
