"""`evenhand predict`: scores to the screen, to CSV and to Parquet, of the run's own rows and of new ones."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from support.federation import write_shops
from support.tables import SmallJob

from evenhand.jobs.new_rows import score_new_parties
from evenhand.runtime.folder import RunFolder


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> SmallJob:
    small = SmallJob(tmp_path_factory.mktemp("trained"))
    small.run()
    return small


def same(one: pd.DataFrame, other: pd.DataFrame) -> None:
    assert list(one.index) == list(other.index)
    pd.testing.assert_frame_equal(one, other, check_dtype=False, check_index_type=False, rtol=1e-12)


def test_scores_reach_screen_csv_and_parquet(evenhand: Any, here: Any, trained: SmallJob, tmp_path: Path) -> None:
    expected = score_new_parties(RunFolder.open(trained.folder / "run")).scores
    done = evenhand("predict", trained.folder / "run")
    assert done.returncode == 0
    assert "quality on scored rows" in done.stderr
    same(pd.read_csv(io.StringIO(done.stdout), index_col="customer"), expected)
    for name in ("scores.csv", "scores.parquet"):
        done = here("predict", trained.folder / "run", "--out", tmp_path / name)
        assert (done.returncode, done.stdout) == (0, "")
        assert f"120 rows scored into {tmp_path / name}" in done.stderr
    same(pd.read_csv(tmp_path / "scores.csv", index_col="customer"), expected)
    same(pd.read_parquet(tmp_path / "scores.parquet"), expected)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["scores.csv", "scores.parquet"]


def test_new_tables_are_named_on_the_line_or_in_a_job_file(here: Any, trained: SmallJob, tmp_path: Path) -> None:
    new = SmallJob(tmp_path / "tuesday", rows=25, seed=3)
    path = new.write()
    given = [f"--table={name}={new.folder / f'{name}.csv'}" for name in new.frames]
    by_table = here("predict", trained.folder / "run", *given)
    assert by_table.returncode == 0, by_table.stderr
    # The new job's own paths start at the new job file, not at the one the run was trained from.
    by_job = here("predict", trained.folder / "run", "--job", path)
    assert by_job.stdout == by_table.stdout
    scores = pd.read_csv(io.StringIO(by_job.stdout), index_col="customer")
    assert sorted(scores.index) == list(new.frames["bank"].index)


def test_what_cannot_be_scored_is_refused_and_writes_nothing(here: Any, trained: SmallJob, tmp_path: Path) -> None:
    run, shop = trained.folder / "run", trained.folder / "shop.csv"
    cases: list[tuple[list[Any], int, str]] = [
        ([run, "--table", "shop"], 2, "write it as NAME=FILE"),
        ([run, "--table", f"shpo={shop}"], 2, "no party is called 'shpo'"),
        ([run, "--table", f"shop={tmp_path / 'none.csv'}"], 2, "party 'shop': there is no file"),
        ([run, "--job", tmp_path / "none.toml"], 2, "there is no job file"),
        ([tmp_path / "nowhere"], 4, "is not a run folder"),
        ([run, "--deadline", 30], 2, "--deadline is for --remote"),
    ]
    for arguments, code, words in cases:
        done = here("predict", *arguments, "--out", tmp_path / "scores.csv")
        assert (done.returncode, done.stdout) == (code, ""), done.stderr
        assert words in done.stderr
        assert "Traceback" not in done.stderr
    for out, words in {"scores.txt": "must end in .csv or .parquet", "none/scores.csv": "does not exist"}.items():
        done = here("predict", run, "--out", tmp_path / out)
        assert done.returncode == 2
        assert words in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_damaged_run_is_told(here: Any, tmp_path: Path) -> None:
    small = SmallJob(tmp_path)
    small.content["job"]["max_rounds"] = 2
    small.run()
    weights = tmp_path / "run" / "parties" / "shop" / "weights.safetensors"
    weights.write_bytes(weights.read_bytes()[:30])
    done = here("predict", tmp_path / "run")
    assert (done.returncode, done.stdout) == (4, "")
    assert str(weights) in done.stderr


def test_a_party_that_is_away_is_left_out(here: Any, tmp_path: Path) -> None:
    job = {"ids": "left", "missing_party": "absent", "max_rounds": 20}
    paths = write_shops(tmp_path, job)
    table = tmp_path / "shop" / "table.csv"
    table.write_text("\n".join(table.read_text().splitlines()[:80]) + "\n")
    assert here("train", paths["together"], "--out", tmp_path / "run").returncode == 0
    done = here("predict", tmp_path / "run", "--absent", "shop", "--out", tmp_path / "scores.csv")
    assert done.returncode == 0, done.stderr
    assert set(pd.read_csv(tmp_path / "scores.csv")["parties"]) == {"bank + phone"}
    done = here("predict", tmp_path / "run", "--absent", "bank")
    assert done.returncode != 0
    assert "bank holds the labels" in done.stderr
