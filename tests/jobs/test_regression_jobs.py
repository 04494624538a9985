"""Jobs whose label is a number: trained, scored, shown and refused, in one process and between organisations."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import tomli_w
from support.clinics import CLIENTS, write_clinics
from support.federation import Network, assert_close, run_sites, write_shops

from evenhand import MeanPredictionParity, VerticalRegressor, load_run
from evenhand.data import PartyEncoder
from evenhand.errors import DataError, EvenhandError, InputError, JobError
from evenhand.estimators.saved import merged_pipeline
from evenhand.jobs.auditing import audit_run, plan_of
from evenhand.jobs.checking import check_job_file
from evenhand.jobs.federation.clients import client_program, clients_server_program
from evenhand.jobs.federation.dispatch import party_part
from evenhand.jobs.federation.files import read_federation_job, read_party, site_env
from evenhand.jobs.federation.sites import server_program
from evenhand.jobs.folder import read_job
from evenhand.jobs.horizontal.file import parse_horizontal
from evenhand.jobs.horizontal.runs import run_horizontal_job
from evenhand.jobs.new_rows import score_new_clients, score_new_parties
from evenhand.jobs.scorecards import PointScale, scorecard
from evenhand.jobs.vertical.runs import run_vertical_job
from evenhand.report.page import make_page
from evenhand.report.record import RunRecord
from evenhand.runtime.site import Site
from evenhand.training.run import one_blas_thread

PARTIES = ("bank", "shop", "phone")
PARITY = {"kind": "mean-prediction-parity", "epsilon": 0.1}
CLAIMS = {"loss": "poisson", "constraint": PARITY, "test_fraction": 0.25}


def shops(folder: Path, **job: Any) -> dict[str, Path]:
    """Three parties; the bank's label becomes claims a year, with the years as weights."""
    paths = write_shops(folder, {**CLAIMS, **job})
    table = pd.read_csv(folder / "bank" / "table.csv")
    rng = np.random.default_rng(2)
    years = rng.uniform(0.2, 1.0, len(table)).round(3)
    mean = np.exp(0.4 * table["income"] + 0.5 * (table["sex"] == "f"))
    table["good"], table["years"] = rng.poisson(mean * years) / years, years
    table["debt"] += 2.0 * (table["sex"] == "f")
    table.to_csv(folder / "bank" / "table.csv", index=False)
    for name in ("bank", "together"):
        content = tomllib.loads(paths[name].read_text())
        own = content["party"] if name == "bank" else content["party"][0]
        own |= {"label": {"column": "good"}, "weight": "years"}
        paths[name].write_text(tomli_w.dumps(content))
    return paths


def clinics(folder: Path, **job: Any) -> dict[str, Path]:
    """Three clients; what is predicted is a number of visits a year, with the years as weights."""
    data = {"label": {"column": "visits"}, "weight": "years"}
    paths = write_clinics(folder, {**CLAIMS, "solver": "sqp", **job}, data=data)
    for place, name in enumerate(CLIENTS):
        table = pd.read_csv(folder / name / "table.csv").drop(columns="sick")
        rng = np.random.default_rng(place)
        years = rng.uniform(0.2, 3.0, len(table)).round(2)
        visits = rng.poisson(years * np.exp(0.5 * table["a"] + 0.4 * (table["sex"] == "f"))) / years
        table.assign(visits=visits, years=years).to_csv(folder / name / "table.csv", index=False)
    return paths


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Path], Any]:
    folder = tmp_path_factory.mktemp("claims")
    paths = shops(folder)
    return paths, run_vertical_job(read_job(paths["together"]), folder, folder / "run")  # type: ignore[arg-type]


def test_the_result_states_deviance_means_and_gaps(trained: tuple[dict[str, Path], Any]) -> None:
    result = trained[1].result
    assert result["labels"] == {"loss": "poisson", "power": 1.5}
    assert "cut" not in result
    assert set(result["quality"]) == {"train", "test"}
    assert {"D2", "mean_loss", "mean_prediction", "prediction_gap"} <= set(result["quality"]["train"])
    (held,) = result["constraints"]["train"]
    assert held["estimate"] <= 0.1 + 1e-6
    assert held["measure"] == "prediction"
    assert held["standard_error"] > 0.0
    assert result["quality"]["train"]["prediction_gap"] == pytest.approx(held["estimate"], abs=1e-9)
    tenths = result["deciles"]["train"]
    assert [one["prediction"][0] for one in tenths] == sorted(one["prediction"][0] for one in tenths)
    assert sum(one["rows"] for one in tenths) + sum(one["rows"] for one in result["deciles"]["test"]) == 120


