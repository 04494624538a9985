"""Scores of new people by a finished run of a federation are those that one process would give."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from support.asking import PARTIES, asked, trained
from support.federation import Network, run_sites, write_shops

from evenhand.errors import EvenhandError, JobError, RunError
from evenhand.jobs.federation import predicting
from evenhand.jobs.federation.files import FederationJob, read_federation_job, read_party, run_place
from evenhand.jobs.federation.predicting import asked_run
from evenhand.jobs.federation.sites import party_program, server_program
from evenhand.jobs.folder import read_job
from evenhand.jobs.new_rows import score_new_parties
from evenhand.jobs.vertical.runs import run_vertical_job
from evenhand.models.saved import from_state
from evenhand.runtime.folder import RunFolder
from evenhand.training.run import one_blas_thread

SHARED: dict[str, Any] = {"solver": "subspace", "protection": "dealer", "max_rounds": 30, "tol": 1e-7}


@pytest.mark.parametrize(
    "job",
    [
        {"max_rounds": 20},
        SHARED,
        SHARED | {"protection": "encrypted"},
        {"solver": "trees", "model": "trees", "max_rounds": 9, "options": {"interactions": "full"}},
    ],
)
def test_scores_are_those_of_one_process(job: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if "model" in job:
        pytest.importorskip("lightgbm")
    monkeypatch.setattr(predicting, "BATCH", 16)
    paths = trained(tmp_path, job)
    run_vertical_job(read_job(paths["together"]), tmp_path, tmp_path / "run")  # type: ignore[arg-type]
    alone = score_new_parties(RunFolder.open(tmp_path / "run")).scores
    ids = [*alone.index[5:45], "nobody", *alone.index[:5]]
    told = asked(paths, tmp_path / "runs", ids)["server"]
    assert told["scores"][40] is None
    del told["scores"][40], ids[40]
    # Masked sums are in fixed point. Shares are drawn anew in each run, and cut a unit apart.
    np.testing.assert_allclose(told["scores"], alone.loc[ids, "score"], atol=1e-3 if "protection" in job else 1e-12)
    assert told["labels"] == {"negative": "no", "positive": "yes"}


def test_a_party_may_change_its_mind(tmp_path: Path) -> None:
    paths = trained(tmp_path, {"max_rounds": 20})
    paths["shop"].write_text(paths["shop"].read_text() + '\n[policy]\nsolvers = ["trees"]\n')
    ends = asked(paths, tmp_path / "runs", ["c001"])
    assert all(isinstance(end, EvenhandError) for end in ends.values())
    assert "shop: it takes no part in solver 'subspace'" in str(ends["server"])


def test_only_finished_runs_by_their_names_can_be_asked(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="not a run folder"):
        asked_run(tmp_path / "first")
    for name in ("../first", "/etc", "", "a/b", ".."):
        with pytest.raises(JobError, match="cannot be the name of a run"):
            run_place(tmp_path, name)


def test_ids_of_two_kinds_are_told_apart_and_can_be_brought_together(tmp_path: Path) -> None:
    paths = write_shops(tmp_path, {"max_rounds": 5})
    for name in PARTIES:
        table = tmp_path / name / "table.csv"
        frame = pd.read_csv(table)
        frame["id"] = frame["id"].str[1:].astype(int)
        if name == "shop":
            # Text: one id has a letter.
            frame["id"] = frame["id"].astype(str)
            frame.loc[len(frame)] = [*frame.iloc[0, :-1], "x1"]
        frame.to_csv(table, index=False)

    def run() -> dict[str, Any]:
        job = read_federation_job(paths["job"])
        assert isinstance(job, FederationJob)
        server = server_program(
            job,
            read_party(paths["bank"]),
            paths["bank"].parent,
            lambda: network.sites["server"].transcript,
            identity=paths["identity"],
        )
        parties = {name: party_program(job, read_party(paths[name]), paths[name].parent) for name in PARTIES}
        network = Network()
        programs: Any = {"server": server, **parties}
        with one_blas_thread():
            return run_sites({name: lambda _, one=one: one for name, one in programs.items()}, network)

    said = str(run()["server"])
    assert "integers at bank, text at shop" in said
    assert "text_ids = true in [job]" in said
    paths["job"].write_text(paths["job"].read_text().replace("[job]", '[job]\ntext_ids = true\nids = "inner"'))
    assert run()["server"]["certificate"]["rounds"] > 0


def test_with_shared_weights_nobody_has_a_partys_weights_and_the_dealer_is_needed(tmp_path: Path) -> None:
    paths = trained(tmp_path, SHARED)
    for name in ("shop", "phone"):
        folder = RunFolder.open(tmp_path / "runs" / name / "first")
        state = folder.read_party(name, "weights")
        assert (state["model"], "weights" in state) == ("share", False)
        with pytest.raises(RunError, match="score rows with all participants: evenhand predict --remote"):
            from_state(state).predict(np.zeros((1, state["columns"])))
    share = RunFolder.open(tmp_path / "runs" / "shop" / "first").read_party("shop", "weights")
    kept = RunFolder.open(tmp_path / "runs" / "server" / "first").read_share("shop")
    assert kept["columns"] == share["columns"] > 3
    del paths["notary"]
    ends = asked(paths, tmp_path / "runs", ["c001"])
    assert all(isinstance(end, EvenhandError) for end in ends.values()), ends
