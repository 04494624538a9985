"""Compute exact values of inequalities across clients: people are counted in slices, and the counts added."""

from __future__ import annotations

from collections.abc import Mapping
from copy import copy
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from evenhand.arrays import Array, Booleans
from evenhand.constraints.inequality_parts import InequalityParts, PartSums
from evenhand.constraints.leave_one_out import Response
from evenhand.constraints.slices import Inequality
from evenhand.horizontal.problem import ClientRows
from evenhand.programs.optimality import SHARED
from evenhand.programs.slices import SliceProgram


@dataclass(frozen=True, eq=False)
class CountedParts:
    """Slices that are counted in a run, as all participants know from the terms.

    Attributes
    ----------
    own
        Parts of each holder's own inequalities: clients by name, and the server.
    shared
        Parts of the shared inequalities, of which all clients have summands.
    shared_counts
        Number of rows of data of all clients in the shared parts.
    """

    own: Mapping[str, InequalityParts]
    shared: InequalityParts
    shared_counts: Array

    @property
    def _holders(self) -> dict[str, InequalityParts]:
        """Parts by holder, in the order in which a server of programs numbers inequalities."""
        return {**self.own, SHARED: self.shared}

    @property
    def rows(self) -> list[Inequality]:
        return [row for parts in self._holders.values() for row in parts.inequalities]

    @property
    def rates(self) -> Booleans:
        """Which inequalities bound rates."""
        return np.array([row.measure.is_rate for row in self.rows], dtype=bool)

    def values(self, told: Mapping[str, PartSums]) -> Array:
        """Return exact values of all inequalities, from each holder's sums and the totals of shared parts."""
        found = [parts.values(told[name].sums, told[name].counts) for name, parts in self._holders.items()]
        return np.concatenate(found)

    def of_sums(self, own_counts: Array, own: Mapping[str, Array], shared: Array) -> Array:
        """Return exact values from other sums over the same parts; `own_counts` concatenates all holders."""
        ends = np.cumsum([len(parts.parts) for parts in self.own.values()])
        counts = dict(zip(self.own, np.split(own_counts, ends[:-1]), strict=True))
        found = [parts.values(own[name], counts[name]) for name, parts in self.own.items()]
        return np.concatenate([*found, self.shared.values(shared, self.shared_counts)])

    def errors(self, told: Mapping[str, PartSums]) -> Array:
        """Return the standard errors of these values."""
        return np.concatenate([parts.errors(told[name]) for name, parts in self._holders.items()])

    def grain(self, told: Mapping[str, PartSums]) -> Array:
        """Return the largest weight of one row of data in each of these values."""
        return np.concatenate([parts.grain(told[name].counts) for name, parts in self._holders.items()])


class CountedRows:
    """Rows of data of one holder, counted in slices at any model.

    Parameters
    ----------
    program
        Program of these rows of data.
    rows
        The same rows with their agreed groups.
    own, shared
        Parts of the holder's own inequalities, and of the shared ones.
    shared_counts
        Number of rows of data of all clients in the shared parts.
    """

    def __init__(
        self,
        program: SliceProgram,
        rows: ClientRows,
        own: InequalityParts,
        shared: InequalityParts,
        shared_counts: Array,
    ) -> None:
        assert rows.groups is not None
        self._program = program
        self._parts = (own, shared)
        self._shared_counts = shared_counts
        self._inside = [parts.inside(rows.labels, rows.groups) for parts in self._parts]

    @property
    def sizes(self) -> dict[str, int]:
        """Numbers of counted parts, by their names in messages."""
        own, shared = self._parts
        return {"own parts": len(own.parts), "shared parts": len(shared.parts)}

    def tempered(self, program: SliceProgram, factor: float) -> CountedRows:
        """Return the same rows with temperatures of smooth rates times a factor, as `program` has them."""
        found = copy(self)
        found._program = program
        own, shared = self._parts
        found._parts = (own.tempered(factor), shared.tempered(factor))
        return found

    def at(self, weights: Array) -> tuple[PartSums, PartSums]:
        """Return the sums over the own parts and over the shared parts."""
        program = self._program
        scores = program.scores(weights)
        own, shared = (
            parts.sums(inside, scores, program.labels, program.loss)
            for parts, inside in zip(self._parts, self._inside, strict=True)
        )
        return own, shared

    def left_out(self, weights: Array, net: Array, response: Response, shared_smooth: Array) -> tuple[Array, Array]:
        """Return sums of the exact measures over own and shared parts, with each row at a model trained without it.

        Parameters
        ----------
        net
            Multipliers of the own and the shared inequalities.
        response
            Response of the shared weights to these inequalities.
        shared_smooth
            Smooth sums of the shared parts over all clients' rows.
        """
        program = self._program
        point = program.at(weights)
        nu, bends = point.first_derivative(net), point.second_derivative(net)
        measured, own = point.measured(), self.at(weights)[0]
        totals = [(own.counts, own.smooth), (self._shared_counts, shared_smooth)]
        places = np.cumsum([0, *(len(parts.inequalities) for parts in self._parts)])
        surprise = [
            parts.surprise(inside, measured[first:last], counts, smooth / np.maximum(counts, 1.0))
            for parts, inside, (counts, smooth), (first, last) in zip(
                self._parts, self._inside, totals, pairwise(places), strict=True
            )
        ]
        leverage = program.gram.forms(response.free)
        scores = point.scores + response.left_out(program.features, nu, bends, np.hstack(surprise), leverage)
        found = [
            parts.sums(inside, scores, program.labels, program.loss).sums
            for parts, inside in zip(self._parts, self._inside, strict=True)
        ]
        return found[0], found[1]
