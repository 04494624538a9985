"""What jobs spend of a party's privacy adds up on disk; randomised responses are drawn once and only lowered."""

from __future__ import annotations

import json
from collections.abc import Callable
from math import exp
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.clinics import write_clinics
from support.federation import write_shops
from support.tables import SmallJob
from typer.testing import CliRunner

from evenhand.cli.app import app
from evenhand.constraints.responses import ResponseMechanism
from evenhand.errors import InputError, ProtocolError, RunError
from evenhand.jobs.federation.files import read_federation_job, read_party
from evenhand.jobs.federation.sites import table_rows
from evenhand.jobs.ledger import LEDGER, AnsweredOnce, Ledger, Limits
from evenhand.privacy.randomised_response import AnswerKey, answers

EPSILON = st.floats(0.01, 5.0)


def matrix(mechanism: ResponseMechanism, keep: float | None = None) -> np.ndarray:
    values = mechanism.values
    kept = mechanism.keep if keep is None else keep
    return np.where(np.eye(values) > 0, kept, (1 - kept) / (values - 1))


@given(EPSILON, EPSILON, st.integers(2, 6))
def test_a_second_response_gives_the_lower_mechanism_exactly(one: float, other: float, values: int) -> None:
    first, lower = ResponseMechanism(max(one, other), values), ResponseMechanism(min(one, other), values)
    again = first.keep_again(lower)
    assert 1 / values <= again <= 1 + 1e-12
    np.testing.assert_allclose(matrix(first) @ matrix(first, again), matrix(lower), atol=1e-12)
    # In terms of ε: the largest ratio of a column is e to the lower ε.
    product = matrix(first) @ matrix(first, again)
    np.testing.assert_allclose((product.max(axis=0) / product.min(axis=0)), exp(lower.epsilon), rtol=1e-9)


def test_answers_are_never_raised() -> None:
    with pytest.raises(InputError, match="can only be lowered"):
        ResponseMechanism(1.0).keep_again(ResponseMechanism(1.1))


@pytest.mark.parametrize("values", [2, 4])
def test_lowered_answers_are_randomised_responses_at_the_lower_epsilon(values: int) -> None:
    codes = np.random.default_rng(0).integers(0, values, 60_000)
    key = AnswerKey(bytes(range(32)), label="y", drawn_at={"label": 2.0})
    for epsilon in (2.0, 1.0, 0.3):
        response = ResponseMechanism(epsilon, values)
        said = answers(codes, response, key, "label")
        for true in range(values):
            shares = np.bincount(said[codes == true], minlength=values) / (codes == true).sum()
            np.testing.assert_allclose(shares, matrix(response)[true], atol=5 * (0.25 * values / 60_000) ** 0.5)


def test_many_jobs_with_slightly_smaller_epsilons_say_no_more_than_one() -> None:
    """Majorities over independent draws had all labels after sixty jobs."""
    rng = np.random.default_rng(0)
    codes = (rng.random(5000) < 0.25).astype(np.int64)
    key = AnswerKey(bytes(range(32)), [f"p{one}" for one in range(5000)], label="y", drawn_at={"label": 1.0})
    said = [answers(codes, ResponseMechanism(1.0 - 1e-4 * job), key, "label") for job in range(60)]
    right = ((np.mean(said, axis=0) > 0.5) == codes).mean()
    once = ResponseMechanism(1.0).keep
    assert right < once + 4 * (once * (1 - once) / 5000) ** 0.5
    # The draw does not depend on which value a job calls positive.
    named = [
        AnswerKey(key.secret, key.ids, label="y", values=values, drawn_at={"label": 1.0})
        for values in (("no", "yes"), ("yes", "no"))
    ]
    one, other = (
        answers(codes, ResponseMechanism(1.0), named[0], "label"),
        answers(1 - codes, ResponseMechanism(1.0), named[1], "label"),
    )
    np.testing.assert_array_equal(one, 1 - other)


# -- the ledger


