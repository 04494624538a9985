"""A party of boosted trees."""

from __future__ import annotations

import numpy as np

from evenhand.errors import InputError, ProtocolError
from evenhand.models.trees import TreeShape, TreesModel
from evenhand.protocol.messages import Message
from evenhand.protocol.roles import SERVER, Sends, State
from evenhand.protocol.terms import VerticalTerms
from evenhand.vertical.parties import Party
from evenhand.vertical.problem import PartyData, check_rows, has_intercept
from evenhand.vertical.trees.messages import DERIVATIVES, LEAF_VALUES, LEAVES, VOCABULARY
from evenhand.vertical.trees.options import TreesOptions

LARGEST_UNIT = 1e30
"""LightGBM keeps derivatives as numbers of four bytes."""


class TreesParty(Party):
    """Grows trees on its own columns, and says which rows share a leaf."""

    vocabulary = VOCABULARY
    model: TreesModel

    def __init__(self, terms: VerticalTerms, name: str, own: PartyData) -> None:
        self.options = options = TreesOptions(**terms.job.options)
        check_rows(terms, name, own)
        if own.weights is not None:
            raise InputError(f"{name}: there are weights to start from, but trees begin anew")
        shape = TreeShape(options.leaves, options.depth, options.rows_a_leaf, terms.n_rows * terms.regulariser)
        # A seed of its own for each party, so that adding a party changes nobody else's trees.
        seed = int(np.random.SeedSequence([terms.job.seed, terms.names.index(name)]).generate_state(1)[0]) % 2**31
        model = TreesModel(own.matrix, shape, own.categorical, has_intercept(terms, name), seed)
        super().__init__(terms, name, model)
        self.sizes = {**self.sizes, "trees": self.options.trees, "leaves": self.options.leaves}

    def handle(self, message: Message) -> Sends:
        if message.kind == DERIVATIVES.kind:
            self.round = message.integer("round")
            return [self._grow(message)]
        if message.kind == LEAF_VALUES.kind:
            self._keep(message)
            self.done = True
            return ()
        raise ProtocolError(f"{self.name} takes no {message.kind!r}")

    def _grow(self, message: Message) -> Message:
        units = message.number("gradient_unit"), message.number("curvature_unit")
        if not all(0.0 < unit < LARGEST_UNIT for unit in units):
            raise ProtocolError(f"{self.name}: derivatives in units of {units} are none")
        gradient, curvature = (
            message[name].astype(np.float64) * unit for name, unit in zip(("gradient", "curvature"), units, strict=True)
        )
        # A number of two bytes may end at zero; a row without any curvature would count as no row.
        curvature = np.maximum(curvature, 1e-8 * units[1])
        leaves = self.model.grow(gradient, curvature, self.options.trees, self.options.shrinkage)
        self.effort += self.options.trees * self.model.effort
        counts = self.model.leaf_counts[-self.options.trees :]
        return LEAVES.message(self.name, SERVER, round=self.round, leaves=leaves, counts=counts)

    def _keep(self, message: Message) -> None:
        values, counts = message["values"], self.model.leaf_counts
        if len(values) > len(counts):
            raise ProtocolError(f"{self.name} has grown {len(counts)} trees and was sent values of {len(values)}")
        kept = [row[:count] for row, count in zip(values, counts, strict=False)]
        self.model.keep(kept, message.number("intercept"))

    def snapshot(self) -> State:
        return super().snapshot() | {"head": self.model.head, "trees": list(self.model.trees)}

    def restore(self, state: State) -> None:
        super().restore(state)
        self.model.head, self.model.trees = str(state["head"]), list(state["trees"])
