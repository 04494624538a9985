"""A party of boosted trees."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from evenhand.arrays import Array
from evenhand.errors import InputError, ProtocolError
from evenhand.models.across import Routes, routes_from_state
from evenhand.models.trees import TreeShape, TreesModel, leaf_count, leaf_values
from evenhand.protocol.messages import Message
from evenhand.protocol.roles import SERVER, Sends
from evenhand.protocol.state import State
from evenhand.protocol.terms import VerticalTerms
from evenhand.vertical.problem import Party, PartyData, check_rows, check_told, has_intercept
from evenhand.vertical.trees.messages import (
    DERIVATIVES,
    LEAF_VALUES,
    LEAVES,
    NODES,
    OFFER,
    RELAY,
    RELAY_LEAVES,
    RELAYED,
    ROUTES,
    VOCABULARY,
    packed_size,
)
from evenhand.vertical.trees.options import Trees
from evenhand.vertical.trees.relaying import MAX_RELAY_LEAVES, RELAYING, leaves_inside


class TreesParty(Party):
    """Grows trees on its own columns, and sends the leaf of every row."""

    vocabulary = VOCABULARY
    state_fields: ClassVar = {"gradient": Array, "curvature": Array, "model": TreesModel, "routes": Routes | None}
    model: TreesModel

    def __init__(self, terms: VerticalTerms, name: str, own: PartyData) -> None:
        self.options = options = terms.job.settings(Trees)
        check_rows(terms, name, own)
        if own.weights is not None:
            raise InputError(f"{name}: trees cannot start from an earlier run; start without its weights")
        self.leaves = options.leaves_of(terms.n_rows)
        shape = TreeShape(self.leaves, options.depth, options.rows_a_leaf, terms.n_rows * terms.regulariser)
        # Each party has a seed of its own, so that adding a party does not change the other parties' trees.
        seed = int(np.random.SeedSequence([terms.job.seed, terms.names.index(name)]).generate_state(1)[0]) % 2**31
        monotone = self._monotone(name, own)
        model = TreesModel(
            own.matrix, shape, own.categorical, has_intercept(terms, name), seed, monotone, own.marks_absence
        )
        super().__init__(terms, name, model)
        self.folds = options.folds_of(terms)
        sizes = {
            "folds": self.folds,
            "trees": self.folds * options.trees,
            "leaves": self.leaves,
            "packed": packed_size(terms.n_rows),
        }
        self.sizes = {**self.sizes, **sizes}
        # Derivatives for the tree across parties that is being grown.
        self.gradient: Array = np.zeros(0)
        self.curvature: Array = np.zeros(0)

    def handle(self, message: Message) -> Sends:
        if message.kind == DERIVATIVES.kind:
            self.round = message.integer("round")
            return [self._begin(message)]
        if message.kind == NODES.kind and len(self.gradient):
            self.round = message.integer("round")
            return [self._offer(message["nodes"], message.integer("count"))]
        if message.kind == RELAY.kind and len(self.gradient):
            self.round = message.integer("round")
            return [self._grow_inside(message["relay_leaves"], message.integer("count"))]
        if message.kind == ROUTES.kind and self.name == self.terms.active[0]:
            self.model.routes = self._routes(message)
            return ()
        if message.kind == LEAF_VALUES.kind:
            self._keep(message)
            self.done = True
            return ()
        raise ProtocolError(f"{self.name} takes no {message.kind!r}")

    def _begin(self, message: Message) -> Message:
        """Grow whole trees, or offer the first split of a tree that crosses parties."""
        gradient, curvature = self.derivatives_in_units(message)
        # Half precision may round to zero. A row without curvature would not count as a row.
        curvature = np.maximum(curvature, 1e-8 * message.number("curvature_unit"))
        across = message.integer("across")
        if across:
            self.gradient, self.curvature = gradient[0], curvature[0]
        if across == RELAYING:
            return self._grow_relay_leaves()
        if across:
            return self._offer(np.zeros(self.terms.n_rows, dtype=np.uint8), 1)
        trees, shrinkage = self.options.trees, self.options.shrinkage
        least = message.integer("rows_a_leaf")
        grown = [
            self.model.grow(*of_fold, trees, shrinkage, least) for of_fold in zip(gradient, curvature, strict=True)
        ]
        leaves, trees = np.concatenate(grown, axis=1), self.folds * trees
        self.effort += trees * self.model.effort
        counts = np.array([leaf_count(tree) for tree in self.model.trees[-trees:]])
        proportions = np.zeros((trees, self.leaves))
        if any(self.model.monotone):
            for row, tree in zip(proportions, self.model.trees[-trees:], strict=True):
                row[: leaf_count(tree)] = leaf_values(tree)
        body = {"leaves": leaves, "counts": counts, "proportions": proportions}
        return LEAVES.message(self.name, SERVER, round=self.round, **body)

    def _monotone(self, name: str, own: PartyData) -> tuple[int, ...]:
        """Return in which direction scores may change with each of the party's columns."""
        found = () if own.signs is None else tuple(map(int, own.signs))
        if any(found):
            check_told(name, self.options.monotone)
        return found

    def _offer(self, nodes: Any, count: int) -> Message:
        if not 0 < count <= self.leaves:
            raise ProtocolError(f"{self.name} was asked for splits of {count} nodes; it allows {self.leaves}")
        gains = np.zeros(self.leaves)
        gains[:count], right = self.model.offer(nodes, count, self.gradient, self.curvature)
        self.effort += self.model.effort
        return OFFER.message(self.name, SERVER, round=self.round, gains=gains, right=np.packbits(right))

    def _grow_relay_leaves(self) -> Message:
        """Grow a tree of few leaves, inside which another party grows."""
        relay_leaves = self.model.grow_relay_leaves(self.gradient, self.curvature, MAX_RELAY_LEAVES)
        self.effort += self.model.effort
        count = int(relay_leaves.max(initial=0)) + 1
        return RELAY_LEAVES.message(self.name, SERVER, round=self.round, count=count, relay_leaves=relay_leaves)

    def _grow_inside(self, relay_leaves: Any, count: int) -> Message:
        if not 0 < count <= MAX_RELAY_LEAVES or (relay_leaves >= count).any():
            raise ProtocolError(f"{self.name} was asked to grow in {count} relay leaves, but was sent others")
        leaves = leaves_inside(self.leaves)
        found, counts = self.model.grow_inside(relay_leaves, count, self.gradient, self.curvature, leaves)
        self.effort += self.model.effort
        return RELAYED.message(self.name, SERVER, round=self.round, leaves=found, counts=counts)

    def _keep(self, message: Message) -> None:
        values, counts, splits = message["values"], self.model.leaf_counts, message["splits"]
        if len(values) > len(counts):
            raise ProtocolError(f"{self.name} has grown {len(counts)} trees and was sent values of {len(values)}")
        if ((splits < 0) | (splits >= len(self.model.splits))).any():
            raise ProtocolError(
                f"{self.name} has offered {len(self.model.splits)} splits, but the server keeps another"
            )
        kept = [row[:count] for row, count in zip(values, counts, strict=False)]
        self.model.keep(kept, message.number("intercept"))
        self.model.keep_splits([int(number) for number in splits])

    def _routes(self, message: Message) -> Routes | None:
        """Return the trees that the server sent, after validation."""
        content: State = {f"route {name}": array for name, array in message.body.items()}
        try:
            return routes_from_state({"route parties": list(self.terms.names), **content})
        except ValueError as error:
            raise ProtocolError(f"{self.name}: the server sent invalid routes: {error}") from error

    @property
    def routes(self) -> Routes | None:
        """Routes through the splits of all parties, if the party holds the labels."""
        return self.model.routes if isinstance(self.model.routes, Routes) else None

    @routes.setter
    def routes(self, routes: Routes | None) -> None:
        self.model.routes = routes
