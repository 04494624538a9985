"""`evenhand demo` on the real Adult data: what it prints, and what it leaves to go on with."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from evenhand.jobs.folder import read_job
from evenhand.runtime.folder import RunFolder

NAMES = ["plain", "fair", "rates", "published"]


@pytest.mark.soak
def test_the_demo_trains_compares_and_leaves_everything(evenhand: Any, adult_folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "demo"
    done = evenhand("demo", "--rounds", 20, "--out", out, "--source", adult_folder)
    assert done.returncode == 0, done.stderr
    header = next(line for line in done.stdout.splitlines() if "accuracy" in line)
    assert header.split() == ["accuracy", "DFP", "DFN", "DEO", "HM", "rounds", "bytes"]
    lines = [line.split() for line in done.stdout.splitlines() if line.startswith(tuple(f" {name}" for name in NAMES))]
    rows = {name: cells for name, *cells in lines}
    assert list(rows) == NAMES
    assert f"evenhand train {out / 'fair.toml'} --out {out / 'again'}" in done.stdout

    results = {name: RunFolder.open(out / name).result for name in NAMES}
    for name, result in results.items():
        assert RunFolder.open(out / name).finished
        assert rows[name][0] == f"{result['quality']['test']['accuracy']:.3f}"
        assert rows[name][3] == f"{result['quality']['test']['DEO']:.3f}"
        assert result["certificate"]["rounds"] <= 20
        assert result["quality"]["test"]["accuracy"] > 0.7
        job = read_job(out / f"{name}.toml")
        assert [party.role for party in job.party] == ["active"] + ["passive"] * 5
    assert results["fair"]["quality"]["test"]["DEO"] < results["plain"]["quality"]["test"]["DEO"]
    assert results["rates"]["quality"]["train"]["equalized_odds"] <= 0.01 + 1e-9

    tables = {party.name: pd.read_parquet(out / "tables" / f"{party.name}.parquet") for party in job.party}
    assert {len(table) for table in tables.values()} == {45_222}
    first, *others = (table.index for table in tables.values())
    assert all(not index.equals(first) and set(index) == set(first) for index in others)
    files = [entry for name in NAMES for entry in (name, f"{name}.toml")]
    assert sorted(path.name for path in out.iterdir()) == sorted([*files, "tables", "report.html"])
    assert f"Report page: {out / 'report.html'}" in done.stdout
    page = (out / "report.html").read_text(encoding="utf-8")
    assert all(f">{name}</button>" in page or f">{name}</a>" in page for name in NAMES)


def test_the_demo_refuses_what_it_cannot_do_and_leaves_nothing(here: Any, tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").write_text("mine")
    done = here("demo", "--out", tmp_path / "mine")
    assert done.returncode == 4
    assert "exists and is not empty; remove it, or choose another with --out" in done.stderr
    for arguments in (["--epsilon", "-1"], ["--rounds", "0"]):
        assert here("demo", "--out", tmp_path / "demo", *arguments).returncode == 2
    assert [path.name for path in tmp_path.rglob("*")] == ["mine", "notes.txt"]


def test_a_wrong_bound_is_refused_before_anything_is_written(here: Any, adult_folder: Path, tmp_path: Path) -> None:
    done = here("demo", "--epsilon", "inf", "--out", tmp_path / "demo", "--source", adult_folder)
    assert done.returncode == 2
    assert "job.constraint: epsilon is inf" in done.stderr
    assert list(tmp_path.iterdir()) == []
