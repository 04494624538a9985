"""Count rounds of masked runs in which a party has few independent columns: `python benchmarks/narrow_parties.py`.

Generated tables of three or four parties with correlated columns, and equal opportunity with ε = 0.01. *Unfilled* is
the run in which a party whose part of a direction is next to zero sends it like that, so that the server may read the
other party's part; *one part* is a run with ``bands = 1``. The last column is about the sum, of all rounds and seeds,
that is nearest to the part of one party: one minus their cosine. At zero the server has read it.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import Any, Final
from unittest.mock import patch

import numpy as np
import pandas as pd
from rich.console import Console
from rich.table import Table

from evenhand.arrays import Array
from evenhand.constraints.kinds import EqualOpportunity
from evenhand.constraints.labelled_rows import LabelledRows
from evenhand.privacy.key_exchange import agree_here
from evenhand.protocol.job import Job
from evenhand.protocol.terms import Part
from evenhand.solvers import roles
from evenhand.vertical.messages import DIRECTION
from evenhand.vertical.problem import PartyData, ServerData
from evenhand.vertical.subspace import bands

FAMILIES: Final[Mapping[str, tuple[int, ...]]] = {
    "one column and four": (1, 4),
    "one column and twelve": (1, 12),
    "two parties of one column": (1, 1),
    "one column, four and six": (1, 4, 6),
    "the same column twice, and four": (-2, 4),
    "six and six": (6, 6),
}
"""Columns of each passive party; a negative number is a party with copies of one column."""


def generated(widths: tuple[int, ...], rows: int, seed: int) -> tuple[dict[str, Array], Array, Array]:
    """Return columns by party, labels and groups."""
    rng = np.random.default_rng(seed)
    factors = rng.normal(size=(rows, 4))
    data = {}
    for name, width in zip(("bank", "phone", "shop", "work"), (3, *widths), strict=False):
        own = factors @ rng.normal(size=(4, abs(width))) + 0.7 * rng.normal(size=(rows, abs(width)))
        data[name] = own if width > 0 else np.repeat(own[:, :1], -width, axis=1)
    together = np.hstack(list(data.values()))
    scores = together @ rng.normal(size=together.shape[1]) / 2.0
    groups = np.where(factors[:, 0] + rng.normal(size=rows) > 0, "a", "b")
    return data, np.where(scores + rng.logistic(size=rows) > 0, 1.0, -1.0), groups


def run(widths: tuple[int, ...], rows: int, seed: int, options: Mapping[str, Any]) -> tuple[int, float, float]:
    """Return the rounds, the objective, and the largest cosine of an opened sum with one party's part of it."""
    data, labels, groups = generated(widths, rows, seed)
    frame = pd.DataFrame({"group": groups})
    parts: dict[str, Part] = {name: "passive" if place else "active" for place, name in enumerate(data)}
    job = Job("subspace", constraints=(EqualOpportunity(0.01),), protection="masked", options=dict(options))
    terms = roles.vertical_terms(job, parts, rows, {"group": ("a", "b")})
    sessions = agree_here(list(parts), terms.digest)
    server = roles.server(terms, ServerData(labels, frame, session=sessions["server"]))
    parties: dict[str, Any] = {}
    for name, matrix in data.items():
        known = LabelledRows(labels, frame) if name == "bank" else None
        parties[name] = roles.party(terms, name, PartyData(matrix, known=known, session=sessions[name]))
    waiting, largest = [*server.start()], 0.0
    for party in parties.values():
        waiting += party.start()
    while waiting:
        message = waiting.pop(0)
        to_server = message.receiver == "server"
        waiting += (server if to_server else parties[message.receiver]).receive(message)
        for found in server.take_opened() if to_server else ():
            if found.kind == DIRECTION.kind:
                own = [parties[name].inner.directions[0] @ data[name].T for name in data if name != "bank"]
                largest = max(
                    largest, *(cosine(*pair) for one in own for pair in zip(found["scores"], one, strict=True))
                )
    certificate = roles.solvers_server(server).certificate
    assert certificate is not None
    return certificate.rounds, certificate.objective, largest


def cosine(one: Array, other: Array) -> float:
    """Return the cosine of two vectors without their means."""
    left, right = one - one.mean(), other - other.mean()
    sizes = float(np.linalg.norm(left) * np.linalg.norm(right))
    return abs(float(left @ right)) / sizes if sizes else 0.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=2000)
    parser.add_argument("--seeds", type=int, default=5)
    asked = parser.parse_args()
    table = Table("passive parties", "way", "rounds", "objective, mean", "nearest")
    for name, widths in FAMILIES.items():
        for way, least, options in (
            ("unfilled", 0.0, {}),
            ("filled", bands.LEAST_PART, {}),
            ("one part", bands.LEAST_PART, {"bands": 1}),
        ):
            with patch.object(bands, "LEAST_PART", least):
                found = [run(widths, asked.rows, 100 + seed, options) for seed in range(asked.seeds)]
            rounds, objectives, cosines = zip(*found, strict=True)
            cells = [", ".join(map(str, rounds)), f"{np.mean(objectives):.6f}", f"{1.0 - max(cosines):.0e}"]
            table.add_row(name, way, *cells)
    Console(width=110).print(table)


if __name__ == "__main__":
    main()
