"""Jobs that start from an earlier run: a party joins, a party leaves."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import tomli_w
from support.federation import Network, run_sites, write_shops

from evenhand.cli import main
from evenhand.errors import ColumnWarning, JobError
from evenhand.jobs.federation.dispatch import party_part, server_part
from evenhand.jobs.federation.files import read_federation_job, run_place, site_env
from evenhand.jobs.federation.folders import side_folder
from evenhand.jobs.folder import read_job
from evenhand.jobs.vertical.extending import extending, without_parties
from evenhand.jobs.vertical.file import VerticalJobFile, parse_vertical
from evenhand.jobs.vertical.runs import FinishedVerticalRun, load_vertical_tables, run_vertical_job
from evenhand.runtime.folder import RunFolder
from evenhand.runtime.site import Site
from evenhand.training.run import one_blas_thread

FAIR = {"kind": "equal-opportunity", "epsilon": 0.02}


def _job(folder: Path, **more: Any) -> VerticalJobFile:
    found = read_job(write_shops(folder, {"test_fraction": 0.2, "max_rounds": 60, **more})["together"])
    assert isinstance(found, VerticalJobFile)
    return found


def _rounds_to(run: FinishedVerticalRun, objective: float, within: float) -> int:
    """Rounds until the objective stays within a share of another, with all constraints met."""
    near = (run.run.history["objective"] <= objective * (1 + within)) & (run.run.history["violation"] <= 1e-6)
    return len(near) - int(np.argmin(near.to_numpy()[::-1])) if not near.all() else 0


@pytest.mark.parametrize("more", [{}, {"constraint": FAIR}, {"protection": "none", "constraint": FAIR}])
def test_a_party_joins_or_leaves_within_three_rounds(more: dict[str, Any], tmp_path: Path) -> None:
    job = _job(tmp_path, **more)
    few = without_parties(job, ["shop"])
    whole = run_vertical_job(job, tmp_path, tmp_path / "whole")
    smaller = run_vertical_job(few, tmp_path, tmp_path / "smaller")
    for anew, changed, earlier in ((whole, job, "smaller"), (smaller, few, "whole")):
        run = run_vertical_job(extending(changed, tmp_path / earlier), tmp_path, tmp_path / f"from {earlier}")
        assert run.run.certificate.converged
        assert abs(run.run.certificate.objective / anew.run.certificate.objective - 1) <= 1e-3
        assert _rounds_to(run, float(anew.run.certificate.objective), 1e-3) <= 3
        assert run.folder.read_party("bank", "encoder") == anew.folder.read_party("bank", "encoder")


def test_an_unchanged_job_is_at_its_end_at_once(tmp_path: Path) -> None:
    job = _job(tmp_path, constraint=FAIR)
    first = run_vertical_job(job, tmp_path, tmp_path / "first")
    again = run_vertical_job(extending(job, tmp_path / "first"), tmp_path, tmp_path / "again")
    assert again.run.certificate.rounds <= 1
    for name in first.run.models:
        np.testing.assert_allclose(again.run.models[name].weights, first.run.models[name].weights, atol=2e-2)


def test_the_command_extends_and_leaves_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    _job(tmp_path)
    for command in ("--out first", "--out second --extend first --without shop"):
        monkeypatch.setattr("sys.argv", ["evenhand", "train", "together.toml", "--quiet", *command.split()])
        with pytest.raises(SystemExit, match="0"):
            main()
    found = RunFolder.open(Path("second"))
    assert sorted(found.owners) == ["bank", "phone"]
    assert found.description["job"]["extends"] == str((tmp_path / "first").absolute())


def test_runs_that_nothing_can_start_from_are_refused(tmp_path: Path) -> None:
    job = _job(tmp_path)
    with pytest.raises(JobError, match="no party is called 'clinic'"):
        without_parties(job, ["clinic"])
    with pytest.raises(JobError, match="bank holds the label"):
        without_parties(job, ["bank"])
    with pytest.raises(JobError, match="for linear models; the model is 'trees'"):
        _job(tmp_path / "trees", model="trees", extends="x")

    def stop(_: Any) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_vertical_job(job, tmp_path, tmp_path / "half", on_round=stop, checkpoint_seconds=0.0)
    with pytest.raises(JobError, match="has not finished"):
        run_vertical_job(extending(job, tmp_path / "half"), tmp_path, tmp_path / "next")


def test_jobs_that_encode_otherwise_are_refused(tmp_path: Path) -> None:
    """The encoder of the earlier run stays: a monotone column would not be, and a group could be a feature."""
    job = _job(tmp_path, protection="none", numbers="standard", max_rounds=2)
    run = run_vertical_job(job, tmp_path, tmp_path / "run").folder.path

    def start(party: str = "", section: dict[str, Any] | None = None, **more: Any) -> None:
        content = extending(job, run).model_dump(exclude_unset=True)
        content["job"] |= section or {}
        next((one for one in content["party"] if one["name"] == party), {}).update(more)
        load_vertical_tables(parse_vertical(content, "job"), tmp_path)

    with pytest.raises(JobError, match=r"key monotone of party 'shop' is not that of .*run"):
        start("shop", monotone={"visits": "down"})
    with pytest.raises(JobError, match=r"key numbers of party 'shop'"):
        start("shop", numbers={"visits": "bins"})
    with pytest.raises(JobError, match=r"key scale of \[job\]"):
        start(section={"scale": False})
    with pytest.raises(JobError, match="columns debt, which are no features now"):
        start("bank", sensitive=["sex", "debt"])
    table = tmp_path / "shop" / "table.csv"
    pd.read_csv(table).assign(new=1.0).to_csv(table, index=False)
    with pytest.warns(ColumnWarning, match="columns new were no features in the run"):
        start()


def _federated(folder: Path, paths: dict[str, Path], job: Path, run: str) -> dict[str, Any]:
    """Run a job between organisations and keep each side's folder, as the engines do."""
    content = read_federation_job(job)
    envs = {name: site_env(paths[name], str(folder / "runs" / name)) for name in content.parts}
    servers = site_env(paths["bank"], str(folder / "runs" / "server"))

    def server(site: Site) -> Any:
        return server_part(content, lambda: servers, lambda: site.transcript, identity=paths["identity"], run=run)

    def party(name: str) -> Any:
        return lambda _: party_part(content, envs[name], None, run=run)

    with one_blas_thread():
        ends = run_sites({"server": server, **{name: party(name) for name in content.parts}}, Network())
    for name, end in ends.items():
        assert not isinstance(end, Exception), ends
        env = servers if name == "server" else envs[name]
        with side_folder(run_place(env.runs, run, at_server=name == "server"), name, content, env, False) as side:
            side.finish(end if name == "server" else end.write(side.folder))
    return ends


