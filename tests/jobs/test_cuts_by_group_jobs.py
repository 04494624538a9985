"""Cuts by group in job files: trained, predicted, shown, and refused where one cut is needed."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from jobs import test_federation_clients as clients
from jobs import test_federation_sites as sites
from support.clinics import CLIENTS, write_clinics
from support.federation import Network, write_shops
from typer.testing import CliRunner

from evenhand import load_run
from evenhand.cli.app import app
from evenhand.errors import DataError, GroupDecisionsWarning, InputError, JobError
from evenhand.estimators.saved import merged_pipeline
from evenhand.jobs.exporting import export_onnx
from evenhand.jobs.folder import read_job
from evenhand.jobs.horizontal.file import parse_horizontal
from evenhand.jobs.horizontal.runs import run_horizontal_job
from evenhand.jobs.new_rows import score_new_clients, score_new_parties
from evenhand.jobs.results import scored
from evenhand.jobs.vertical.file import parse_vertical
from evenhand.jobs.vertical.runs import run_vertical_job
from evenhand.report.page import make_page
from evenhand.report.record import RunRecord
from evenhand.report.verdicts import remarks

PARITY = {"kind": "demographic-parity", "epsilon": 0.1}
RATE = {"threshold": "rate", "capacity": 0.3, "threshold_by": "sex", "constraint": PARITY, "test_fraction": 0.2}


def shares(result: dict[str, Any], part: str) -> list[float]:
    return [one["selected"] / one["rows"] for one in result["performance"][part][1:]]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Two parties' tables, and a finished run."""
    folder = tmp_path_factory.mktemp("shops")
    random = np.random.default_rng(0)
    sex = np.where(random.random(900) < 0.4, "f", "m")
    first, second = random.normal(size=(2, 900)) + 0.8 * (sex == "f")
    good = random.random(900) < 1.0 / (1.0 + np.exp(1.0 - first - second))
    bank = pd.DataFrame({"id": range(900), "first": first, "sex": sex, "good": np.where(good, "yes", "no")})
    bank.to_csv(folder / "bank.csv", index=False)
    pd.DataFrame({"id": range(900), "second": second}).to_csv(folder / "shop.csv", index=False)
    parsed = parse_vertical(vertical(**RATE), "job.toml")
    return run_vertical_job(parsed, folder, folder / "run")


def vertical(**job: Any) -> dict[str, Any]:
    label = {"column": "good", "positive": "yes"}
    bank = {"name": "bank", "role": "active", "table": "bank.csv", "id": "id", "label": label, "sensitive": ["sex"]}
    return {"job": {"split": "vertical", **job}, "party": [bank, {"name": "shop", "table": "shop.csv", "id": "id"}]}


def test_a_run_selects_each_group_at_the_same_rate_and_says_how(run: Any) -> None:
    cut = run.result["cut"]
    assert cut["by"] == "sex"
    assert cut["groups"]["f"] > cut["groups"]["m"] + 0.3
    assert cut["chosen_on"] == "cross-fitted scores"
    assert np.ptp(shares(run.result, "train")) < 0.05
    assert abs(shares(run.result, "train")[0] - 0.3) < 0.05
    # The gap of the result is that of the same decisions.
    (held,) = run.result["constraints"]["train"]
    assert held["constraint"] == "demographic-parity"
    assert held["estimate"] == pytest.approx(np.ptp(shares(run.result, "train")), abs=1e-9)
    assert run.result["quality"]["train"]["DP"] == pytest.approx(held["estimate"], abs=1e-9)
    counts = {one["group"]: one["true_positives"] + one["false_positives"] for one in run.result["groups"]["train"]}
    assert counts == {one["group"]: one["selected"] for one in run.result["performance"]["train"][1:]}
    (said,) = (one for one in remarks(run.result) if "cut for each group" in one)
    assert "decisions use the sensitive attribute" in said
    assert "unlawful" in said
    page = make_page([RunRecord.read(run.folder.path)])
    assert "Each group of sex has a cut of its own: f above" in page
    assert "Decisions use this attribute" in page
    # Nothing but the loss is trained.
    assert run.run.row_names == []


def test_prediction_needs_the_group_of_each_row(run: Any, tmp_path: Path) -> None:
    cut = run.result["cut"]
    table = score_new_parties(run.folder).scores
    bank = pd.read_csv(run.folder.base / "bank.csv")
    own = bank.set_index(bank["id"].map(str)).loc[table.index.map(str), "sex"].map(cut["groups"]).to_numpy()
    np.testing.assert_array_equal(table["cut"], own)
    assert ((table["prediction"] == "yes") == (table["score"] > own)).all()
    # No label is needed, but a group is; unknown ones get the general cut.
    fresh = bank.drop(columns="good")
    fresh["sex"] = np.where(fresh["id"] < 5, "x", np.where(fresh["id"] < 7, "", fresh["sex"]))
    fresh.to_csv(tmp_path / "fresh.csv", index=False)
    told = score_new_parties(run.folder, tables={"bank": tmp_path / "fresh.csv"})
    assert any("7 of 900 rows have no group of 'sex'" in one for one in told.remarks)
    of_unknown = told.scores.loc[[one for one in told.scores.index if int(one) < 7], "cut"]
    assert set(of_unknown) == {cut["score"]}
    fresh.drop(columns="sex").to_csv(tmp_path / "without.csv", index=False)
    with pytest.raises(DataError, match="has a cut for each group of 'sex', but the table has no such column"):
        score_new_parties(run.folder, tables={"bank": tmp_path / "without.csv"})
    # Where nobody tells the groups, there are scores and no decisions.
    alone = scored(np.zeros(3), run.result, pd.RangeIndex(3))
    assert list(alone.columns) == ["score", "probability"]


