"""What each party's data is worth: Shapley values of held-out loss, by training coalitions of parties.

The label holder is in every coalition, because nothing can be trained without it. The value of another party is how
much it lowers the mean loss on held-out rows, averaged over the orders in which parties may join (Shapley, 1953). It is
a mean over rows, weighted if the job weighs them, so its standard error is that of a mean.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import combinations
from math import factorial
from typing import Any, Final

import numpy as np

from evenhand.arrays import Array
from evenhand.errors import DataError, JobError
from evenhand.jobs.folder import own_job, require_password
from evenhand.jobs.vertical.extending import extending
from evenhand.jobs.vertical.file import VerticalJobFile, parse_vertical
from evenhand.jobs.vertical.runs import VerticalTables, load_vertical_tables
from evenhand.models.saved import joint_scores
from evenhand.report.record import VALUES
from evenhand.runtime.files import write_bytes
from evenhand.runtime.folder import RunFolder
from evenhand.training.coalitions import Coalition, train_coalition

MOST_EXACT: Final = 5
"""Most parties beside the label holder for which all coalitions are trained."""
ORDERS: Final = 20
"""Number of random orders with more parties."""

Coalitions = dict[frozenset[str], Array]
Progress = Callable[[str], None]


def value_run(folder: RunFolder, progress: Progress = lambda _: None, orders: int = ORDERS) -> dict[str, Any]:
    """Return the values of the parties of a finished run, and write them to its folder.

    Tables are read again and must not have moved. Linear models start from the weights of a larger coalition.
    """
    if folder.split == "horizontal" or "side" in folder.description:
        raise JobError(f"{folder.path}: values are for vertical runs of one process, which has all parties' tables")
    job = own_job(folder, VerticalJobFile, parse_vertical)
    if job.job.label_privacy is not None:
        raise JobError(f"{folder.path}: values need true labels, and the job shares randomised responses only")
    if len(job.party) == 1:
        raise JobError(f"{folder.path}: there is no party beside the label holder, whose value could be measured")
    for party in job.party:
        require_password(party.database)
    linear = job.to_job().model == "linear"
    tables = load_vertical_tables(extending(job, folder.path) if linear else job, folder.base)
    if not tables.test.any():
        raise DataError(f"{folder.path}: no rows are held out to measure values on; set test_fraction in [job]")
    if tables.held.sample_weight is not None and not tables.held.sample_weight[tables.test].any():
        raise DataError(
            f"{folder.path}: the weights of all held-out rows are zero; hold out others (test_fraction, seed)"
        )
    found = _Values(tables, progress).measured(orders)
    write_bytes(folder.path / VALUES, (json.dumps(found, indent=1) + "\n").encode())
    return found


class _Values:
    """Coalitions that have been trained, and the loss of each held-out row under them."""

    def __init__(self, tables: VerticalTables, progress: Progress) -> None:
        self.tables, self.progress = tables, progress
        self.players = [name for name in tables.rows if name != tables.holder]
        self.loss = tables.terms.job.loss_function
        self.labels = tables.held.labels[tables.test]
        weights = tables.held.sample_weight
        self.weights = np.ones(len(self.labels)) if weights is None else weights[tables.test]
        self.losses: Coalitions = {}
        self.rounds = 0
        self._trained: dict[frozenset[str], Coalition] = {}

    def measured(self, orders: int) -> dict[str, Any]:
        exact = len(self.players) <= MOST_EXACT
        by_row = self._exactly() if exact else self._sampled(orders)
        whole, alone = self.of(frozenset(self.players)), self.of(frozenset())
        return {
            "holder": self.tables.holder,
            "rows": len(self.labels),
            "loss": self.tables.terms.job.loss,
            "label holder alone": self._mean(alone),
            "all parties": self._mean(whole),
            "trainings": len(self.losses),
            "rounds": self.rounds,
            "orders": None if exact else orders,
            "parties": [
                {"party": name, "value": self._mean(rows), "standard_error": error}
                for name, (rows, error) in by_row.items()
            ],
        }

    def of(self, players: frozenset[str]) -> Array:
        """Return the loss of each held-out row, trained with the label holder and these parties."""
        if players not in self.losses:
            larger = min((one for one in self._trained if players < one), key=len, default=None)
            self.progress(f"training {' + '.join([self.tables.holder, *sorted(players)])}")
            names = {self.tables.holder, *players}
            trained = train_coalition(self.tables.stages, names, None if larger is None else self._trained[larger])
            self._trained[players] = trained
            self.rounds += trained.rounds
            test = self.tables.test
            matrices = {name: one.matrix[test] for name, one in self.tables.rows.items() if name in names}
            scores = joint_scores({name: trained.models[name] for name in matrices}, matrices)
            self.losses[players] = self.loss.value(scores, self.labels)
        return self.losses[players]

    def _exactly(self) -> dict[str, tuple[Array, float]]:
        count = len(self.players)
        for size in range(count, -1, -1):
            for some in combinations(self.players, size):
                self.of(frozenset(some))
        found = {}
        for name in self.players:
            others = [one for one in self.players if one != name]
            rows = np.zeros(len(self.labels))
            for size in range(count):
                weight = factorial(size) * factorial(count - size - 1) / factorial(count)
                for before in map(frozenset, combinations(others, size)):
                    rows += weight * (self.of(before) - self.of(before | {name}))
            found[name] = rows, self._standard_error(rows)
        return found

    def _sampled(self, orders: int) -> dict[str, tuple[Array, float]]:
        """Average over random orders; the standard error is that of rows and of orders together."""
        self.of(frozenset(self.players))
        rng = np.random.default_rng(0)
        gains: dict[str, list[Array]] = {name: [] for name in self.players}
        for _ in range(orders):
            there = frozenset(self.players)
            for name in rng.permutation(self.players).tolist():
                gains[name].append(self.of(there - {name}) - self.of(there))
                there -= {name}
        found = {}
        for name, each in gains.items():
            means = np.array([self._mean(one) for one in each])
            rows = np.mean(each, axis=0)
            spread = float(means.var(ddof=1) / len(means)) if len(means) > 1 else 0.0
            found[name] = rows, float(np.hypot(self._standard_error(rows), np.sqrt(spread)))
        return found

    def _mean(self, rows: Array) -> float:
        return float(np.average(rows, weights=self.weights))

    def _standard_error(self, rows: Array) -> float:
        deviations = self.weights * (rows - self._mean(rows))
        return float(np.linalg.norm(deviations) / self.weights.sum() * np.sqrt(len(rows) / (len(rows) - 1)))
