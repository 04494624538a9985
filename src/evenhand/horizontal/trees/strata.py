"""Express slices as sums over strata: rows of data that share label and groups, at any client.

All participants number the same strata (`SliceStrata`) from the terms. Leaf values need more than sums at one point:
the number of rows of a stratum in a leaf, and their scores. Scores are sent on a grid, with the number of rows and the
mean score of each step. The server then solves the leaf problem over weighted rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from evenhand.arrays import Array, Booleans, Integers
from evenhand.constraints.binding import BoundConstraints
from evenhand.constraints.evaluation import Lagrangian
from evenhand.constraints.groups import crossed_name
from evenhand.constraints.slices import Slice
from evenhand.errors import InputError
from evenhand.horizontal.problem import ClientRows
from evenhand.horizontal.trees.splits import UNIT, in_units
from evenhand.programs.combining.leaves import LeafColumns
from evenhand.protocol.terms import HorizontalTerms

GRID: Array = np.concatenate(
    [np.arange(-6.0, -1.5, 0.125), np.arange(-1.5, 1.5, 1.0 / 64.0), np.arange(1.5, 6.125, 0.125)]
)
"""Ends of the steps of scores: small steps where a leaf's value may change the decision, no steps beyond."""
STEPS = len(GRID) + 1
MAX_STRATA = 512


class WeightedRows(NamedTuple):
    """Weighted rows: their leaf, stratum, mean scores, and the number of people that each stands for."""

    leaf: Integers
    stratum: Integers
    scores: Array
    people: Array

    @classmethod
    def of(cls, counts: Integers, totals: Integers) -> WeightedRows:
        """Return a row for each leaf, stratum and step with people, from their number and the sum of their scores."""
        leaf, stratum, step = np.nonzero(counts)
        people = counts[leaf, stratum, step].astype(np.float64)
        return cls(leaf, stratum, totals[leaf, stratum, step] * UNIT / people, people)

    def columns(self, leaves: int) -> LeafColumns:
        return LeafColumns(self.leaf.astype(np.uint8)[:, None], np.array([leaves]))

    def and_then(self, *others: WeightedRows) -> WeightedRows:
        return WeightedRows(*(np.concatenate(parts) for parts in zip(self, *others, strict=True)))


