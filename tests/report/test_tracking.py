"""Runs in a real MLflow store: what was asked, what came of it round by round, and the page."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from evenhand.errors import InputError
from evenhand.report.record import RunRecord
from evenhand.report.tracking import track


@pytest.fixture
def client(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    mlflow = pytest.importorskip("mlflow", reason="no MLflow here: pip install 'evenhand[mlflow]'")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    return mlflow.MlflowClient(tracking_uri=(tmp_path / "store").as_uri())


@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_a_run_is_logged_once_and_whole(client: Any, runs: dict[str, Path], tmp_path: Path) -> None:
    record, uri = RunRecord.read(runs["fair"]), (tmp_path / "store").as_uri()
    number = track(record, uri)
    logged = client.get_run(number)
    assert logged.info.status == "FINISHED"
    assert logged.data.params["constraint.0.epsilon"] == "0.05"
    assert logged.data.metrics["test.accuracy"] == record.result["quality"]["test"]["accuracy"]
    objective = client.get_metric_history(number, "objective")
    assert [one.value for one in objective] == record.history["objective"].tolist()
    assert [artifact.path for artifact in client.list_artifacts(number)] == ["report.html"]
    with pytest.raises(InputError, match="already"):
        track(record, uri)


def test_what_cannot_be_logged_is_said(client: Any, runs: dict[str, Path]) -> None:
    record = RunRecord.read(runs["fair"])
    with pytest.raises(InputError, match="not finished"):
        track(replace(record, result={}), "file:nowhere")
    with pytest.raises(InputError, match="MLflow refused the run") as told:
        track(record, "nonsense://user:secretword@elsewhere")
    assert "secretword" not in str(told.value)
