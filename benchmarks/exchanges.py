"""Measure the share of enrolling, aligning and agreeing in the demo's runs, in one process.

The demo's job files (six parties, 45,222 people known by text ids, each table in an order of its own) are run as
`evenhand train` runs them. The time inside the exchanges is measured in the same run; both are processor time, which a
busy machine changes little.

    python benchmarks/exchanges.py [--source FOLDER]
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from problems import arguments

from evenhand.cli.demo import write_demo
from evenhand.data import load
from evenhand.jobs.folder import read_job
from evenhand.jobs.vertical.runs import run_vertical_job
from evenhand.training.together import Together


class Watch:
    """Adds up the processor time inside the steps of a preparation, one that calls another once."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self._inside = 0

    def timed(self, step: Callable[..., Any]) -> Callable[..., Any]:
        def measured(*given: Any, **named: Any) -> Any:
            self._inside += 1
            start = time.process_time()
            try:
                return step(*given, **named)
            finally:
                self._inside -= 1
                if not self._inside:
                    self.seconds += time.process_time() - start

        return measured


def main() -> None:
    data = load("adult", source=arguments(__doc__).source)
    watch = Watch()
    Together._exchange = watch.timed(Together._exchange)  # type: ignore[method-assign]
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder)
        jobs = write_demo(data, out, 0.01, 1000, published=False)
        for turn in ("first", "again"):
            for name, path in jobs.items():
                watch.seconds, start = 0.0, time.process_time()
                finished = run_vertical_job(read_job(path), out, out / f"{name}-{turn}")
                whole = time.process_time() - start
                sent = finished.run.transcript.frame()
                before = sent[sent.kind.isin(["offer", "accepted", "outcome", "ids", "common-rows", "labels"])]
                share, bytes_share = watch.seconds / whole, before.nbytes.sum() / sent.nbytes.sum()
                print(
                    f"{name:>6}, {turn}: {whole:5.2f} s, preparation {watch.seconds:.3f} s = {share:.1%} of the run, "
                    f"{bytes_share:.1%} of the bytes"
                )


if __name__ == "__main__":
    main()