def test_a_job_is_the_estimator_and_predicts_means(trained: tuple[dict[str, Path], Any]) -> None:
    folder = trained[1].folder
    found = score_new_parties(folder)
    scores = found.scores.sort_index()
    np.testing.assert_allclose(scores["prediction"], np.exp(scores["score"]))
    assert found.measured is not None
    assert "D2" in found.measured["quality"]["scored"]
    tables = {name: pd.read_csv(trained[0][name].parent / "table.csv").set_index("id").sort_index() for name in PARTIES}
    held = scores["held_out"].to_numpy()
    bank = tables["bank"].drop(columns=["good", "years", "sex"])
    parts = [bank, tables["shop"], tables["phone"]]
    model = VerticalRegressor(loss="poisson", constraint=MeanPredictionParity(0.1))
    model.fit(
        {name: one[~held] for name, one in zip(PARTIES, parts, strict=True)},
        tables["bank"]["good"][~held],
        tables["bank"]["years"][~held].to_numpy(),
        sensitive_features=tables["bank"][["sex"]][~held],
    )
    told = model.predict(dict(zip(PARTIES, parts, strict=True)))
    np.testing.assert_allclose(scores["prediction"], told, rtol=0.02)
    saved = load_run(folder.path).predict(dict(zip(PARTIES, parts, strict=True)))
    np.testing.assert_allclose(saved, scores["prediction"], rtol=1e-9)


def test_the_page_shows_predictions_and_residuals(trained: tuple[dict[str, Path], Any]) -> None:
    page = make_page([RunRecord.read(trained[1].folder.path)])
    assert "which predicts a number (poisson loss)" in page
    assert "Mean target with its 95 % interval" in page
    assert "Mean residual, target minus prediction, by sex" in page
    assert "mean predictions, within 0.1" in page
    assert "Confusion matrix" not in page


@pytest.mark.slow
def test_an_audit_reads_the_numbers(trained: tuple[dict[str, Path], Any]) -> None:
    found = [one for one in audit_run(trained[1].folder).findings if one.target == "each person's target"]
    best = max(found, key=lambda one: one.value.value)
    assert best.value.value > 0.8
    assert best.lift.value > 0.3


def test_what_is_for_classes_is_refused_of_a_finished_run(trained: tuple[dict[str, Path], Any]) -> None:
    folder = trained[1].folder
    with pytest.raises(InputError, match="points are log odds"):
        scorecard(folder, "bank", PointScale())
    with pytest.raises(InputError, match="use load_run"):
        merged_pipeline(folder.path)


def test_between_organisations_the_model_is_that_of_one_process(
    trained: tuple[dict[str, Path], Any], tmp_path: Path
) -> None:
    paths = shops(tmp_path)
    job = read_federation_job(paths["job"])

    def server(site: Site) -> Any:
        own = read_party(paths["bank"])
        return server_program(job, own, paths["bank"].parent, lambda: site.transcript, identity=paths["identity"])

    def party(name: str) -> Any:
        return lambda _: party_part(job, site_env(paths[name]), None)

    with one_blas_thread():
        ends = run_sites({"server": server, **{name: party(name) for name in PARTIES}}, Network())
    assert isinstance(ends["server"], dict), ends
    for kind in ("quality", "constraints"):
        assert_close(ends["server"][kind], trained[1].result[kind])


