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
LEAST_PEOPLE: Final = 6
"""People of each label that must be left out for a meaningful result."""


def learned_signs(differences: Array, truth: Booleans) -> Array:
    """Return for each person a guess by ridge regression on all others' differences and labels."""
    scaled = differences / np.maximum(np.abs(differences).max(axis=0), 1e-300)
    guess = np.zeros(len(truth))
    for place in range(len(truth)):
        rest = np.arange(len(truth)) != place
        # Both are centred, or the person's absence from the mean of labels would itself be a guess.
        table, wanted = scaled[rest] - scaled[rest].mean(axis=0), truth[rest] - truth[rest].mean()
        inner = table @ table.T + RIDGE * np.eye(len(table))
        guess[place] = (scaled[place] - scaled[rest].mean(axis=0)) @ table.T @ np.linalg.solve(inner, wanted)
    return guess


def numbers(messages: Sequence[Message], members: frozenset[str]) -> Array:
    """Return the numbers about the whole model that members received in the first rounds."""
    found, seen = [np.zeros(0)], dict[tuple[str, str, str], int]()
    for one in messages:
        for name, nature in READ.get(one.kind, {}).items():
            key = (one.kind, one.receiver, name)
            if nature == "step" and one.receiver in members and one.sender not in members:
                seen[key] = seen.get(key, 0) + 1
                if seen[key] <= MOST_MESSAGES:
                    found.append(np.ravel(one[name]).astype(np.float64))
    return np.concatenate(found)


def differencing(case: Case) -> Iterator[Finding]:
    """Leave one person out, run again, and read that person's label from what changes."""
    runs = case.scene.left_out if case.questions and case.questions[0].target == LABEL else {}
    # A guard may refuse the rows that are left.
    runs = {place: one for place, one in runs.items() if one.messages}
    people = [place for place in runs if place >= 0]
    truth = case.scene.labels[people] > 0
    if -1 not in runs or min(truth.sum(), (~truth).sum()) < LEAST_PEOPLE:
        return
    question = case.questions[0]
    floor = classify(case.own, question.truth, case.known)[np.searchsorted(case.rows, people)]
    found: dict[str, Array] = {}
    told = {place: numbers(one.messages, case.view.members) for place, one in runs.items()}
    if size := min(map(len, told.values())):
        changes = np.stack([told[-1][:size] - told[place][:size] for place in people])
        found["coefficients"] = learned_signs(changes, truth)
    for name in sorted(case.view.members & runs[-1].weights.keys()):
        # Weights change by the inverse curvature times the person's entries and derivative.
        every = dense(case.scene.columns[name][case.rows])
        own = dense(case.scene.columns[name][people]) @ (every.T @ every)
        moved = np.stack([runs[-1].weights[name] - runs[place].weights[name] for place in people])
        found["final weights"] = found.get("final weights", np.zeros(len(people))) + (own * moved).sum(axis=1)
    target = "the label of a person who is missing from a second run"
    for kind, guess in found.items():
        yield told_apart(case.view.name, target, kind, 2, guess, truth, {"half known": floor})
