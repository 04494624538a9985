"""Exact values of constraint rows where rows of data are spread: people are counted in slices, and counts added up."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import scipy.sparse as sp

from evenhand.arrays import Array, Booleans
from evenhand.constraints.leave_one_out import Response
from evenhand.constraints.row_parts import PartSums, RowParts
from evenhand.constraints.slices import ConstraintRow
from evenhand.horizontal.problem import ClientRows
from evenhand.horizontal.sqp.options import SQP
from evenhand.programs.optimality import SHARED
from evenhand.programs.slices import SliceProgram
from evenhand.protocol.roles import SERVER
from evenhand.protocol.terms import HorizontalTerms


@dataclass(frozen=True, eq=False)
class CountedParts:
    """Whose slices are counted in a run, as everybody knows from the terms.

    Attributes
    ----------
    own
        Parts of each holder's own constraint rows: clients by name, and the server.
    shared
        Parts of the constraint rows that all clients have summands of.
    shared_counts
        How many rows of data everybody together has in them.
    """

    own: Mapping[str, RowParts]
    shared: RowParts
    shared_counts: Array

    @property
    def _holders(self) -> dict[str, RowParts]:
        """In the order in which a server of programs numbers constraint rows."""
        return {**self.own, SHARED: self.shared}

    @property
    def rows(self) -> list[ConstraintRow]:
        return [row for parts in self._holders.values() for row in parts.constraint_rows]

    @property
    def rates(self) -> Booleans:
        """Which constraint rows bound rates."""
        return np.array([row.measure.name != "loss" for row in self.rows], dtype=bool)

    def values(self, told: Mapping[str, PartSums]) -> Array:
        """Exact values of all constraint rows, from every holder's sums and the added up ones of the shared parts."""
        found = [parts.values(told[name].sums, told[name].counts) for name, parts in self._holders.items()]
        return np.concatenate(found)

    def of_sums(self, own_counts: Array, own: Mapping[str, Array], shared: Array) -> Array:
        """Exact values from other sums over the same parts; `own_counts` are of all holders, one after the other."""
        ends = np.cumsum([len(parts.parts) for parts in self.own.values()])
        counts = dict(zip(self.own, np.split(own_counts, ends[:-1]), strict=True))
        found = [parts.values(own[name], counts[name]) for name, parts in self.own.items()]
        return np.concatenate([*found, self.shared.values(shared, self.shared_counts)])

    def errors(self, told: Mapping[str, PartSums]) -> Array:
        """Standard errors of these values."""
        return np.concatenate([parts.errors(told[name]) for name, parts in self._holders.items()])

    def grain(self, told: Mapping[str, PartSums]) -> Array:
        """What one row of data at most weighs in each of them."""
        return np.concatenate([parts.grain(told[name].counts) for name, parts in self._holders.items()])


def counted_parts(terms: HorizontalTerms, options: SQP) -> CountedParts | None:
    """What is counted; None where nothing has to be."""
    holders = (*terms.names, *([SERVER] if terms.server_rows else []))
    own = {name: RowParts(terms.own_rows(name)) for name in holders}
    shared = RowParts(terms.shared_rows)
    rows = [row for parts in (*own.values(), shared) for row in parts.constraint_rows]
    rates = options.exact_rates is not False and any(row.measure.name != "loss" for row in rows)
    if not rates and not any(row.reach for row in rows):
        return None
    counts = terms.slice_counts or {}
    return CountedParts(own, shared, np.array([counts[part] for _, part in shared.parts], dtype=np.float64))


class CountedRows:
    """A holder's rows of data, counted in slices at any model.

    Parameters
    ----------
    program
        Of these rows of data.
    rows
        The same rows with their groups, as they were agreed on.
    own, shared
        Parts of the holder's own constraint rows, and of those that all have summands of.
    shared_counts
        How many rows of data everybody together has in the shared parts.
    """

    def __init__(
        self, program: SliceProgram, rows: ClientRows, own: RowParts, shared: RowParts, shared_counts: Array
    ) -> None:
        assert rows.groups is not None
        self._program = program
        self._parts = (own, shared)
        self._shared_counts = shared_counts
        self._inside = [parts.inside(rows.labels, rows.groups) for parts in self._parts]

    @property
    def sizes(self) -> dict[str, int]:
        """How many parts are counted, as messages name it."""
        own, shared = self._parts
        return {"own parts": len(own.parts), "shared parts": len(shared.parts)}

    def at(self, weights: Array) -> tuple[PartSums, PartSums]:
        """Of the own parts, and of the shared ones."""
        program = self._program
        scores: Array = program.features @ weights
        own, shared = (
            parts.sums(inside, scores, program.labels, program.loss)
            for parts, inside in zip(self._parts, self._inside, strict=True)
        )
        return own, shared

    def left_out(self, weights: Array, net: Array, response: Response, shared_smooth: Array) -> tuple[Array, Array]:
        """Sums of the exact measures over own and shared parts, each row's at a model that was trained without it.

        Parameters
        ----------
        net
            Multipliers of the own rows and of the shared ones.
        response
            Of the weights that all share, to these constraint rows.
        shared_smooth
            Smooth sums of the shared parts over everybody's rows.
        """
        program = self._program
        point = program.at(weights)
        nu, bends = point.first_derivative(net), point.second_derivative(net)
        measured, own = point.measured(), self.at(weights)[0]
        totals = [(own.counts, own.smooth), (self._shared_counts, shared_smooth)]
        places = np.cumsum([0, *(len(parts.constraint_rows) for parts in self._parts)])
        surprise = [
            parts.surprise(inside, measured[first:last], counts, smooth / np.maximum(counts, 1.0))
            for parts, inside, (counts, smooth), (first, last) in zip(
                self._parts, self._inside, totals, pairwise(places), strict=True
            )
        ]
        columns: Array = program.features.toarray() if sp.issparse(program.features) else program.features
        scores = point.scores + response.left_out(columns, nu, bends, np.hstack(surprise))
        found = [
            parts.sums(inside, scores, program.labels, program.loss).sums
            for parts, inside in zip(self._parts, self._inside, strict=True)
        ]
        return found[0], found[1]
