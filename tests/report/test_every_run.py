"""A page of every kind of run: every solver of both splits, with every kind of column.

Pages of pictures and of sparse files are beside the tests of such jobs.
"""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from support.hospitals import HospitalJob
from support.tables import SmallJob

from evenhand.report.page import make_page
from evenhand.report.record import RunRecord
from evenhand.report.verdicts import certified_values
from evenhand.runtime.folder import RunFolder
from evenhand.solvers.registry import HORIZONTAL, VERTICAL

FAIR = {"kind": "equal-opportunity", "epsilon": 0.2}
SLOW_VERTICAL = ("vfb2-sgd", "vfb2-svrg", "vfb2-saga", "afsgd-vp", "afsvrg-vp", "afsaga-vp")
"""Compiled on first use."""
STATE_VALUES = ("subspace", "trees", "learners", "sqp")
"""Solvers whose certificate states values on training rows, on rows left out, and what was asked."""


def with_every_kind(frame: pd.DataFrame, seed: int) -> None:
    """Add a date with missing values, a boolean, text and a column without values."""
    random, rows = np.random.default_rng(seed), len(frame)
    frame["joined"] = pd.Timestamp("2021-03-01") + pd.to_timedelta(random.integers(0, 900, rows), unit="D")
    frame.loc[frame.index[: rows // 10], "joined"] = pd.NaT
    frame["member"] = random.random(rows) < 0.4
    frame["region"] = random.choice(["north", "south", "west"], rows)
    frame["nothing"] = np.nan


def page_of(run: RunFolder) -> str:
    record = RunRecord.read(run.path)
    page = make_page([record])
    if said := certified_values(record.result):
        assert said[1:] in page.replace("&#x27;", "'")
    assert '<th class="number">nan' not in page
    for title in ("Training history", "Communication", "Details"):
        assert f">{title}</h3>" in page
    return page


def vertical_run(folder: Path, **settings: Any) -> RunFolder:
    job = SmallJob(folder, rows=700 if settings.get("protection") in ("dealer", "encrypted") else 160)
    for seed, frame in enumerate(job.frames.values()):
        with_every_kind(frame, seed)
    solver = VERTICAL.get(settings["solver"])
    constraint = {"constraint": FAIR} if solver is None or solver.takes_constraints else {}
    job.content["job"] = {"max_rounds": 2, "test_fraction": 0.25, **constraint, **settings}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return job.run().folder


@pytest.mark.parametrize(
    "solver", [pytest.param(one, marks=[pytest.mark.soak] if one in SLOW_VERTICAL else []) for one in VERTICAL]
)
def test_of_every_solver_across_columns(solver: str, tmp_path: Path) -> None:
    if solver == "trees":
        pytest.importorskip("lightgbm")
    run = vertical_run(tmp_path, solver=solver)
    page = page_of(run)
    assert ("on the training rows and" in page) == (solver in STATE_VALUES)
    assert "bank: age, city, joined, member, region" in page
    assert "nothing (no use)" in page
    assert "shop and social can work out the label of each row" in page
    assert "joined" in page[page.index("Feature weights") :]


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"protection": "masked"}, "reads sums over shop and social only"),
        pytest.param({"protection": "dealer"}, "shares that look random", marks=pytest.mark.soak),
        pytest.param({"protection": "encrypted"}, "shares that look random", marks=pytest.mark.soak),
        ({"protection": "none", "label_privacy": {"epsilon": 2.0}}, "randomised labels"),
    ],
    ids=["masked", "dealer", "encrypted", "label-privacy"],
)
def test_of_every_protection(settings: dict[str, Any], said: str, tmp_path: Path) -> None:
    assert said in page_of(vertical_run(tmp_path, solver="subspace", **settings))


@pytest.mark.parametrize("solver", HORIZONTAL)
def test_of_every_solver_across_rows(solver: str, tmp_path: Path) -> None:
    job = HospitalJob(tmp_path)
    for seed, frame in enumerate(job.frames.values()):
        with_every_kind(frame, seed)
    job.content["job"] |= {"solver": solver, "max_rounds": 6 if solver == "trees" else 2}
    if not HORIZONTAL[solver].takes_constraints:
        del job.content["job"]["constraint"]
    if solver == "trees":
        job.content["job"]["model"] = "trees"
    elif solver not in ("sqp", "prox-al"):
        job.averaging(solver, rounds=2)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        run = job.run().folder
    page = page_of(run)
    assert ("on the training rows and" in page) == (solver in STATE_VALUES)
    assert "all clients: age, ward, pressure, joined, member, region" in page
    assert "the server reads every client&#x27;s own updates" in page
