"""The grid: method × data × split × seed under one constraint; each cell is a fit, measured on held-out rows."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any, Final

import numpy as np
import pandas as pd
from scipy.special import expit

from evenhand import HorizontalClassifier
from evenhand.arrays import Array, Integers
from evenhand.constraints.kinds import KINDS, Constraint
from evenhand.data import load
from evenhand.data.public.loaders import Dataset
from evenhand.errors import ConstraintError, EvenhandError, EvenhandWarning, InputError
from evenhand.metrics import Threshold, summary
from evenhand.solvers import HORIZONTAL
from evenhand_reproductions.benchmark.places import PLACE, REGIONS, places
from evenhand_reproductions.benchmark.splits import client_numbers
from evenhand_reproductions.methods import logofair, register_methods
from evenhand_reproductions.settings import Record

TABLES: Final = ("adult", "compas", "communities-crime", "german", "credit-default", "give-me-some-credit")
HELD_OUT: Final = 0.3
"""Share of a table's rows on which models are measured."""
MOST_HELD_OUT: Final = 10_000
"""Most rows on which models are measured: standard errors of rates are then below half a percent."""
METRICS: Final = ("accuracy", "log_loss", "DP", "DFP", "DFN", "equalized_odds", "DEO")
CUTS: Final = "-cuts"
"""Ending of the name of a method that trains without the constraint and then chooses a cut for each group.

That is post-processing across clients (Hardt, Price and Srebro, 2016): the server chooses the cuts from summed counts
of the clients' scores (`threshold_by`). Decisions use the sensitive attribute, also for new people.
"""
POST_PROCESSED: Final = ("fedavg", "sqp")
LOGOFAIR: Final = "fedavg-logofair"
"""FedAvg without the constraint, and then LoGoFair on the training rows; its decisions need client and group.

It bounds demographic parity or equalized odds, over all rows and over each client's, by the same ε. Held-out rows have
no client. Each is given that of a training row of the same label and group, drawn at random: splits depend on nothing
else. A split by place gives them their own.
"""
KEY: Final = ("method", "set", "rows", "split", "constraint", "clients", "rounds", "seed")
"""What makes two records the same cell."""


