"""Attacks on two runs that differ by one person: the numbers of the first rounds change by that person's part."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np

from evenhand.arrays import Array, Booleans
from evenhand.auditing.cases import LABEL, Case, told_apart
from evenhand.auditing.findings import Finding
from evenhand.auditing.learners import classify, dense
from evenhand.auditing.views import READ
from evenhand.protocol.messages import Message

MOST_MESSAGES: Final = 2
"""Messages of each kind that are compared: those of the first rounds, which are exact."""
RIDGE: Final = 1.0


def learned_signs(differences: Array, truth: Booleans) -> Array:
    """Return for each person a guess by ridge regression on all others' differences and labels."""
    scaled = differences / np.maximum(np.abs(differences).max(axis=0), 1e-300)
    kernel, wanted = scaled @ scaled.T, np.where(truth, 1.0, -1.0)
    guess = np.zeros(len(truth))
    for place in range(len(truth)):
        rest = np.arange(len(truth)) != place
        inner = kernel[np.ix_(rest, rest)] + RIDGE * np.eye(int(rest.sum()))
        guess[place] = kernel[place, rest] @ np.linalg.solve(inner, wanted[rest])
    return guess


def numbers(messages: Sequence[Message], members: frozenset[str], rows: int) -> Array:
    """Return the numbers that members received which are not about single rows, sums over rows instead of means."""
    found, seen = [np.zeros(0)], dict[tuple[str, str], int]()
    for one in messages:
        key = (one.kind, one.receiver)
        for name, nature in READ.get(one.kind, {}).items():
            if nature in ("gradient", "step") and one.receiver in members and one.sender not in members:
                seen[key] = seen.get(key, 0) + 1
                if seen[key] <= MOST_MESSAGES:
                    values = np.ravel(one[name]).astype(np.float64)
                    found.append(values * rows if nature == "gradient" else values)
    return np.concatenate(found)


def differencing(case: Case) -> Iterator[Finding]:
    """Leave one person out, run again, and read that person's label from what changes."""
    runs = case.scene.left_out if case.questions and case.questions[0].target == LABEL else {}
    people = np.array([place for place in runs if place >= 0])
    rows, members = len(case.scene.labels), case.view.members
    told = {place: numbers(sent, members, rows - (place >= 0)) for place, sent in runs.items()}
    size = min(map(len, told.values()), default=0)
    if not size:
        return
    truth, question = case.scene.labels[people] > 0, case.questions[0]
    changes = np.stack([told[-1][:size] - told[place][:size] for place in people.tolist()])
    found = {"coefficients": learned_signs(changes, truth)}
    if gradients := [
        one for one in runs[-1] if "gradient" in READ.get(one.kind, {}).values() and one.receiver in members
    ]:
        # The first gradient changes by the person's entries times its derivative.
        own = dense(case.scene.columns[gradients[0].receiver][people])
        found = {"gradient": -(changes[:, : own.shape[1]] * own).sum(axis=1) / np.maximum((own**2).sum(axis=1), 1e-300)}
    floor = classify(case.own, question.truth, case.known)[np.searchsorted(case.rows, people)]
    target = "the label of a person who is missing from a second run"
    for kind, guess in found.items():
        yield told_apart(case.view.name, target, kind, 2, guess, truth, {"half known": floor})
