"""Tables for people: every number has its column, at the width of an ordinary terminal."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pytest
from rich.console import Console
from rich.table import Table

from evenhand.metrics.gaps import METRICS
from evenhand.protocol.messages import Message
from evenhand.protocol.transcript import Transcript
from evenhand.report.tables import Progress, certificate_table, compare, constraints_table, links_table, quality_table

QUALITY = {"accuracy": 0.8141, "DEO": 0.0099, "DFP": 0.0123, "DFN": 0.0821, "FR": 0.9901, "HM": 0.8935, "DP": 0.1}
CERTIFICATE = {"stationarity": 1.234e-5, "violation": 0.0, "rounds": 1000, "converged": True}


def shown(table: Table) -> list[str]:
    console = Console(file=io.StringIO(), width=80)
    console.print(table)
    return console.file.getvalue().splitlines()  # type: ignore[attr-defined]


def result(**changed: float | None) -> dict[str, object]:
    quality = dict.fromkeys(("train", "test"), QUALITY | changed)
    return {"quality": quality, "certificate": CERTIFICATE, "bytes": 1_234_567_890}


def test_runs_stand_side_by_side() -> None:
    long = "on the held-out rows, whose ids decide by a hash that is the same at every party"
    assert long in shown(compare({"plain": result()}, title=long))
    lines = shown(compare({"plain": result(DEO=0.25), "fair": result()}, title="on the held-out rows"))
    assert lines[0].strip() == "on the held-out rows"
    header = next(line for line in lines if "accuracy" in line)
    assert header.split() == ["accuracy", "DFP", "DFN", "DEO", "HM", "rounds", "bytes"]
    fair = next(line for line in lines if "fair" in line)
    assert fair.split() == ["fair", "0.814", "0.012", "0.082", "0.010", "0.893", "1000", "1.2", "GB"]
    assert "0.250" in next(line for line in lines if "plain" in line)


def test_what_was_not_measured_is_left_empty() -> None:
    only_accuracy = {"quality": {"train": {"accuracy": 0.75}}, "certificate": {"rounds": 3}, "bytes": 0}
    line = next(line for line in shown(compare({"run": only_accuracy}, "train")) if "run" in line and "0.75" in line)
    assert line.split() == ["run", "0.750", "3", "0", "bytes"]


def test_beside_a_gap_is_what_it_says_of_new_people() -> None:
    said = {
        "standard_errors": {"test": {"accuracy": 0.004, "DEO": 0.0152, "HM": 0.0152, "DFP": None}},
        "bounds": {"test": {"DEO": 0.0396, "DFP": None}},
        "intervals": {"test": {"DEO": [0.0, 0.0412]}},
        "constraints": {
            "test": [
                {
                    **{"constraint": "equal-opportunity", "asked": 0.01, "estimate": 0.0099, "standard_error": 0.0152},
                    **{"bound": 0.0396, "row": "mean loss among positives, f vs. m (sex)", "comparisons": 1},
                }
            ]
        },
    }
    lines = [line.split() for line in shown(compare({"fair": result() | said}))]
    assert ["±", "s.e.", "0.004", "0.015", "0.015"] in lines
    assert ["≤", "95", "%", "0.040"] in lines
    nothing_of_groups = result(DFP=None, DFN=None, DEO=None, HM=None)
    header = next(line for line in shown(compare({"no groups": nothing_of_groups})) if "accuracy" in line)
    assert header.split() == ["accuracy", "rounds", "bytes"]
    lines = [line.split() for line in shown(quality_table(result() | said, "test"))]
    assert ["DEO", "0.0099", "0.0152", "0.0000", "to", "0.0412", "0.0396"] in [line[:7] for line in lines]
    assert ["DFN", "0.0821"] in lines
    assert ["DFN:", "gap", "in"] in [line[:3] for line in lines]
    table = constraints_table(said)
    assert table is not None
    line = next(line for line in shown(table) if line.strip().startswith("test"))
    assert line.split()[:6] == ["test", "0.01", "0.0099", "0.0152", "0.0396", "equal-opportunity:"]
    assert constraints_table(result()) is None


def test_meanings_stand_below_the_table_and_none_is_cut_in_eighty_columns() -> None:
    every = dict.fromkeys(METRICS, 0.1234)
    measured = {"standard_errors": every, "bounds": every, "intervals": dict.fromkeys(METRICS, (0.1, 0.2))}
    told = {name: {"test": values} for name, values in ({"quality": every} | measured).items()}
    lines = shown(quality_table(told, "test"))
    assert not any("…" in line for line in lines)
    words = [word for line in lines for word in line.split()]
    assert all(word in words for metric in METRICS.values() for word in metric.meaning.split())
    last = max(place for place, line in enumerate(lines) if "0.1234" in line)
    assert min(place for place, line in enumerate(lines) if line.strip().startswith("DFN:")) > last


def test_the_certificate_is_told_value_by_value() -> None:
    lines = [line.split() for line in shown(certificate_table(CERTIFICATE)) if line.strip()]
    assert lines == [
        ["certificate"],
        ["stationarity", "1.234e-05"],
        ["violation", "0.000e+00"],
        ["rounds", "1000"],
        ["converged", "True"],
    ]


def test_links_add_up_messages_and_bytes() -> None:
    transcript = Transcript()
    for count in (3, 5):
        transcript.add(0.0, Message("bank", "server", "scores", {"scores": np.zeros(count)}))
    transcript.add(1.0, Message("server", "bank", "answer", {"nu": np.zeros(1000)}))
    rows = [line.split() for line in shown(links_table(transcript))]
    assert ["from", "to", "messages", "bytes"] in rows
    assert ["bank", "server", "2", "64", "bytes"] in rows
    assert ["server", "bank", "1", "8.0", "kB"] in rows


def test_how_far_from_the_optimum_is_said_as_a_bound_or_as_an_estimate_or_not_at_all() -> None:
    told = shown(certificate_table(CERTIFICATE | {"bound": 1.5e-3, "estimate": None}))
    assert any("distance from optimum, at most" in line and "1.500e-03" in line for line in told)
    assert not any("about" in line or "None" in line for line in told)
    told = shown(certificate_table(CERTIFICATE | {"bound": None, "estimate": 1.5e-3}))
    assert any("distance from optimum, estimated" in line and "1.500e-03" in line for line in told)


@pytest.mark.parametrize(
    ("told", "expected"), [({"bound": 2e-3}, "≤ 2.0e-03"), ({"estimate": 2e-3}, "≈ 2.0e-03"), ({}, "violation 0.0e+00")]
)
def test_progress_says_it_while_it_goes_on(told: dict[str, float], expected: str, capsys: Any) -> None:
    with Progress(10) as progress:
        progress.round({"round": 3, "objective": 0.5, "violation": 0.0, **told})
    assert expected in capsys.readouterr().err
