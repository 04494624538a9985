"""Neural parties: how long Table 2 and Figure 2 train, their curves, and whether a fit still moves."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, TypeAlias

import pandas as pd

from evenhand_reproductions.experiments import (
    ADAM,
    HIDDEN,
    PUBLISHED,
    FairVFLProblem,
    Fit,
    measured,
    published,
    thinned,
)
from evenhand_reproductions.papers import EPSILONS
from evenhand_reproductions.settings import FIRST_SEED, SETS, Record

RUNS: Final = 5
ROUNDS: Final = {"adult": 32_000, "compas": 12_000, "communities-crime": 10_000}
"""Of the published steps, which at 0.01 take thousands of rounds."""
MANY_ROUNDS: Final = {"communities-crime": 128_000}
"""Of the published steps under one bound, on the first seed, where those above are far from rest."""
LATER_BOUNDS: Final[dict[str, tuple[float, ...] | None]] = {
    "adult": None,
    "compas": (0.01,),
    "communities-crime": (0.01,),
}
"""Bounds under which the published steps run on later seeds, to save time; None runs none of their rows there. A fit
takes 300 s of CPU on Adult, 25 s on the others."""
ADAM_ROUNDS: Final = 50
LAST_ROUNDS: Final = 2000
"""Of Adam, for the row that goes on for much longer."""
MOVES: Final = 0.02
"""Of the objective: what falls by less than this in the second half of its rounds has stopped moving."""

Train: TypeAlias = Callable[[FairVFLProblem, float, int], Fit]


def constants(name: str, adam_rounds: int, **more: Any) -> Record:
    """What fits of neural parties hang on here."""
    rounds = {"rounds": ROUNDS[name], "many rounds": MANY_ROUNDS.get(name), "Adam's rounds": adam_rounds}
    return {"steps": PUBLISHED, "Adam": ADAM, "hidden": HIDDEN, **rounds, **more}


def bounds(name: str, seed: int) -> tuple[float, ...] | None:
    """Return the bounds under which the published steps run; None if they do not run on this seed."""
    return EPSILONS if seed == FIRST_SEED else LATER_BOUNDS[name]


def steps(problem: FairVFLProblem, epsilon: float, rounds: int) -> Fit:
    """The published steps; FedBCD's under a bound that never binds, which records DEO."""
    return published(problem, epsilon, rounds, neural=True)


def adam(problem: FairVFLProblem, epsilon: float, rounds: int) -> Fit:
    """Ours: the same messages, gradients scaled by Adam, and a penalty on the excess."""
    return published(problem, epsilon, rounds, neural=True, options=ADAM)


def bound_or_free(train: Train, problem: FairVFLProblem, epsilon: float, rounds: int, free: Fit) -> Fit:
    """Train under a bound, or return the free fit if its DEO kept the bound in all rounds.

    λ of FairVFL Eq. 10 is then zero throughout, and so is the penalty: every step is the same.
    """
    history = free.classifier.history_
    values = history[[name for name in history.columns if name.startswith("value[")]]
    kept = bool((values.abs() <= epsilon).to_numpy().all())
    return free if kept else train(problem, epsilon, rounds)


def row(problem: FairVFLProblem, method: str, fit: Fit, beside: str) -> Record:
    """A row of the table: where the objective stood half way, the largest λ of the run, and the points of a curve."""
    return measured(problem, method, fit, beside=beside, **course(fit), curve=thinned(fit))


def course(fit: Fit) -> dict[str, Any]:
    history = fit.classifier.history_.drop_duplicates("round", keep="last").set_index("round")
    multipliers = history[[name for name in history.columns if " multiplier[" in name]]
    return {
        "half way": float(history["objective"].loc[int(history.index[-1]) // 2]),
        "multiplier": float(multipliers.to_numpy().max()) if multipliers.shape[1] else 0.0,
    }


def moving(records: pd.DataFrame, methods: Sequence[str]) -> list[str]:
    """How much the methods' objectives fell in the second half of their rounds."""
    lines = []
    known = records[records["method"].isin(methods) & records["half way"].notna()]
    for name, of_methods in known.groupby("set", sort=False):
        rounds = int(of_methods["rounds"].max())
        fall = {
            str(method): 1 - float((runs["objective"] / runs["half way"]).mean())
            for method, runs in of_methods.groupby("method", sort=False)
        }
        still = [method for method, fell in fall.items() if fell >= MOVES]
        lines.append(
            f"{SETS[str(name)]}, fall of the objective from round {rounds // 2:,} to round {rounds:,}: "
            + ", ".join(f"{method} {100 * fell:.1f} %" for method, fell in fall.items())
            + f"; still moving by the measure of {100 * MOVES:.0f} %: {', '.join(still) or 'none'}."
        )
    return lines


def never_bound(records: pd.DataFrame, methods: Sequence[str], free: str) -> list[str]:
    """At which bounds λ stayed zero, where the method took the steps of `free` throughout."""
    lines = []
    known = records[records["method"].isin(methods) & records["multiplier"].notna()]
    for name, of_set in known.groupby("set", sort=False):
        largest = of_set.groupby("method", sort=False)["multiplier"].max()
        zero = [method for method in methods if largest[method] == 0]
        said = ", ".join(f"{method} {largest[method]:.2g}" for method in methods if method not in zero)
        alike = f"zero throughout at {' and '.join(zero)}: {free}, step by step" if zero else "nowhere zero throughout"
        lines.append(f"{SETS[str(name)]}, largest λ of any round: {said}; {alike}.")
    return lines
