"""Between organisations as in one process: every participant on its own file, the same models bit for bit."""

from __future__ import annotations

import struct
import subprocess
import sys
import tomllib
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import tomli_w
from support.contracts import assert_same_state
from support.federation import Network, assert_alike, run_sites, write_shops

from evenhand.constraints.labelled_rows import LabelledRows
from evenhand.data.tables import parquet_file
from evenhand.errors import DataError, EvenhandError, InputError, JobError, RunError
from evenhand.jobs.federation.dispatch import party_part
from evenhand.jobs.federation.files import as_given, parse_federation_job, read_federation_job, read_party, site_env
from evenhand.jobs.federation.sites import DealerEnd, PartyEnd, party_program, server_program
from evenhand.jobs.folder import read_job
from evenhand.jobs.vertical.runs import run_vertical_job
from evenhand.metrics import strata
from evenhand.models.linear import column_major
from evenhand.models.saved import to_state
from evenhand.models.weight_share import WeightShare
from evenhand.protocol.messages import Message
from evenhand.protocol.policy import OwnPolicy
from evenhand.protocol.terms import VerticalTerms
from evenhand.runtime.packets import checksum
from evenhand.runtime.site import Site
from evenhand.solvers.registry import VERTICAL
from evenhand.training import vertical_steps
from evenhand.training.run import one_blas_thread
from evenhand.training.vertical_steps import train_as_party
from evenhand.vertical.problem import PartyData
from evenhand.vertical.protected.dealt_scores import ScoreDealer
from evenhand.vertical.subspace import tiny_problem

PARTIES = ("bank", "shop", "phone")
CROSSING = {"interactions": "full", "rows_a_leaf": 5}
MLP = {"kind": "mlp", "hidden": [3]}
FAIR = {"kind": "equal-opportunity", "epsilon": 0.05}


def programs(paths: dict[str, Path]) -> dict[str, Any]:
    job = read_federation_job(paths["job"])

    def server(site: Site) -> Any:
        return server_program(
            job, read_party(paths["bank"]), paths["bank"].parent, lambda: site.transcript, identity=paths["identity"]
        )

    def party(name: str) -> Any:
        return lambda _: party_part(job, site_env(paths[name]), None)

    return {"server": server, **{name: party(name) for name in job.parts}}


def run(paths: dict[str, Path], network: Network | None = None, **settings: Any) -> dict[str, Any]:
    with one_blas_thread():
        return run_sites(programs(paths), Network() if network is None else network, **settings)


@pytest.mark.parametrize(
    ("solver", "active", "more", "loss"),
    [
        ("subspace", ("bank",), {"constraint": FAIR, "test_fraction": 0.2}, 0.3),
        ("subspace", ("bank", "phone"), {"ids": "inner"}, 0.0),
        ("fairvfl", ("bank",), {"constraint": FAIR, "max_rounds": 4}, 0.2),
        (
            "fairvfl",
            ("bank", "phone"),
            {"constraint": FAIR, "max_rounds": 4, "model": MLP},
            0.0,
        ),
        ("fedbcd", ("bank", "shop", "phone"), {"max_rounds": 4}, 0.0),
        ("trees", ("bank",), {"constraint": FAIR, "max_rounds": 3, "model": "trees"}, 0.0),
        ("trees", ("bank", "phone"), {"max_rounds": 9, "model": "trees", "options": CROSSING}, 0.1),
    ],
)
def test_models_and_results_are_those_of_one_process(
    solver: str, active: tuple[str, ...], more: dict[str, Any], loss: float, tmp_path: Path
) -> None:
    if solver == "trees":
        pytest.importorskip("lightgbm")
    paths = write_shops(tmp_path, {"solver": solver, "max_rounds": 20, "runtime": "auto"} | more, active)
    ends = run(paths, Network(loss))
    together = run_vertical_job(read_job(paths["together"]), tmp_path, tmp_path / "run")  # type: ignore[arg-type]
    for name in PARTIES:
        assert isinstance(ends[name], PartyEnd), ends
        assert_same_state(to_state(ends[name].model), to_state(together.run.models[name]))
        if "options" in more:
            assert ends[name].model.splits
        assert ends[name].encoder.to_state() == together.folder.read_party(name, "encoder")
    assert_alike(ends["server"], together.result)


