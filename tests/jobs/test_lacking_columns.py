"""Clients whose tables lack columns: the union of columns, with missing values where a client has none."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from support.hospitals import HospitalJob

from evenhand.errors import ColumnWarning, DataError, JobError
from evenhand.jobs.federation.files import parse_federation_job
from evenhand.jobs.new_rows import score_new_clients

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


@pytest.mark.parametrize("solver", ["sqp", "trees"])
def test_a_column_that_a_client_lacks_is_a_column_without_values(solver: str, tmp_path: Path) -> None:
    if solver == "trees":
        pytest.importorskip("lightgbm")
    more = {"solver": solver, **({"max_rounds": 6, "options": {"rows_a_leaf": 5}} if solver == "trees" else {})}
    (tmp_path / "lacks").mkdir()
    (tmp_path / "empty").mkdir()
    lacks, empty = _hospitals(tmp_path / "lacks", True, **more), _hospitals(tmp_path / "empty", False, **more)
    # The order of columns is that of the first table either way.
    one, other = lacks.run(), empty.run()
    assert one.run.weights.tobytes() == other.run.weights.tobytes()
    scores = score_new_clients(one.folder).scores["score"]
    np.testing.assert_array_equal(scores, score_new_clients(other.folder).scores["score"])


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
