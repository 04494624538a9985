"""Measure a round of FairVFL, as a ratio to the two passes over the data that it needs.

Adult as in the papers (40,000 training rows, 104 encoded features, 19 at the active party, 17 at each of five passive
ones), DEO ≤ 0.01, one local step. The bare passes are the products X_k θ_k and X_kᵀ ν of all six parties with numpy or
scipy alone: with each block in the faster of the two everyday layouts (CSR, or dense in C order), and, as a harder
yardstick, each product in the fastest of four. All are timed in turn in one process, one thread.

    python benchmarks/fairvfl_round.py [--source FOLDER]
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.sparse as sp
from problems import arguments, problem
from threadpoolctl import threadpool_limits

from evenhand.constraints import EqualOpportunity
from evenhand.protocol.job import Job
from evenhand.runtime.inprocess import InProcess
from evenhand_reproductions.in_memory import Holdings

ROUNDS, REPEATS = 100, 7


def seconds(action: Callable[[], object]) -> float:
    start = time.perf_counter()
    action()
    return time.perf_counter() - start


def fastest(products: list[Callable[[], object]]) -> Callable[[], object]:
    """The quickest of several ways to compute the same product."""
    timed = [(min(seconds(product) for _ in range(20)), place) for place, product in enumerate(products)]
    return products[min(timed)[1]]


def bare_products(blocks: list[Any], nu: np.ndarray, everyday: bool) -> list[Callable[[], object]]:
    """Each party's two products, in the fastest layout of those allowed."""
    products = []
    for block in blocks:
        layouts = [block, block.toarray()]
        if not everyday:
            layouts += [sp.csc_array(block), np.asfortranarray(block.toarray())]
        weights = np.ones(block.shape[1])
        products.append(fastest([lambda x=x, w=weights: x @ w for x in layouts]))
        products.append(fastest([lambda x=x: x.T @ nu for x in layouts]))
    return products


def main() -> None:
    given = problem("adult", arguments(__doc__).source)
    labels = given.labels
    job = Job("fairvfl", (EqualOpportunity(0.01),), max_rounds=ROUNDS, tol=0.0, options={"step": 0.01})
    blocks = [sp.csr_array(party.matrix) for party in given.parties]

    def run() -> None:
        server, roles = Holdings.of(job, given.parties, labels, given.sensitive).roles()
        InProcess([server, *roles]).run()

    def repeat(products: list[Callable[[], object]]) -> Callable[[], None]:
        def passes() -> None:
            for _ in range(ROUNDS):
                for product in products:
                    product()

        return passes

    nu = np.ones(len(labels))
    with threadpool_limits(limits=1, user_api="blas"):
        plain, fast = (repeat(bare_products(blocks, nu, everyday)) for everyday in (True, False))
        times = np.array([[seconds(run), seconds(plain), seconds(fast)] for _ in range(REPEATS)]) * 1000 / ROUNDS
    best, ratios = times.min(axis=0), np.median(times[:, :1] / times[:, 1:], axis=0)
    rows, columns = given.matrix.shape
    print(f"rows x features: {rows:,} x {columns}, six parties, {REPEATS} repeats of {ROUNDS} rounds")
    print(f"fairvfl round                        : {best[0]:6.2f} ms")
    print(f"bare products, everyday layouts      : {best[1]:6.2f} ms   ratio {ratios[0]:5.2f}  (wanted: at most 2)")
    print(f"bare products, fastest layout of each: {best[2]:6.2f} ms   ratio {ratios[1]:5.2f}")


if __name__ == "__main__":
    main()
