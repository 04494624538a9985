"""A run as one pipeline decides as the parties do together."""

from __future__ import annotations

import warnings
from pathlib import Path

import pytest
from support.hospitals import HospitalJob
from support.tables import SmallJob

from evenhand import merged_pipeline
from evenhand.errors import EvenhandWarning, InputError, RunError
from evenhand.jobs.new_rows import score_new_clients, score_new_parties


@pytest.mark.parametrize("positive", ["repaid", "defaulted"])
def test_across_columns(positive: str, tmp_path: Path) -> None:
    job = SmallJob(tmp_path)
    job.content["job"] = {}
    job.party("bank")["label"]["positive"] = positive
    folder = job.run(tmp_path / "run").folder
    scores = score_new_parties(folder).scores
    pipeline = merged_pipeline(folder.path)
    table = job.frames["bank"].join([job.frames["shop"], job.frames["social"]]).loc[scores.index]
    place = list(pipeline.classes_).index(positive)
    assert pipeline.predict_proba(table)[:, place] == pytest.approx(scores["probability"].to_numpy())
    assert pipeline.predict(table).tolist() == scores["prediction"].tolist()
    names = pipeline[0].get_feature_names_out()
    assert "bank: city=Ghent" in names
    assert any(name.startswith("shop: spent ") for name in names)
    assert len(names) == pipeline[1].coef_.size


@pytest.mark.parametrize("settings", [{}, {"model": "trees"}], ids=["linear", "trees"])
def test_recalibrated_probabilities_and_trees(settings: dict[str, str], tmp_path: Path) -> None:
    job = SmallJob(tmp_path, rows=400)
    job.content["job"] = {
        "constraint": {"kind": "demographic-parity", "epsilon": 0.1},
        "test_fraction": 0.3,
        "max_rounds": 3,
        "threshold": 0.4,
        **settings,
    }
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", EvenhandWarning)
        folder = job.run(tmp_path / "run").folder
    assert folder.result["probability"]["slope"] != 1.0
    scores = score_new_parties(folder).scores
    pipeline = merged_pipeline(folder.path)
    table = job.frames["bank"].join([job.frames["shop"], job.frames["social"]]).loc[scores.index]
    place = list(pipeline.classes_).index("repaid")
    assert pipeline.predict_proba(table)[:, place] == pytest.approx(scores["probability"].to_numpy())
    assert pipeline.predict(table).tolist() == scores["prediction"].tolist()


def test_across_rows(tmp_path: Path) -> None:
    job = HospitalJob(tmp_path)
    folder = job.run(tmp_path / "run").folder
    scores = score_new_clients(folder).scores
    pipeline = merged_pipeline(folder.path)
    place = list(pipeline.classes_).index("ill")
    for name, frame in job.frames.items():
        wanted = scores.xs(name, level=0)["probability"].reindex(frame.index).to_numpy()
        assert pipeline.predict_proba(frame)[:, place] == pytest.approx(wanted)


def test_what_cannot_be_merged_is_refused(tmp_path: Path) -> None:
    job = SmallJob(tmp_path)
    job.content["job"] = {}
    job.frames["shop"] = job.frames["shop"].rename(columns={"spent": "age"})
    folder = job.run(tmp_path / "run").folder
    with pytest.raises(InputError, match="both have a column 'age'"):
        merged_pipeline(folder.path)
    with pytest.raises(RunError):
        merged_pipeline(tmp_path)
