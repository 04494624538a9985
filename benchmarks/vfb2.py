"""Compare VFB² with scikit-learn's stochastic solvers; measure a step; check that its three runtimes agree.

(a) Seconds to a relative sub-optimality of 10⁻³ of the logistic loss, with a ridge of 10⁻⁴ and a free intercept: VFB²
with eight parties, three of them active, in the interleaver (masks, trees, delays and set-up included,
compilation not), beside scikit-learn's LogisticRegression with the solvers saga and liblinear on the pooled rows. For
each the fewest epochs (liblinear: the loosest tolerance) that get there are found first, and that run is timed,
in turn, the best of several. liblinear regularises the intercept, as the last of its columns; that column is
scaled up to make it nearly free. The optimum is L-BFGS's.
(b) Microseconds a step, with its share of the full passes (an epoch by messages has 200 steps here, so that share is
large), on 24,000 × 90 dense rows: the interleaver, parties that take turns exchanging messages, and parties in threads;
and a step by messages alone.
(c) How far apart the three end.
(d) Parties in threads, one of which takes 1.4 times as long for everything: synchronous over asynchronous seconds for
the same epochs.
(e) What epochs that grow save SVRG and SAGA, beside whole ones from the start and beside independent draws.

Seconds are of the processor; in (d), where threads wait for each other, of the clock.

    python benchmarks/vfb2.py [--source FOLDER] [--part PART]
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from problems import arguments
from scipy.optimize import minimize
from scipy.special import expit
from sklearn.linear_model import LogisticRegression

from evenhand.protocol.job import Job
from evenhand.runtime.threads import Threads
from evenhand.training.vertical import VerticalRun
from evenhand.vertical.vfb2.options import VFB2, Rule
from evenhand_reproductions.in_memory import Holdings, train_vertical
from evenhand_reproductions.vfb2.problems import VFB2Problem, read

SETS = ("a9a", "credit-default", "20newsgroups")
RIDGE, PRECISION = 1e-4, 1e-3
PARTIES, ACTIVE, STRAGGLER, SLOWDOWN = 8, 3, "party 3", 1.4
REPEATS = 5
TOLERANCES = tuple(10.0 ** (-place / 4) for place in range(0, 25))
STEPS = {1: 200, 64: 200, 1024: 23}
"""Rows in a message, and how many steps of it are timed where messages are exchanged."""


def seconds(action: Callable[[], object], clock: Callable[[], float] = time.process_time) -> float:
    start = clock()
    action()
    return clock() - start


def main() -> None:
    given = arguments(__doc__, [*SETS, *OTHER_PARTS])
    chosen = given.part or [*SETS, *OTHER_PARTS]
    print(f"evenhand {version('evenhand')}, scikit-learn {version('scikit-learn')}, numba {version('numba')}")
    for name in chosen:
        if name in SETS:
            compare(read(name, given.source).draw(10))
        else:
            OTHER_PARTS[name](given.source)


# -- (a)


def compare(problem: VFB2Problem) -> None:
    value, best = objective(problem)
    target = (1.0 + PRECISION) * best
    parties = problem.parties(PARTIES, ACTIVE)
    zero_one = (problem.labels > 0).astype(int)
    ridge = 1.0 / (len(zero_one) * RIDGE)

    def sklearn(**options: Any) -> Callable[[], LogisticRegression]:
        model = LogisticRegression(C=ridge, random_state=0, **options)
        return lambda: model.fit(problem.train, zero_one)

    def reaches(make: Callable[[], LogisticRegression]) -> bool:
        fitted = make()
        return value(np.append(fitted.coef_.ravel(), fitted.intercept_)) <= target

    def ours(rule: str, rounds: int) -> Callable[[], VerticalRun]:
        job = Job(solver=f"vfb2-{rule}", alpha=RIDGE, tol=0.0, max_rounds=rounds, seed=0)
        return lambda: train_vertical(job, parties, problem.labels, runtime="interleaved")

    contestants: dict[str, tuple[str, Callable[[], object]]] = {}
    with warnings.catch_warnings():
        # That few epochs are not enough for scikit-learn's own stopping rule is the point.
        warnings.simplefilter("ignore")
        for rule in ("svrg", "saga"):
            history = ours(rule, 40)().history
            rounds = int(history.loc[history["objective"] <= target, "round"].iloc[0])
            contestants[f"VFB²-{rule.upper()}"] = (f"{rounds} rounds", ours(rule, rounds))
        epochs = first(lambda k: reaches(sklearn(solver="saga", tol=0.0, max_iter=k)), 2000)
        contestants["saga"] = (f"{epochs} epochs", sklearn(solver="saga", tol=0.0, max_iter=epochs))
        loose = next(tol for tol in TOLERANCES if reaches(sklearn(solver="liblinear", tol=tol, intercept_scaling=10.0)))
        contestants["liblinear"] = (f"tol {loose:.0e}", sklearn(solver="liblinear", tol=loose, intercept_scaling=10.0))
        times = dict.fromkeys(contestants, np.inf)
        for _ in range(REPEATS):
            for name, (_, action) in contestants.items():
                times[name] = min(times[name], seconds(action))
    rows, columns = problem.train.shape
    print(f"\n{problem.name}, {rows:,} x {columns:,}: seconds to {PRECISION:g} of the optimum {best:.6f}")
    for name, (effort, _) in contestants.items():
        ratio = f"   {times[name] / times['saga']:5.2f} x saga" + ("  (asked: at most 1)" if "VFB" in name else "")
        print(f"  {name:<10} {times[name]:8.3f} s   {effort:<12}{ratio}")


def objective(problem: VFB2Problem) -> tuple[Callable[[np.ndarray], float], float]:
    """The loss as a function of all weights, the intercept last, and its minimum."""
    matrix, labels = sp.csr_array(problem.train), problem.labels
    columns = sp.csr_array(matrix.T)

    def value(weights: np.ndarray) -> float:
        margins = labels * (matrix @ weights[:-1] + weights[-1])
        return float(np.logaddexp(0.0, -margins).mean() + 0.5 * RIDGE * weights[:-1] @ weights[:-1])

    def gradient(weights: np.ndarray) -> np.ndarray:
        margins = labels * (matrix @ weights[:-1] + weights[-1])
        nu = -labels * expit(-margins) / len(labels)
        return np.append(columns @ nu + RIDGE * weights[:-1], nu.sum())

    options = {"maxiter": 2000, "gtol": 1e-8, "ftol": 1e-14}
    found = minimize(value, np.zeros(matrix.shape[1] + 1), jac=gradient, method="L-BFGS-B", options=options)
    return value, float(found.fun)


def first(holds: Callable[[int], bool], most: int) -> int:
    """The smallest number from which on it holds, by doubling and halving, to five per cent."""
    high = 1
    while not holds(high):
        if high >= most:
            raise SystemExit(f"not reached in {most} epochs")
        high *= 2
    low = high // 2
    while high - low > max(1, low // 20):
        middle = (low + high) // 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high


# -- (b)


def made(rows: int, columns: int) -> VFB2Problem:
    rng = np.random.default_rng(0)
    matrix = rng.normal(size=(rows, columns))
    scores = matrix @ rng.normal(size=columns) / np.sqrt(columns)
    labels = np.where(scores + rng.logistic(size=rows) > 0, 1.0, -1.0)
    return VFB2Problem("made", 0, matrix, matrix[:0], labels, labels[:0])


def step_costs(problem: VFB2Problem) -> None:
    parties, rows = problem.parties(PARTIES, ACTIVE), len(problem.labels)

    def run(runtime: Any, rounds: int, options: Mapping[str, Any]) -> Callable[[], VerticalRun]:
        job = Job(solver="vfb2-svrg", alpha=RIDGE, tol=0.0, max_rounds=rounds, options={"growth": False, **options})
        return lambda: train_vertical(job, parties, problem.labels, runtime=runtime)

    def epoch(runtime: Any, options: Mapping[str, Any]) -> float:
        """Seconds of a round, without what is done once: the difference between six rounds and one, of the best of
        five each.
        """
        run(runtime, 1, options)()
        few, many = (min(seconds(run(runtime, rounds, options)) for _ in range(REPEATS)) for rounds in (1, 6))
        return (many - few) / 5

    def alone(batch: int, steps: int) -> float:
        """Seconds of a step by messages without full passes: the difference between long and short epochs, two each."""
        times = {}
        for length in (steps, 4 * steps):
            action = run("messages", 2, {"batch_size": batch, "epoch": length * batch / rows})
            times[length] = min(seconds(action) for _ in range(REPEATS))
        return (times[4 * steps] - times[steps]) / (6 * steps)

    print(f"\na step on {rows:,} x {problem.train.shape[1]} dense rows, {PARTIES} parties: µs, and µs a row")
    cost = 1e6 * epoch("interleaved", {"batch_size": 1}) / rows
    print(f"  interleaver, 1 row a step      {cost:10.2f} {cost:10.2f}  (asked: at most 5)")
    for batch, steps in STEPS.items():
        for runtime in ("messages", "threads"):
            options = {"batch_size": batch, "epoch": min(1.0, steps * batch / rows)}
            cost = 1e6 * epoch(runtime, options) / steps
            asked = "  (asked: at most 300)" if (runtime, batch) == ("messages", 1) else ""
            print(f"  {runtime:<11}, {batch:>4} rows a step   {cost:10.1f} {cost / batch:10.2f}{asked}")
    cost = 1e6 * alone(1, STEPS[1])
    print(f"  messages   ,    1 row a step   {cost:10.1f} {cost:10.2f}  without the share of full passes")


# -- (c)


def agreement(problem: VFB2Problem) -> None:
    parties = problem.parties(PARTIES, ACTIVE)
    _, best = objective(problem)
    print("\nat a gradient of 1e-6, made rows 3,000 x 40: objective less the optimum, largest difference of a weight")
    reference: np.ndarray | None = None
    for runtime in ("interleaved", "messages", "threads"):
        job = Job(solver="vfb2-svrg", alpha=RIDGE, tol=1e-6, max_rounds=500)
        run = train_vertical(job, parties, problem.labels, runtime=runtime)  # type: ignore[arg-type]
        weights = np.concatenate([run.models[party.name].weights for party in parties])
        reference = weights if reference is None else reference
        apart = np.abs(weights - reference).max()
        over = run.certificate.objective - best
        print(f"  {runtime:<11} {over:9.1e} {apart:9.1e}   ({run.certificate.rounds} rounds)")


# -- (d)


def stragglers(problem: VFB2Problem) -> None:
    parties = problem.parties(PARTIES, ACTIVE)
    print(f"\nthreads, {STRAGGLER} takes {SLOWDOWN} times as long, 1024 rows a step, 4 epochs of SVRG")

    def run(pace: str, slowdown: float) -> Callable[[], None]:
        options = {"batch_size": 1024, "growth": False, "pace": pace}
        job = Job(solver="vfb2-svrg", alpha=RIDGE, tol=0.0, max_rounds=4, options=options)

        def action() -> None:
            server, roles = Holdings.of(job, parties, problem.labels).roles()
            Threads([server, *roles], slowdown={STRAGGLER: slowdown}).run()

        return action

    ways = {
        "asynchronous": run("asynchronous", SLOWDOWN),
        "synchronous": run("synchronous", SLOWDOWN),
        "synchronous, no straggler": run("synchronous", 1.0),
    }
    times = dict.fromkeys(ways, np.inf)
    for _ in range(REPEATS):
        for name, action in ways.items():
            times[name] = min(times[name], seconds(action, time.perf_counter))
    for name, taken in times.items():
        print(f"  {name:<26} {taken:7.3f} s")
    gain = times["synchronous"] / times["asynchronous"]
    cost = times["synchronous"] / times["synchronous, no straggler"]
    print(f"  synchronous / asynchronous {gain:5.2f}; the straggler's cost {cost:5.2f}  (wanted: gain above cost)")


# -- (e)


def first_epochs(source: Path | None) -> None:
    problem = read("a9a", source).draw(10)
    parties = problem.parties(PARTIES, ACTIVE)
    _, best = objective(problem)
    print(f"\na9a: rounds, and passes over the rows in their steps, to {PRECISION:g} of the optimum; what is left")
    cases: list[tuple[Rule, str]] = [("svrg", "balanced"), ("saga", "balanced"), ("saga", "uniform")]
    for rule, sampling in cases:
        for growth in (False, True):
            options = {"sampling": sampling, "growth": growth}
            job = Job(solver=f"vfb2-{rule}", alpha=RIDGE, tol=0.0, max_rounds=12, seed=0, options=options)
            history = train_vertical(job, parties, problem.labels, runtime="interleaved").history
            left = history["objective"].to_numpy() / best - 1.0
            rounds = int(np.argmax(left <= PRECISION))
            resolved = VFB2(**options).resolved(rule, on_rates=False, dominators=ACTIVE, in_one_loop=True)
            passes = sum(resolved.share_of_rows(number) for number in range(1, rounds + 1))
            shown = " ".join(f"{one:.1e}" for one in left[1:7])
            print(f"  {rule:<5}{sampling:<9} {'growing' if growth else 'whole':<8}{rounds:>3}{passes:>6.2f}   {shown}")


OTHER_PARTS = {
    "steps": lambda _: step_costs(made(24_000, 90)),
    "agreement": lambda _: agreement(made(3_000, 40)),
    "stragglers": lambda _: stragglers(made(24_000, 90)),
    "first epochs": first_epochs,
}


if __name__ == "__main__":
    main()
