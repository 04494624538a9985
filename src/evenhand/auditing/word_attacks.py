"""Attacks on masked words: a mask that is used twice, or is not uniform, shows in the words or in their differences."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evenhand.arrays import Array
from evenhand.auditing.cases import Case
from evenhand.auditing.findings import Finding
from evenhand.auditing.learners import classify_by_trees, regress_by_trees
from evenhand.auditing.views import Signal

MOST_VECTORS = 6
"""Vectors of words of one kind by one sender that are used; as many differences again."""


def differences(vectors: Sequence[NDArray[Any]]) -> list[Array]:
    """Return words, and differences modulo 2⁶⁴ of each two that follow each other, as signed numbers."""
    words = [one.astype(np.int64) for one in vectors]
    apart = [(one.view(np.uint64) - two.view(np.uint64)).view(np.int64) for one, two in pairwise(words)]
    return [one.astype(np.float64) for one in (*words, *apart)]


def _told(case: Case, signals: Sequence[Signal]) -> Array:
    """Return the words of all senders, and their differences over rounds and between senders, as columns."""
    by_sender: dict[tuple[str, str], list[NDArray[Any]]] = {}
    for one in signals:
        by_sender.setdefault((one.sender, one.kind), []).append(one.values[case.rows])
    found = [column for vectors in by_sender.values() for column in differences(vectors[:MOST_VECTORS])]
    firsts = [vectors[0] for vectors in by_sender.values()]
    return np.stack([*found, *differences(firsts)[len(firsts) :]], axis=1) / 2.0**63


def words(case: Case) -> Iterator[Finding]:
    """Give a non-linear learner the words as they were sent, and their differences."""
    signals = case.view.of_nature("words")
    if not signals:
        return
    kind = " and ".join(dict.fromkeys(one.kind for one in signals))
    for question in case.questions:
        yield case.learned(question, kind, len(signals), _told(case, signals), classify_by_trees)
    for other in case.view.others if case.view.knows_labels else ():
        if sent := [one for one in signals if one.sender == other]:
            told, wanted = _told(case, sent), case.columns(other)
            yield case.explained(f"the columns of {other}", kind, len(sent), told, wanted, regress_by_trees)[0]