class SliceStrata:
    """Strata of a run, and inequalities over them.

    Attributes
    ----------
    labels
        Label of each stratum.
    weights
        (R, strata): coefficient of one row of data of each stratum in each inequality, over all clients' rows.
    """

    def __init__(self, terms: HorizontalTerms) -> None:
        self.rows = terms.shared_inequalities
        # Use only the attributes in inequalities; others would add strata without need.
        named = {part.attribute for row in self.rows for _, part in row.terms}
        self.groups = {name: values for name, values in terms.groups.items() if name in named}
        crossing = crossed_name(terms.groups)
        # The index after the last is for crossings that are left out.
        sizes = [2, *(len(values) + (name == crossing) for name, values in self.groups.items())]
        self.count = int(np.prod(sizes))
        if self.count > MAX_STRATA:
            raise InputError(
                f"trees across clients count rows by label and group; this job has {self.count:,} combinations, but "
                f"at most {MAX_STRATA} are supported: constrain fewer attributes, or merge groups"
            )
        self._sizes = sizes
        label, *codes = np.unravel_index(np.arange(self.count), sizes)
        self.labels: Array = np.where(label > 0, 1.0, -1.0)
        values = {
            name: np.array([*self.groups[name], None], dtype=object)[code]
            for name, code in zip(self.groups, codes, strict=True)
        }
        self._inside: dict[Slice, Booleans] = {
            part: part.inside(self.labels, values) for row in self.rows for _, part in row.terms
        }
        assert terms.slice_counts is not None or not self.rows
        self._counts = terms.slice_counts or {}
        self._n_rows = terms.n_rows
        self.weights: Array = self._weights(self._counts)
        self.shares = 1.0 / terms.n_rows

    def weights_of(self, people: Array) -> Array:
        """Return weights over so many rows of each stratum."""
        return self._weights({part: people[inside].sum() for part, inside in self._inside.items()})

    def has_all_slices(self, people: Array) -> bool:
        """Return whether so many rows of each stratum leave no slice empty."""
        return all(people[inside].any() for inside in self._inside.values())

    def everybody(self, people: Integers) -> Integers:
        """Return the number of all clients' rows in each stratum, from those that each model sees.

        Raises an InputError if they are not the rows that the terms count. A single model sees all rows, and each of
        several sees all but one fold.
        """
        every, rest = np.divmod(people.sum(axis=0), max(len(people) - 1, 1))
        if rest.any() or (people > every).any() or every.sum() != self._n_rows:
            raise InputError(f"they are not those of {self._n_rows} rows")
        for part, inside in self._inside.items():
            if every[inside].sum() != self._counts[part]:
                raise InputError(
                    f"{every[inside].sum()} rows are in {part}, where the terms count {self._counts[part]}"
                )
        return np.asarray(every)

    def _weights(self, counts: Mapping[Slice, float]) -> Array:
        weights: Array = np.zeros((len(self.rows), self.count))
        for place, row in enumerate(self.rows):
            for coefficient, part in row.terms:
                weights[place, self._inside[part]] += coefficient / max(counts[part], 1)
        return weights

    def of(self, rows: ClientRows) -> Integers:
        """Return the stratum of each row."""
        codes = rows.codes(self.groups)
        parts = [
            np.where(code < 0, len(self.groups[name]), code) for name, code in codes.items() if name in self.groups
        ]
        return np.ravel_multi_index((np.asarray(rows.labels > 0, dtype=np.int64), *parts), self._sizes)

    def lagrangian(self, rows: ClientRows) -> Lagrangian:
        """Return a client's share of the Lagrangian over all rows."""
        return self._lagrangian(rows.labels, self.of(rows), self.weights, self.shares)

    def part(self, whole: Lagrangian, seen: Integers, people: Array) -> Lagrangian:
        """Return a client's share of the Lagrangian of one model, over the rows that it sees.

        Parameters
        ----------
        people
            How many rows of all clients the model sees in each stratum.
        """
        stratum = whole.constraints.stratum[seen]
        return self._lagrangian(whole.labels[seen], stratum, self.weights_of(people), 1.0 / people.sum())

    def _lagrangian(self, labels: Array, stratum: Integers, weights: Array, shares: Array | float) -> Lagrangian:
        return Lagrangian(labels, BoundConstraints(self.rows, stratum, weights), shares=shares)

    def sums(
        self, leaf: Integers, leaves: int, stratum: Integers, scores: Array, seen: Integers, told: Integers, held: Array
    ) -> Integers:
        """Return (leaves, strata, STEPS, 4) of one model, by the step of its scores.

        These are numbers of rows that it sees and sums of their scores, then numbers of rows that are judged by it and
        sums of the scores that they are judged by.

        Parameters
        ----------
        seen, told
            The rows that the model sees, and those that are judged by it.
        held
            The score that each row is judged by.
        """
        found = np.zeros((leaves * self.count * STEPS, 4), dtype=np.int64)
        at = (leaf * self.count + stratum) * STEPS + np.searchsorted(GRID, scores, side="right")
        for first, rows, values in ((0, seen, scores), (2, told, held)):
            np.add.at(found[:, first], at[rows], 1)
            np.add.at(found[:, first + 1], at[rows], in_units(values[rows]))
        return found.reshape(leaves, self.count, STEPS, 4)

    def weighted(self, rows: WeightedRows) -> Lagrangian:
        """Return the problem over weighted rows of all clients."""
        return self._over(rows, self.weights, np.full(len(rows.people), self.shares))

    def weighted_part(self, rows: WeightedRows, people: Array, unseen: int) -> Lagrangian:
        """Return the problem of one model over weighted rows, of which the last `unseen` have no weight."""
        seen = np.arange(len(rows.people)) < len(rows.people) - unseen
        return self._over(rows, self.weights_of(people), seen / people.sum())

    def _over(self, rows: WeightedRows, weights: Array, shares: Array) -> Lagrangian:
        # Each weighted row has a stratum of its own, with the coefficient of all its people.
        own = weights[:, rows.stratum] * (rows.people * (shares > 0.0))
        return self._lagrangian(self.labels[rows.stratum], np.arange(len(rows.people)), own, shares * rows.people)
