"""Sentences about differences: judged by the spread of the runs, and what is worse comes first."""

from __future__ import annotations

import pandas as pd
import pytest

from evenhand_reproductions.comparing import ERROR_RATES, differences, verdict
from evenhand_reproductions.papers import TABLE1

ACCURACY, DFP, _ = ERROR_RATES


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([0.034, 0.030, 0.038], "worse"),
        ([0.004, 0.003, 0.002], "better"),
        ([0.014, 0.013, 0.015], "alike"),
        ([0.30, 0.00, -0.10], "alike"),
        ([0.016], "worse"),
    ],
)
def test_a_gap_is_judged_by_the_spread_of_the_runs(values: list[float], expected: str) -> None:
    """0.034 against 0.01 is worse, however small it looks; a difference within twice its error is none."""
    assert verdict(DFP, pd.Series(values), 0.01) == expected


def test_accuracy_is_better_when_larger() -> None:
    assert verdict(ACCURACY, pd.Series([0.84, 0.841]), 83.0) == "better"
    assert verdict(ACCURACY, pd.Series([0.82, 0.821]), 83.0) == "worse"


def test_what_is_worse_comes_first_and_no_column_is_left_out() -> None:
    rows = [
        {"set": "adult", "method": "FairVFL(ε=0.001)", "beside": "FairVFL(ε=0.001)"}
        | {"accuracy": 0.83 + 0.001 * run, "DFP": 0.034 + 0.001 * run, "DFN": 0.02 + 0.001 * run}
        for run in range(3)
    ]
    _, sentence = differences(pd.DataFrame(rows), ERROR_RATES, TABLE1, lambda name, method: "Why.")
    assert sentence.index("worse: DFP 0.035") < sentence.index("better: ACC")
    assert "DFN 0.021" in sentence
