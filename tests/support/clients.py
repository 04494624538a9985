"""Problems dealt to clients by rows, and the pooled view of what a horizontal run should have found.

Everything that serves as a reference here is written from the definitions and shares no code with the package.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from support.problems import Problem, Reference

from evenhand.constraints.kinds import Constraint
from evenhand.horizontal.problem import ClientRows
from evenhand.protocol.job import Job
from evenhand.training.horizontal import HorizontalRun
from evenhand_reproductions.in_memory import train_clients

Array = np.ndarray


def deal_rows(problem: Problem, parts: Sequence[Sequence[int]] | None = None) -> list[ClientRows]:
    """Clients c0, c1, ... with these rows each; one client with all of them by default."""
    parts = [range(len(problem.labels))] if parts is None else parts
    return [
        ClientRows(
            f"c{place}",
            problem.matrix[list(rows)],
            problem.labels[list(rows)],
            problem.sensitive.iloc[list(rows)].reset_index(drop=True),
        )
        for place, rows in enumerate(parts)
    ]


def unequal(problem: Problem, clients: int) -> list[list[int]]:
    """Rows in `clients` parts, each about twice as large as the one before."""
    shares = np.cumsum(2.0 ** np.arange(clients))
    ends = np.round(len(problem.labels) * shares / shares[-1]).astype(int)
    return [list(part) for part in np.split(np.arange(len(problem.labels)), ends[:-1])]


def train_rows(
    problem: Problem,
    constraint: Constraint | None = None,
    parts: Sequence[Sequence[int]] | None = None,
    *,
    runtime: dict[str, Any] | None = None,
    options: dict[str, Any] | None = None,
    **job: Any,
) -> HorizontalRun:
    """Train by `fedavg` (or the solver in `job`), full batches and one step unless told otherwise."""
    constraints = () if constraint is None else (constraint,)
    settings = {"batch_size": None, "clip": None, "step_decay_every": None, "local_epochs": 1, **(options or {})}
    full = Job(**{"solver": "fedavg", "constraints": constraints, "options": settings, **job})
    return train_clients(full, deal_rows(problem, parts), **(runtime or {}))


def as_reference(run: HorizontalRun) -> Array:
    """A logistic run's weights as `Reference` has them: columns, then the intercept."""
    return np.asarray(run.weights, dtype=np.float64)


def pooled(problem: Problem, rows: Sequence[Any] = ()) -> Reference:
    """The pooled problem without a regulariser."""
    return Reference(problem, rows, 0.0)
