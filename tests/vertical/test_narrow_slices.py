"""Slices of a few rows: multipliers grow under bounds that they cannot meet, and derivatives concentrate on them."""

from __future__ import annotations

import warnings

import numpy as np
import pandas as pd
import pytest

from evenhand import EqualizedOdds, VerticalClassifier
from evenhand.data import PartyEncoder
from evenhand.errors import EvenhandWarning
from evenhand.vertical.problem import NARROWEST, narrowness


def test_a_fit_with_twelve_groups_ends_with_a_model() -> None:
    """It ended in an error of a party, which refuses derivatives of 1.1 effective rows."""
    random, rows = np.random.default_rng(700), 1500
    shares = np.r_[1.0, 0.08 * 0.75 ** np.arange(11)]
    effects = np.r_[0.0, -random.uniform(0.3, 1.4, 11)]
    loadings = random.uniform(0.3, 0.9, 9)
    group = random.choice(12, 2 * rows, p=shares / shares.sum())
    factor = random.normal(size=2 * rows) + 0.8 * effects[group]
    columns = (factor[:, None] * loadings + random.normal(size=(2 * rows, 9)))[:rows]
    columns[:, -2:] = columns[:, -2:] > 0.5
    score = (factor + 0.3 * effects[group])[:rows] + 0.3 * columns[:, 0]
    labels, group = (score + random.logistic(size=2 * rows)[:rows] > 0.0).astype(int), group[:rows]
    sent: list[float] = []

    def remember(nu: np.ndarray) -> tuple[float, int]:
        found = narrowness(nu)
        sent.append(found[0])
        return found

    with pytest.MonkeyPatch.context() as patch, warnings.catch_warnings():
        warnings.simplefilter("ignore", EvenhandWarning)
        patch.setattr("evenhand.vertical.problem.narrowness", remember)
        model = VerticalClassifier(
            constraint=EqualizedOdds(0.02, measure="error"),
            encoder=PartyEncoder(numbers="standard"),
            random_state=0,
        ).fit(np.split(columns, [3, 6], axis=1), labels, sensitive_features=pd.Series(group.astype(str)))
    assert len(sent) > 4
    assert min(sent) >= NARROWEST
    assert model.certificate_.violation <= 0.02
