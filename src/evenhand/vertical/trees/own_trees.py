"""The parties' own trees of a round: their leaves by model, and leaf values that keep the order of monotone columns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from evenhand.arrays import Array, Booleans, Integers
from evenhand.programs.combining.cross_fitting import FoldsFit
from evenhand.programs.combining.leaves import LeafColumns, TiedColumns, tied
from evenhand.protocol.messages import Message


class FoldLeaves(NamedTuple):
    """New leaves of one model.

    Attributes
    ----------
    columns
        All parties' leaves.
    there
        (trees of all parties, leaves): which leaves exist.
    proportions
        LightGBM's values of the leaves, for parties with monotone columns.
    """

    columns: LeafColumns
    there: Booleans
    proportions: Array


def leaves_by_fold(answers: Sequence[Message], folds: int, trees: int, leaves: int) -> list[FoldLeaves]:
    """Return the leaves of each model, from all parties' answers, which list the trees of one model after another."""
    found = []
    for place in range(folds):
        part = slice(place * trees, (place + 1) * trees)
        counts = np.concatenate([answer["counts"][part] for answer in answers])
        there = np.arange(leaves) < counts[:, None]
        proportions = np.concatenate([answer["proportions"][part] for answer in answers])[there]
        own = np.concatenate([answer["leaves"][:, part] for answer in answers], axis=1)
        found.append(FoldLeaves(LeafColumns(own, counts), there, proportions))
    return found


def averaged(given: Sequence[FoldLeaves], values: Sequence[Array], parties: int) -> Array:
    """Return (parties, trees of all models, leaves): the values of the average of all models."""
    tables = []
    for one, found in zip(given, values, strict=True):
        table = np.zeros(one.there.shape)
        table[one.there] = found / len(given)
        tables.append(table.reshape(parties, -1, table.size // len(table)))
    return np.concatenate(tables, axis=1)


def fit_in_order(
    fit: Callable[[Sequence[LeafColumns | TiedColumns]], FoldsFit], given: Sequence[FoldLeaves], trees: Integers
) -> tuple[FoldsFit, list[Array]]:
    """Fit leaf values such that these trees, of parties with monotone columns, keep their proportions.

    Trees with a negative factor would reverse the order. They get the value zero.
    """
    columns, proportions = [one.columns for one in given], [one.proportions for one in given]
    if not len(trees):
        found = fit(columns)
        return found, found.values
    while True:
        held = [tied(one, each, trees) for one, each in zip(columns, proportions, strict=True)]
        found = fit(held)
        values = [one.leaf_values(each) for one, each in zip(held, found.values, strict=True)]
        kept = [_without_turned(*one, trees) for one in zip(columns, proportions, values, strict=True)]
        if all(np.array_equal(one, other) for one, other in zip(kept, proportions, strict=True)):
            return found, values
        proportions = kept


def _without_turned(columns: LeafColumns, proportions: Array, values: Array, trees: Integers) -> Array:
    of_tree = np.repeat(np.arange(len(columns.counts)), columns.counts)
    turned = np.intersect1d(of_tree[values * proportions < 0.0], trees)
    return np.where(np.isin(of_tree, turned), 0.0, proportions)
