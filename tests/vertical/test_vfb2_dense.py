"""The paper's explicit dense step, against a loop written from the paper; and what stops AFSVRG-VP."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from support.problems import deal, pooled_weights, small

from evenhand.protocol.job import Job
from evenhand.training.vertical import VerticalRun
from evenhand.vertical.vfb2.plan import RowSampler
from evenhand_reproductions.in_memory import train_vertical

MU, STEP, ROUNDS = 0.05, 0.04, 3
PROBLEM = small(seed=5, rows=50, columns=5)
BLOCKS = [[3, 0], [1], [4, 2]]
BOTH = pytest.mark.parametrize("runtime", ["interleaved", "messages"])


def train(solver: str, runtime: Any, rounds: int = ROUNDS, **options: Any) -> VerticalRun:
    job = Job(solver, (), alpha=MU, max_rounds=rounds, tol=0.0, fit_intercept=False, seed=2, options=options)
    return train_vertical(job, deal(PROBLEM, BLOCKS, (0, 2)), PROBLEM.labels, runtime=runtime)


def by_the_paper(rule: str, slope: Any) -> np.ndarray:
    """w ← w − γ(v + λ∇g(w)), all columns at every row (VFB² Algorithms 2 and 3, one step after the other)."""
    x, y, n = PROBLEM.matrix, PROBLEM.labels, len(PROBLEM.labels)
    sampler = RowSampler(np.ones(n), "uniform", 2)

    def theta(w: np.ndarray) -> np.ndarray:
        return np.asarray(-y / (1.0 + np.exp(y * (x @ w))))

    w, table = np.zeros(5), np.zeros(n)
    for round_number in range(1, ROUNDS + 1):
        if rule == "svrg" or (rule == "saga" and round_number == 1):
            table = theta(w)
            mean = x.T @ table / n
        for i in sampler.order[sampler.places(round_number)]:
            new = theta(w)[i]
            direction = new * x[i] if rule == "sgd" else (new - table[i]) * x[i] + mean
            w = w - STEP * (direction + MU * slope(w))
            if rule == "saga":
                mean = mean + (new - table[i]) * x[i] / n
                table[i] = new
    return w


@BOTH
@pytest.mark.parametrize("rule", ["sgd", "svrg", "saga"])
@pytest.mark.parametrize(
    ("regulariser", "slope"), [("ridge", lambda w: w), ("bounded", lambda w: w / (1.0 + w**2) ** 2)]
)
def test_dense_steps_are_those_of_the_paper(rule: str, regulariser: str, slope: Any, runtime: str) -> None:
    options = {"update": "dense", "step": STEP, "batch_size": 1, "sampling": "uniform", "growth": False}
    delays = {"read_delay": 0, "message_delay": 0}
    made = train(f"vfb2-{rule}", runtime, **options, **delays, regulariser=regulariser)
    np.testing.assert_allclose(pooled_weights(made, BLOCKS)[:5], by_the_paper(rule, slope), rtol=1e-9)


def test_dense_and_sparse_steps_have_one_fixed_point() -> None:
    ends = [
        pooled_weights(train("vfb2-svrg", "interleaved", 300, update=update), BLOCKS) for update in ("sparse", "dense")
    ]
    np.testing.assert_allclose(ends[0], ends[1], atol=1e-9)


@BOTH
def test_blocks_that_never_move_do_not_keep_a_run_from_stopping(runtime: Any) -> None:
    job = Job("afsvrg-vp", (), alpha=MU, max_rounds=400, tol=1e-6, options={"batch_size": 2})
    made = train_vertical(job, deal(PROBLEM, BLOCKS, (0, 2)), PROBLEM.labels, runtime=runtime)
    assert made.certificate.converged
    assert made.certificate.rounds < 400
    assert made.certificate.stationarity > 1e-3, "the certificate is about the whole model"
