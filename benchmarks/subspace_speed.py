"""Compare the time to train a fair model on Adult, in one process, with common pooled learners.

The same 40,000 encoded rows for everybody: `VerticalClassifier` over six parties (equal opportunity, DEO ≤ 0.01,
default settings), fairlearn's ExponentiatedGradient over scikit-learn's LogisticRegression (true-positive-rate parity
at 0.01, default settings otherwise), and plain unconstrained LogisticRegression at the same regularisation. Repeats are
taken in turn; ratios are medians of paired repeats, ExponentiatedGradient runs once.

    python benchmarks/subspace_speed.py [--source FOLDER]
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from importlib.metadata import version

import numpy as np
from fairlearn.reductions import ExponentiatedGradient, TruePositiveRateParity
from problems import arguments, problem
from sklearn.linear_model import LogisticRegression

from evenhand import EqualOpportunity, VerticalClassifier
from evenhand.data import PartyEncoder

REPEATS = 7


def seconds(action: Callable[[], object]) -> float:
    start = time.perf_counter()
    action()
    return time.perf_counter() - start


def main() -> None:
    given = problem("adult", arguments(__doc__).source)
    groups = given.sensitive["sex"].to_numpy()
    zero_one = (given.labels > 0).astype(int)
    blocks = {party.name: party.matrix for party in given.parties}
    logistic = LogisticRegression(C=0.5, max_iter=1000)
    fair = VerticalClassifier(constraint=EqualOpportunity(0.01), encoder=PartyEncoder(scale=False), random_state=0)
    reduction = ExponentiatedGradient(
        LogisticRegression(C=0.5, max_iter=1000), TruePositiveRateParity(difference_bound=0.01)
    )

    def ours() -> object:
        return fair.fit(blocks, given.labels, sensitive_features=groups)

    def plain() -> object:
        return logistic.fit(given.matrix, zero_one)

    ours(), plain()
    pairs = np.array([[seconds(ours), seconds(plain)] for _ in range(REPEATS)])
    with warnings.catch_warnings():
        # fairlearn hands deprecated arguments to its solver; that is not what is measured.
        warnings.simplefilter("ignore")
        slow = seconds(lambda: reduction.fit(given.matrix.toarray(), zero_one, sensitive_features=groups))
    medians = np.median(pairs, axis=0)
    print(f"evenhand {version('evenhand')}, fairlearn {version('fairlearn')}, scikit-learn {version('scikit-learn')}")
    print(f"subspace, six parties, DEO <= 0.01 : {medians[0]:7.2f} s   ({fair.n_iter_} rounds)")
    print(
        f"ExponentiatedGradient, pooled      : {slow:7.2f} s   {slow / medians[0]:6.1f} x ours  (wanted: at least 20)"
    )
    print(
        f"LogisticRegression, unconstrained  : {medians[1]:7.2f} s   "
        f"ours is {np.median(pairs[:, 0] / pairs[:, 1]):5.2f} x this  (wanted: at most 3)"
    )


if __name__ == "__main__":
    main()
