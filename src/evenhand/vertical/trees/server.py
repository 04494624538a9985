"""The server of boosted trees: it sends derivatives, solves for leaf values, and stops by the loss of held-out rows.

Round:

1. The server sends every party first and second derivatives in each row's score, for each of a few models: each is
   fitted without one fold of the rows, and judged on it.
2. Each party grows trees on its own columns for every model, and answers with every row's leaf.
3. The server solves for the values of all new leaves jointly, under the inequalities.
4. It stops when the held-out loss no longer falls, or at the round limit, and sends each party its leaf values. The
   model is the average of the few.

Trees that cross parties need more rounds: one a level, in which parties offer splits and the server chooses; or two
with relay leaves (`relaying.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from evenhand.arrays import Array, Integers
from evenhand.errors import ProtocolError
from evenhand.models.across import CrossTree, Routes, routes_state
from evenhand.programs.combining.cross_fitting import CrossFitting, FoldsFit, fewest_rows_a_leaf
from evenhand.programs.combining.leaf_values import LeafProblem
from evenhand.programs.combining.leaves import LeafColumns, TiedColumns
from evenhand.protocol.messages import Message
from evenhand.protocol.roles import SERVER, Sends
from evenhand.protocol.terms import VerticalTerms
from evenhand.vertical.cross_fitted import CrossFittedServer
from evenhand.vertical.problem import ServerData
from evenhand.vertical.trees.crossing import GrowingTree, kept_splits, renumbered
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
from evenhand.vertical.trees.own_trees import averaged, fit_in_order, leaves_by_fold
from evenhand.vertical.trees.relaying import RELAYING, Relay, are_relay_leaves

OWN_FIRST = 3
"""Number of rounds of parties' own trees before one that crosses parties is tried."""


