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
OURS: Final = ("sqp", "sqp-cuts")
AHEAD: Final = (
    "A method is ahead in a group of cells (a table and a split) if its mean over seeds is better by more than two "
    "standard errors of the difference."
)
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


def keep(records: Sequence[Record], folder: Path) -> Path:
    """Write the records; return their path."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "benchmark.json"
    lines = ",\n".join(json.dumps(record, default=float) for record in records)
    write_bytes(path, f'{{"records": [\n{lines}\n]}}\n'.encode())
    return path


def write(records: Sequence[Record], folder: Path) -> list[Path]:
    """Write the records and the page; return their paths."""
    path = folder / "benchmark.md"
    kept = keep(records, folder)
    write_bytes(path, page(records).encode())
    return [kept, path]


EMPTY: Final = "ConstraintError"
"""A draw of rows in which a group has no rows of a label: methods with a constraint refuse it."""


def comparable(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the records of draws that no method refused: means of others would be over other draws."""
    refused = frame["outcome"].str.startswith(EMPTY)
    draws = pd.MultiIndex.from_frame(frame[[*GROUP, "seed"]].astype(str))
    return frame[~draws.isin(draws[refused])]


def page(records: Sequence[Record]) -> str:
    every = pd.DataFrame(records)
    frame = comparable(every)
    draws = len(every.drop_duplicates([*GROUP, "seed"])), len(frame.drop_duplicates([*GROUP, "seed"]))
    left_out = (
        f" {draws[0] - draws[1]} of {draws[0]} draws of rows are left out for all methods: a group had no rows of a "
        "label there, and methods with a constraint refuse them."
        if draws[1] < draws[0]
        else ""
    )
    if frame.empty:
        raise RunError(f"in every draw a method refused the rows ({every['outcome'].iloc[0][:100]}); take more rows")
    parts = [
        "# Benchmark of methods across clients",
        f"    {command(every)}",
        f"{frame['method'].nunique()} methods, {frame['set'].nunique()} tables, {frame['split'].nunique()} splits, "
        f"{seeds_of(frame['seed'])}. Linear models; all numbers are of held-out rows. "
        "The gap is the larger of the gaps in false-positive and false-negative rates. ± is the standard error over "
        "seeds. Methods that take no constraint train without. Options are the defaults of each method; neither ours "
        "nor others were tuned on these tables. Methods with -cuts choose a cut for each group after training, and "
        "need the group of new people too; -logofair needs their group and their client; others need neither."
        + left_out
        + fewer(every),
        "## Ranks",
        "The mean rank over groups of cells by accuracy and by gap, 1 is best; the order is by their mean. Gaps within "
        "ε are of held-out rows; ε bounds the training rows of all clients. Bytes and CPU are means over all cells.",
        _ranking_table(frame),
        stability(frame),
        *(["## Where others are ahead of ours", AHEAD, *losses(frame)] if frame["seed"].nunique() > 1 else []),
    ]
    for group, cells in frame.groupby(GROUP, sort=False):
        data, size, split, constraint, clients, rounds = group if isinstance(group, tuple) else (group,)
        parts += [
            f"## {data}, split by {split}",
            f"{constraint}, {clients} clients, at most {rounds} rounds, "
            + ("all rows." if size == "all" else f"at most {size} training rows."),
            _table(cells),
        ]
    return "\n\n".join(parts) + "\n"


def fewer(frame: pd.DataFrame) -> str:
    """Name the methods that have run on fewer cells than others: their means are over fewer seeds."""
    counts = frame["method"].value_counts()
    short = [f"{name} {count}" for name, count in counts.sort_index().items() if count < counts.max()]
    if not short:
        return ""
    return f" Of {counts.max()} cells some methods have run on fewer, with seeds of their own: {', '.join(short)}."


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
    table, ended = ranks(frame), frame[frame["outcome"] == "ended"]
    # The bound is the second word of the constraint as records have it.
    kept = ended[GAP] <= ended["constraint"].str.split().str[1].astype(float)
    table["within"] = 100.0 * kept.groupby(ended["method"]).mean()
    table["MB"] = ended.groupby("method")["bytes"].mean() / 1e6
    table["cpu"] = ended.groupby("method")["cpu"].mean()
    digits = (1, 1, 1, 0, 2, 2)
    rows = [
        [str(name), *(f"{value:.{places}f}" for value, places in zip(values, digits, strict=True))]
        for name, values in zip(table.index, table.to_numpy(dtype=np.float64), strict=True)
    ]
    header = ["method", "rank by accuracy", "rank by gap", "mean of both", "gap within ε, % of runs", "MB", "CPU s"]
    return markdown_table(header, rows)


def blocks(frame: pd.DataFrame) -> list[list[int]]:
    """Return the seeds in two blocks: the smaller half, and the larger one."""
    seeds = sorted(set(frame["seed"]))
    half = (len(seeds) + 1) // 2
    return [seeds[:half], seeds[half:]]


def stability(frame: pd.DataFrame) -> str:
    """Say how alike the rankings are on two blocks of seeds."""
    parts = blocks(frame)
    if not parts[1]:
        return "There is one seed, so nothing is known about how stable the ranks are."
    words = [f"{part[0]}" if len(part) == 1 else f"{part[0]} to {part[-1]}" for part in parts]
    halves = [ranks(frame[frame["seed"].isin(part)]) for part in parts]
    found = []
    for column, name in (("both", "the mean rank"), ("accuracy", "accuracy"), ("gap", "the gap")):
        places = pd.concat([half[column] for half in halves], axis=1, join="inner").rank()
        if len(places) < 3:
            return "Fewer than three methods have ended on two blocks of seeds, so there is no rank correlation."
        if (places.std() == 0).any():
            return "All methods rank alike on one block of seeds, so there is no rank correlation."
        correlation = np.corrcoef(places.to_numpy(dtype=np.float64), rowvar=False)[0, 1]
        found.append(f"{correlation:.2f} by {name}")
    return f"Rank correlation (Spearman) of seeds {words[0]} with seeds {words[1]}: {', '.join(found)}."


def losses(frame: pd.DataFrame) -> list[str]:
    """Count the groups of cells where other methods are ahead of ours by more than two standard errors over seeds."""
    means, errors = _means(frame)
    found = []
    for mine in OURS:
        if mine not in means.index.get_level_values("method"):
            continue
        of_mine, own_error = means.xs(mine, level="method"), errors.xs(mine, level="method")
        for column, better, word in (("accuracy", 1.0, "More accurate"), (GAP, -1.0, "Fairer")):
            counts = {}
            for other in dict.fromkeys(means.index.get_level_values("method")):
                if other == mine:
                    continue
                lead = better * (means.xs(other, level="method")[column] - of_mine[column])
                spread = np.hypot(errors.xs(other, level="method")[column], own_error[column])
                if (ahead := int((lead > 2.0 * spread).sum())) > 0:
                    counts[str(other)] = ahead
            listed = ", ".join(f"{name} {count}" for name, count in sorted(counts.items(), key=lambda one: -one[1]))
            found.append(
                f"{word} than {mine}, in groups of cells (of {len(of_mine)}): {listed or 'none'}.".capitalize()
            )
    return found


def _means(frame: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return means and standard errors over seeds, by group of cells and method."""
    within = frame[frame["outcome"] == "ended"].groupby([*GROUP, "method"], sort=False)[["accuracy", GAP]]
    return within.mean(), within.sem()
