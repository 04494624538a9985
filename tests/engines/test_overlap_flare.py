"""Rows that not everybody has, on NVIDIA FLARE: training, scores without a party that is away, joining and leaving."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

pytest.importorskip("nvflare", reason="make federation runs these in an environment with NVIDIA FLARE")

from support.shops import PARTIES, Shops, running_shops

from evenhand.jobs.federation.client import connect, run_to_end
from evenhand.jobs.federation.files import FederationJob, read_federation_job
from evenhand.jobs.folder import read_job
from evenhand.jobs.vertical.runs import run_vertical_job

pytestmark = [pytest.mark.soak, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def shops(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shops]:
    """Shop lacks thirty rows, and phone thirty others."""
    with running_shops(tmp_path_factory.mktemp("overlap"), protection="none") as running:
        for name, rows in (("shop", slice(0, 90)), ("phone", slice(30, None))):
            table = running.paths[name].with_name("table.csv")
            pd.read_csv(table).iloc[rows].to_csv(table, index=False)
        yield running


@pytest.fixture(scope="module")
def trained(shops: Shops) -> dict[str, Any]:
    return shops.submit(ids="left", missing_party="absent")


def together(shops: Shops, out: Path, **job: Any) -> Any:
    """The same job in one process."""
    content = read_job(shops.paths["together"])
    content = content.model_copy(update={"job": content.job.model_copy(update=job)})
    return run_vertical_job(content, shops.paths["together"].parent, out)  # type: ignore[arg-type]


def test_all_rows_of_the_label_holder_train(shops: Shops, trained: dict[str, Any], tmp_path: Path) -> None:
    alone = together(shops, tmp_path / "run", ids="left", missing_party="absent")
    assert trained["result"]["certificate"]["objective"] == pytest.approx(alone.run.certificate.objective, rel=1e-9)
    assert set(trained["result"]["absence"]) == {"shop", "phone"}


def test_no_message_says_who_has_which_row(shops: Shops, tmp_path: Path) -> None:
    found = shops.submit(ids="hidden-left", protection="masked")["result"]
    alone = together(shops, tmp_path / "run", ids="hidden-left", protection="masked")
    assert found["certificate"]["objective"] == pytest.approx(alone.run.certificate.objective, rel=1e-5)
    assert "presence" not in found
    for name in PARTIES:
        kinds = {one["kind"] for one in shops.side(name).read_lines("transcript.jsonl")}
        assert "presence" not in kinds


def test_scores_name_the_parties_that_they_rest_on(shops: Shops, trained: dict[str, Any]) -> None:
    found = asked(shops, trained["run"])
    assert len(found) == 120
    assert found.set_index("id")["parties"].to_dict() == those_that_have(shops, "shop", "phone")


def test_a_party_that_has_not_joined_by_the_deadline_is_absent(shops: Shops, trained: dict[str, Any]) -> None:
    shops.running["shop"].stop()
    try:
        found = asked(shops, trained["run"], "--deadline", "5")
    finally:
        shops.start("shop")
    assert len(found) == 120
    assert found.set_index("id")["parties"].to_dict() == those_that_have(shops, "phone")


def test_a_party_leaves_and_comes_back(shops: Shops, trained: dict[str, Any]) -> None:
    """Each run begins where the one before it ended, and ends where training anew does."""
    content = read_federation_job(shops.paths["job"])
    assert isinstance(content, FederationJob)
    fewer = [one for one in content.party if one.name != "shop"]
    changes = {"ids": "left", "tol": 1e-8}
    with connect(shops.folder / "kits" / "admin", 120.0) as federation:

        def submit(party: Any, **more: Any) -> Any:
            job = FederationJob(job=content.job.model_copy(update=changes | more), party=party)
            return run_to_end(federation, job, "shops", print)

        left = submit(fewer, extends=trained["run"])
        anew = submit(fewer)
        back = submit(content.party, extends=left.run)
    for one, other in ((left.result, anew.result), (back.result, trained["result"])):
        objective = other["certificate"]["objective"]
        assert one["certificate"]["objective"] == pytest.approx(objective, rel=1e-3)
    assert left.result["certificate"]["rounds"] <= anew.result["certificate"]["rounds"]


def those_that_have(shops: Shops, *names: str) -> dict[str, str]:
    """For each person of the label holder the parties of the model that have its row."""
    tables = {name: set(pd.read_csv(shops.paths[name].with_name("table.csv"))["id"]) for name in ("bank", *names)}
    return {one: " + ".join(name for name, ids in tables.items() if one in ids) for one in tables["bank"]}


def asked(shops: Shops, run: str, *more: str) -> pd.DataFrame:
    """Scores of all people of the label holder."""
    ids, out = shops.folder / "ids.csv", shops.folder / f"{np.random.default_rng().integers(2**40)}.csv"
    pd.read_csv(shops.paths["bank"].with_name("table.csv"))[["id"]].to_csv(ids, index=False)
    kit = str(shops.folder / "kits" / "admin")
    words = [sys.executable, "-m", "evenhand", "predict", "--remote", run, str(ids), "--kit", kit, "--out", str(out)]
    env = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    told = subprocess.run([*words, *more], env=env, capture_output=True, text=True)
    assert told.returncode == 0, told.stderr
    return pd.read_csv(out)
