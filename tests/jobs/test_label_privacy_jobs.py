"""Label privacy in job files: the secret is a file of the label holder's own; what is stated is in the run folder."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tomli_w
from support.contracts import assert_same_state
from support.federation import write_shops
from support.tables import SmallJob
from test_federation_sites import PARTIES, programs, run

from evenhand.errors import JobError
from evenhand.jobs.auditing import audit_run, plan_of
from evenhand.jobs.federation.files import read_federation_job, read_party
from evenhand.jobs.federation.notices import for_submitter, result_tables
from evenhand.jobs.federation.sites import PartyEnd, party_program, server_program
from evenhand.jobs.folder import read_job
from evenhand.jobs.vertical.file import parse_vertical
from evenhand.jobs.vertical.rows import kept_secret
from evenhand.jobs.vertical.runs import run_vertical_job
from evenhand.models.saved import to_state
from evenhand.report.page import write_page
from evenhand.report.record import RunRecord
from evenhand.runtime.folder import RunFolder

ASKED = {"epsilon": 2.0}


@pytest.fixture
def job(tmp_path: Path) -> SmallJob:
    made = SmallJob(tmp_path, rows=500)
    made.content["job"] |= {"solver": "subspace", "options": {}, "max_rounds": 8, "tol": 1e-3, "label_privacy": ASKED}
    made.party("bank")["label"]["secret"] = "bank.secret"
    (tmp_path / "bank.secret").write_bytes(bytes(range(32)))
    return made


class Stopped(Exception):
    pass


def stop(report: dict[str, Any]) -> None:
    if report["round"] == 2:
        raise Stopped


def weights(folder: RunFolder) -> dict[str, Any]:
    return {name: folder.read_party(name, "weights") for name in ("bank", "shop", "social")}


def test_runs_with_one_secret_say_the_same_also_after_a_crash(job: SmallJob) -> None:
    first = job.run("first")
    # Another order of the rows in each table is no other draw.
    again = run_vertical_job(job.read(order=7), job.folder, job.folder / "again")
    with pytest.raises(Stopped):
        job.run("crashed", on_round=stop, checkpoint_seconds=0.0)
    resumed = job.run("crashed", resume=True)
    for name, state in weights(first.folder).items():
        assert_same_state(state, weights(resumed.folder)[name])
        # Sums over rows in another order differ in their last digits, other answers in the first.
        np.testing.assert_allclose(state["weights"], weights(again.folder)[name]["weights"], atol=1e-3)
    (job.folder / "bank.secret").write_bytes(bytes(32))
    anew = job.run("another secret")
    assert np.abs(anew.run.models["shop"].weights - first.run.models["shop"].weights).max() > 0.01


def test_a_secret_is_made_once_and_nobody_else_may_read_it(tmp_path: Path) -> None:
    path = tmp_path / "labels.secret"
    made = kept_secret(path)
    assert path.stat().st_mode & 0o777 == 0o600
    assert kept_secret(path) == made
    assert kept_secret(tmp_path / "another") != made
    assert sorted(one.name for one in tmp_path.iterdir()) == ["another", "labels.secret"]


def test_what_is_stated_is_in_the_folder_and_on_the_page(job: SmallJob) -> None:
    finished = job.run()
    stated = json.loads((job.folder / "run" / "result.json").read_text())["privacy"]["bank"]
    assert stated["epsilon"] == 2.0
    assert not stated["simulated"]
    assert stated["by_accountant"]["closed form"] == 2.0
    page = job.folder / "page.html"
    write_page([RunRecord.read(finished.folder.path)], page)
    assert "ε = 2 for each person" in page.read_text(encoding="utf-8")
    audit = audit_run(finished.folder)
    told = [one for one in audit.findings if one.who == "shop" and one.target == "each person's label"]
    assert {one.attack for one in told} >= {"sign", "bit with score"}
    assert all(one.value.value < 1.0 for one in told)


def test_the_folder_lists_the_exchange_after_training(job: SmallJob) -> None:
    """The joint scores for the label holder's finishing step are in the transcript, also after a crash."""
    job.content["job"]["label_privacy"] = {"epsilon": 4.0, "finish": True}
    with pytest.raises(Stopped):
        job.run("crashed", on_round=stop, checkpoint_seconds=0.0)
    for finished in (job.run("whole"), job.run("crashed", resume=True)):
        lines = finished.folder.read_lines("transcript.jsonl")
        assert [tuple(line.values()) for line in lines] == finished.run.transcript.entries
        told = [line for line in lines if line["kind"] == "joint-scores"]
        assert [(line["sender"], line["receiver"]) for line in told] == [("server", "bank")]
        assert sum(line["nbytes"] for line in lines) == finished.result["bytes"]


