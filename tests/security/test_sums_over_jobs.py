"""Two jobs with and without one participant do not show what it alone has: its peers refuse the second."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest
import tomli_w
from hypothesis import given
from hypothesis import strategies as st
from support.clinics import write_clinics
from support.federation import Network, run_sites, write_shops

from evenhand.errors import RunError
from evenhand.jobs.federation.dispatch import party_part, server_part
from evenhand.jobs.federation.files import read_federation_job, site_env
from evenhand.jobs.ledger import LEDGER, Ledger
from evenhand.protocol.job import Job
from evenhand.protocol.policy import OwnPolicy
from evenhand.protocol.roles import SERVER
from evenhand.solvers.agreeing import draft_terms
from evenhand.training.run import one_blas_thread

NAMES = "abcdef"


def run(paths: dict[str, Path], without: str = "", policy: str = "") -> dict[str, Any]:
    """Run the job, or the same without one participant."""
    content = tomllib.loads(paths["job"].read_text())
    kind = "client" if "client" in content else "party"
    content[kind] = [one for one in content[kind] if one["name"] != without]
    place = paths["job"].with_name(f"job-{without or 'all'}.toml")
    place.write_text(tomli_w.dumps(content))
    job = read_federation_job(place)
    own = {name: site_env(paths[name]) for name in job.parts}

    def server(site: Any) -> Any:
        holder = paths.get("bank", next(iter(paths.values())))
        return server_part(job, lambda: site_env(holder), lambda: site.transcript, identity=paths["identity"])

    def other(name: str) -> Any:
        return lambda _: party_part(job, own[name], None)

    with one_blas_thread():
        return run_sites({SERVER: server, **{name: other(name) for name in own}}, Network())


def test_a_second_job_without_a_client_is_refused_by_the_others(tmp_path: Path) -> None:
    paths = write_clinics(tmp_path, {"solver": "sqp", "protection": "masked", "max_rounds": 1})
    ends = run(paths)
    assert not any(isinstance(end, Exception) for end in ends.values()), ends
    assert not any(isinstance(end, Exception) for end in run(paths).values())
    ends = run(paths, without="west")
    assert any("can be subtracted from earlier ones on table.csv" in str(ends[name]) for name in ("north", "south"))
    assert isinstance(ends[SERVER], Exception)
    # A line for the one set of all jobs.
    for name in ("north", "south"):
        lines = [json.loads(line) for line in (paths[name].parent / LEDGER).read_text().splitlines()]
        assert [json.loads(line["what"]) for line in lines if line["kind"] == "sums"] == [["north", "south", "west"]]


@pytest.mark.parametrize("solver", ["subspace", "vfb2-svrg"])
def test_a_second_job_without_a_party_is_refused_by_the_others(solver: str, tmp_path: Path) -> None:
    """The sum of directions of three passive parties, less that of two, is the third's own."""
    options = {"batch_size": 32} if solver == "vfb2-svrg" else {}
    protection = "none" if solver == "vfb2-svrg" else "masked"
    job = {"solver": solver, "protection": protection, "max_rounds": 1, "tol": 0.0, "options": options}
    paths = write_shops(tmp_path, job)
    Ledger(paths["shop"].parent).add_sum("table.csv", "", ["shop", "phone", "tele"], None)
    ends = run(paths)
    assert isinstance(ends["shop"], RunError)
    assert "the difference would show 1 of them" in str(ends["shop"])


def test_a_policy_says_how_many_a_difference_must_hold(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path)
    ledger.add_sum("t.csv", "one", NAMES, 2)
    with pytest.raises(RunError, match="the difference would show 1 of them"):
        ledger.add_sum("t.csv", "two", NAMES[:5], 2)
    ledger.add_sum("t.csv", "two", NAMES[:4], 2)
    # Each two of these three differ by two, and together they show single ones.
    with pytest.raises(RunError, match="would show 1"):
        ledger.add_sum("t.csv", "three", "ace", 2)
    with pytest.raises(RunError, match="Train with the same participants"):
        ledger.add_sum("t.csv", "three", NAMES[:2], None)
    ledger.add_sum("other.csv", "three", NAMES[:2], None)


def test_within_a_run_the_terms_decide_and_other_runs_are_held_to_it(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path)
    ledger.add_sum("t.csv", "one", NAMES, None)
    ledger.add_sum("t.csv", "one", NAMES[:4], None)
    ledger.add_sum("t.csv", "two", NAMES, None)
    with pytest.raises(RunError):
        ledger.add_sum("t.csv", "two", NAMES[:5], None)


def test_a_run_goes_on_without_a_party_after_earlier_runs_with_all(tmp_path: Path) -> None:
    """A run that may go on without a party has the sums over all parties of its own; earlier ones tell no more."""
    ledger = Ledger(tmp_path)
    ledger.add_sum("t.csv", "", NAMES, None)
    ledger.add_sum("t.csv", "one", NAMES, None, nested=True)
    ledger.add_sum("t.csv", "one", NAMES[:4], None, nested=True)
    # The next run may be without the same parties, and without no others.
    ledger.add_sum("t.csv", "two", NAMES, None, nested=True)
    ledger.add_sum("t.csv", "two", NAMES[:4], None, nested=True)
    with pytest.raises(RunError, match="Train with the same participants"):
        ledger.add_sum("t.csv", "three", NAMES[:5], None, nested=True)


def test_attempts_at_a_run_do_not_lose_one_party_after_the_other(tmp_path: Path) -> None:
    """The sums over a and b, b and c, and a and c tell what each of them adds."""
    ledger = Ledger(tmp_path)
    for members in ("abc", "ab", "abc", "ab"):
        ledger.add_sum("t.csv", "one", members, None, nested=True)
    with pytest.raises(RunError, match="over a, b earlier in this run"):
        ledger.add_sum("t.csv", "one", "bc", None, nested=True)
    assert len(ledger.entries()) == 2


def test_terms_that_allow_smaller_sums_than_a_policy_are_refused() -> None:
    terms = draft_terms(Job(solver="sqp", protection="masked", least_summed=1), list(NAMES))
    assert "the terms may show sums over 1 clients; it wants 2 or more" in str(OwnPolicy(least_summed=2)(terms))
    assert OwnPolicy(least_summed=1)(terms) is None
    assert OwnPolicy()(terms) is None


def test_the_line_is_on_disk_before_the_sum_is_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_: int) -> None:
        raise OSError(28, "no space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(Exception, match=LEDGER):
        Ledger(tmp_path).add_sum("t.csv", "one", NAMES, None)


@given(st.lists(st.sets(st.sampled_from(NAMES), min_size=2), min_size=1, max_size=6))
def test_with_one_set_on_every_table_no_combination_holds_fewer(sets: list[set[str]]) -> None:
    """Whoever has been in a sum is in no other: sets that everybody accepts are equal or have nobody in common."""
    opened: list[set[str]] = []
    tables: dict[str, set[frozenset[str]]] = {name: set() for name in NAMES}
    for members in sets:
        if all(not tables[name] or frozenset(members) in tables[name] for name in members):
            opened.append(members)
            for name in members:
                tables[name].add(frozenset(members))
    assert all(one == other or not one & other for one in opened for other in opened)
