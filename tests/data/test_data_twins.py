"""Features that tell a sensitive column."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from evenhand import EqualOpportunity, VerticalClassifier
from evenhand.data.tables.twins import twins
from evenhand.errors import ColumnWarning

ROWS = 400
RANDOM = np.random.default_rng(3)
SEX = pd.Series(RANDOM.choice(["female", "male"], ROWS, p=[0.7, 0.3]))
AGE = pd.Series(RANDOM.integers(18, 80, ROWS))
BANDS = pd.cut(AGE, [0, 30, 60, 99], right=False).astype(str)


@pytest.mark.parametrize(
    ("column", "groups"),
    [
        (SEX.map({"female": 1, "male": 2}), SEX),
        (SEX.map({"female": "F", "male": "M"}), SEX),
        (SEX.map({"female": True, "male": False}), SEX),
        (SEX.where(RANDOM.random(ROWS) < 0.98, "unknown"), SEX),
        (2024 - AGE, BANDS),
        (pd.to_datetime("2024-06-30") - pd.to_timedelta(AGE * 365, unit="D"), BANDS),
        ((AGE + RANDOM.random(ROWS)).round(3), BANDS),
    ],
)
def test_a_twin_is_found(column: pd.Series, groups: pd.Series) -> None:
    (said,) = twins([("code", column)], groups.to_frame("own"))
    assert said.startswith("column 'code' tells 'own' of ")
    assert 'with types = { code = "leave out" }' in said


@pytest.mark.parametrize("seed", range(40))
def test_other_columns_are_no_twins(seed: int) -> None:
    """Also where the table is sorted by group, and where a feature goes along with it."""
    random = np.random.default_rng(seed)
    groups = pd.Series(random.choice(["a", "b", "c"], ROWS, p=random.dirichlet([3, 3, 3]))).sort_values()
    groups = groups.reset_index(drop=True) if seed % 2 else groups.sample(frac=1, random_state=seed, ignore_index=True)
    shift = groups.map({"a": 0.0, "b": 1.0, "c": 2.0})
    features = {
        "levels": pd.Series(random.choice(list("pqr"), ROWS)),
        "constant": pd.Series(["x"] * ROWS),
        "mail": pd.Series([f"{k}@mail.example" for k in random.permutation(ROWS)]),
        "moved": shift + random.normal(size=ROWS),
        "whole": pd.Series(random.integers(0, 5, ROWS)),
        "empty": pd.Series([None] * ROWS, dtype=object),
    }
    assert twins(features.items(), groups.to_frame("own")) == []


def test_only_the_party_that_holds_both_is_told() -> None:
    labels = np.where(RANDOM.random(ROWS) < 0.5, "yes", "no")
    bank = pd.DataFrame({"income": RANDOM.normal(size=ROWS)})
    shop = pd.DataFrame({"gender_code": SEX.map({"female": 1, "male": 2})})
    model = VerticalClassifier(constraint=EqualOpportunity(0.1), max_rounds=2)
    with pytest.warns(ColumnWarning, match="party0: column 'code' tells 'sex' of all rows"):
        model.fit([bank.assign(code=shop["gender_code"]), shop], labels, sensitive_features=SEX.rename("sex"))
    with pytest.warns() as caught:
        model.fit([bank, shop], labels, sensitive_features=SEX.rename("sex"))
    assert not [one for one in caught if "tells" in str(one.message)]
