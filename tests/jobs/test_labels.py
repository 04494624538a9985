"""The two labels of a job's tables."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest

from evenhand.errors import DataError
from evenhand.jobs.label_keys import LabelSection
from evenhand.jobs.tables import Labels, label_column, two_labels


def found(*columns: list[Any], positive: Any = None) -> Labels:
    given = {} if positive is None else {"positive": positive}
    owners = {f"client {place}": pd.Series(values) for place, values in enumerate(columns)}
    return two_labels(owners, LabelSection(column="y", **given))


@pytest.mark.parametrize(
    ("columns", "positive", "expected"),
    [
        ([["no", "yes", "no"]], None, ("no", "yes")),
        ([["no", "yes"]], "no", ("yes", "no")),
        ([[0, 1, 1]], 1.0, (0, 1)),
        ([[0.0, 1.0]], 1, (0.0, 1.0)),
        ([[True, False]], "True", (False, True)),
        ([[True, False]], "false", (True, False)),
        # Each holder may lack one of them.
        ([["ill", "ill"], ["well"]], "ill", ("well", "ill")),
    ],
)
def test_labels_are_the_tables_own_values(columns: list[Any], positive: Any, expected: tuple[Any, Any]) -> None:
    labels = found(*columns, positive=positive)
    assert labels == expected
    assert [type(one) for one in labels] == [type(one) for one in expected]
    values = pd.Series(columns[0])
    assert labels.named(labels.signs(values)) == values.tolist()


@pytest.mark.parametrize(
    ("columns", "positive", "told"),
    [
        ([["no", "no"]], None, r"has 1 different values \('no'\), but needs exactly two"),
        ([[1, 2], [3, 1]], None, "has 3 different values.*only client 0 has 2; to train more classes, list them"),
        ([["no", 1]], None, "values of different types"),
        ([["no", "yes"], ["no", 1]], None, "values of different types.*; only client 0 has 'yes'"),
        ([["no", "yes"]], "maybe", "positive is 'maybe', the values are 'no' and 'yes'"),
        ([["true", "false"]], True, "positive is True, the values are 'false' and 'true'"),
        ([pd.to_datetime(["2020-01-01", "2021-01-01"]).tolist()], None, "holds Timestamp values; labels are text"),
    ],
)
def test_anything_else_is_refused(columns: list[Any], positive: Any, told: str) -> None:
    with pytest.raises(DataError, match=f"label column 'y'.*{told}"):
        found(*columns, positive=positive)


def test_a_missing_column_or_label_is_told() -> None:
    table, label = pd.DataFrame({"y": ["a", None, np.nan]}), LabelSection(column="y")
    with pytest.raises(DataError, match="label column 'y' has 2 missing values"):
        label_column(table, label, ["y"])
    with pytest.raises(DataError, match="label column 'y' is not in the table, which has 'x', 'z'"):
        label_column(table[[]], label, ["x", "z"])