def test_parties_go_on_from_their_own_folders_between_organisations(tmp_path: Path) -> None:
    paths = write_shops(tmp_path / "sites", {"test_fraction": 0.2, "max_rounds": 60})
    content = tomllib.loads(paths["job"].read_text())

    def changed(name: str, parties: list[str], **more: Any) -> Path:
        members = [one for one in content["party"] if one["name"] in parties]
        path = tmp_path / f"{name}.toml"
        path.write_text(tomli_w.dumps({"job": content["job"] | more, "party": members}))
        return path

    whole = _federated(tmp_path, paths, paths["job"], "whole")
    _federated(tmp_path, paths, changed("first", ["bank", "phone"]), "first")
    joined = _federated(tmp_path, paths, changed("joined", ["bank", "shop", "phone"], extends="first"), "joined")
    left = _federated(tmp_path, paths, changed("left", ["bank", "phone"], extends="joined"), "left")
    first = json.loads((tmp_path / "runs" / "server" / "first-server" / "result.json").read_text())
    for end, anew in ((joined["server"], whole["server"]), (left["server"], first)):
        ratio = end["certificate"]["objective"] / anew["certificate"]["objective"]
        assert abs(ratio - 1) <= 1e-3
        assert end["certificate"]["rounds"] <= anew["certificate"]["rounds"]
    with pytest.raises(AssertionError, match="the server has no run 'monday'"):
        _federated(tmp_path, paths, changed("none", ["bank", "phone"], extends="monday"), "none")


def test_other_classes_than_those_of_the_earlier_run_are_refused(tmp_path: Path) -> None:
    job = _job(tmp_path, protection="none", max_rounds=2)
    run = run_vertical_job(job, tmp_path, tmp_path / "run").folder.path
    table = tmp_path / "bank" / "table.csv"
    frame = pd.read_csv(table)
    frame["good"] = frame["good"].where(frame["income"] < 1, "perhaps")
    frame.to_csv(table, index=False)
    content = extending(job, run).model_dump(exclude_unset=True)
    content["party"][0]["label"] = {"column": "good", "classes": ["no", "perhaps", "yes"]}
    with pytest.raises(JobError, match=r"run has two labels, and this job has 3 classes.*or train anew"):
        load_vertical_tables(parse_vertical(content, "job"), tmp_path)


def test_a_partys_own_model_with_another_solver_is_refused(tmp_path: Path) -> None:
    content = _job(tmp_path).model_dump(exclude_unset=True)
    content["job"]["solver"] = "subspace"
    content["party"][1]["model"] = "mlp"
    with pytest.raises(JobError, match='own choice need solver = "learners"; set that, or remove the party\'s model'):
        parse_vertical(content, "job")