@dataclass(frozen=True)
class Grid:
    """Cells of a benchmark.

    Attributes
    ----------
    methods
        Solvers by name; empty is all that are registered for linear models.
    constraint
        Asked of methods that take constraints; others train without.
    rows
        Most training rows; from a larger table so many are drawn anew for each seed. None takes all. Held-out rows are
        30 % of the table in any case, at most 10,000.
    rounds
        Rounds of methods with a fixed number; others stop by their own rule.
    """

    methods: tuple[str, ...] = ()
    sets: tuple[str, ...] = ("compas",)
    splits: tuple[str, ...] = ("iid", "sensitive", "both")
    constraint: str = "equalized-odds"
    epsilon: float = 0.05
    measure: str = "error"
    clients: int = 5
    rounds: int = 30
    seeds: tuple[int, ...] = tuple(range(10, 15))
    rows: int | None = None
    source: Path | None = None
    names: tuple[str, ...] = field(init=False, default=())

    def __post_init__(self) -> None:
        register_methods()
        known = [name for name, one in HORIZONTAL.items() if "linear" in one.models]
        known += [*(name + CUTS for name in POST_PROCESSED), LOGOFAIR]
        for name in self.methods:
            if name not in known:
                raise InputError(f"there is no method {name!r}; there is {', '.join(known)}")
        if self.constraint not in KINDS:
            raise InputError(f"constraint is {self.constraint!r}; choose one of {', '.join(KINDS)}")
        object.__setattr__(self, "names", self.methods or tuple(known))

    @property
    def rule(self) -> Constraint:
        return KINDS[self.constraint](**{"epsilon": self.epsilon, "measure": self.measure})

    @property
    def asked(self) -> str:
        """The constraint in words, as records have it."""
        return f"{self.constraint} {self.epsilon:g} on {self.measure}"

    def cells(self) -> Iterator[Record]:
        """Yield the key of each cell, all methods of a seed and table first: what was stopped can be compared."""
        size = "all" if self.rows is None else self.rows
        for seed, data, split, name in product(self.seeds, self.sets, self.splits, self.names):
            clients = REGIONS if split == PLACE else self.clients
            values = (name, data, size, split, self.asked, clients, self.rounds, seed)
            yield dict(zip(KEY, values, strict=True))

    def run(self, done: Iterable[Record] = ()) -> Iterator[Record]:
        """Yield the record of each cell that is not among those done."""
        known = {key(one) for one in done}
        for cell in self.cells():
            if key(cell) not in known:
                yield {**cell, **self._fit(cell)}

    def _fit(self, cell: Record) -> Record:
        table = _table(cell["set"], self.source)
        seed = int(cell["seed"])
        order = np.random.default_rng(seed).permutation(len(table.frame))
        held = int(HELD_OUT * len(order))
        test, train = np.sort(order[:held][:MOST_HELD_OUT]), np.sort(order[held:][: self.rows])
        groups = table.sensitive.iloc[:, 0].rename("group")
        # 1 is the positive class, whatever the set calls it.
        labels = (table.label == table.positive).astype(int)
        if cell["split"] == PLACE:
            own = places(cell["set"], table, self.source).iloc[train].to_numpy()
        else:
            drawn = client_numbers(cell["split"], labels.iloc[train], groups.iloc[train], self.clients, seed)
            own = np.array([f"client {number:02d}" for number in drawn])
        name = str(cell["method"])
        by_group = name.endswith(CUTS)
        solver = HORIZONTAL["fedavg" if name == LOGOFAIR else name.removesuffix(CUTS)]
        model = HorizontalClassifier(
            solver=solver.name,
            constraint=self.rule if solver.takes_constraints or by_group else None,
            max_rounds=self.rounds if solver.fixed_rounds else None,
            random_state=seed,
            threshold=Threshold("accuracy") if by_group else 0.5,
            threshold_by="group" if by_group else "",
        )
        start = time.process_time()
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", EvenhandWarning)
                model.fit(
                    table.frame.iloc[train],
                    labels.iloc[train],
                    sensitive_features=groups.iloc[train],
                    clients=own,
                )
                cpu = time.process_time() - start
                scores, cut, sent = model.decision_function(table.frame.iloc[test]), 0.0, int(model.bytes_sent_)
                if name == LOGOFAIR:
                    if cell["split"] == PLACE:
                        there = places(cell["set"], table, self.source).iloc[test].to_numpy()
                    else:
                        there = _drawn_clients(own, labels, groups, train, test, seed)
                    of_train = model.decision_function(table.frame.iloc[train])
                    rows = Rows(of_train, labels.iloc[train], groups.iloc[train], own)
                    decisions, more = self._logofair(rows)
                    cpu = time.process_time() - start
                    scores, sent = decisions(scores, groups.iloc[test], there), sent + more
                elif by_group:
                    cut = _cut(model, groups.iloc[test])
                found = summary(labels.iloc[test], scores, sensitive_features=groups.iloc[test], cut=cut)
        except EvenhandError as error:
            return {"outcome": f"{type(error).__name__}: {error}", "cpu": time.process_time() - start}
        return {
            "outcome": "ended",
            **{metric: found[metric] for metric in METRICS},
            "training rounds": int(model.n_iter_),
            "bytes": sent,
            "cpu": cpu,
        }

    def _logofair(self, rows: Rows) -> tuple[Callable[[Array, pd.Series, Array], Array], int]:
        """Fit LoGoFair; return what turns scores into margins, and the bytes that its numbers have."""
        if self.constraint not in ("equalized-odds", "demographic-parity"):
            raise ConstraintError(f"{LOGOFAIR} bounds equalized odds or demographic parity, not {self.constraint}")
        options = logofair.LoGoFair(
            odds=self.constraint == "equalized-odds", global_gap=self.epsilon, local_gap=self.epsilon
        )
        known = pd.Index(sorted(rows.groups.unique()))
        signs = np.where(rows.labels == 1, 1.0, -1.0)
        fitted = logofair.fit(options, expit(rows.scores), signs, known.get_indexer(rows.groups), rows.clients)
        clients, gaps = len(fitted.own), len(fitted.multipliers)
        sent = 8 * clients * (2 * gaps * options.rounds + 2 * fitted.everywhere.size)

        def margins(scores: Array, groups: pd.Series, clients: Array) -> Array:
            return fitted.margins(expit(scores), known.get_indexer(groups), clients)

        return margins, sent


@dataclass(frozen=True, eq=False)
class Rows:
    """Training rows for post-processing."""

    scores: Array
    labels: pd.Series
    groups: pd.Series
    clients: Any


def _drawn_clients(own: Any, labels: pd.Series, groups: pd.Series, train: Integers, test: Integers, seed: int) -> Any:
    """Return a client for each held-out row: that of a random training row of the same label and group."""
    rng = np.random.default_rng([seed, 1])
    strata = (labels.astype(str) + " " + groups.astype(str)).to_numpy()
    found = rng.choice(own, size=len(test))
    for stratum in np.unique(strata[test]):
        there = own[strata[train] == stratum]
        inside = strata[test] == stratum
        if len(there):
            found[inside] = rng.choice(there, size=int(inside.sum()))
    return found


def key(record: Record) -> tuple[Any, ...]:
    return tuple(record[name] for name in KEY)


def merged(*parts: Sequence[Record]) -> list[Record]:
    """Return the records of all parts; of the same cell, the last."""
    return list({key(record): record for part in parts for record in part}.values())


def _cut(model: HorizontalClassifier, groups: pd.Series) -> Any:
    """Return the cut of the scores, or one for each row where groups have cuts of their own."""
    return 0.0 if model.cut_ is None else model.cut_.of_rows(groups.to_frame())


@cache
def _table(name: str, source: Path | None) -> Dataset:
    return load(name, source=source)
