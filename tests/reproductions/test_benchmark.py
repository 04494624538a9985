"""The benchmark: splits by label and group, a tiny grid, records that merge, and a stranger's method."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from support.problems import small

pytest.importorskip("torch")

from evenhand.data.public.loaders import Dataset
from evenhand.errors import InputError, RunError
from evenhand.solvers import HORIZONTAL
from evenhand_reproductions import methods
from evenhand_reproductions.benchmark import grid as grids
from evenhand_reproductions.benchmark.grid import Grid, merged
from evenhand_reproductions.benchmark.leaderboard import GAP, comparable, losses, page, ranks, stability
from evenhand_reproductions.benchmark.places import places
from evenhand_reproductions.benchmark.splits import SPLITS, client_numbers
from evenhand_reproductions.methods import adaptive

PROBLEM = small(seed=2, rows=300)
FRAME = pd.DataFrame(PROBLEM.matrix, columns=[f"x{place}" for place in range(PROBLEM.matrix.shape[1])])
TABLE = Dataset("tiny", FRAME, pd.Series(np.where(PROBLEM.labels > 0, "yes", "no")), "no", PROBLEM.sensitive, "")


@pytest.fixture(autouse=True)
def _as_before(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(grids, "_table", lambda name, source: TABLE)
    before = dict(HORIZONTAL)
    yield
    HORIZONTAL.clear()
    HORIZONTAL.update(before)


@pytest.mark.parametrize("split", SPLITS)
def test_a_split_deals_every_row_to_clients_of_equal_size(split: str) -> None:
    labels, groups = TABLE.label, TABLE.sensitive.iloc[:, 0]
    numbers = client_numbers(split, labels, groups, 5, 1)
    assert np.bincount(numbers).tolist() == [60] * 5
    np.testing.assert_array_equal(numbers, client_numbers(split, labels, groups, 5, 1))


def test_each_split_skews_what_it_names() -> None:
    labels, groups = TABLE.label, TABLE.sensitive.iloc[:, 0]

    def spread(split: str, column: pd.Series) -> float:
        """How far clients' shares of a value are apart, over ten draws."""
        drawn = [client_numbers(split, labels, groups, 5, seed) for seed in range(10)]
        first = (column == column.iloc[0]).to_numpy()
        return float(np.mean([np.std([first[one == k].mean() for k in range(5)]) for one in drawn]))

    agreement = (labels == labels.mode()[0]) == (groups == groups.mode()[0])
    chance = {name: spread("iid", one) for name, one in (("label", labels), ("sensitive", groups))}
    assert spread("label", labels) > 2 * chance["label"]
    assert spread("sensitive", groups) > 2 * chance["sensitive"]
    assert spread("both", labels) > 2 * chance["label"]
    assert spread("both", groups) > 2 * chance["sensitive"]
    assert spread("conflicting", agreement) > 2 * spread("iid", agreement)


def test_a_tiny_grid_and_the_command(tmp_path: Path, command: Callable[..., tuple[int, str, str]]) -> None:
    asked = ["--method", "fedavg", "--method", "sqp", "--method", "afl", "--set", "tiny", "--split", "both"]
    asked += ["--clients", 3, "--rounds", 3, "--runs", 2, "--epsilon", 0.1, "--out", tmp_path / "out"]
    code, out, errors = command("benchmark", *asked)
    assert code == 0, errors
    assert "benchmark.md" in out
    records = json.loads((tmp_path / "out" / "benchmark.json").read_text())["records"]
    assert len(records) == 6
    assert "Of 2 cells some methods have run on fewer, with seeds of their own: sqp 1." in page(
        [one for one in records if one["method"] != "sqp" or one["seed"] == 10]
    )
    assert {record["outcome"] for record in records} == {"ended"}
    # Labels are mostly right: the positive class is the set's, not the larger label.
    assert np.mean([record["accuracy"] for record in records]) > 0.6
    by_method = pd.DataFrame(records).groupby("method").mean(numeric_only=True)
    assert by_method.at["fedavg", "training rounds"] == 3
    text = (tmp_path / "out" / "benchmark.md").read_text(encoding="utf-8")
    assert "3 methods, 1 tables, 1 splits, seeds 10-11" in text
    assert "rank correlation" in text.lower()
    # What is there is not run again, and other records are merged.
    more = tmp_path / "more.json"
    more.write_text(json.dumps({"records": [{**records[0], "seed": 99}]}))
    code, *_ = command("benchmark", *asked, "--merge", more, "--rewrite")
    assert code == 0
    assert len(json.loads((tmp_path / "out" / "benchmark.json").read_text())["records"]) == 7


def test_records_of_one_cell_are_replaced_by_the_last() -> None:
    cell = next(Grid(("fedavg",), ("tiny",)).cells())
    assert merged([{**cell, "cpu": 1.0}], [{**cell, "cpu": 2.0}]) == [{**cell, "cpu": 2.0}]


def test_cells_of_a_part_of_the_rows() -> None:
    grid = Grid(("fedavg", "afl"), ("tiny",), ("iid",), seeds=(1, 2), rows=120)
    cells = list(grid.cells())
    assert [(cell["seed"], cell["method"]) for cell in cells] == [(1, "fedavg"), (1, "afl"), (2, "fedavg"), (2, "afl")]
    record = next(grid.run())
    assert record["rows"] == 120
    # Held-out rows are 90 of the table's 300 in any case: rates are multiples of 1/90.
    assert round(record["accuracy"] * 90) == pytest.approx(record["accuracy"] * 90)
    assert "at most 120 training rows" in page([record])


