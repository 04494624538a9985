"""Count rows of data by label and group: the one engine behind metrics of scores and of decisions.

Rows that share labels and groups form a *stratum*. Every metric is a function of sums over strata, so one definition
serves the estimate and all resamples at once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Final, NamedTuple

import numpy as np

from evenhand.arrays import Array, Booleans, Integers
from evenhand.constraints.binding import strata
from evenhand.constraints.proving import mean_variance, rate_variance
from evenhand.metrics.gaps import Attribute, Gap, widest, worst_gap

# Draws held at once while resampling: bounds memory at some tens of megabytes.
_DRAWS_AT_ONCE = 1 << 21
# In a stratum of more rows than this, sums of drawn rows are normal to three digits and are drawn as such.
_LARGE: Final = 1 << 17


@dataclass(frozen=True)
class Scored:
    """The scored rows of each stratum: losses by rising score, and how many of them have no score above 0."""

    losses: list[Array]
    rejected: Integers


@dataclass(frozen=True)
class Sums:
    """Sums over each stratum, (..., strata): one leading axis for resamples, none for the estimate.

    Decisions are equal within a stratum and have no loss, so they need the number of rows only.
    """

    rows: Array
    selected: Array | None = None  # rows predicted positive
    loss: Array | None = None


@dataclass(frozen=True)
class GroupCounts:
    """Sums over the groups of one attribute, (..., groups, labels)."""

    rows: Array  # (..., groups, 1)
    positives: Array  # rows with the label
    selected: Array  # rows predicted to have the label
    hits: Array  # rows with the label that are predicted to have it
    loss: Array | None = None  # of rows with the label
    squares: Any = None  # of these losses, in the estimate


class Rate(NamedTuple):
    """A mean within each group: a sum divided by a number of rows."""

    total: Callable[[GroupCounts], Any]
    over: Callable[[GroupCounts], Array]
    mean_loss: bool = False

    def mean(self, of: GroupCounts) -> Array:
        """Return the means, (..., groups, labels); NaN where there are no rows."""
        with np.errstate(invalid="ignore", divide="ignore"):
            found: Array = self.total(of) / self.over(of)
        return found

    def variance(self, of: GroupCounts) -> Array:
        """Return the means' variances."""
        total, over = np.broadcast_arrays(self.total(of), self.over(of))
        if self.mean_loss:
            return mean_variance(total, of.squares, over)
        return rate_variance(total, over)


RATES: Final[dict[str, Rate]] = {
    "DEO": Rate(lambda of: of.loss, lambda of: of.positives, mean_loss=True),
    "DFP": Rate(lambda of: of.selected - of.hits, lambda of: of.rows - of.positives),
    "DFN": Rate(lambda of: of.positives - of.hits, lambda of: of.positives),
    "DP": Rate(lambda of: of.selected, lambda of: of.rows),
    "demographic_parity": Rate(lambda of: of.selected, lambda of: of.rows),
    "equal_opportunity": Rate(lambda of: of.hits, lambda of: of.positives),
}
WORST_OF: Final = {"equalized_odds": ("DFP", "DFN")}


