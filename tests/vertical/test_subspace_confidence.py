"""`confidence` across columns: what is trained, what is proven, and that it is said when it is not."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from support.problems import deal, small

from evenhand import DemographicParity, EqualOpportunity, VerticalClassifier
from evenhand.constraints import Constraint
from evenhand.data import PartyEncoder
from evenhand.errors import InputError, UnprovenWarning
from evenhand.metrics import constraint_gaps
from evenhand.protocol.job import Job
from evenhand.runtime.folder import RunFolder
from evenhand_reproductions.in_memory import train_vertical


def people(rows: int, seed: int) -> tuple[list[np.ndarray], np.ndarray, pd.Series]:
    rng = np.random.default_rng(seed)
    group = rng.integers(2, size=rows)
    hidden = rng.normal(size=rows) + 0.6 * group
    columns = [
        np.column_stack([hidden + rng.normal(size=rows), rng.normal(size=rows)]),
        group[:, None] + 0.3 * hidden[:, None],
    ]
    return columns, hidden + 0.7 * rng.logistic(size=rows) > 0.3, pd.Series(np.array(["f", "m"])[group], name="sex")


def fitted(constraint: Constraint, rows: int = 3000, seed: int = 0, **settings: Any) -> VerticalClassifier:
    columns, labels, groups = people(rows, seed)
    # The effects are straight lines, and few rows prove less of a model with more features.
    model = VerticalClassifier(constraint=constraint, encoder=PartyEncoder(numbers="standard"), **settings)
    return model.fit(columns, labels, sensitive_features=groups)


@pytest.mark.parametrize(
    "constraint", [DemographicParity(0.08, confidence=0.95), EqualOpportunity(0.12, confidence=0.95)], ids=str
)
def test_the_bound_is_within_what_was_asked_for(constraint: Any) -> None:
    model = fitted(constraint)
    (proof,) = model.proofs_
    assert proof.holds
    # Not by far: there is a price to it.
    assert 0.9 * proof.asked <= proof.bound <= proof.asked
    columns, labels, groups = people(3000, 0)
    said = constraint_gaps(constraint, labels, model.decision_function(columns), sensitive_features=groups).iloc[0]
    # Rows left out one by one can only add to what the training rows say.
    assert said.bound <= proof.bound + 1e-9
    assert model.certificate_.converged
    plain = fitted(type(constraint)(constraint.epsilon))
    assert plain.proofs_ == []
    assert plain.certificate_.objective < model.certificate_.objective


def test_new_people_are_within_the_bound() -> None:
    columns, labels, groups = people(30_000, 99)
    held = {0.95: 0, None: 0}
    for confidence in held:
        constraint = DemographicParity(0.06, confidence=confidence)
        for seed in range(6):
            scores = fitted(constraint, rows=1500, seed=seed).decision_function(columns)
            held[confidence] += (
                constraint_gaps(constraint, labels, scores, sensitive_features=groups).estimate.iloc[0] <= 0.06
            )
    assert held[0.95] >= 5
    assert held[None] <= 3


def test_what_these_rows_cannot_prove_is_said_with_what_they_can() -> None:
    with pytest.warns(UnprovenWarning, match=r"selection rate, f vs. m.*a bound of 0\.\d+, but 0\.01 was requested"):
        model = fitted(DemographicParity(0.01, confidence=0.95), rows=600)
    (proof,) = model.proofs_
    assert not proof.holds
    assert 0.01 < proof.bound < 0.2


def test_other_solvers_refuse_it() -> None:
    with pytest.raises(InputError, match="'fairvfl' does not support confidence; choose 'subspace'"):
        fitted(EqualOpportunity(0.1, confidence=0.9), solver="fairvfl")


def test_a_run_that_was_interrupted_proves_the_same(tmp_path: Path) -> None:
    problem = small(seed=4, rows=300)
    job = Job(constraints=(DemographicParity(0.25, confidence=0.9),), max_rounds=12, tol=1e-9)
    parties = deal(problem, [[0, 1], [2, 3]])

    class Killed(Exception):
        pass

    def kill(report: Any) -> None:
        if report["round"] == 4:
            raise Killed

    def run(**settings: Any) -> Any:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return train_vertical(job, parties, problem.labels, problem.sensitive, **settings)

    whole = run()
    folder = RunFolder.create(tmp_path / "run", {})
    with pytest.raises(Killed):
        run(folder=folder, checkpoint_seconds=0.0, on_round=kill)
    again = run(folder=folder, checkpoint_seconds=0.0)
    assert again.proofs == whole.proofs
    assert again.certificate == whole.certificate
