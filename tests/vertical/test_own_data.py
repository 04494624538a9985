"""Roles from terms and their owners' data: what each is given, what does not fit the terms, and terms agreed before."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from support.keys import fixed_sessions
from support.problems import deal, small, two_attributes

from evenhand.constraints import EqualOpportunity, bind
from evenhand.constraints.labelled_rows import LabelledRows
from evenhand.errors import DataError, EvenhandError, InputError, RunError
from evenhand.protocol.job import Job
from evenhand.protocol.terms import VerticalTerms
from evenhand.runtime.folder import RunFolder
from evenhand.solvers.registry import VERTICAL
from evenhand.solvers.roles import party, server, vertical_terms
from evenhand.vertical.problem import PartyData, ServerData, Start
from evenhand_reproductions.in_memory import Holdings, train_vertical

PROBLEM = small(seed=1, rows=60)
BLOCKS = [[2, 0], [1], [3]]
PARTIES = deal(PROBLEM, BLOCKS, (0, 2))
JOB = Job("subspace", (EqualOpportunity(0.05),), max_rounds=3)
TERMS = vertical_terms(JOB, {"p0": "active", "p1": "passive", "p2": "active"}, 60, {"group": ("a", "b")})
KNOWN = LabelledRows(PROBLEM.labels, PROBLEM.sensitive)


def arrays_in(thing: Any, seen: set[int]) -> Iterator[np.ndarray]:
    """Every array that can be reached from a role."""
    if id(thing) in seen:
        return
    seen.add(id(thing))
    if isinstance(thing, np.ndarray):
        yield thing
    elif isinstance(thing, dict):
        for value in thing.values():
            yield from arrays_in(value, seen)
    elif isinstance(thing, (list, tuple, set, frozenset)):
        for value in thing:
            yield from arrays_in(value, seen)
    elif isinstance(thing, pd.DataFrame):
        yield from (thing[name].to_numpy() for name in thing)
    elif hasattr(thing, "__dict__"):
        yield from arrays_in(vars(thing), seen)


@pytest.mark.parametrize("solver", VERTICAL)
def test_no_role_reaches_what_another_holds(solver: str) -> None:
    constraints = (EqualOpportunity(0.05),) if VERTICAL[solver].takes_constraints else ()
    held = Holdings.of(Job(solver, constraints), PARTIES, PROBLEM.labels, PROBLEM.sensitive)
    first, parties = held.roles()
    columns = {name: own.matrix for name, own in held.parties.items()}
    for role in [first, *parties]:
        others = [matrix for name, matrix in columns.items() if name != role.name]
        if role.name == "p1":
            others.append(PROBLEM.labels)
        reached = list(arrays_in(role, set()))
        assert reached
        assert not any(np.shares_memory(array, other) for array in reached for other in others)
    # The search finds what is there.
    assert any(np.shares_memory(array, PROBLEM.labels) for array in arrays_in(first, set()))


@pytest.mark.parametrize(
    ("own", "name", "message"),
    [
        (PartyData(np.zeros((59, 2)), known=KNOWN), "p0", "p0: its columns have 59 rows, but the terms describe 60"),
        (PartyData(np.zeros((60, 2)), known=KNOWN), "p7", "no party 'p7'; there are p0, p1, p2"),
        (PartyData(np.zeros((60, 2)), np.zeros(3), KNOWN), "p0", "the terms have no warm start"),
    ],
)
def test_a_party_that_does_not_fit_the_terms_is_refused(own: PartyData, name: str, message: str) -> None:
    with pytest.raises(EvenhandError, match=message):
        party(TERMS, name, own)


@pytest.mark.parametrize("solver", ["fairvfl", "vfb2-svrg"])
def test_an_active_party_without_labels_is_refused_where_they_are_needed(solver: str) -> None:
    terms = replace(TERMS, job=replace(JOB, solver=solver))
    keys = fixed_sessions(terms.names)
    with pytest.raises(DataError, match="p0 is active by the terms, but has no labels"):
        party(terms, "p0", PartyData(np.zeros((60, 2)), session=keys["p0"]))
    party(terms, "p1", PartyData(np.zeros((60, 2)), session=keys["p1"]))


@pytest.mark.parametrize(
    ("own", "message"),
    [
        (ServerData(PROBLEM.labels[:-1], PROBLEM.sensitive), "59 labels were given, but the terms describe 60 rows"),
        (ServerData(PROBLEM.labels), r"sensitive attribute 'group', which is not among \[\]"),
        (ServerData(PROBLEM.labels, PROBLEM.sensitive.replace("b", "c")), "'c', which is not among the agreed groups"),
        (
            ServerData(PROBLEM.labels, PROBLEM.sensitive, np.zeros((2, 1))),
            "multipliers to start from, but the terms have no warm start",
        ),
    ],
)
def test_a_server_that_does_not_fit_the_terms_is_refused(own: ServerData, message: str) -> None:
    with pytest.raises(EvenhandError, match=message):
        server(TERMS, own)


def test_crossed_attributes_are_bound_by_each_holder_as_by_all_together() -> None:
    problem = two_attributes(rows=90)
    job = Job("fairvfl", (EqualOpportunity(0.1, cross=True),))
    held = Holdings.of(job, deal(problem, BLOCKS, (0,)), problem.labels, problem.sensitive)
    expected = bind(job.constraints, problem.labels, problem.sensitive)
    assert any("×" in name for name in expected.names)
    first, parties = held.roles()
    for role in (first, parties[0]):
        bound = role.lagrangian.constraints  # type: ignore[attr-defined]
        assert bound.rows == expected.rows
        np.testing.assert_array_equal(bound.weights[:, bound.stratum], expected.weights[:, expected.stratum])


def test_terms_name_the_solver() -> None:
    parts = TERMS.participants
    assert vertical_terms(Job(), parts, 9, {}).job.solver == "subspace"
    assert vertical_terms(Job(model="mlp"), parts, 9, {}).job.solver == "fairvfl"
    with pytest.raises(InputError, match="solver is 'magic'"):
        vertical_terms(Job("magic"), parts, 9, {})


def test_terms_agreed_beforehand_are_kept_to() -> None:
    turned: VerticalTerms = replace(TERMS, groups={"group": ("b", "a")})
    given = (JOB, PARTIES, PROBLEM.labels, PROBLEM.sensitive)
    assert train_vertical(*given, terms=TERMS).row_names == train_vertical(*given).row_names
    agreed = train_vertical(*given, terms=turned)
    assert agreed.row_names == ["mean loss among positives, b vs. a (group)"]
    derived = train_vertical(*given)
    assert agreed.certificate.objective == pytest.approx(derived.certificate.objective, rel=1e-6)
    with pytest.raises(InputError, match="the terms are for p0, p1, p2; the parties are p0, p1"):
        train_vertical(JOB, PARTIES[:2], PROBLEM.labels, PROBLEM.sensitive, terms=TERMS)


def test_two_parties_of_one_name_are_refused() -> None:
    with pytest.raises(InputError, match="two parties have the same name; the names are p0, p0"):
        train_vertical(JOB, [PARTIES[0], PARTIES[0]], PROBLEM.labels, PROBLEM.sensitive)


def test_where_a_run_begins_warm_every_subspace_party_says_its_scores_once() -> None:
    cold = train_vertical(JOB, PARTIES, PROBLEM.labels, PROBLEM.sensitive)
    weights = {name: model.weights for name, model in cold.models.items()} | {"p1": np.zeros(1)}
    warm = train_vertical(JOB, PARTIES, PROBLEM.labels, PROBLEM.sensitive, start=Start(weights, cold.multipliers))
    assert "scores" not in {entry.kind for entry in cold.transcript}
    assert sorted(entry.sender for entry in warm.transcript if entry.kind == "scores") == ["p0", "p1", "p2"]


class Stopped(Exception):
    pass


@pytest.mark.parametrize("change", ["job", "labels", "groups", "columns", "weights", "multipliers", "no start"])
def test_a_run_is_taken_up_only_with_what_it_was_begun_with(change: str, tmp_path: Path) -> None:
    """The fingerprint in a checkpoint sees every change of job, data and start."""

    def stop(row: Any) -> None:
        if row["round"] == 1:
            raise Stopped

    problem = two_attributes(rows=60)
    job = Job("fairvfl", (EqualOpportunity(0.05),), max_rounds=3, tol=0.0, options={"step": 0.5})
    parties = deal(problem, BLOCKS, (0,))
    start = train_vertical(job, parties, problem.labels, problem.sensitive).as_start()
    folder = RunFolder.create(tmp_path / "run", {})

    def train(**changes: Any) -> Any:
        given: dict[str, Any] = {
            "job": job,
            "parties": parties,
            "labels": problem.labels,
            "sensitive": problem.sensitive,
            "start": start,
            **changes,
        }
        return train_vertical(**given, folder=folder, checkpoint_seconds=0.0)

    with pytest.raises(Stopped):
        train(on_round=stop)
    labels = problem.labels.copy()
    labels[5] *= -1
    other: dict[str, dict[str, Any]] = {
        "job": {"job": replace(job, seed=1)},
        "labels": {"labels": labels},
        "groups": {"sensitive": problem.sensitive[::-1].reset_index(drop=True)},
        "columns": {"parties": [replace(parties[0], matrix=parties[0].matrix + 1.0), *parties[1:]]},
        "weights": {"start": Start({**start.weights, "p1": start.weights["p1"] * 2}, start.multipliers)},
        "multipliers": {"start": Start(start.weights, start.multipliers + 1.0)},
        "no start": {"start": None},
    }
    with pytest.raises(RunError, match="another job or other data"):
        train(**other[change])
    train()


def test_whoever_trains_across_columns_loads_neither_the_compiler_nor_what_others_need() -> None:
    heavy = ("numba", "torch", "lightgbm", "sklearn", "fairlearn", "scipy.stats", "scipy.optimize", "clarabel")
    code = f"import sys, evenhand.training.vertical; print([name for name in {heavy} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
