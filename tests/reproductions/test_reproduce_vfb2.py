"""Tiny versions of VFB²'s table and figures."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from support.sources import FOLDER

from evenhand.errors import InputError
from evenhand_reproductions.papers import VFB2_SETS, VFB2_TABLE2
from evenhand_reproductions.running import reproduce
from evenhand_reproductions.settings import SETS, Settings
from evenhand_reproductions.vfb2 import fig2 as vfb2_fig2
from evenhand_reproductions.vfb2 import stragglers as vfb2_stragglers
from evenhand_reproductions.vfb2 import threads as vfb2_threads
from evenhand_reproductions.vfb2.problems import SHARES, read

needs_credit = pytest.mark.skipif(
    FOLDER is None or not (FOLDER / "credit-default").is_dir(), reason="no local copy of credit-default"
)


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, str], Path]:
    """Make a reproduction in one run of 2 rounds; returns the folder of its files."""

    @cache
    def make(name: str, data: str) -> Path:
        folder = tmp_path_factory.mktemp("results")
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(vfb2_stragglers, "BATCH", 6000)
            patch.setattr(vfb2_threads, "BATCH", 6000)
            patch.setattr(vfb2_stragglers, "GRID", (1e-3, 1e-4))
            patch.setattr(vfb2_fig2, "PARTIES", (1, 3))
            patch.setattr(vfb2_fig2, "ROWS", 400)
            patch.setattr(vfb2_fig2, "COLUMNS", 40)
            settings = Settings(runs=1, rounds=2, source=FOLDER, sets=(data,))
            reproduce(name, settings, folder, command=f"python -m evenhand_reproductions {name} --as-asked", show=False)
        return folder

    return make


@pytest.mark.parametrize(
    ("name", "data"),
    [
        pytest.param("vfb2-table2", "credit-default", marks=needs_credit),
        pytest.param("vfb2-step", "credit-default", marks=needs_credit),
        pytest.param("vfb2-theorems", "credit-default", marks=needs_credit),
        ("vfb2-fig2", "synthetic"),
        pytest.param("vfb2-fig3", "credit-default", marks=needs_credit),
        pytest.param("vfb2-fig4", "credit-default", marks=needs_credit),
        pytest.param("vfb2-threads", "credit-default", marks=needs_credit),
    ],
)
def test_a_tiny_reproduction_leaves_page_records_and_figure(name: str, data: str, small: Any) -> None:
    folder = small(name, data)
    text = (folder / f"{name}.md").read_text(encoding="utf-8")
    assert f"    python -m evenhand_reproductions {name} --as-asked\n" in text
    assert "## What was run" in text
    assert re.search(r"\bnan\b", text) is None
    figure = "fig" in name or name == "vfb2-threads"
    expected = {f"{name}.md", f"{name}.json"} | ({f"{name}.png"} if figure else set())
    assert {path.name for path in folder.iterdir()} == expected
    records = json.loads((folder / f"{name}.json").read_text())["records"]
    assert {record["set"] for record in records} == {data}
    assert {record["seed"] for record in records} == {10}
    if figure:
        assert (folder / f"{name}.png").read_bytes().startswith(b"\x89PNG")


@needs_credit
def test_the_table_has_the_papers_numbers_beside_ours(small: Any) -> None:
    folder = small("vfb2-table2", "credit-default")
    lines = (folder / "vfb2-table2.md").read_text(encoding="utf-8").splitlines()
    records = pd.DataFrame(json.loads((folder / "vfb2-table2.json").read_text())["records"])
    for equation in ("13", "14"):
        start = lines.index(f"## Credit default, problem ({equation})")
        for place, method in enumerate(("NonF", "AFSVRG-VP", "VFB²-SVRG")):
            row = next(line for line in lines[start:] if line.startswith(f"| {method} |")).strip("| ").split(" | ")
            mean, deviation = VFB2_TABLE2[equation]["credit-default"][place]
            assert row[3] == f"{mean:.2f} ± {deviation:.2f}"
            ours = records.query("equation == @equation and method == @method")["accuracy"].item()
            assert row[1] == "1"
            assert float(row[2]) == pytest.approx(100 * ours, abs=0.006)


def test_a_step_is_shortened_as_long_as_the_run_that_is_shown_ends_lower() -> None:
    ends = {0.1: 3.0, 0.05: 2.0, 0.01: 2.5, 0.005: 1.0}
    tried = []

    def timed(step: float) -> Any:
        tried.append(step)
        return SimpleNamespace(history=pd.DataFrame({"objective": [9.0, ends[step]]})), 1.0

    step, (run, _) = vfb2_stragglers.shorter_if_lower(0.1, timed)
    assert (step, run.history["objective"].iloc[-1]) == (0.05, 2.0)
    assert tried == [0.1, 0.05, 0.01]


@needs_credit
def test_synchronous_runs_take_longer_and_the_straggler_costs_them(small: Any) -> None:
    records = pd.DataFrame(json.loads((small("vfb2-fig3", "credit-default") / "vfb2-fig3.json").read_text())["records"])
    ends = records.groupby(["rule", "method"])["time"].max().unstack()
    assert (ends["VFB"] > ends["VFB, no straggler"]).all()
    assert (ends["VFB"] > ends["VFB²"]).all()


@needs_credit
def test_a_draw_of_credit_default() -> None:
    source = read("credit-default", FOLDER)
    problem = source.draw(3)
    assert problem.train.shape == (24_000, 90)
    assert len(problem.test_labels) == 6_000
    parties = problem.parties(8, 3)
    assert [party.active for party in parties] == [True] * 3 + [False] * 5
    assert sum(party.matrix.shape[1] for party in parties) == 90
    assert max(party.matrix.shape[1] for party in parties) - min(party.matrix.shape[1] for party in parties) <= 1


def test_the_lowest_loss_is_below_that_at_the_start_and_lower_with_the_bounded_penalty() -> None:
    problem = vfb2_fig2.synthetic(1)
    for equation in ("13", "14"):
        best = vfb2_stragglers.lowest(problem, equation)
        assert 0.0 < best < problem.loss_at_start
    assert vfb2_stragglers.lowest(problem, "14") <= vfb2_stragglers.lowest(problem, "13")


def test_times_to_a_precision_are_interpolated() -> None:
    curve = pd.DataFrame({"time": [0.0, 1.0, 2.0], "gap": [1.0, 0.1, 0.001]})
    assert vfb2_stragglers.reached_at(curve, 0.1) == pytest.approx(1.0)
    assert vfb2_stragglers.reached_at(curve, 0.01) == pytest.approx(1.5)
    assert vfb2_stragglers.reached_at(curve, 1.0) == 0.0


def test_the_clock_gives_everybody_the_same_time_but_the_straggler() -> None:
    parties = vfb2_fig2.synthetic(1).parties(8, 3)
    clock = vfb2_stragglers.clock(parties, 1.4)
    times = np.array([clock.computing(party.name, party.matrix.nnz) for party in parties])
    slow = [party.name for party in parties].index(vfb2_stragglers.STRAGGLER)
    assert np.allclose(np.delete(times, slow), times[0])
    assert times[slow] == pytest.approx(1.4 * times[0])


def test_every_set_has_a_name_and_others_are_refused(command: Any, tmp_path: Path) -> None:
    assert set(VFB2_SETS) <= set(SETS)
    assert set(SHARES) < set(VFB2_SETS)
    code, _, errors = command("vfb2-table2", "--set", "compas", "--out", tmp_path / "results")
    assert code == 2
    assert "vfb2-table2 is about credit-default" in errors
    with pytest.raises(InputError, match="no set 'webspam'"):
        Settings(sets=("webspam",))
