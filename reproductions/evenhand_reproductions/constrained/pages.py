"""Tables, targets and sentences that the pages of the proximal-AL paper share."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import pandas as pd

from evenhand.programs.optimality import SolveStatus
from evenhand_reproductions.constrained import numbers
from evenhand_reproductions.constrained.methods import (
    BY_SQP,
    METHODS,
    POOLED,
    ROUNDS,
    TOLERANCE,
    measured,
)
from evenhand_reproductions.constrained.problems import ConstrainedProblem, SetRows, read
from evenhand_reproductions.settings import SETS, Meter, Record, Settings
from evenhand_reproductions.writing import markdown_table, spread

MOST_ROUNDS = 15
MOST_TIMES_POOLED = 2.0
HEADER = (
    "n",
    "method",
    "objective",
    "paper",
    "mean",
    "paper",
    "max",
    "paper",
    "relative difference",
    "stationarity",
    "feasibility",
    "truly optimal",
    "outer",
    "rounds",
    "CPU s",
)


def compute(
    settings: Settings,
    meter: Meter,
    runs: int,
    make: Callable[[SetRows, int, int], ConstrainedProblem],
) -> list[Record]:
    """All cells of a table over numbers of clients."""
    data = {name: read(name, settings.source) for name in settings.sets}
    draws = settings.draws(runs)
    meter.expect(len(numbers.CLIENTS) * len(draws) * len(METHODS))
    records = []
    for count in numbers.CLIENTS:
        for name, seed in draws:
            for method in METHODS:
                at(meter, name, count, seed, method)
                records.append(measured(method, make(data[name], count, seed), settings.rounds_or(ROUNDS[name])))
    return records


def at(meter: Meter, name: str, count: int, seed: int, method: str) -> None:
    meter.at(f"{SETS[name]}, n = {count}, seed {seed}: {method}")


def table(part: pd.DataFrame, paper: Mapping[int, Sequence[float]]) -> str:
    """Of one set: a row for each n and method."""
    apart = relative_difference(part)
    rows = []
    for (_, method), runs in part.groupby(["clients", "method"], sort=False):
        count = int(runs["clients"].iloc[0])
        first, pooled = paper[count][:2], method == POOLED
        means = paper[count][4:6] if pooled else paper[count][2:4]
        rows.append(
            [
                str(count),
                str(method),
                spread(runs["objective"], digits=4),
                f"{first[int(pooled)]:.2f}",
                spread(runs["mean row"], digits=4),
                f"{means[0]:.2f}",
                spread(runs["max row"], digits=4),
                f"{means[1]:.2f}",
                "–" if pooled else f"{apart[runs.index].max():.1e}",
                *costs(runs),
            ]
        )
    return markdown_table(HEADER, rows)


def relative_difference(records: pd.DataFrame) -> pd.Series[float]:
    """|objective − cProx-AL's| / |cProx-AL's| on the same draw, of each record."""
    keys = [name for name in ("set", "clients", "weights", "server", "seed") if name in records]
    pooled = records["objective"].where(records["method"] == POOLED)
    theirs = pooled.groupby([records[name] for name in keys], dropna=False).transform("max")
    return (records["objective"] - theirs).abs() / theirs.abs()


def costs(runs: pd.DataFrame) -> list[str]:
    """The cells on residuals, rounds and seconds."""
    rounds = "–" if (runs["rounds"] == 0).all() else f"{runs['rounds'].mean():.0f}"
    return [
        f"{runs['stationarity'].max():.1e}",
        f"{runs['distance'].max():.1e}",
        _verdict(runs),
        f"{runs['outer'].mean():.0f}",
        rounds,
        f"{runs['cpu'].mean():.2g}",
    ]


def _verdict(runs: pd.DataFrame) -> str:
    """By the measured residual, whatever the solver's own rule said."""
    done = int(runs["optimal"].sum())
    if done < len(runs):
        return f"**no** ({done} of {len(runs)})"
    return "yes, at the cap on rounds" if (runs["status"] == SolveStatus.LIMIT.value).any() else "yes"


