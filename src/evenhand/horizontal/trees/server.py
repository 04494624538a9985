"""The server of boosted trees across clients: it adds up, splits nodes, and solves for leaf values.

Two rounds of counts give the bins of all columns. Then, for each tree:

1. The server sends the bin edges or the last tree's leaf values. Clients answer with histograms of the root.
2. The server adds them up, splits the nodes that gain most, and sends the splits.
3. Clients answer with histograms of the smaller children. Step 2 follows, one round a level, until the tree is full.
4. Clients then answer with sums by leaf, label, group and score.
5. The server solves for the leaf values under the inequalities.
6. It stops when the leave-one-out loss no longer falls, no split has a gain, or at the round limit.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from evenhand.arrays import Array, Booleans, Integers
from evenhand.constraints.inequality_parts import InequalityParts
from evenhand.errors import DataError, InputError, ProtocolError
from evenhand.horizontal.problem import HorizontalServerData
from evenhand.horizontal.roles import HorizontalServer, Outcome
from evenhand.horizontal.trees.binning import bin_counts, edges_of, fullest_bins
from evenhand.horizontal.trees.client import client_sizes
from evenhand.horizontal.trees.messages import (
    COUNT,
    COUNTED,
    EDGES,
    FINISH,
    HISTOGRAMS,
    LEAF_SUMS,
    REFINE,
    REFINED,
    ROOT,
    SPLITS,
    VALUES,
    VOCABULARY,
)
from evenhand.horizontal.trees.splits import UNIT, Frontier, LevelTree, best_splits
from evenhand.horizontal.trees.strata import SliceStrata
from evenhand.models.binned_trees import MOST_BINS, BinnedTrees
from evenhand.models.growth import HistogramTrees
from evenhand.programs.combining.leaf_values import LeafProblem, is_better
from evenhand.programs.optimality import SHARED
from evenhand.protocol.asking import Answers, Body
from evenhand.protocol.messages import Message, Schema
from evenhand.protocol.roles import SERVER, Sends
from evenhand.protocol.solver import Certificate
from evenhand.protocol.terms import HorizontalTerms

FEWEST_ROUNDS = 6
"""Fewest rounds of a run: two for bins, one each for the first root, a level, the leaves and their values."""
HOLDS = 1e-5
"""Largest violation at which constraints count as met, if they are evaluated as they are solved."""


class HistogramServer(HorizontalServer):
    """Server with the sums of all answers, the growing tree, and the model so far."""

    vocabulary = VOCABULARY
    state_fields: ClassVar = {
        "round": int,
        "awaited": str,
        "multipliers": Array,
        "intercept": float,
        "coarse": Integers,
        "fullest": Integers,
        "categorical": Booleans,
        "chosen": Integers,
        "smaller_right": Booleans,
        "fit_told": Any,
        "best": Any,
        "best_multipliers": Array,
        "futile": int,
        "ended": str,
        "answers": Answers,
        "problem": LeafProblem,
        "frontier": Frontier,
        "tree": LevelTree,
        "model": BinnedTrees,
    }

    def __init__(self, terms: HorizontalTerms, own: HorizontalServerData, options: HistogramTrees) -> None:
        if own.start is not None:
            raise InputError("trees cannot start from an earlier run; leave out the starting weights")
        if terms.job.max_rounds < FEWEST_ROUNDS:
            raise InputError(
                f"max_rounds is {terms.job.max_rounds}; trees across clients need at least {FEWEST_ROUNDS}: "
                "two for bins, then one a level of a tree and two for its leaves"
            )
        self.terms, self.options = terms, options
        self.strata, self.parts = SliceStrata(terms), InequalityParts(terms.shared_inequalities)
        super().__init__(SERVER, client_sizes(terms, options, self.strata))
        counts = terms.slice_counts or {}
        self.counts: Array = np.array([counts[part] for _, part in self.parts.parts], dtype=np.float64)
        empty = self.strata.weighted_rows(np.zeros((1, self.strata.count, 1, 3), dtype=np.int64), 1).lagrangian
        self.problem = LeafProblem(
            empty, options.shrinkage, terms.regulariser, options.exact_rates, self.parts.grain(self.counts)
        )
        self.answers = Answers()
        self.round = 0
        self.awaited = COUNTED.kind
        self.multipliers: Array = np.zeros((2, len(self.strata.rows)))
        # State of the binning.
        self.coarse: Integers = np.zeros((0, 0), dtype=np.int64)
        self.fullest: Integers = np.zeros((0, 0), dtype=np.int64)
        self.categorical: Booleans = np.zeros(0, dtype=bool)
        self.model = BinnedTrees(())
        self.intercept = 0.0
        # State of the growing tree: nodes that were split last, and the children with outstanding histograms.
        self.tree, self.frontier = LevelTree(), Frontier(np.zeros(0, np.int64), np.zeros((0, 0, 3), np.int64))
        self.chosen: Integers = np.zeros(0, dtype=np.int64)
        self.smaller_right: Booleans = np.zeros(0, dtype=bool)
        # Residuals of the last leaf problem, and the best model so far.
        self.fit_told: dict[str, float] = {}
        self.best: dict[str, float] = {}
        self.best_multipliers = self.multipliers
        self.futile = 0
        self.ended = ""
        self.tolerance = max(HOLDS, float(np.max(self.problem.shifted.margin, initial=0.0)))

    def check(self, message: Message) -> None:
        if message.sender not in self.terms.names:
            raise ProtocolError(f"{message.sender!r} is not a client of this run; its message is refused")
        super().check(message)

    def start(self) -> Sends:
        return self._ask(COUNT, COUNTED)

    def handle(self, message: Message) -> Sends:
        if self.done or message.kind != self.awaited or message.integer("round") != self.round:
            raise ProtocolError(f"the server takes no such {message.kind!r} from {message.sender} at this point")
        if message.kind == HISTOGRAMS.kind and len(message["sums"]) != len(self.chosen):
            raise ProtocolError(f"{message.sender} sent {len(message['sums'])} nodes instead of {len(self.chosen)}")
        self.answers.add(message)
        if not self.answers.complete([self.awaited], self.terms.names):
            return ()
        total = _added(self.answers.of(self.awaited))
        self.answers.clear()
        handlers = {
            COUNTED.kind: self._refine,
            REFINED.kind: self._cut,
            ROOT.kind: self._judge,
            HISTOGRAMS.kind: self._descend,
            LEAF_SUMS.kind: self._fit,
        }
        return handlers[self.awaited](total)

    def _ask(self, schema: Schema, answer: Schema, **body: Any) -> Sends:
        self.round += 1
        self.awaited = answer.kind
        return [schema.message(SERVER, name, round=self.round, **body) for name in self.terms.names]

    # -- bins

    def _refine(self, total: Body) -> Sends:
        codes, clients = total["codes"], len(self.terms.names)
        if not np.isin(codes, (0, clients)).all():
            raise DataError("clients disagree on which columns are categorical; give all of them the same encoder")
        self.categorical = codes > 0
        if (total["labels"] == 0).any():
            raise DataError("all labels of all clients are the same; give rows of both labels")
        negative, positive = total["labels"]
        self.intercept = float(np.log(positive / negative)) if self.terms.job.fit_intercept else 0.0
        self.coarse, self.fullest = total["bins"], fullest_bins(total["bins"])
        return self._ask(REFINE, REFINED, bins=self.fullest)

    def _cut(self, total: Body) -> Sends:
        edges = edges_of(self.coarse, self.fullest, total["parts"])
        self._take(BinnedTrees(edges, self.intercept))
        whole = np.zeros((len(edges), MOST_BINS - 1), dtype=np.float32)
        for row, cuts in zip(whole, edges, strict=True):
            row[: len(cuts)] = cuts
        counts = [len(cuts) for cuts in edges]
        return self._ask(EDGES, ROOT, counts=counts, edges=whole, intercept=self.intercept)

    def _take(self, model: BinnedTrees) -> None:
        self.model = model
        self.first: Integers = np.concatenate([[0], np.cumsum(bin_counts(model.edges))])
        self.sizes = {**self.sizes, "bins": int(self.first[-1])}

    # -- trees

    def _descend(self, total: Body) -> Sends:
        """Split the next level, once the histograms of the smaller children are summed."""
        left = self.tree.left[self.frontier.nodes[self.chosen]]
        self.frontier = self.frontier.below(self.chosen, left, self.smaller_right, total["sums"])
        return self._split()

    def _split(self) -> Sends:
        """Split the nodes of the frontier, and request histograms of the next level, or sums of the leaves."""
        options, l2 = self.options, self.terms.n_rows * self.terms.regulariser
        splits = best_splits(self.frontier.sums, self.first, self.categorical, options.rows_a_leaf, l2)
        self.effort += float(self.frontier.sums.size)
        self.chosen = self.frontier.chosen(splits, options.leaves - len(self.tree.leaves))
        if not len(self.chosen) and not self.frontier.level:
            return self._finish("no split of any column gains anything")
        self.smaller_right = self.frontier.smaller_right(splits, self.chosen, self.first)
        nodes, columns, sides = self.frontier.nodes[self.chosen], splits.columns[self.chosen], splits.sides[self.chosen]
        left = self.tree.split(nodes, columns, sides)
        deep = options.depth and self.frontier.level + 1 >= options.depth
        # Leaves and their values take two more rounds.
        late = self.round + 3 > self.terms.job.max_rounds
        whole = deep or late or not len(self.chosen) or len(self.tree.leaves) >= options.leaves
        asked = np.zeros(0, dtype=np.int64) if whole else left + self.smaller_right
        answer = LEAF_SUMS if whole else HISTOGRAMS
        packed = np.packbits(sides, axis=1)
        return self._ask(SPLITS, answer, nodes=nodes, columns=columns, sides=packed, asked=asked)

    def _fit(self, total: Body) -> Sends:
        """Solve for the leaf values, once the sums by leaf, stratum and score are complete."""
        leaves = len(self.tree.leaves)
        sums = total["sums"].reshape(self.options.leaves, self.strata.count, -1, 3)
        weighted = self.strata.weighted_rows(sums, leaves)
        self.problem.wanted = weighted.lagrangian
        held_out, people = weighted.held_out, weighted.people
        fit = self.problem.fit(weighted.columns, weighted.scores, held_out, self.multipliers, sample_weight=people)
        self.effort += fit.solution.iterations * float(len(people))
        self.multipliers = fit.solution.multipliers
        self.fit_told = {
            "stationarity": fit.solution.stationarity,
            "complementarity": fit.solution.complementarity,
        }
        values, responses = np.zeros((2, self.options.leaves))
        values[:leaves], responses[:leaves] = fit.values, fit.responses
        self.model.trees.append(self.tree.finished(values))
        return self._ask(VALUES, ROOT, values=values, responses=responses, multipliers=self.multipliers)

    def _judge(self, total: Body) -> Sends:
        """Evaluate the model, keep it if it is the best, and stop or grow the next tree."""
        loss, _, _ = total["losses"] * UNIT / self.terms.n_rows
        held_out = self._left_out_loss(total)
        judged, exact = (self.parts.values(sums * UNIT, self.counts) for sums in total["exact"])
        smooth = self.parts.values(total["smooth"] * UNIT, self.counts)
        shifted = self.problem.shifted
        violation = self.parts.bounds.violation(shifted.meant(judged, smooth))
        told = {"objective": float(loss), "violation": violation, "leave-one-out loss": held_out, **self.fit_told}
        if self.model.trees:
            self._report(told, smooth, exact)
        else:
            told |= {"stationarity": 0.0, "complementarity": 0.0}
        missed = max(violation, self.tolerance)
        better = progress = True
        if self.best:
            best = self.best
            tol = self.terms.job.tol
            better, progress = is_better(missed, held_out, best["missed"], best["leave-one-out loss"], tol)
        self.futile = 0 if progress else self.futile + 1
        # A model without trees is never returned as the best; the warnings say how far training got.
        if better or self.best.get("trees") == 0:
            on_rows = self.parts.bounds.violation(shifted.meant(exact, smooth))
            self.best = {**told, "missed": missed, "trees": len(self.model.trees), "on training rows": on_rows}
            self.best_multipliers = self.multipliers
        if self.futile >= self.options.trees_of_patience:
            return self._finish("the leave-one-out loss fell no more")
        if self.round + 3 > self.terms.job.max_rounds:
            return self._finish("max_rounds")
        self.tree, self.frontier = LevelTree(), Frontier(np.zeros(1, dtype=np.int64), total["sums"])
        return self._split()

    def _left_out_loss(self, total: Body) -> float:
        """Return the mean loss at leave-one-out scores over the blank rows, or over all rows if there are none."""
        _, everywhere, blank = total["losses"] * UNIT
        return float(blank / total["blank"]) if total["blank"] else float(everywhere / self.terms.n_rows)

    def _report(self, told: Mapping[str, float], smooth: Array, exact: Array) -> None:
        report = {"round": self.round, "trees": len(self.model.trees), **told}
        for index, name in enumerate(self.parts.names):
            report[f"value[{name}]"] = float(smooth[index])
            report[f"exact[{name}]"] = float(exact[index])
            report[f"upper multiplier[{name}]"] = float(self.multipliers[0, index])
            report[f"lower multiplier[{name}]"] = float(self.multipliers[1, index])
        self.reports.append(report)

    def _finish(self, ended: str) -> Sends:
        self.ended, self.done = ended, True
        self.model.trees = self.model.trees[: int(self.best["trees"])]
        return [FINISH.message(SERVER, name, trees=len(self.model.trees)) for name in self.terms.names]

    # -- the result

    @property
    def certificate(self) -> Certificate | None:
        if not self.done:
            return None
        told: dict[str, Any] = {
            name: self.best[name] for name in ("stationarity", "violation", "complementarity", "objective")
        }
        return Certificate(**told, rounds=self.round, converged=self.best["missed"] <= self.tolerance)

    def record(self) -> dict[str, Any]:
        return {
            "ended by": self.ended,
            "trees": len(self.model.trees),
            "leave-one-out loss": self.best["leave-one-out loss"],
            "violation on training rows": self.best["on training rows"],
        }

    def outcome(self) -> Outcome:
        model = self.model
        return Outcome(model, model.weights, np.zeros(0, dtype=np.float32), {SHARED: self.best_multipliers})

    def shortfall(self) -> str:
        if not self.best or self.best["missed"] <= self.tolerance:
            return ""
        return (
            f"no model was found that meets all constraints at leave-one-out scores: the best one misses one by "
            f"{self.best['missed']:.2g}. Its slices may be too small for the bound; widen it or merge groups"
        )

    # -- state

    def restored(self) -> None:
        if self.model.edges:
            self._take(self.model)


def _added(bodies: Mapping[str, Body]) -> dict[str, Any]:
    """Add every field over clients."""
    told = list(bodies.values())
    return {name: np.sum([body[name] for body in told], axis=0) for name in told[0]}