@pytest.mark.parametrize("protection", ["none", "masked"])
def test_clients_train_alike_in_one_process_and_apart(protection: str, tmp_path: Path) -> None:
    paths = clinics(tmp_path, protection=protection)
    together = run_horizontal_job(read_job(paths["together"]), tmp_path, tmp_path / "run")  # type: ignore[arg-type]
    assert together.result["constraints"]["train"][0]["estimate"] <= 0.1 + 1e-3
    assert set(together.result["clients"]["north"]["train"]) == {"rows", "D2"}
    job = read_federation_job(paths["job"])

    def server(site: Site) -> Any:
        return clients_server_program(job, lambda: site.transcript, identity=paths["identity"])  # type: ignore[arg-type]

    def client(name: str) -> Any:
        return lambda _: client_program(job, read_party(paths[name]), paths[name].parent)  # type: ignore[arg-type]

    with one_blas_thread():
        ends = run_sites({"server": server, **{name: client(name) for name in CLIENTS}}, Network())
    assert isinstance(ends["server"], dict), ends
    kept = together.folder.read_model("weights")["weights"]
    for name in CLIENTS:
        np.testing.assert_array_equal(ends[name].state["weights"], kept)
        # Nobody counts numbers together: each client measures on its own rows.
        assert "D2" in ends[name].quality["quality"]["test"]
    assert "quality" not in ends["server"]
    scored = score_new_clients(together.folder)
    np.testing.assert_allclose(scored.scores["prediction"], np.exp(scored.scores["score"]))


def test_weights_of_clients_are_of_numbers_and_not_features(tmp_path: Path) -> None:
    paths = clinics(tmp_path)
    run = run_horizontal_job(read_job(paths["together"]), tmp_path, tmp_path / "run")  # type: ignore[arg-type]
    assert "years" not in PartyEncoder.from_state(run.folder.read_model("encoder")).columns_in
    everybody = pd.concat([pd.read_csv(tmp_path / name / "table.csv") for name in CLIENTS])
    told = run.result["quality"]["train"]["mean_target"]
    weighted = np.average(everybody["visits"], weights=everybody["years"])
    assert abs(told - weighted) < abs(told - everybody["visits"].mean())
    content = tomllib.loads(paths["together"].read_text())
    content["job"].pop("loss")
    content["job"]["constraint"] = {"kind": "equalized-odds"}
    with pytest.raises(JobError, match=r"data\.weight is 'years', and clients weigh rows only where"):
        parse_horizontal(content, "job")


def test_check_names_targets_that_the_loss_cannot_have(tmp_path: Path) -> None:
    paths = shops(tmp_path, loss="gamma")
    (problem,) = check_job_file(read_job(paths["together"]), tmp_path).problems
    assert "the gamma loss needs targets above zero" in problem
    with pytest.raises(DataError, match=r"party 'bank'.*zero or negative"):
        run_vertical_job(read_job(paths["together"]), tmp_path, tmp_path / "run")  # type: ignore[arg-type]
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("job", "told"),
    [
        ({"constraint": {"kind": "equalized-odds"}}, "mean-prediction-parity"),
        ({"threshold": 0.3}, "threshold is for two classes"),
        ({"loss": "poison"}, "job.loss"),
        ({"loss": "tweedie", "power": 2.5}, "between 1 and 2"),
        ({"protection": "encrypted"}, "only the logistic loss"),
        ({"class_weight": "balanced"}, "class_weight needs"),
    ],
)
def test_keys_that_do_not_fit_numbers_are_refused(job: dict[str, Any], told: str, tmp_path: Path) -> None:
    paths = shops(tmp_path, **job)
    with pytest.raises(EvenhandError, match=told):
        read_job(paths["together"])


def test_a_positive_label_of_numbers_is_refused(tmp_path: Path) -> None:
    paths = shops(tmp_path)
    content = tomllib.loads(paths["together"].read_text())
    content["party"][0]["label"]["positive"] = 1
    paths["together"].write_text(tomli_w.dumps(content))
    with pytest.raises(JobError, match=r"label\.positive names classes"):
        run_vertical_job(read_job(paths["together"]), tmp_path, tmp_path / "run")  # type: ignore[arg-type]


@pytest.mark.parametrize("loss", ["squared", "poisson", "gamma", "tweedie"])
def test_the_plan_lists_messages_of_every_loss(loss: str, tmp_path: Path) -> None:
    kinds = {one.kind for one in plan_of(read_job(shops(tmp_path / "columns", loss=loss)["together"]))}
    assert "derivative" in kinds
    assert plan_of(read_job(clinics(tmp_path / "rows", loss=loss)["together"]))