def test_a_draw_is_recorded_once_and_used_for_every_smaller_epsilon(tmp_path: Path) -> None:
    ledger, limits = Ledger(tmp_path), Limits(labels=1.0)
    assert [ledger.draw("labels", "t.csv", "y", one, limits) for one in (0.5, 1.0, 0.9999)] == [1.0, 1.0, 1.0]
    assert ledger.spent("t.csv") == 1.0
    # Another question about the same table is another draw, and beyond the limit.
    with pytest.raises(RunError, match=r"has spent ε = 1, this job would spend 1 more.*label_epsilon"):
        ledger.draw("labels", "t.csv", "z", 0.01, limits)
    assert ledger.draw("labels", "other.csv", "y", 0.5, limits) == 1.0
    # Without a limit, a larger ε is a new draw that adds up.
    assert ledger.draw("labels", "t.csv", "y", 3.0, Limits()) == 3.0
    assert ledger.draw("labels", "t.csv", "y", 0.7, Limits()) == 1.0
    assert ledger.spent("t.csv") == 4.0


def test_runs_add_up_and_a_resumed_run_spends_nothing(tmp_path: Path) -> None:
    ledger, limits = Ledger(tmp_path), Limits(everything=3.0)
    for run in ("a", "b", "a", "a"):
        ledger.spend("t.csv", run, 1.0, 1e-5, limits)
    assert ledger.spent("t.csv") == 2.0
    ledger.draw("groups", "t.csv", "sex", 0.5, limits)
    with pytest.raises(RunError, match="most_epsilon is 3"):
        ledger.spend("t.csv", "c", 1.0, 1e-5, limits)
    assert (tmp_path / LEDGER).stat().st_mode & 0o777 == 0o600
    assert len(Ledger(tmp_path).entries()) == 3


