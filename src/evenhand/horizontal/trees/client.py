"""Client of boosted trees: sums its own rows by bin, leaf and stratum, and reveals nothing else about them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from evenhand.arrays import Array, Bytes, Integers, dense
from evenhand.constraints.inequality_parts import InequalityParts
from evenhand.errors import InputError, ProtocolError
from evenhand.horizontal.problem import ClientData
from evenhand.horizontal.roles import HorizontalClient
from evenhand.horizontal.trees.binning import COARSE_BINS, NONE, bin_counts, coarse_counts, fine_counts
from evenhand.horizontal.trees.folds import content_blank, content_folds
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
from evenhand.horizontal.trees.splits import UNIT, LevelTrees, histograms, in_units
from evenhand.horizontal.trees.strata import STEPS, SliceStrata
from evenhand.models.binned_trees import LEAF, BinnedTrees, Edges, binned
from evenhand.models.growth import HistogramTrees
from evenhand.programs.combining.leaf_values import floored_curvature, left_out
from evenhand.protocol.messages import Message
from evenhand.protocol.roles import SERVER, Sends
from evenhand.protocol.terms import HorizontalTerms


class HistogramClient(HorizontalClient):
    """Client with rows of data and the models so far.

    Attributes
    ----------
    people
        (models, strata): number of rows of all clients that each model sees.
    place, scores
        (models, n): each row's node in the growing tree of each model, and its score by it.
    held_out
        The score that each row is judged by: that of the model that has not seen it, or the leave-one-out score.
    """

    vocabulary = VOCABULARY
    state_fields: ClassVar = {
        "round": int,
        "people": Array,
        "place": Integers,
        "scores": Array,
        "held_out": Array,
        "multipliers": Array,
        "growing": LevelTrees,
        "model": BinnedTrees | None,
    }

    def __init__(self, terms: HorizontalTerms, name: str, own: ClientData, options: HistogramTrees) -> None:
        self.rows = rows = own.rows.agreed(terms.groups)
        self.options = options
        self.strata, self.parts = SliceStrata(terms), InequalityParts(terms.shared_inequalities)
        assert rows.groups is not None
        self.inside = self.parts.inside(rows.labels, rows.groups)
        self.lagrangian = self.strata.lagrangian(rows)
        super().__init__(name, client_sizes(terms, options, self.strata))
        self.features = dense(rows.features)
        self.fold = content_folds(self.features, self.sizes["folds"])
        self.round = 0
        self.model: BinnedTrees | None = None
        self.people: Array = np.zeros((0, self.strata.count))
        self.growing = LevelTrees()
        self.place: Integers = np.zeros((0, rows.n_rows), dtype=np.int64)
        self.scores: Array = np.zeros((0, rows.n_rows))
        self.held_out: Array = np.zeros(rows.n_rows)
        self.multipliers: Array = np.zeros((0, 2, len(self.strata.rows)))

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
        codes = np.zeros(self.features.shape[1], dtype=np.int64)
        codes[list(self.rows.categorical)] = 1
        people = self._own_people()
        bins = coarse_counts(self.features)
        return COUNTED.message(self.name, SERVER, round=self.round + 1, bins=bins, codes=codes, people=people)

    def _own_people(self) -> Integers:
        """(folds, strata): number of the client's own rows."""
        people = np.zeros((self.sizes["folds"], self.strata.count), dtype=np.int64)
        np.add.at(people, (self.fold, self.lagrangian.constraints.stratum), 1)
        return people

    def _refine(self, message: Message) -> Message:
        bins = message["bins"]
        if ((bins < NONE) | (bins >= COARSE_BINS)).any():
            raise ProtocolError(f"{self.name} was asked to divide intervals that do not exist")
        parts = fine_counts(self.features, bins)
        return REFINED.message(self.name, SERVER, round=self.round + 1, parts=parts)

    def _begin(self, message: Message) -> Message:
        counts = message["counts"]
        if ((counts < 0) | (counts > message["edges"].shape[1])).any():
            raise ProtocolError(f"{self.name} was sent more bin edges than allowed")
        edges = [row[:count].copy() for row, count in zip(message["edges"], counts, strict=True)]
        if any((np.diff(cuts) <= 0).any() for cuts in edges):
            raise ProtocolError(f"{self.name} was sent bin edges that are not in order")
        people = message["people"]
        if len(people) not in (1, self.sizes["folds"]) or (people < 0).any() or not people.sum(axis=1).all():
            raise ProtocolError(f"{self.name} was sent numbers of rows that fit no {self.sizes['folds']} folds")
        self._check_people(people)
        self.people = people.astype(np.float64)
        self._take_edges(edges, message.number("intercept"))
        self.scores = np.full((len(people), self.rows.n_rows), message.number("intercept"))
        self.held_out = self.scores[0].copy()
        self.multipliers = np.zeros((len(people), 2, len(self.strata.rows)))
        return self._root()

    def _check_people(self, people: Integers) -> None:
        """Refuse numbers of rows that are not those of the terms, or leave no room for the client's own rows.

        They weigh the client's sums, so a server could make single rows stand out by other numbers.
        """
        own = self._own_people()
        seen = own.sum(axis=0) - own if len(people) > 1 else own.sum(axis=0)[None]
        try:
            every = self.strata.everybody(people)
        except InputError as error:
            raise ProtocolError(f"{self.name} was sent numbers of rows by label and group: {error}; refused") from error
        if (seen > people).any() or ((own > every - people).any() and len(people) > 1):
            raise ProtocolError(f"{self.name} was sent fewer rows by label and group than it has itself; refused")

    def _take_edges(self, edges: Sequence[Edges], intercept: float) -> None:
        self.model = BinnedTrees(edges, intercept)
        self.bins: Bytes = binned(self.features, edges)
        self.first: Integers = np.concatenate([[0], np.cumsum(bin_counts(edges))])
        models, everyone = len(self.people), np.arange(self.rows.n_rows)
        self.sizes = {**self.sizes, "bins": int(self.first[-1]), "models": models}
        # A single model has rows that do not influence where trees split; of several, each has not seen one fold.
        self.blank = content_blank(self.bins) if models == 1 else np.zeros(len(everyone), dtype=bool)
        folds = [self.fold == place for place in range(models)]
        self.seen = [everyone] if models == 1 else [np.flatnonzero(~own) for own in folds]
        self.unseen = [everyone] if models == 1 else [np.flatnonzero(own) for own in folds]
        self.shares = [
            self.strata.part(self.lagrangian, seen, people) for seen, people in zip(self.seen, self.people, strict=True)
        ]

    # -- trees

    def _root(self) -> Message:
        """Return histograms of the new trees' roots, and measurements of the model so far."""
        models = len(self.people)
        self.growing = LevelTrees(models)
        self.place = np.repeat(np.arange(models)[:, None], self.rows.n_rows, axis=1)
        loss, labels = self.lagrangian.loss, self.rows.labels
        given = self.scores.mean(axis=0), self.held_out
        at_scores, at_held_out = (loss.value(scores, labels) for scores in given)
        told = [self.parts.sums(self.inside, scores, labels, loss) for scores in reversed(given)]
        return ROOT.message(
            self.name,
            SERVER,
            round=self.round + 1,
            sums=self._histograms(np.arange(models)),
            losses=[in_units(part).sum() for part in (at_scores, at_held_out, at_held_out[self.blank])],
            blank=int(self.blank.sum()),
            exact=[in_units_of_sums(one.sums) for one in told],
            smooth=in_units_of_sums(told[1].smooth),
        )

    def _histograms(self, nodes: Integers) -> Integers:
        found: Integers = np.zeros((len(nodes), int(self.first[-1]), 3), dtype=np.int64)
        for tree, (part, seen) in enumerate(zip(self.shares, self.seen, strict=True)):
            here = np.flatnonzero(self.growing.tree[nodes] == tree)
            if not len(here):
                continue
            size, multipliers = self.people[tree].sum(), self.multipliers[tree]
            point = part.at(self.scores[tree, seen])
            gradient = in_units(size * point.derivative(multipliers))
            curvature = in_units(size * floored_curvature(point, multipliers))
            number = np.full(len(self.growing.columns), -1)
            number[nodes[here]] = np.arange(len(here))
            node = np.where(self.blank[seen], -1, number[self.place[tree, seen]])
            bins = self.bins if len(self.shares) == 1 else self.bins[seen]
            found[here] = histograms(bins, self.first, node, gradient, curvature, len(here))
            self.effort += float(bins.size)
        return found

    def _split(self, message: Message) -> Message:
        nodes, columns, asked = message["nodes"], message["columns"], message["asked"]
        if not self._splits_fit(nodes, columns) or len(message["sides"]) != len(nodes):
            raise ProtocolError(f"{self.name} was sent splits that its trees cannot have")
        before, after = len(self.growing.columns), len(self.growing.columns) + 2 * len(nodes)
        if len(asked) and (asked.min() < before or asked.max() >= after or len(np.unique(asked)) < len(asked)):
            raise ProtocolError(f"{self.name} was asked for nodes that its trees do not have")
        self.growing.split(nodes, columns, np.unpackbits(message["sides"], axis=1).astype(bool))
        for place in self.place:
            moving = np.flatnonzero(self.growing.columns[place] != LEAF)
            here = place[moving]
            goes_right = self.growing.sides[here, self.bins[moving, self.growing.columns[here]]]
            place[moving] = self.growing.left[here] + goes_right
        if len(asked):
            sums = self._histograms(asked)
            return HISTOGRAMS.message(self.name, SERVER, round=self.round + 1, sums=sums)
        stratum, leaves = self.lagrangian.constraints.stratum, self.options.leaves
        sums = np.array(
            [
                self.strata.sums(leaf, leaves, stratum, scores, seen, unseen, self.held_out)
                for leaf, scores, seen, unseen in zip(self._leaf(), self.scores, self.seen, self.unseen, strict=True)
            ]
        )
        return LEAF_SUMS.message(self.name, SERVER, round=self.round + 1, sums=sums.reshape(len(sums), -1, 4))

    def _splits_fit(self, nodes: Integers, columns: Integers) -> bool:
        if len(nodes) != len(columns) or not np.isin(nodes, self.growing.leaves).all():
            return False
        added = np.bincount(self.growing.tree[nodes], minlength=len(self.people))
        return bool(
            len(np.unique(nodes)) == len(nodes)
            and (self.growing.leaf_counts + added <= self.options.leaves).all()
            and ((columns >= 0) & (columns < self.bins.shape[1])).all()
        )

    def _leaf(self) -> Integers:
        """Return (models, n): the index of each row's leaf in the tree of each model."""
        return self.growing.leaf_numbers[self.place]

    def _take(self, message: Message) -> Message:
        """Add the values of the new leaves."""
        assert self.model is not None
        values, responses, multipliers = (message[name] for name in ("values", "responses", "multipliers"))
        if any(len(one) != len(self.people) for one in (values, responses, multipliers)):
            raise ProtocolError(f"{self.name} was sent values of {len(values)} models instead of {len(self.people)}")
        if (responses < 0).any() or (multipliers < 0).any():
            raise ProtocolError(f"{self.name} was sent responses or multipliers below zero")
        leaf = self._leaf()
        self.multipliers = multipliers.copy()
        added = np.take_along_axis(values, leaf, axis=1)
        self.scores = self.scores + added
        if len(values) == 1:
            point = self.lagrangian.at(self.scores[0])
            change = left_out(point, self.multipliers[0], responses[0][leaf[0]])
            self.held_out = self.held_out + added[0] + change
        else:
            self.held_out = self.scores[self.fold, np.arange(self.rows.n_rows)]
        self.model.trees.extend(self.growing.finished(values / len(values)))
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
        "strata": strata.count,
        "folds": options.models_of(terms.n_rows, terms.shared_inequalities),
    }


def in_units_of_sums(sums: Array) -> Integers:
    """Return sums over a client's rows in units; they may be larger than any summand."""
    return np.rint(sums / UNIT).astype(np.int64)
