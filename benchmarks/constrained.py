"""Constrained programs across clients: CPU, rounds and true residuals of all methods, beside the authors' code.

The cells of the paper's Tables 1 and 2 and those of Table 4 with d = 500, one draw each. The authors' seconds are data
(`evenhand_reproductions.constrained.numbers`): they were measured once, on one thread of a two-core machine. The
others are measured here, one after another on one thread. `--skip-slow` leaves out the federated proximal AL method.

    python benchmarks/constrained.py [--source FOLDER] [--rounds 3000] [--skip-slow] [--cell SET]...
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

from rich.console import Console
from rich.table import Table

from evenhand.horizontal.sqp.options import SQP
from evenhand_reproductions.constrained import numbers
from evenhand_reproductions.constrained.methods import BALANCED, METHODS, POOLED, PUBLISHED, TOLERANCE, timed
from evenhand_reproductions.constrained.numbers import Reference
from evenhand_reproductions.constrained.pages import FASTER, MOST_ROUNDS, MOST_TIMES_POOLED
from evenhand_reproductions.constrained.problems import (
    ConstrainedProblem,
    fairness_problem,
    neyman_pearson_problem,
    quadratic_problem,
    read,
)

SEED = 20
"""Other draws than those of the reproductions."""
REPEATS = 3
"""Of the quick methods; the least of their seconds counts."""
ALL_SETS = (*numbers.NEYMAN_PEARSON_SETS, numbers.FAIRNESS_SET, numbers.QUADRATIC_SET)
Cell = tuple[str, int, Callable[[], ConstrainedProblem], Reference | None, Reference | None]


def cells(sets: Sequence[str], source: Path | None) -> Iterator[Cell]:
    """(set, n, how to make it, authors' federated, authors' pooled)."""
    for name in sets:
        if name == numbers.QUADRATIC_SET:
            weights, rows = numbers.SIZES[-1]
            for count in numbers.QUADRATIC_CLIENTS:
                make = partial(quadratic_problem, count, weights, rows, SEED, SEED)
                yield name, count, make, numbers.QUADRATIC_FEDERATED[count], numbers.QUADRATIC_POOLED[count]
            continue
        data = read(name, source)
        kind = fairness_problem if name == numbers.FAIRNESS_SET else neyman_pearson_problem
        for count in numbers.CLIENTS:
            key = (name, count)
            make = partial(kind, data, count, SEED)
            yield name, count, make, numbers.FEDERATED.get(key), numbers.POOLED.get(key)


def compared(known: Reference | None, seconds: float, optimal: bool) -> str:
    if known is None:
        return ""
    if not optimal:
        return f"not optimal (theirs: {known})"
    if known.residual is None:
        return f"finishes (theirs: {known})"
    return f"{known.seconds / seconds:.0f} times" + ("" if known.optimal else f" (theirs: {known})")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--source", type=Path, help="local folder with the data files")
    parser.add_argument("--rounds", type=int, default=3000, help="most rounds of the federated proximal AL method")
    parser.add_argument("--skip-slow", action="store_true", help="leave out the federated proximal AL method")
    parser.add_argument("--cell", action="append", choices=ALL_SETS, help="a set; repeatable")
    asked = parser.parse_args()
    methods = [method for method in METHODS if not (asked.skip_slow and method in (PUBLISHED, BALANCED))]
    table = Table("problem", "n", "method", "CPU s", "rounds", "residual", "beside the authors' code", "sqp / pooled")
    slower, most, ratios = [], 0, []
    quadratic: dict[str, list[float]] = {}
    for name, count, make, federated, pooled in cells(asked.cell or ALL_SETS, asked.source):
        problem, taken = make(), {}
        for method in methods:
            runs = [
                timed(method, problem, asked.rounds) for _ in range(1 if method in (PUBLISHED, BALANCED) else REPEATS)
            ]
            found, taken[method] = runs[0][0], min(seconds for _, seconds in runs)
            residual = found.residual
            optimal = residual.within(TOLERANCE, TOLERANCE)
            known = pooled if method == POOLED else federated
            if method == SQP:
                most = max(most, found.rounds)
                if known is not None and known.optimal and optimal:
                    ratios.append(known.seconds / taken[method])
            if name == numbers.QUADRATIC_SET and known is not None and method != POOLED and optimal:
                quadratic.setdefault(method, []).append(known.seconds / taken[method])
            table.add_row(
                *(name, str(count), method, f"{taken[method]:.3f}", str(found.rounds or "")),
                f"{max(residual.stationarity, residual.distance):.1e}",
                compared(known, taken[method], optimal),
                f"{taken[SQP] / taken[POOLED]:.1f}" if method == POOLED else "",
            )
        # Quadratic programs are no cells of the target: a pooled one is a single small system.
        if name != numbers.QUADRATIC_SET and taken[SQP] > MOST_TIMES_POOLED * taken[POOLED]:
            slower.append(f"{name} n={count}")
    console = Console(width=140)
    console.print(table)
    if ratios:
        console.print(
            f"sqp beside the authors' truly optimal runs: at least {min(ratios):.0f} times (wanted {FASTER:g})"
        )
    for method, times in quadratic.items():
        console.print(
            f"quadratic programs, {method}: {min(times):.0f} to {max(times):.0f} times as fast as the authors' code "
            f"(asked: at least {FASTER:g})"
        )
    console.print(f"sqp: {most} rounds at most (wanted {MOST_ROUNDS})")
    where = ", ".join(slower) or "nowhere"
    console.print(f"sqp above {MOST_TIMES_POOLED:g} times the pooled method's CPU: {where} (wanted: nowhere)")


if __name__ == "__main__":
    main()
