"""Neural parties: how long Table 2 and Figure 2 train, and what a fit says about whether it still moves."""

from __future__ import annotations

from typing import Any, Final

import pandas as pd

from evenhand.reproductions.experiments import ADAM, FairVFLProblem, Fit, measured, published
from evenhand.reproductions.settings import SETS, Record

RUNS: Final = {"adult": 1, "compas": 2, "communities-crime": 2}
ROUNDS: Final = {"adult": 1500, "compas": 6000, "communities-crime": 10_000}
"""Of the published steps, which at 0.01 take thousands of rounds."""
ADAM_ROUNDS: Final = 50
LAST_ROUNDS: Final = {"adult": 400, "compas": 2000, "communities-crime": 2000}
"""Of Adam, for the row that goes on for much longer."""
MOVES: Final = 0.02
"""Of the objective: what falls by less than this in the second half of its rounds has stopped moving."""


def steps(problem: FairVFLProblem, epsilon: float | None, rounds: int) -> Fit:
    """The published steps."""
    return published(problem, epsilon, rounds, model="mlp")


def adam(problem: FairVFLProblem, epsilon: float | None, rounds: int) -> Fit:
    """Ours: the same messages, gradients scaled by Adam, and a penalty on the excess."""
    return published(problem, epsilon, rounds, model="mlp", options=ADAM)


def row(problem: FairVFLProblem, method: str, fit: Fit, beside: str) -> Record:
    """A row of the table, with where the objective stood half way and the largest λ of the whole run."""
    return measured(problem, method, fit, beside=beside, **course(fit))


def course(fit: Fit) -> dict[str, Any]:
    history = fit.classifier.history_.drop_duplicates("round", keep="last").set_index("round")
    multipliers = history[[name for name in history.columns if " multiplier[" in name]]
    return {
        "half way": float(history["objective"].loc[int(history.index[-1]) // 2]),
        "multiplier": float(multipliers.to_numpy().max()) if multipliers.shape[1] else 0.0,
    }


def cut_short(records: pd.DataFrame) -> list[str]:
    """Sets whose records are older than these numbers of rounds."""
    old = records[(records["method"] == "FedBCD") & records["half way"].isna()]
    return [
        f"{SETS[str(name)]}: only {int(runs['rounds'].max())} rounds of the published steps, after which nearly all "
        f"rows still have the same decision. `evenhand reproduce fairvfl-table2 --set {name} --out "
        f"reproductions/results` takes their place with {ROUNDS[str(name)]:,}; there was no time for it."
        for name, runs in old.groupby("set", sort=False)
    ]


def moving(records: pd.DataFrame, method: str) -> list[str]:
    """How much a method's objective fell in the second half of its rounds."""
    lines = []
    of_method = records[(records["method"] == method) & records["half way"].notna()]
    for name, runs in of_method.groupby("set", sort=False):
        fall = 1 - (runs["objective"] / runs["half way"]).mean()
        rounds = int(runs["rounds"].max())
        verdict = "has stopped moving" if fall < MOVES else "still moves"
        lines.append(
            f"{SETS[str(name)]}, {method}: the objective fell by {100 * fall:.1f} % from round {rounds // 2} to round "
            f"{rounds}: it {verdict} by the measure of {100 * MOVES:.0f} %."
        )
    return lines


def never_bound(records: pd.DataFrame, method: str, free: str) -> list[str]:
    """Whether λ stayed zero at a bound, in which case the method took the steps of `free` throughout."""
    lines = []
    of_method = records[(records["method"] == method) & records["multiplier"].notna()]
    for name, runs in of_method.groupby("set", sort=False):
        zero = int((runs["multiplier"] == 0).sum())
        tail = f"; where it does, {method} is {free}, step by step" if zero else ""
        lines.append(
            f"{SETS[str(name)]}, {method}: λ stays zero in {zero} of {len(runs)} runs (largest λ of any round "
            f"{runs['multiplier'].max():.3g}){tail}."
        )
    return lines
