"""A server that ends a run and resumes it, again and again, gets no unlimited number of answers."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from support.federation import Network, run_sites, write_shops

pytest.importorskip("nacl")

from evenhand.jobs.federation.checkpointing import CheckpointManager
from evenhand.jobs.federation.dispatch import party_part, server_part
from evenhand.jobs.federation.files import read_federation_job, site_env
from evenhand.jobs.federation.folders import side_folder
from evenhand.jobs.federation.notices import notice
from evenhand.jobs.federation.sites import draft_terms
from evenhand.protocol.messages import Message
from evenhand.runtime.site import Site
from evenhand.training.run import one_blas_thread

ROUNDS = 3


class EndsEarly:
    """A server's rule that ends the run when it would send the last question."""

    def __init__(self, most: int) -> None:
        self.asked, self.most = 0, most

    def __call__(self, message: Message) -> str | None:
        self.asked += message.kind == "derivative" and message.receiver == "shop"
        return "the server has what it wants" if self.asked > self.most else None


def attempt(paths: dict[str, Path], runs: Path, resume: bool, most: int = ROUNDS) -> tuple[dict[str, Any], int]:
    """Run the job; return everybody's end, and how often the shop answered."""
    job, network = read_federation_job(paths["job"]), Network()
    others = list(job.parts)
    with ExitStack() as stack:
        folders = {
            name: stack.enter_context(side_folder(runs / name, name, job, None, resume)) for name in ("server", *others)
        }
        for folder in folders.values():
            stack.enter_context(folder.recorded())

        def server(site: Site) -> Any:
            # No checkpoint is ever due: each attempt begins anew.
            checkpoints = CheckpointManager(site, folders["server"], others, 1e6)
            env = site_env(paths["bank"])
            return server_part(job, lambda: env, lambda: site.transcript, checkpoints, paths["identity"])

        def party(name: str) -> Any:
            return lambda site: party_part(
                job, site_env(paths[name]), None, CheckpointManager(site, folders[name], others, 1e6)
            )

        with one_blas_thread():
            programs = {"server": server} | {name: party(name) for name in others}
            ends = run_sites(programs, network, {"server": EndsEarly(most)})
        sent = [entry for entry in network.sites["shop"].transcript if entry.sender == "shop"]
    return ends, sum(entry.messages for entry in sent if entry.kind == "direction")


def test_answers_over_all_attempts_are_limited(tmp_path: Path) -> None:
    paths = write_shops(tmp_path, {"solver": "subspace", "protection": "none", "max_rounds": ROUNDS, "tol": 0.0})
    answered, ends = 0, {}
    for number in range(5):
        ends, count = attempt(paths, tmp_path / "runs", number > 0)
        assert isinstance(ends["server"], Exception)
        answered += count
    assert ROUNDS <= answered <= 2 * ROUNDS
    assert "in all attempts at this run" in str(ends["shop"])


RULE = {"threshold": "rate", "capacity": 0.25, "test_fraction": 0.2}
PARITY = {"kind": "demographic-parity", "epsilon": 0.2, "measure": "positive"}


@pytest.mark.slow
@pytest.mark.parametrize(("constraint", "trainings"), [(None, 4), pytest.param(PARITY, 7, marks=pytest.mark.soak)])
def test_answers_of_trainings_that_search_for_the_cut_are_limited_too(
    constraint: dict[str, Any] | None, trainings: int, tmp_path: Path
) -> None:
    """An attempt that ends while it searches leaves its answers in the count of the next one."""
    job: dict[str, Any] = {"solver": "subspace", "protection": "none", "max_rounds": 1, "tol": 0.0} | RULE
    paths = write_shops(tmp_path, job | ({} if constraint is None else {"constraint": constraint}))
    answered, ends = 0, {}
    for number in range(2 * trainings + 1):
        ends, count = attempt(paths, tmp_path / "runs", number > 0, 1)
        assert isinstance(ends["server"], Exception)
        answered += count
        if count == 0:
            break
    assert answered == 2 * trainings
    assert f"1 rounds in {trainings} trainings allow {2 * trainings}" in str(ends["shop"])


@pytest.mark.slow
def test_a_run_that_searched_for_the_cut_resumes(tmp_path: Path) -> None:
    """What the search of an earlier attempt handled does not use up the rounds of the training that counts."""
    job: dict[str, Any] = {"solver": "subspace", "protection": "none", "max_rounds": ROUNDS, "tol": 0.0} | RULE
    paths = write_shops(tmp_path, job)
    ends, count = attempt(paths, tmp_path / "runs", False, 3 * ROUNDS)
    assert isinstance(ends["server"], Exception)
    assert count > 2 * ROUNDS
    ends, _ = attempt(paths, tmp_path / "runs", True, 1000)
    assert isinstance(ends["server"], dict), ends


@pytest.mark.parametrize(("constraint", "trainings"), [([], 4), (PARITY, 7)])
def test_a_policy_compares_the_rounds_of_all_trainings(constraint: Any, trainings: int, tmp_path: Path) -> None:
    job = {"solver": "subspace", "protection": "none", "max_rounds": ROUNDS, "constraint": constraint} | RULE
    paths = write_shops(tmp_path, job)
    terms = draft_terms(read_federation_job(paths["job"]))  # type: ignore[arg-type]
    own, most = paths["shop"].read_text(), trainings * ROUNDS
    paths["shop"].write_text(f"{own}\n[policy]\nmost_rounds = {most - 1}\n")
    reason = site_env(paths["shop"]).own.policy.to_policy()(terms)
    assert reason == (
        f"{most} rounds (a rule for the cut trains {trainings} times, up to {ROUNDS} rounds each) are more than its "
        f"{most - 1}"
    )
    paths["shop"].write_text(f"{own}\n[policy]\nmost_rounds = {most}\n")
    assert site_env(paths["shop"]).own.policy.to_policy()(terms) is None
    told = notice(read_federation_job(paths["job"]), "shop", terms)
    assert f"at most {ROUNDS} rounds in each of {trainings} trainings" in told


def test_the_rows_of_a_run_stay_the_same_in_all_attempts(tmp_path: Path) -> None:
    """A server that takes others in the next attempt would learn the difference of two sums; here a table changes."""
    job: dict[str, Any] = {"solver": "subspace", "protection": "none", "max_rounds": ROUNDS, "tol": 0.0, "ids": "inner"}
    paths = write_shops(tmp_path, job)
    assert isinstance(attempt(paths, tmp_path / "runs", False, 1)[0]["server"], Exception)
    table = paths["phone"].parent / "table.csv"
    table.write_text("".join(table.read_text().splitlines(keepends=True)[:-1]))
    ends, count = attempt(paths, tmp_path / "runs", True, 1)
    assert "the list of common rows was answered before" in str(ends["shop"])
    assert count == 0
