"""The sets of VFB²'s experiments for one random draw, and a run of one of its solvers on them."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import numpy as np
import pandas as pd
import scipy.sparse as sp

from evenhand.arrays import Array, Booleans, Integers, Matrix
from evenhand.data import PartyEncoder, load
from evenhand.protocol.job import Job, RuntimeName
from evenhand.runtime.inprocess import VirtualClock
from evenhand.training.vertical import VerticalRun
from evenhand.vertical.problem import PartyColumns
from evenhand_reproductions.data.sparse_sets import load_sparse
from evenhand_reproductions.data.splits import split_columns
from evenhand_reproductions.in_memory import train_vertical

RIDGE: Final = 1e-4
"""λ of all experiments."""
REGULARISERS: Final = {"13": "ridge", "14": "bounded"}
"""The paper's two problems by the number of their equation."""
SHARES: Final = {"credit-default": 0.8, "give-me-some-credit": 0.8, "20newsgroups": 0.9}
"""Share of the rows to train on, drawn at random; a9a comes with test rows of its own."""
TABLES: Final = ("credit-default", "give-me-some-credit")


@dataclass(frozen=True, eq=False)
class Source:
    """A set as it was read: a table to encode, or a sparse matrix; labels ±1; its own test rows, if it has any."""

    name: str
    features: pd.DataFrame | Matrix
    signs: Array
    test: Booleans | None

    def draw(self, seed: int) -> VFB2Problem:
        """Training and test rows of one run. What is learned about columns is learned from training rows."""
        train, test = self._rows(seed)
        if isinstance(self.features, pd.DataFrame):
            encoder = PartyEncoder().fit(self.features.iloc[train])
            parts = [encoder.transform(self.features.iloc[rows]) for rows in (train, test)]
        else:
            parts = [self.features[train], self.features[test]]
        return VFB2Problem(self.name, seed, parts[0], parts[1], self.signs[train], self.signs[test])

    def _rows(self, seed: int) -> tuple[Integers, Integers]:
        if self.test is not None:
            return np.flatnonzero(~self.test), np.flatnonzero(self.test)
        count = len(self.signs)
        order = np.random.default_rng(seed).permutation(count)
        cut = round(SHARES[self.name] * count)
        return np.sort(order[:cut]), np.sort(order[cut:])


@dataclass(frozen=True, eq=False)
class VFB2Problem:
    """One draw: encoded columns and labels (±1) of training and test rows."""

    name: str
    seed: int
    train: Matrix
    test: Matrix
    labels: Array
    test_labels: Array

    def parties(self, count: int, active: int) -> list[PartyColumns]:
        """The columns dealt out at random in nearly equal numbers; the first `active` parties hold labels."""
        shares = split_columns(self.train.shape[1], count, self.seed)
        return [
            PartyColumns(f"party {place + 1}", self.train[:, share], place < active)
            for place, share in enumerate(shares)
        ]

    def from_zero_to_one(self) -> VFB2Problem:
        """The same rows with every column scaled to [0, 1] by the training rows, instead of about its mean."""
        train, test = (np.asarray(part.todense() if sp.issparse(part) else part) for part in (self.train, self.test))
        low = train.min(axis=0)
        span = train.max(axis=0) - low
        parts = [sp.csr_array((part - low) / np.where(span > 0, span, 1.0)) for part in (train, test)]
        return replace(self, train=parts[0], test=parts[1])

    def test_scores(self, run: VerticalRun) -> Array:
        shares = split_columns(self.train.shape[1], len(run.models), self.seed)
        parts = [self.test[:, share] @ model.weights for share, model in zip(shares, run.models.values(), strict=True)]
        return np.asarray(sum(parts))

    def accuracy(self, run: VerticalRun) -> float:
        return float((np.where(self.test_scores(run) > 0, 1.0, -1.0) == self.test_labels).mean())

    @cached_property
    def loss_at_start(self) -> float:
        """f(0), of both problems."""
        return float(np.log(2.0))


def read(name: str, source: Path | None = None) -> Source:
    """A set by name. Rows of 20 Newsgroups are scaled to length 1, as those of LIBSVM's news20 are."""
    if name in TABLES:
        table = load(name, source=source)
        return Source(name, table.frame, _signs(table.label, table.positive), None)
    made = load_sparse(name, source=source)
    if name in SHARES:
        lengths = np.sqrt(np.asarray(made.matrix.multiply(made.matrix).sum(axis=1)).ravel())
        inverse = 1.0 / np.where(lengths > 0, lengths, 1.0)
        return Source(
            name, sp.csr_array(sp.diags_array(inverse) @ made.matrix), _signs(made.label, made.positive), None
        )
    return Source(name, made.matrix, _signs(made.label, made.positive), made.test)


def _signs(label: pd.Series, positive: Any) -> Array:
    return np.where(label == positive, 1.0, -1.0)


PAPERS_STEP: Final = {"update": "dense", "sampling": "uniform", "batch_size": 1, "growth": False}
"""The paper's own rule: explicit steps in every column (VFB² Algorithm 3, steps 3-4), rows drawn uniformly (VFB²
Algorithm 2, step 2), one row a step, whole epochs."""
OUR_STEP: Final = (
    "The rule is ours, not the paper's: a step moves only the columns in which a row has entries, takes the "
    "regulariser implicitly, and draws rows about as often as their norms require. `vfb2-step` compares it with the "
    "paper's explicit step, rows drawn uniformly, one row a step."
)
SHORT_EPOCHS: Final = "The first epochs of SVRG and SAGA are short: 1/32 of the rows, then twice as many each time."


def solve(
    solver: str,
    parties: Sequence[PartyColumns],
    labels: Array,
    *,
    equation: str,
    rounds: int,
    seed: int,
    tol: float = 0.0,
    runtime: RuntimeName = "auto",
    clock: VirtualClock | None = None,
    options: Mapping[str, Any] | None = None,
) -> tuple[VerticalRun, float]:
    """A run of the paper's problem 13 or 14, which have no intercept, and the seconds it took."""
    job = Job(
        solver=solver,
        alpha=RIDGE,
        tol=tol,
        max_rounds=rounds,
        seed=seed,
        fit_intercept=False,
        options={"regulariser": REGULARISERS[equation], **(options or {})},
    )
    start = time.perf_counter()
    run = train_vertical(job, parties, labels, runtime=runtime, clock=clock)
    return run, time.perf_counter() - start
