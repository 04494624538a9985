"""Rows of a two-label model sorted into cells of label and groups: what gaps of scores are made of."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import numpy as np

from evenhand.arrays import Array, Booleans, Integers
from evenhand.constraints.confidence import mean_variance, rate_variance
from evenhand.errors import DataError, SmallSliceWarning
from evenhand.metrics.columns import (
    Attribute,
    check_lengths,
    positive_code,
    read_attributes,
    read_codes,
    read_column,
    read_scores,
)
from evenhand.metrics.gaps import Gap, widest, worst_gap
from evenhand.printing import listed

# Draws held at once while resampling: bounds memory at some tens of megabytes.
_DRAWS_AT_ONCE = 1 << 21
# Rows of a cell beyond which a sum over as many drawn ones is normal to three digits, and not drawn row by row.
_LARGE: Final = 1 << 17
GAPS: Final = ("DEO", "DFP", "DFN", "DP", "equalized_odds")


@dataclass(frozen=True)
class Sums:
    """Sums over each cell, (..., cells): one leading axis per resample, none for the estimate."""

    rows: Array
    selected: Array  # rows predicted positive
    loss: Array

    def of_gap(self, name: str) -> Array:
        """What a gap averages, summed over each cell."""
        return {"DEO": self.loss, "DFN": self.rows - self.selected}.get(name, self.selected)


@dataclass(frozen=True)
class Cells:
    """Rows sorted into cells: one per label and combination of groups that occurs.

    Every metric is a function of three sums over each cell: rows, rows predicted positive, and loss. That makes one
    definition of the metrics serve the estimate and all resamples at once.
    """

    label: Booleans  # of each cell: are its rows positives?
    size: Integers  # rows in each cell
    attributes: list[Attribute]  # with each cell's group
    losses: list[Array]  # for each cell, its rows' losses, by rising score
    rejected: Integers  # of each cell: how many of its rows, the first ones, are not predicted positive

    @classmethod
    def of(cls, y_true: Any, scores: Any, sensitive_features: Any, positive: Any, cross: bool) -> Cells:
        truths, logits = read_column(y_true, "y_true"), read_scores(scores)
        attributes = read_attributes(sensitive_features, cross)
        check_lengths(attributes, y_true=truths, scores=logits)
        codes, labels = read_codes(truths, "y_true")
        if len(labels) == 1:
            raise DataError(f"y_true holds only the label {labels[0]!r}: gaps need rows of both labels")
        code = positive_code(labels, labels[1] if positive is None else positive)
        truth = codes == code
        _check_slices(truth, labels[code], labels[1 - code], attributes)

        cell = truth.astype(np.int64)
        for attribute in attributes:
            _, first, cell = np.unique(
                cell * len(attribute.groups) + attribute.codes, return_index=True, return_inverse=True
            )
        size = np.bincount(cell)
        # Sorting by score makes resampling independent of the order of the rows, and puts rejected rows first.
        order = np.lexsort((logits, cell))
        return cls(
            label=truth[first],
            size=size,
            attributes=[Attribute(one.name, one.codes[first], one.groups, one.crossed) for one in attributes],
            losses=np.split(logistic_loss(truth, logits)[order], np.cumsum(size)[:-1]),
            rejected=np.bincount(cell[logits <= 0], minlength=len(size)),
        )

    # -- sums

    @cached_property
    def sums(self) -> Sums:
        selected = (self.size - self.rejected).astype(np.float64)
        return Sums(self.size.astype(np.float64), selected, np.array([loss.sum() for loss in self.losses]))

    def resample(self, repeats: int, random: np.random.Generator) -> Sums:
        """The same sums for as many rows drawn with replacement, (repeats, cells) each.

        How many rows fall into each cell is a multinomial; the rows of a cell are then drawn one by one, for all
        repeats in a row. Of large cells sums are drawn: how many rows are selected is a binomial, and the losses of
        those that are, and of those that are not, add up to normal numbers.
        """
        rows = random.multinomial(self.size.sum(), self.size / self.size.sum(), size=repeats)
        selected, loss = np.empty((2, repeats, len(self.size)))
        for cell, (size, rejected) in enumerate(zip(self.size, self.rejected, strict=True)):
            if size > _LARGE:
                selected[:, cell], loss[:, cell] = self._resample_large(cell, rows[:, cell], random)
                continue
            block = max(1, _DRAWS_AT_ONCE // int(size))
            for start in range(0, repeats, block):
                counts = rows[start : start + block, cell]
                ends = np.cumsum(counts)
                drawn = random.integers(size, size=ends[-1])
                for total, values in ((selected, drawn >= rejected), (loss, self.losses[cell][drawn])):
                    sums = np.concatenate([[0.0], np.cumsum(values)])
                    total[start : start + block, cell] = sums[ends] - sums[ends - counts]
        return Sums(rows.astype(np.float64), selected, loss)

    def _resample_large(self, cell: int, rows: Integers, random: np.random.Generator) -> tuple[Integers, Array]:
        """How many of so many rows of a cell are selected, and the sum of their losses."""
        size, rejected = int(self.size[cell]), int(self.rejected[cell])
        selected = random.binomial(rows, (size - rejected) / size)
        loss = np.zeros(len(rows))
        parts = self.losses[cell][:rejected], self.losses[cell][rejected:]
        for drawn, losses in zip((rows - selected, selected), parts, strict=True):
            if len(losses):
                loss += random.normal(drawn * losses.mean(), np.sqrt(drawn) * losses.std())
        return selected, loss

    # -- gaps

    @cached_property
    def _slices(self) -> dict[str, list[tuple[Integers, Array]]]:
        """For each gap and attribute: the groups it compares, and (cells, groups) which cells are in their slices."""
        over = {"DEO": self.label, "DFP": ~self.label, "DFN": self.label, "DP": np.ones_like(self.label)}
        found: dict[str, list[tuple[Integers, Array]]] = {name: [] for name in over}
        for attribute in self.attributes:
            inside = attribute.codes[:, None] == np.arange(len(attribute.groups))
            for name, counted in over.items():
                members = inside & counted[:, None]
                # Only crossings may lack rows, and are not compared then.
                groups = np.flatnonzero(members.any(axis=0))
                found[name].append((groups, members[:, groups].astype(np.float64)))
        return found

    def group_means(self, sums: Sums) -> dict[str, list[Array]]:
        """What each gap compares: for every attribute, a mean in each group, (..., groups).

        A slice that a resample left empty has the mean it has in all rows.
        """
        means: dict[str, list[Array]] = {}
        for name, slices in self._slices.items():
            means[name] = []
            for _, members in slices:
                rows = sums.rows @ members
                known = self.sums.of_gap(name) @ members / (self.sums.rows @ members)
                out = np.broadcast_to(known, rows.shape).copy()
                means[name].append(np.divide(sums.of_gap(name) @ members, rows, out=out, where=rows > 0))
        # Equalized odds is the worst gap of either kind of error.
        return means | {"equalized_odds": means["DFP"] + means["DFN"]}

    @cached_property
    def _variances(self) -> dict[str, list[Array]]:
        """Variances of the means of the estimate."""
        squares = np.array([np.square(loss).sum() for loss in self.losses])
        found: dict[str, list[Array]] = {}
        for name, slices in self._slices.items():
            sums = [(self.sums.of_gap(name) @ members, self.sums.rows @ members, members) for _, members in slices]
            found[name] = [
                mean_variance(total, squares @ members, rows) if name == "DEO" else rate_variance(total, rows)
                for total, rows, members in sums
            ]
        return found | {"equalized_odds": found["DFP"] + found["DFN"]}

    def gaps(self, level: float) -> dict[str, Gap]:
        means, variances = self.group_means(self.sums), self._variances
        most = {name: np.inf if name == "DEO" else 1.0 for name in GAPS}
        return {name: worst_gap(means[name], variances[name], level, most[name]) for name in GAPS}

    def pair(self, name: str, gap: Gap) -> tuple[str, tuple[Any, Any], tuple[int, int]]:
        """The attribute, the two groups and their slices' rows that a gap is between."""
        slices = self._slices.get(name) or self._slices["DFP"] + self._slices["DFN"]
        groups, members = slices[gap.attribute]
        attribute = self.attributes[gap.attribute % len(self.attributes)]
        one, other = (attribute.groups[groups[place]] for place in gap.groups)
        rows = self.sums.rows @ members
        return attribute.name, (one, other), (int(rows[gap.groups[0]]), int(rows[gap.groups[1]]))

    # -- all metrics

    def metrics(self, sums: Sums, gaps: Mapping[str, Array]) -> dict[str, Array]:
        """All metrics, in the order of the table in `evenhand.metrics.summary`."""
        rows = self.size.sum()
        accuracy = np.where(self.label, sums.selected, sums.rows - sums.selected).sum(axis=-1) / rows
        fairness = 1 - gaps["DEO"]
        clipped = np.maximum(fairness, 0)
        # The tiny floor only keeps 0/0 away when accuracy and fairness are both 0.
        harmonic = 2 * accuracy * clipped / np.maximum(accuracy + clipped, np.finfo(float).tiny)
        return {
            "accuracy": accuracy,
            **gaps,
            "FR": fairness,
            "HM": harmonic,
            "log_loss": sums.loss.sum(axis=-1) / rows,
        }

    def estimate(self) -> dict[str, float]:
        gaps = {name: widest(parts) for name, parts in self.group_means(self.sums).items()}
        return {name: float(value) for name, value in self.metrics(self.sums, gaps).items()}

    def other_errors(self) -> dict[str, float]:
        """Standard errors of the means that are no gaps."""
        rows = float(self.size.sum())
        right = np.where(self.label, self.sums.selected, self.sums.rows - self.sums.selected).sum()
        losses = np.concatenate(self.losses)
        variances = {
            "accuracy": rate_variance(right, rows),
            "log_loss": mean_variance(losses.sum(), np.square(losses).sum(), rows),
        }
        return {name: float(np.sqrt(variance)) for name, variance in variances.items()}


