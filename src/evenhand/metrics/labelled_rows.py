"""Rows with one or several labels each, true and predicted, counted by group: what gaps of decisions are made of."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np
import pandas as pd

from evenhand.arrays import Array, Booleans
from evenhand.constraints.confidence import rate_variance
from evenhand.errors import DataError
from evenhand.metrics.columns import Attribute, check_lengths, read_attributes, read_codes, read_column
from evenhand.metrics.gaps import widest


@dataclass(frozen=True)
class Counts:
    """Rows counted, (..., groups, labels) for each attribute: one leading axis per resample, none for the estimate."""

    sizes: list[Array]  # all, (..., groups, 1)
    positives: list[Array]  # that carry the label
    selected: list[Array]  # predicted to carry the label
    hits: list[Array]  # that carry it and are predicted to
    right: Array  # whose predicted label is the true one, (...)

    def by_attribute(self) -> Iterator[tuple[Array, Array, Array, Array]]:
        return zip(self.selected, self.hits, self.sizes, self.positives, strict=True)


@dataclass(frozen=True)
class LabelledRows:
    """Which labels each row carries and is predicted to carry, and which group it is in.

    Every gap is a function of two counts for each group and label. That makes one definition of the rates serve the
    estimate and all resamples at once.
    """

    truth: Booleans  # (rows, labels)
    predicted: Booleans  # (rows, labels)
    labels: list[Any]
    measured: list[int]  # labels that are looked at, each against the rest
    attributes: list[Attribute]
    several: bool  # may a row carry several labels?

    @classmethod
    def of(cls, y_true: Any, y_pred: Any, sensitive_features: Any, positive: Any, negative: Any) -> LabelledRows:
        attributes = read_attributes(sensitive_features)
        several = [_is_table(y_true, "y_true"), _is_table(y_pred, "y_pred")]
        if several[0] != several[1]:
            raise DataError("one of y_true and y_pred is a column, the other a table: both must be of one kind")
        read = _read_tables if several[0] else _read_columns
        truth, predicted, labels = read(y_true, y_pred)
        check_lengths(attributes, y_true=truth, y_pred=predicted)
        for label in (positive, negative):
            if label is not None and label not in labels:
                raise DataError(f"the label {label!r} does not occur: choose one of {labels!r}")
        if positive is not None:
            measured = [labels.index(positive)]
        elif len(labels) == 1 and not several[0]:
            raise DataError(f"only the label {labels[0]!r} occurs: say with positive= whether it is the positive one")
        else:
            measured = [1] if len(labels) == 2 and not several[0] else list(range(len(labels)))
        rows = cls(truth, predicted, labels, measured, attributes, several[0])
        if negative is not None:
            rows = rows._subtask(positive, negative)
        rows._refuse_missing_groups()
        return rows

    def _subtask(self, positive: Any, negative: Any) -> LabelledRows:
        if positive is None or self.several or positive == negative:
            raise DataError("negative= goes with another label as positive=, and with one label a row")
        kept = self.truth[:, self.labels.index(positive)] | self.truth[:, self.labels.index(negative)]
        attributes = [Attribute(a.name, a.codes[kept], a.groups) for a in self.attributes]
        return replace(self, truth=self.truth[kept], predicted=self.predicted[kept], attributes=attributes)

    def _refuse_missing_groups(self) -> None:
        for attribute in self.attributes:
            if len(attribute.groups) == 1:
                raise DataError(f"{attribute.name} holds only the group {attribute.groups[0]!r}: a gap needs two")
            sizes = np.bincount(attribute.codes, minlength=len(attribute.groups))
            if not sizes.all():
                group = attribute.groups[int(sizes.argmin())]
                raise DataError(f"no rows with {attribute.name} = {group!r} are left: leave the group out")

    def measurable(self, skip: bool) -> LabelledRows:
        """The labels of which every group has positives; without ``skip``, a label that is not so is refused."""
        occurring = [label for label in self.measured if self.truth[:, label].any()]
        kept = list(occurring)
        for attribute, positives in zip(self.attributes, self._per_group(self.truth), strict=True):
            lacking = np.argwhere(positives[:, occurring] == 0)
            if lacking.size and not skip:
                group, label = attribute.groups[lacking[0, 0]], self.labels[occurring[lacking[0, 1]]]
                raise DataError(
                    f"no rows with label {label!r} and {attribute.name} = {group!r}: equal opportunity has no value "
                    "there; measure on more rows, choose another label with positive=, or pass skip_unmeasurable=True"
                )
            kept = [label for label in kept if positives[:, label].all()]
        if not kept:
            raise DataError("no label has rows in every group: equal opportunity has no value; measure on more rows")
        return replace(self, measured=kept)

    def gap(self, name: str) -> float:
        """Worst over labels and attributes."""
        if name == "published_equal_opportunity" and not self.truth[:, self.measured].any():
            raise DataError("no row carries a label that is looked at: equal opportunity has no value")
        gaps = [float(widest(parts)) for parts in self.by_label(name, self.counts())]
        # A label that only predictions name has no positives, hence no published equal opportunity: NaN.
        return float(np.nanmax(gaps))

    def by_label(self, name: str, counts: Counts, instead: list[list[Array]] | None = None) -> list[list[Array]]:
        """For each label that is looked at, what the gap compares: an array (..., groups) for each attribute.

        Where there is nothing to count a rate is not a number, or what `instead` has.
        """
        with np.errstate(invalid="ignore", divide="ignore"):
            rates = [RATES[name](*parts) for parts in counts.by_attribute()]
        found = [[rate[..., label] for rate in rates] for label in self.measured]
        if instead is None:
            return found
        return [
            [np.where(np.isnan(rate), known, rate) for rate, known in zip(*pair, strict=True)]
            for pair in zip(found, instead, strict=True)
        ]

    def variances(self, name: str, counts: Counts) -> list[list[Array]]:
        """Variances of the same means, (groups,)."""
        found = [VARIANCES[name](*parts) for parts in counts.by_attribute()]
        return [[variance[..., label] for variance in found] for label in self.measured]

    def counts(self) -> Counts:
        right = np.asarray((self.truth == self.predicted).all(axis=1).sum(), dtype=np.float64)
        everybody = np.ones((self.truth.shape[0], 1), dtype=np.bool_)
        marks = (everybody, self.truth, self.predicted, self.truth & self.predicted)
        sizes, positives, selected, hits = (self._per_group(one) for one in marks)
        return Counts(sizes, positives, selected, hits, right)

    def resample(self, repeats: int, random: np.random.Generator) -> Counts:
        """The same counts for as many rows drawn with replacement: a multinomial over true and predicted label, groups.

        Rows alike in these are counted together, so that it costs no more for many rows than for few.
        """
        truth, predicted = self.truth.argmax(axis=1), self.predicted.argmax(axis=1)
        keys = np.column_stack([truth, predicted, *(attribute.codes for attribute in self.attributes)])
        cells, observed = np.unique(keys, axis=0, return_counts=True)
        drawn = random.multinomial(len(keys), observed / len(keys), size=repeats).astype(np.float64)
        real, decided = (cells[:, place, None] == np.arange(len(self.labels)) for place in (0, 1))

        def counted(marks: Booleans) -> list[Array]:
            return [
                np.stack([drawn @ (marks & (cells[:, 2 + place] == group)[:, None]) for group in groups], axis=1)
                for place, groups in enumerate(range(len(attribute.groups)) for attribute in self.attributes)
            ]

        everybody = np.ones((len(cells), 1), dtype=np.bool_)
        right = drawn @ (cells[:, 0] == cells[:, 1])
        return Counts(counted(everybody), counted(real), counted(decided), counted(real & decided), right)

    def _per_group(self, marks: Booleans) -> list[Array]:
        """Marked rows of each group, (groups, columns of ``marks``), for each attribute."""
        return [
            np.stack([marks[attribute.codes == group].sum(axis=0) for group in range(len(attribute.groups))]).astype(
                np.float64
            )
            for attribute in self.attributes
        ]


# Of counts (..., groups, labels) of rows selected and hit, the groups' sizes, (..., groups, 1), and positives.
_OfCounts: TypeAlias = Callable[[Array, Array, Array, Array], Array]
RATES: dict[str, _OfCounts] = {
    "demographic_parity": lambda selected, hits, sizes, positives: selected / sizes,
    "equal_opportunity": lambda selected, hits, sizes, positives: hits / positives,
    "published_demographic_parity": lambda selected, hits, sizes, positives: selected / _over_groups(sizes),
    "published_equal_opportunity": lambda selected, hits, sizes, positives: hits / _over_groups(positives),
}
# Two groups' shares of the same rows vary against each other: the variance of their difference is at most that of two
# independent counts, the shares' sum over the rows.
VARIANCES: dict[str, _OfCounts] = {
    "demographic_parity": lambda selected, hits, sizes, positives: rate_variance(*np.broadcast_arrays(selected, sizes)),
    "equal_opportunity": lambda selected, hits, sizes, positives: rate_variance(hits, positives),
    "published_demographic_parity": lambda selected, hits, sizes, positives: _share_variance(selected, sizes),
    "published_equal_opportunity": lambda selected, hits, sizes, positives: _share_variance(hits, positives),
}


def _over_groups(counts: Array) -> Array:
    return counts.sum(axis=-2, keepdims=True)


def _share_variance(counts: Array, rows: Array) -> Array:
    total = _over_groups(rows)
    return (counts + 1.0) / (total + 2.0) / np.maximum(total, 1.0)


def _is_table(values: Any, name: str) -> bool:
    try:
        return np.ndim(values) == 2
    except ValueError as error:
        raise DataError(f"{name} is neither a column of labels nor a table of zeros and ones: {error}") from error


def _read_columns(y_true: Any, y_pred: Any) -> tuple[Booleans, Booleans, list[Any]]:
    truths, predictions = read_column(y_true, "y_true"), read_column(y_pred, "y_pred")
    # Coded together: a model may predict labels that do not occur, or leave some out.
    codes, labels = read_codes(pd.concat([truths, predictions]), "y_true or y_pred")
    marks: Booleans = codes[:, None] == np.arange(len(labels))
    return marks[: len(truths)], marks[len(truths) :], labels


def _read_tables(y_true: Any, y_pred: Any) -> tuple[Booleans, Booleans, list[Any]]:
    truths, predictions = pd.DataFrame(y_true), pd.DataFrame(y_pred)
    if truths.columns.tolist() != predictions.columns.tolist():
        raise DataError("the tables y_true and y_pred have different columns: each label needs a column in both")
    for name, table in (("y_true", truths), ("y_pred", predictions)):
        if not table.isin([0, 1]).to_numpy().all():
            raise DataError(f"{name} holds other values than 0 and 1: a table says for each label whether a row has it")
    return truths.to_numpy() == 1, predictions.to_numpy() == 1, truths.columns.tolist()
