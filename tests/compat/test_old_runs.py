"""Run folders of 0.1.0: finished ones score rows as they did then, unfinished ones are refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from support.tables import files
from typer.testing import CliRunner

from evenhand.cli.app import app
from evenhand.errors import EvenhandWarning, RunError
from evenhand.jobs.file import read_job
from evenhand.jobs.horizontal.file import HorizontalJobFile
from evenhand.jobs.horizontal.runs import run_horizontal_job, score_clients
from evenhand.jobs.vertical.runs import run_vertical_job, score_parties
from evenhand.runtime.folder import RunFolder

pytestmark = pytest.mark.filterwarnings("ignore:.*was written by evenhand 0.1.0.*cannot be checked")
RUNS = ("vertical-subspace", "vertical-vfb2", "vertical-mlp", "horizontal-sqp", "horizontal-mlp")


def assert_scores_are_those_of_then(found: pd.DataFrame, left: Path, run: str) -> None:
    expected = pd.read_csv(left / "expected" / f"{run}.csv", index_col=list(range(found.index.nlevels)))
    # Perceptrons across clients are in single precision.
    tolerance = 1e-5 if run == "horizontal-mlp" else 1e-12
    pd.testing.assert_frame_equal(found, expected, check_dtype=False, check_index_type=False, atol=tolerance, rtol=0)


@pytest.mark.parametrize("run", RUNS)
def test_a_finished_run_scores_as_it_did(run: str, left: Path) -> None:
    if run.endswith("mlp"):
        pytest.importorskip("torch")
    folder = RunFolder.open(left / "runs" / run)
    score = score_clients if run.startswith("horizontal") else score_parties
    assert_scores_are_those_of_then(score(folder), left, run)


@pytest.mark.parametrize("run", ["vertical-subspace", "horizontal-sqp"])
@pytest.mark.parametrize("with_job", [False, True])
def test_the_command_line_scores_with_it(run: str, with_job: bool, left: Path) -> None:
    """Also with the job file of then."""
    words = ["predict", str(left / "runs" / run), "--out", str(left / "scores.csv")]
    result = CliRunner().invoke(app, [*words, *(["--job", str(left / f"{run}.toml")] if with_job else [])])
    assert result.exit_code == 0, result.output
    keys = [0, 1] if run.startswith("horizontal") else [0]
    assert_scores_are_those_of_then(pd.read_csv(left / "scores.csv", index_col=keys), left, run)


@pytest.mark.parametrize("run", RUNS)
def test_a_finished_run_is_whole(run: str, left: Path) -> None:
    """Certificate, quality and transcript are read as well as weights."""
    folder = RunFolder.open(left / "runs" / run)
    assert folder.finished
    assert {"certificate", "quality", "intervals", "labels"} <= folder.result.keys()
    entries = folder.read_lines("transcript.jsonl")
    assert sum(entry["nbytes"] for entry in entries) == folder.result["bytes"]


@pytest.mark.parametrize("run", ["vertical-unfinished", "horizontal-unfinished"])
def test_an_unfinished_run_is_refused_and_left_as_it_is(run: str, left: Path) -> None:
    out, job = left / "runs" / run, read_job(left / f"{run}.toml")
    before = files(out)
    assert any("checkpoints" in name for name in before)
    train: Any = run_horizontal_job if isinstance(job, HorizontalJobFile) else run_vertical_job
    with pytest.raises(RunError, match=r"begun by evenhand 0\.1\.0.*start it anew in another folder"):
        train(job, left, out, resume=True)
    assert files(out) == before


def test_a_job_of_then_can_be_started_anew(left: Path) -> None:
    """The runtime that its file calls "roles" is called "messages" now."""
    assert 'runtime = "roles"' in (left / "vertical-vfb2.toml").read_text()
    job = read_job(left / "vertical-vfb2.toml")
    assert not isinstance(job, HorizontalJobFile)
    folder = run_vertical_job(job, left, left / "anew").folder
    assert folder.finished
    assert folder.description["job"]["runtime"] == "messages"


@pytest.mark.filterwarnings("always")
def test_that_a_run_of_then_cannot_be_checked_is_said_once(left: Path) -> None:
    with pytest.warns(EvenhandWarning) as told:
        score_parties(RunFolder.open(left / "runs" / "vertical-subspace"))
    assert [str(one.message) for one in told] == [
        f"{left / 'runs' / 'vertical-subspace'} was written by evenhand 0.1.0, which kept no digests: whether its "
        "files are those of the run cannot be checked"
    ]
