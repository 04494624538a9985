"""`evenhand audit`: of a finished run and of a planned one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from support.hospitals import HospitalJob
from support.tables import SmallJob


@pytest.fixture(autouse=True)
def _quick_attacks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small forests, and no run repeated without a person: what attacks find is tested in `auditing`."""
    monkeypatch.setattr("evenhand.auditing.learners.TREES", 5)
    monkeypatch.setattr("evenhand.training.auditing._again", lambda *_: None)


@pytest.fixture
def small(tmp_path: Path) -> SmallJob:
    return SmallJob(tmp_path)


def test_a_run_is_audited_from_its_folder(here: Any, small: SmallJob) -> None:
    folder = small.folder / "run"
    here("train", small.write(), "--out", folder, "--quiet")
    done = here("audit", folder)
    assert (done.returncode, done.stderr) == (0, "")
    content = json.loads((folder / "audit.json").read_text(encoding="utf-8"))
    sentences = [line for one in content["participants"].values() for line in one["sentences"]]
    assert any("can infer each person's label with certainty" in line for line in sentences)
    for line in sentences:
        assert line in done.stdout
    assert (folder / "audit.png").stat().st_size > 1000
    assert done.stdout.splitlines()[-1] == str(folder / "audit.json")


def test_tables_that_have_changed_since_are_noticed(here: Any, small: SmallJob) -> None:
    folder = small.folder / "run"
    here("train", small.write(), "--out", folder, "--quiet")
    table = next(small.folder.glob("*.csv"))
    rows = pd.read_csv(table)
    number = rows.select_dtypes("float").columns[-1]
    rows[number] = rows[number].to_numpy()[::-1]
    rows.to_csv(table, index=False)
    done = here("audit", folder)
    assert done.returncode == 4
    assert "the tables have changed" in done.stderr


def test_a_plan_says_what_goes_to_whom_without_any_table(here: Any, small: SmallJob) -> None:
    job = small.write()
    for table in small.folder.glob("*.csv"):
        table.unlink()
    done = here("audit", "--plan", job)
    assert (done.returncode, done.stderr) == (0, "")
    assert "This message discloses labels and groups" in " ".join(done.stdout.split())
    assert "server would receive:" in done.stdout


def test_a_plan_between_organisations_names_the_dealer(here: Any, tmp_path: Path) -> None:
    job = tmp_path / "job.toml"
    members = {"bank": "active", "shop": "passive", "phone": "passive", "notary": "dealer"}
    parties = [f'[[party]]\nname = "{name}"\nrole = "{role}"' for name, role in members.items()]
    job.write_text("\n".join(['[job]\nprotection = "dealer"\nallow_experimental = true\nids = "private"', *parties]))
    done = here("audit", "--plan", job)
    assert (done.returncode, done.stderr) == (0, "")
    assert "notary would receive:" in done.stdout
    assert "joining, by shop, phone" in done.stdout
    assert "fully-blinded-ids, by" in done.stdout
    assert "masked-partial-scores, by shop, phone" in done.stdout
    assert "  derivative, by" not in done.stdout


def test_a_plan_across_clients(here: Any, tmp_path: Path) -> None:
    hospitals = HospitalJob(tmp_path)
    done = here("audit", "--plan", hospitals.write())
    assert (done.returncode, done.stderr) == (0, "")
    assert "sqp judged, by" in done.stdout


def test_a_run_across_clients_is_audited(here: Any, tmp_path: Path) -> None:
    hospitals = HospitalJob(tmp_path)
    here("train", hospitals.write(), "--out", tmp_path / "run", "--quiet")
    done = here("audit", tmp_path / "run", "--quiet")
    assert (done.returncode, done.stderr) == (0, "")
    assert "who is among the rows of lyon" in done.stdout


def test_a_job_file_without_plan_is_refused_with_the_way_out(here: Any, small: SmallJob) -> None:
    done = here("audit", small.write())
    assert done.returncode == 2
    assert "--plan" in done.stderr
