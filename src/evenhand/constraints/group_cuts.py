"""Choose a cut for each group, so that a bounded rate is equal in all of them.

A cut of its own for each group equalises rates after training (Hardt, Price and Srebro, "Equality of Opportunity in
Supervised Learning", 2016). Decisions then use the sensitive attribute.

At a *level*, each group's cut is the one at which its rate is at that level. Equalized odds bounds two rates, which one
cut cannot equalise both. There the level is that of their mean: the two gaps are then equal in size, and for two groups
no cuts of this level have a smaller largest gap. The rule chooses the level by the rows of all groups together.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from evenhand.arrays import Array, Integers
from evenhand.constraints.kinds import Constraint
from evenhand.constraints.thresholds import Ranked, Threshold
from evenhand.errors import ConstraintError, InputError
from evenhand.printing import quoted

_RATES: Final = {"demographic-parity": (None,), "equal-opportunity": (1,), "equalized-odds": (1, -1)}
"""The labels among which selection rates are compared; None is both together."""
MEANING: Final = (
    "decisions use the sensitive attribute: rows of different groups are selected from different scores. This is "
    "unlawful in some fields, such as credit in the United States or the price of insurance by sex in the European "
    "Union"
)


def split_closed(
    constraints: Sequence[Constraint], by: str, rule: Threshold | None
) -> tuple[tuple[Constraint, ...], Constraint | None]:
    """Return the constraints of training, and the one that cuts by group close.

    Parameters
    ----------
    by
        The sensitive attribute with a cut for each group; empty for one cut.
    rule
        The rule that chooses the level.
    """
    if not isinstance(by, str):
        raise InputError(f"threshold_by is {quoted(by)}; give the name of a sensitive attribute")
    if not by:
        return tuple(constraints), None
    if rule is None:
        raise InputError(
            "threshold_by needs a rule as threshold, which chooses how many rows are selected: 'accuracy', 'cost', "
            "'rate', 'recall' or 'precision'"
        )
    rates = [one for one in constraints if getattr(one, "measure", "") != "loss"]
    if len(rates) != 1 or not _closes(rates[0]):
        given = ", ".join(one.kind for one in constraints) or "none"
        raise ConstraintError(
            "threshold_by needs exactly one constraint on rates, which the cuts meet: demographic-parity, or "
            "equal-opportunity or equalized-odds with measure 'error', without confidence and crossings; the "
            f"constraints are: {given}"
        )
    return tuple(one for one in constraints if one is not rates[0]), rates[0]


def _closes(constraint: Constraint) -> bool:
    measures = ("positive",) if constraint.kind == "demographic-parity" else ("positive", "error")
    plain = constraint.level is None and not constraint.crosses
    return constraint.kind in _RATES and getattr(constraint, "measure", "") in measures and plain


def check_attribute(by: str, attributes: Sequence[str]) -> None:
    """Refuse an attribute that is not among the sensitive ones, and further ones, whose gaps the cuts leave."""
    if not by:
        return
    if by not in attributes:
        known = ", ".join(map(repr, attributes)) or "none"
        raise InputError(f"threshold_by is {by!r}, which is no sensitive attribute; there is {known}")
    if len(attributes) > 1:
        others = ", ".join(repr(one) for one in attributes if one != by)
        raise InputError(
            f"threshold_by is {by!r}, but the constraint compares the groups of {others} too, which these cuts do not "
            "make equal; name one sensitive attribute only"
        )


def equal_rates(
    rule: Threshold, constraint: Constraint, groups: Sequence[Ranked], *, within: float | None = None
) -> list[int]:
    """Return the place of each group's cut: the level is the best by the rule among those where rates are equal.

    Parameters
    ----------
    groups
        The cuts of each group, from the one that selects nobody down.
    within
        If given, the cuts between the first and the last are only those near a level, unless they reach to scores of
        this size. Levels for which a group lacks its own cut are then left out.
    """
    rates = [_rate(one, constraint) for one in groups]
    levels = np.unique(np.concatenate(rates))
    if within is not None:
        least = max(rate[0 if one.cuts[1] >= within else 1] for one, rate in zip(groups, rates, strict=True))
        most = min(rate[-1 if one.cuts[-2] <= -within else -2] for one, rate in zip(groups, rates, strict=True))
        levels = levels[(levels >= least - 1e-12) & (levels <= most + 1e-12)]
    places = np.array([_at_levels(rate, levels) for rate in rates])
    # The first place selects nobody, and the last everybody.
    places = np.column_stack([[0] * len(rates), places, [len(rate) - 1 for rate in rates]])
    hits, selected, cuts = (
        np.mean([getattr(one, name)[place] for one, place in zip(groups, places, strict=True)], axis=0)
        for name in ("hits", "selected", "cuts")
    )
    size = len(groups)
    return [int(one) for one in places[:, rule.place(Ranked(cuts, hits * size, selected * size))]]


def around(one: Ranked, place: int, constraint: Constraint) -> tuple[float, float]:
    """Return the next cuts below and above one at which the bounded rate is larger, and smaller.

    The cuts that select everybody and nobody are beyond all scores: bins between them and another cut would be too wide
    to tell rows apart. So the outermost cuts before them take their place.
    """
    rate, last = _rate(one, constraint), len(one.cuts) - 1
    more = int(np.searchsorted(rate, rate[place] + 1e-12, side="right"))
    fewer = int(np.searchsorted(rate, rate[place] - 1e-12)) - 1
    inner = min(more, last - 1), max(fewer, 1)
    more, fewer = inner if inner[0] > inner[1] else (min(more, last), max(fewer, 0))
    return float(one.cuts[more]), float(one.cuts[fewer])


def _at_levels(rate: Array, levels: Array) -> Integers:
    """Return the first cut of the largest rate that is not above each level."""
    largest = rate[np.searchsorted(rate, levels + 1e-12, side="right") - 1]
    return np.searchsorted(rate, largest - 1e-12)


def _rate(one: Ranked, constraint: Constraint) -> Array:
    """Return the bounded rate at each cut, or the mean of two."""
    everybody: dict[Any, Array] = {None: one.selected, 1: one.hits, -1: one.selected - one.hits}
    labels = _RATES[constraint.kind]
    if any(everybody[label][-1] == 0 for label in labels):
        raise ConstraintError("threshold_by: a group has no rows of a label that the constraint compares; merge groups")
    return np.mean([everybody[label] / everybody[label][-1] for label in labels], axis=0)
