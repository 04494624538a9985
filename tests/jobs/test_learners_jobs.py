"""Job files with `solver = "learners"`: a model in each party's section, own code, run folders, resuming, new rows."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from support.tables import SmallJob, files

from evenhand.errors import InputError, JobError, RunError
from evenhand.jobs.exporting import export_onnx
from evenhand.jobs.new_rows import score_new_parties
from evenhand.jobs.vertical.learners import MODEL_CODE, section_learner
from evenhand.jobs.vertical.runs import run_vertical_job
from evenhand.models.learning.linear import LinearLearner
from evenhand.models.learning.regressor import RegressorLearner
from evenhand.report.record import RunRecord
from evenhand.runtime.folder import RunFolder

OWN = """
from sklearn.ensemble import RandomForestRegressor


def forest(trees=3):
    return RandomForestRegressor(trees, max_depth=3)


def broken():
    raise OSError("no disk")


def number():
    return 3
"""


@pytest.fixture
def code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A module of a party's own, which the machine allows."""
    name = f"own_models_{abs(hash(str(tmp_path)))}"
    (tmp_path / f"{name}.py").write_text(OWN)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv(MODEL_CODE, f"something.else, {name}")
    return name


def learners_job(folder: Path, **models: object) -> SmallJob:
    small = SmallJob(folder, 160)
    small.content["job"] |= {
        "solver": "learners",
        "max_rounds": 3,
        "constraint": {"kind": "equal-opportunity", "epsilon": 0.1, "measure": "error"},
        "options": {"folds": 2, "patience": 9},
    }
    for party in small.content["party"]:
        if party["name"] in models:
            party["model"] = models[party["name"]]
    return small


def weights(folder: Path) -> dict[str, bytes]:
    return {name: (folder / name).read_bytes() for name in files(folder) if name.endswith("weights.safetensors")}


def test_a_run_with_own_code_is_resumed_and_scores_new_rows(tmp_path: Path, code: str) -> None:
    pytest.importorskip("skops")
    model = {"kind": f"{code}:forest", "trees": 4}
    whole = learners_job(tmp_path / "whole", shop=model, bank="curves").run()
    assert whole.result["statistics"]["rounds kept"] > 0
    small, rounds = learners_job(tmp_path / "killed", shop=model, bank="curves"), []

    def killed(report: dict[str, float]) -> None:
        rounds.append(report["round"])
        if len(rounds) == 2:
            raise KeyboardInterrupt

    place = tmp_path / "killed"
    with pytest.raises(KeyboardInterrupt):
        run_vertical_job(small.read(), place, place / "run", on_round=killed, checkpoint_seconds=0.0)
    run_vertical_job(small.read(), place, place / "run", resume=True, checkpoint_seconds=0.0)
    one, other = (score_new_parties(RunFolder.open(tmp_path / name / "run")).scores for name in ("whole", "killed"))
    pd.testing.assert_frame_equal(one, other)
    assert len(one) == 160


