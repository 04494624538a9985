"""Slices of the data, and inequalities over their means.

A *slice* is a set of rows of the data ("label positive and sex female"); g_s is the mean of a measure over it. A
inequality bounds a linear combination of such means.

Bounds are `lower ≤ value ≤ upper`, one pair for each constraint row.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pandas as pd

from evenhand.arrays import Array, Booleans, Integers
from evenhand.constraints.groups import PATTERNS
from evenhand.constraints.losses import Measure
from evenhand.errors import ConstraintError


class Bounds:
    """Lower and upper bounds of R rows.

    Attributes
    ----------
    row, sign, bound
        Side l asks for sign_l · (value of row_l − bound_l) ≤ 0: upper sides first, then lower ones.
    free
        Which sides are equalities: exactly zero, with a multiplier of either sign.
    """

    def __init__(self, lower: npt.ArrayLike, upper: npt.ArrayLike) -> None:
        self.lower: Array = np.array(lower, dtype=np.float64).reshape(-1)
        self.upper: Array = np.array(upper, dtype=np.float64).reshape(-1)
        if self.lower.shape != self.upper.shape:
            raise ConstraintError(f"{len(self.lower)} lower and {len(self.upper)} upper bounds; give one each per row")
        if np.isnan(self.lower).any() or np.isnan(self.upper).any():
            raise ConstraintError("a bound is NaN; use infinity for a side without a bound")
        wrong = (self.lower > self.upper) | (self.lower == np.inf) | (self.upper == -np.inf)
        if wrong.any():
            row = int(np.flatnonzero(wrong)[0])
            raise ConstraintError(f"row {row} has bounds [{self.lower[row]}, {self.upper[row]}], which nothing meets")
        self.equal: Booleans = self.lower == self.upper
        above = np.isfinite(self.upper)
        below = np.isfinite(self.lower) & ~self.equal
        self.n_rows = len(self.lower)
        self.row: Integers = np.concatenate([np.flatnonzero(above), np.flatnonzero(below)]).astype(np.int64)
        self.sign: Array = np.concatenate([np.ones(int(above.sum())), -np.ones(int(below.sum()))])
        self.bound: Array = np.concatenate([self.upper[above], self.lower[below]])
        self.free: Booleans = np.concatenate([self.equal[above], np.zeros(int(below.sum()), dtype=bool)])
        self.n_sides = len(self.row)
        self.has_free = bool(self.free.any())
        # Entry (l, r) is sign_l where side l belongs to row r.
        self.incidence: Array = np.zeros((self.n_sides, self.n_rows))
        self.incidence[np.arange(self.n_sides), self.row] = self.sign

    # -- rows: values (R,), tables of multipliers (2, R)

    def excess(self, values: Array) -> Array:
        """Return (2, R): how far each side is exceeded; negative where there is slack, −∞ where there is no bound."""
        return np.stack([values - self.upper, self.lower - values])

    def violation(self, values: Array) -> float:
        """Return the worst excess, zero when every row holds; rows without a value (NaN) are left out."""
        return float(np.fmax.reduce(self.excess(values), axis=None, initial=0.0))

    def complementarity(self, values: Array, table: Array) -> float:
        """Return complementary slackness: the largest |multiplier × slack|, zero at a solution."""
        return self._complementarity(self.excess(values), table)

    def _complementarity(self, excess: Array, table: Array) -> float:
        # A side without a bound has λ = 0; skip it, since 0 · ∞ is NaN.
        known = np.where(np.isfinite(excess), excess, 0.0)
        return float(np.abs(table * known).max(initial=0.0))

    def distance(self, values: Array, table: Array) -> float:
        """Return dist∞(c(w), N(μ)) (proximal AL Definition 1): violations, and slack of sides with a multiplier."""
        return self._distance(self.excess(values), table)

    def _distance(self, excess: Array, table: Array) -> float:
        tight = self.equal | (table > 0.0)
        return float(np.where(tight, np.abs(excess), np.maximum(excess, 0.0)).max(initial=0.0))

    def conditions(self, values: Array, table: Array) -> tuple[float, float, float]:
        """Return violation, complementarity and distance."""
        excess = self.excess(values)
        violation = float(np.fmax.reduce(excess, axis=None, initial=0.0))
        return violation, self._complementarity(excess, table), self._distance(excess, table)

    def no_multipliers(self) -> Array:
        """Return λ = 0, as a table."""
        return np.zeros((2, self.n_rows))

    # -- sides: vectors (L,)

    def side_excess(self, values: Array) -> Array:
        """Return the scalar constraints c(w), from the rows' values."""
        return self.sign * (values[self.row] - self.bound)

    def project(self, multipliers: Array) -> Array:
        """Project onto the allowed multipliers: [·]₊ for inequalities, unchanged for equalities."""
        positive: Array = np.maximum(multipliers, 0.0)
        return np.where(self.free, multipliers, positive) if self.has_free else positive

    def missed(self, values: Array) -> Array:
        """Return how far each side is violated, with its sign for an equality."""
        return self.project(self.side_excess(values))

    def net(self, multipliers: Array) -> Array:
        """Return λ⁺ − λ⁻ of each row: ∇c(w)μ is the Jacobian of the rows times this."""
        return multipliers @ self.incidence

    def of_net(self, net: Array) -> Array:
        """Split net multipliers into multipliers of the sides."""
        return self.project(self.sign * net[self.row])

    def table(self, multipliers: Array) -> Array:
        """Return the multipliers as a table (2, R): λ⁺ and λ⁻ of each row."""
        signed = self.sign * multipliers
        return np.stack(
            [
                np.bincount(self.row, weights=np.maximum(signed, 0.0), minlength=self.n_rows),
                np.bincount(self.row, weights=np.maximum(-signed, 0.0), minlength=self.n_rows),
            ]
        )


