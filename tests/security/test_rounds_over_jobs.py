"""Rounds are counted over all runs on a table: many short jobs open no more sums than one long one."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tomli_w
from support.clinics import write_clinics
from support.federation import Network, run_sites, write_shops
from typer.testing import CliRunner

from evenhand.cli.app import app
from evenhand.errors import RunError
from evenhand.jobs.federation.dispatch import party_part, server_part
from evenhand.jobs.federation.files import read_federation_job, run_place, site_env
from evenhand.jobs.federation.folders import side_folder
from evenhand.jobs.ledger import LEDGER, Ledger, data_name
from evenhand.jobs.vertical.file import PartySection
from evenhand.protocol.job import Job
from evenhand.protocol.policy import OwnPolicy
from evenhand.protocol.roles import SERVER
from evenhand.solvers import roles as solver_roles
from evenhand.solvers.roles import vertical_terms
from evenhand.training.run import one_blas_thread
from evenhand.vertical.messages import DERIVATIVE
from evenhand.vertical.problem import PartyData


def run(paths: dict[str, Path], name: str, **section: Any) -> dict[str, Any]:
    """Run the job with other keys, and keep each side's folder."""
    content = tomllib.loads(paths["job"].read_text())
    content["job"] |= section
    place = paths["job"].with_name(f"{name}.toml")
    place.write_text(tomli_w.dumps(content))
    job = read_federation_job(place)
    runs = paths["job"].parent / "runs"
    envs = {one: site_env(paths[one], str(runs / one)) for one in job.parts}
    holder = site_env(paths.get("bank", paths[next(iter(job.parts))]), str(runs / SERVER))

    def server(site: Any) -> Any:
        return server_part(job, lambda: holder, lambda: site.transcript, identity=paths["identity"], run=name)

    def other(one: str) -> Any:
        return lambda _: party_part(job, envs[one], None, run=name)

    with one_blas_thread():
        ends = run_sites({SERVER: server, **{one: other(one) for one in envs}}, Network())
    if not any(isinstance(end, Exception) for end in ends.values()):
        for one, end in ends.items():
            at_server = one == SERVER
            env = holder if at_server else envs[one]
            with side_folder(run_place(env.runs, name, at_server=at_server), one, job, env, False) as side:
                side.finish(end if at_server else end.write(side.folder))
    return ends


def allow(path: Path, rounds: int) -> None:
    path.write_text(path.read_text() + f"\n[policy]\nmost_rounds = {rounds}\n")


def test_jobs_that_extend_each_other_share_the_rounds_of_a_table(tmp_path: Path) -> None:
    paths = write_shops(tmp_path, {"solver": "subspace", "protection": "masked", "max_rounds": 2, "tol": 0.0})
    allow(paths["shop"], 5)
    before: dict[str, Any] = {}
    for name in ("one", "two"):
        ends = run(paths, name, **before)
        assert not any(isinstance(end, Exception) for end in ends.values()), ends
        before = {"extends": name}
    ends = run(paths, "three", **before)
    assert isinstance(ends["shop"], RunError)
    left = "2 rounds are more than the 1 that are left of its 5: its table took 4 before"
    assert left in str(ends["shop"])
    assert left in str(ends[SERVER])
    # A job anew counts as well; one that fits is taken.
    assert "the 1 that are left" in str(run(paths, "anew")["shop"])
    assert not isinstance(run(paths, "last", max_rounds=1)["shop"], Exception)
    # Parties without a limit count too.
    assert [Ledger(paths[one].parent).rounds("table.csv") for one in ("bank", "shop", "phone")] == [5, 5, 5]
    shown = CliRunner().invoke(app, ["ledger", str(paths["shop"])])
    assert "5 rounds" in shown.output
    assert shown.output.count("of run") == 3


def test_a_run_that_stops_early_takes_only_its_rounds(tmp_path: Path) -> None:
    paths = write_shops(tmp_path, {"solver": "subspace", "protection": "masked", "max_rounds": 40})
    ends = run(paths, "one")
    rounds = ends[SERVER]["certificate"]["rounds"]
    assert rounds < 30
    # The closing question counts as well.
    assert rounds <= Ledger(paths["shop"].parent).rounds("table.csv") <= rounds + 1


