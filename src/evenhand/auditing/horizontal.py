"""Audit a horizontal run: the server, alone or with colluding clients, attacks what clients sent."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np
from scipy.special import logsumexp

from evenhand.arrays import Array, Booleans, Integers
from evenhand.auditing import controls, evidence, row_attacks, update_attacks
from evenhand.auditing.evidence import Estimate
from evenhand.auditing.findings import Audit, Finding
from evenhand.errors import InputError
from evenhand.horizontal.averaging.messages import FINAL, MODEL, UPDATE
from evenhand.horizontal.masked.messages import MASKED
from evenhand.horizontal.problem import ClientRows, Single
from evenhand.horizontal.prox_al.messages import OUTCOME, OUTER
from evenhand.horizontal.roles import HorizontalModel
from evenhand.horizontal.sqp.messages import JUDGED, TRIALS
from evenhand.models.linear import SharedLinear
from evenhand.protocol.messages import Message
from evenhand.protocol.roles import SERVER
from evenhand.protocol.terms import HorizontalTerms

MOST_ROWS = 2000
"""Rows of a client, and as many of others, used for membership inference."""
LEAST_ROWS = 20
"""Minimum number of rows for a meaningful share."""
DRAWS = 100
"""Sets of other rows to compare a reconstruction with: it must be nearer to the client's rows than to any of them."""
STEP = 0.1
"""Step along a gradient to see whose loss falls; any short step ranks rows alike."""


_MODELS: Final = {MODEL.kind: "weights", OUTER.kind: "weights", FINAL.kind: "weights", TRIALS.kind: "trials"}
"""Messages that carry the model to a client, and the field that holds it."""


class Change(NamedTuple):
    """One change of the model that an attacker saw: before, after, and the kind of message."""

    kind: str
    before: Array
    after: Array


@dataclass(frozen=True, eq=False)
class HorizontalAuditInput:
    """Input of an audit: a horizontal run with all clients' rows, in one process.

    Attributes
    ----------
    messages
        Messages of the run, in the order of sending.
    clients
        All clients' rows.
    model
        The shared model; attacks change its weights.
    statistics
        The model's final running statistics.
    terms
        Public terms of the run.
    """

    messages: Sequence[Message]
    clients: Mapping[str, ClientRows]
    model: HorizontalModel
    statistics: Single
    terms: HorizontalTerms

    @property
    def linear(self) -> bool:
        """Return whether the model has one weight for each column, and an intercept."""
        return self.terms.job.model == "linear"

    def losses(self, weights: Array, features: Array, labels: Array) -> Array:
        """Return the loss of each row under given weights."""
        model: Any = self.model
        if isinstance(model, SharedLinear):
            model = SharedLinear(weights)
        else:
            model.load(weights.astype(np.float32), self.statistics)
        scores = model.predict(features)
        if scores.ndim > 1:
            return np.asarray(logsumexp(scores, axis=1) - scores[np.arange(len(labels)), labels.astype(np.int64)])
        return np.asarray(np.logaddexp(0.0, -labels * scores), dtype=np.float64)


def audit_horizontal(scene: HorizontalAuditInput, *, coalitions: Sequence[Sequence[str]] = (), seed: int = 0) -> Audit:
    """Attack a run as the server, alone and with colluding clients."""
    if unknown := sorted({name for names in coalitions for name in names} - {SERVER, *scene.clients}):
        raise InputError(f"{unknown[0]!r} takes no part in this run; the participants are {', '.join(scene.clients)}")
    rng = np.random.default_rng(seed)
    findings: list[Finding] = []
    for names in [(), *coalitions]:
        helpers = [name for name in scene.clients if name in names]
        who = " + ".join([SERVER, *helpers])
        for victim in scene.clients:
            changes = [] if victim in helpers else _seen(scene, victim)
            if changes:
                findings += _membership(scene, who, victim, changes, rng)
                findings += _inversion(scene, who, victim, changes, rng)
    remarks = [] if scene.linear else ["rows were not reconstructed: the ratio of weights and intercept is linear's"]
    if any(one.message == MASKED.kind for one in findings):
        remarks.append(
            "the server was told sums over clients only; whoever else tells it what they sent leaves it the sum over "
            "the rest, and if one is left, that one's answer"
        )
    return Audit("horizontal", scene.terms.job.protection.replace("auto", "none"), findings, remarks)


