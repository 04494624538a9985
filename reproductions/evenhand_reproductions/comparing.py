"""Tables with the paper's number beside ours, and sentences about the differences."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

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
    noticeable: float = 0.03
    """Difference, in the unit printed, from which on it deserves a sentence."""
    larger_is_better: bool = False


ERROR_RATES = (
    Column("accuracy", "ACC %", 100.0, 2, 2, noticeable=1.5, larger_is_better=True),
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
        for method, runs in part.groupby("method", sort=False):
            numbers = printed(paper, columns, str(runs["beside"].iloc[0]), str(name))
            cells = [str(method)]
            for column, number in zip(columns, numbers, strict=True):
                cells.append(spread(runs[column.metric], column.scale, column.digits))
                cells.append("–" if number is None else f"{number:.{column.paper_digits}f}")
            done = runs["rounds"].notna().all()
            cells += [f"{runs['rounds'].mean():.0f}", f"{runs['objective'].mean():.4f}"] if done else ["", ""]
            rows.append(cells)
        result.append((f"{SETS[str(name)]} ({counted(part['seed'].nunique())})", markdown_table(header, rows)))
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


def differences(
    records: pd.DataFrame,
    columns: Sequence[Column],
    paper: PaperTable,
    reason: Callable[[str, str], str],
) -> list[str]:
    """A sentence for each of the papers' own methods and set where ours is noticeably elsewhere."""
    sentences = []
    for (name, method), runs in records.groupby(["set", "method"], sort=False):
        if method not in paper:
            continue
        found = []
        for column, number in zip(columns, paper[str(method)][str(name)], strict=True):
            ours = column.scale * float(runs[column.metric].mean())
            if abs(ours - number) >= column.noticeable:
                found.append(f"{column.title} {ours:.{column.digits}f} against {number:.{column.paper_digits}f}")
        if found:
            sentences.append(f"{SETS[str(name)]}, {method}: {', '.join(found)}: {reason(str(name), str(method))}")
    return sentences
