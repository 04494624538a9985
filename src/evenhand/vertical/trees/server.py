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
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np

from evenhand.arrays import Array, Integers
from evenhand.constraints.debiased import DebiasedLagrangian
from evenhand.constraints.evaluation import Point
from evenhand.constraints.slices import stated
from evenhand.errors import InputError, ProtocolError
from evenhand.models.across import CrossTree, Routes, routes_state
from evenhand.programs.combining.cross_fitting import CrossFitting, FoldsFit, fewest_rows_a_leaf
from evenhand.programs.combining.folds import assign_folds
from evenhand.programs.combining.leaf_values import LeafProblem, is_better
from evenhand.programs.combining.leaves import LeafColumns, TiedColumns
from evenhand.protocol.messages import Message
from evenhand.protocol.roles import SERVER, Sends
from evenhand.protocol.solver import Certificate
from evenhand.protocol.terms import VerticalTerms
from evenhand.vertical.problem import MOST_NARROW_ROUNDS, NARROWEST, ServerData, narrowness, own_lagrangian
from evenhand.vertical.server import CROSS_FITTED, Server, UnseenScores
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

HOLDS = 1e-5
"""Largest violation of a model that counts as feasible, where constraints are judged by the values solved for."""

BLANK = 0.1
"""Share of the rows that do not influence where trees split."""
OWN_FIRST = 3
"""Number of rounds of parties' own trees before one that crosses parties is tried."""


