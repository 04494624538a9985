"""Reproductions of the proximal-AL paper: numbers, problems, methods and pages, on small problems."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from evenhand_reproductions.constrained import curves, numbers, pages, table4
from evenhand_reproductions.constrained.methods import BALANCED, BY_SQP, METHODS, POOLED, PUBLISHED, measured
from evenhand_reproductions.constrained.numbers import CLIENTS, TABLE1, TABLE2, TABLE4
from evenhand_reproductions.constrained.problems import (
    ConstrainedProblem,
    SetRows,
    neyman_pearson_problem,
    quadratic_problem,
)
from evenhand_reproductions.programs.solving import measure
from evenhand_reproductions.running import reproduce
from evenhand_reproductions.settings import Settings


def rows(name: str = "monks-1", count: int = 121) -> SetRows:
    """Two classes that overlap a little: the published ρ then takes hundreds of rounds, not thousands."""
    rng = np.random.default_rng(5)
    labels = np.where(np.arange(count) % 2 == 0, 1.0, -1.0)
    features = np.hstack([rng.standard_normal((count, 2)) + 1.3 * labels[:, None], np.ones((count, 1))])
    return SetRows(name, features, labels)


@pytest.fixture(scope="module")
def problem() -> ConstrainedProblem:
    return neyman_pearson_problem(rows(), 3, 7)


@pytest.fixture(scope="module")
def records(problem: ConstrainedProblem) -> pd.DataFrame:
    return pd.DataFrame([measured(method, problem, 5000) for method in METHODS])


def test_the_papers_tables_are_whole() -> None:
    assert set(TABLE1) == {"breast-cancer-wisc", "monks-1", "adult-a"}
    for table in (*TABLE1.values(), *TABLE2.values()):
        assert tuple(table) == CLIENTS
        assert all(len(row) == 6 and max(row[2:]) <= 0.2 for row in table.values())
    assert TABLE1["monks-1"][20][:2] == (1.81, 1.79)
    assert TABLE4[10, 300] == (41.49, 41.44, 8.56e-5, 8.73e-4)


def test_clients_have_the_same_rows_of_each_class(problem: ConstrainedProblem) -> None:
    """61 and 60 rows of the classes on three clients: 20 of each everywhere."""
    clients: list[Any] = list(problem.federated.clients)
    assert [int((client.labels > 0).sum()) for client in clients] == [20, 20, 20]
    assert [len(client.labels) for client in clients] == [40, 40, 40]
    assert np.linalg.norm(problem.start) == pytest.approx(1.0)


def test_problems_are_those_of_their_seed() -> None:
    starts = [neyman_pearson_problem(rows(), 2, seed).start for seed in (1, 1, 2)]
    assert np.array_equal(starts[0], starts[1])
    assert not np.array_equal(starts[0], starts[2])


def test_every_method_ends_truly_optimal_at_the_same_objective(records: pd.DataFrame) -> None:
    assert set(records["method"]) == {PUBLISHED, BALANCED, BY_SQP, POOLED}
    assert records["optimal"].all()
    assert records["objective"].to_numpy() == pytest.approx(records["objective"].mean(), rel=2e-2)
    assert records["max row"].max() <= 0.2 + 1e-3
    assert (records["mean row"] <= records["max row"]).all()


def test_a_run_that_meets_the_cap_is_not_shown_as_optimal(problem: ConstrainedProblem) -> None:
    record = measured(PUBLISHED, problem, 3)
    assert not record["optimal"]
    frame = pd.DataFrame([record, measured(BY_SQP, problem, 3), measured(POOLED, problem, 3)])
    assert "**no** (0 of 1)" in pages.table(frame, TABLE1["monks-1"] | {3: TABLE1["monks-1"][5]})
    assert "2 of 3; not monks-1, n = 3, prox-al, fixed ρ: missed." in pages.checks(frame)[0]


@pytest.mark.parametrize("method", [PUBLISHED, BALANCED, BY_SQP])
def test_a_curve_runs_from_the_start_to_the_solution(problem: ConstrainedProblem, method: str) -> None:
    line = curves.curve(method, problem, 5000)
    assert line[0]["round"] == 0
    assert line[0]["objectives"] == pytest.approx(problem.local_objectives(problem.start).tolist())
    rounds = [record["round"] for record in line]
    assert rounds == sorted(set(rounds))
    found = measured(method, problem, 5000)
    assert line[-1]["round"] == found["rounds"]
    assert np.mean(line[-1]["objectives"]) == pytest.approx(found["objective"])
    assert line[-1]["stationarity"] == pytest.approx(found["stationarity"])


def test_residuals_are_measured_on_the_whole_problem() -> None:
    problem = quadratic_problem(2, 5, 1, 0, 1)
    found = METHODS[BY_SQP](problem, 100)
    names = {f"c{place}": client for place, client in enumerate(problem.federated.clients)}
    again = measure(found.weights, found.multipliers, names, problem.federated.server)
    assert again.stationarity == pytest.approx(found.residual.stationarity, abs=1e-9)
    assert again.violation == pytest.approx(found.residual.violation, abs=1e-9)


def test_table4_shows_instances_with_and_without_the_servers_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table4, "SIZES", ((100, 1),))
    monkeypatch.setattr(table4, "QUADRATIC_CLIENTS", (1,))
    monkeypatch.setattr(table4, "INSTANCES", 2)
    settings = Settings(runs=1, sets=("quadratic",))
    reproduce("constrained-table4", settings, tmp_path, command="as asked", show=False)
    text = (tmp_path / "constrained-table4.md").read_text(encoding="utf-8")
    assert "nan" not in text
    assert "| 1, 100, 1 | sqp |" in text
    assert "8 of 8: met." in text
    records = pd.DataFrame(json.loads((tmp_path / "constrained-table4.json").read_text())["records"])
    optimum = records[records["method"] == table4.OPTIMUM].groupby("server")["objective"].mean()
    assert optimum[False] < optimum[True], "a row less can only lower the objective"
    program = quadratic_problem(1, 100, 1, 10, 10, server_rows=False).federated
    found = records[(records["method"] == BY_SQP) & ~records["server"].astype(bool)]["objective"].iloc[0]
    assert found == pytest.approx(table4._optimum(program.clients))


def test_pages_of_table_and_figure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (pages, curves):
        monkeypatch.setattr(module, "read", lambda name, source: rows(name))
    monkeypatch.setattr(numbers, "CLIENTS", (1, 5))
    settings = Settings(runs=1, rounds=2000, sets=("monks-1", "breast-cancer-wisc"))
    for name in ("constrained-table1", "constrained-fig1"):
        reproduce(name, settings, tmp_path, command="as asked", show=False)
    text = (tmp_path / "constrained-table1.md").read_text(encoding="utf-8")
    assert "nan" not in text
    assert "Every cell truly (0.001, 0.001)-optimal" in text
    assert "| 5 | sqp |" in text
    assert (tmp_path / "constrained-fig1.png").read_bytes().startswith(b"\x89PNG")
    kept = json.loads((tmp_path / "constrained-fig1.json").read_text())["records"]
    assert {record["set"] for record in kept} == {"monks-1", "breast-cancer-wisc"}
