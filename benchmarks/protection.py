"""Measure the cost of protection: rounds with summed directions, and time of the products that hide ν.

Six parties as in the papers, equal opportunity with ε = 0.01. *Rounds* are those to 0.2 % of the optimum that scipy's
SLSQP finds on the pooled rows, with the gap within 0.001 of ε (`subspace_rounds.py`), for three draws of rows and
columns; those *to the stop* are of runs at the default tolerance. *Time* is that of whole runs on Adult at the default
tolerance: unprotected, in sums, on shared weights without random words (the plain run in fixed point), with a dealer
but without the checks of its products, with a dealer, and encrypted; process time, taken in turns in one process, where
the work of all parties adds up. Categories of fewer than five rows are left out there, as the guards ask.
*Noise* is that of encrypted products, against the room that it has.

    python benchmarks/protection.py [--source FOLDER]
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
from problems import Problem, arguments, problem
from rich.console import Console
from rich.filesize import decimal
from rich.table import Table
from subspace_rounds import arrival, optimum, with_gap

from evenhand.constraints.kinds import EqualizedOdds, EqualOpportunity
from evenhand.privacy import fixed_products
from evenhand.privacy.pairwise import Words
from evenhand.protocol.job import Job, Protection
from evenhand.runtime.inprocess import InProcess
from evenhand.solvers.roles import solvers_server
from evenhand.training.run import one_blas_thread
from evenhand.vertical.protected import sharing, sharing_server, triples
from evenhand.vertical.protected.checking import CHECKS, Sketch
from evenhand.vertical.protected.guarding import LEAST_ROWS
from evenhand_reproductions.in_memory import Holdings, train_vertical

SEEDS = (10, 11, 12)
WANTED = {
    "adult": {"none": 5, "masked": 8},
    "compas": {"none": 2, "masked": 2},
    "communities-crime": {"none": 7, "masked": 8},
}
CONSTRAINT = EqualOpportunity(0.01)


def job_with(protection: Protection, **settings: float) -> Job:
    fixed: dict[str, Any] = {"solver": "subspace", "constraints": (CONSTRAINT,), "allow_experimental": True}
    return Job(**fixed, protection=protection, **settings)  # type: ignore[arg-type]


def rounds(console: Console, source: Path | None) -> None:
    table = Table("data", "protection", "rounds by draw", "wanted, at most", "bytes of the first")
    for name, wanted in WANTED.items():
        draws = [problem(name, source, seed) for seed in SEEDS]
        best = [optimum(given, CONSTRAINT) for given in draws]
        for protection, most in wanted.items():
            found, sent = [], 0
            for given, lowest in zip(draws, best, strict=True):
                job = job_with(protection, tol=1e-6, max_rounds=40)  # type: ignore[arg-type]
                run = train_vertical(job, given.parties, given.labels, given.sensitive)
                there = arrival(with_gap(run.history), lowest)
                found.append("> 40" if there is None else f"{there['round']:.0f}")
                sent = sent or (0 if there is None else int(there["bytes"]))
            table.add_row(name, protection, ", ".join(found), str(most), decimal(sent))
    console.print(table)


def stops(console: Console, source: Path | None) -> None:
    """Rounds until runs stop by themselves, with sums and without."""
    table = Table("data", "constraint", "none: rounds to the stop", "masked", "more, at most", "wanted, at most")
    for name in WANTED:
        draws = [problem(name, source, seed) for seed in SEEDS]
        for constraint in (CONSTRAINT, EqualizedOdds(0.01)):
            found: dict[str, list[int]] = {"none": [], "masked": []}
            for level, count in found.items():
                job = Job(solver="subspace", constraints=(constraint,), protection=level, tol=1e-3)  # type: ignore[arg-type]
                for given in draws:
                    count.append(train_vertical(job, given.parties, given.labels, given.sensitive).certificate.rounds)
            more = max(masked - plain for plain, masked in zip(*found.values(), strict=True))
            cells = [", ".join(map(str, count)) for count in found.values()]
            table.add_row(name, constraint.kind, *cells, f"{more:+d}", "+2")
    console.print(table)


PLAIN, UNCHECKED = "dealer, in the clear", "dealer, unchecked"
WAYS = ("none", "masked", PLAIN, UNCHECKED, "dealer", "encrypted")


def times(console: Console, source: Path | None, repeats: int = 3) -> None:
    """Whole runs on Adult, in turns in one process."""
    given = without_rare(problem("adult", source, SEEDS[0]))
    taken: dict[str, list[float]] = {way: [] for way in WAYS}
    bytes_sent, count, objective = {}, {}, {}
    for turn in range(repeats):
        for way in WAYS:
            if way == "encrypted" and turn:
                continue
            level: Any = way.partition(",")[0]
            held = Holdings.of(job_with(level, tol=1e-3), given.parties, given.labels, given.sensitive)
            begun = time.process_time()
            with altered(way), one_blas_thread():
                first, others = held.roles()
                runtime = InProcess([first, *others])
                runtime.run()
            taken[way].append(time.process_time() - begun)
            bytes_sent[way] = runtime.transcript.total_bytes
            server = solvers_server(first)
            count[way] = server.round
            objective[way] = server.certificate.objective if server.certificate is not None else np.nan
    table = Table("run", "rounds", "objective", "process time (s)", "times none", "times masked", "bytes")
    spent = {way: float(np.median(one)) for way, one in taken.items()}
    for way in WAYS:
        ratios = [f"{spent[way] / spent[other]:.2f}" for other in ("none", "masked")]
        cells = [str(count[way]), f"{objective[way]:.5f}", f"{spent[way]:.2f}", *ratios, decimal(bytes_sent[way])]
        table.add_row(way, *cells)
    console.print(table)
    console.print(f"Checks cost {spent['dealer'] / spent[UNCHECKED]:.2f} times the run without; wanted at most 1.5")
    console.print("Wanted: dealer at most 5 times masked; encrypted at most three minutes of process time")


@contextmanager
def altered(way: str) -> Iterator[None]:
    """Leave out the random words of shared weights, or the sketches that check them."""
    with ExitStack() as stack:
        if way == PLAIN:
            stack.enter_context(patch.object(triples, "stream", lambda seed, label, size: np.zeros(size, np.uint64)))
            for module in (sharing, sharing_server, fixed_products):
                stack.enter_context(patch.object(module, "cut", _cut))
        if way == UNCHECKED:
            stack.enter_context(patch.object(Sketch, "__call__", _no_sketch))
        yield


def _cut(shares: Words, places: int, *, first: bool) -> Words:
    return (shares.view(np.int64) >> places).view(np.uint64)


def _no_sketch(_: Sketch, words: Words) -> Words:
    return np.zeros((len(words), CHECKS), dtype=np.uint64)


def noise(console: Console, source: Path | None) -> None:
    """Noise of encrypted products on Adult, at the party where it is largest, against the room that it has."""
    from evenhand.privacy.lattice import DELTA_BITS
    from evenhand.vertical.protected.encrypting import EncryptedParty, product_packings

    given = without_rare(problem("adult", source, SEEDS[0]))
    held = Holdings.of(job_with("encrypted"), given.parties, given.labels, given.sensitive)
    parties = [one.inner for one in held.roles()[1] if isinstance(getattr(one, "inner", None), EncryptedParty)]
    table = Table("product", "columns", "asked", "answered", "noise (bits)", "room (bits)", "off by one unit, at most")
    for place, name in enumerate(("Xᵀb", "H⁻¹b", "Xb")):
        found = []
        for party in parties:
            packing = product_packings(party.columns, party.grid.rows, party.bands, False)[place]
            matrix = (party.words, party.matrix, party.words.T)[place]
            found.append((packing.noise_bits(matrix), party.columns, packing.chunks, packing.groups))
        bits, columns, asked, answered = max(found)
        odds = f"{2.0 ** (bits + 3 - DELTA_BITS):.1e}"
        table.add_row(name, str(columns), str(asked), str(answered), f"{bits:.1f}", f"{DELTA_BITS:.1f}", odds)
    console.print(table)
    console.print(
        "Noise is a standard deviation; the last column counts eight of them. Asked and answered: polynomials"
    )


def without_rare(given: Problem) -> Problem:
    """Columns of a category that few rows have, left out."""
    parties = []
    for one in given.parties:
        matrix = np.asarray(one.matrix.toarray() if hasattr(one.matrix, "toarray") else one.matrix)
        parties.append(replace(one, matrix=matrix[:, (matrix != 0).sum(axis=0) >= LEAST_ROWS]))
    return replace(given, parties=parties)


def main() -> None:
    source = arguments(__doc__).source
    console = Console(width=120)
    rounds(console, source)
    stops(console, source)
    times(console, source)
    noise(console, source)


if __name__ == "__main__":
    main()