def test_a_model_of_own_code_is_not_read_where_the_code_is_not_allowed(
    tmp_path: Path, code: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("skops")
    learners_job(tmp_path / "job", shop=f"{code}:forest").run()
    folder = RunFolder.open(tmp_path / "job" / "run")
    monkeypatch.setenv(MODEL_CODE, "")
    with pytest.raises(JobError, match="does not allow"):
        score_new_parties(folder)


def test_code_is_called_only_where_the_machine_lists_its_module(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mark = tmp_path / "called"
    monkeypatch.delenv(MODEL_CODE, raising=False)
    job = learners_job(tmp_path / "job", shop={"kind": "os:mkdir", "path": str(mark)})
    with pytest.raises(JobError, match=f"names code in 'os', which this machine does not allow.*{MODEL_CODE}=os"):
        job.run()
    assert not mark.exists()


@pytest.mark.parametrize(
    ("model", "match"),
    [
        ("forest", "key model is 'forest'; choose linear, curves, mlp, trees, or name a function"),
        ({"kind": "linear", "hidden": [3]}, "key model.hidden is no setting of 'linear'; there are l2"),
        ({"kind": "linear", "l2": -1.0}, "key model: l2 is -1.0"),
        ("os.path:", "name a function of your own"),
        ("__import__('os')", "name a function of your own"),
    ],
)
def test_a_model_that_cannot_be_is_refused(model: object, match: str) -> None:
    with pytest.raises(JobError) as error:
        section_learner(model)  # type: ignore[arg-type]
    assert match in str(error.value)


@pytest.mark.parametrize(
    ("name", "match"),
    [
        ("broken", "failed: OSError: no disk"),
        ("number", "gave no model that can be fitted"),
        ("nothing", "failed: AttributeError"),
    ],
)
def test_a_function_that_makes_no_model_is_refused(code: str, name: str, match: str) -> None:
    with pytest.raises(JobError, match=match):
        section_learner(f"{code}:{name}")


def test_settings_reach_the_learner(code: str) -> None:
    assert section_learner({"kind": "linear", "l2": 0.5}) == LinearLearner(l2=0.5)
    assert section_learner("curves").encoding == "curves"
    found = section_learner({"kind": f"{code}:forest", "trees": 7, "columns": "as_is", "trusted": ["a.b"]})
    assert isinstance(found, RegressorLearner)
    assert (found.regressor.n_estimators, found.encoding, found.trusted) == (7, "as_is", ("a.b",))


def test_a_party_s_model_needs_the_solver(tmp_path: Path) -> None:
    small = learners_job(tmp_path, shop="linear")
    small.content["job"] |= {"solver": "subspace", "options": {}}
    with pytest.raises(JobError, match='models of a party\'s own choice need solver = "learners"'):
        small.run()
    small.content["job"] |= {"model": "trees"}
    with pytest.raises(JobError, match=r"job\.model is 'trees', but a party names a model of its own"):
        small.read()


def test_raw_columns_reach_a_pipeline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("skops")
    name = f"own_pipeline_{abs(hash(str(tmp_path)))}"
    (tmp_path / f"{name}.py").write_text(
        "from sklearn.compose import make_column_transformer\n"
        "from sklearn.linear_model import Ridge\n"
        "from sklearn.pipeline import make_pipeline\n"
        "from sklearn.preprocessing import OneHotEncoder\n\n"
        "def cities():\n"
        "    columns = make_column_transformer((OneHotEncoder(handle_unknown='ignore'), ['city']))\n"
        "    return make_pipeline(columns, Ridge())\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv(MODEL_CODE, name)
    learners_job(tmp_path / "job", bank={"kind": f"{name}:cities", "columns": "raw"}).run()
    folder = RunFolder.open(tmp_path / "job" / "run")
    scores = score_new_parties(folder).scores["score"]
    assert np.isfinite(scores).all()
    assert len(np.unique(scores)) > 10


def test_a_damaged_model_is_refused(tmp_path: Path) -> None:
    learners_job(tmp_path).run()
    shutil.copy(tmp_path / "run/parties/bank/weights.safetensors", tmp_path / "run/parties/shop/weights.safetensors")
    with pytest.raises(RunError):
        score_new_parties(RunFolder.open(tmp_path / "run"))


def test_models_of_a_partys_own_choice_are_not_exported(tmp_path: Path) -> None:
    pytest.importorskip("onnx")
    small = learners_job(tmp_path)
    small.content["job"]["max_rounds"] = 1
    with pytest.raises(InputError, match="a party's own choice"):
        export_onnx(small.run().folder)


def test_the_report_shows_columns_by_permutation(tmp_path: Path) -> None:
    learners_job(tmp_path, shop="linear").run()
    found = RunRecord.read(tmp_path / "run").importances
    assert set(found) == {"bank", "shop", "social"}
    spent, visits = found["shop"][["spent", "visits"]]
    assert spent > 2.0 * visits >= 0.0
