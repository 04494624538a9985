"""Compare `subspace` with scikit-learn's lbfgs on a table that fills the memory: a million dense rows, 100 columns.

Made-up data (`subspace_growth.py` has the like), the same regulariser; each learner in a process of its own, in turn,
one numerical thread. Ours has no constraint, or equal opportunity with --fair; lbfgs has none. Seconds are of the
processor, for training alone; memory is the most that the process had resident, its table included. Everybody stops by
default settings; how far above the best of all each ended is in the last column. Ours runs with nothing protected, as
lbfgs does, and once more with the masks that are its default between organisations.

    python benchmarks/subspace_large.py [--rows 1000000] [--columns 100] [--parties 6] [--repeats 3] [--fair]
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any, Literal

import numpy as np

ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
ALPHA = 1e-4
Answer = dict[str, Any]


def table(rows: int, columns: int, order: Literal["C", "F"]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Columns in the order that a learner wants them in, labels ±1, a group; made so that little else is resident."""
    rng = np.random.default_rng(0)
    group = rng.random(rows) < 0.4
    matrix = np.empty((rows, columns), order=order)
    signal = np.zeros(rows)
    shared = rng.standard_normal((rows, 5))
    for place in range(columns):
        column = rng.standard_normal(rows)
        column += shared @ (0.5 * rng.standard_normal(5))
        if place % 4 == 0:
            column += 0.5 * group
        signal += column * (rng.standard_normal() / np.sqrt(columns))
        matrix[:, place] = column
    return matrix, np.where(signal + rng.logistic(size=rows) > 0.5, 1.0, -1.0), group


def objective(matrix: np.ndarray, labels: np.ndarray, weights: np.ndarray, intercept: float) -> float:
    margins = labels * (matrix @ weights + intercept)
    return float(np.logaddexp(0.0, -margins).mean() + 0.5 * ALPHA * weights @ weights)


def ours(asked: argparse.Namespace) -> Answer:
    import pandas as pd

    from evenhand.constraints.kinds import EqualOpportunity
    from evenhand.protocol.job import Job
    from evenhand.vertical.problem import PartyColumns
    from evenhand_reproductions.in_memory import train_vertical

    matrix, labels, group = table(asked.rows, asked.columns, "F")
    parts = np.array_split(np.arange(asked.columns), asked.parties)
    parties = [PartyColumns(f"party{k}", matrix[:, part[0] : part[-1] + 1], k == 0) for k, part in enumerate(parts)]
    job = Job(
        solver="subspace",
        constraints=(EqualOpportunity(0.01),) if asked.fair else (),
        alpha=ALPHA,
        protection=PROTECTION[asked.learner],
    )
    groups = pd.DataFrame({"group": group}) if asked.fair else None
    run, seconds = timed(lambda: train_vertical(job, parties, labels, groups))
    assert run.certificate.converged
    return {"seconds": seconds, "rounds": run.certificate.rounds, "objective": run.certificate.objective}


def lbfgs(asked: argparse.Namespace) -> Answer:
    from sklearn.linear_model import LogisticRegression

    matrix, labels, _ = table(asked.rows, asked.columns, "C")
    model = LogisticRegression(C=1.0 / (ALPHA * asked.rows), max_iter=1000)
    _, seconds = timed(lambda: model.fit(matrix, labels))
    reached = objective(matrix, labels, model.coef_[0], float(model.intercept_[0]))
    return {"seconds": seconds, "rounds": int(model.n_iter_[0]), "objective": reached}


def timed(action: Callable[[], Any]) -> tuple[Any, float]:
    start = time.process_time()
    return action(), time.process_time() - start


PLAIN, MASKED, LBFGS = "subspace", "subspace, masked", "lbfgs"
PROTECTION: dict[str, Literal["none", "masked"]] = {PLAIN: "none", MASKED: "masked"}
LEARNERS: dict[str, Callable[[argparse.Namespace], Answer]] = {PLAIN: ours, MASKED: ours, LBFGS: lbfgs}
ASKED = {"seconds": 1.0, "megabytes": 1.2}
"""Of ours, unprotected, over lbfgs's."""


def apart(learner: str) -> Answer:
    """A learner's answer, from a process of its own."""
    command = [sys.executable, *sys.argv, "--learner", learner]
    done = subprocess.run(command, env=os.environ | ONE_THREAD, stdout=subprocess.PIPE, check=True, text=True)
    answer: Answer = json.loads(done.stdout)
    return answer


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--columns", type=int, default=100)
    parser.add_argument("--parties", type=int, default=6)
    parser.add_argument("--repeats", type=int, default=3, help="turns of each; the least of each figure counts")
    parser.add_argument("--fair", action="store_true", help="equal opportunity within 0.01 for ours")
    parser.add_argument("--learner", choices=list(LEARNERS), help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.learner:
        answer = LEARNERS[asked.learner](asked)
        answer["megabytes"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        print(json.dumps(answer))
        return
    turns = [{learner: apart(learner) for learner in LEARNERS} for _ in range(asked.repeats)]
    print(f"{asked.rows:,} rows, {asked.columns} columns ({asked.rows * asked.columns * 8 / 2**20:,.0f} MB)")
    best = min(answer["objective"] for turn in turns for answer in turn.values())
    least = {
        learner: {figure: min(turn[learner][figure] for turn in turns) for figure in turns[0][learner]}
        for learner in LEARNERS
    }
    for learner, figures in least.items():
        print(
            f"{learner:<16} {figures['seconds']:7.2f} s {figures['megabytes']:8,.0f} MB {figures['rounds']:4d} rounds"
            f"   {(figures['objective'] - best) / best:.1e} above the best"
        )
    for learner in (PLAIN, MASKED):
        for figure, most in ASKED.items():
            ratio = least[learner][figure] / least[LBFGS][figure]
            asked_for = f"  (asked: at most {most})" if learner == PLAIN else ""
            print(f"{learner:<16} {ratio:5.2f} times the {figure} of lbfgs{asked_for}")


if __name__ == "__main__":
    main()