class TreesServer(Server):
    """Sends derivatives, solves for the values of the returned leaves, and keeps the best model so far."""

    vocabulary = VOCABULARY
    state_fields: ClassVar = {
        "scores": Array,
        "held_out": Array,
        "fold_multipliers": Array,
        "values": Array,
        "offered": Integers,
        "pace": list[float | None],
        "begun": int,
        "futile": int,
        "narrow_rounds": int,
        "ended": str,
        "relays": int,
        "awaited": str,
        "answers": dict[int, Message],
        "best": Any,
        "best_scores": Array,
        "best_held_out": Array,
        "best_multipliers": Array,
        "crossing": list[CrossTree],
        "growing": GrowingTree | None,
        "relay": Relay | None,
        "problem": LeafProblem,
    }

    def __init__(self, terms: VerticalTerms, own: ServerData) -> None:
        super().__init__(terms, own)
        if terms.warm:
            raise InputError("trees cannot start from an earlier run; start without warm_start")
        self.options = options = terms.job.settings(Trees)
        self.folds = options.folds_of(terms)
        self.trees = self.folds * options.trees
        sizes = {"folds": self.folds, "trees": self.trees, "leaves": options.leaves}
        self.sizes = {**self.sizes, **sizes, "packed": packed_size(terms.n_rows)}
        self.problem = self._leaf_problem(own)
        self.intercept = self._first_score(own) if self.job.fit_intercept else 0.0
        grain = self.lagrangian.constraints.grain
        self.rows_a_leaf = fewest_rows_a_leaf(terms.n_rows, grain) if self.folds > 1 else 0
        # Scores by each model, and of each row by the model that has not seen it.
        self.scores: Array = np.full((self.folds, terms.n_rows), self.intercept)
        self.held_out: Array = self.scores[0].copy()
        self.fold_multipliers: Array = np.repeat(self.multipliers[None], self.folds, axis=0)
        # Without folds: held-out rows, which do not influence where trees split. Leave-one-out scores correct for leaf
        # values only: a tree that splits on noise lowers the loss of the rows it was grown from, but not of these.
        drawn = np.random.default_rng(0).random(terms.n_rows) < (BLANK if self.folds == 1 else 0.0)
        self.blank: Integers = np.flatnonzero(drawn)
        # Leaf values of the parties' own trees, by round, party, tree and leaf.
        self.values: Array = np.zeros((0, len(self.parties), self.trees, options.leaves))
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
        self.answers: dict[int, Message] = {}
        # The best model so far, and its measurements.
        self.best: dict[str, float] = {}
        self.best_scores, self.best_held_out, self.best_multipliers = self.scores, self.held_out, self.fold_multipliers
        self.futile = self.narrow_rounds = 0
        self.ended = ""
        # A constraint holds within a margin of its bound: one data row, or a twentieth of the bound.
        self.tolerance = max(HOLDS, float(np.max(self.problem.shifted.margin, initial=0.0)))

    def start(self) -> Sends:
        return self._ask(*self._derivatives())

    def handle(self, message: Message) -> Sends:
        place = self.place(message)
        fits = message.kind == self.awaited and message.integer("round") == self.round and place not in self.answers
        if not fits or self.done:
            raise ProtocolError(f"server: {message.kind!r} from {message.sender} does not belong to round {self.round}")
        if message.kind == LEAVES.kind:
            counts = message["counts"]
            if (counts < 1).any() or (counts > self.options.leaves).any() or (message["leaves"] >= counts).any():
                raise ProtocolError(f"server: {message.sender} sent leaves that its trees do not have")
        whole = message.kind != RELAY_LEAVES.kind or are_relay_leaves(message)
        if not whole or (self.relay is not None and not self.relay.fits(place, message, self.options.leaves)):
            raise ProtocolError(f"server: {message.sender} sent relay leaves or leaves that do not exist")
        self.answers[place] = message
        if len(self.answers) < len(self.parties):
            return ()
        answers = [self.answers.pop(place) for place in range(len(self.parties))]
        handlers = {
            LEAVES.kind: self._combine,
            OFFER.kind: self._next_level,
            RELAY_LEAVES.kind: self._relay,
            RELAYED.kind: self._relayed,
        }
        return handlers[self.awaited](answers)

    def _leaf_problem(self, own: ServerData) -> LeafProblem:
        settings = self.options.shrinkage, self.regulariser, self.options.exact_rates
        if self.folds == 1:
            return LeafProblem(self.lagrangian, *settings)
        # Targets of a regression have no strata.
        stratum = self.lagrangian.constraints.stratum
        fold = assign_folds(np.zeros_like(stratum) if self.job.loss == "squared" else stratum, self.folds)
        weights = np.ones(self.terms.n_rows) if own.sample_weight is None else own.sample_weight
        parts = [
            own_lagrangian(self.terms, replace(own, sample_weight=np.where(fold == place, 0.0, weights)))
            for place in range(self.folds)
        ]
        problem = CrossFitting(self.lagrangian, *settings)
        problem.take_folds(parts, fold)
        return problem

    def present(self) -> Point:
        """Return the training rows scored by the average of all models."""
        return self.lagrangian.at(self.scores.mean(axis=0))

    def _derivatives(self) -> tuple[Array, Array]:
        """Return gradient and curvature of each fold's rows."""
        parts = self.problem.parts if isinstance(self.problem, CrossFitting) else [self.lagrangian]
        points = [part.at(scores) for part, scores in zip(parts, self.scores, strict=True)]
        found = [self.problem.derivatives(*one) for one in zip(points, self.fold_multipliers, strict=True)]
        gradient, curvature = np.array(found).transpose(1, 0, 2)
        gradient[:, self.blank] = curvature[:, self.blank] = 0.0
        return gradient, curvature

    def _too_narrow(self, gradient: Array) -> bool:
        """Return whether parties would refuse derivatives, as under bounds on sharp rates that cannot hold."""
        effective, narrow = narrowness(gradient)
        self.narrow_rounds += narrow
        return effective < NARROWEST or self.narrow_rounds > MOST_NARROW_ROUNDS

    def _ask(self, gradient: Array, curvature: Array) -> Sends:
        """Send derivatives for whole trees, for relay leaves, or for the first split of a tree across parties."""
        self.begun = self.round
        self.round += 1
        relays, across = self._relays(), self._crosses()
        self.growing = GrowingTree(self.terms.n_rows) if across else None
        self.awaited = (RELAY_LEAVES if relays else OFFER if across else LEAVES).kind
        units = [float(np.abs(values).max()) or 1.0 for values in (gradient, curvature)]
        body = {
            "across": RELAYING if relays else int(across),
            "rows_a_leaf": self.rows_a_leaf,
            "gradient": gradient / units[0],
            "curvature": curvature / units[1],
            "gradient_unit": units[0],
            "curvature_unit": units[1],
        }
        return [DERIVATIVES.message(SERVER, party, round=self.round, **body) for party in self.parties]

    def _first_score(self, own: ServerData) -> float:
        if not isinstance(self.lagrangian, DebiasedLagrangian):
            return best_constant(own.labels, self.job.loss, own.sample_weight)
        return log_odds(self.lagrangian.positives, self.terms.n_rows)

    def _held_out_loss(self) -> float:
        """Return the mean loss at cross-fitted scores; without folds, at leave-one-out scores of the blank rows."""
        rows = self.blank if len(self.blank) else slice(None)
        shares = self.lagrangian.shared(np.ones(len(self.held_out)))[rows]
        return float(self.lagrangian.losses(self.held_out, rows).sum() / shares.sum())

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
        return self._go_on(fit, across=True)

    def _next_level(self, answers: Sequence[Message]) -> Sends:
        """Take the best offer for each node. Then ask for splits of the next level, or fit the leaves."""
        tree = self.growing
        assert tree is not None
        gains = np.array([answer["gains"][: len(tree.frontier)] for answer in answers])
        right = [np.unpackbits(answer["right"], count=self.terms.n_rows).astype(bool) for answer in answers]
        numbers = self.offered[:, None] + np.cumsum(gains > 0.0, axis=1) - 1
        self.offered = self.offered + (gains > 0.0).sum(axis=1)
        tree.split(gains, right, numbers, self.options.leaves, self.options.depth)
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
        return self._go_on(fit, across=True)

    def _combine(self, answers: Sequence[Message]) -> Sends:
        """Solve for the leaf values of the parties' own trees; the model is the average over folds."""
        given = leaves_by_fold(answers, self.folds, self.options.trees, self.options.leaves)
        ordered = [bool(answer["proportions"].any()) for answer in answers]
        trees = np.flatnonzero(np.repeat(ordered, self.options.trees))
        fit, values = fit_in_order(self._fit, given, trees)
        self.values = np.concatenate([self.values, averaged(given, values, len(self.parties))[None]])
        return self._go_on(fit, across=False)

    def _fit(self, columns: Sequence[LeafColumns | TiedColumns]) -> FoldsFit:
        problem = self.problem
        if isinstance(problem, CrossFitting):
            fit = problem.fit_folds(columns, list(self.scores), self.held_out, self.fold_multipliers)
        else:
            fit = FoldsFit.of_one(problem.fit(columns[0], self.scores[0], self.held_out, self.fold_multipliers[0]))
        self.effort += fit.iterations * float(columns[0].leaves.size) * columns[0].leaves.shape[1]
        return fit

    def _go_on(self, fit: FoldsFit, across: bool) -> Sends:
        """Add the new leaves to the model. Then stop, or ask for more."""
        before = self._held_out_loss()
        self._take(np.array(fit.scores), fit.held_out, fit.multipliers)
        self.pace[across] = (before - self._held_out_loss()) / (self.round - self.begun)
        self._judge(fit)
        if self.futile >= self.options.steps_of_patience:
            self.ended = "the held-out loss fell no more"
        elif self.round >= self.job.max_rounds:
            self.ended = "max_rounds"
        else:
            gradient, curvature = self._derivatives()
            if not self._too_narrow(gradient):
                return self._ask(gradient, curvature)
            self.ended = "derivatives that concentrate on a few rows"
        self._finish()
        return self._return()

    def _take(self, scores: Array, held_out: Array, multipliers: Array) -> None:
        self.scores, self.held_out, self.fold_multipliers = scores, held_out, multipliers
        self.multipliers = multipliers.mean(axis=0)

    def _judge(self, fit: FoldsFit) -> None:
        """Report how good the model is, and keep it if it is the best so far.

        Feasible models rank before infeasible ones, and among them the one with the lowest held-out loss is best.
        """
        point, held_out = self.present(), self._held_out_loss()
        told = {
            "held-out loss": held_out,
            "stationarity": fit.stationarity,
            "complementarity": fit.complementarity,
        }
        self.reports.append({"round": self.round, **self.row_report(point), **told})
        missed = max(fit.violation, self.tolerance)
        better = progress = True
        if self.best:
            least, loss = self.best["missed"], self.best["held-out loss"]
            better, progress = is_better(missed, held_out, least, loss, self.job.tol)
        self.futile = 0 if progress else self.futile + 1
        if better:
            self.best = {"rounds": len(self.values), "crossing": len(self.crossing), "missed": missed, **told}
            self.best_scores, self.best_held_out = self.scores, self.held_out
            self.best_multipliers = self.fold_multipliers

    def _finish(self) -> None:
        """Return to the best model, and certify it.

        A feasible model is complete after any number of rounds. The record tells what ended the run.
        """
        self._take(self.best_scores, self.best_held_out, self.best_multipliers)
        self.values = self.values[: int(self.best["rounds"])]
        self.crossing = self.crossing[: int(self.best["crossing"])]
        self.certificate = Certificate(
            stationarity=self.best["stationarity"],
            violation=self.violation(self.present()),
            complementarity=self.best["complementarity"],
            objective=self.objective(self.present()),
            rounds=self.round,
            converged=self.best["missed"] <= self.tolerance,
        )
        self.done = True

    def _return(self) -> Sends:
        """Send each party its leaf values and kept splits, and the label holder the routes through all splits."""
        taken = [kept_splits(self.crossing, place) for place in range(len(self.parties))]
        sends = [
            LEAF_VALUES.message(
                SERVER,
                party,
                values=self.values[:, place].reshape(-1, self.options.leaves),
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

    def violation(self, point: Point) -> float:
        return self.problem.violation(point, self.held_out)

    def shortfall(self) -> str:
        if self.best["missed"] <= self.tolerance:
            return ""
        return (
            f"no model was found that meets the bounds on held-out rows: the worst is exceeded by "
            f"{self.best['missed']:.2g} at best. Its slices may be too small for the bound; widen it or merge groups"
        )

    def objective(self, point: Point) -> float:
        """Return the mean training loss. Shrinkage restrains leaf values in each round; there is no regulariser."""
        return point.loss

    def unseen_scores(self) -> UnseenScores | None:
        return UnseenScores(self.held_out, CROSS_FITTED) if self.folds > 1 else None

    def statistics(self) -> dict[str, Any]:
        return {
            "ended by": self.ended,
            "rounds kept": len(self.values),
            "trees across parties": len(self.crossing),
            "held-out loss": self.best["held-out loss"],
            "violation on training rows": self.problem.violation(self.present(), self.present().scores),
            "constraints": self._stated(),
            "folds": self.folds,
        }

    def _stated(self) -> list[dict[str, Any]]:
        """Return for each inequality what it is on training rows and on held-out ones, and what was asked."""
        training, held_out = (self.problem.judged(scores) for scores in (self.present().scores, self.held_out))
        rows = self.lagrangian.constraints
        return stated(rows.names, rows.bounds, training, held_out)


def best_constant(labels: Array, loss: str, weights: Array | None = None) -> float:
    """Return the best constant score: the log-odds, or the mean."""
    people = np.ones(len(labels)) if weights is None else weights * (len(labels) / weights.sum())
    if loss == "squared":
        return float(np.average(labels, weights=people))
    return log_odds(float(people[labels > 0].sum()), len(labels))


def log_odds(positive: float, rows: int) -> float:
    """Return the log-odds of this many positive rows among all.

    Half a row of either label keeps them finite where only one label occurs.
    """
    within = min(max(positive, 0.0), float(rows))
    return float(np.log((within + 0.5) / (rows - within + 0.5)))
