"""Express slices as sums over strata: rows of data that share label and groups, at any client.

All participants number the same strata (`SliceStrata`) from the terms. Leaf values need more than sums at one point:
the number of rows of a stratum in a leaf, and their scores. Scores are sent on a grid, with the number of rows and the
mean score of each step. The server then solves the leaf problem over weighted rows.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from evenhand.arrays import Array, Integers
from evenhand.constraints.binding import BoundConstraints
from evenhand.constraints.evaluation import Lagrangian
from evenhand.constraints.groups import crossed_name
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
    """Weighted rows: their leaf, scores, leave-one-out scores, and the number of people that each stands for."""

    columns: LeafColumns
    scores: Array
    held_out: Array
    people: Array
    lagrangian: Lagrangian


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
        self.weights: Array = np.zeros((len(self.rows), self.count))
        for place, row in enumerate(self.rows):
            for coefficient, part in row.terms:
                assert terms.slice_counts is not None
                inside = part.inside(self.labels, values)
                self.weights[place, inside] += coefficient / max(terms.slice_counts[part], 1)
        self.shares = 1.0 / terms.n_rows

    def of(self, rows: ClientRows) -> Integers:
        """Return the stratum of each row."""
        codes = rows.codes(self.groups)
        parts = [
            np.where(code < 0, len(self.groups[name]), code) for name, code in codes.items() if name in self.groups
        ]
        return np.ravel_multi_index((np.asarray(rows.labels > 0, dtype=np.int64), *parts), self._sizes)

    def lagrangian(self, rows: ClientRows) -> Lagrangian:
        """Return a client's share of the Lagrangian over all rows."""
        bound = BoundConstraints(self.rows, self.of(rows), self.weights)
        return Lagrangian(rows.labels, bound, shares=self.shares)

    def sums(self, leaf: Integers, leaves: int, stratum: Integers, scores: Array, held_out: Array) -> Integers:
        """Return (leaves, strata, STEPS, 3): rows, sums of scores, and sums of leave-one-out minus own scores."""
        step = np.searchsorted(GRID, scores, side="right")
        at = (leaf * self.count + stratum) * STEPS + step
        found = np.zeros((leaves * self.count * STEPS, 3), dtype=np.int64)
        for place, values in enumerate(
            (np.ones(len(at), dtype=np.int64), in_units(scores), in_units(held_out - scores))
        ):
            np.add.at(found[:, place], at, values)
        return found.reshape(leaves, self.count, STEPS, 3)

    def weighted_rows(self, sums: Integers, leaves: int) -> WeightedRows:
        """Return the weighted rows of the leaf problem from such sums; `leaves` is the number of leaves."""
        leaf, stratum, step = np.nonzero(sums[..., 0])
        told = sums[leaf, stratum, step]
        people = told[:, 0].astype(np.float64)
        scores = told[:, 1] * UNIT / people
        held_out = scores + told[:, 2] * UNIT / people
        # Each weighted row has a stratum of its own, with the coefficient of all its people.
        bound = BoundConstraints(self.rows, np.arange(len(stratum)), self.weights[:, stratum] * people)
        of = Lagrangian(self.labels[stratum], bound, shares=self.shares * people)
        columns = LeafColumns(leaf.astype(np.uint8)[:, None], np.array([leaves]))
        return WeightedRows(columns, scores, held_out, people, of)
