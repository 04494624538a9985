"""Compute the values of inequalities from the sums that clients report."""

from __future__ import annotations

from evenhand.arrays import Booleans
from evenhand.constraints.inequality_parts import InequalityParts
from evenhand.constraints.losses import by_measure
from evenhand.horizontal.problem import ClientRows
from evenhand.protocol.terms import HorizontalTerms


class SliceMeans(InequalityParts):
    """Inequalities of the terms, over the rows of all clients."""

    def __init__(self, terms: HorizontalTerms) -> None:
        super().__init__(terms.inequalities)
        self.terms = terms
        self.row_measures = by_measure(row.measure for row in self.inequalities)

    def membership(self, client: ClientRows) -> Booleans:
        """Return (n, P): whether each of the client's rows is in the slice of each part."""
        client = client.agreed(self.terms.groups)
        assert client.groups is not None
        return self.inside(client.labels, client.groups)
