"""Attacks on what clients send for boosted trees: numbers of values in small intervals, and sums of derivatives by bin.

A row of a client has all its values in intervals that the client counted. In a bin with rows of one label only, the sum
of derivatives tells the label.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from scipy.special import expit

from evenhand.arrays import Array, Integers
from evenhand.auditing.cases import LABEL, LEAST_ROWS, told_apart
from evenhand.auditing.client_views import ClientCase
from evenhand.auditing.findings import Finding
from evenhand.auditing.learners import classify_by_trees
from evenhand.auditing.update_attacks import memberships
from evenhand.horizontal.trees.binning import COARSE_BINS, NONE, PARTS, bin_counts, keys
from evenhand.horizontal.trees.messages import COUNTED, EDGES, REFINE, REFINED, ROOT
from evenhand.horizontal.trees.splits import UNIT
from evenhand.models.binned_trees import binned

RARE = 0.01
"""Added to counts, so that an empty interval speaks against a row, but not with certainty."""


def held(features: Array, coarse: Integers, cells: Integers, fine: Integers) -> Array:
    """Return (rows, columns): how many of a client's values are in the smallest counted interval around each value."""
    found = np.zeros(features.shape)
    for column, values in enumerate(features.T):
        numbers = keys(np.nan_to_num(values))
        found[:, column] = coarse[column, numbers >> 20]
        place = np.full(COARSE_BINS, NONE)
        place[cells[column][cells[column] != NONE]] = np.flatnonzero(cells[column] != NONE)
        at = place[numbers >> 20]
        inside = at != NONE
        found[inside, column] = fine[column, at[inside], (numbers[inside] >> 12) & (PARTS - 1)]
    return found


def label_odds(bins: Integers, first: Integers, sums: Integers, share: float) -> Array:
    """Return for each row the log-odds of its label from the labels in its bins, added over columns.

    Parameters
    ----------
    sums
        (all bins, 3): sums of first derivatives in units, of second ones, and numbers of rows.
    share
        The share of positives, by which the first model decides.
    """
    at = first[:-1] + bins
    counts, slopes = sums[at, 2], sums[at, 0] * UNIT
    positives = np.clip(share * counts - slopes, 0.0, counts)
    return np.asarray((np.log(positives + RARE) - np.log(counts - positives + RARE)).sum(axis=1), dtype=np.float64)


# -- the attacks


def counts(case: ClientCase) -> Iterator[Finding]:
    """Rows of the client have all their values in intervals that it counted."""
    told = {kind: case.sent(kind) for kind in (COUNTED.kind, REFINE.kind, REFINED.kind)}
    for features, _, inside, half, floors in memberships(case) if all(told.values()) else ():
        coarse, cells, fine = told[COUNTED.kind][0]["bins"], told[REFINE.kind][0]["bins"], told[REFINED.kind][0]
        guess = np.log(held(features, coarse, cells, fine["parts"]) + RARE).sum(axis=1)[~half]
        target = f"who is among the rows of {case.victim}"
        yield told_apart(case.who, target, REFINED.kind, 2, guess, inside[~half], floors)


def histograms(case: ClientCase) -> Iterator[Finding]:
    """The sum of derivatives in a bin tells how many of its rows are positive."""
    edges, roots = case.sent(EDGES.kind), case.sent(ROOT.kind)
    own = case.scene.clients[case.victim]
    some = case.some(len(own.labels))
    truth = own.labels[some] > 0
    if not (edges and roots) or min(truth.sum(), (~truth).sum()) < LEAST_ROWS:
        return
    cuts = [row[:count] for row, count in zip(edges[0]["edges"], edges[0]["counts"], strict=True)]
    first = np.concatenate([[0], np.cumsum(bin_counts(cuts))])
    features = np.asarray(own.features[some], dtype=np.float64)
    guess = label_odds(
        binned(features, cuts).astype(np.int64), first, roots[0]["sums"][0], float(expit(edges[0].number("intercept")))
    )
    half = case.rng.permutation(len(truth)) < len(truth) // 2
    floors = {"half known": classify_by_trees(features, truth, half)[~half]}
    target = f"{LABEL} at {case.victim}, by someone who knows the columns"
    yield told_apart(case.who, target, ROOT.kind, 1, guess[~half], truth[~half], floors)
