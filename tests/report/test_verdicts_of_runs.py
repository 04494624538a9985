"""Verdicts of real runs: green only if the rows that were held out support it."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.tables import SmallJob

from evenhand.constraints.kinds import KINDS
from evenhand.constraints.proving import critical_value
from evenhand.errors import EvenhandError
from evenhand.jobs.new_rows import score_new_parties
from evenhand.report.page.assemble import make_page
from evenhand.report.record import RunRecord
from evenhand.report.verdicts import verdicts, worst

GREEN = 'class="answer met"'


def generated_job(folder: Path, seed: int) -> SmallJob:
    """Small tables and a random bound: few rows overfit, so that held-out rows often contradict it."""
    random = np.random.default_rng(seed)
    rows = int(random.choice([100, 200, 600]))
    job = SmallJob(folder, rows=rows, seed=seed)
    for number in range(int(random.choice([0, 30]))):
        job.frames["shop"][f"noise {number}"] = random.normal(size=rows)
    kind = str(random.choice([one for one in KINDS if one != "loss-parity"]))
    name, bound = ("limit" if kind == "neyman-pearson" else "epsilon"), float(random.choice([0.01, 0.05, 0.3]))
    measure = str(random.choice(["error", "positive"]))
    job.content["job"] = {
        "constraint": {"kind": kind, name: bound, "measure": measure},
        "seed": seed,
        "alpha": 1e-6,
        "max_rounds": 12,
        **({"threshold": float(random.choice([0.2, 0.5, 0.7]))} if random.random() < 0.5 else {}),
        "test_fraction": 0.0 if random.random() < 0.1 else 0.2,
    }
    return job


def check_verdict(folder: Path, seed: int) -> str | None:
    """Train one generated job, and compare its verdict and its page with the numbers; None if it is refused."""
    job = generated_job(folder, seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            run = job.run("run")
        except EvenhandError:
            return None
    result = run.result
    state, page = worst(verdicts(result)), make_page([RunRecord.read(run.folder.path)])
    green = GREEN in page
    held = result["constraints"].get("test", [])
    for one in [*result["constraints"]["train"], *held]:
        if one["estimate"] is None or one["estimate"] > one["asked"] + 1e-6 + 1e-4 * one["asked"]:
            assert not green
    if not held or any(one["bound"] is None or one["bound"] > one["asked"] for one in held):
        assert not green
    if any(
        one["estimate"] - critical_value(0.9545, one["comparisons"]) * one["standard_error"] > one["asked"]
        for one in held
    ):
        assert state in ("missed", "contradicted")
        assert 'class="answer missed"' in page
    assert green == (state == "shown" and result["certificate"]["converged"])
    return state


def test_no_verdict_is_green_that_held_out_rows_contradict(tmp_path: Path) -> None:
    states = [check_verdict(tmp_path / str(seed), seed) for seed in range(16)]
    assert {"contradicted", "met", "shown"} <= set(states)


@pytest.mark.soak
@pytest.mark.timeout(1800)
def test_no_verdict_is_green_that_held_out_rows_contradict_in_200_runs(tmp_path: Path) -> None:
    states = [check_verdict(tmp_path / str(seed), seed) for seed in range(100, 300)]
    assert sum(state is not None for state in states) > 150
    assert {"missed", "contradicted", "met", "shown"} <= set(states)


def test_scores_of_a_runs_own_rows_say_which_were_held_out(tmp_path: Path) -> None:
    job = SmallJob(tmp_path, rows=300)
    job.content["job"]["test_fraction"] = 0.2
    run = job.run("run")
    rows = RunRecord.read(run.folder.path).rows("test")
    assert rows is not None
    assert 40 <= rows <= 80
    scores = score_new_parties(run.folder).scores
    assert int(scores["held_out"].sum()) == rows
    assert "held_out" not in score_new_parties(run.folder, tables={"bank": tmp_path / "bank.csv"}).scores
    job.content["job"]["test_fraction"] = 0
    assert job.run("all rows").result["quality"].keys() == {"train"}


def lines_drawn(folder: Path, constraint: dict[str, Any]) -> tuple[str, dict[str, list[float]]]:
    """Return the page of a run, and the chart's lines."""
    from evenhand.report.page.rounds import _largest

    job = SmallJob(folder, rows=300)
    job.content["job"] = {"constraint": constraint, "test_fraction": 0.25}
    record = RunRecord.read(job.run("run").folder.path)
    return make_page([record]), _largest(record.history)[0]


@pytest.mark.parametrize(
    ("kind", "measure"),
    [
        ("equal-opportunity", "loss"),
        ("neyman-pearson", "error"),
        ("group-against-overall", "positive"),
        *(
            pytest.param(*one, marks=pytest.mark.soak)
            for one in (
                ("equal-opportunity", "error"),
                ("equalized-odds", "error"),
                ("loss-parity", "loss"),
                ("group-against-overall", "loss"),
                ("neyman-pearson", "loss"),
                ("demographic-parity", "positive"),
            )
        ),
    ],
)
def test_the_chart_draws_what_is_bounded(kind: str, measure: str, tmp_path: Path) -> None:
    """The largest of the last values drawn is the value that the verdict states."""
    name = "limit" if kind == "neyman-pearson" else "epsilon"
    _, lines = lines_drawn(tmp_path, {"kind": kind, name: 0.3, "measure": measure})
    (stated,) = RunRecord.read(tmp_path / "run").result["constraints"]["train"]
    assert max(abs(line[-1]) for line in lines.values()) == pytest.approx(stated["estimate"], abs=1e-6)


def test_what_is_no_gap_is_not_called_one(tmp_path: Path) -> None:
    page, _ = lines_drawn(tmp_path, {"kind": "neyman-pearson", "limit": 0.2, "measure": "error", "label": 1})
    assert "largest gap" not in page
    assert ">gap<" not in page
    assert "−0.2" not in page
