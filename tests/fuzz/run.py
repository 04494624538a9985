"""Inputs of every kind for whatever reads what others wrote: `make fuzz`.

    python tests/fuzz/run.py [inputs for each target] [names of targets]

Each input follows from the target's name and a number, so what is told of can be had again: a failure names its seed.
"""

from __future__ import annotations

import random
import sys
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor
from itertools import chain
from multiprocessing import get_context
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from fuzz import folders, messages, settings, tables, wire
from fuzz.feeding import Target
from rich.console import Console
from rich.table import Table

from evenhand.errors import EvenhandWarning

TARGETS: dict[str, Target] = {
    **messages.TARGETS,
    **{f"{name} as bytes": target for name, target in wire.TARGETS.items()},
    **folders.TARGETS,
    **settings.TARGETS,
    **tables.TARGETS,
}
EACH = 7_000
WORKERS = 2
SLICE = 500
"""Inputs that a worker takes at once."""


def fed(name: str, seed: str) -> str:
    """What comes of one input: it is accepted, refused, or ends in an error that is none of ours, which is told."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.simplefilter("ignore", EvenhandWarning)
        try:
            return "accepted" if TARGETS[name](random.Random(seed)) else "refused"
        except Exception:
            return f"target {name!r}, seed {seed!r}:\n{traceback.format_exc()}"


def tally(name: str, numbers: Iterable[int]) -> tuple[Counter[str], list[str]]:
    """How often each came of it, and the stories of what must not be."""
    outcomes = [fed(name, f"{name} {number}") for number in numbers]
    told = [outcome for outcome in outcomes if outcome not in ("accepted", "refused")]
    return Counter("other errors" if outcome in told else outcome for outcome in outcomes), told


def main() -> int:
    each = int(sys.argv[1]) if len(sys.argv) > 1 else EACH
    names = sys.argv[2:] or list(TARGETS)
    table = Table("target")
    for column in ("tried", "refused", "accepted", "other errors"):
        table.add_column(column, justify="right")
    total, stories, began = Counter[str](), list[str](), time.monotonic()
    with ProcessPoolExecutor(WORKERS, mp_context=get_context("spawn")) as pool:
        parts = {name: [pool.submit(tally, name, part) for part in _slices(each)] for name in names}
        for name, futures in parts.items():
            found = [future.result() for future in futures]
            counts = sum((one for one, _ in found), Counter[str]())
            stories += chain.from_iterable(told for _, told in found)
            total += counts
            table.add_row(name, *_cells(counts))
    table.add_section()
    table.add_row("all", *_cells(total))
    Console(width=100).print(table)
    print(f"{time.monotonic() - began:.0f} s with {WORKERS} workers")
    print("\n".join(stories[:5]))
    return 1 if stories else 0


def _slices(count: int) -> list[range]:
    return [range(first, min(first + SLICE, count)) for first in range(0, count, SLICE)]


def _cells(counts: Counter[str]) -> list[str]:
    tried = sum(counts.values())
    return [f"{number:,}" for number in (tried, counts["refused"], counts["accepted"], counts["other errors"])]


if __name__ == "__main__":
    sys.exit(main())
