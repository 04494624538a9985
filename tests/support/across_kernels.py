"""Small trainings of every solver, and their results as numbers: what may differ from processor to processor.

    python tests/support/across_kernels.py

prints them, so that a test can have them from a process with other kernels.
"""

from __future__ import annotations

import json
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from support.clients import deal_rows, unequal
from support.problems import deal, small

from evenhand.constraints import EqualOpportunity, LossParity
from evenhand.protocol.job import Job
from evenhand.solvers.registry import HORIZONTAL as ACROSS_ROWS
from evenhand.solvers.registry import VERTICAL as ACROSS_COLUMNS
from evenhand_reproductions.in_memory import train_clients, train_vertical

PROBLEM = small(seed=5, rows=403, columns=11)
"""Odd sizes: kernels differ in what they do with the rest that fills no vector."""
BLOCKS = [[0, 1, 2, 3], [4, 5], [6, 7, 8, 9, 10]]
ROUNDS = 10
OPTIONS: dict[str, dict[str, Any]] = {"fairvfl": {"step": "auto"}, "fedbcd": {"step": "auto"}}
SHORT: dict[str, Any] = {"local_epochs": 1, "step": 0.01}
"""Of averaging: differences grow with every step, and those of perceptrons without a bound."""


def weights_of_all() -> dict[str, dict[str, list[float]]]:
    """The final weights of each solver, by how far they may differ and by its name."""
    found: dict[str, dict[str, list[float]]] = {"double": {}, "inner": {}, "single": {}}
    for solver, declared in ACROSS_COLUMNS.items():
        for model in declared.models:
            if model == "mlp" and find_spec("torch") is None:
                continue
            constraints = (EqualOpportunity(0.02),) if declared.takes_constraints else ()
            job = Job(solver, constraints, model, max_rounds=ROUNDS, tol=0.0, options=OPTIONS.get(solver, {}))
            parties = deal(PROBLEM, BLOCKS)
            run = train_vertical(job, parties, PROBLEM.labels, PROBLEM.sensitive)
            # Trees have no weights: of them, what they score.
            parts = [
                run.models[party.name].predict(party.matrix) if model == "trees" else run.models[party.name].weights
                for party in parties
            ]
            weights = np.concatenate(parts)
            found["double"][f"{solver}, {model}"] = weights.tolist()
    for solver, across_rows in ACROSS_ROWS.items():
        if across_rows.fixed_rounds and find_spec("torch") is None:
            continue
        for model in ("linear", "mlp") if "mlp" in across_rows.models else ("linear",):
            constraints = (LossParity(0.02),) if across_rows.takes_constraints else ()
            options = SHORT if across_rows.fixed_rounds else {}
            job = Job(solver, constraints, model, max_rounds=ROUNDS, tol=0.0, options=options)
            weights = train_clients(job, deal_rows(PROBLEM, unequal(PROBLEM, 3))).weights
            precision = "single" if weights.dtype == np.float32 else "inner" if solver == "prox-al" else "double"
            found[precision][f"{solver}, {model}"] = weights.tolist()
    return found


if __name__ == "__main__":
    print(json.dumps(weights_of_all()))