def test_a_party_bounds_its_signs_in_its_own_file(tmp_path: Path) -> None:
    """The job says that there are such columns; the model is that of one process."""
    settings = {"solver": "subspace", "max_rounds": 20, "runtime": "auto", "protection": "none"}
    settings["options"] = {"monotone": True}
    paths = write_shops(tmp_path, settings)
    asked = 'monotone = { calls = "down", age = "down" }'
    for which in ("phone", "together"):
        text = paths[which].read_text()
        assert text.count('name = "phone"') == 1
        paths[which].write_text(text.replace('name = "phone"', f'name = "phone"\n{asked}'))
    ends = run(paths, Network(0.2))
    together = run_vertical_job(read_job(paths["together"]), tmp_path, tmp_path / "run")  # type: ignore[arg-type]
    for name in PARTIES:
        assert isinstance(ends[name], PartyEnd), ends
        assert_same_state(to_state(ends[name].model), to_state(together.run.models[name]))
    weights = ends["phone"].model.weights
    assert (weights <= 0.0).all()
    assert 0 < int((weights == 0.0).sum()) < len(weights)
    job = paths["job"].read_text()
    assert "monotone = true" in job
    paths["job"].write_text(job.replace("monotone = true", "own_columns = true"))
    with pytest.raises(InputError, match="phone has monotone columns, but the job does not say so"):
        next(party_program(read_federation_job(paths["job"]), read_party(paths["phone"]), tmp_path))


def test_each_party_names_its_model_in_its_own_file(tmp_path: Path) -> None:
    pytest.importorskip("lightgbm")
    kinds = {"bank": "curves", "shop": {"kind": "mlp", "hidden": [4], "epochs": 3}, "phone": {"kind": "trees"}}
    settings: dict[str, Any] = {"solver": "learners", "max_rounds": 3, "runtime": "auto", "constraint": FAIR}
    settings["options"] = {"folds": 2}
    paths = write_shops(tmp_path, settings)
    for which in (*PARTIES, "together"):
        content = tomllib.loads(paths[which].read_text())
        for section in [content["party"]] if which in PARTIES else content["party"]:
            section["model"] = kinds[section["name"]]
        paths[which].write_text(tomli_w.dumps(content))
    network = Network(0.2)
    ends = run(paths, network)
    together = run_vertical_job(read_job(paths["together"]), tmp_path, tmp_path / "run")  # type: ignore[arg-type]
    for name in PARTIES:
        assert isinstance(ends[name], PartyEnd), ends
        assert_same_state(to_state(ends[name].model), to_state(together.run.models[name]))
    assert_alike(ends["server"], together.result)
    assert "mlp" not in paths["job"].read_text()
    settings["options"] |= {"exchange": "embedding"}
    paths["job"].write_text(tomli_w.dumps(tomllib.loads(paths["job"].read_text()) | {"job": settings}))
    with pytest.raises(JobError, match=r"job\.options\.exchange is .embedding., which is for runs in one process"):
        read_federation_job(paths["job"])


def test_weights_stay_with_the_label_and_count_as_in_one_process(tmp_path: Path) -> None:
    paths = write_shops(tmp_path, {"constraint": FAIR, "max_rounds": 20, "test_fraction": 0.2})
    table = tmp_path / "bank" / "table.csv"
    lines = table.read_text().splitlines()
    table.write_text("\n".join([f"{lines[0]},times", *(f"{one},{place % 4}" for place, one in enumerate(lines[1:]))]))
    plain = run_vertical_job(read_job(paths["together"]), tmp_path, tmp_path / "plain")  # type: ignore[arg-type]
    for file in (paths["bank"], paths["together"]):
        file.write_text(file.read_text().replace("sensitive = ", 'weight = "times"\nsensitive = '))
    ends = run(paths)
    together = run_vertical_job(read_job(paths["together"]), tmp_path, tmp_path / "run")  # type: ignore[arg-type]
    assert_alike(ends["server"], together.result)
    for name in PARTIES:
        assert_same_state(to_state(ends[name].model), to_state(together.run.models[name]))
    assert not np.allclose(plain.run.models["phone"].weights, together.run.models["phone"].weights, atol=1e-3)  # type: ignore[attr-defined]
    paths["job"].write_text(paths["job"].read_text().replace('"passive"', '"active"'))
    with pytest.raises(JobError, match="a single active party"):
        next(server_program(read_federation_job(paths["job"]), read_party(paths["bank"]), tmp_path, lambda: None))  # type: ignore[arg-type,return-value]