NO_BOUNDS = Bounds([], [])


_MEANS: Final[dict[str, dict[int | None, str]]] = {
    "loss": {None: "mean loss", 1: "mean loss among positives", -1: "mean loss among negatives"},
    "error": {None: "error rate", 1: "false-negative rate", -1: "false-positive rate"},
    "prediction": {
        None: "mean prediction",
        1: "mean prediction among positives",
        -1: "mean prediction among negatives",
    },
    "positive": {None: "selection rate", 1: "true-positive rate", -1: "selection rate among negatives"},
}
"""What the mean of a measure over all rows, positives or negatives is called."""


@dataclass(frozen=True)
class Slice:
    """Rows with a given label (None for any) and, if an attribute is named, a given group.

    Labels are ±1, or class indices, and `class_name` then says which class. A `pattern` takes the rows that the same
    other parties have.
    """

    label: int | None = None
    attribute: str | None = None
    group: Hashable = None
    class_name: str = field(default="", compare=False)
    pattern: str | None = None

    def __str__(self) -> str:
        who = self._who()
        return who if self.pattern is None else f"{who}, {PATTERNS} {self.pattern}"

    def _who(self) -> str:
        named = f"class {self.class_name or self.label}"
        who = named if self.class_name else {1: "positives", -1: "negatives"}.get(self.label or 0, named)
        if self.attribute is None:
            return "all rows" if self.label is None else who
        group = f"{self.attribute} = {self.group}"
        return group if self.label is None else f"{who} with {group}"

    @property
    def formula(self) -> str:
        parts = [] if self.label is None else [f"y={self.class_name or format(self.label, '+d')}"]
        if self.attribute is not None:
            parts.append(f"{self.attribute}={self.group}")
        if self.pattern is not None:
            parts.append(f"{PATTERNS}={self.pattern}")
        return " & ".join(parts) or "all"

    def inside(self, labels: Array, groups: pd.DataFrame | Mapping[str, Any]) -> Booleans:
        """Return which rows of data are in the slice; `groups` has a column of values for each attribute."""
        found = np.ones(len(labels), dtype=bool)
        if self.label is not None:
            found &= labels == self.label
        if self.attribute is not None:
            found &= np.asarray(groups[self.attribute] == self.group)
        if self.pattern is not None:
            found &= np.asarray(groups[PATTERNS] == self.pattern)
        return found