def checks(records: pd.DataFrame) -> list[str]:
    """The targets on certificates, seconds and rounds."""
    missed = [
        _cell(key)
        for key, runs in records.groupby(["set", "clients", "method"], sort=False)
        if not runs["optimal"].all()
    ]
    cells = records.groupby(["set", "clients", "method"], sort=False).ngroups
    lines = [
        f"Every cell truly ({TOLERANCE:g}, {TOLERANCE:g})-optimal: {cells - len(missed)} of {cells}"
        + (f"; not {'; '.join(missed)}: missed." if missed else ": met.")
    ]
    return [*lines, *sqp_checks(records)]


def sqp_checks(records: pd.DataFrame) -> list[str]:
    """Rounds of sqp, and its seconds beside those of the pooled method."""
    seconds = records.groupby(["set", "clients", "method"], sort=False)["cpu"].mean()
    rounds = records[records["method"] == BY_SQP].groupby(["set", "clients"], sort=False)["rounds"].max()
    ratios = {key: float(seconds[(*key, BY_SQP)] / seconds[(*key, POOLED)]) for key in rounds.index}
    above = [f"{_cell(key)} ({ratio:.1f})" for key, ratio in ratios.items() if ratio > MOST_TIMES_POOLED]
    return [
        f"sqp in at most {MOST_ROUNDS} rounds: {rounds.max()} at most: "
        f"{'met' if rounds.max() <= MOST_ROUNDS else 'missed'}.",
        f"sqp within {MOST_TIMES_POOLED:g} times the CPU of the pooled method: {min(ratios.values()):.1f} to "
        f"{max(ratios.values()):.1f} times" + (f"; above in {', '.join(above)}: missed." if above else ": met."),
    ]


def _cell(key: Sequence[object]) -> str:
    return ", ".join([SETS[str(key[0])], f"n = {key[1]}", *map(str, key[2:])])


def relative_differences(records: pd.DataFrame) -> str:
    """A sentence on |objective − pooled objective| / |pooled objective|, run by run."""
    keys = [name for name in ("set", "clients", "weights", "server", "seed") if name in records]
    wide = records.pivot_table(index=keys, columns="method", values="objective", sort=False)
    worst = {
        str(method): float(((wide[method] - wide[POOLED]).abs() / wide[POOLED].abs()).max())
        for method in wide.columns
        if method != POOLED
    }
    return (
        "Largest relative difference of objectives from cProx-AL's on the same draw: "
        + ", ".join(f"{method} {value:.1e}" for method, value in worst.items())
        + "."
    )


def unfinished(records: pd.DataFrame) -> list[str]:
    """A sentence on each cell that is not truly optimal."""
    lines = []
    for key, runs in records[~records["optimal"]].groupby(["set", "clients", "method"], sort=False):
        lines.append(
            f"{_cell(key)}: not optimal, for {runs['status'].iloc[0]} ({runs['rounds'].max():,} rounds), at a "
            f"stationarity of {runs['stationarity'].max():.1e} and a feasibility of {runs['distance'].max():.1e}; "
            "`--rounds` allows more."
        )
    return lines


def runs_of(records: pd.DataFrame) -> str:
    """How many random runs each method had, for a page."""
    counts = records.groupby(["method", "set"], sort=False)["seed"].nunique()
    parts = []
    for method, part in counts.reset_index().groupby("method", sort=False):
        named = ", ".join(f"{SETS[name]} {number}" for name, number in zip(part["set"], part["seed"], strict=True))
        parts.append(f"{method}: {part['seed'].iloc[0]}" if part["seed"].nunique() == 1 else f"{method}: {named}")
    return (
        f"Random runs (first seed {int(records['seed'].min())}): "
        f"{'; '.join(parts)}. The paper has 10. Mean ± standard deviation; residuals are the worst of the runs."
    )
