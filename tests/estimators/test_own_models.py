"""`VerticalClassifier(models=...)`: a model of its own for each party, also over raw columns and images."""

from __future__ import annotations

import io
from typing import Any

import joblib
import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.compose import make_column_transformer
from sklearn.ensemble import HistGradientBoostingRegressor, RandomForestRegressor
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import Ridge
from sklearn.metrics import roc_auc_score
from sklearn.pipeline import make_pipeline

from evenhand import EqualOpportunity, VerticalClassifier, VerticalRegressor, frontier, select
from evenhand.data import PartyEncoder
from evenhand.errors import DataError, InputError
from evenhand.models import NetworkLearner, OwnModels, RegressorLearner
from evenhand.solvers import Learners

ROWS = 400
FEW = Learners(folds=2)


def tables(seed: int = 0) -> tuple[dict[str, pd.DataFrame], np.ndarray, np.ndarray]:
    """A table, images of 4 × 4 and texts; what each says of the label, and the label."""
    random = np.random.default_rng(seed)
    numbers = random.normal(size=(ROWS, 3))
    bright = random.integers(2, size=ROWS)
    images = random.normal(size=(ROWS, 16)) * 0.5
    images[:, :8] += bright[:, None]
    good = random.integers(2, size=ROWS)
    texts = [" ".join(random.choice(["fine", "kind"] if one else ["poor", "late"], 4)) + " word" for one in good]
    says = np.stack([np.sin(2.0 * numbers[:, 0]) * 2.0, 2.0 * bright - 1.0, 2.0 * good - 1.0])
    labels = np.where(1.5 * says.sum(axis=0) + random.logistic(size=ROWS) > 0, "yes", "no")
    frames = [pd.DataFrame(numbers, columns=list("abc")), pd.DataFrame(images), pd.DataFrame({"text": texts})]
    return dict(zip(("bank", "clinic", "press"), frames, strict=True)), labels, says


def words() -> Any:
    return make_pipeline(make_column_transformer((TfidfVectorizer(), "text")), Ridge())


def test_images_a_table_and_texts_train_together_under_masks() -> None:
    """The label needs all three: the joint model is near the best, and far above any one party's part."""
    torch = pytest.importorskip("torch")

    def convolution(width: int) -> Any:
        side = int(width**0.5)
        return torch.nn.Sequential(
            torch.nn.Unflatten(1, (1, side, side)),
            torch.nn.Conv2d(1, 4, 3, padding=1),
            torch.nn.ReLU(),
            torch.nn.Flatten(),
            torch.nn.Linear(4 * width, 1),
        )

    given, labels, says = tables()
    model = VerticalClassifier(
        solver=FEW,
        models={
            "bank": HistGradientBoostingRegressor(max_iter=20),
            "clinic": NetworkLearner(module=convolution, epochs=5),
            "press": RegressorLearner(words(), columns="raw"),
        },
        encoder={"clinic": PartyEncoder(scale=False)},
        max_rounds=4,
        random_state=0,
    ).fit(given, labels)
    assert any(entry.kind == "masked" for entry in model.run_.transcript.entries)
    others, truth, says = tables(1)
    found = roc_auc_score(truth == "yes", model.decision_function(others))
    best = roc_auc_score(truth == "yes", says.sum(axis=0))
    alone = max(roc_auc_score(truth == "yes", one) for one in says)
    assert found > best - 0.07
    assert found > alone + 0.02


def test_a_fitted_estimator_keeps_no_rows_and_is_kept_itself() -> None:
    given, labels, _ = tables()
    pair = {name: given[name] for name in ("bank", "clinic")}
    model = VerticalClassifier(models=[RandomForestRegressor(3, max_depth=3), "linear"], solver=FEW, max_rounds=2)
    model = clone(model).fit(pair, labels)
    assert all(one.matrix is None for one in model.models_.values())  # type: ignore[attr-defined]
    held = io.BytesIO()
    joblib.dump(model, held)
    held.seek(0)
    np.testing.assert_array_equal(joblib.load(held).decision_function(pair), model.decision_function(pair))


@pytest.mark.filterwarnings("ignore::evenhand.errors.GridEdgeWarning")
def test_frontier_and_select_choose_a_bound_for_learners() -> None:
    given, labels, _ = tables()
    pair = {name: given[name] for name in ("bank", "clinic")}
    group = np.where(np.arange(ROWS) % 2, "f", "m")
    constraint = EqualOpportunity(0.2, measure="error")
    model = VerticalClassifier(models=["linear", "linear"], solver=FEW, max_rounds=2, constraint=constraint)
    found = select(model, pair, labels, sensitive_features=group, epsilons=(0.1, 0.4), folds=2)
    assert found.epsilon in (0.1, 0.4)
    assert found.table["accuracy"].min() > 0.5
    table = frontier(model, pair, labels, sensitive_features=group, epsilons=(0.1, 0.4), folds=2)
    np.testing.assert_allclose(table["accuracy"], found.table["accuracy"])


@pytest.mark.parametrize(
    ("settings", "match"),
    [
        ({"models": ["linear"]}, "models has 1 entries for 2 parties"),
        ({"models": {"shop": "linear"}}, "models names 'shop', which is not a party"),
        ({"models": ["linear", 3]}, "clinic: model is 3"),
        ({"models": ["linear", "linear"], "model": "mlp"}, "give one of the two"),
        ({"models": ["linear", "linear"], "solver": "subspace"}, "needs model 'linear', not 'own'"),
        ({"model": RandomForestRegressor(), "solver": "trees"}, "needs model 'trees', not 'own'"),
        ({"models": ["linear", "linear"], "protection": "dealer"}, "cannot be fitted to shares"),
    ],
)
def test_wrong_models_are_refused_before_anything_is_trained(settings: dict[str, Any], match: str) -> None:
    given, labels, _ = tables()
    pair = {name: given[name] for name in ("bank", "clinic")}
    with pytest.raises(InputError, match=match):
        VerticalClassifier(**settings).fit(pair, labels)


def test_an_encoder_for_raw_columns_is_refused() -> None:
    given, labels, _ = tables()
    model = VerticalClassifier(
        models=["linear", "linear", RegressorLearner(words(), columns="raw")], encoder=PartyEncoder()
    )
    with pytest.raises(InputError, match="press: its model takes raw columns, so it has no encoder"):
        model.fit(given, labels)
    model.set_params(encoder=None, solver=FEW, max_rounds=1).fit(given, labels)
    with pytest.raises(DataError, match="press: column 'text' is missing"):
        model.decision_function(given | {"press": pd.DataFrame({"other": ["a"] * ROWS})})


def test_one_model_for_all_parties_and_numbers() -> None:
    given, _, says = tables()
    pair = {name: given[name] for name in ("bank", "clinic")}
    forest = VerticalRegressor(model=RandomForestRegressor(10, max_depth=5), solver=FEW, max_rounds=3)
    assert forest.fit(pair, says[:2].sum(axis=0)).score(pair, says[:2].sum(axis=0)) > 0.8
    linear = VerticalRegressor(model=OwnModels(), solver=FEW, max_rounds=2)
    assert linear.fit(pair, says[1]).score(pair, says[1]) > 0.5
