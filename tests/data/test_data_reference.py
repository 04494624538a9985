"""New rows that are unlike the training rows, told from what the party kept: it holds no row."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pandas as pd
import pytest

from evenhand.data import PartyEncoder
from evenhand.data.tables.reference import Reference
from evenhand.errors import DataError

ROWS = 800
RANDOM = np.random.default_rng(5)
TRAINED = pd.DataFrame(
    {
        "income": RANDOM.lognormal(7.5, 0.5, ROWS).round(2),
        "balance": RANDOM.normal(0.0, 50.0, ROWS),
        "late": RANDOM.poisson(0.4, ROWS),
        "since": pd.Timestamp("2015-01-01") + pd.to_timedelta(RANDOM.integers(0, 2000, ROWS), unit="D"),
        "town": RANDOM.choice(["Lyon", "Ghent", "Turin"], ROWS),
        "phone": pd.Series(RANDOM.choice(["yes", "no"], ROWS)).mask(RANDOM.random(ROWS) < 0.1),
    }
)
KEPT = Reference.from_state(json.loads(json.dumps(Reference.of(TRAINED.items(), np.ones(ROWS, bool)).to_state())))
NEW = TRAINED.sample(200, random_state=1).reset_index(drop=True)


def told(**changed: Any) -> list[str]:
    return KEPT.remarks_on(NEW.assign(**changed).items())


def test_rows_like_the_training_rows_are_not_remarked_on() -> None:
    assert told() == []


@pytest.mark.parametrize("seed", range(30))
def test_no_false_alarms_on_new_rows_of_the_same_kind(seed: int) -> None:
    """A few values lie beyond the ends, as they do among new people; nothing has moved."""
    random = np.random.default_rng(seed)
    middle, spread = random.uniform(-3, 9), random.uniform(0.2, 1.5)
    values = [random.lognormal(middle, spread, size) for size in (500, 60)]
    kept = Reference.of([("x", pd.Series(values[0]))], np.ones(500, bool))
    said = kept.remarks_on([("x", pd.Series(values[1]))])
    assert all("beyond all training rows" in one for one in said)
    assert len(said) <= 1


@pytest.mark.parametrize(
    ("changed", "parts"),
    [
        ({"income": NEW["income"] * 100}, ["column 'income'", "about 100 times those of training rows", "the unit"]),
        ({"income": NEW["income"] / 1000}, ["about 1/", "of those of training rows"]),
        ({"balance": NEW["balance"] + 900}, ["column 'balance'", "on one side of", "200 of 200 rows are beyond"]),
        ({"balance": [1e5, -1e5] + [0.0] * 198}, ["column 'balance': 2 of 200 rows are beyond all training rows"]),
        ({"since": NEW["since"] + pd.Timedelta(days=9000)}, ["column 'since'", "the median is 20", "200 of 200"]),
        ({"income": np.nan}, ["column 'income' has no value in any of 200 rows; (nearly) no training row lacked one"]),
        ({"income": NEW["income"].where(NEW.index >= 90)}, ["column 'income': 90 of 200 rows have no value"]),
        ({"phone": None}, ["column 'phone' has no value in any of 200 rows", "% of the training rows lacked one"]),
        ({"town": NEW["town"].where(NEW.index >= 70)}, ["column 'town' has no value in 70 of 200 rows"]),
    ],
)
def test_rows_that_are_unlike_are_counted(changed: Any, parts: list[str]) -> None:
    said = " ".join(told(**changed))
    for part in parts:
        assert part in said


def test_a_few_rows_are_not_judged_by_quantiles() -> None:
    few = NEW.iloc[:5].assign(income=NEW["income"].iloc[:5] * 100)
    (said,) = KEPT.remarks_on(few.items())
    assert "5 of 5 rows are beyond all training rows" in said


def test_what_is_kept_holds_no_value_of_a_row() -> None:
    """Nothing but numbers of two digits, which thousands of people could have."""
    kept = {one["name"]: one for one in Reference.of(TRAINED.items(), np.ones(ROWS, bool)).to_state()["columns"]}
    values = [*kept["income"]["quantiles"], kept["income"]["low"], kept["income"]["high"]]
    assert not set(values) & set(TRAINED["income"])
    assert all(len(f"{one:.10g}".replace(".", "").strip("0")) <= 2 for one in values)
    assert kept["income"]["low"] <= TRAINED["income"].min()
    assert kept["income"]["high"] >= TRAINED["income"].max()
    assert set(kept["town"]) == {"name", "missing"}
    few = Reference.of(TRAINED.iloc[:10].items(), np.ones(10, bool)).to_state()["columns"]
    assert few[0]["quantiles"] == ()


@pytest.mark.parametrize(
    "change",
    [
        lambda state: state.update(version=2),
        lambda state: state.update(rows=[1]),
        lambda state: state.update(columns="all"),
        lambda state: state["columns"][0].update(low="x"),
        lambda state: state["columns"][0].update(quantiles=[1.0]),
        lambda state: state["columns"][0].update(kind="text"),
        lambda state: state["columns"][0].pop("missing"),
        lambda state: state["columns"].append(3),
    ],
)
def test_a_state_that_was_not_written_here_is_refused(change: Any) -> None:
    state = json.loads(json.dumps(KEPT.to_state()))
    change(state)
    with pytest.raises(DataError, match="is not"):
        Reference.from_state(state)


def test_levels_that_were_left_out_are_not_called_unseen() -> None:
    towns = pd.DataFrame({"town": ["a"] * 90 + ["b"] * 50 + [f"t{k}" for k in range(60)]})
    capped = PartyEncoder(max_levels=2).fit(towns)
    assert capped.remarks_on(towns) == []
    whole = PartyEncoder().fit(towns)
    (said,) = whole.remarks_on(pd.DataFrame({"town": ["a", "c", "d", None]}))
    assert said.startswith("column 'town': 2 of 4 rows have a value that no training row has, such as 'c', 'd'")
