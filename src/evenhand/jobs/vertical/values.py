"""What each party's data is worth: Shapley values of held-out loss, by training coalitions of parties.

The label holder is in every coalition, because nothing can be trained without it. The value of another party is how
much it lowers the mean loss on held-out rows, averaged over the orders in which parties may join (Shapley, 1953). It is
a mean over rows, weighted if the job weighs them, so its standard error is that of a mean.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
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
from evenhand.protocol.roles import SERVER
from evenhand.report.record import VALUES
from evenhand.runtime.files import write_bytes
from evenhand.runtime.folder import RunFolder
from evenhand.training.coalitions import Coalition, train_coalition

MOST_EXACT: Final = 5
"""Most parties beside the label holder for which all coalitions are trained."""
HELD_OUT: Final = "held-out losses"
"""Key of a server's `result.json` between organisations: the loss of each held-out row, for `values = true`."""
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
    found = _Trained(tables, progress).measured(orders)
    write_bytes(folder.path / VALUES, (json.dumps(found, indent=1) + "\n").encode())
    return found


def value_runs(folders: Sequence[RunFolder], orders: int = ORDERS) -> dict[str, Any]:
    """Return the values of parties from the server's folders of jobs between organisations, one for each coalition.

    They are written to the folder of the run with all parties.
    """
    values = _Given(folders).measured(orders)
    write_bytes(largest(folders).path / VALUES, (json.dumps(values, indent=1) + "\n").encode())
    return values


def largest(folders: Sequence[RunFolder]) -> RunFolder:
    """Return the run with most parties."""
    return max(folders, key=lambda folder: len(folder.description.get("party", ())))


class _Values(ABC):
    """Values from the loss of each held-out row under coalitions of parties."""

    holder: str
    players: Sequence[str]
    weights: Array
    loss_name: str
    rounds: int
    losses: Coalitions

    @abstractmethod
    def of(self, players: frozenset[str]) -> Array:
        """Return the loss of each held-out row, trained with the label holder and these parties."""

    def measured(self, orders: int) -> dict[str, Any]:
        exact = len(self.players) <= MOST_EXACT
        by_row = self._exactly() if exact else self._sampled(orders)
        whole, alone = self.of(frozenset(self.players)), self.of(frozenset())
        return {
            "holder": self.holder,
            "rows": len(self.weights),
            "loss": self.loss_name,
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

    def _exactly(self) -> dict[str, tuple[Array, float]]:
        count = len(self.players)
        for size in range(count, -1, -1):
            for some in combinations(self.players, size):
                self.of(frozenset(some))
        found = {}
        for name in self.players:
            others = [one for one in self.players if one != name]
            rows = np.zeros(len(self.weights))
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


class _Trained(_Values):
    """Coalitions that are trained in this process."""

    def __init__(self, tables: VerticalTables, progress: Progress) -> None:
        self.tables, self.progress = tables, progress
        self.holder, self.loss_name = tables.holder, tables.terms.job.loss
        self.players = [name for name in tables.rows if name != tables.holder]
        self.loss = tables.terms.job.loss_function
        self.labels = tables.held.labels[tables.test]
        weights = tables.held.sample_weight
        self.weights = np.ones(len(self.labels)) if weights is None else weights[tables.test]
        self.losses = {}
        self.rounds = 0
        self._trained: dict[frozenset[str], Coalition] = {}

    def of(self, players: frozenset[str]) -> Array:
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


class _Given(_Values):
    """Coalitions that organisations have trained, each in a job of its own."""

    def __init__(self, folders: Sequence[RunFolder]) -> None:
        told = [self._told(folder) for folder in folders]
        first = told[0]
        names_of = [[one["name"] for one in folder.description["party"]] for folder in folders]
        self.holder = next(one["name"] for one in folders[0].description["party"] if one.get("role") == "active")
        self.players = sorted({name for names in names_of for name in names} - {self.holder})
        self.loss_name = _asked(folders[0]).get("loss", "logistic")
        self.weights = np.array(first["weights"])
        self.rounds, self.losses = 0, {}
        for folder, names, one in zip(folders, names_of, told, strict=True):
            if _asked(folder) != _asked(folders[0]) or self.holder not in names:
                raise JobError(
                    f"{folder.path} was trained with another job than {folders[0].path}; values compare jobs that "
                    "differ in their parties and in extends only"
                )
            if (one["rows"], one["weights"]) != (first["rows"], first["weights"]):
                raise DataError(
                    f"{folder.path} has other held-out rows than {folders[0].path}; use ids that keep the same rows "
                    'with every set of parties, such as ids = "left"'
                )
            self.losses[frozenset(names) - {self.holder}] = np.array(one["losses"])
            self.rounds += int(folder.result["certificate"]["rounds"])

    def _told(self, folder: RunFolder) -> Mapping[str, Any]:
        if folder.description.get("side") != SERVER or not folder.finished or HELD_OUT not in folder.result:
            raise JobError(
                f"{folder.path} is not the server's folder of a finished job with values = true, so it does not hold "
                "losses of held-out rows"
            )
        found: Mapping[str, Any] = folder.result[HELD_OUT]
        return found

    def of(self, players: frozenset[str]) -> Array:
        if players not in self.losses:
            raise JobError(
                f"no given run is of {' + '.join([self.holder, *sorted(players)])} alone; submit the job with these "
                "parties, values = true and extends = the name of a run with more parties, and name its folder too"
            )
        return self.losses[players]


def _asked(folder: RunFolder) -> dict[str, Any]:
    """Return the keys of a job that must be the same for all coalitions."""
    return {name: value for name, value in folder.description.get("job", {}).items() if name != "extends"}
