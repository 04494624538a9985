"""Choose the cut: the score above which a row is decided positive.

A model gives scores; somebody has to decide from which score on a row is selected. A rule says what matters: the share
of correct decisions, the cost of mistakes, how many rows can be selected, or which recall or precision is needed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, NamedTuple, TypeAlias, get_args

import numpy as np

from evenhand.arrays import Array, Integers
from evenhand.constraints.losses import Measure
from evenhand.constraints.slices import Inequality, Slice
from evenhand.errors import InputError, ProtocolError
from evenhand.printing import is_number, quoted

RuleName = Literal["accuracy", "cost", "rate", "recall", "precision"]
_EXAMPLES: Final = {"missed": 10, "false_alarm": 1, "capacity": 0.05, "target": 0.6}
BEYOND: Final = 1e6
"""A cut beyond all scores, at which nobody is selected; its negative selects everybody."""
RULES: Final[tuple[RuleName, ...]] = get_args(RuleName)
Band: TypeAlias = tuple[float, float]
"""Lower and upper bound of the share of rows that is selected."""
ANY_SHARE: Final[Band] = (-1.0, 2.0)
"""Bounds that no share reaches."""


@dataclass(frozen=True)
class Threshold:
    """A rule that chooses the cut from scores and labels.

    Parameters
    ----------
    rule
        ``"accuracy"``: most correct decisions. ``"cost"``: smallest total cost. ``"rate"``: most rows within
        `capacity`. ``"recall"``: fewest rows that reach `target`. ``"precision"``: most rows that reach `target`.
    missed, false_alarm
        With ``"cost"``: cost of a positive row that is not selected, and of a negative row that is.
    capacity
        With ``"rate"``: share of rows that can be selected.
    target
        With ``"recall"`` and ``"precision"``: the value to reach.
    """

    rule: RuleName
    missed: float | None = None
    false_alarm: float | None = None
    capacity: float | None = None
    target: float | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.rule, str) or self.rule not in RULES:
            known = ", ".join(map(repr, RULES))
            raise InputError(f"threshold is {quoted(self.rule)}; give a number between 0 and 1, or one of {known}")
        wanted = {
            "cost": ("missed", "false_alarm"),
            "rate": ("capacity",),
            "recall": ("target",),
            "precision": ("target",),
        }.get(self.rule, ())
        for name in ("missed", "false_alarm", "capacity", "target"):
            value = getattr(self, name)
            if name not in wanted and value is not None:
                raise InputError(f"threshold {self.rule!r} does not use {name}; remove it")
            if name not in wanted:
                continue
            if value is None:
                example = ", ".join(f"{one}={_EXAMPLES[one]:g}" for one in wanted)
                raise InputError(f"threshold {self.rule!r} needs {name}, such as Threshold({self.rule!r}, {example})")
            if not (is_number(value) and value > 0):
                raise InputError(f"{name} is {quoted(value)}; it must be a positive number")
            if name in ("capacity", "target") and value > 1:
                raise InputError(f"{name} is {quoted(value)}; it is a share, so it must be at most 1")

    def choose(self, signs: Array, scores: Array) -> float:
        """Return the cut for rows with labels ±1; it lies between two scores, so that no row is at it."""
        ranked = Ranked.of_scores(signs, scores)
        return float(ranked.cuts[self.place(ranked)])

    def band(self, share: float, rows: float) -> Band:
        """Return the bounds that keep a model to the share that this rule has selected, one standard error wide.

        Training under bounds on rates moves scores across a cut. Without these bounds a model may meet the others by
        selecting nobody or everybody, at a cut that was chosen for a model that did neither.
        """
        width = max(2.0 / rows, float(np.sqrt(share * (1.0 - share) / rows)))
        upper = share + width / 2.0 if self.capacity is None else self.capacity
        return upper - width, upper

    def place(self, ranked: Ranked) -> int:
        """Return the index of the best of some cuts."""
        cuts, hits, selected = ranked
        positives, rows = round(hits[-1]), round(selected[-1])
        if self.rule == "rate":
            assert self.capacity is not None
            return int(np.flatnonzero(selected <= self.capacity * rows + 1e-9)[-1])
        if self.rule == "recall":
            assert self.target is not None
            return int(np.flatnonzero(hits >= self.target * positives - 1e-9)[0])
        if self.rule == "precision":
            assert self.target is not None
            precision = hits / np.maximum(selected, 1)
            reached = np.flatnonzero(precision >= self.target - 1e-12)
            return int(reached[-1] if len(reached) else np.argmax(precision))
        missed, false_alarm = self.missed or 1.0, self.false_alarm or 1.0
        cost = missed * (positives - hits) + false_alarm * (selected - hits)
        best = np.flatnonzero(cost <= cost.min() + 1e-9)
        # Of equal cuts, take the one nearest to that of calibrated scores.
        return int(best[np.argmin(np.abs(cuts[best] - np.log(false_alarm / missed)))])


class Ranked(NamedTuple):
    """Some cuts, from one that selects nobody down to one that selects everybody.

    Attributes
    ----------
    cuts
        Falling scores.
    hits, selected
        Positives, and rows of both labels, above each cut.
    """

    cuts: Array
    hits: Array
    selected: Array

    @classmethod
    def of_scores(cls, signs: Array, scores: Array) -> Ranked:
        """Return the cuts between the scores of rows with labels ±1."""
        order = np.argsort(-scores, kind="stable")
        ranked, positive = scores[order], signs[order] > 0
        # After this many rows the score changes: only there can a cut be.
        ends = np.append(np.flatnonzero(np.diff(ranked) != 0.0) + 1, len(ranked))
        hits = np.concatenate([[0], np.cumsum(positive)[ends - 1]])
        selected = np.concatenate([[0], ends])
        above = np.concatenate([[ranked[0] + 1.0], ranked[ends - 1]])
        below = np.append(ranked[ends[:-1]], ranked[-1] - 1.0)
        return cls((above + np.concatenate([[ranked[0]], below])) / 2.0, hits, selected)

    @classmethod
    def of_bins(cls, edges: Array, negatives: Integers, positives: Integers) -> Ranked:
        """Return rising edges of bins as cuts.

        Parameters
        ----------
        negatives, positives
            Rows of each label below the first edge, between each two, and above the last.
        """
        hits, wrong = (np.concatenate([[0], np.cumsum(one[::-1])]) for one in (positives, negatives))
        return cls(np.concatenate([[BEYOND], edges[::-1], [-BEYOND]]), hits, hits + wrong)

    def around(self, place: int) -> tuple[float, float]:
        """Return the next cuts below and above one."""
        return float(self.cuts[min(place + 1, len(self.cuts) - 1)]), float(self.cuts[max(place - 1, 0)])


def as_band(values: Array) -> Band:
    """Return bounds of a share from a message; refuse those that no share is between."""
    low, high = map(float, values)
    if not (low <= high and low <= 1.0 and high >= 0.0):
        raise ProtocolError(f"no share of rows is between {low:g} and {high:g}")
    return low, high


def selected(band: Band, cut: float) -> Inequality:
    """Return the inequality that bounds the share of rows with scores above the cut."""
    return Inequality(((1.0, Slice()),), *band, Measure("positive", cut=cut))


class Cut(NamedTuple):
    """The cut of a model.

    Attributes
    ----------
    score
        Rows with a larger score are decided positive.
    rule
        The number or rule that was asked for.
    chosen_on
        The rows whose scores it was chosen on; None if it was given as a number.
    asked
        The capacity or target of the rule.
    by, groups
        The sensitive attribute with a cut for each group, and these cuts by the group's name; `score` is then for rows
        of no known group. None for one cut.
    """

    score: float = 0.0
    rule: str = "0.5"
    chosen_on: str | None = None
    asked: float | None = None
    by: str | None = None
    groups: Mapping[str, float] | None = None

    def of_rows(self, groups: Any) -> float | Array:
        """Return the cut, or each row's own.

        Parameters
        ----------
        groups
            Columns of groups by attribute, where the cuts are by group.
        """
        if self.groups is None:
            return self.score
        return np.array([self.groups.get(group_text(one), self.score) for one in groups[self.by]], dtype=np.float64)

    def unknown(self, groups: Any) -> int:
        """Return how many rows have no known group, and get the general cut."""
        if self.groups is None:
            return 0
        return sum(group_text(one) not in self.groups for one in groups[self.by])

    @classmethod
    def of_rule(cls, rule: Threshold, score: float, chosen_on: str) -> Cut:
        """Return the cut that a rule has chosen."""
        return cls(score, rule.rule, chosen_on, rule.target if rule.capacity is None else rule.capacity)


WITHOUT_RULE: Final = Cut()
"""The cut at probability one half."""


def group_text(group: Any) -> str:
    """Return the name of a group by which its cut is found."""
    return str(group.item() if isinstance(group, np.generic) else group)


def as_threshold(given: Any) -> float | Threshold:
    """Return a probability, or a rule; a rule's name alone is a rule without numbers."""
    if isinstance(given, Threshold):
        return given
    if isinstance(given, str):
        return Threshold(given)  # type: ignore[arg-type]
    if not is_number(given) or not 0 < given < 1:
        known = ", ".join(map(repr, RULES))
        raise InputError(f"threshold is {quoted(given)}; give a number between 0 and 1, or one of {known}")
    return float(given)


def fixed_cut(threshold: float | Threshold) -> float:
    """Return the score of a probability; a rule starts at the score of calibrated probabilities."""
    if isinstance(threshold, Threshold):
        return float(np.log((threshold.false_alarm or 1.0) / (threshold.missed or 1.0)))
    return float(np.log(threshold / (1.0 - threshold)))
