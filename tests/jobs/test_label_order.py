"""Labels and groups go by id: the order of anybody's rows, and of the server's copy of them, changes nothing."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from support.federation import Network, assert_close, run_sites, write_shops

from evenhand.errors import DataError, EvenhandError
from evenhand.jobs.federation.dispatch import party_part
from evenhand.jobs.federation.files import read_federation_job, read_party, site_env
from evenhand.jobs.federation.sites import server_program
from evenhand.jobs.folder import read_job
from evenhand.jobs.vertical.runs import run_vertical_job
from evenhand.protocol.roles import State
from evenhand.protocol.transcript import Transcript
from evenhand.runtime.packets import only_acknowledges
from evenhand.runtime.site import Program
from evenhand.runtime.stateless_site import StatelessSite
from evenhand.training.run import one_blas_thread

FAIR = {"kind": "equal-opportunity", "epsilon": 0.05}
JOB = {"solver": "subspace", "constraint": FAIR, "max_rounds": 20, "test_fraction": 0.2}
COPY = "server's copy"
Make = Callable[[Callable[[], Transcript]], Program[Any]]


def write(folder: Path, job: Mapping[str, Any], seed: int) -> dict[str, Path]:
    """Everybody's files, each table in an order of its own, and another order in the server's copy of the bank's."""
    paths = write_shops(folder, dict(job))
    shutil.copytree(folder / "bank", folder / COPY)
    paths[COPY] = folder / COPY / "party.toml"
    rng = np.random.default_rng(seed)
    for name in ("bank", "shop", "phone", COPY):
        change(paths[name], lambda frame: frame.iloc[rng.permutation(len(frame))])
    return paths


def change(path: Path, how: Callable[[pd.DataFrame], pd.DataFrame]) -> None:
    table = path.with_name("table.csv")
    how(pd.read_csv(table)).to_csv(table, index=False)


def programs(paths: Mapping[str, Path]) -> dict[str, Make]:
    job, own = read_federation_job(paths["job"]), read_party(paths[COPY])

    def party(name: str) -> Make:
        return lambda _: party_part(job, site_env(paths[name]), None)

    def server(transcript: Callable[[], Transcript]) -> Program[Any]:
        return server_program(job, own, paths[COPY].parent, transcript, identity=paths["identity"])

    return {"server": server, **{name: party(name) for name in job.parts}}


def by_sites(paths: Mapping[str, Path]) -> dict[str, Any]:
    """Sites in threads, with a network that loses some packets."""
    made = programs(paths)
    return run_sites(
        {name: lambda site, make=make: make(lambda: site.transcript) for name, make in made.items()}, Network(0.1)
    )


def by_visits(paths: Mapping[str, Path]) -> dict[str, Any]:
    """Participants that are started anew for every message, as Flower does it."""
    made, chance = programs(paths), random.Random(0)
    mail: dict[str, list[tuple[str, Any]]] = {name: [] for name in made}
    states: dict[str, State | None] = dict.fromkeys(made)
    ends: dict[str, Any] = {}

    def visit(name: str) -> None:
        peers = [one for one in made if one != name]
        # The site is asked for its transcript only once there is one.
        found: list[StatelessSite[Any]] = []
        program = made[name](lambda: found[0].endpoint.transcript)
        site: StatelessSite[Any] = StatelessSite(name, peers, program, 0.0, states[name])
        found.append(site)
        answer, mail[name] = site.visit(mail[name]), []
        states[name] = site.snapshot()
        for to, packet in answer:
            mail[to].append((name, packet))
        if site.ended:
            ends[name] = site.result

    for name in made:
        visit(name)
    while waiting := [name for name, one in mail.items() if any(not only_acknowledges(content) for _, content in one)]:
        visit(chance.choice(waiting))
    return ends


RUNTIMES = {"sites": by_sites, "visits": by_visits}


@pytest.mark.parametrize("ids", ["equal", "private"])
@pytest.mark.parametrize("runtime", RUNTIMES)
@settings(max_examples=3, deadline=None, phases=[Phase.explicit, Phase.generate])
@given(seed=st.integers(0, 2**32 - 1))
def test_any_order_of_rows_gives_the_model_of_one_process(
    tmp_path_factory: pytest.TempPathFactory, runtime: str, ids: str, seed: int
) -> None:
    folder = tmp_path_factory.mktemp("orders")
    paths = write(folder, {**JOB, "ids": ids}, seed)
    with one_blas_thread():
        ends = RUNTIMES[runtime](paths)
    assert isinstance(ends["server"], dict), ends
    together = run_vertical_job(read_job(paths["together"]), folder, folder / "run")  # type: ignore[arg-type]
    if ids == "equal":
        # A participant that is visited keeps its transcript in its folder, which there is none of here.
        apart = ("bytes", "messages") if runtime == "visits" else ()
        assert_close(ends["server"], together.result | dict.fromkeys(apart, 0))
        return
    # Keys of private ids seal the messages that follow, which costs bytes.
    assert_close(ends["server"], together.result | {name: ends["server"][name] for name in ("bytes", "messages")})


@settings(max_examples=5, deadline=None, phases=[Phase.explicit, Phase.generate])
@given(seed=st.integers(0, 2**32 - 1))
def test_in_one_process_any_order_of_rows_gives_the_same_model(
    tmp_path_factory: pytest.TempPathFactory, seed: int
) -> None:
    folder = tmp_path_factory.mktemp("orders")
    found = []
    for name, drawn in (("one", 1), ("other", seed)):
        paths = write(folder / name, {**JOB, "tol": 1e-9}, drawn)
        run = run_vertical_job(read_job(paths["together"]), folder / name, folder / name / "run")  # type: ignore[arg-type]
        found.append(run.result)
    one, other = found
    assert one["certificate"]["objective"] == pytest.approx(other["certificate"]["objective"], rel=1e-6)
    assert one["quality"]["test"] == pytest.approx(other["quality"]["test"], abs=1e-3)


@pytest.mark.parametrize("ids", ["inner", "private"])
@pytest.mark.parametrize(
    ("how", "says"),
    [
        (lambda frame: frame.iloc[3:], "it lacks 3 of bank's 120 ids and has 0 ids that bank lacks"),
        (lambda frame: pd.concat([frame, frame.iloc[:2].assign(id=["x1", "x2"])]), "lacks 0 .* has 2 ids that bank"),
        (lambda frame: frame.assign(id=["x0", *frame["id"][1:]]), "lacks 1 of bank's 120 ids and has 1 ids"),
    ],
)
def test_a_copy_with_other_ids_is_refused_with_their_number(
    tmp_path: Path, ids: str, how: Callable[[pd.DataFrame], pd.DataFrame], says: str
) -> None:
    paths = write(tmp_path, {**JOB, "ids": ids}, 0)
    change(paths[COPY], how)
    ends = by_sites(paths)
    assert isinstance(ends["server"], DataError), ends
    with pytest.raises(DataError, match=f"party 'bank': the server's copy of bank's table has other rows.*{says}"):
        raise ends["server"]
    assert all(isinstance(ends[name], EvenhandError) for name in ("bank", "shop", "phone"))


def test_a_copy_with_ids_of_another_kind_is_refused(tmp_path: Path) -> None:
    paths = write(tmp_path, JOB, 0)
    change(paths[COPY], lambda frame: frame.assign(id=range(len(frame))))
    ends = by_sites(paths)
    with pytest.raises(DataError, match="copy of bank's table are integers, those of bank are text; give the server"):
        raise ends["server"]
