"""Clients whose tables lack columns: the union of columns, with missing values where a client has none."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from support.clinics import CLIENTS, FAIR, write_clinics
from support.federation import Network, run_sites
from support.hospitals import HospitalJob

from evenhand import HorizontalClassifier
from evenhand.errors import ColumnWarning, DataError, JobError
from evenhand.jobs.federation.clients import ClientEnd, client_program, clients_server_program
from evenhand.jobs.federation.files import ClientsJob, parse_federation_job, read_federation_job, read_party
from evenhand.jobs.folder import read_job
from evenhand.jobs.horizontal.runs import run_horizontal_job
from evenhand.jobs.new_rows import score_new_clients
from evenhand.runtime.site import Site
from evenhand.solvers.registry import HORIZONTAL
from evenhand.training.run import one_blas_thread

pytestmark = pytest.mark.filterwarnings("ignore::evenhand.errors.ColumnWarning")


def _hospitals(folder: Path, lacks: bool, **job: object) -> HospitalJob:
    """Hospitals of which the second has no ward and the last no pressure: no column, or one without values."""
    made = HospitalJob(folder)
    made.content["job"] |= job
    names = list(made.frames)
    for name, column in ((names[1], "ward"), (names[-1], "pressure")):
        made.frames[name] = (
            made.frames[name].drop(columns=column) if lacks else made.frames[name].assign(**{column: np.nan})
        )
    made.content["data"] |= {"lacking_columns": "missing"}
    return made


MLP = {"kind": "mlp", "hidden": [3]}


@pytest.mark.parametrize(
    ("solver", "more"),
    [
        *((name, {"max_rounds": 3}) for name in HORIZONTAL if name != "trees"),
        ("trees", {"max_rounds": 6, "options": {"rows_a_leaf": 5}}),
        ("sqp", {"protection": "masked", "max_rounds": 3}),
        ("fedavg", {"model": MLP, "max_rounds": 3}),
    ],
)
def test_a_column_that_a_client_lacks_is_a_column_without_values(
    solver: str, more: dict[str, Any], tmp_path: Path
) -> None:
    if solver == "trees":
        pytest.importorskip("lightgbm")
    more = {"solver": solver, **more, **({} if HORIZONTAL[solver].takes_constraints else {"constraint": []})}
    (tmp_path / "lacks").mkdir()
    (tmp_path / "empty").mkdir()
    lacks, empty = _hospitals(tmp_path / "lacks", True, **more), _hospitals(tmp_path / "empty", False, **more)
    # The order of columns is that of the first table either way.
    one, other = lacks.run(), empty.run()
    assert one.run.weights.tobytes() == other.run.weights.tobytes()
    scores = score_new_clients(one.folder).scores["score"]
    np.testing.assert_array_equal(scores, score_new_clients(other.folder).scores["score"])


def test_between_organisations_the_model_is_that_of_one_process(tmp_path: Path) -> None:
    paths = write_clinics(
        tmp_path,
        {"solver": "sqp", "constraint": FAIR},
        data={"lacking_columns": "missing", "columns": ["a", "b", "c", "ward"]},
    )
    for name, column in (("south", "ward"), ("west", "c")):
        table = tmp_path / name / "table.csv"
        pd.read_csv(table).drop(columns=column).to_csv(table, index=False)
    together = run_horizontal_job(read_job(paths["together"]), tmp_path, tmp_path / "run")  # type: ignore[arg-type]
    job = read_federation_job(paths["job"])
    assert isinstance(job, ClientsJob)

    def server(site: Site) -> Any:
        return clients_server_program(job, lambda: site.transcript, identity=paths["identity"])

    def client(name: str) -> Any:
        return lambda _: client_program(job, read_party(paths[name]), paths[name].parent)

    with one_blas_thread():
        ends = run_sites({"server": server, **{name: client(name) for name in CLIENTS}}, Network())
    for name in CLIENTS:
        assert isinstance(ends[name], ClientEnd), ends
        assert ends[name].state["weights"].tobytes() == together.run.weights.tobytes()


def test_in_python_the_clients_tables_are_one_below_the_other() -> None:
    """Columns that a client lacks are missing in its rows."""
    rng = np.random.default_rng(0)
    tables = [pd.DataFrame(rng.normal(size=(80, 3)), columns=list("abc")) for _ in range(3)]
    labels = np.concatenate([table["a"] + table["b"] + rng.logistic(size=80) > 0 for table in tables]).astype(int)
    clients = np.repeat(["p", "q", "r"], 80)
    lacks = pd.concat([tables[0], tables[1].drop(columns="c"), tables[2]])
    empty = pd.concat([tables[0], tables[1].assign(c=np.nan), tables[2]])
    one, other = (HorizontalClassifier(solver="sqp").fit(table, labels, clients=clients) for table in (lacks, empty))
    np.testing.assert_array_equal(one.decision_function(empty), other.decision_function(empty))
    assert one.score(lacks, labels) > 0.7


def test_every_client_that_lacks_columns_is_named(tmp_path: Path) -> None:
    made = _hospitals(tmp_path, True, solver="sqp")
    with pytest.warns(ColumnWarning, match=r"client '\w+': the table lacks 'ward'"):
        made.run()


def test_by_default_a_client_that_lacks_a_column_is_refused(tmp_path: Path) -> None:
    made = _hospitals(tmp_path, True)
    del made.content["data"]["lacking_columns"]
    with pytest.raises(DataError, match="there is no column 'ward'"):
        made.run()


def test_a_client_without_any_feature_is_refused(tmp_path: Path) -> None:
    made = _hospitals(tmp_path, True)
    name = list(made.frames)[1]
    made.frames[name] = made.frames[name].drop(columns=["age", "pressure"], errors="ignore")
    with pytest.raises(DataError, match="none of the feature columns"):
        made.run()


def test_between_organisations_the_job_lists_the_columns() -> None:
    job = {
        "job": {"split": "horizontal", "solver": "sqp"},
        "data": {"label": {"column": "died", "positive": "yes", "negative": "no"}, "lacking_columns": "missing"},
        "client": [{"name": "ghent"}, {"name": "bruges"}],
    }
    with pytest.raises(JobError, match=r"needs data\.columns between organisations"):
        parse_federation_job(job, "job")
