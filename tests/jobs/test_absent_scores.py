"""Scores of people whom some party lacks, or without a party that is away, in one process and between organisations."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from support.asking import trained
from support.federation import Network, run_sites

from evenhand.errors import EvenhandError, InputError, JobError, RunError
from evenhand.jobs.federation.files import parse_federation_job, read_party
from evenhand.jobs.federation.predicting import Question, answering_program, asked_run, asking_program
from evenhand.jobs.folder import read_job
from evenhand.jobs.new_rows import score_new_parties
from evenhand.jobs.vertical.runs import run_vertical_job
from evenhand.protocol.align import id_sums
from evenhand.protocol.roles import SERVER
from evenhand.runtime.folder import RunFolder
from evenhand.training.run import one_blas_thread

JOB = {"ids": "left", "max_rounds": 60, "tol": 1e-8, "missing_party": "absent"}
PARTIES = ("bank", "shop", "phone")


def _gaps(folder: Path) -> None:
    """Shop loses every third row of its table, phone the last forty."""
    for name, kept in (("shop", lambda places: places % 3 > 0), ("phone", lambda places: places < 80)):
        path = folder / name / "table.csv"
        table = pd.read_csv(path)
        table[kept(np.arange(len(table)))].to_csv(path, index=False)


def _federation(folder: Path, job: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> dict[str, Path]:
    """Return the files of a federation that has trained on tables with gaps."""
    from support import asking

    def written(path: Path, content: dict[str, Any]) -> dict[str, Path]:
        found = write_shops(path, content)
        _gaps(path)
        return found

    write_shops = asking.write_shops
    monkeypatch.setattr(asking, "write_shops", written)
    return trained(folder, job)


def _asked(paths: dict[str, Path], runs: Path, ids: list[str], away: tuple[str, ...] = ()) -> dict[str, Any]:
    kind, sums = id_sums(pd.Index(ids))
    question = Question(run="first", away=list(away), kind=kind, sums=sums.tolist())

    def party(name: str) -> Any:
        own = read_party(paths[name])
        return lambda _: answering_program(*asked_run(runs / name / "first"), question, own, paths[name].parent)

    programs = {name: party(name) for name in PARTIES if name not in away}
    server = lambda _: asking_program(*asked_run(runs / SERVER / "first"), question, paths["identity"])  # noqa: E731
    with one_blas_thread():
        return run_sites({SERVER: server, **programs}, Network(0.1))


@pytest.fixture(scope="module")
def run_alone(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any]:
    from support.federation import write_shops

    folder = tmp_path_factory.mktemp("alone")
    paths = write_shops(folder, JOB)
    _gaps(folder)
    run_vertical_job(read_job(paths["together"]), folder, folder / "run")  # type: ignore[arg-type]
    return folder, paths


def test_each_score_names_the_parties_that_it_rests_on(run_alone: tuple[Path, Any]) -> None:
    folder, _ = run_alone
    found = score_new_parties(RunFolder.open(folder / "run"))
    has = {name: set(pd.read_csv(folder / name / "table.csv")["id"]) for name in PARTIES}
    assert len(found.scores) == 120
    for person, parties in found.scores["parties"].items():
        assert parties == " + ".join(name for name in PARTIES if person in has[name])
    assert any("all 120 rows of the label holder are scored; of these, shop has 80" in one for one in found.remarks)
    assert found.measured is not None


def test_a_party_that_is_away_is_named_by_the_user(run_alone: tuple[Path, Any]) -> None:
    folder, _ = run_alone
    run = RunFolder.open(folder / "run")
    everybody, without = score_new_parties(run).scores, score_new_parties(run, absent=["shop"]).scores
    assert set(without["parties"]) == {"bank", "bank + phone"}
    lacked = ~everybody["parties"].str.contains("shop")
    np.testing.assert_allclose(without["score"][lacked], everybody["score"][lacked], atol=1e-12)
    # For all others the difference is what shop's columns add, against the number that it has learned.
    assert not np.allclose(without["score"][~lacked], everybody["score"][~lacked], atol=1e-3)
    with pytest.raises(InputError, match="bank holds the labels"):
        score_new_parties(run, absent=["bank"])
    with pytest.raises(InputError, match="no party is called 'clinic'"):
        score_new_parties(run, absent=["clinic"])


def test_without_leave_no_party_is_left_out(tmp_path: Path) -> None:
    from support.federation import write_shops

    paths = write_shops(tmp_path, {"ids": "left", "max_rounds": 5, "tol": 1.0})
    _gaps(tmp_path)
    run_vertical_job(read_job(paths["together"]), tmp_path, tmp_path / "run")  # type: ignore[arg-type]
    run = RunFolder.open(tmp_path / "run")
    found = score_new_parties(run)
    assert "parties" not in found.scores
    has = [set(pd.read_csv(tmp_path / name / "table.csv")["id"]) for name in PARTIES]
    assert set(found.scores.index) == set.intersection(*has)
    with pytest.raises(InputError, match="the job of this run does not allow it"):
        score_new_parties(run, absent=["shop"])


@pytest.mark.parametrize("protection", ["none", "masked"])
def test_between_organisations_scores_are_those_of_one_process(
    protection: str, run_alone: tuple[Path, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, _ = run_alone
    paths = _federation(tmp_path, {**JOB, "protection": protection}, monkeypatch)
    alone = score_new_parties(RunFolder.open(folder / "run")).scores
    ids = [*alone.index[5:45], "nobody", *alone.index[:5]]
    told = _asked(paths, tmp_path / "runs", ids)[SERVER]
    assert told["scores"][40] is None
    del told["scores"][40], told["parties"][40], ids[40]
    np.testing.assert_allclose(told["scores"], alone.loc[ids, "score"], atol=1e-3)
    assert told["parties"] == list(alone.loc[ids, "parties"])


def test_a_party_that_did_not_join_is_left_out_or_the_question_is_refused(
    run_alone: tuple[Path, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, _ = run_alone
    paths = _federation(tmp_path, {**JOB, "protection": "none"}, monkeypatch)
    expected = score_new_parties(RunFolder.open(folder / "run"), absent=["shop"]).scores
    ids = list(expected.index[:30])
    told = _asked(paths, tmp_path / "runs", ids, ("shop",))[SERVER]
    np.testing.assert_allclose(told["scores"], expected.loc[ids, "score"], atol=1e-3)
    assert told["parties"] == list(expected.loc[ids, "parties"])
    ends = _asked(paths, tmp_path / "runs", ids, ("bank",))
    assert all(isinstance(end, EvenhandError) for end in ends.values())
    assert "bank holds the labels" in str(ends[SERVER])


def test_a_masked_sum_over_the_only_party_left_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    paths = _federation(tmp_path, {**JOB, "protection": "masked"}, monkeypatch)
    ends = _asked(paths, tmp_path / "runs", ["c001"], ("shop",))
    assert all(isinstance(end, EvenhandError) for end in ends.values())
    assert "a sum over one party hides nothing" in str(ends[SERVER])


def test_a_job_that_does_not_allow_it_refuses_the_question(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    paths = _federation(tmp_path, {**JOB, "missing_party": "refuse", "protection": "none"}, monkeypatch)
    ends = _asked(paths, tmp_path / "runs", ["c001"], ("shop",))
    for end in ends.values():
        assert isinstance(end, EvenhandError)
        assert "a score without shop belongs to another model" in str(end) or not isinstance(end, InputError)


def test_a_party_with_all_rows_cannot_be_away(tmp_path: Path) -> None:
    paths = trained(tmp_path, {**JOB, "protection": "none"})
    ends = _asked(paths, tmp_path / "runs", ["c001"], ("shop",))
    assert isinstance(ends[SERVER], RunError)
    assert "shop is away, and had all rows in training" in str(ends[SERVER])


@pytest.mark.parametrize(
    ("job", "said"),
    [
        ({"protection": "encrypted"}, "its weights are in shares"),
        ({"model": "trees", "solver": "trees", "options": {"interactions": "full"}}, "trees that cross parties"),
        ({"missing_party": "zero"}, "missing_party"),
    ],
)
def test_jobs_that_cannot_keep_the_promise_are_refused(job: dict[str, Any], said: str) -> None:
    members = [{"name": "bank", "role": "active"}, {"name": "shop"}]
    with pytest.raises(JobError, match=said):
        parse_federation_job({"job": {**JOB, **job}, "party": members}, "job.toml")
