"""Client of boosted trees: sums its own rows by bin, leaf and stratum, and reveals nothing else about them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from evenhand.arrays import Array, Booleans, Bytes, Integers
from evenhand.constraints.inequality_parts import InequalityParts
from evenhand.errors import ProtocolError
from evenhand.horizontal.problem import ClientData
from evenhand.horizontal.roles import HorizontalClient
from evenhand.horizontal.trees.binning import bin_counts, coarse_counts, fine_counts
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
from evenhand.horizontal.trees.splits import UNIT, LevelTree, histograms, in_units
from evenhand.horizontal.trees.strata import STEPS, SliceStrata
from evenhand.models.binned_trees import LEAF, BinnedTrees, Edges, binned
from evenhand.models.growth import HistogramTrees
from evenhand.programs.combining.leaf_values import floored_curvature, left_out
from evenhand.protocol.messages import Message
from evenhand.protocol.roles import SERVER, Sends
from evenhand.protocol.terms import HorizontalTerms

BLANK = 10
"""One in this many rows does not influence where trees split."""


class HistogramClient(HorizontalClient):
    """Client with rows of data and the model so far."""

    vocabulary = VOCABULARY
    state_fields: ClassVar = {
        "round": int,
        "place": Integers,
        "scores": Array,
        "held_out": Array,
        "multipliers": Array,
        "tree": LevelTree,
        "model": BinnedTrees | None,
    }

    def __init__(self, terms: HorizontalTerms, name: str, own: ClientData, options: HistogramTrees) -> None:
        self.rows = rows = own.rows.agreed(terms.groups)
        self.options = options
        self.n_rows = terms.n_rows
        self.strata, self.parts = SliceStrata(terms), InequalityParts(terms.shared_inequalities)
        assert rows.groups is not None
        self.inside = self.parts.inside(rows.labels, rows.groups)
        self.lagrangian = self.strata.lagrangian(rows)
        super().__init__(name, client_sizes(terms, options, self.strata))
        self.round = 0
        self.model: BinnedTrees | None = None
        self.tree = LevelTree()
        self.place: Integers = np.zeros(rows.n_rows, dtype=np.int64)
        self.scores: Array = np.zeros(rows.n_rows)
        self.held_out: Array = np.zeros(rows.n_rows)
        self.multipliers: Array = np.zeros((2, len(self.strata.rows)))

    def handle(self, message: Message) -> Sends:
        if self.done:
            raise ProtocolError(f"{self.name} is done and takes no {message.kind!r}")
        if message.kind == FINISH.kind and self.model is not None:
            self.model.trees, self.done = self.model.trees[: message.integer("trees")], True
            return ()
        early = message.kind in (COUNT.kind, REFINE.kind, EDGES.kind)
        if early != (self.model is None) or message.integer("round") != self.round + 1:
            raise ProtocolError(f"{self.name} takes no such {message.kind!r} at this point")
        answers = {
            COUNT.kind: self._count,
            REFINE.kind: self._refine,
            EDGES.kind: self._begin,
            SPLITS.kind: self._split,
            VALUES.kind: self._take,
        }
        if message.kind not in answers:
            raise ProtocolError(f"{self.name} takes no {message.kind!r}")
        answer = answers[message.kind](message)
        self.round += 1
        return [answer]

    # -- bins

    def _count(self, message: Message) -> Message:
        codes = np.zeros(self.rows.features.shape[1], dtype=np.int64)
        codes[list(self.rows.categorical)] = 1
        labels = [int((self.rows.labels < 0).sum()), int((self.rows.labels > 0).sum())]
        bins = coarse_counts(self.rows.features)
        return COUNTED.message(self.name, SERVER, round=self.round + 1, bins=bins, codes=codes, labels=labels)

    def _refine(self, message: Message) -> Message:
        parts = fine_counts(self.rows.features, message["bins"])
        return REFINED.message(self.name, SERVER, round=self.round + 1, parts=parts)

    def _begin(self, message: Message) -> Message:
        counts = message["counts"]
        if ((counts < 0) | (counts > message["edges"].shape[1])).any():
            raise ProtocolError(f"{self.name} was sent more bin edges than allowed")
        edges = [row[:count].copy() for row, count in zip(message["edges"], counts, strict=True)]
        if any((np.diff(cuts) <= 0).any() for cuts in edges):
            raise ProtocolError(f"{self.name} was sent bin edges that are not in order")
        self._take_edges(edges, message.number("intercept"))
        assert self.model is not None
        self.scores = np.full(self.rows.n_rows, self.model.intercept)
        self.held_out = self.scores.copy()
        return self._root()

    def _take_edges(self, edges: Sequence[Edges], intercept: float) -> None:
        self.model = BinnedTrees(edges, intercept)
        self.bins: Bytes = binned(self.rows.features, edges)
        self.first: Integers = np.concatenate([[0], np.cumsum(bin_counts(edges))])
        self.sizes = {**self.sizes, "bins": int(self.first[-1])}
        self.blank = blank_rows(self.bins)

    # -- trees

    def _root(self) -> Message:
        """Return histograms of a new tree's root, and measurements of the model so far."""
        self.tree, self.place = LevelTree(), np.zeros(self.rows.n_rows, dtype=np.int64)
        loss, labels = self.lagrangian.loss, self.rows.labels
        at_scores, at_held_out = (loss.value(scores, labels) for scores in (self.scores, self.held_out))
        told = [self.parts.sums(self.inside, scores, labels, loss) for scores in (self.held_out, self.scores)]
        return ROOT.message(
            self.name,
            SERVER,
            round=self.round + 1,
            sums=self._histograms(np.zeros(1, dtype=np.int64)),
            losses=[in_units(part).sum() for part in (at_scores, at_held_out, at_held_out[self.blank])],
            blank=int(self.blank.sum()),
            exact=[in_units_of_sums(one.sums) for one in told],
            smooth=in_units_of_sums(told[1].smooth),
        )

    def _histograms(self, nodes: Integers) -> Integers:
        point = self.lagrangian.at(self.scores)
        gradient = in_units(self.n_rows * point.derivative(self.multipliers))
        curvature = in_units(self.n_rows * floored_curvature(point, self.multipliers))
        number = np.full(len(self.tree.columns), -1)
        number[nodes] = np.arange(len(nodes))
        node = np.where(self.blank, -1, number[self.place])
        self.effort += float(self.bins.size)
        found: Integers = histograms(self.bins, self.first, node, gradient, curvature, len(nodes))
        return found

    def _split(self, message: Message) -> Message:
        nodes, columns, asked = message["nodes"], message["columns"], message["asked"]
        room = self.options.leaves - len(self.tree.leaves)
        fits = (
            len(nodes) == len(columns) == len(message["sides"]) <= room
            and np.isin(nodes, self.tree.leaves).all()
            and len(np.unique(nodes)) == len(nodes)
            and ((columns >= 0) & (columns < self.bins.shape[1])).all()
        )
        if not fits:
            raise ProtocolError(f"{self.name} was sent splits that its tree cannot have")
        after = len(self.tree.columns) + 2 * len(nodes)
        if len(asked) and (asked.min() < len(self.tree.columns) or asked.max() >= after):
            raise ProtocolError(f"{self.name} was asked for nodes that its tree does not have")
        sides = np.unpackbits(message["sides"], axis=1).astype(bool)
        self.tree.split(nodes, columns, sides)
        moving = np.flatnonzero(self.tree.columns[self.place] != LEAF)
        here = self.place[moving]
        goes_right = self.tree.sides[here, self.bins[moving, self.tree.columns[here]]]
        self.place[moving] = self.tree.left[here] + goes_right
        if len(asked):
            sums = self._histograms(asked)
            return HISTOGRAMS.message(self.name, SERVER, round=self.round + 1, sums=sums)
        sums = self.strata.sums(
            self._leaf(), self.options.leaves, self.lagrangian.constraints.stratum, self.scores, self.held_out
        )
        return LEAF_SUMS.message(self.name, SERVER, round=self.round + 1, sums=sums.reshape(-1, 3))

    def _leaf(self) -> Integers:
        """Return the leaf index of each row."""
        return np.searchsorted(self.tree.leaves, self.place)

    def _take(self, message: Message) -> Message:
        """Add the values of the new leaves."""
        assert self.model is not None
        if (message["responses"] < 0).any() or (message["multipliers"] < 0).any():
            raise ProtocolError(f"{self.name} was sent responses or multipliers below zero")
        leaf = self._leaf()
        self.multipliers = message["multipliers"].copy()
        added = message["values"][leaf]
        self.scores = self.scores + added
        point = self.lagrangian.at(self.scores)
        change = left_out(point, self.multipliers, message["responses"][leaf])
        self.held_out = self.held_out + added + change
        self.model.trees.append(self.tree.finished(message["values"]))
        return self._root()

    # -- state

    def restored(self) -> None:
        if (model := self.model) is not None:
            self._take_edges(model.edges, model.intercept)
            self.model = model


def client_sizes(terms: HorizontalTerms, options: HistogramTrees, strata: SliceStrata) -> dict[str, int]:
    """Return the sizes of messages that both sides know; those of bins come with the edges."""
    return {
        "columns": terms.shape[0],
        "leaves": options.leaves,
        "constraints": len(strata.rows),
        "parts": len(InequalityParts(strata.rows).parts),
        "slots": options.leaves * strata.count * STEPS,
    }


def in_units_of_sums(sums: Array) -> Integers:
    """Return sums over a client's rows in units; they may be larger than any summand."""
    return np.rint(sums / UNIT).astype(np.int64)


def blank_rows(bins: Bytes) -> Booleans:
    """Return the rows that do not influence where trees split.

    They are drawn by a hash of their contents, so the draw does not depend on which client has them. Leave-one-out
    scores correct only for leaf values; these rows also give an unbiased estimate for the chosen splits.
    """
    mixed = np.zeros(len(bins), dtype=np.uint64)
    for column in bins.T:
        mixed = (mixed ^ column) * np.uint64(0x9E3779B97F4A7C15)
        mixed ^= mixed >> np.uint64(29)
    return np.asarray(mixed % np.uint64(BLANK) == 0)
