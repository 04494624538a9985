"""Slices as sums over cells: rows of data that share label and groups, wherever they are.

Everybody numbers the same cells from the terms. Leaf values need more than sums at one point: how many rows of a cell
are in a leaf, and where their scores are. Scores are told on a grid, each step with its number of rows and their mean:
what the server then solves is the leaf problem of rows that stand for several people each.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from evenhand.arrays import Array, Integers
from evenhand.constraints.binding import BoundConstraints
from evenhand.constraints.groups import crossed_name
from evenhand.constraints.lagrangian import Lagrangian
from evenhand.errors import InputError
from evenhand.horizontal.problem import ClientRows
from evenhand.horizontal.trees.splits import UNIT, in_units
from evenhand.programs.combining.leaves import LeafColumns
from evenhand.protocol.terms import HorizontalTerms

GRID: Array = np.concatenate(
    [np.arange(-6.0, -1.5, 0.125), np.arange(-1.5, 1.5, 1.0 / 64.0), np.arange(1.5, 6.125, 0.125)]
)
"""Where steps of scores end: small ones where a leaf's value may change the decision, none beyond."""
STEPS = len(GRID) + 1
MOST_CELLS = 512


class Crowd(NamedTuple):
    """Rows that stand for several people each: their leaf, scores, leave-one-out scores, and how many they are."""

    columns: LeafColumns
    scores: Array
    held_out: Array
    people: Array
    lagrangian: Lagrangian


class SliceCells:
    """The cells of a run, and constraint rows over them.

    Attributes
    ----------
    labels
        Of each cell.
    weights
        (R, cells): what one row of data of that cell gives to each constraint row, over everybody's rows.
    """

    def __init__(self, terms: HorizontalTerms) -> None:
        self.rows = terms.shared_rows
        # Only what constraint rows look at: other attributes would make more cells for nothing.
        named = {part.attribute for row in self.rows for _, part in row.terms}
        self.groups = {name: values for name, values in terms.groups.items() if name in named}
        crossing = crossed_name(terms.groups)
        # The place after the last is that of crossings which are left out.
        sizes = [2, *(len(values) + (name == crossing) for name, values in self.groups.items())]
        self.count = int(np.prod(sizes))
        if self.count > MOST_CELLS:
            raise InputError(
                f"trees across clients count rows by label and group, which makes {self.count:,} cells here; at most "
                f"{MOST_CELLS} can be had: constrain fewer attributes, or merge groups"
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
        """Each row's cell."""
        codes = rows.codes(self.groups)
        parts = [
            np.where(code < 0, len(self.groups[name]), code) for name, code in codes.items() if name in self.groups
        ]
        return np.ravel_multi_index((np.asarray(rows.labels > 0, dtype=np.int64), *parts), self._sizes)

    def lagrangian(self, rows: ClientRows) -> Lagrangian:
        """A client's share of everybody's Lagrangian."""
        bound = BoundConstraints(self.rows, self.of(rows), self.weights)
        return Lagrangian(rows.labels, bound, shares=self.shares)

    def sums(self, leaf: Integers, leaves: int, cell: Integers, scores: Array, held_out: Array) -> Integers:
        """(leaves, cells, STEPS, 3): rows, sums of their scores, and of what leave-one-out scores are beside those."""
        step = np.searchsorted(GRID, scores, side="right")
        at = (leaf * self.count + cell) * STEPS + step
        found = np.zeros((leaves * self.count * STEPS, 3), dtype=np.int64)
        for place, values in enumerate(
            (np.ones(len(at), dtype=np.int64), in_units(scores), in_units(held_out - scores))
        ):
            np.add.at(found[:, place], at, values)
        return found.reshape(leaves, self.count, STEPS, 3)

    def crowd(self, sums: Integers, leaves: int) -> Crowd:
        """The leaf problem's rows from such sums; `leaves` is how many there are."""
        leaf, cell, step = np.nonzero(sums[..., 0])
        told = sums[leaf, cell, step]
        people = told[:, 0].astype(np.float64)
        scores = told[:, 1] * UNIT / people
        held_out = scores + told[:, 2] * UNIT / people
        # A cell for each: what it weighs in a constraint row is that of all its people.
        bound = BoundConstraints(self.rows, np.arange(len(cell)), self.weights[:, cell] * people)
        of = Lagrangian(self.labels[cell], bound, shares=self.shares * people)
        columns = LeafColumns(leaf.astype(np.uint8)[:, None], np.array([leaves]))
        return Crowd(columns, scores, held_out, people, of)
