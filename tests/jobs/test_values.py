"""Values of parties: exact and sampled Shapley values of held-out loss, their errors, and their place on the page."""

from __future__ import annotations

from itertools import permutations
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from support.federation import write_shops
from typer.testing import CliRunner

from evenhand.cli.app import app
from evenhand.errors import DataError, JobError, RunError
from evenhand.jobs.folder import read_job
from evenhand.jobs.vertical import values as module
from evenhand.jobs.vertical.extending import without_parties
from evenhand.jobs.vertical.file import parse_vertical
from evenhand.jobs.vertical.runs import load_vertical_tables, run_vertical_job
from evenhand.jobs.vertical.values import value_run
from evenhand.models.saved import joint_scores
from evenhand.report.page import make_page
from evenhand.report.record import RunRecord
from evenhand.runtime.folder import RunFolder
from evenhand.training.coalitions import train_coalition


def _run(folder: Path, **job: Any) -> RunFolder:
    """Shops of 600 people in which visits matter, calls matter less, and age does not."""
    paths = write_shops(folder, {"test_fraction": 0.4, "max_rounds": 40, "numbers": "standard", **job})
    rng, ids = np.random.default_rng(3), [f"c{number}" for number in range(600)]
    income, visits, calls, age = rng.normal(size=(4, 600))
    good = income + 1.5 * visits + 0.6 * calls + rng.logistic(size=600) > 0
    sex = np.where(rng.random(600) < 0.5, "f", "m")
    for name, columns in {
        "bank": {"income": income, "good": np.where(good, "yes", "no"), "sex": sex},
        "shop": {"visits": visits},
        "phone": {"calls": calls, "age": age},
    }.items():
        pd.DataFrame({"id": ids, **columns}).to_csv(folder / name / "table.csv", index=False)
    return run_vertical_job(read_job(paths["together"]), folder, folder / "run").folder  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    return _run(tmp_path_factory.mktemp("values"))


def _loss(run: RunFolder, names: set[str]) -> np.ndarray:
    """Loss of each held-out row, of a coalition that is trained anew."""
    tables = load_vertical_tables(read_job(run.path.parent / "together.toml"), run.path.parent)  # type: ignore[arg-type]
    trained = train_coalition(tables.stages, names)
    matrices = {name: tables.rows[name].matrix[tables.test] for name in trained.models}
    return np.logaddexp(0.0, -tables.held.labels[tables.test] * joint_scores(trained.models, matrices))


def test_values_are_means_over_all_orders_of_coalitions_trained_anew(run: RunFolder) -> None:
    found = value_run(run)
    losses = {
        frozenset(names): _loss(run, {"bank", *names}) for names in ((), ("shop",), ("phone",), ("shop", "phone"))
    }
    for one in found["parties"]:
        gains = []
        for order in permutations(["shop", "phone"]):
            before = frozenset(order[: order.index(one["party"])])
            gains.append(losses[before] - losses[before | {one["party"]}])
        rows = np.mean(gains, axis=0)
        assert one["value"] == pytest.approx(rows.mean(), abs=5e-4)
        assert one["standard_error"] == pytest.approx(rows.std(ddof=1) / np.sqrt(len(rows)), rel=0.05)
    shop, phone = (next(one for one in found["parties"] if one["party"] == name) for name in ("shop", "phone"))
    assert shop["value"] > phone["value"] > 0
    total = found["label holder alone"] - found["all parties"]
    assert shop["value"] + phone["value"] == pytest.approx(total, abs=1e-12)
    assert (found["trainings"], found["rows"], found["orders"]) == (4, int(found["rows"]), None)


def test_sampled_values_share_the_same_total(run: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    exact = value_run(run)
    monkeypatch.setattr(module, "MOST_EXACT", 1)
    found = value_run(run, orders=12)
    assert found["orders"] == 12
    total = found["label holder alone"] - found["all parties"]
    assert sum(one["value"] for one in found["parties"]) == pytest.approx(total, abs=1e-12)
    for one, other in zip(found["parties"], exact["parties"], strict=True):
        assert abs(one["value"] - other["value"]) <= 3 * one["standard_error"]
        assert one["standard_error"] >= 0.9 * other["standard_error"]


def test_the_command_prints_them_and_the_page_shows_them(run: RunFolder) -> None:
    done = CliRunner().invoke(app, ["value", str(run.path)])
    assert done.exit_code == 0, done.output
    for words in ("shop", "phone", "held-out rows", "4 trainings", "values.json"):
        assert words in done.output
    page = make_page([RunRecord.read(run.path)])
    assert "What each party" in page
    assert "Shapley values" in page


def test_trees_have_values_too(tmp_path: Path) -> None:
    pytest.importorskip("lightgbm")
    found = value_run(_run(tmp_path, model="trees", max_rounds=3))
    values = {one["party"]: one["value"] for one in found["parties"]}
    assert values["shop"] > values["phone"]


def test_runs_without_held_out_rows_have_no_values(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no rows are held out"):
        value_run(_run(tmp_path, test_fraction=0.0))


def test_damaged_values_and_runs_of_one_party_are_refused(tmp_path: Path) -> None:
    run = _run(tmp_path, max_rounds=1)
    (run.path / "values.json").write_text('{"parties": []}')
    with pytest.raises(RunError, match="does not hold values of parties; measure them again"):
        RunRecord.read(run.path)
    job = without_parties(read_job(tmp_path / "together.toml"), ["shop", "phone"])  # type: ignore[arg-type]
    with pytest.raises(JobError, match="no party beside the label holder"):
        value_run(run_vertical_job(job, tmp_path, tmp_path / "alone").folder)


def test_rows_of_no_weight_count_for_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _run(tmp_path, max_rounds=1)
    path = tmp_path / "bank" / "table.csv"
    table = pd.read_csv(path)
    table.assign(weight=np.arange(600) % 3).to_csv(path, index=False)
    job = read_job(tmp_path / "together.toml").model_dump(exclude_unset=True)
    job["party"][0]["weight"] = "weight"
    job["party"][0]["columns"] = ["income"]
    weighted = run_vertical_job(parse_vertical(job, "job"), tmp_path, tmp_path / "weighted").folder
    one = value_run(weighted)
    taken = module._Values.of

    def spoilt(self: Any, players: frozenset[str]) -> Any:
        return np.where(self.weights > 0, taken(self, players), 100.0 * len(players))

    monkeypatch.setattr(module._Values, "of", spoilt)
    assert value_run(weighted)["parties"] == one["parties"]