class TreesServer(CrossFittedServer):
    """Sends derivatives, solves for the values of the returned leaves, and keeps the best model so far."""

    vocabulary = VOCABULARY
    state_fields: ClassVar = {
        "values": Array,
        "offered": Integers,
        "pace": list[float | None],
        "begun": int,
        "relays": int,
        "awaited": str,
        "crossing": list[CrossTree],
        "growing": GrowingTree | None,
        "relay": Relay | None,
    }

    def __init__(self, terms: VerticalTerms, own: ServerData) -> None:
        self.options = options = terms.job.settings(Trees)
        super().__init__(
            terms,
            own,
            folds=options.folds_of(terms),
            shrinkage=options.shrinkage,
            exact_rates=options.exact_rates,
            patience=options.steps_of_patience,
        )
        self.trees = self.folds * options.trees
        self.leaves = options.leaves_of(terms.n_rows)
        sizes = {"folds": self.folds, "trees": self.trees, "leaves": self.leaves}
        self.sizes = {**self.sizes, **sizes, "packed": packed_size(terms.n_rows)}
        grain = self.lagrangian.constraints.grain
        self.rows_a_leaf = fewest_rows_a_leaf(terms.n_rows, grain) if self.folds > 1 else 0
        # Leaf values of the parties' own trees, by round, party, tree and leaf.
        self.values: Array = np.zeros((0, len(self.parties), self.trees, self.leaves))
        # Trees that cross parties, the one being grown, and the number of splits that each party has offered for them.
        self.crossing: list[CrossTree] = []
        self.growing: GrowingTree | None = None
        self.offered: Integers = np.zeros(len(self.parties), dtype=np.int64)
        # Relay leaves of all parties during a relay, and the number of relays so far.
        self.relay: Relay | None = None
        self.relays = 0
        self.awaited = LEAVES.kind
        # Last decrease of the held-out loss by a round of parties' own trees, and by one of trees across them.
        self.pace: list[float | None] = [None, None]
        self.begun = 0

    def make_problem(self, shrinkage: float, exact_rates: bool) -> LeafProblem:
        settings = shrinkage, self.regulariser, exact_rates
        if self.folds == 1:
            return LeafProblem(self.lagrangian, *settings)
        problem = CrossFitting(self.lagrangian, *settings)
        problem.take_folds(self.parts, self.fold)
        return problem

    def start(self) -> Sends:
        return self.ask(*self.derivatives())

    def handle(self, message: Message) -> Sends:
        answers = self.answered(message, self.awaited)
        if answers is None:
            return ()
        handlers = {
            LEAVES.kind: self._combine,
            OFFER.kind: self._next_level,
            RELAY_LEAVES.kind: self._relay,
            RELAYED.kind: self._relayed,
        }
        return handlers[self.awaited](answers)

    def check_answer(self, message: Message) -> None:
        if message.kind == LEAVES.kind:
            counts = message["counts"]
            if (counts < 1).any() or (counts > self.leaves).any() or (message["leaves"] >= counts).any():
                raise ProtocolError(f"server: {message.sender} sent leaves that its trees do not have")
        place, whole = self.place(message), message.kind != RELAY_LEAVES.kind or are_relay_leaves(message)
        if not whole or (self.relay is not None and not self.relay.fits(place, message, self.leaves)):
            raise ProtocolError(f"server: {message.sender} sent relay leaves or leaves that do not exist")

    def ask(self, gradient: Array, curvature: Array) -> Sends:
        """Send derivatives for whole trees, for relay leaves, or for the first split of a tree across parties."""
        self.begun = self.round
        self.round += 1
        relays, across = self._relays(), self._crosses()
        self.growing = GrowingTree(self.terms.n_rows) if across else None
        self.awaited = (RELAY_LEAVES if relays else OFFER if across else LEAVES).kind
        body = {"across": RELAYING if relays else int(across), "rows_a_leaf": self.rows_a_leaf}
        body |= self.in_units(gradient, curvature)
        return [DERIVATIVES.message(SERVER, party, round=self.round, **body) for party in self.parties]

    def _relays(self) -> bool:
        """Return whether a relay comes next: in every second step, if two rounds are left."""
        wanted = self.options.interactions == "relay" and len(self.parties) > 1
        return wanted and len(self.values) > self.relays and self.round < self.job.max_rounds

    def _crosses(self) -> bool:
        """Return whether the next tree crosses parties."""
        if self.options.interactions != "auto":
            return self.options.interactions == "full"
        own, across = self.pace
        return len(self.values) >= OWN_FIRST and (across is None or (own is not None and across > own))

    def _relay(self, answers: Sequence[Message]) -> Sends:
        """Send each party the relay leaves of another one, when the relay leaves of all are in."""
        self.offered = self.offered + 1
        self.relay = Relay.of(answers, self.relays)
        self.relays += 1
        self.round += 1
        self.awaited = RELAYED.kind
        told = [self.relay.told(place) for place in range(len(self.parties))]
        return [
            RELAY.message(SERVER, party, round=self.round, count=count, relay_leaves=relay_leaves)
            for party, (count, relay_leaves) in zip(self.parties, told, strict=True)
        ]

    def _relayed(self, answers: Sequence[Message]) -> Sends:
        """Solve for the values of all leaves inside relay leaves."""
        assert self.relay is not None
        leaves, counts = self.relay.leaves(answers)
        fit = self._fit([LeafColumns(leaves, counts)])
        for place, values in enumerate(np.split(fit.values[0], np.cumsum(counts)[:-1])):
            relay_split = int(self.offered[self.relay.giver(place)]) - 1
            own = answers[place]["counts"]
            self.crossing.append(self.relay.tree(place, own, relay_split, int(self.offered[place]), values))
        self.offered = self.offered + [(answer["counts"] > 1).sum() for answer in answers]
        self.relay = None
        return self._judged(fit, across=True)

    def _next_level(self, answers: Sequence[Message]) -> Sends:
        """Take the best offer for each node. Then ask for splits of the next level, or fit the leaves."""
        tree = self.growing
        assert tree is not None
        gains = np.array([answer["gains"][: len(tree.frontier)] for answer in answers])
        right = [np.unpackbits(answer["right"], count=self.terms.n_rows).astype(bool) for answer in answers]
        numbers = self.offered[:, None] + np.cumsum(gains > 0.0, axis=1) - 1
        self.offered = self.offered + (gains > 0.0).sum(axis=1)
        tree.split(gains, right, numbers, self.leaves, self.options.depth)
        if len(tree.frontier) and self.round < self.job.max_rounds:
            self.round += 1
            body = {"round": self.round, "count": len(tree.frontier), "nodes": tree.numbers}
            return [NODES.message(SERVER, party, **body) for party in self.parties]
        leaves, ends = tree.leaves
        fit = self._fit([LeafColumns(leaves[:, None], np.array([len(ends)]))])
        values = np.zeros(len(tree.nodes))
        values[ends] = fit.values[0]
        self.crossing.append(CrossTree(tree.nodes, values))
        self.growing = None
        return self._judged(fit, across=True)

    def _combine(self, answers: Sequence[Message]) -> Sends:
        """Solve for the leaf values of the parties' own trees; the model is the average over folds."""
        given = leaves_by_fold(answers, self.folds, self.options.trees, self.leaves)
        ordered = [bool(answer["proportions"].any()) for answer in answers]
        trees = np.flatnonzero(np.repeat(ordered, self.options.trees))
        fit, values = fit_in_order(self._fit, given, trees)
        self.values = np.concatenate([self.values, averaged(given, values, len(self.parties))[None]])
        return self._judged(fit, across=False)

    def _fit(self, columns: Sequence[LeafColumns | TiedColumns]) -> FoldsFit:
        problem = self.problem
        if isinstance(problem, CrossFitting):
            fit = problem.fit_folds(columns, list(self.scores), self.held_out, self.fold_multipliers)
        else:
            fit = FoldsFit.of_one(problem.fit(columns[0], self.scores[0], self.held_out, self.fold_multipliers[0]))
        self.effort += fit.iterations * float(columns[0].leaves.size) * columns[0].leaves.shape[1]
        return fit

    def _judged(self, fit: FoldsFit, across: bool) -> Sends:
        """Add the new leaves to the model. Then stop, or ask for more."""
        before = self.held_out_loss()
        self.take_fit(fit)
        self.pace[across] = (before - self.held_out_loss()) / (self.round - self.begun)
        self.judge(fit)
        return self.go_on()

    def size(self) -> dict[str, int]:
        return {"rounds": len(self.values), "crossing": len(self.crossing)}

    def cut_back(self, size: dict[str, int]) -> None:
        self.values, self.crossing = self.values[: size["rounds"]], self.crossing[: size["crossing"]]

    def kept(self) -> dict[str, int]:
        return {"rounds kept": len(self.values), "trees across parties": len(self.crossing)}

    def give_back(self) -> Sends:
        """Send each party its leaf values and kept splits, and the label holder the routes through all splits."""
        taken = [kept_splits(self.crossing, place) for place in range(len(self.parties))]
        sends = [
            LEAF_VALUES.message(
                SERVER,
                party,
                values=self.values[:, place].reshape(-1, self.leaves),
                intercept=self.intercept if party == self.terms.active[0] else 0.0,
                splits=taken[place],
            )
            for place, party in enumerate(self.parties)
        ]
        if not self.crossing:
            return sends
        trees = [renumbered(tree, taken) for tree in self.crossing]
        body = routes_state(Routes(self.parties, tuple(trees)))
        body = {name: body[f"route {name}"] for name in ROUTES.fields}
        # Sent before the leaf values, because these end a party's part.
        return [ROUTES.message(SERVER, self.terms.active[0], **body), *sends]