@pytest.mark.parametrize("test_fraction", [0.0, 0.25])
def test_of_a_parquet_file_a_party_holds_its_block_once(
    test_fraction: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows that are held out aside; and the run is that of one process."""
    given: list[PartyData] = []

    def kept(terms: VerticalTerms, name: str, own: PartyData, truth: LabelledRows | None, **more: Any) -> Any:
        given.append(own)
        return train_as_party(terms, name, own, truth, **more)

    monkeypatch.setattr(vertical_steps, "train_as_party", kept)
    paths = write_shops(tmp_path, {"max_rounds": 5, "test_fraction": test_fraction, "constraint": FAIR})
    for table in tmp_path.glob("*/table.csv"):
        pd.read_csv(table).to_parquet(table.with_suffix(".parquet"))
    for path in tmp_path.rglob("*.toml"):
        path.write_text(path.read_text().replace("table.csv", "table.parquet"))
    ends = run(paths)
    assert len(given) == len(PARTIES)
    assert all(np.shares_memory(own.matrix, column_major(own.matrix)) for own in given)
    together = run_vertical_job(read_job(paths["together"]), tmp_path, tmp_path / "run")  # type: ignore[arg-type]
    for name in PARTIES:
        assert_same_state(to_state(ends[name].model), to_state(together.run.models[name]))
    assert_alike(ends["server"], together.result)


@pytest.mark.soak
def test_all_together_need_little_more_memory_than_their_blocks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In one process, with the server: ids, messages, masks and packets of all are in the sum."""
    # Not so what does not grow with the rows, and what is imported on the way.
    for module, name in ((strata, "_DRAWS_AT_ONCE"), (tiny_problem, "MOST_COPIED"), (parquet_file, "_BATCH")):
        monkeypatch.setattr(module, name, 2000)
    monkeypatch.setattr("evenhand.metrics.performance._MOST_BINS", 100)
    every_row: dict[str, Any] = {"test_fraction": 0, "options": {"own_columns": False}}
    paths = write_shops(tmp_path, {"max_rounds": 3, "constraint": FAIR, **every_row})
    run(paths)
    # Enough columns that blocks outweigh the vectors of a number a row that a search over cuts keeps.
    rows, columns, rng = 40_000, 40, np.random.default_rng(0)
    for name in PARTIES:
        table = pd.DataFrame(rng.normal(size=(rows, columns))).add_prefix("x")
        table["id"] = rng.permutation(rows)
        if name == "bank":
            table["good"], table["sex"] = np.where(table["x0"] > 0, "yes", "no"), rng.integers(0, 2, rows)
        table.to_parquet(tmp_path / name / "table.parquet")
    for path in tmp_path.rglob("*.toml"):
        text = path.read_text().replace("table.csv", "table.parquet")
        path.write_text(text.replace('id = "id"', 'id = "id"\nnumbers = "standard"'))
    tracemalloc.start()
    try:
        ends = run(paths)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert isinstance(ends["bank"], PartyEnd), ends
    assert peak < 1.95 * len(PARTIES) * 8 * rows * columns


@pytest.mark.parametrize("solver", [name for name in VERTICAL if name.startswith(("vfb2", "af"))])
def test_parties_that_talk_to_each_other_end_with_a_certificate(solver: str, tmp_path: Path) -> None:
    paths = write_shops(tmp_path, {"solver": solver, "max_rounds": 2, "options": {"batch_size": 32}}, ("bank", "phone"))
    ends = run(paths, Network(0.05))
    assert ends["server"]["certificate"]["rounds"] == 2, ends
    assert ends["server"]["quality"]["train"]["accuracy"] > 0.5


@pytest.mark.parametrize(("level", "loss"), [("dealer", 0.2), ("encrypted", 0.0)])
def test_products_that_hide_nu_are_those_of_one_process(level: str, loss: float, tmp_path: Path) -> None:
    """Towns are few enough for the guards; the dealer is an organisation of its own, without a table."""
    job = {"solver": "subspace", "max_rounds": 4, "tol": 0.0, "protection": level, "constraint": FAIR}
    paths = write_shops(tmp_path, job)
    network = Network(loss)
    ends = run(paths, network)
    together = run_vertical_job(read_job(paths["together"]), tmp_path, tmp_path / "run")  # type: ignore[arg-type]
    assert isinstance(ends["bank"], PartyEnd), ends
    # Shares are drawn anew in each run, and cut a unit apart.
    np.testing.assert_allclose(ends["bank"].model.weights, together.run.models["bank"].weights, atol=1e-4)
    assert {type(ends[name].model) for name in ("shop", "phone")} == {WeightShare}
    certificates = ends["server"]["certificate"], together.result["certificate"]
    assert certificates[0]["rounds"] == certificates[1]["rounds"]
    assert certificates[0]["objective"] == pytest.approx(certificates[1]["objective"], rel=1e-6)
    if level == "dealer":
        assert isinstance(ends["notary"], DealerEnd)
        assert {entry.kind for entry in network.sites["notary"].transcript if entry.receiver == "notary"} == {
            *("offer", "outcome", "public-keys", "joining", "next-triple", "score-triple")
        }


def test_a_wrong_triple_after_training_ends_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    honest = ScoreDealer.handle

    def wrong(self: ScoreDealer, message: Message) -> Any:
        sent = honest(self, message)
        for one in sent:
            one["words"].view(np.uint64)[:3] += np.uint64(2**49)
        return sent

    monkeypatch.setattr(ScoreDealer, "handle", wrong)
    paths = write_shops(tmp_path, {"solver": "subspace", "max_rounds": 3, "tol": 0.0, "protection": "dealer"})
    assert "score the training rows otherwise than training did" in str(run(paths)["server"])


def test_a_dealer_is_named_by_the_job_and_accepted_by_everybody(tmp_path: Path) -> None:
    job = {"protection": "dealer", "max_rounds": 2}
    paths = write_shops(tmp_path / "policy", job)
    paths["shop"].write_text(paths["shop"].read_text() + '\n[policy]\nparticipants = ["bank", "shop", "phone"]\n')
    ends = run(paths)
    assert all("shop: it takes no part together with notary" in str(end) for end in ends.values())
    members = [{"name": "bank", "role": "active"}, {"name": "shop"}, {"name": "phone"}]
    for level, more in (("dealer", []), ("masked", [{"name": "notary", "role": "dealer"}])):
        with pytest.raises(JobError, match='parties have the role "dealer"'):
            parse_federation_job({"job": {"protection": level}, "party": members + more}, "job.toml")
    notary = tmp_path / "notary.toml"
    notary.write_text('[party]\nname = "notary"\nrole = "dealer"\ntable = "people.csv"\n')
    with pytest.raises(JobError, match=r"key party\.table: a dealer has no data"):
        read_party(notary)


def test_every_site_masks_by_secrets_of_its_own_and_by_those_it_shares_with_one_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[PartyData] = []

    def kept(terms: VerticalTerms, name: str, own: PartyData, truth: LabelledRows | None, **more: Any) -> Any:
        given.append(own)
        return train_as_party(terms, name, own, truth, **more)

    monkeypatch.setattr(vertical_steps, "train_as_party", kept)
    paths = write_shops(tmp_path, {"solver": "vfb2-svrg", "max_rounds": 1, "options": {"batch_size": 32}}, ("bank",))
    network = Network(0.05)
    ends = run(paths, network)
    assert ends["server"]["certificate"]["rounds"] == 1, ends
    sessions = {own.session.name: own.session for own in given if own.session is not None}
    assert set(sessions) == set(PARTIES)
    assert len({one.secret("x") for one in sessions.values()}) == 3
    shared = {(one, two): sessions[one].seed(two, "x") for one in PARTIES for two in PARTIES if one != two}
    assert len(set(shared.values())) == 3
    assert all(shared[one, two] == shared[two, one] for one, two in shared)
    assert {"public-key", "public-keys"} <= {entry.kind for entry in network.sites["server"].transcript}


def test_rows_are_found_without_anybodys_list_of_people(tmp_path: Path) -> None:
    paths = write_shops(tmp_path, {"ids": "private", "tol": 1e-9})
    table = tmp_path / "shop" / "table.csv"
    table.write_text("\n".join(table.read_text().splitlines()[:-7]) + "\n")
    network = Network(0.1)
    ends = run(paths, network)
    together = run_vertical_job(read_job(paths["together"]), tmp_path, tmp_path / "run")  # type: ignore[arg-type]
    # The same rows in the same order, whatever the secrets of the blinding are.
    for name in PARTIES:
        own, alone = ends[name].model.weights, together.folder.read_party(name, "weights")["weights"]
        np.testing.assert_array_equal(own, alone)
    assert "ids" not in {entry.kind for entry in network.sites["server"].transcript}


@pytest.mark.parametrize("ids", ["inner", "private"])
def test_too_few_common_rows_end_the_run_and_nobody_is_told_any(ids: str, tmp_path: Path) -> None:
    pytest.importorskip("nacl", reason="needs PyNaCl, of the extra privacy")
    paths = write_shops(tmp_path, {"ids": ids, "least_common": 121})
    network = Network()
    ends = run(paths, network)
    assert isinstance(ends["server"], DataError)
    assert all("fewer than 121 ids are common to all" in str(end) for end in ends.values())
    assert "common-rows" not in {entry.kind for site in network.sites.values() for entry in site.transcript}


def test_a_policy_that_does_not_agree_ends_the_run_before_any_row_is_spoken_of(tmp_path: Path) -> None:
    paths = write_shops(tmp_path, {"max_rounds": 20})
    own = paths["shop"].read_text() + "\n[policy]\nmost_rounds = 10\n"
    paths["shop"].write_text(own)
    network = Network()
    ends = run(paths, network)
    for name in ("server", *PARTIES):
        assert isinstance(ends[name], RunError)
        assert "shop: 20 rounds are more than its 10" in str(ends[name])
    kinds = {entry.kind for site in network.sites.values() for entry in site.transcript}
    assert kinds == {"offer", "accepted", "refused", "outcome"}


def test_a_party_decides_what_leaves_it(tmp_path: Path) -> None:
    paths = write_shops(tmp_path, {"max_rounds": 20})
    network = Network()
    ends = run(paths, network, vetoes={"shop": OwnPolicy(never_send=["masked"]).veto})
    assert "shop's policy does not allow a message to server" in str(ends["shop"])
    assert all(isinstance(end, EvenhandError) for end in ends.values())
    assert "masked" not in {entry.kind for entry in network.sites["shop"].transcript}


def test_the_site_of_a_party_knows_all_that_left_it_and_nothing_of_others(tmp_path: Path) -> None:
    paths = write_shops(tmp_path, {"max_rounds": 5})
    network = Network(0.2)
    run(paths, network)
    at_server = network.sites["server"].transcript
    for name in PARTIES:
        own = network.sites[name].transcript
        assert all(name in (entry.sender, entry.receiver) for entry in own)
        assert [e[1:] for e in own if e.sender == name] == [e[1:] for e in at_server if e.sender == name]


def test_nobody_can_speak_in_anothers_name_or_send_what_is_no_packet(tmp_path: Path) -> None:
    """A thief at phone sends shop's words as its own; what the transport says of the sender counts."""
    paths = write_shops(tmp_path, {"max_rounds": 5})

    def forge(sender: str, to: str, content: bytes) -> bytes:
        if sender != "phone" or b'"sender":"phone"' not in content:
            return content
        forged = content[4:].replace(b'"sender":"phone"', b'"sender":"shop" ')
        network.sites[to].arrived(sender, struct.pack("<I", checksum(forged)) + forged)
        network.sites[to].arrived("stranger", content)
        network.sites[to].arrived(sender, b"GET / HTTP/1.1")
        return content

    network = Network(meddle=forge)
    ends = run(paths, network)
    assert ends["server"]["certificate"]["rounds"] > 0
    refused = " ".join(network.sites["server"].refused)
    assert "refused a message that phone sent in the name of 'shop'" in refused
    assert "refused a packet from 'stranger'" in refused
    assert "refused a packet of 14 bytes" in refused


def test_rows_that_do_not_match_end_the_run_everywhere_and_name_no_id(tmp_path: Path) -> None:
    paths = write_shops(tmp_path, {"max_rounds": 5})
    table = tmp_path / "shop" / "table.csv"
    table.write_text("\n".join(table.read_text().splitlines()[:-7]) + "\n")
    ends = run(paths)
    assert isinstance(ends["server"], DataError)
    assert "shop lacks 7 of bank's 120 ids" in str(ends["server"])
    assert all(isinstance(ends[name], EvenhandError) for name in PARTIES)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (
            ("shop", 'role = "passive"', 'role = "active"'),
            "shop has the role 'passive' in the job; its own file says 'active'",
        ),
        (("job", 'name = "shop"', 'name = "shops"'), "shop is not a participant of the job"),
    ],
)
def test_a_file_that_does_not_fit_the_job_is_refused_at_once(
    change: tuple[str, str, str], says: str, tmp_path: Path
) -> None:
    paths = write_shops(tmp_path, {})
    which, old, new = change
    paths[which].write_text(paths[which].read_text().replace(old, new))
    job = read_federation_job(paths["job"])
    with pytest.raises(JobError, match=says):
        next(party_program(job, read_party(paths["shop"]), tmp_path))


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ('name = "shop"', 'name = "server"', "cannot be the name of a site|which is the server's own"),
        ('name = "shop"', 'name = "St. Mary"', "cannot be the name of a site"),
        ('role = "active"', 'role = "passive"', "no party is active"),
        ('role = "active"', 'role = "boss"', "party.0.role"),
        ("[job]", '[job]\nsolver = "magic"', "magic"),
        ("[job]", '[job]\nruntime = "threads"', "job.runtime"),
        ('name = "shop"', 'name = "shop"\ntable = "shop.csv"', "table"),
    ],
)
def test_a_job_for_a_federation_is_checked_and_holds_nothing_private(
    old: str, new: str, says: str, tmp_path: Path
) -> None:
    path = write_shops(tmp_path, {})["job"]
    path.write_text(path.read_text().replace(old, new, 1))
    with pytest.raises(JobError, match=says):
        read_federation_job(path)


def test_a_site_loads_nothing_heavy_that_it_has_no_use_for() -> None:
    """A Flower party is a new process at every visit."""
    heavy = ("sklearn", "fairlearn", "scipy.stats", "scipy.optimize", "matplotlib", "duckdb", "torch", "lightgbm")
    heavy += ("numba",)
    code = f"import sys, evenhand.jobs.federation.dispatch; print([name for name in {heavy} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("given", [{}, {"test_fraction": 0.2}])
def test_a_job_that_is_sent_asks_for_held_out_rows_only_if_its_file_does(given: dict[str, Any], tmp_path: Path) -> None:
    """By default a small table holds out none; a share that is given is held out of any table."""
    job = read_federation_job(write_shops(tmp_path, {"max_rounds": 3, **given})["job"])
    sent = parse_federation_job(as_given(job), "job")
    assert sent == job
    assert sent.job.asks_for_test_rows is bool(given)
