"""VFB² under constraints that turn sample weights negative: ρ finds itself, and no end is worse than the start."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from support.sources import FOLDER

from evenhand import VerticalClassifier
from evenhand.constraints import EqualOpportunity, LossParity
from evenhand.data import PartyEncoder, load
from evenhand.protocol.job import Job
from evenhand.training.vertical import VerticalRun
from evenhand.vertical.problem import PartyColumns
from evenhand.vertical.vfb2.epochs import FIRST, Penalties
from evenhand.vertical.vfb2.options import VFB2
from evenhand_reproductions.in_memory import train_vertical

ROWS = 200
RNG = np.random.default_rng(1)
X = RNG.standard_normal((ROWS, 6))
GROUPS = pd.DataFrame({"group": np.where(np.arange(ROWS) % 4 == 0, "hard", "easy")})
SHARP = np.where(GROUPS["group"] == "easy", 4.0, 0.3)
Y = np.where(SHARP * (X @ RNG.standard_normal(6)) + RNG.logistic(size=ROWS) > 0, 1.0, -1.0)
PARTIES = [PartyColumns(f"p{place}", X[:, part], place == 0) for place, part in enumerate(np.split(np.arange(6), 3))]


def train(runtime: Any, rounds: int, **options: Any) -> VerticalRun:
    constraints = (LossParity(0.01),)
    job = Job(solver="vfb2-svrg", constraints=constraints, alpha=0.01, max_rounds=rounds, options=options)
    return train_vertical(job, PARTIES, Y, GROUPS, runtime=runtime)


@pytest.mark.skipif(FOLDER is None, reason="no local copy of Communities and Crime")
@pytest.mark.parametrize("seed", range(3))
def test_communities_and_crime_does_not_diverge(seed: int) -> None:
    """Without a penalty the objective ends at 4.7 and the violation at 7.2 (seed 1, 300 rounds)."""
    data = load("communities-crime", source=FOLDER)
    tables = [data.frame[list(part)] for part in np.array_split(data.frame.columns, 3)]
    labels, constraint = np.asarray(data.label) == data.positive, EqualOpportunity(0.01)
    best = (
        VerticalClassifier(constraint=constraint, encoder=PartyEncoder(numbers="standard"), tol=1e-5)
        .fit(tables, labels, sensitive_features=data.sensitive)
        .certificate_
    )
    model = VerticalClassifier(solver="vfb2-svrg", constraint=constraint, random_state=seed, max_rounds=200)
    found = model.fit(tables, labels, sensitive_features=data.sensitive).certificate_
    assert found.objective == pytest.approx(best.objective, abs=0.01)
    assert found.violation < 5e-3


@pytest.mark.parametrize("runtime", ["auto", "messages"])
def test_a_run_that_goes_wrong_returns_to_the_best_point_it_has_seen_the_start_among_them(runtime: str) -> None:
    # No penalty, and multipliers that move as far as they may.
    run = train(runtime, 5, penalty=0.0, dual_step=1e6, batch_size=4)
    worth = run.history["objective"] + run.history["violation"]
    assert worth.iloc[-1] > worth.iloc[0], "else there is nothing to go back from"
    found = run.certificate
    assert not found.converged
    assert found.objective + found.violation <= worth.iloc[0]
    # Certificate and multipliers are those of the returned model.
    scores = np.sum([run.models[party.name].predict(party.matrix) for party in PARTIES], axis=0)
    losses = np.logaddexp(0.0, -Y * scores)
    weights = np.concatenate([model.weights[:2] for model in run.models.values()])
    assert losses.mean() + 0.005 * weights @ weights == pytest.approx(found.objective, rel=1e-9)
    gap = abs(losses[GROUPS["group"] == "easy"].mean() - losses[GROUPS["group"] == "hard"].mean())
    assert max(gap - 0.01, 0.0) == pytest.approx(found.violation, abs=1e-9)


def test_the_penalty_begins_where_weights_turn_and_is_halved_where_it_overshoots() -> None:
    """One row over two cells of 50 rows each, 100 in all: a multiplier above 1/2 turns the second cell's weight."""
    weights = np.array([[0.02, -0.02]])
    penalties = Penalties(VFB2(), weights, n_rows=100, tol=1e-4)
    scales = np.full((2, 1), 0.5)
    none, much = np.array([[0.4], [0.0]]), np.array([[0.6], [0.0]])
    excess = np.array([[0.1], [-0.3]])
    assert penalties.push(none, scales, excess).tolist() == none.tolist()
    assert penalties.push(much, scales, excess)[0, 0] == pytest.approx(0.6 + FIRST * 0.5 * 0.1)
    swung = np.array([[-0.09], [-0.11]])
    assert penalties.push(much, scales, swung)[0, 0] == pytest.approx(0.6 - FIRST / 2 * 0.5 * 0.09)
    assert penalties.values.tolist() == [[FIRST / 2], [FIRST]]
    huge = np.array([[1e9], [-1e9]])
    assert penalties.push(much, scales, huge)[0, 0] == pytest.approx(0.6 + 0.5), "no push without end"


def test_a_penalty_that_is_given_is_left_alone() -> None:
    penalties = Penalties(VFB2(penalty=5.0), np.array([[0.02, -0.02]]), n_rows=100, tol=1e-4)
    for size in (1.0, -1.0, 1.0):
        penalties.push(np.ones((2, 1)), np.ones((2, 1)), np.array([[size], [-size]]))
    assert penalties.values.tolist() == [[5.0], [5.0]]