def test_a_line_is_on_disk_before_anything_can_follow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_: int) -> None:
        raise OSError(28, "no space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(Exception, match=LEDGER):
        Ledger(tmp_path).draw("labels", "t.csv", "y", 0.5, Limits())


def test_a_damaged_ledger_is_no_empty_ledger(tmp_path: Path) -> None:
    (tmp_path / LEDGER).write_text('{"kind": "labels"')
    with pytest.raises(RunError, match="cannot be read"):
        Ledger(tmp_path).draw("labels", "t.csv", "y", 0.5, Limits())


def test_a_question_has_one_answer_in_all_attempts(tmp_path: Path) -> None:
    path = tmp_path / "answered.jsonl"
    first = AnsweredOnce(path)
    first("model round 1", b"weights")
    first("model round 1", b"weights")
    again = AnsweredOnce(path)
    again("model round 1", b"weights")
    with pytest.raises(ProtocolError, match="model round 1 was answered before"):
        again("model round 1", b"other weights")
    assert len(path.read_text().splitlines()) == 1


# -- jobs


def test_jobs_of_one_table_share_a_draw(tmp_path: Path) -> None:
    made = SmallJob(tmp_path, rows=500)
    made.content["job"] |= {"solver": "subspace", "options": {}, "max_rounds": 4, "tol": 1e-3}
    made.party("bank")["label"]["secret"] = "bank.secret"
    for place, epsilon in enumerate((2.0, 1.9999, 1.0)):
        made.content["job"]["label_privacy"] = {"epsilon": epsilon}
        result = made.run(f"run{place}").result
        assert result["privacy"]["bank"]["epsilon"] == epsilon
        assert result["privacy"]["bank"]["drawn_at"] == 2.0
    lines = [json.loads(line) for line in (tmp_path / LEDGER).read_text().splitlines()]
    assert [line["epsilon"] for line in lines] == [2.0]
    shown = CliRunner().invoke(app, ["ledger", str(tmp_path)])
    assert shown.exit_code == 0
    assert "ε at most 2" in shown.output


def _labels_said(paths: dict[str, Any], epsilon: float, **label: Any) -> np.ndarray:
    """What the label holder's labels become in a job, of the party as its own file has it."""
    job, own = read_federation_job(paths["job"]), read_party(paths["bank"])
    section = job.job.model_copy(update={"label_privacy": type(job.job.label_privacy)(epsilon=epsilon), **label})
    rows = table_rows(job.model_copy(update={"job": section}), own, paths["bank"].parent)  # type: ignore[arg-type]
    rows.take(np.arange(len(rows.ids())))
    held = rows.labels()
    codes = (held.truth.labels > 0).astype(np.int64)
    return answers(codes, ResponseMechanism(epsilon), held.key, "label")


def _bank_with_secret(folder: Path, ids: Callable[[str], str] = str) -> dict[str, Path]:
    paths = write_shops(folder, {"label_privacy": {"epsilon": 1.0}})
    content = paths["bank"].read_text().replace("[party.label]", '[party.label]\nsecret = "labels.secret"')
    paths["bank"].write_text(content + "\n[policy]\nlabel_epsilon = 1.0\n")
    table = pd.read_csv(paths["bank"].parent / "table.csv")
    table.assign(id=table["id"].map(ids)).to_csv(paths["bank"].parent / "table.csv", index=False)
    return paths


def test_how_ids_are_read_is_no_way_to_a_second_draw(tmp_path: Path) -> None:
    """An id is the number 7 to one job, and text to the next: a second draw, which the ledger adds up."""
    paths = _bank_with_secret(tmp_path, lambda one: str(int(one[1:])))
    _labels_said(paths, 0.9, text_ids=False)
    with pytest.raises(RunError, match="label_epsilon is 1"):
        _labels_said(paths, 0.9, text_ids=True)


@pytest.mark.parametrize("before", ["c", "00"])
def test_ids_that_are_text_anyway_have_one_draw(before: str, tmp_path: Path) -> None:
    """So are ids with leading zeros: 007 is not 7, for alignment neither."""
    paths = _bank_with_secret(tmp_path, lambda one: one.replace("c", before))
    np.testing.assert_array_equal(_labels_said(paths, 0.9, text_ids=False), _labels_said(paths, 0.9, text_ids=True))
    assert len(Ledger(paths["bank"].parent).entries()) == 1


def test_one_person_has_one_answer_however_the_id_is_written(tmp_path: Path) -> None:
    """Answers go by what alignment goes by: a moment in two time zones is one person."""
    paths = _bank_with_secret(tmp_path)
    place, said = paths["bank"].parent / "table.csv", []
    table = pd.read_csv(place)
    moments = pd.Timestamp("2024-01-01", tz="UTC") + pd.to_timedelta(np.arange(len(table)), unit="h")
    paths["bank"].write_text(paths["bank"].read_text().replace("table.csv", "table.parquet"))
    for zone in ("UTC", "Asia/Tokyo"):
        table.assign(id=moments.tz_convert(zone)).to_parquet(place.with_suffix(".parquet"))
        said.append(_labels_said(paths, 0.9))
    np.testing.assert_array_equal(*said)
    assert len(Ledger(paths["bank"].parent).entries()) == 1


def test_a_policys_largest_epsilon_is_for_all_jobs_together(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    pytest.importorskip("dp_accounting")
    from test_account import run

    data = {"encoder": "encoder.json", "groups": {"sex": ["f", "m"]}}
    privacy = {"mechanism": "clipped-gaussian", "clip": 1.0, "epsilon": 1.0}
    paths = write_clinics(tmp_path, {"solver": "fedavg", "max_rounds": 2}, data=data, privacy=privacy)
    encoder = _encoder(tmp_path)
    for name in ("north", "south", "west"):
        (paths[name].parent / "encoder.json").write_text(encoder)
    (tmp_path / "encoder.json").write_text(encoder)
    paths["south"].write_text(paths["south"].read_text() + "\n[policy]\nmost_epsilon = 2.5\n")
    for _ in range(2):
        ends, _told = run(paths)
        assert not isinstance(ends["south"], Exception), ends
    ends, _told = run(paths)
    assert "most_epsilon is 2.5" in str(ends["south"])
    assert Ledger(paths["south"].parent).spent("table.csv") == pytest.approx(2.0, rel=0.01)


def _encoder(folder: Path) -> str:
    from evenhand.jobs.folder import read_job
    from evenhand.jobs.horizontal.runs import run_horizontal_job

    paths = write_clinics(folder / "encoding", {"solver": "sqp"})
    found = run_horizontal_job(read_job(paths["together"]), folder / "encoding", folder / "made")  # type: ignore[arg-type]
    return json.dumps(found.folder.read_model("encoder"))
