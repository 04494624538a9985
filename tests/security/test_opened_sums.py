"""What the server opens under masks is no vector of one party alone, where each party has several columns."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from evenhand.arrays import Array
from evenhand.constraints.labelled_rows import LabelledRows
from evenhand.errors import InputError
from evenhand.privacy.key_exchange import agree_here
from evenhand.protocol.job import Job
from evenhand.protocol.terms import Part
from evenhand.solvers import roles
from evenhand.vertical.messages import DIRECTION
from evenhand.vertical.problem import PartyData, ServerData

ROWS = 400
PARTS: dict[str, Part] = {"bank": "active", "phone": "passive", "shop": "passive"}
COLLINEAR = 1.0 - 1e-9


def cosine(one: Array, other: Array) -> float:
    sizes = float(np.linalg.norm(one) * np.linalg.norm(other))
    return abs(float(one @ other)) / sizes if sizes else 0.0


def closest(seed: int, options: dict[str, Any]) -> tuple[int, float]:
    """Train with two passive parties under masks; signs of their weights are bounded if asked.

    Returns the number of opened vectors, and the largest cosine of one with a party's column or band of that round.
    """
    rng = np.random.default_rng(seed)
    factors = rng.normal(size=(ROWS, 2))
    widths = {"bank": 2, "phone": 4, "shop": 4}
    data = {name: factors @ rng.normal(size=(2, m)) + 0.7 * rng.normal(size=(ROWS, m)) for name, m in widths.items()}
    together = np.hstack(list(data.values()))
    labels = np.where(together @ rng.normal(size=together.shape[1]) + rng.logistic(size=ROWS) > 0, 1.0, -1.0)
    job = Job("subspace", protection="masked", max_rounds=40, options=options)
    terms = roles.vertical_terms(job, PARTS, ROWS, {})
    sessions, known = agree_here(list(PARTS), terms.digest), LabelledRows(labels, None)
    server = roles.server(terms, ServerData(labels, None, session=sessions["server"]))
    parties = {}
    for name, matrix in data.items():
        signs = np.ones(matrix.shape[1], dtype=np.int64) if options.get("monotone") and name != "bank" else None
        own = known if name == "bank" else None
        parties[name] = roles.party(terms, name, PartyData(matrix, signs=signs, known=own, session=sessions[name]))
    waiting, opened, largest = [*server.start()], 0, 0.0
    for party in parties.values():
        waiting += party.start()
    while waiting:
        message = waiting.pop(0)
        to_server = message.receiver == "server"
        waiting += (server if to_server else parties[message.receiver]).receive(message)
        for found in server.take_opened() if to_server else ():
            if found.kind != DIRECTION.kind:
                continue
            singles = [column for name in ("phone", "shop") for column in data[name].T]
            for name in ("phone", "shop"):
                role: Any = parties[name]
                singles += list(role.inner.directions[0] @ data[name].T)
            opened += len(found["scores"])
            largest = max(largest, *(cosine(one, single) for one in found["scores"] for single in singles))
    return opened, largest


def test_no_opened_sum_is_the_vector_of_one_party() -> None:
    counts, cosines = zip(*(closest(seed, {}) for seed in range(10)), strict=True)
    assert min(counts) >= 4
    assert max(cosines) < COLLINEAR


def test_signs_are_not_bounded_under_masks() -> None:
    """A party with nothing at its bound would send zeros, and the sum would be the other party's column."""
    with pytest.raises(InputError, match="the server then reads one party alone"):
        closest(0, {"monotone": True})
