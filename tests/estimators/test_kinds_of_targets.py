"""What is for classes refuses numbers, what is for two classes refuses several, and each says so."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest

from evenhand import (
    DemographicParity,
    HorizontalRegressor,
    VerticalClassifier,
    VerticalRegressor,
    fairness_scorer,
    select,
)
from evenhand.errors import EvenhandError

RNG = np.random.default_rng(0)
ROWS = 120
BANK = pd.DataFrame(RNG.normal(size=(ROWS, 2)), columns=["a", "b"])
SHOP = pd.DataFrame(RNG.normal(size=(ROWS, 2)), columns=["c", "d"])
NUMBER = BANK["a"].to_numpy() + SHOP["c"].to_numpy()
CLASS = np.digitize(NUMBER, [-0.5, 0.5])
GROUP = np.arange(ROWS) % 2
PARITY = DemographicParity(0.1)

pytestmark = pytest.mark.filterwarnings("ignore::evenhand.errors.EvenhandWarning")


def regressor(**settings: Any) -> VerticalRegressor:
    return VerticalRegressor(max_rounds=3, **settings)


REFUSED: dict[str, tuple[Callable[[], Any], str]] = {
    "select, classes": (
        lambda: select(VerticalClassifier(constraint=PARITY), [BANK, SHOP], CLASS, sensitive_features=GROUP),
        "y has 3 classes; select and frontier measure gaps of two",
    ),
    "select, numbers": (
        lambda: select(regressor(), [BANK, SHOP], NUMBER, sensitive_features=GROUP),  # type: ignore[arg-type]
        "cannot vary a VerticalRegressor",
    ),
    "logistic loss across columns": (
        lambda: regressor(loss="logistic").fit([BANK, SHOP], NUMBER),
        "loss is 'logistic', which is for classes",
    ),
    "logistic loss across clients": (
        lambda: HorizontalRegressor(loss="logistic").fit(BANK, NUMBER, clients=GROUP),
        "loss is 'logistic', which is for classes",
    ),
    "scorer of numbers": (
        lambda: fairness_scorer(PARITY)(
            regressor().fit([BANK, SHOP], NUMBER), [BANK, SHOP], NUMBER, sensitive_features=GROUP
        ),
        "fairness_scorer is for classifiers of two classes",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_other_targets_are_refused_with_what_to_take(case: str) -> None:
    attempt, words = REFUSED[case]
    with pytest.raises(EvenhandError, match=words):
        attempt()


@pytest.mark.parametrize(("loss", "value"), [("squared", 1.5), ("squared", 0.0), ("poisson", 1.0), ("gamma", 2.0)])
def test_a_constant_target_is_learned(loss: str, value: float) -> None:
    model = regressor(loss=loss).fit([BANK, SHOP], np.full(ROWS, value))
    np.testing.assert_allclose(model.predict([BANK, SHOP]), value, atol=1e-6)


def test_a_model_of_several_classes_can_be_shown() -> None:
    model = VerticalClassifier(max_rounds=3).fit([BANK, SHOP], CLASS)
    assert "predict" in dir(model)
    assert "VerticalClassifier" in model._repr_html_()