def test_clients_count_their_rounds(tmp_path: Path) -> None:
    pytest.importorskip("nacl")
    paths = write_clinics(tmp_path, {"solver": "sqp", "protection": "masked", "max_rounds": 2})
    allow(paths["south"], 3)
    assert not isinstance(run(paths, "one")["south"], Exception)
    assert Ledger(paths["south"].parent).rounds("table.csv") == 2
    assert "2 rounds are more than the 1 that are left of its 3" in str(run(paths, "two")["south"])


def asked(ledger: Ledger, run_name: str, most: int, rounds: int) -> int:
    """Ask a party of accepted terms; return how often it answers."""
    terms = vertical_terms(
        Job(solver="subspace", protection="none", max_rounds=rounds), {"bank": "active", "shop": "passive"}, 80, {}
    )
    role = solver_roles.party(terms, "shop", PartyData(np.random.default_rng(1).normal(size=(80, 4))))
    role.on_round = lambda: ledger.add_round("t.csv", run_name, most)
    role.start()
    for number in range(1, rounds + 1):
        nu = np.random.default_rng(number).choice([-1.0, 1.0], 80) / 80
        question = DERIVATIVE.message(SERVER, "shop", round=number, last=0, nu=nu, curvature=np.zeros(0))
        if ledger.rounds("t.csv") == most:
            with pytest.raises(RunError, match="7: none is left"):
                role.receive(question)
            return number - 1
        assert role.receive(question)
    return rounds


def test_each_attempt_at_a_run_counts(tmp_path: Path) -> None:
    """The terms of a resumed run are accepted again, but what it repeats is a new sum."""
    ledger = Ledger(tmp_path)
    assert [asked(ledger, "one", 7, 3) for _ in range(3)] == [3, 3, 1]
    policy = OwnPolicy(most_rounds=7, rounds_before=lambda: ledger.rounds("t.csv", without="one"))
    terms = vertical_terms(Job(solver="subspace", max_rounds=7), {"bank": "active", "shop": "passive"}, 80, {})
    assert policy(terms) is None
    lines = [json.loads(line) for line in (tmp_path / LEDGER).read_text().splitlines()]
    assert [one["kind"] for one in lines] == ["rounds"] * 7


def test_a_round_does_not_read_the_whole_ledger_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A line a round makes long ledgers. What others have added since is read, and a ledger put back is read anew."""
    ledger, other = Ledger(tmp_path), Ledger(tmp_path)
    for _ in range(200):
        ledger.add_round("t.csv", "one", 1000)
    before, parsed, loads = (tmp_path / LEDGER).read_bytes(), list[str](), json.loads
    monkeypatch.setattr("json.loads", lambda text: parsed.append(text) or loads(text))
    other.add_round("t.csv", "two", 1000)
    assert len(parsed) == 200
    for _ in range(10):
        ledger.add_round("t.csv", "one", 1000)
    assert len(parsed) < 220
    assert ledger.rounds("t.csv") == other.rounds("t.csv") == 211
    (tmp_path / LEDGER).write_bytes(before)
    assert ledger.rounds("t.csv") == 200
    (tmp_path / LEDGER).unlink()
    assert ledger.rounds("t.csv") == 0


def test_a_round_is_on_disk_before_it_is_answered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_: int) -> None:
        raise OSError(28, "no space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(Exception, match=LEDGER):
        asked(Ledger(tmp_path), "one", 7, 3)


def test_a_file_has_one_name_however_its_path_is_written(tmp_path: Path) -> None:
    (tmp_path / "table.csv").write_text("id,a\n1,2\n")
    (tmp_path / "link.csv").symlink_to("table.csv")
    written = ["table.csv", "./table.csv", str(tmp_path / "table.csv"), f"../{tmp_path.name}/table.csv", "link.csv"]
    sections = [PartySection(name="shop", table=one, id="id") for one in written]
    assert {data_name(one, tmp_path) for one in sections} == {"table.csv"}
    named = PartySection(name="shop", database="sqlite:///crm.db", sql="select id, a from people", id="id")
    assert data_name(named, tmp_path).endswith(": select id, a from people")
