"""Tables with the paper's number beside ours, and sentences about the differences."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import pandas as pd

from evenhand_reproductions.settings import SETS
from evenhand_reproductions.writing import counted, markdown_table, spread

PaperTable: TypeAlias = Mapping[str, Mapping[str, tuple[float, float, float]]]
BEST = "best"
"""In place of a paper's method: the best number of its fair rows, column by column."""


@dataclass(frozen=True)
class Column:
    """A metric as a paper prints it."""

    metric: str
    title: str
    scale: float = 1.0
    digits: int = 3
    paper_digits: int = 2
    larger_is_better: bool = False


ERROR_RATES = (
    Column("accuracy", "ACC %", 100.0, 2, 2, larger_is_better=True),
    Column("DFP", "DFP"),
    Column("DFN", "DFN"),
)
"""What the journal version's tables print."""


def tables(records: pd.DataFrame, columns: Sequence[Column], paper: PaperTable) -> list[tuple[str, str]]:
    """One table for each set: methods as rows, ours and the paper's number side by side, rounds and objective."""
    header = ["method"] + [title for column in columns for title in (column.title, "paper")]
    header += ["rounds", "training objective"]
    result = []
    for name, part in records.groupby("set", sort=False):
        rows = []
        most = part["seed"].nunique()
        for method, runs in part.groupby("method", sort=False):
            numbers = printed(paper, columns, str(runs["beside"].iloc[0]), str(name))
            cells = [str(method) if len(runs) == most else f"{method} ({counted(len(runs))})"]
            for column, number in zip(columns, numbers, strict=True):
                cells.append(spread(runs[column.metric], column.scale, column.digits))
                cells.append("–" if number is None else f"{number:.{column.paper_digits}f}")
            done = runs["rounds"].notna().all()
            cells += [f"{runs['rounds'].mean():.0f}", f"{runs['objective'].mean():.4f}"] if done else ["", ""]
            rows.append(cells)
        result.append((f"{SETS[str(name)]} ({counted(most)})", markdown_table(header, rows)))
    return result


def printed(paper: PaperTable, columns: Sequence[Column], method: str, name: str) -> Sequence[float | None]:
    """The paper's numbers in a row."""
    if method in paper:
        return paper[method][name]
    if method == BEST:
        fair_rows = [row[name] for key, row in paper.items() if key != "FedBCD"]
        return [
            (max if column.larger_is_better else min)(values)
            for column, values in zip(columns, zip(*fair_rows, strict=True), strict=True)
        ]
    return [None] * len(columns)


HOW_DIFFERENT = (
    "Below, worse and better than printed mean: our mean over runs differs from the paper's number by more than twice "
    "its standard error over runs, and by more than half of the paper's last decimal. Where there is one run, by more "
    "than half of that decimal; its spread is not known."
)


def differences(
    records: pd.DataFrame,
    columns: Sequence[Column],
    paper: PaperTable,
    reason: Callable[[str, str], str],
) -> list[str]:
    """A sentence for each row that has the paper's number beside it: what is worse, then what is better."""
    sentences = [HOW_DIFFERENT]
    for (name, method), runs in records.groupby(["set", "method"], sort=False):
        numbers = printed(paper, columns, str(runs["beside"].iloc[0]), str(name))
        found: dict[str, list[str]] = {"worse": [], "better": [], "alike": []}
        for column, number in zip(columns, numbers, strict=True):
            if number is not None:
                cell = f"{column.title} {spread(runs[column.metric], column.scale, column.digits)}"
                found[verdict(column, runs[column.metric], number)].append(
                    f"{cell} against {number:.{column.paper_digits}f}"
                )
        if found["worse"] or found["better"]:
            parts = [f"{word}: {', '.join(cells)}" for word, cells in found.items() if cells and word != "alike"]
            sentences.append(f"{SETS[str(name)]}, {method}: {'; '.join(parts)}. {reason(str(name), str(method))}")
    return sentences


def verdict(column: Column, values: pd.Series[float], number: float) -> str:
    """Whether the mean of the runs is worse or better than a printed number, or alike within their spread."""
    numbers = column.scale * values.to_numpy(dtype=np.float64)
    error = numbers.std(ddof=1) / np.sqrt(len(numbers)) if len(numbers) > 1 else 0.0
    difference = float(numbers.mean()) - number
    if abs(difference) <= 2.0 * error + 0.5 * 10.0**-column.paper_digits:
        return "alike"
    return "better" if (difference > 0) == column.larger_is_better else "worse"
