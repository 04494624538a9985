"""Constrained programs across clients: CPU, rounds and true residuals of all methods.

The cells of the proximal-AL paper's Tables 1 and 2 and those of Table 4 with d = 500, one draw each, measured one after
another on one thread. `--skip-slow` leaves out the federated proximal AL method.

    python benchmarks/constrained.py [--source FOLDER] [--rounds 3000] [--skip-slow] [--cell SET]...
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

from rich.console import Console
from rich.table import Table

from evenhand_reproductions.constrained import numbers
from evenhand_reproductions.constrained.methods import BALANCED, BY_SQP, METHODS, POOLED, PUBLISHED, timed
from evenhand_reproductions.constrained.pages import MOST_ROUNDS, MOST_TIMES_POOLED
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
Cell = tuple[str, int, Callable[[], ConstrainedProblem]]


def cells(sets: Sequence[str], source: Path | None) -> Iterator[Cell]:
    """(set, n, how to make it)."""
    for name in sets:
        if name == numbers.QUADRATIC_SET:
            weights, rows = numbers.SIZES[-1]
            for count in numbers.QUADRATIC_CLIENTS:
                make = partial(quadratic_problem, count, weights, rows, SEED, SEED)
                yield name, count, make
            continue
        data = read(name, source)
        kind = fairness_problem if name == numbers.FAIRNESS_SET else neyman_pearson_problem
        for count in numbers.CLIENTS:
            yield name, count, partial(kind, data, count, SEED)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--source", type=Path, help="local folder with the data files")
    parser.add_argument("--rounds", type=int, default=3000, help="most rounds of the federated proximal AL method")
    parser.add_argument("--skip-slow", action="store_true", help="leave out the federated proximal AL method")
    parser.add_argument("--cell", action="append", choices=ALL_SETS, help="a set; repeatable")
    asked = parser.parse_args()
    methods = [method for method in METHODS if not (asked.skip_slow and method in (PUBLISHED, BALANCED))]
    table = Table("problem", "n", "method", "CPU s", "rounds", "residual", "sqp / pooled")
    slower, most = [], 0
    for name, count, make in cells(asked.cell or ALL_SETS, asked.source):
        problem, taken = make(), {}
        for method in methods:
            runs = [
                timed(method, problem, asked.rounds) for _ in range(1 if method in (PUBLISHED, BALANCED) else REPEATS)
            ]
            found, taken[method] = runs[0][0], min(seconds for _, seconds in runs)
            residual = found.residual
            if method == BY_SQP:
                most = max(most, found.rounds)
            table.add_row(
                *(name, str(count), method, f"{taken[method]:.3f}", str(found.rounds or "")),
                f"{max(residual.stationarity, residual.distance):.1e}",
                f"{taken[BY_SQP] / taken[POOLED]:.1f}" if method == POOLED else "",
            )
        # Quadratic programs are no cells of the target: a pooled one is a single small system.
        if name != numbers.QUADRATIC_SET and taken[BY_SQP] > MOST_TIMES_POOLED * taken[POOLED]:
            slower.append(f"{name} n={count}")
    console = Console(width=140)
    console.print(table)
    console.print(f"sqp: {most} rounds at most (wanted {MOST_ROUNDS})")
    where = ", ".join(slower) or "nowhere"
    console.print(f"sqp above {MOST_TIMES_POOLED:g} times the pooled method's CPU: {where} (wanted: nowhere)")


if __name__ == "__main__":
    main()
