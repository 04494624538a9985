"""`confidence` across clients: what is trained, what is proven, and rows left out by messages."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from horizontal_contract import CLOCK, Case, assert_ends_like
from support.clients import deal_rows
from support.contracts import Reborn
from support.problems import small

from evenhand import HorizontalClassifier
from evenhand.constraints import Constraint, DemographicParity, EqualizedOdds, EqualOpportunity
from evenhand.constraints.binding import bind_inequalities
from evenhand.constraints.evaluation import Lagrangian
from evenhand.constraints.leave_one_out import measured
from evenhand.errors import InputError, UnprovenWarning
from evenhand.horizontal.sqp.server import SQPServer
from evenhand.metrics import constraint_gaps
from evenhand.protocol.job import Job


def people(rows: int, seed: int) -> tuple[np.ndarray, np.ndarray, pd.DataFrame]:
    rng = np.random.default_rng(seed)
    group = rng.integers(2, size=rows)
    hidden = rng.normal(size=rows) + 0.6 * group
    columns = np.column_stack([hidden + rng.normal(size=rows), rng.normal(size=rows), group + 0.3 * hidden])
    return columns, hidden + 0.7 * rng.logistic(size=rows) > 0.3, pd.DataFrame({"sex": np.array(["f", "m"])[group]})


def fitted(constraint: Constraint, rows: int = 3000, seed: int = 0, **settings: Any) -> HorizontalClassifier:
    columns, labels, groups = people(rows, seed)
    model = HorizontalClassifier(**{"solver": "sqp", **settings}, constraint=constraint)
    return model.fit(columns, labels, sensitive_features=groups, clients=np.arange(rows) % 3)


@pytest.mark.parametrize(
    "constraint",
    [
        DemographicParity(0.08, confidence=0.95),
        EqualOpportunity(0.12, confidence=0.95),
        EqualizedOdds(0.12, "error", confidence=0.95),
    ],
    ids=str,
)
def test_the_bound_is_within_what_was_asked_for(constraint: Any) -> None:
    model = fitted(constraint)
    (proof,) = model.proofs_
    assert 0.85 * proof.asked <= proof.bound <= proof.asked
    columns, labels, groups = people(3000, 0)
    said = constraint_gaps(constraint, labels, model.decision_function(columns), sensitive_features=groups).iloc[0]
    assert said.bound <= proof.bound + 1e-9
    assert model.certificate_.converged
    plain = fitted(type(constraint)(constraint.epsilon, constraint.measure))
    assert plain.proofs_ == []
    assert plain.certificate_.objective < model.certificate_.objective


def test_what_these_rows_cannot_prove_is_said_with_what_they_can() -> None:
    with pytest.warns(UnprovenWarning, match=r"selection rate, f vs. m.*a bound of 0\.\d+, but 0\.01 was requested"):
        model = fitted(DemographicParity(0.01, confidence=0.95), rows=600)
    (proof,) = model.proofs_
    assert 0.01 < proof.bound < 0.2
    assert model.certificate_.rounds < 40


@pytest.mark.filterwarnings("ignore::evenhand.errors.UnprovenWarning")
def test_rows_left_out_by_clients_are_those_of_the_pooled_rows() -> None:
    """Each client leaves out its own rows; together it is what one holder of all rows would find."""
    problem = small(seed=3, rows=240)
    parts = [list(range(0, 50)), list(range(50, 90)), list(range(90, 240))]
    job = Job("sqp", (EqualOpportunity(0.3, confidence=0.9),), alpha=0.02, tol=1e-8)
    case = Case("sqp")
    run = case.train(job, deal_rows(problem, parts))
    terms, weights = run.terms, np.asarray(run.weights)
    bound = bind_inequalities(terms.inequalities, terms.groups, problem.labels, problem.sensitive)
    design = np.column_stack([problem.matrix, np.ones(240)])
    penalty = 0.02 * np.diag([1.0] * 4 + [0.0])
    lagrangian = Lagrangian(problem.labels, bound)
    values, errors, left_out = measured(lagrangian, design @ weights, run.multipliers, design, penalty)
    optimism = abs(left_out[0]) - abs(values[0])
    expected = abs(values[0]) + bound.rows[0].reach * errors[0] + optimism
    assert optimism > 0.0
    assert run.multipliers.max() > 0.0
    assert run.proofs[0].bound == pytest.approx(expected, abs=1e-5)


@pytest.mark.filterwarnings("ignore")
def test_runs_go_on_from_any_message(tmp_path: Path) -> None:
    case = Case("sqp", "both")
    job = case.job(constraints=(DemographicParity(0.6, confidence=0.8),), max_rounds=9)
    whole = case.train(job)
    reborn = Reborn(case.maker(job), CLOCK, tmp_path)
    reborn.run()
    server = reborn.mailboxes["server"].role
    assert_ends_like(server, whole)
    assert isinstance(server, SQPServer)
    assert server.proofs() == whole.proofs
    assert whole.proofs


@pytest.mark.filterwarnings("ignore")
def test_the_servers_rows_are_left_out_too() -> None:
    columns, labels, groups = people(900, 1)
    model = HorizontalClassifier(solver="sqp", constraint=DemographicParity(0.15, confidence=0.9))
    model.fit(columns, labels, sensitive_features=groups, clients=np.arange(900) % 3, server_rows=people(800, 5))
    assert model.proofs_[0].holds
    assert "sqp left out" in {entry.kind for entry in model.run_.transcript.entries}


def test_other_solvers_refuse_it() -> None:
    with pytest.raises(InputError, match="'prox-al' does not support confidence; choose 'sqp'"):
        fitted(EqualOpportunity(0.1, confidence=0.9), solver="prox-al")
