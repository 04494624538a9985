"""VFB² from the estimators and from job files, as a user meets it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression, Ridge

from evenhand import EqualOpportunity, VerticalClassifier, VerticalRegressor, VirtualClock
from evenhand.data import PartyEncoder
from evenhand.errors import DataError, InputError
from evenhand.jobs.vertical.file import parse_vertical
from evenhand.jobs.vertical.runs import run_vertical_job
from evenhand.solvers import VFB2SAGA, VFB2SVRG

ROWS = 300
RNG = np.random.default_rng(0)
X = pd.DataFrame(RNG.standard_normal((ROWS, 6)), columns=list("abcdef"))
X["colour"] = RNG.choice(["red", "green", "blue"], ROWS)
GROUPS = pd.Series(RNG.choice(["m", "f"], ROWS), name="sex")
Y = np.where(X["a"] - X["d"] + (GROUPS == "m") + RNG.logistic(size=ROWS) > 0.3, "yes", "no")
TABLES = {"bank": X[["a", "b"]], "shop": X[["c", "d"]], "social": X[["e", "f", "colour"]]}


def classifier(**settings: Any) -> VerticalClassifier:
    return VerticalClassifier(**{"solver": "vfb2-svrg", "alpha": 0.01, "random_state": 0, "tol": 1e-6, **settings})


@pytest.mark.parametrize("solver", [VFB2SVRG, VFB2SAGA])
@pytest.mark.parametrize("runtime", ["auto", "messages", VirtualClock(latency=1e-4)])
def test_it_is_logistic_regression_whatever_runs_it(solver: Any, runtime: Any) -> None:
    model = classifier(solver=solver(batch_size=8), runtime=runtime).fit(TABLES, Y)
    encoded = np.column_stack(
        [np.asarray(model.encoders_[name].transform(table)) for name, table in TABLES.items()]
    ).astype(float)
    pooled = LogisticRegression(C=1 / (0.01 * ROWS), tol=1e-10, max_iter=10_000).fit(encoded, Y)
    np.testing.assert_allclose(model.coef_, pooled.coef_, atol=1e-3)
    np.testing.assert_allclose(model.intercept_, pooled.intercept_, atol=1e-3)
    assert (model.predict(TABLES) == pooled.predict(encoded)).mean() > 0.99
    assert model.certificate_.converged
    assert model.bytes_sent_ > 0
    assert sum(model.run_.statistics["staleness"]) > 0


def test_a_constraint_is_met() -> None:
    free = classifier().fit(TABLES, Y, sensitive_features=GROUPS)
    fair = classifier(constraint=EqualOpportunity(0.01)).fit(TABLES, Y, sensitive_features=GROUPS)
    assert fair.certificate_.violation < 1e-4
    assert fair.certificate_.objective > free.certificate_.objective
    direct = classifier(
        solver="subspace", constraint=EqualOpportunity(0.01), encoder=PartyEncoder(numbers="standard")
    ).fit(TABLES, Y, sensitive_features=GROUPS)
    assert fair.certificate_.objective == pytest.approx(direct.certificate_.objective, rel=1e-3)


def test_a_warm_start_begins_where_the_last_fit_ended() -> None:
    model = classifier(warm_start=True).fit(TABLES, Y)
    first = model.n_iter_
    assert model.fit(TABLES, Y).n_iter_ < first


def test_wide_sparse_tables_train() -> None:
    wide = sp.random_array((200, 5000), density=0.01, format="csr", random_state=np.random.default_rng(1))
    labels = np.where(np.asarray(wide[:, :50].sum(axis=1)).ravel() > 0.2, 1, 0)
    parts = [wide[:, :2000], wide[:, 2000:]]
    model = classifier(alpha=1e-3, encoder=PartyEncoder(scale=False), tol=1e-4).fit(parts, labels)
    assert model.score(parts, labels) > 0.9


def test_regression_is_ridge_regression() -> None:
    target = 2.0 * X["a"] - X["e"] + 3.0 + 0.1 * RNG.standard_normal(ROWS)
    model = VerticalRegressor(solver="vfb2-svrg", alpha=0.05, tol=1e-7, random_state=0).fit(TABLES, target)
    encoded = np.column_stack([np.asarray(model.encoders_[name].transform(table)) for name, table in TABLES.items()])
    ridge = Ridge(alpha=0.05 * ROWS).fit(encoded.astype(float), target)
    np.testing.assert_allclose(model.predict(TABLES), ridge.predict(encoded.astype(float)), atol=1e-4)
    assert model.score(TABLES, target) > 0.9
    assert clone(model).get_params()["alpha"] == 0.05


@pytest.mark.parametrize(
    ("target", "told"),
    [(["a"] * ROWS, "not numbers"), ([1.0] * (ROWS - 1) + [np.nan], "1 of .* missing or infinite")],
)
def test_targets_that_are_no_numbers_are_refused(target: Any, told: str) -> None:
    with pytest.raises(DataError, match=told):
        VerticalRegressor().fit(TABLES, target)
    with pytest.raises(InputError, match="does not support the squared loss"):
        VerticalRegressor(solver="fairvfl").fit(TABLES, X["a"])


def test_a_job_file_may_name_it(tmp_path: Path) -> None:
    tables = {name: table.rename_axis("id").reset_index() for name, table in TABLES.items()}
    tables["bank"] = tables["bank"].assign(label=Y, sex=GROUPS)
    for name, table in tables.items():
        table.to_csv(tmp_path / f"{name}.csv", index=False)
    content: dict[str, Any] = {
        "job": {
            "solver": "vfb2-saga",
            "runtime": "interleaved",
            "alpha": 0.01,
            "options": {"read_delay": 1, "message_delay": 3},
            "constraint": {"kind": "equal-opportunity", "epsilon": 0.02},
        },
        "party": [
            {"name": name, "table": f"{name}.csv", "id": "id", "role": "active" if name == "bank" else "passive"}
            for name in tables
        ],
    }
    content["party"][0] |= {"label": {"column": "label", "positive": "yes"}, "sensitive": ["sex"]}
    finished = run_vertical_job(parse_vertical(content, "job.toml"), tmp_path, tmp_path / "run")
    assert finished.result["certificate"]["converged"]
    kept = json.loads(json.dumps(finished.result))["statistics"]["staleness"]
    assert len(kept) == 5
    assert min(kept) > 0
    assert finished.result["messages"] > 1000
