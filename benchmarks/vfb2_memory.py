"""Peak memory of VFB² on 20 Newsgroups, as a ratio to the data.

All 18,846 rows, words and pairs of words, at eight parties (CSR), three of them active. The data are the bytes of the
parties' three arrays (entries, column numbers, row starts). The ratio is (resident set at its highest during training
less resident set just before it, plus data) / data: everything that training adds, and the data it works on, which
the process holds anyway. Compiled code is loaded beforehand. Each solver runs in a process of its own.

    python benchmarks/vfb2_memory.py [--source FOLDER]
"""

from __future__ import annotations

import gc
import multiprocessing
import threading
import time
from pathlib import Path

import numpy as np
import scipy.sparse as sp
from problems import arguments

from evenhand.protocol.job import Job
from evenhand.vertical.problem import PartyColumns
from evenhand_reproductions.data.splits import split_columns
from evenhand_reproductions.in_memory import train_vertical
from evenhand_reproductions.vfb2.problems import read

PARTIES, ACTIVE, ROUNDS = 8, 3, 3
SOLVERS = ("vfb2-svrg", "vfb2-saga", "vfb2-sgd")
STATUS = Path("/proc/self/status")
MEGA = 2**20


def resident() -> int:
    line = next(line for line in STATUS.read_text().splitlines() if line.startswith("VmRSS"))
    return 1024 * int(line.split()[1])


class Watch:
    """The highest resident set while it is open, looked at every two milliseconds."""

    def __enter__(self) -> Watch:
        self.peak, self._over = resident(), threading.Event()
        self._thread = threading.Thread(target=self._begin_full_pass)
        self._thread.start()
        return self

    def _begin_full_pass(self) -> None:
        while not self._over.is_set():
            self.peak = max(self.peak, resident())
            time.sleep(0.002)

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()


def measure(solver: str, source: Path | None, answers: multiprocessing.SimpleQueue[tuple[int, int]]) -> None:
    data = read("20newsgroups", source)
    shares = split_columns(data.features.shape[1], PARTIES, 10)
    parties = [
        PartyColumns(f"party {place}", sp.csr_array(data.features[:, share]), place < ACTIVE)
        for place, share in enumerate(shares)
    ]
    labels = data.signs
    del data
    rng = np.random.default_rng(0)
    small = [PartyColumns(p.name, sp.csr_array(rng.normal(size=(50, 3))), p.active) for p in parties]
    train_vertical(Job(solver=solver, max_rounds=2), small, np.where(rng.random(50) > 0.5, 1.0, -1.0))
    gc.collect()
    size = sum(part.nbytes for p in parties for part in (p.matrix.data, p.matrix.indices, p.matrix.indptr))
    before = resident()
    with Watch() as watch:
        train_vertical(Job(solver=solver, alpha=1e-4, tol=0.0, max_rounds=ROUNDS), parties, labels)
    answers.put((size, watch.peak - before))


def main() -> None:
    if not STATUS.exists():
        raise SystemExit("this benchmark reads /proc, which this system does not have")
    source = arguments(__doc__).source
    context = multiprocessing.get_context("spawn")
    for solver in SOLVERS:
        answers: multiprocessing.SimpleQueue[tuple[int, int]] = context.SimpleQueue()
        process = context.Process(target=measure, args=(solver, source, answers))
        process.start()
        size, added = answers.get()
        process.join()
        print(
            f"{solver:<10} data {size / MEGA:6.1f} MB   training adds {added / MEGA:6.1f} MB   "
            f"ratio {(size + added) / size:4.2f}  (asked: at most 3)",
            flush=True,
        )


if __name__ == "__main__":
    main()
