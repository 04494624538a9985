"""`evenhand frontier`: a job's runs over several bounds, and the page that shows them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from support.hospitals import HospitalJob
from support.tables import SmallJob

from evenhand.cli import main
from evenhand.report.record import RunRecord


def frontier(monkeypatch: pytest.MonkeyPatch, *arguments: object) -> int:
    monkeypatch.setattr("sys.argv", ["evenhand", "frontier", *map(str, arguments)])
    try:
        main()
    except SystemExit as end:
        return int(str(end.code or 0))
    return 0


@pytest.mark.parametrize("split", ["vertical", "horizontal"])
def test_each_bound_has_its_run_and_its_point(
    split: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    job = SmallJob(tmp_path, rows=300) if split == "vertical" else HospitalJob(tmp_path)
    if split == "vertical":
        job.content["job"] = {"constraint": {"kind": "equal-opportunity", "epsilon": 0.3}, "test_fraction": 0.25}
    job.write()
    out = tmp_path / "bounds"
    bounds = ("--epsilon", 0.1, "--epsilon", 0.05, "--epsilon", 0.02)
    assert frontier(monkeypatch, tmp_path / "job.toml", *bounds, "--out", out) == 0
    assert capsys.readouterr().out.splitlines()[-1] == str(out / "frontier.html")
    asked = {}
    for name in ("without", "epsilon-0.1", "epsilon-0.05", "epsilon-0.02"):
        record = RunRecord.read(out / name)
        asked[name] = [one["asked"] for one in record.result["constraints"].get("train", [])]
    assert asked == {"without": [], "epsilon-0.1": [0.1], "epsilon-0.05": [0.05], "epsilon-0.02": [0.02]}
    page = (out / "frontier.html").read_text(encoding="utf-8")
    assert page.count('class="ring"') == 1
    assert "has the best balance" in page
    before = (out / "epsilon-0.1" / "run.toml").read_bytes()
    assert frontier(monkeypatch, tmp_path / "job.toml", *bounds, "--out", out) == 0
    assert (out / "epsilon-0.1" / "run.toml").read_bytes() == before


def test_of_numbers_the_deviance_and_its_gaps_are_compared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    job = SmallJob(tmp_path, rows=300)
    bank = job.frames["bank"]
    bank["outcome"] = np.random.default_rng(0).poisson(np.exp((bank["age"] - 48) / 30 + 0.5 * (bank["sex"] == "male")))
    job.party("bank")["label"] = {"column": "outcome"}
    constraint = {"kind": "mean-prediction-parity", "epsilon": 0.3}
    job.content["job"] = {"loss": "poisson", "constraint": constraint, "test_fraction": 0.25, "max_rounds": 6}
    job.write()
    bounds = ("--epsilon", 0.4, "--epsilon", 0.2, "--epsilon", 0.1)
    assert frontier(monkeypatch, tmp_path / "job.toml", *bounds, "--out", tmp_path / "bounds") == 0
    lines = capsys.readouterr().out.splitlines()
    heading = next(line for line in lines if "rounds" in line)
    assert heading.split() == ["D²", "MAE", "loss", "pred.", "gap", "loss", "gap", "rounds", "bytes"]
    cells = next(line for line in lines if line.strip().startswith("ε = 0.1")).split()
    found = RunRecord.read(tmp_path / "bounds" / "epsilon-0.1").result["quality"]["test"]
    wanted = [found[name] for name in ("D2", "MAE", "mean_loss", "prediction_gap", "loss_gap")]
    assert cells[3:8] == [f"{value:.3f}" for value in wanted]
    page = (tmp_path / "bounds" / "frontier.html").read_text(encoding="utf-8")
    assert "gap between mean predictions of groups" in page
    # A gap in the unit of the target is not weighed against a share.
    assert "has the best balance" not in page


def test_of_two_constraints_one_changes_and_the_other_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    job = SmallJob(tmp_path, rows=300)
    both = [{"kind": "equal-opportunity", "epsilon": 0.3}, {"kind": "demographic-parity", "epsilon": 0.2}]
    job.content["job"] = {"constraint": both, "test_fraction": 0.25, "max_rounds": 2}
    job.write()
    bounds = ("--epsilon", 0.15, "--epsilon", 0.1, "--epsilon", 0.05, "--vary", "demographic-parity")
    assert frontier(monkeypatch, tmp_path / "job.toml", *bounds, "--out", tmp_path / "bounds") == 0
    shown, said = capsys.readouterr()
    assert "the bound of demographic-parity changes (--vary); every run keeps equal-opportunity" in said
    assert said.count("Protection masked") == 1
    (heading,) = (line.split() for line in shown.splitlines() if "accuracy" in line)
    assert heading[:2] == ["accuracy", "DP"]
    assert "ε = 0.1: equal opportunity within 0.3; demographic parity within 0.1: " in shown
    for name, asked in {"without": [0.3], "epsilon-0.15": [0.3, 0.15], "epsilon-0.05": [0.3, 0.05]}.items():
        record = RunRecord.read(tmp_path / "bounds" / name)
        assert [one["asked"] for one in record.result["constraints"]["train"]] == asked
    page = (tmp_path / "bounds" / "frontier.html").read_text(encoding="utf-8")
    assert "The bound of demographic parity changes; the job also keeps equal opportunity within 0.3" in page
    assert "demographic parity: gap in selection rates" in page
    assert frontier(monkeypatch, tmp_path / "job.toml", "--vary", "loss-parity", "--out", tmp_path / "other") == 2
    assert "there is 'equal-opportunity', 'demographic-parity'" in capsys.readouterr().err


def test_what_cannot_be_varied_is_refused_before_anything_is_trained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    job = SmallJob(tmp_path)
    wrong = {
        "test_fraction": {"constraint": {"kind": "equal-opportunity", "epsilon": 0.1}, "test_fraction": 0.0},
        "no constraint with an epsilon": {"test_fraction": 0.2},
        "epsilon that could be varied": {
            "test_fraction": 0.2,
            "constraint": {"kind": "neyman-pearson", "limit": 0.1, "measure": "error"},
        },
    }
    for words, section in wrong.items():
        job.content["job"] = section
        job.write()
        assert frontier(monkeypatch, tmp_path / "job.toml", "--out", tmp_path / "bounds") == 2
        assert words in capsys.readouterr().err
    assert not (tmp_path / "bounds").exists()
