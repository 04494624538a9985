"""Values of parties between organisations: a job for each set of parties, compared with one process."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest
import tomli_w
from support.federation import write_shops
from test_extended_jobs import _federated
from typer.testing import CliRunner

from evenhand.cli.app import app
from evenhand.errors import DataError, JobError
from evenhand.jobs.federation.files import read_federation_job
from evenhand.jobs.federation.notices import for_submitter
from evenhand.jobs.folder import read_job
from evenhand.jobs.vertical.runs import run_vertical_job
from evenhand.jobs.vertical.values import HELD_OUT, value_run, value_runs
from evenhand.runtime.folder import RunFolder

SETS = {"all": ["bank", "shop", "phone"], "shop": ["bank", "shop"], "phone": ["bank", "phone"], "bank": ["bank"]}


def test_values_are_those_of_one_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("nacl")
    paths = write_shops(tmp_path / "sites", {"test_fraction": 0.4, "max_rounds": 60, "numbers": "standard"})
    expected = value_run(run_vertical_job(read_job(paths["together"]), tmp_path / "sites", tmp_path / "here").folder)  # type: ignore[arg-type]
    for name in SETS["all"]:
        paths[name].write_text(paths[name].read_text() + "\n[policy]\nvalues = true\n")
    content = tomllib.loads(paths["job"].read_text())
    content["job"]["values"] = True
    folders, ends = {}, dict[str, Any]()
    for run, names in SETS.items():
        members = [one for one in content["party"] if one["name"] in names]
        more = {} if run == "all" else {"extends": "all"}
        place = tmp_path / f"{run}.toml"
        place.write_text(tomli_w.dumps({"job": content["job"] | more, "party": members}))
        ends = _federated(tmp_path, paths, place, run)
        folders[run] = RunFolder.open(tmp_path / "runs" / "server" / f"{run}-server")
    assert HELD_OUT in ends["server"]
    assert HELD_OUT not in for_submitter(read_federation_job(paths["job"]), ends["server"])
    found = value_runs(list(folders.values()))
    values = {one["party"]: one for one in found["parties"]}
    for one in expected["parties"]:
        assert values[one["party"]]["value"] == pytest.approx(one["value"], abs=2e-3)
        assert values[one["party"]]["standard_error"] == pytest.approx(one["standard_error"], rel=0.1)
    done = CliRunner().invoke(app, ["value", *(str(one.path) for one in folders.values())])
    assert done.exit_code == 0, done.output
    assert json.loads((folders["all"].path / "values.json").read_text())["holder"] == "bank"

    with pytest.raises(JobError, match="no given run is of bank alone; submit the job"):
        value_runs([folders[name] for name in ("all", "shop", "phone")])
    with pytest.raises(JobError, match="not the server's folder"):
        value_runs([folders["all"], RunFolder.open(tmp_path / "runs" / "shop" / "shop")])
    told = folders["shop"].result
    told[HELD_OUT]["rows"] = "others"
    real = RunFolder.result
    monkeypatch.setattr(
        RunFolder,
        "result",
        property(lambda one: told if one.path == folders["shop"].path else real.__get__(one, RunFolder)),
    )
    with pytest.raises(DataError, match="has other held-out rows"):
        value_runs(list(folders.values()))


@pytest.mark.parametrize(
    ("section", "said"),
    [({"lost_party": "continue"}, 'set lost_party = "end"'), ({"label_privacy": {"epsilon": 1.0}}, "true labels")],
)
def test_jobs_whose_values_would_mean_nothing_are_refused(section: dict[str, Any], said: str, tmp_path: Path) -> None:
    paths = write_shops(tmp_path, {"values": True, **section})
    with pytest.raises(JobError, match=said):
        read_federation_job(paths["job"])
