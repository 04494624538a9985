"""`evenhand export`: an ONNX model gives the scores of `evenhand predict`, for every kind of column."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from support.hospitals import HospitalJob
from support.tables import SmallJob
from typer.testing import CliRunner

from evenhand import load_run
from evenhand.cli.app import app
from evenhand.errors import InputError
from evenhand.jobs.exporting import export_onnx
from evenhand.runtime.folder import RunFolder

onnxruntime = pytest.importorskip("onnxruntime", reason="needs the extra onnx")

ROWS = 240
NEW = 40


def odd_columns(rows: int, seed: int) -> pd.DataFrame:
    """Columns of every kind, with missing values, tails, and (in new rows) values that no training row has."""
    rng = np.random.default_rng(seed)
    days = pd.to_datetime("1969-11-20") + pd.to_timedelta(rng.integers(0, 30_000, rows), unit="D")
    times = pd.to_datetime("2020-01-01") + pd.to_timedelta(rng.integers(0, 9_000, rows), unit="h")
    levels = ["red", "green", "blue", "a b"] + (["unseen"] if seed else [])
    frame = pd.DataFrame(
        {
            "income": np.exp(rng.normal(7, 1, rows)).round(2) * (10 if seed else 1),
            "children": rng.integers(0, 4, rows).astype(float),
            "owner": rng.random(rows) < 0.4,
            "since": days,
            "seen": times,
            "colour": rng.choice(levels, rows),
            "zero": np.where(rng.random(rows) < 0.7, 0.0, rng.normal(0, 5, rows)),
        }
    )
    for place, name in enumerate(["income", "since", "colour", "zero"]):
        frame[name] = frame[name].mask(np.arange(rows) % 11 == place)
    return frame


def inputs(table: pd.DataFrame, session: Any) -> dict[str, np.ndarray]:
    """Each input of the model from a table, as the documentation says."""
    found = {}
    for one in session.get_inputs():
        column = table[one.name]
        if one.type == "tensor(string)":
            values = column.astype(object).where(column.notna(), "").to_numpy(dtype=object)
        elif pd.api.types.is_datetime64_any_dtype(column):
            values = ((column - pd.Timestamp(0)) / pd.Timedelta(days=1)).to_numpy(dtype=float)
        else:
            values = column.to_numpy(dtype=float)
        found[one.name] = values[:, None]
    return found


def scored(model: bytes, table: pd.DataFrame) -> dict[str, np.ndarray]:
    session = onnxruntime.InferenceSession(model)
    names = [one.name for one in session.get_outputs()]
    return {name: value[:, 0] for name, value in zip(names, session.run(None, inputs(table, session)), strict=True)}


def vertical(folder: Path, settings: dict[str, Any], **more: Any) -> tuple[RunFolder, dict[str, pd.DataFrame]]:
    job = SmallJob(folder, rows=ROWS)
    extra = odd_columns(ROWS, 0).set_index(job.frames["shop"].index)
    job.frames["shop"] = pd.concat([job.frames["shop"], extra], axis=1)
    job.content["job"] = {"test_fraction": 0.25, **settings}
    job.party("shop").update(more)
    job.run()
    fresh = odd_columns(NEW, 1)
    rng = np.random.default_rng(2)
    tables = {name: frame.iloc[:NEW].reset_index(drop=True) for name, frame in job.frames.items()}
    tables["shop"] = pd.concat([tables["shop"][["spent", "visits"]] * rng.normal(1, 1), fresh], axis=1)
    if "children" in more.get("types", {}):
        tables["shop"]["children"] = tables["shop"]["children"].astype(int).astype(str)
    return RunFolder.open(folder / "run"), tables


WAYS = {
    "curves": ({"solver": "subspace", "max_rounds": 3}, {}),
    "standard": ({"solver": "subspace", "max_rounds": 3, "numbers": "standard"}, {"max_levels": 2}),
    "bins": ({"solver": "subspace", "max_rounds": 3, "numbers": "bins"}, {"types": {"children": "category"}}),
    "cut": (
        {"solver": "subspace", "max_rounds": 3, "threshold": 0.3, "constraint": {"kind": "demographic-parity"}},
        {},
    ),
    "mlp": ({"model": {"kind": "mlp", "hidden": [4, 3]}, "max_rounds": 2}, {}),
    "trees": ({"model": "trees", "max_rounds": 2}, {"types": {"children": "category"}}),
}


@pytest.mark.filterwarnings("ignore::evenhand.errors.EvenhandWarning")
@pytest.mark.parametrize("way", WAYS)
def test_scores_of_parties(way: str, tmp_path: Path) -> None:
    folder, tables = vertical(tmp_path, WAYS[way][0], **WAYS[way][1])
    model = load_run(folder.path)
    wanted = model.decision_function(tables)
    joint = pd.concat(list(tables.values()), axis=1)
    found = scored(export_onnx(folder), joint)
    np.testing.assert_allclose(found["score"], wanted, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(found["probability"], model.predict_proba(tables)[:, 1], atol=1e-9)
    assert found["label"].tolist() == model.predict(tables).tolist()
    parts = [scored(export_onnx(folder, name), table) for name, table in tables.items()]
    assert [set(part) for part in parts] == [{"score"}] * 3
    np.testing.assert_allclose(np.sum([part["score"] for part in parts], axis=0), wanted, rtol=1e-9, atol=1e-9)


def columns_of(model: bytes, table: pd.DataFrame) -> dict[str, np.ndarray]:
    """Outputs with all their columns."""
    session = onnxruntime.InferenceSession(model)
    names = [one.name for one in session.get_outputs()]
    return dict(zip(names, session.run(None, inputs(table, session)), strict=True))


@pytest.mark.filterwarnings("ignore::evenhand.errors.EvenhandWarning")
@pytest.mark.parametrize("names", [["C", "A", "B"], [10, 7, 20]], ids=["text", "numbers"])
def test_scores_of_several_classes(names: list[Any], tmp_path: Path) -> None:
    job = SmallJob(tmp_path / "columns", rows=200)
    job.frames["bank"]["outcome"] = np.random.default_rng(0).choice(names, 200)
    job.content["job"] = {"max_rounds": 3, "test_fraction": 0.0}
    job.party("bank")["label"] = {"column": "outcome", "classes": names}
    run = job.run().folder
    model, tables = load_run(run.path), {name: one.iloc[:NEW] for name, one in job.frames.items()}
    found = columns_of(export_onnx(run), pd.concat(list(tables.values()), axis=1))
    np.testing.assert_allclose(found["score"], model.decision_function(tables), atol=1e-9)
    np.testing.assert_allclose(found["probability"], model.predict_proba(tables), atol=1e-9)
    assert found["label"][:, 0].tolist() == model.predict(tables).tolist()
    parts = [columns_of(export_onnx(run, name), one)["score"] for name, one in tables.items()]
    np.testing.assert_allclose(np.sum(parts, axis=0), found["score"], atol=1e-9)
    hospitals = HospitalJob(tmp_path / "rows")
    for frame in hospitals.frames.values():
        frame["outcome"] = np.random.default_rng(1).choice(names, len(frame))
    hospitals.content["data"]["label"] = {"column": "outcome", "classes": names}
    hospitals.content["job"] = {"split": "horizontal", "max_rounds": 5}
    run, table = hospitals.run().folder, hospitals.frames["lyon"]
    found = columns_of(export_onnx(run), table)
    np.testing.assert_allclose(found["probability"], load_run(run.path).predict_proba(table), atol=1e-9)


@pytest.mark.filterwarnings("ignore::evenhand.errors.EvenhandWarning")
@pytest.mark.parametrize("settings", [{}, {"model": "trees"}], ids=["linear", "trees"])
def test_scores_of_clients(settings: dict[str, Any], tmp_path: Path) -> None:
    job = HospitalJob(tmp_path)
    job.content["job"] = {**job.content["job"], **settings}
    for place, (name, frame) in enumerate(job.frames.items()):
        job.frames[name] = frame.assign(**odd_columns(len(frame), 10 * place).set_axis(frame.index))
    job.run(tmp_path / "run")
    folder = RunFolder.open(tmp_path / "run")
    model = load_run(folder.path)
    for frame in job.frames.values():
        found = scored(export_onnx(folder), frame)
        np.testing.assert_allclose(found["score"], model.decision_function(frame), rtol=1e-9, atol=1e-9)
        assert found["label"].tolist() == model.predict(frame).tolist()


def test_command_and_its_refusals(tmp_path: Path) -> None:
    job = SmallJob(tmp_path)
    job.content["job"] = {"solver": "subspace", "max_rounds": 2}
    job.frames["social"]["age"] = job.frames["social"]["friends"]
    job.run()
    run, out = str(tmp_path / "run"), str(tmp_path / "model.onnx")
    runner = CliRunner()
    for given, said in (
        ([run, "--out", str(tmp_path / "model.pkl")], "must end in .onnx"),
        ([run, "--out", out, "--party", "nobody"], "has models of bank, shop, social only"),
        ([run, "--out", out], "bank and social both have a column 'age'"),
    ):
        result = runner.invoke(app, ["export", *given])
        assert said in str(result.exception)
        assert isinstance(result.exception, InputError)
        assert not Path(out).exists()
    assert runner.invoke(app, ["export", run, "--out", out, "--party", "bank"]).exit_code == 0
    assert "exists" in str(runner.invoke(app, ["export", run, "--out", out, "--party", "bank"]).exception)
    assert set(scored(Path(out).read_bytes(), job.frames["bank"])) == {"score"}
