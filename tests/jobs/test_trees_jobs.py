"""Job files with `solver = "trees"`: run folders, resuming, scores of new rows."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

pytest.importorskip("lightgbm")

import lightgbm
from support.tables import SmallJob, files

from evenhand.errors import RunError
from evenhand.jobs.new_rows import score_new_parties
from evenhand.jobs.vertical.runs import load_vertical_tables, run_vertical_job
from evenhand.models.saved import joint_scores
from evenhand.runtime.folder import RunFolder


def tree_job(folder: Path, rows: int = 160) -> SmallJob:
    small = SmallJob(folder, rows)
    small.content["job"] |= {
        "solver": "trees",
        "max_rounds": 3,
        "options": {"rows_a_leaf": 5},
        "constraint": {"kind": "equal-opportunity", "epsilon": 0.1, "measure": "error"},
    }
    small.frames["bank"].loc[small.frames["bank"].index[::7], "city"] = None
    small.frames["shop"].loc[small.frames["shop"].index[::5], "spent"] = np.nan
    return small


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> SmallJob:
    small = tree_job(tmp_path_factory.mktemp("trees"))
    small.run()
    return small


def test_a_run_folder_holds_each_partys_trees_in_lightgbms_own_format(finished: SmallJob) -> None:
    path = finished.folder / "run"
    for name in finished.frames:
        assert {f"parties/{name}/{file}" for file in ("encoder.json", "weights.safetensors", "trees.txt")} <= set(
            files(path)
        )
    folder = RunFolder.open(path)
    folder.check()
    assert folder.result["statistics"]["held-out loss"] > 0
    assert folder.result["certificate"]["violation"] <= 0.05
    booster = lightgbm.Booster(model_file=str(path / "parties" / "shop" / "trees.txt"))
    assert booster.num_trees() == 5 * folder.result["statistics"]["rounds kept"]


def test_new_rows_are_scored_by_the_saved_trees(finished: SmallJob, tmp_path: Path) -> None:
    scores = score_new_parties(RunFolder.open(finished.folder / "run")).scores
    assert len(scores) == 160
    again = tree_job(tmp_path)
    run = again.run()
    assert run.result["quality"]["train"]["accuracy"] > 0.6
    pd.testing.assert_frame_equal(score_new_parties(RunFolder.open(tmp_path / "run")).scores, scores)


def test_a_killed_run_goes_on_where_it_was(finished: SmallJob, tmp_path: Path) -> None:
    small = tree_job(tmp_path)
    job, rounds = small.read(), []

    def killed(report: dict[str, float]) -> None:
        rounds.append(report["round"])
        if len(rounds) == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_vertical_job(job, tmp_path, tmp_path / "run", on_round=killed, checkpoint_seconds=0.0)
    run_vertical_job(job, tmp_path, tmp_path / "run", resume=True, checkpoint_seconds=0.0)
    for name in finished.frames:
        file = Path("run") / "parties" / name / "trees.txt"
        assert (tmp_path / file).read_text() == (finished.folder / file).read_text()


def test_trees_that_were_changed_are_refused(finished: SmallJob, tmp_path: Path) -> None:
    folder = RunFolder(Path(shutil.copytree(finished.folder / "run", tmp_path / "run")))
    path = folder.path / "parties" / "bank" / "trees.txt"
    path.write_text(path.read_text().replace("threshold=", "threshold=1"))
    with pytest.raises(RunError, match=r"trees\.txt"):
        score_new_parties(folder)


@pytest.mark.parametrize("kind", ["full", "relay"])
def test_trees_across_parties_are_kept_and_score_new_rows(kind: str, tmp_path: Path) -> None:
    small = tree_job(tmp_path)
    small.content["job"] |= {"max_rounds": 8, "options": {"interactions": kind, "rows_a_leaf": 5, "leaves": 4}}
    run = small.run()
    assert run.result["statistics"]["trees across parties"] > 0
    folder = RunFolder.open(tmp_path / "run")
    scores = score_new_parties(folder).scores["score"]
    assert sum((folder.path / "parties" / name / "splits.txt").exists() for name in small.frames) > 1
    trained = load_vertical_tables(small.read(), tmp_path)
    expected = pd.Series(joint_scores(run.run.models, trained.matrices), index=trained.ids)
    np.testing.assert_allclose(
        scores.to_numpy(), expected.loc[score_new_parties(folder).scores.index].to_numpy(), rtol=1e-12
    )
