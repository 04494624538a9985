"""Compare rounds to the constrained optimum: `subspace` and FairVFL as published, in one run.

Six parties as in the papers, ε = 0.01. "There" means: objective within 0.2 % of the optimum that scipy's SLSQP finds on
the pooled rows (an independent solver, given loss and constraint as plain functions), and the worst gap between groups
within 0.001 of ε. FairVFL runs at its published constants (η = 100, β = 0.1, c = 0.001) with Q = 7 local steps, for at
most a hundred times the rounds subspace took.

    python benchmarks/subspace_rounds.py [--source FOLDER]
"""

from __future__ import annotations

import numpy as np
import pandas as pd
from problems import Problem, arguments, problem
from rich.console import Console
from rich.filesize import decimal
from rich.table import Table
from scipy.optimize import minimize
from scipy.special import expit

from evenhand.constraints.kinds import Constraint, EqualizedOdds, EqualOpportunity
from evenhand.protocol.job import Job
from evenhand.training.vertical import VerticalRun
from evenhand_reproductions.in_memory import train_vertical

CASES: list[tuple[str, Constraint]] = [
    ("adult", EqualOpportunity(0.01)),
    ("adult", EqualizedOdds(0.01)),
    ("compas", EqualOpportunity(0.01)),
    ("compas", EqualizedOdds(0.01)),
    ("communities-crime", EqualOpportunity(0.01)),
    ("communities-crime", EqualizedOdds(0.01)),
]


def optimum(given: Problem, constraint: Constraint) -> float:
    """The constrained optimum by SLSQP, written out anew: no code of the solvers under test."""
    matrix = np.asarray(given.matrix.toarray() if hasattr(given.matrix, "toarray") else given.matrix)
    matrix = np.hstack([matrix, np.ones((len(matrix), 1))])
    y, n = given.labels, len(given.labels)
    mu = np.r_[np.full(matrix.shape[1] - 1, 2.0 / n), 0.0]
    groups = given.sensitive.iloc[:, 0].to_numpy()
    names = np.unique(groups)
    signs = [1.0] if isinstance(constraint, EqualOpportunity) else [1.0, -1.0]
    gaps = []
    for sign in signs:
        first, second = ((groups == name) & (y == sign) for name in names)
        gaps.append(first / first.sum() - second / second.sum())
    rows = np.array(gaps)

    def parts(w: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        margin = y * (matrix @ w)
        return np.logaddexp(0.0, -margin), -y * expit(-margin)

    def objective(w: np.ndarray) -> tuple[float, np.ndarray]:
        loss, slope = parts(w)
        return loss.mean() + 0.5 * mu @ w**2, matrix.T @ slope / n + mu * w

    def room(w: np.ndarray) -> np.ndarray:
        values = rows @ parts(w)[0]
        return np.r_[0.01 - values, 0.01 + values]

    def room_slope(w: np.ndarray) -> np.ndarray:
        slope = (rows * parts(w)[1]) @ matrix
        return np.vstack([-slope, slope])

    bounds = {"type": "ineq", "fun": room, "jac": room_slope}
    settings = {"maxiter": 2000, "ftol": 1e-12}
    found = minimize(
        objective, np.zeros(matrix.shape[1]), jac=True, constraints=[bounds], method="SLSQP", options=settings
    )
    if not found.success or room(found.x).min() < -1e-7:
        raise SystemExit(f"the reference solver failed: {found.message}")
    return float(found.fun)


def with_gap(history: pd.DataFrame) -> pd.DataFrame:
    """The history with the worst gap between groups in a column of its own."""
    return history.assign(gap=history.filter(like="value[").abs().max(axis=1))


def arrival(history: pd.DataFrame, best: float) -> pd.Series | None:
    there = history[(history["objective"] <= 1.002 * best) & ((history["gap"] - 0.01).abs() <= 1e-3)]
    return None if there.empty else there.iloc[0]


def main() -> None:
    source = arguments(__doc__).source
    table = Table(
        "data", "constraint", "optimum", "method", "rounds", "bytes", "objective / optimum", "worst gap", "ratio"
    )
    for name, constraint in CASES:
        given = problem(name, source)
        best = optimum(given, constraint)

        def run(job: Job, given: Problem = given) -> VerticalRun:
            return train_vertical(job, given.parties, given.labels, given.sensitive)

        ours = with_gap(run(Job(solver="subspace", constraints=(constraint,), tol=1e-6, max_rounds=40)).history)
        there = arrival(ours, best)
        rounds = 40 if there is None else int(there["round"])
        published = Job(
            solver="fairvfl",
            constraints=(constraint,),
            tol=0.0,
            max_rounds=100 * rounds,
            options={"step": 0.01, "local_steps": 7},
        )
        theirs = with_gap(run(published).history)
        reached = arrival(theirs, best)
        for method, history, point in (("subspace", ours, there), ("fairvfl, Q=7", theirs, reached)):
            row = history.iloc[-1] if point is None else point
            mark = "" if point is not None else "not in "
            times = "" if method == "subspace" else f"{'> ' if point is None else ''}{row['round'] / rounds:.0f}"
            kind = constraint.kind if method == "subspace" else ""
            cells = (f"{mark}{row['round']:.0f}", decimal(int(row["bytes"])), f"{row['objective'] / best:.4f}")
            shown = (name, kind, f"{best:.5f}") if method == "subspace" else ("", "", "")
            table.add_row(*shown, method, *cells, f"{row['gap']:.5f}", times)
    console = Console(width=130)
    console.print(table)
    console.print("wanted: subspace on Adult in at most 8 rounds, ratio at least 100; COMPAS and Crime in at most 15")


if __name__ == "__main__":
    main()