@dataclass(frozen=True)
class Strata:
    """Rows counted by labels and groups.

    Attributes
    ----------
    size
        How many rows each stratum has.
    attributes
        The sensitive attributes, with each stratum's group.
    truth, predicted
        (strata, labels): which labels the rows have, and are predicted to have. `predicted` is None for scores,
        because their decisions differ within a stratum.
    measured
        The labels that are compared, each with the rest.
    scored
        The rows' losses and decisions, for scores.
    """

    size: Integers
    attributes: list[Attribute]
    truth: Booleans
    predicted: Booleans | None
    measured: list[int]
    scored: Scored | None = None

    @classmethod
    def of_scores(cls, truth: Booleans, scores: Array, losses: Array, attributes: list[Attribute]) -> Strata:
        """Count rows of a two-label model; a row is predicted positive if its score, less the cut, is above 0."""
        stratum, (label, *codes) = strata([truth.astype(np.int64), *(one.codes for one in attributes)])
        size = np.bincount(stratum)
        # Sorting by score makes resampling independent of the order of the rows, and puts rejected rows first.
        order = np.lexsort((scores, stratum))
        split = np.split(losses[order], np.cumsum(size)[:-1])
        scored = Scored(split, np.bincount(stratum[scores <= 0], minlength=len(size)))
        return cls(size, _with_codes(attributes, codes), label[:, None] > 0, None, [0], scored)

    @classmethod
    def of_decisions(cls, truth: Integers, predicted: Integers, labels: int, attributes: list[Attribute]) -> Strata:
        """Count rows with the codes of `labels` labels, true and predicted."""
        stratum, found = strata([truth, predicted, *(one.codes for one in attributes)])
        real, decided = (part[:, None] == np.arange(labels) for part in found[:2])
        return cls(np.bincount(stratum), _with_codes(attributes, found[2:]), real, decided, list(range(labels)))

    @property
    def n_rows(self) -> int:
        return int(self.size.sum())

    # -- sums

    @cached_property
    def sums(self) -> Sums:
        size = self.size.astype(np.float64)
        if self.scored is None:
            return Sums(size)
        loss = np.array([losses.sum() for losses in self.scored.losses])
        return Sums(size, (self.size - self.scored.rejected).astype(np.float64), loss)

    def resample(self, repeats: int, random: np.random.Generator) -> Sums:
        """Draw as many rows with replacement, and return their sums, (repeats, strata) each.

        The number of rows of each stratum is a multinomial. Rows of a scored stratum are then drawn one by one.
        """
        rows = random.multinomial(self.n_rows, self.size / self.n_rows, size=repeats)
        if self.scored is None:
            return Sums(rows.astype(np.float64))
        selected, loss = np.empty((2, repeats, len(self.size)))
        for place, (size, rejected) in enumerate(zip(self.size, self.scored.rejected, strict=True)):
            losses = self.scored.losses[place]
            if size > _LARGE:
                selected[:, place], loss[:, place] = _resample_large(losses, int(rejected), rows[:, place], random)
                continue
            block = max(1, _DRAWS_AT_ONCE // int(size))
            for start in range(0, repeats, block):
                counts = rows[start : start + block, place]
                ends = np.cumsum(counts)
                drawn = random.integers(size, size=ends[-1])
                for total, values in ((selected, drawn >= rejected), (loss, losses[drawn])):
                    sums = np.concatenate([[0.0], np.cumsum(values)])
                    total[start : start + block, place] = sums[ends] - sums[ends - counts]
        return Sums(rows.astype(np.float64), selected, loss)

    def right(self, sums: Sums) -> Array:
        """Count the rows with a correct decision."""
        if sums.selected is not None:
            return np.where(self.truth[:, 0], sums.selected, sums.rows - sums.selected).sum(axis=-1)
        found: Array = sums.rows @ (self.truth == self.predicted).all(axis=1)
        return found

    @cached_property
    def counts(self) -> list[GroupCounts]:
        """Counts of the estimate, for each attribute."""
        found = self.counts_of(self.sums)
        if self.scored is None:
            return found
        squares = np.array([np.square(losses).sum() for losses in self.scored.losses])
        parts = self._by_group(squares, self.truth)
        return [replace(one, squares=part) for one, part in zip(found, parts, strict=True)]

    def counts_of(self, sums: Sums) -> list[GroupCounts]:
        """Add sums over strata up to counts of groups, for each attribute."""
        everybody = np.ones((len(self.size), 1), dtype=bool)
        if sums.selected is None:
            assert self.predicted is not None
            decided = (sums.rows, self.predicted), (sums.rows, self.truth & self.predicted)
        else:
            decided = (sums.selected, everybody), (sums.selected, self.truth)
        counted = [(sums.rows, everybody), (sums.rows, self.truth), *decided]
        if sums.loss is not None:
            counted.append((sums.loss, self.truth))
        parts = [self._by_group(values, marks) for values, marks in counted]
        return [GroupCounts(*of_attribute) for of_attribute in zip(*parts, strict=True)]

    def _by_group(self, values: Array, marks: Booleans) -> list[Array]:
        """Sum (..., strata) over groups and marked strata: (..., groups, labels) for each attribute."""
        found = []
        for attribute in self.attributes:
            inside = attribute.codes[:, None] == np.arange(len(attribute.groups))
            both = (inside[:, :, None] & marks[:, None, :]).reshape(len(marks), -1).astype(np.float64)
            found.append((values @ both).reshape(*values.shape[:-1], inside.shape[1], marks.shape[1]))
        return found

    # -- means and gaps

    def means(
        self, name: str, counts: list[GroupCounts], instead: list[list[Array]] | None = None
    ) -> list[list[Array]]:
        """Return what a gap compares: for each measured label, lists of the groups' means, (..., groups).

        There is one list entry for each attribute, and for each rate that the gap is the worst of. A mean over no rows
        is NaN, or the entry of `instead`.
        """
        found = [
            [rate.mean(counts[place])[..., groups, label] for rate, place, groups in self._compared(name, label)]
            for label in self.measured
        ]
        if instead is None:
            return found
        return [
            [np.where(np.isnan(mean), known, mean) for mean, known in zip(*pair, strict=True)]
            for pair in zip(found, instead, strict=True)
        ]

    def _compared(self, name: str, label: int) -> list[tuple[Rate, int, Integers]]:
        """Which rates of which attributes a gap compares, and in which groups: all but crossings without rows."""
        found = []
        for rate in (RATES[one] for one in WORST_OF.get(name, (name,))):
            for place, attribute in enumerate(self.attributes):
                known = ~np.isnan(rate.mean(self.counts[place])[:, label]) | (not attribute.crossed)
                found.append((rate, place, np.flatnonzero(known)))
        return found

    def gap(self, name: str) -> float:
        """Return the widest gap over labels and attributes; labels without a value are left out."""
        return float(np.nanmax([float(widest(parts)) for parts in self.means(name, self.counts)]))

    def worst(self, name: str, level: float) -> Gap:
        """Return the widest gap, with its standard error and its bound in the population."""
        variances = [
            rate.variance(self.counts[place])[groups, label]
            for label in self.measured
            for rate, place, groups in self._compared(name, label)
        ]
        means = [part for label in self.means(name, self.counts) for part in label]
        return worst_gap(means, variances, level, np.inf if name == "DEO" else 1.0)

    def pair(self, name: str, gap: Gap) -> tuple[str, tuple[Any, Any], tuple[int, int]]:
        """Return the attribute and the two groups that a two-label gap is between, and the rows it counts in them."""
        rate, place, groups = self._compared(name, 0)[gap.attribute]
        attribute, rows = self.attributes[place], rate.over(self.counts[place])[:, 0]
        one, other = groups[list(gap.groups)]
        return attribute.name, (attribute.groups[one], attribute.groups[other]), (int(rows[one]), int(rows[other]))


def _with_codes(attributes: list[Attribute], codes: list[Integers]) -> list[Attribute]:
    return [replace(one, codes=code) for one, code in zip(attributes, codes, strict=True)]


def _resample_large(
    losses: Array, rejected: int, rows: Integers, random: np.random.Generator
) -> tuple[Integers, Array]:
    """Draw how many of so many rows are selected, a binomial, and the sum of their losses as normal numbers."""
    selected = random.binomial(rows, (len(losses) - rejected) / len(losses))
    loss = np.zeros(len(rows))
    for drawn, part in zip((rows - selected, selected), (losses[:rejected], losses[rejected:]), strict=True):
        if len(part):
            loss += random.normal(drawn * part.mean(), np.sqrt(drawn) * part.std())
    return selected, loss