def logistic_loss(truth: Booleans, scores: Array) -> Array:
    """log(1 + exp(-y z)), without overflow."""
    return np.logaddexp(0, np.where(truth, -scores, scores))


def _check_slices(truth: Booleans, positive: Any, negative: Any, attributes: list[Attribute]) -> None:
    """Refuse a group without rows of a label; a crossing of groups is left out of the gaps that need them instead."""
    for attribute in attributes:
        if len(attribute.groups) == 1:
            raise DataError(f"{attribute.name} holds only the group {attribute.groups[0]!r}: a gap needs two")
        for label, rows, names in ((positive, truth, "DEO and DFN"), (negative, ~truth, "DFP")):
            sizes = np.bincount(attribute.codes[rows], minlength=len(attribute.groups))
            empty = [attribute.groups[place] for place in np.flatnonzero(sizes == 0)]
            if not empty:
                continue
            if not attribute.crossed:
                raise DataError(
                    f"no rows with label {label!r} and {attribute.name} = {empty[0]!r}: {names} have no value there; "
                    "merge the group with another, leave it out, or measure on more rows"
                )
            if len(attribute.groups) - len(empty) < 2:
                raise DataError(f"fewer than two groups of {attribute.name} have rows with label {label!r}")
            warnings.warn(
                f"no rows with label {label!r} and {attribute.name} = {listed(empty)}: left out of {names}",
                SmallSliceWarning,
                stacklevel=4,
            )