@dataclass(frozen=True)
class Inequality:
    """lower ≤ Σ coefficient · mean of the measure over slice ≤ upper.

    Attributes
    ----------
    reach
        How many standard errors around its value must be within the bounds too; zero bounds the value alone.
    """

    terms: tuple[tuple[float, Slice], ...]
    lower: float
    upper: float
    measure: Measure
    reach: float = 0.0

    def within(self, pattern: str) -> Inequality:
        """Return the inequality among the rows of one pattern of presence."""
        return replace(self, terms=tuple((one, replace(part, pattern=pattern)) for one, part in self.terms))

    @property
    def columns(self) -> set[str]:
        """Names of the columns of groups that the slices depend on."""
        named = {part.attribute for _, part in self.terms if part.attribute is not None}
        return named | {PATTERNS for _, part in self.terms if part.pattern is not None}

    def __str__(self) -> str:
        """Say what is bounded as a person would: "false-negative rate, 60+ vs. under 30 (age)"."""
        patterns = {part.pattern for _, part in self.terms}
        if patterns == {None} or len(patterns) > 1:
            return self._words()
        return f"{self._words()}, {PATTERNS} {patterns.pop()}"

    def _words(self) -> str:
        labels, attributes = ({getattr(part, name) for _, part in self.terms} for name in ("label", "attribute"))
        named = attributes - {None}
        plain = len(self.terms) == 1 or (len(self.terms) == 2 and len(named) == 1)
        if not plain or len(labels) != 1 or [a for a, _ in self.terms] not in ([1.0], [1.0, -1.0]):
            return self.formula
        mean = self._mean(labels.pop())
        if mean is None:
            return self.formula
        if not named:
            return mean
        compared = " vs. ".join("everyone" if part.attribute is None else str(part.group) for _, part in self.terms)
        return f"{mean}, {compared} ({named.pop()})"

    def _mean(self, label: int | None) -> str | None:
        """Return what the mean of the measure over rows with this label is called."""
        one = self.terms[0][1].class_name
        if self.measure.class_name:
            rate = f"rate of predicted {self.measure.class_name}"
            return f"{rate} among class {one}" if one else rate
        of_all = _MEANS[self.measure.name].get(None if one else label)
        return f"{of_all} among class {one}" if one else of_all

    @property
    def formula(self) -> str:
        """The combination of means that is bounded: error(y=+1 & age=60+) − error(y=+1 & age=under 30)."""
        signs = {1.0: "+", -1.0: "−"}
        name = f"predicted {self.measure.class_name}" if self.measure.class_name else self.measure.name
        text = " ".join(f"{signs.get(a, f'{a:+g}·')} {name}({s.formula})" for a, s in self.terms)
        return text.removeprefix("+ ")


def bounds_of(rows: Sequence[Inequality]) -> Bounds:
    return Bounds([row.lower for row in rows], [row.upper for row in rows])


def stated(names: Sequence[str], bounds: Bounds, training: Array, held_out: Array | None) -> list[dict[str, Any]]:
    """Return for each inequality its value on training rows and on held-out ones, if known, and what was asked."""
    sides = [[float(side) if np.isfinite(side) else None for side in each] for each in (bounds.lower, bounds.upper)]
    others = [None] * len(names) if held_out is None else [float(one) for one in held_out]
    return [
        {"row": name, "training rows": float(value), "held-out rows": other, "asked": [lower, upper]}
        for name, value, other, lower, upper in zip(names, training, others, *sides, strict=True)
    ]