def test_cuts_by_group_are_measured_at_the_cut_of_each_row() -> None:
    kinds = ("fedavg", "fedavg-cuts", "sqp-cuts")
    plain, cuts, ours = Grid(kinds, ("tiny",), ("iid",), seeds=(1,), clients=3, rounds=5).run()
    assert {one["outcome"] for one in (plain, cuts, ours)} == {"ended"}
    # The same model, decided elsewhere.
    assert cuts["log_loss"] == pytest.approx(plain["log_loss"])
    assert cuts["equalized_odds"] != plain["equalized_odds"]
    assert cuts["bytes"] > plain["bytes"]


def test_logofair_decides_by_client_and_group() -> None:
    grid = Grid(("fedavg", "fedavg-logofair"), ("tiny",), ("both",), seeds=(1,), clients=3, rounds=5)
    plain, fair = grid.run()
    assert (plain["outcome"], fair["outcome"]) == ("ended", "ended")
    assert fair["equalized_odds"] != plain["equalized_odds"]
    # 2 labels × 2 groups: 2 gaps a round both ways, and the counts both ways.
    assert fair["bytes"] - plain["bytes"] == 8 * 3 * (2 * 2 * 30 + 2 * 4)
    other = next(Grid(("fedavg-logofair",), ("tiny",), constraint="loss-parity", measure="loss", seeds=(1,)).run())
    assert "bounds equalized odds" in other["outcome"]


def test_clients_by_place(monkeypatch: pytest.MonkeyPatch) -> None:
    frame = FRAME.assign(**{"native-country": ["United-States", "Cuba", "India", "Italy", "Laos"] * 60})
    monkeypatch.setattr(grids, "_table", lambda name, source: replace(TABLE, frame=frame))
    grid = Grid(("fedavg",), ("adult",), ("place",), seeds=(1,), rounds=2)
    (record,) = grid.run()
    assert (record["outcome"], record["clients"]) == ("ended", 4)
    found = places("adult", replace(TABLE, frame=frame), None)
    assert found.iloc[:5].tolist() == ["United States", "rest of the Americas", "Asia", "Europe", "Asia"]
    with pytest.raises(InputError, match="does not say where"):
        places("compas", TABLE, None)


def test_losses_name_who_is_ahead_of_ours() -> None:
    cell = next(Grid(("sqp",), ("tiny",)).cells())
    rows = [
        {**cell, "method": name, "seed": seed, "outcome": "ended", "accuracy": right + seed / 1000, GAP: gap}
        for name, right, gap in (("sqp", 0.8, 0.1), ("better", 0.9, 0.1), ("fairer", 0.8, 0.01))
        for seed in (1, 2)
    ]
    accurate, fair = losses(pd.DataFrame(rows))
    assert accurate == "More accurate than sqp, in groups of cells (of 1): better 1."
    assert fair == "Fairer than sqp, in groups of cells (of 1): fairer 1."


def test_ranks_and_a_method_that_fails() -> None:
    cell = next(Grid(("fedavg",), ("tiny",)).cells())
    cost = {"DP": 0.1, "training rounds": 3, "bytes": 100, "cpu": 1.0}
    rows = [
        {**cell, **cost, "method": name, "seed": seed, "outcome": "ended", "accuracy": right, "equalized_odds": gap}
        for name, right, gap in (("a", 0.9, 0.3), ("b", 0.8, 0.1), ("c", 0.7, 0.2))
        for seed in (1, 2)
    ]
    rows.append({**cell, "method": "d", "seed": 1, "outcome": "DivergenceError: too long", "cpu": 1.0})
    frame = pd.DataFrame(rows)
    assert ranks(frame)["accuracy"].to_dict() == {"a": 1.0, "b": 2.0, "c": 3.0}
    assert ranks(frame)["gap"].to_dict() == {"a": 3.0, "b": 1.0, "c": 2.0}
    assert "1.00" in stability(frame)
    text = page(rows)
    assert "| d | 0 | DivergenceError" in text
    # Gaps of 0.1 and more are beyond ε = 0.05.
    assert "| b | 2.0 | 1.0 | 1.5 | 0 | 0.00 | 1.00 |" in text


def test_draws_that_a_method_refuses_are_left_out_for_all() -> None:
    cell = next(Grid(("fedavg",), ("tiny",)).cells())
    numbers = {"DP": 0.1, "training rounds": 3, "bytes": 100, "cpu": 1.0, "accuracy": 0.8, GAP: 0.1}
    rows = [
        {**cell, **numbers, "method": name, "seed": seed, "outcome": "ended"} for name in "abc" for seed in (1, 2, 3)
    ]
    rows[0] = {**cell, "method": "a", "seed": 1, "outcome": "ConstraintError: slice is empty", "cpu": 0.0}
    assert set(comparable(pd.DataFrame(rows))["seed"]) == {2, 3}
    text = page(rows)
    assert "1 of 3 draws of rows are left out" in text
    assert "| b | 2 | 80.00 ± 0.00 |" in text
    with pytest.raises(RunError, match="take more rows"):
        page(rows[:1])


def test_a_strangers_method_joins_by_entry_point(monkeypatch: pytest.MonkeyPatch) -> None:
    mine = replace(adaptive.SOLVERS[1], name="mine")
    point = SimpleNamespace(name="mine", load=lambda: mine)
    monkeypatch.setattr(methods, "entry_points", lambda group: [point] if group == "evenhand.methods" else [])
    assert "mine" in Grid(sets=("tiny",)).names
    wrong: Any = SimpleNamespace(name="wrong", load=lambda: "no solver")
    monkeypatch.setattr(methods, "entry_points", lambda group: [wrong])
    with pytest.raises(InputError, match="must be a Solver"):
        methods.register_methods()


def test_an_unknown_method_is_refused() -> None:
    with pytest.raises(InputError, match="no method 'fedsgd'"):
        Grid(("fedsgd",))