def _seen(scene: HorizontalAuditInput, victim: str) -> list[Change]:
    """Return the observed changes of one client's model; under masks, the change of the sum."""
    masked = any(message.kind == MASKED.kind for message in scene.messages)
    changes: list[Change] = []
    here: Array | None = None
    for message in scene.messages:
        if message.receiver == victim and message.kind in _MODELS:
            field = _MODELS[message.kind]
            found = message[field] if field == "weights" else message[field][0]
            if masked and here is not None and not np.array_equal(here, found):
                changes.append(Change(MASKED.kind, here.astype(float), found.astype(float)))
            here = found
        elif message.sender == victim and here is not None:
            if message.kind == UPDATE.kind:
                changes.append(Change(message.kind, here.astype(float), here + message["weights"].astype(float)))
            elif message.kind in (JUDGED.kind, OUTCOME.kind):
                slope = message["gradient" if message.kind == JUDGED.kind else "slope"]
                start = here[: len(slope)]
                changes.append(
                    Change(message.kind, start, start - STEP * slope / max(float(np.linalg.norm(slope)), 1e-300))
                )
    return changes


def _membership(
    scene: HorizontalAuditInput, who: str, victim: str, changes: Sequence[Change], rng: np.random.Generator
) -> Iterator[Finding]:
    """Infer membership: tell rows of the client from rows of others."""
    features, labels, inside = _candidates(scene, victim, rng)
    if min(inside.sum(), (~inside).sum()) < LEAST_ROWS:
        return
    half = rng.permutation(len(labels)) < len(labels) // 2
    few = half & (np.cumsum(half) <= row_attacks.FEW)
    flat = np.column_stack([features.reshape(len(features), -1), labels])
    floors = {
        name: row_attacks.learned(flat, inside, rows) for name, rows in (("400 known", few), ("half known", half))
    }
    heights = {name: evidence.auc(scores[~half], inside[~half]).value for name, scores in floors.items()}
    best = max(heights, key=lambda name: heights[name])
    for count in sorted({1, len(changes)}):
        gains = [
            scene.losses(one.before, features, labels) - scene.losses(one.after, features, labels)
            for one in changes[:count]
        ]
        guess = np.mean([gain / max(float(gain.std()), 1e-300) for gain in gains], axis=0)[~half]
        yield Finding(
            who,
            f"who is among the rows of {victim}",
            "membership",
            changes[0].kind,
            count,
            "AUC",
            evidence.auc(guess, inside[~half]),
            heights,
            evidence.auc_lift(guess, floors[best][~half], inside[~half]),
            controls.outcome("membership").value,
            evidence.auc(guess, rng.permutation(inside[~half])).value,
        )


def _candidates(scene: HorizontalAuditInput, victim: str, rng: np.random.Generator) -> tuple[Array, Array, Booleans]:
    own = scene.clients[victim]
    others = [rows for name, rows in scene.clients.items() if name != victim]
    pools = [(np.asarray(own.features), own.labels)]
    pools += (
        [(np.concatenate([rows.features for rows in others]), np.concatenate([rows.labels for rows in others]))]
        if others
        else []
    )
    drawn = [(part[0][places], part[1][places]) for part in pools for places in [_some(len(part[1]), rng)]]
    features, labels = (np.concatenate([part[place] for part in drawn]) for place in (0, 1))
    return features.astype(np.float64), labels, np.arange(len(labels)) < len(drawn[0][1])


def _some(count: int, rng: np.random.Generator) -> Integers:
    return np.sort(rng.permutation(count)[:MOST_ROWS])


def _inversion(
    scene: HorizontalAuditInput, who: str, victim: str, changes: Sequence[Change], rng: np.random.Generator
) -> Iterator[Finding]:
    """Reconstruct the row that a change of weights is proportional to, and compare it with the client's nearest row."""
    if not scene.linear:
        return
    rows = np.asarray(scene.clients[victim].features, dtype=np.float64)
    rows = rows[_some(len(rows), rng)]
    others = np.concatenate([one.features for name, one in scene.clients.items() if name != victim] or [rows[:0]])
    middle = np.concatenate([rows, others]).mean(axis=0)
    found = [update_attacks.by_ratio(one.after - one.before) for one in changes]
    value = max(update_attacks.likeness(row, rows, middle) for row in found)
    # Compare with the distance to the same number of rows that had no part in the update.
    drawn = [rng.permutation(len(others))[: len(rows)] for _ in range(DRAWS if len(others) else 0)]
    chance = [
        max(update_attacks.likeness(row, others[some].astype(np.float64), middle) for row in found) for some in drawn
    ] or [0.0]
    yield Finding(
        who,
        f"the values of a row of {victim}",
        "inversion",
        changes[0].kind,
        len(changes),
        "R²",
        Estimate(value, value, value),
        {"rows of others": float(np.mean(chance))},
        Estimate(value - float(np.mean(chance)), value - max(chance), value - min(chance)),
        controls.outcome("inversion").value,
        float(np.mean(chance)),
    )
