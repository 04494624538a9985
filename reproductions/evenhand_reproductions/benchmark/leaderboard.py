"""The leaderboard: means with standard errors in each group of cells, and methods ranked over all of them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import numpy as np
import pandas as pd

from evenhand.errors import RunError
from evenhand.runtime.files import write_bytes
from evenhand_reproductions.settings import Record
from evenhand_reproductions.writing import markdown_table, seeds_of

GAP: Final = "equalized_odds"
"""The gap by which methods are ranked: the larger of the gaps of both error rates, on held-out rows."""
GROUP: Final = ["set", "rows", "split", "constraint", "clients", "rounds"]


def read(path: Path) -> list[Record]:
    """Return the records of a file; none if there is no file."""
    if not path.exists():
        return []
    try:
        found: list[Record] = json.loads(path.read_text(encoding="utf-8"))["records"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise RunError(f"{path} holds no records of a benchmark ({error}); choose another file") from error
    return found


def write(records: Sequence[Record], folder: Path) -> list[Path]:
    """Write the records and the page; return their paths."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / "benchmark.json", folder / "benchmark.md"]
    lines = ",\n".join(json.dumps(record, default=float) for record in records)
    write_bytes(paths[0], f'{{"records": [\n{lines}\n]}}\n'.encode())
    write_bytes(paths[1], page(records).encode())
    return paths


def page(records: Sequence[Record]) -> str:
    frame = pd.DataFrame(records)
    parts = [
        "# Benchmark of methods across clients",
        f"    {command(frame)}",
        f"{frame['method'].nunique()} methods, {frame['set'].nunique()} tables, {frame['split'].nunique()} splits, "
        f"{seeds_of(frame['seed'])}. Linear models; all numbers are of held-out rows. "
        "The gap is the larger of the gaps in false-positive and false-negative rates. ± is the standard error over "
        "seeds. Methods that take no constraint train without; options are the defaults of each method, not tuned.",
        "## Ranks",
        "The mean rank over groups of cells by accuracy and by gap, 1 is best; the order is by their mean.",
        _ranking_table(frame),
        stability(frame),
    ]
    for group, cells in frame.groupby(GROUP, sort=False):
        data, size, split, constraint, clients, rounds = group if isinstance(group, tuple) else (group,)
        parts += [
            f"## {data}, split by {split}",
            f"{constraint}, {clients} clients, at most {rounds} rounds, "
            + ("all rows." if size == "all" else f"at most {size} rows of the table."),
            _table(cells),
        ]
    return "\n\n".join(parts) + "\n"


def command(frame: pd.DataFrame) -> str:
    """Return the command that runs the cells of these records, but for the constraint and the number of rounds."""
    words = ["python -m evenhand_reproductions benchmark"]
    for option, column in (("--method", "method"), ("--set", "set"), ("--split", "split")):
        words += [f"{option} {value}" for value in frame[column].unique()]
    if (size := frame["rows"].iloc[0]) != "all":
        words.append(f"--rows {size}")
    return " ".join([*words, f"--seed {frame['seed'].min()} --runs {frame['seed'].nunique()}"])


def _table(cells: pd.DataFrame) -> str:
    rows = []
    for method, runs in cells.groupby("method", sort=False):
        ended = runs[runs["outcome"] == "ended"]
        if ended.empty:
            rows.append([str(method), "0", str(runs["outcome"].iloc[0])[:60], "", "", "", "", ""])
            continue
        numbers = [_with_error(ended["accuracy"], 100.0, 2)]
        numbers += [_with_error(ended[metric], 1.0, 3) for metric in (GAP, "DP")]
        costs = [ended["training rounds"].mean(), ended["bytes"].mean() / 1e6, ended["cpu"].mean()]
        rows.append([str(method), f"{len(ended)}", *numbers, f"{costs[0]:.0f}", f"{costs[1]:.2f}", f"{costs[2]:.1f}"])
    return markdown_table(["method", "runs", "accuracy %", "gap", "DP", "rounds", "MB", "CPU s"], rows)


def _with_error(values: pd.Series[float], scale: float, digits: int) -> str:
    numbers = scale * values.to_numpy(dtype=np.float64)
    if len(numbers) == 1:
        return f"{numbers[0]:.{digits}f}"
    return f"{numbers.mean():.{digits}f} ± {numbers.std(ddof=1) / np.sqrt(len(numbers)):.{digits}f}"


def ranks(frame: pd.DataFrame) -> pd.DataFrame:
    """Mean rank of each method by accuracy and by gap, over groups in which all methods have ended; best first."""
    ended = frame[frame["outcome"] == "ended"]
    means = ended.groupby([*GROUP, "method"], sort=False)[["accuracy", GAP]].mean().reset_index()
    within = means.groupby(GROUP, sort=False)
    found = pd.DataFrame(
        {
            "method": means["method"],
            "accuracy": within["accuracy"].rank(ascending=False),
            "gap": within[GAP].rank(),
        }
    )
    table = found.groupby("method")[["accuracy", "gap"]].mean()
    return table.assign(both=table.mean(axis=1)).sort_values("both", kind="stable")


def _ranking_table(frame: pd.DataFrame) -> str:
    table = ranks(frame)
    rows = [
        [str(name), *(f"{value:.1f}" for value in values)]
        for name, values in zip(table.index, table.to_numpy(dtype=np.float64), strict=True)
    ]
    return markdown_table(["method", "rank by accuracy", "rank by gap", "mean of both"], rows)


def stability(frame: pd.DataFrame) -> str:
    """Say how alike the ranking is on two blocks of seeds."""
    seeds = sorted(set(frame["seed"]))
    if len(seeds) < 2:
        return "There is one seed, so nothing is known about how stable the ranks are."
    halves = [ranks(frame[frame["seed"].isin(part)])["both"] for part in (seeds[::2], seeds[1::2])]
    both = pd.concat(halves, axis=1, join="inner")
    if len(both) < 3:
        return "Fewer than three methods have ended on two blocks of seeds, so there is no rank correlation."
    places = both.rank()
    if (places.std() == 0).any():
        return "All methods rank alike on one block of seeds, so there is no rank correlation."
    correlation = np.corrcoef(places.to_numpy(dtype=np.float64), rowvar=False)[0, 1]
    return f"Rank correlation between every other seed and the rest (Spearman): {correlation:.2f}."
