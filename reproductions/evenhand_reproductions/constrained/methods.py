"""The methods of the proximal-AL paper and ours on one problem, with what they found and the CPU they took."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, Final

import numpy as np
from threadpoolctl import threadpool_limits

from evenhand_reproductions.central.prox_al import prox_al as pooled_prox_al
from evenhand_reproductions.constrained.problems import ConstrainedProblem, quadratic_problem
from evenhand_reproductions.programs.pooled import Pooled
from evenhand_reproductions.programs.solving import Solution, prox_al, sqp
from evenhand_reproductions.settings import Record

TOLERANCE: Final = 1e-3
"""ε₁ and ε₂ everywhere."""
PUBLISHED, BALANCED = "prox-al, fixed ρ", "prox-al, adaptive ρ"
BY_SQP, POOLED = "sqp", "cProx-AL (pooled)"
ROUNDS: Final = {
    "breast-cancer-wisc": 20_000,
    "monks-1": 40_000,
    "adult-a": 20_000,
    "adult-b": 5_000,
    "quadratic": 5_000,
}
"""Most rounds of the federated proximal AL method; a run that meets this is shown as not optimal."""


def _published(problem: ConstrainedProblem, rounds: int) -> Solution:
    return _prox_al(problem, rounds, "fixed")


def _balanced(problem: ConstrainedProblem, rounds: int) -> Solution:
    return _prox_al(problem, rounds, "balanced")


def _prox_al(problem: ConstrainedProblem, rounds: int, rule: str) -> Solution:
    parts = problem.federated
    settings: dict[str, Any] = {"rho": problem.rho, "rho_rule": rule, "max_rounds": rounds, "max_inner": rounds}
    return prox_al(parts.clients, parts.server, start=problem.start, **settings, **problem.options, **problem.local)


def _sqp(problem: ConstrainedProblem, rounds: int) -> Solution:
    parts = problem.federated
    return sqp(parts.clients, parts.server, start=problem.start, stationarity=TOLERANCE, feasibility=TOLERANCE)


def _pooled(problem: ConstrainedProblem, rounds: int) -> Solution:
    parts = problem.federated
    return pooled_prox_al(Pooled(parts.clients, parts.server), start=problem.start, **problem.options)


METHODS: Final[Mapping[str, Callable[[ConstrainedProblem, int], Solution]]] = {
    PUBLISHED: _published,
    BALANCED: _balanced,
    BY_SQP: _sqp,
    POOLED: _pooled,
}


def constants(name: str, **limits: float) -> Record:
    """What runs on a set hang on; β, s̄ and ρ belong to the problem."""
    return {"tolerance": TOLERANCE, "most rounds": ROUNDS[name], **limits}


def timed(method: str, problem: ConstrainedProblem, rounds: int) -> tuple[Solution, float]:
    """A solution and its seconds of CPU, on one thread."""
    _warm_up()
    with threadpool_limits(1):
        start = time.process_time()
        found = METHODS[method](problem, rounds)
        return found, time.process_time() - start


@cache
def _warm_up() -> None:
    """What a process does once, such as loading the solver of quadratic programs, is nobody's to account for."""
    for method in METHODS.values():
        method(quadratic_problem(2, 4, 1, 0, 0), 1000)


def measured(method: str, problem: ConstrainedProblem, rounds: int) -> Record:
    """One run: objective, what the limits are on, the true residual, and what it took."""
    found, seconds = timed(method, problem, rounds)
    at_server = problem.server_row(found.weights)
    values = np.append(problem.local_rows(found.weights), [] if at_server is None else at_server)
    residual = found.residual
    return {
        "set": problem.name,
        "seed": problem.seed,
        "clients": problem.count,
        "method": method,
        "objective": residual.objective,
        "mean row": float(values.mean()),
        "max row": float(values.max()),
        "stationarity": residual.stationarity,
        "distance": residual.distance,
        "violation": residual.violation,
        "optimal": residual.within(TOLERANCE, TOLERANCE),
        "status": found.status.value,
        "outer": found.outer,
        "rounds": found.rounds,
        "cpu": seconds,
    }
