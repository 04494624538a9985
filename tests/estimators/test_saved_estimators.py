"""A fitted estimator can be saved with pickle, joblib and deepcopy, and what is saved holds no row of anybody."""

from __future__ import annotations

import copy
import io
import pickle
from collections.abc import Iterator
from typing import Any

import joblib
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from sklearn.ensemble import RandomForestRegressor

from evenhand import EqualizedOdds, HorizontalClassifier, Threshold, VerticalClassifier, VerticalRegressor
from evenhand.solvers import HORIZONTAL, VERTICAL

ROWS = 211
"""A number that no other size in a model equals."""
RNG = np.random.default_rng(4)
X = RNG.normal(size=(ROWS, 6)).round(6)
GROUP = np.where(RNG.random(ROWS) < 0.5, "a", "b")
Y = (X[:, 0] + X[:, 3] + RNG.normal(size=ROWS) > 0).astype(int)
PARTS = {"bank": pd.DataFrame(X[:, :3], columns=list("abc")), "shop": pd.DataFrame(X[:, 3:], columns=list("def"))}
CLIENTS = np.arange(ROWS) % 3
SOLVERS = [name for name in VERTICAL if not name.startswith(("vfb2", "af"))]

pytestmark = pytest.mark.filterwarnings("ignore::evenhand.errors.EvenhandWarning")


def arrays(value: Any, seen: set[int]) -> Iterator[np.ndarray]:
    """Every array below an object, whatever holds it."""
    if id(value) in seen:
        return
    seen.add(id(value))
    if isinstance(value, np.ndarray):
        yield value
        if value.dtype == object:
            yield from (found for one in value.ravel() for found in arrays(one, seen))
    elif type(value).__module__.startswith("torch"):
        if hasattr(value, "detach"):
            yield value.detach().numpy()
        for one in getattr(value, "__dict__", {}).values():
            yield from arrays(one, seen)
    elif sp.issparse(value):
        yield value.toarray()
    elif isinstance(value, (pd.DataFrame, pd.Series, pd.Index)):
        yield np.asarray(value)
    elif isinstance(value, dict):
        yield from (found for one in [*value, *value.values()] for found in arrays(one, seen))
    elif isinstance(value, (list, tuple, set, frozenset)):
        if len(value) == ROWS:
            yield np.asarray(list(value), dtype=object)
        yield from (found for one in value for found in arrays(one, seen))
    elif isinstance(value, (bytes, bytearray)):
        yield np.frombuffer(value, dtype=np.uint8)
    else:
        slots = [name for kind in type(value).__mro__ for name in getattr(kind, "__slots__", ())]
        held = [*getattr(value, "__dict__", {}).values(), *(getattr(value, name, None) for name in slots)]
        yield from (found for one in held for found in arrays(one, seen))


def holds_a_row(array: np.ndarray) -> bool:
    """Whether the numbers of one person's row of a party stand beside each other."""
    if array.dtype.kind not in "fiu" or array.size < 3:
        return False
    flat = np.asarray(array, dtype=np.float64)
    near = np.lib.stride_tricks.sliding_window_view(flat.ravel(), 3)
    return any(np.isclose(near, row).all(axis=1).any() for part in PARTS.values() for row in part.to_numpy())


def check(model: Any, rows: Any) -> None:
    before = model.predict(rows)
    buffer = io.BytesIO()
    joblib.dump(model, buffer)
    buffer.seek(0)
    for saved in (pickle.loads(pickle.dumps(model)), joblib.load(buffer), copy.deepcopy(model)):  # noqa: S301
        np.testing.assert_array_equal(saved.predict(rows), before)
        found = list(arrays(saved, set()))
        assert len(found) > 5
        assert [one.shape for one in found if ROWS in one.shape] == []
        assert not any(map(holds_a_row, found))


@pytest.mark.parametrize("solver", [*SOLVERS, "mlp", "vfb2-svrg"])
def test_no_row_in_saved_vertical_estimators(solver: str) -> None:
    settings: dict[str, Any] = {"model": "mlp"} if solver == "mlp" else {"solver": solver}
    if solver == "trees":
        settings["model"] = "trees"
    model = VerticalClassifier(**settings, max_rounds=2, random_state=0, runtime="messages").fit(PARTS, Y)
    check(model, PARTS)


def test_no_row_in_a_saved_estimator_of_own_models_or_with_a_rule_for_the_cut() -> None:
    models = [RandomForestRegressor(5, max_depth=3, random_state=0), "linear"]
    check(VerticalClassifier(models=models, max_rounds=2, random_state=0).fit(PARTS, Y), PARTS)
    check(VerticalClassifier(threshold=Threshold("recall", target=0.6), max_rounds=2).fit(PARTS, Y), PARTS)
    three = np.digitize(X[:, 0] + X[:, 3], [-1.0, 1.0])
    check(VerticalClassifier(max_rounds=2).fit(PARTS, three), PARTS)


def test_no_row_in_a_saved_constrained_estimator_or_regressor() -> None:
    model = VerticalClassifier(constraint=EqualizedOdds(0.1, measure="error", confidence=0.9), max_rounds=3)
    check(model.fit(PARTS, Y, sensitive_features=GROUP), PARTS)
    check(VerticalRegressor(max_rounds=2, runtime="messages").fit(PARTS, X[:, 0] + X[:, 4]), PARTS)


@pytest.mark.parametrize("solver", [*HORIZONTAL])
def test_no_row_in_saved_horizontal_estimators(solver: str) -> None:
    settings: dict[str, Any] = {"model": "trees"} if solver == "trees" else {}
    model = HorizontalClassifier(solver=solver, **settings, max_rounds=8 if settings else 2, random_state=0)
    model.fit(pd.DataFrame(X, columns=list("abcdef")), Y, clients=CLIENTS, sensitive_features=GROUP)
    check(model, pd.DataFrame(X, columns=list("abcdef")))
