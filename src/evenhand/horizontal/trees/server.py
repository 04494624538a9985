"""The server of boosted trees across clients: it adds up, splits nodes, and solves for leaf values.

A few models grow at the same time, each without one fold of the rows; the result is their average. Two rounds of counts
give the bins of all columns and the sizes of folds. Then, for each step, which grows a tree of each model:

1. The server sends the bin edges or the last trees' leaf values. Clients answer with histograms of the roots.
2. The server adds them up, splits the nodes that gain most, and sends the splits.
3. Clients answer with histograms of the smaller children. Step 2 follows, one round a level, until the trees are full.
4. Clients then answer with sums by leaf, label, group and score: of rows that a model sees, and of those it has not
   seen.
5. The server solves for the leaf values under the inequalities, which are judged on the rows not seen.
6. It stops when the held-out loss no longer falls, no split has a gain, or at the round limit.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np

from evenhand.arrays import Array, Booleans, Integers
from evenhand.constraints.inequality_parts import InequalityParts
from evenhand.constraints.slices import stated
from evenhand.errors import DataError, InputError, ProtocolError
from evenhand.horizontal.problem import HorizontalServerData
from evenhand.horizontal.roles import HorizontalServer, Outcome
from evenhand.horizontal.trees.binning import NONE, bin_counts, edges_of, fullest_bins
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
from evenhand.horizontal.trees.splits import UNIT, Frontier, LevelTrees, best_splits
from evenhand.horizontal.trees.strata import SliceStrata, WeightedRows
from evenhand.models.binned_trees import MOST_BINS, BinnedTrees
from evenhand.models.growth import HistogramTrees
from evenhand.programs.combining.cross_fitting import CrossFitting, FoldsFit, fewest_rows_a_leaf
from evenhand.programs.combining.leaf_values import is_better
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
LARGEST_FOLD = 2.0
"""Most rows of a fold, as a multiple of an even share; with more, rows repeat few contents, and one model is fitted."""


class HistogramServer(HorizontalServer):
    """Server with the sums of all answers, the growing trees, and the model so far.

    Attributes
    ----------
    people
        (models, strata): number of rows that each model sees.
    multipliers
        (models, 2, inequalities).
    """

    vocabulary = VOCABULARY
    state_fields: ClassVar = {
        "round": int,
        "awaited": str,
        "multipliers": Array,
        "people": Array,
        "intercept": float,
        "coarse": Integers,
        "fullest": Integers,
        "categorical": Booleans,
        "chosen": Integers,
        "smaller_right": Booleans,
        "fit_told": Any,
        "best": Any,
        "best_multipliers": Array,
        "best_values": Array,
        "futile": int,
        "ended": str,
        "answers": Answers,
        "problem": CrossFitting,
        "frontier": Frontier,
        "growing": LevelTrees,
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
        none = np.zeros((1, self.strata.count, 1), dtype=np.int64)
        empty, grain = self.strata.weighted(WeightedRows.of(none, none)), self.parts.grain(self.counts)
        self.problem = CrossFitting(empty, options.shrinkage, terms.regulariser, options.exact_rates, grain)
        self.answers = Answers()
        self.round = 0
        self.awaited = COUNTED.kind
        self.people: Array = np.zeros((1, self.strata.count))
        self.multipliers: Array = np.zeros((1, 2, len(self.strata.rows)))
        # State of the binning.
        self.coarse: Integers = np.zeros((0, 0), dtype=np.int64)
        self.fullest: Integers = np.zeros((0, 0), dtype=np.int64)
        self.categorical: Booleans = np.zeros(0, dtype=bool)
        self.model = BinnedTrees(())
        self.intercept = 0.0
        # State of the growing trees: nodes that were split last, and the children with outstanding histograms.
        self.growing, self.frontier = LevelTrees(), Frontier(np.zeros(0, np.int64), np.zeros((0, 0, 3), np.int64))
        self.chosen: Integers = np.zeros(0, dtype=np.int64)
        self.smaller_right: Booleans = np.zeros(0, dtype=bool)
        # Residuals of the last leaf problem, and the best model so far.
        self.fit_told: dict[str, float] = {}
        self.best: dict[str, float] = {}
        self.best_multipliers = self.multipliers
        # Values of the inequalities on the training rows, and on held-out ones.
        self.best_values: Array = np.zeros((2, len(self.strata.rows)))
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
        people, bins = total["people"], total["bins"]
        if (people < 0).any() or (bins < 0).any() or (bins.sum(axis=1, dtype=np.float64) > self.terms.n_rows).any():
            raise ProtocolError("counts of rows that clients sent are negative, or exceed the rows of the terms")
        negative, positive = (int(people[:, self.strata.labels == sign].sum()) for sign in (-1.0, 1.0))
        if not (negative and positive):
            raise DataError("all labels of all clients are the same; give rows of both labels")
        self._take_folds(people)
        self.intercept = float(np.log(positive / negative)) if self.terms.job.fit_intercept else 0.0
        self.coarse, self.fullest = bins, fullest_bins(bins)
        return self._ask(REFINE, REFINED, bins=self.fullest)

    def _take_folds(self, people: Integers) -> None:
        """Fit a model without each fold, or a single one if folds are uneven or a slice is in one fold alone."""
        every, folds = people.sum(axis=0), len(people)
        seen = (every - people).astype(np.float64)
        even = folds * people.sum(axis=1).max() <= LARGEST_FOLD * every.sum()
        whole = folds > 1 and even and all(self.strata.has_all_slices(one) for one in seen)
        self.people = seen if whole else every[None].astype(np.float64)
        models = len(self.people)
        self.multipliers = np.zeros((models, 2, len(self.strata.rows)))
        self.best_multipliers = self.multipliers

    def _cut(self, total: Body) -> Sends:
        parts, wanted = total["parts"], self.fullest != NONE
        whole = np.take_along_axis(self.coarse, np.where(wanted, self.fullest, 0), axis=1) * wanted
        if (parts < 0).any() or (parts.sum(axis=2, dtype=np.float64) != whole).any():
            raise ProtocolError("counts of parts that clients sent do not add up to those of their intervals")
        edges = edges_of(self.coarse, self.fullest, parts)
        self._take(BinnedTrees(edges, self.intercept))
        whole = np.zeros((len(edges), MOST_BINS - 1), dtype=np.float32)
        for row, cuts in zip(whole, edges, strict=True):
            row[: len(cuts)] = cuts
        counts = [len(cuts) for cuts in edges]
        people = self.people.astype(np.int64)
        return self._ask(EDGES, ROOT, counts=counts, edges=whole, intercept=self.intercept, people=people)

    def _take(self, model: BinnedTrees) -> None:
        self.model = model
        self.first: Integers = np.concatenate([[0], np.cumsum(bin_counts(model.edges))])
        self.sizes = {**self.sizes, "bins": int(self.first[-1]), "models": len(self.people)}
        least = fewest_rows_a_leaf(self.terms.n_rows, self.parts.grain(self.counts)) if len(self.people) > 1 else 0
        self.rows_a_leaf = max(self.options.rows_a_leaf, least)

    # -- trees

    def _descend(self, total: Body) -> Sends:
        """Split the next level, once the histograms of the smaller children are summed."""
        left = self.growing.left[self.frontier.nodes[self.chosen]]
        self.frontier = self.frontier.below(self.chosen, left, self.smaller_right, total["sums"])
        return self._split()

    def _split(self) -> Sends:
        """Split the nodes of the frontier, and request histograms of the next level, or sums of the leaves."""
        options, l2 = self.options, self.terms.n_rows * self.terms.regulariser
        splits = best_splits(self.frontier.sums, self.first, self.categorical, self.rows_a_leaf, l2)
        self.effort += float(self.frontier.sums.size)
        chosen = self.frontier.chosen(splits, self.growing, options.leaves)
        if not len(chosen) and not self.frontier.level:
            return self._finish("no split of any column gains anything")
        nodes, columns, sides = self.frontier.nodes[chosen], splits.columns[chosen], splits.sides[chosen]
        self.growing.split(nodes, columns, sides)
        deep = options.depth and self.frontier.level + 1 >= options.depth
        # Leaves and their values take two more rounds.
        late = self.round + 3 > self.terms.job.max_rounds
        full = self.growing.leaf_counts[self.growing.tree[nodes]] >= options.leaves
        self.chosen = chosen[:0] if deep or late else chosen[~full]
        self.smaller_right = self.frontier.smaller_right(splits, self.chosen, self.first)
        asked = self.growing.left[self.frontier.nodes[self.chosen]] + self.smaller_right
        answer = HISTOGRAMS if len(asked) else LEAF_SUMS
        packed = np.packbits(sides, axis=1)
        return self._ask(SPLITS, answer, nodes=nodes, columns=columns, sides=packed, asked=asked)

    def _fit(self, total: Body) -> Sends:
        """Solve for the leaf values, once the sums by leaf, stratum and score are complete."""
        sums = total["sums"].reshape(len(self.people), self.options.leaves, self.strata.count, -1, 4)
        seen, unseen = ([WeightedRows.of(one[..., at], one[..., at + 1]) for one in sums] for at in (0, 2))
        fit = self._solved(seen, unseen)
        self.effort += float(fit.iterations * sum(len(one.people) for one in seen))
        self.multipliers = fit.multipliers
        self.fit_told = {"stationarity": fit.stationarity, "complementarity": fit.complementarity}
        values, responses = np.zeros((2, len(sums), self.options.leaves))
        for own, found in zip(values, fit.values, strict=True):
            own[: len(found)] = found
        if fit.responses is not None:
            responses[0, : len(fit.responses)] = fit.responses
        self.model.trees.extend(self.growing.finished(values / len(values)))
        return self._ask(VALUES, ROOT, values=values, responses=responses, multipliers=self.multipliers)

    def _solved(self, seen: Sequence[WeightedRows], unseen: Sequence[WeightedRows]) -> FoldsFit:
        """Solve for the leaf values of all models, from the rows that each sees, and those that are judged by it."""
        problem, strata, counts = self.problem, self.strata, self.growing.leaf_counts
        whole = unseen[0].and_then(*unseen[1:])
        problem.wanted = strata.weighted(whole)
        if len(seen) == 1:
            (one,), multipliers = seen, self.multipliers[0]
            columns, people = one.columns(counts[0]), one.people
            return FoldsFit.of_one(problem.fit(columns, one.scores, whole.scores, multipliers, sample_weight=people))
        rows = [one.and_then(other) for one, other in zip(seen, unseen, strict=True)]
        ends = np.cumsum([0, *(len(one.people) for one in unseen)])
        problem.parts = [
            strata.weighted_part(one, people, len(other.people))
            for one, other, people in zip(rows, unseen, self.people, strict=True)
        ]
        problem.unseen = [
            (np.arange(len(one.people), len(both.people)), np.arange(first, last))
            for one, both, (first, last) in zip(seen, rows, pairwise(ends), strict=True)
        ]
        of_models = [one.columns(count) for one, count in zip(rows, counts, strict=True)]
        return problem.fit_folds(of_models, [one.scores for one in rows], whole.scores, self.multipliers)

    def _judge(self, total: Body) -> Sends:
        """Evaluate the model, keep it if it is the best, and stop or grow the next tree."""
        loss, _, _ = total["losses"] * UNIT / self.terms.n_rows
        held_out = self._left_out_loss(total)
        judged, exact = (self.parts.values(sums * UNIT, self.counts) for sums in total["exact"])
        smooth = self.parts.values(total["smooth"] * UNIT, self.counts)
        shifted = self.problem.shifted
        if self.model.trees and len(self.people) > 1:
            self.problem.take_average(exact)
            judged = judged + self.problem.averaging
        violation = self.parts.bounds.violation(shifted.meant(judged, smooth))
        told = {"objective": float(loss), "violation": violation, "held-out loss": held_out, **self.fit_told}
        if self.model.trees:
            self._report(told, smooth, exact)
        else:
            told |= {"stationarity": 0.0, "complementarity": 0.0}
        missed = max(violation, self.tolerance)
        better = progress = True
        if self.best:
            best = self.best
            tol = self.terms.job.tol
            better, progress = is_better(missed, held_out, best["missed"], best["held-out loss"], tol)
        self.futile = 0 if progress else self.futile + 1
        # A model without trees is never returned as the best; the warnings say how far training got.
        if better or self.best.get("trees") == 0:
            on_rows = self.parts.bounds.violation(shifted.meant(exact, smooth))
            self.best = {**told, "missed": missed, "trees": len(self.model.trees), "on training rows": on_rows}
            self.best_multipliers = self.multipliers
            self.best_values = np.array([shifted.meant(one, smooth) for one in (exact, judged)])
        if self.futile >= self.options.trees_of_patience:
            return self._finish("the held-out loss fell no more")
        if self.round + 3 > self.terms.job.max_rounds:
            return self._finish("max_rounds")
        models = len(self.people)
        self.growing, self.frontier = LevelTrees(models), Frontier(np.arange(models), total["sums"])
        return self._split()

    def _left_out_loss(self, total: Body) -> float:
        """Return the mean loss at held-out scores, over the blank rows if there are any."""
        _, everywhere, blank = total["losses"] * UNIT
        return float(blank / total["blank"]) if total["blank"] else float(everywhere / self.terms.n_rows)

    def _report(self, told: Mapping[str, float], smooth: Array, exact: Array) -> None:
        report, mean = {"round": self.round, "trees": len(self.model.trees), **told}, self.multipliers.mean(axis=0)
        for index, name in enumerate(self.parts.names):
            report[f"value[{name}]"] = float(smooth[index])
            report[f"exact[{name}]"] = float(exact[index])
            report[f"upper multiplier[{name}]"] = float(mean[0, index])
            report[f"lower multiplier[{name}]"] = float(mean[1, index])
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
        unmet = self.shortfall() or None
        return Certificate(**told, rounds=self.round, converged=unmet is None, unmet=unmet)

    def record(self) -> dict[str, Any]:
        return {
            "ended by": self.ended,
            "trees": len(self.model.trees),
            "models": len(self.people),
            "held-out loss": self.best["held-out loss"],
            "violation on training rows": self.best["on training rows"],
            "constraints": stated(self.parts.names, self.parts.bounds, *self.best_values),
        }

    def outcome(self) -> Outcome:
        model = self.model
        return Outcome(
            model, model.weights, np.zeros(0, dtype=np.float32), {SHARED: self.best_multipliers.mean(axis=0)}
        )

    def shortfall(self) -> str:
        if not self.best or self.best["missed"] <= self.tolerance:
            return ""
        return (
            f"no model was found that meets all constraints on held-out rows: the best one misses one by "
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
