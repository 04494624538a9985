"""Read a 0/1 column of a party from the sums that masks open: `python benchmarks/blind_separation.py`.

The sums of a run lie in the span of the parties' columns. Independent component analysis (Hyvärinen and Oja, 2000)
looks in it for combinations that are least like a normal distribution, and the one that is most like two values is
taken. A curious server needs for it no row, no label and no key. `evenhand audit` runs the same attack on a job.

One passive party has a 0/1 column, the other has normal columns, of which the first depends on it. With *presence* the
0/1 column is the mark of rows that the party lacks (`ids = "hidden-left"`), beside two normal columns that are zero
there. The table shows the mean share of rows whose value is read right, and the smallest. Without the sums it is about
.6, the share of the larger value.

With `--sets adult compas credit-default` the attack of the audit runs on public tables, of six, three and four parties,
behind masks: how many of the passive parties' columns of two values the server reads with an AUC of .95 or more, and
how many of them random sums tell as well.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import numpy as np
import pandas as pd
from overlap import INCOME, case
from rich.console import Console
from rich.table import Table

from evenhand import VerticalClassifier
from evenhand.arrays import Array, Booleans
from evenhand.auditing.cases import Case
from evenhand.auditing.separation import READ, best_split, components, guessed
from evenhand.auditing.views import View
from evenhand.estimators.auditing import trained_for_audit
from evenhand.models.learning.random_features import RandomFeatures
from evenhand.protocol.job import Job
from evenhand_reproductions.in_memory import PartyColumns, train_vertical

KINDS: Final[dict[str, dict[str, Any]]] = {
    "subspace, masked": {"solver": "subspace", "protection": "masked"},
    "subspace, dealer": {"solver": "subspace", "protection": "dealer"},
    "subspace, masked, presence": {"solver": "subspace", "protection": "masked"},
    "learners, masked": {"solver": "learners", "protection": "masked", "max_rounds": 6},
}


def generated(kind: str, rows: int, width: int, seed: int) -> tuple[list[Array], Booleans, Array]:
    """Return the columns of three parties, the 0/1 column, and labels."""
    rng = np.random.default_rng(seed)
    others = rng.normal(size=(rows, width))
    secret = 0.5 * others[:, 0] + np.sqrt(0.75) * rng.normal(size=rows) > 0.25
    own = rng.normal(size=(rows, 1))
    scores = own[:, 0] + 2.0 * secret - 0.8 + 0.7 * others.sum(axis=1)
    columns = [own, (secret[:, None] - secret.mean()) / secret.std(), others]
    if kind.endswith("presence"):
        there = np.where(secret[:, None], 0.0, rng.normal(size=(rows, 2)))
        columns[1], scores = np.hstack([there, secret[:, None]]), scores + there.sum(axis=1)
    return columns, secret, np.where(scores + rng.logistic(size=rows) > 0, 1.0, -1.0)


def opened(kind: str, columns: list[Array], labels: Array) -> Array:
    """Return the sums over passive parties that a run opens, (rows, sums)."""
    if kind.startswith("embedding"):
        return sum(RandomFeatures.drawn(one, 16, place).outputs(one) for place, one in enumerate(columns[1:]))  # type: ignore[return-value]
    parties = [PartyColumns(f"p{place}", one, place == 0) for place, one in enumerate(columns)]
    run = train_vertical(Job(**KINDS[kind]), parties, labels, keep_messages=True)
    messages = [one for one in run.transcript.messages or [] if one.sender == "together"]
    per_row = [np.atleast_2d(value) for one in messages for value in one.body.values() if isinstance(value, np.ndarray)]
    return np.concatenate([one for one in per_row if one.ndim == 2 and one.shape[1] == len(labels)]).T


def read_right(sums: Array, secret: Booleans) -> float:
    """Return the share of rows that are read right, from the combination most like a column of two values."""
    best = components(sums)[:, 0]
    agree = float(((best > best_split(best).threshold) == secret).mean())
    return max(agree, 1.0 - agree)


def on_public(name: str, source: Path | None, rows: int) -> tuple[int, int, int]:
    """Return how many columns of two values there are, how many the server reads, and how many by chance."""
    one = case(name, "random", source, 0, rows)
    everybody = np.ones(len(one.labels), dtype=bool)
    classifier = VerticalClassifier(protection="masked")
    scene = trained_for_audit(classifier, one.whole(everybody), pd.Series(one.labels), None)[1]
    rng = np.random.default_rng(0)
    scene = replace(scene, known=rng.random(len(everybody)) < 0.5, rows=np.arange(len(everybody)))
    attacked = Case(View.of(scene, [one.holder]), rng)
    columns = [column for other in attacked.view.others for column in guessed(attacked, other)[0]]
    areas = [column.areas(~attacked.known) for column in columns]
    read, by_chance = (sum(area >= READ for area in found) for found in zip(*areas, strict=True))
    return len(columns), read, by_chance


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=500)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--widths", type=int, nargs="+", default=[1, 3, 8], help="columns of the other party")
    parser.add_argument("--sets", nargs="+", default=[], choices=list(INCOME), help="public tables, instead")
    parser.add_argument("--source", type=Path, default=None, help="folder of the public tables")
    given = parser.parse_args()
    if given.sets:
        for name in given.sets:
            count, read, by_chance = on_public(name, given.source, given.rows)
            print(f"{name}, {given.rows} rows: of {count} columns of two values {read} are read, by chance {by_chance}")
        return
    table = Table("run", *(f"{width} other" for width in given.widths), title="share of rows read right")
    for kind in (*KINDS, "embedding, masked"):
        cells = []
        for width in given.widths:
            shares = []
            for seed in range(given.seeds):
                columns, secret, labels = generated(kind, given.rows, width, seed)
                shares.append(read_right(opened(kind, columns, labels), secret))
            cells.append(f"{np.mean(shares):.3f}, {min(shares):.3f}")
        table.add_row(kind, *cells)
    Console(width=120).print(table)


if __name__ == "__main__":
    main()
