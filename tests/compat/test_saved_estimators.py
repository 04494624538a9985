"""Estimators that were saved with 0.1.0, the way scikit-learn's are, score rows as they did then."""

from __future__ import annotations

import json
import pickle
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.exceptions import InconsistentVersionWarning

FEATURES = {"bank": ["age", "city"], "shop": ["spent", "plan"], "social": ["friends"]}


def load(path: Path) -> Any:
    with warnings.catch_warnings():
        # They were saved with one version of scikit-learn and are read with many.
        warnings.simplefilter("ignore", InconsistentVersionWarning)
        return pickle.loads(path.read_bytes())  # noqa: S301 - what users do, with a file of our own.


def require_readable_tables(left: Path) -> None:
    """Skip where pandas cannot read tables that the version of then has pickled."""
    made = json.loads((left / "versions.json").read_text())["pandas"]
    try:
        load(left / "estimators" / "pandas.pickle")
    except Exception as error:
        if made.split(".")[0] == pd.__version__.split(".")[0]:
            raise
        pytest.skip(f"pandas {pd.__version__} cannot read a table that pandas {made} has pickled: {error!r}")


@pytest.mark.parametrize(
    "name",
    [
        "VerticalClassifier",
        "VerticalRegressor",
        "SplitTableClassifier",
        "HorizontalClassifier-sqp",
        "HorizontalClassifier-fairfedavgalm",
    ],
)
def test_a_saved_estimator_scores_as_it_did(name: str, left: Path) -> None:
    if name.endswith("fairfedavgalm"):
        pytest.importorskip("torch")
    require_readable_tables(left)
    estimator = load(left / "estimators" / f"{name}.pickle")
    people = pd.read_csv(left / "people.csv", index_col="customer")
    tables = {party: people[columns] for party, columns in FEATURES.items()}
    whole = people[[column for columns in FEATURES.values() for column in columns]]
    score = estimator.predict if name == "VerticalRegressor" else estimator.decision_function
    expected = pd.read_csv(left / "expected" / "estimators.csv", index_col="customer")[name]
    # Averaged models are in single precision.
    tolerance = 1e-5 if name.endswith("fairfedavgalm") else 1e-12
    found = score(tables if name.startswith("Vertical") else whole)
    np.testing.assert_allclose(found, expected.to_numpy(), rtol=0, atol=tolerance)


@pytest.mark.parametrize("name", ["VerticalClassifier", "VerticalRegressor"])
def test_a_saved_estimator_can_be_trained_again(name: str, left: Path) -> None:
    """Its parameters are still understood, `runtime="roles"` of the regressor among them."""
    require_readable_tables(left)
    estimator = load(left / "estimators" / f"{name}.pickle")
    people = pd.read_csv(left / "people.csv", index_col="customer")
    tables = {party: people[columns] for party, columns in FEATURES.items()}
    if name == "VerticalRegressor":
        assert estimator.runtime == "roles"
        estimator.fit(tables, people["amount"])
    else:
        estimator.set_params(warm_start=True).fit(tables, people["outcome"], people["sex"])
    assert estimator.certificate_.rounds == estimator.n_rounds_


def test_the_run_of_a_saved_estimator_is_whole(left: Path) -> None:
    require_readable_tables(left)
    estimator = load(left / "estimators" / "VerticalClassifier.pickle")
    assert estimator.run_.transcript.total_bytes == estimator.bytes_sent_ > 0
    assert len(estimator.run_.transcript.by_link()) == 6
    assert estimator.certificate_.converged
    assert len(estimator.history_) == estimator.n_rounds_ + 1