def test_what_needs_one_cut_is_refused_and_a_saved_model_takes_groups(run: Any) -> None:
    with pytest.raises(InputError, match="a merged pipeline cannot hold"):
        merged_pipeline(run.folder.path)
    pytest.importorskip("onnx")
    with pytest.raises(InputError, match="an exported model cannot hold"):
        export_onnx(run.folder)
    saved = load_run(run.folder.path)
    bank, shop = (pd.read_csv(run.folder.base / f"{name}.csv").set_index("id") for name in ("bank", "shop"))
    with pytest.raises(InputError, match="give sensitive_features"):
        saved.predict({"bank": bank, "shop": shop})
    table = score_new_parties(run.folder).scores
    found = saved.predict({"bank": bank, "shop": shop}, sensitive_features=bank[["sex"]])
    assert (found == table["prediction"].to_numpy()).all()
    with pytest.warns(GroupDecisionsWarning):
        saved.predict({"bank": bank, "shop": shop}, sensitive_features=np.full(900, "x"))


def test_a_scorecard_has_the_points_of_each_group(run: Any, tmp_path: Path) -> None:
    out = tmp_path / "card.csv"
    said = CliRunner().invoke(app, ["scorecard", str(run.folder.path), "--party", "bank", "--out", str(out)])
    assert said.exit_code == 0, said.output
    text = " ".join(said.output.split())
    assert "points for sex = f, above" in text
    assert "points for sex = m" in text


def test_across_clients_and_between_organisations_the_cuts_are_the_same(tmp_path: Path) -> None:
    for place, protection in enumerate(("none", "masked")):
        folder = tmp_path / str(place)
        paths = write_clinics(folder, {"solver": "sqp", "protection": protection} | RATE)
        ends = clients.run(paths)
        assert isinstance(ends["server"], dict), ends
        together = run_horizontal_job(read_job(paths["together"]), folder, folder / "run")  # type: ignore[arg-type]
        assert together.result["cut"]["by"] == "sex"
        assert together.result["cut"]["chosen_on"] == "cross-fitted scores"
        assert ends["server"]["cut"]["groups"] == pytest.approx(together.result["cut"]["groups"])
        assert ends["server"]["quality"]["train"]["DP"] == pytest.approx(together.result["quality"]["train"]["DP"])
        for name in CLIENTS:
            assert ends[name].write(together.folder)["cut"]["groups"] == ends["server"]["cut"]["groups"]
        # 192 training rows, and cuts on scores of models without the row.
        assert np.ptp(shares(together.result, "train")) <= 0.1
    scores = score_new_clients(run_horizontal_job(read_job(paths["together"]), folder, folder / "again").folder).scores  # type: ignore[arg-type]
    assert set(scores["cut"]) == set(together.result["cut"]["groups"].values())
    assert ((scores["prediction"] == "yes") == (scores["score"] > scores["cut"])).all()


@pytest.mark.slow
def test_between_parties_the_label_holders_side_has_the_cuts(tmp_path: Path) -> None:
    paths = write_shops(tmp_path, {"max_rounds": 20} | RATE)
    ends = sites.run(paths, Network())
    assert isinstance(ends["server"], dict), ends
    together = run_vertical_job(read_job(paths["together"]), tmp_path, tmp_path / "run")  # type: ignore[arg-type]
    assert ends["server"]["cut"]["groups"] == pytest.approx(together.result["cut"]["groups"], abs=1e-6)
    assert ends["server"]["quality"]["train"] == pytest.approx(together.result["quality"]["train"], abs=1e-6)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"threshold": 0.2, "capacity": None}, "job.threshold_by.*needs a rule"),
        ({"threshold_by": "race"}, "job.threshold_by.*'race', which is no sensitive attribute; there is 'sex'"),
        ({"threshold_by": 3}, "job.threshold_by"),
        ({"constraint": []}, "job.threshold_by.*exactly one constraint on rates"),
        ({"constraint": {"kind": "equal-opportunity", "epsilon": 0.1}}, "job.threshold_by.*with measure 'error'"),
        ({"constraint": [PARITY, PARITY]}, "job.threshold_by.*exactly one constraint"),
        ({"constraint": PARITY | {"cross": True}}, "job.threshold_by.*without confidence and crossings"),
    ],
)
@pytest.mark.parametrize("split", ["vertical", "horizontal"])
def test_wrong_keys_are_refused(settings: dict[str, Any], words: str, split: str, tmp_path: Path) -> None:
    job = {name: value for name, value in (RATE | settings).items() if value is not None}
    if split == "vertical":
        with pytest.raises(JobError, match=words):
            parse_vertical(vertical(**job), "job.toml")
        return
    content = tomllib.loads(write_clinics(tmp_path, {})["together"].read_text())
    content["job"] |= job
    with pytest.raises(JobError, match=words):
        parse_horizontal(content, "job.toml")


def test_label_privacy_and_local_scope_are_refused(tmp_path: Path) -> None:
    with pytest.raises(JobError, match="threshold_by needs true labels of groups"):
        parse_vertical(vertical(**RATE, label_privacy={"epsilon": 1.0}), "job.toml")
    content = tomllib.loads(write_clinics(tmp_path, {})["together"].read_text())
    content["job"] |= RATE | {"scope": "local"}
    with pytest.raises(JobError, match="chosen over all clients' rows"):
        parse_horizontal(content, "job.toml")