def test_without_a_secret_it_is_a_simulation(job: SmallJob) -> None:
    del job.party("bank")["label"]["secret"]
    stated = job.run().result["privacy"]["bank"]
    assert stated["simulated"]
    assert stated["words"].startswith("Simulated")


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"label_privacy": {"epsilon": -1.0}}, "epsilon"),
        ({"label_privacy": {}}, "label_privacy.epsilon is missing"),
        ({"label_privacy": {"epsilon": 1.0, "delta": 0.1}}, "unknown key job.label_privacy.delta"),
        ({"solver": "vfb2-sgd", "options": {}, "constraint": []}, "does not support label_privacy"),
    ],
)
def test_what_no_job_can_mean_is_refused_when_it_is_read(job: SmallJob, change: dict[str, Any], says: str) -> None:
    job.content["job"] |= change
    with pytest.raises(JobError, match=says):
        job.read()


def test_a_file_that_is_no_secret_is_refused(job: SmallJob) -> None:
    (job.folder / "bank.secret").write_bytes(b"short")
    with pytest.raises(JobError, match="has 5 bytes"):
        job.run()
    job.party("bank")["label"]["secret"] = "no such folder/secret"
    with pytest.raises(JobError, match="cannot read or create"):
        job.run("other")


def test_a_plan_says_what_answers_make_of_messages(job: SmallJob) -> None:
    told = {one.kind: one.reveals for one in plan_of(parse_vertical(job.content, "job"))}
    assert "randomised responses in place of labels (ε = 2)" in told["derivative"]
    assert "randomised" not in told["ids"]


def shops(folder: Path, secret: bool = True) -> dict[str, Path]:
    asked = {"epsilon": 4.0, "finish": True}
    paths = write_shops(folder, {"solver": "subspace", "max_rounds": 6, "label_privacy": asked, "protection": "none"})
    (folder / "bank" / "labels.secret").write_bytes(bytes(range(32)))
    for path, own in ((paths["bank"], "labels.secret"), (paths["together"], "bank/labels.secret")):
        content = path.read_text(encoding="utf-8")
        if secret:
            path.write_text(
                content.replace('positive = "yes"', f'positive = "yes"\nsecret = "{own}"'), encoding="utf-8"
            )
    return paths


def test_between_organisations_it_is_as_in_one_process(tmp_path: Path) -> None:
    paths = shops(tmp_path)
    ends = run(paths)
    together = run_vertical_job(read_job(paths["together"]), tmp_path, tmp_path / "run")  # type: ignore[arg-type]
    for name in PARTIES:
        assert isinstance(ends[name], PartyEnd), ends
        assert_same_state(to_state(ends[name].model), to_state(together.run.models[name]))
    assert ends["server"] == together.result
    assert not ends["server"]["privacy"]["bank"]["simulated"]
    # Whoever submitted the job need not be the label holder.
    told = for_submitter(read_federation_job(paths["job"]), ends["server"])
    assert {"certificate", "privacy"} < told.keys()
    assert not {"quality", "groups", "constraints", "intervals", "shortfalls"} & told.keys()
    assert len(list(result_tables(told))) == 1


def test_between_organisations_a_secret_is_needed_before_anything_is_said(tmp_path: Path) -> None:
    paths = shops(tmp_path, secret=False)
    job, bank = read_federation_job(paths["job"]), read_party(paths["bank"])
    assert programs(paths)
    with pytest.raises(JobError, match="names no secret"):
        next(party_program(job, bank, tmp_path))  # type: ignore[arg-type]
    with pytest.raises(JobError, match="names no secret"):
        next(server_program(job, bank, tmp_path, lambda: None))  # type: ignore[arg-type,return-value]


def test_a_policy_that_wants_more_privacy_ends_the_run(tmp_path: Path) -> None:
    paths = shops(tmp_path)
    with paths["bank"].open("a", encoding="utf-8") as file:
        file.write("\n" + tomli_w.dumps({"policy": {"label_epsilon": 1.0}}))
    assert "label_privacy of 4 is more than its 1" in str(run(paths)["server"])
