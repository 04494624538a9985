"""Jobs that keep all rows of the label holder, in one process and between organisations."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from support.contracts import assert_same_state
from support.federation import Network, assert_alike, assert_told, run_sites, write_shops

from evenhand.data.tables.absence import ABSENT
from evenhand.errors import DataError, JobError, ProtocolError, RunError
from evenhand.jobs.auditing import plan_of
from evenhand.jobs.federation.dispatch import party_part
from evenhand.jobs.federation.files import read_federation_job, read_party, site_env
from evenhand.jobs.federation.notices import notice
from evenhand.jobs.federation.sites import PartyEnd, draft_terms, server_program
from evenhand.jobs.folder import read_job
from evenhand.jobs.vertical.file import parse_vertical
from evenhand.jobs.vertical.rows import TableRows
from evenhand.jobs.vertical.runs import load_vertical_tables, run_vertical_job
from evenhand.models.saved import to_state
from evenhand.report.page import make_page
from evenhand.report.record import RunRecord
from evenhand.runtime.site import Site
from evenhand.solvers.registry import find
from evenhand.training.run import one_blas_thread
from evenhand.vertical.messages import LEVERAGES

PARTIES = ("bank", "shop", "phone")
FAIR = {"kind": "equal-opportunity", "epsilon": 0.05}


def write_gaps(folder: Path, job: dict[str, Any], active: tuple[str, ...] = ("bank",)) -> dict[str, Path]:
    """Shops in which shop lacks every third row, and phone the last forty; phone has strangers."""
    paths = write_shops(folder, job, active)
    shop, phone = (folder / name / "table.csv" for name in ("shop", "phone"))
    table = pd.read_csv(shop)
    table[np.arange(len(table)) % 3 > 0].to_csv(shop, index=False)
    table = pd.read_csv(phone)
    table.loc[80:82, "id"] = ["z1", "z2", "z3"]
    table.iloc[:83].to_csv(phone, index=False)
    return paths


def run(paths: dict[str, Path], transcripts: dict[str, Any] | None = None) -> dict[str, Any]:
    job = read_federation_job(paths["job"])

    def server(site: Site) -> Any:
        bank = paths["bank"]
        return server_program(job, read_party(bank), bank.parent, lambda: site.transcript, identity=paths["identity"])

    def party(name: str) -> Any:
        def program(site: Site) -> Any:
            if transcripts is not None:
                transcripts[name] = site
            return party_part(job, site_env(paths[name]), None)

        return program

    with one_blas_thread():
        return run_sites({"server": server, **{name: party(name) for name in job.parts}}, Network())


@pytest.mark.parametrize(
    ("active", "more"),
    [
        (("bank",), {"constraint": FAIR, "test_fraction": 0.2}),
        (("bank", "phone"), {"protection": "none"}),
        (("bank",), {"model": "trees", "solver": "trees", "max_rounds": 3, "test_fraction": 0.2}),
    ],
)
def test_models_and_results_are_those_of_one_process(
    active: tuple[str, ...], more: dict[str, Any], tmp_path: Path
) -> None:
    if "model" in more:
        pytest.importorskip("lightgbm")
    paths = write_gaps(tmp_path, {"ids": "left", "max_rounds": 20} | more, active)
    ends = run(paths)
    together = run_vertical_job(read_job(paths["together"]), tmp_path, tmp_path / "run")  # type: ignore[arg-type]
    for name in PARTIES:
        assert isinstance(ends[name], PartyEnd), ends
        assert_same_state(to_state(ends[name].model), to_state(together.run.models[name]))
        assert ends[name].encoder.to_state() == together.folder.read_party(name, "encoder")
        assert ends[name].encoder.marks_absence == (name != "bank")
    assert_alike(ends["server"], together.result)
    assert {name: len(ends[name].ids) for name in PARTIES} == {"bank": 120, "shop": 80, "phone": 80}


def test_private_ids_give_the_same_model(tmp_path: Path) -> None:
    """Rows come in another order, so the last bits differ."""
    job = {"max_rounds": 30, "tol": 1e-8, "test_fraction": 0.2}
    plain = write_gaps(tmp_path / "plain", job | {"ids": "left"})
    private = write_gaps(tmp_path / "private", job | {"ids": "private-left"})
    sites: dict[str, Site] = {}
    ends, found = run(plain), run(private, sites)
    for name in PARTIES:
        assert isinstance(found[name], PartyEnd), found
        np.testing.assert_allclose(found[name].model.weights, ends[name].model.weights, atol=1e-3)  # type: ignore[attr-defined]
    assert found["server"]["quality"].keys() == {"train", "test"}
    content = read_federation_job(private["job"])
    for name, site in sites.items():
        sent = ((one.kind, one.sender, one.receiver) for one in site.transcript.entries)
        assert_told(name, notice(content, name, draft_terms(content)), sent)


def test_hidden_presence_gives_the_model_of_told_presence(tmp_path: Path) -> None:
    """Who has which rows is in no message, so the model differs by the fixed point of masks only."""
    job = {"max_rounds": 30, "tol": 1e-8, "test_fraction": 0.2, "constraint": FAIR, "protection": "masked"}
    told = write_gaps(tmp_path / "told", job | {"ids": "private-left"})
    hidden = write_gaps(tmp_path / "hidden", job | {"ids": "hidden-left"})
    sites: dict[str, Site] = {}
    ends, found = run(told), run(hidden, sites)
    for name in PARTIES:
        assert isinstance(found[name], PartyEnd), found
        np.testing.assert_allclose(found[name].model.weights, ends[name].model.weights, atol=1e-6)  # type: ignore[attr-defined]
    assert "presence" in ends["server"]
    assert "presence" not in found["server"]
    content = read_federation_job(hidden["job"])
    for name, site in sites.items():
        sent = [(one.kind, one.sender, one.receiver) for one in site.transcript.entries]
        assert not {kind for kind, _, _ in sent} & {"presence", "common-rows", "leverages"}
        assert_told(name, notice(content, name, draft_terms(content)), sent)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"protection": "none"}, "needs one active party, two or more passive"),
        ({"missing_party": "absent"}, "tells who has which rows"),
    ],
)
def test_hidden_presence_is_refused_where_messages_would_tell_it(
    change: dict[str, Any], said: str, tmp_path: Path
) -> None:
    paths = write_gaps(tmp_path, {"ids": "hidden-left", "protection": "masked"} | change)
    for read, path in ((read_federation_job, "job"), (read_job, "together")):
        with pytest.raises(JobError, match=said):
            read(paths[path])


def test_hidden_presence_takes_bounds_on_rates_because_leverages_are_means(tmp_path: Path) -> None:
    """One leverage for all rows that a party lacks would tell them apart."""
    paths = write_gaps(tmp_path, {"ids": "hidden-left", "protection": "masked", "max_rounds": 3})
    job = read_job(paths["together"]).model_dump(exclude_unset=True)
    job["job"]["constraint"] = FAIR | {"measure": "error"}
    tables = load_vertical_tables(parse_vertical(job, "job"), tmp_path)
    terms, stages = tables.terms, tables.stages
    for name in ("shop", "phone"):
        # As it is before it is masked.
        role = find("vertical", "subspace").participant(terms, name, stages[name].own)
        sent = next(one for one in role.start() if one.kind == LEVERAGES.kind)
        assert len(np.unique(sent["leverages"])) == 1


def test_held_out_rows_are_those_of_the_job(tmp_path: Path) -> None:
    paths = write_gaps(tmp_path, {"ids": "left", "test_fraction": 0.3})
    tables = load_vertical_tables(read_job(paths["together"]), tmp_path)  # type: ignore[arg-type]
    assert 0 < tables.test.sum() < 120
    for name, rows in tables.rows.items():
        assert np.array_equal(rows.test, tables.test)
        assert len(rows.index) == rows.there.sum() == {"bank": 120, "shop": 80, "phone": 80}[name]
        assert rows.matrix.shape[0] == 120
    shop = tables.rows["shop"]
    assert shop.encoder.feature_names_out[-1] == ABSENT
    assert not np.asarray(shop.matrix)[~shop.there, :-1].any()
    assert tables.not_used() == [
        "all 120 rows of the label holder are used; of these, shop has 80, phone has 80. A party adds one learned "
        "number to the score of a row that it lacks"
    ]
    again: TableRows = shop
    again.table = None
    places = np.where(shop.there, np.cumsum(shop.there) - 1, -1)
    with pytest.raises(ProtocolError, match="other rows are held out than the job's"):
        again.take(places, ~tables.test)


def test_a_party_counts_its_own_rows(tmp_path: Path) -> None:
    paths = write_gaps(tmp_path, {"ids": "left"})
    paths["shop"].write_text(paths["shop"].read_text() + "\n[policy]\nleast_rows = 81\n")
    ends = run(paths)
    assert isinstance(ends["shop"], RunError)
    assert "shop: 80 common rows are fewer than its 81" in str(ends["server"])


def test_ids_that_repeat_are_refused(tmp_path: Path) -> None:
    paths = write_gaps(tmp_path, {"ids": "left"})
    table = tmp_path / "shop" / "table.csv"
    lines = table.read_text().splitlines()
    table.write_text("\n".join([*lines, lines[-1]]) + "\n")
    with pytest.raises(DataError, match=r"shop.*more than once"):
        load_vertical_tables(read_job(paths["together"]), tmp_path)  # type: ignore[arg-type]


def test_a_killed_run_resumes(tmp_path: Path) -> None:
    paths = write_gaps(tmp_path, {"ids": "left", "max_rounds": 20, "constraint": FAIR})
    job = read_job(paths["together"])
    whole = run_vertical_job(job, tmp_path, tmp_path / "whole")  # type: ignore[arg-type]

    class Stopped(Exception):
        pass

    def stop(report: Any) -> None:
        if report["round"] == 2:
            raise Stopped

    with pytest.raises(Stopped):
        run_vertical_job(job, tmp_path, tmp_path / "run", on_round=stop, checkpoint_seconds=0.0)  # type: ignore[arg-type]
    again = run_vertical_job(job, tmp_path, tmp_path / "run", resume=True)  # type: ignore[arg-type]
    for name in PARTIES:
        assert_same_state(to_state(whole.run.models[name]), to_state(again.run.models[name]))


def write_proxies(folder: Path, job: dict[str, Any], active: tuple[str, ...] = ("bank",)) -> dict[str, Path]:
    """Shops of 3,000 people in which the shop knows men more often, so that presence tells the group."""
    paths = write_shops(folder, job, active)
    rng, rows = np.random.default_rng(8), 3000
    ids = [f"c{number:04d}" for number in rng.permutation(rows)]
    sex = np.where(rng.random(rows) < 0.5, "f", "m")
    numbers = rng.normal(size=(rows, 3)) + (sex == "m")[:, None]
    good = numbers.sum(axis=1) + rng.logistic(size=rows) > 1.5
    bank = pd.DataFrame({"id": ids, "income": numbers[:, 0], "good": np.where(good, "yes", "no"), "sex": sex})
    bank.to_csv(folder / "bank" / "table.csv", index=False)
    shop = pd.DataFrame({"id": ids, "visits": numbers[:, 1]})[rng.random(rows) < np.where(sex == "m", 0.7, 0.4)]
    shop.to_csv(folder / "shop" / "table.csv", index=False)
    phone = pd.DataFrame({"id": ids, "calls": numbers[:, 2]})[rng.random(rows) < 0.97]
    phone.to_csv(folder / "phone" / "table.csv", index=False)
    return paths


def test_bounds_by_pattern_hold_between_organisations_and_stand_on_the_page(tmp_path: Path) -> None:
    asked = {"kind": "equal-opportunity", "epsilon": 0.05, "measure": "error", "by_presence": True}
    job = {"ids": "left", "max_rounds": 40, "constraint": asked, "test_fraction": 0.2, "protection": "none"}
    paths = write_proxies(tmp_path, job, ("bank", "phone"))
    together = run_vertical_job(read_job(paths["together"]), tmp_path, tmp_path / "run")  # type: ignore[arg-type]
    ends = run(paths)
    for name in PARTIES:
        assert_same_state(to_state(ends[name].model), to_state(together.run.models[name]))
    assert_alike(ends["server"], together.result)
    # The phone company lacks few people: whoever it lacks shares a bound with the smallest other pattern.
    patterns = ["other parties (rare patterns)", "shop + phone"]
    assert together.run.row_names == [f"false-negative rate, f vs. m (sex), also at {one}" for one in patterns]
    values = [one["training rows"] for one in together.result["statistics"]["constraints"]]
    assert max(map(abs, values)) <= 0.051
    found = together.result["presence"]
    assert {one["pattern"] for one in found["test"]["patterns"]} == set(patterns)
    (sex,) = (one for one in found["train"]["tells"] if one["of"] == "sex")
    assert sex["shares"]["m"]["shop"] > sex["shares"]["f"]["shop"] + 0.2
    assert sex["cramers_v"] > 0.1
    assert sex["p_value"] < 0.01
    page = make_page([RunRecord.read(tmp_path / "run")])
    for words in ("Rows that parties lack", "gap of false-negative rate, sex", "presence is a proxy", *patterns):
        assert words in page


def test_a_plan_of_bounds_by_pattern_lists_its_messages(tmp_path: Path) -> None:
    asked = {"kind": "equal-opportunity", "by_presence": True}
    paths = write_gaps(tmp_path, {"ids": "left", "constraint": asked})
    for path in ("job", "together"):
        job = read_federation_job(paths[path]) if path == "job" else read_job(paths[path])
        assert {one.kind for one in plan_of(job)} >= {"presence", "held-out"}  # type: ignore[arg-type]
