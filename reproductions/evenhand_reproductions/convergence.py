"""What convergence figures share: levels of ε, curves, and the table of where they end."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from evenhand_reproductions.experiments import NEVER_BINDS
from evenhand_reproductions.figures import draw_rounds
from evenhand_reproductions.settings import SETS
from evenhand_reproductions.writing import markdown_table

FREE = "FedBCD"


def levels(epsilons: tuple[float, ...]) -> dict[str, float]:
    """Each curve's name and its bound. FedBCD's bound never binds: the same steps, and DEO is recorded."""
    return {FREE: NEVER_BINDS} | {f"ε={epsilon:g}": epsilon for epsilon in epsilons}


def in_all_runs(records: pd.DataFrame) -> pd.DataFrame:
    """Return the points at rounds that all runs of a curve have: means of others would jump between runs."""
    curves = records.groupby(["set", "method", "level"])
    runs = records.groupby(["set", "method", "level", "round"])["seed"].transform("nunique")
    return records[runs == curves["seed"].transform("nunique")].reset_index(drop=True)


def figure(
    records: pd.DataFrame,
    drawn: Mapping[str, float],
    styles: Mapping[str, Mapping[str, Any]],
    title: str,
    *,
    each_run: bool = False,
) -> Callable[[Path], None]:
    """What draws the curves at the levels `drawn`, and each bound that can bind."""
    bounds = {level: epsilon for level, epsilon in drawn.items() if level != FREE}
    return lambda path: draw_rounds(records, path, styles=styles, bounds=bounds, title=title, each_run=each_run)


def ends(records: pd.DataFrame) -> list[tuple[str, str]]:
    """For each set: where each method ends, and when it first comes within 1 % of the better one's objective."""
    methods = list(records["method"].unique())
    several = records["seed"].nunique() > 1
    columns = ("runs", "rounds", "objective", "DEO") if several else ("rounds", "objective", "DEO")
    header = ["bound", *[f"{what}, {method}" for method in methods for what in columns]]
    result = []
    for name, part in records.groupby("set", sort=False):
        rows = []
        for level, lines in part.groupby("level", sort=False):
            cells = [str(level)]
            for method in methods:
                line = lines[lines["method"] == method].sort_values("round")
                if line.empty:
                    cells += ["–"] * len(columns)
                    continue
                last = line[line["round"] == line.groupby("seed")["round"].transform("max")][
                    ["objective", "DEO"]
                ].mean()
                cells += [str(line["seed"].nunique())] if several else []
                cells += [str(line["round"].max()), f"{last['objective']:.4f}", f"{last['DEO']:.4f}"]
            rows.append(cells)
        result.append((f"{SETS[str(name)]}: where the curves end", markdown_table(header, rows)))
    return result


def above_bound(records: pd.DataFrame, drawn: Mapping[str, float], method: str, share: float = 0.05) -> list[str]:
    """Say where a method's curves end with a DEO above their bound, by more than a share of it."""
    lines = []
    for name, part in records[records["method"] == method].groupby("set", sort=False):
        last = part["round"] == part.groupby(["level", "seed"])["round"].transform("max")
        ends = part[last].groupby("level")["DEO"].mean()
        above = [
            f"{ends[level]:.4f} under {level}"
            for level, bound in drawn.items()
            if level in ends.index and ends[level] > (1 + share) * bound
        ]
        lines.append(
            f"{SETS[str(name)]}, {method}, DEO at the end above the bound by more than {100 * share:.0f} % of it: "
            f"{', '.join(above) or 'nowhere'}."
        )
    return lines


def first_below(records: pd.DataFrame, level: str, slow: str, fast: str) -> list[str]:
    """When the faster method first stands as low as the slower one does at its end, both at bound `level`.

    Where it never does, that is said in its place. Curves are means over the runs that both methods have.
    """
    lines = []
    for name, part in records[records["level"] == level].groupby("set", sort=False):
        both = part[part["method"].isin((slow, fast))]
        both = in_all_runs(both[both.groupby("seed")["method"].transform("nunique") == 2])
        curves = both.groupby(["method", "round"])[["objective", "DEO"]].mean()
        slow_line, fast_line = curves.loc[slow], curves.loc[fast]
        end, last = slow_line.iloc[-1], fast_line.iloc[-1]
        reached = fast_line.index[fast_line["objective"] <= end["objective"]]
        if len(reached):
            there = f"is there, or lower, by round {reached[0]}, and ends at {last['objective']:.4f}"
        else:
            there = (
                f"never gets as low: it is lowest at {fast_line['objective'].min():.4f}, in round "
                f"{fast_line['objective'].idxmin()}, and ends at {last['objective']:.4f} after {fast_line.index[-1]}, "
                f"with a DEO of {last['DEO']:.4f} where {slow} has {end['DEO']:.4f}"
            )
        lines.append(
            f"{SETS[str(name)]}, {level}: {slow} ends at {end['objective']:.4f} after {slow_line.index[-1]} rounds; "
            f"{fast} {there}."
        )
    return lines
