"""Sentences about what was run and why numbers differ, with numbers from the records."""

from __future__ import annotations

import numpy as np
import pandas as pd

from evenhand_reproductions.postprocessing import CEO, EO
from evenhand_reproductions.settings import SETS
from evenhand_reproductions.writing import means

COMPAS = (
    "COMPAS: the paper does not list its 26 features. Ours are a reconstruction with the same count (ProPublica's own "
    "analysis columns), so that its rows can be compared with each other, less so with the paper's."
)
CRIME = (
    "Crime: DFP and DFN depend on which label counts as positive. Here it is the protected class, low crime, as in the "
    "constraint; with high crime as positive the two columns would change places, which is nearer to the paper's "
    "numbers. The paper does not say."
)
ROUNDS = (
    "The papers do not say how many rounds they ran. With their η = 100 every step is 0.01 times the gradient, so the "
    "number of rounds decides what model comes out."
)


def reach(records: pd.DataFrame, method: str, optimum: str) -> list[str]:
    """How far the published schedule came, against the optimum of the same problem."""
    objective = means(records, "objective")
    lines = []
    for name in records["set"].unique():
        if (name, method) not in objective.index or (name, optimum) not in objective.index:
            continue
        reached, best = objective[name, method], objective[name, optimum]
        rounds = records[(records["set"] == name) & (records["method"] == method)]["rounds"].mean()
        over = 100 * (reached / best - 1)
        verdict = "an under-trained model, which works like early stopping" if over > 2 else "a nearly trained model"
        lines.append(
            f"{SETS[name]}: after {rounds:.0f} rounds {method} stands at an objective of {reached:.4f}, {over:.1f} % "
            f"above the optimum of the same problem, {best:.4f} ({optimum}): the published schedule leaves {verdict}."
        )
    return lines


def chance(records: pd.DataFrame, method: str) -> list[str]:
    """What sampling alone does to gaps in error rates on the test rows."""
    lines = []
    for name, part in records[records["method"] == method].groupby("set", sort=False):
        errors = {gap: float(part[f"{gap} error"].mean()) for gap in ("DFP", "DFN")}
        # The mean of |N(0, s)| is s √(2/π).
        expected = {gap: np.sqrt(2 / np.pi) * error for gap, error in errors.items()}
        lines.append(
            f"{SETS[str(name)]}: on the test rows of one run the gap in false-positive rates has a standard error of "
            f"{errors['DFP']:.3f}, that in false-negative rates of {errors['DFN']:.3f} (at {method}). A model without "
            f"any true gap would therefore show a mean DFP of {expected['DFP']:.3f} and DFN of {expected['DFN']:.3f}."
        )
    return lines


def infeasible(records: pd.DataFrame) -> list[str]:
    """In which runs calibrated equal odds could not equalise its cost."""
    lines = []
    for name, part in records[records["method"] == CEO].groupby("set", sort=False):
        clipped = part[~part["feasible"].astype(bool)]
        if len(clipped):
            rates = ", ".join(f"{rate:.2f}" for rate in clipped["required_rate"])
            lines.append(
                f"{SETS[str(name)]}: CEO is infeasible in {len(clipped)} of {len(part)} runs: equal costs would need "
                f"mixing rates of {rates}; they were clipped to [0, 1], which leaves a gap."
            )
        else:
            lines.append(f"{SETS[str(name)]}: CEO is feasible in all {len(part)} runs.")
    return lines


def shortfall(records: pd.DataFrame, name: str, method: str, other: str, target: float) -> str:
    """By how much the mean HM misses a target in %, against the spread of the runs and another method's mean."""
    part = records[(records["set"] == name) & (records["method"] == method)]["HM"] * 100
    sentence = f"missed by {target - part.mean():.1f}"
    if len(part) > 1:
        error = float(part.std(ddof=1)) / np.sqrt(len(part))
        sentence += f", where the mean of {len(part)} runs has a standard error of {error:.1f}"
    return f"{sentence}; {other} as published reaches {100 * means(records, 'HM')[name, other]:.1f} in the same runs"


def usual(name: str, method: str) -> str:
    """Why a method may come out elsewhere than the paper's number beside it."""
    if method == EO:
        why = "Post-processing of another FedBCD model, with the decisions that keep most accuracy"
    elif method == CEO:
        why = "Post-processing of another FedBCD model; whether its mixing rate was feasible in the paper is not said"
    elif method.startswith(("FedBCD", "FairVFL")):
        why = "The number of rounds and the random draws of rows and columns are not the paper's"
    else:
        why = "Ours: another method, trained further; the number beside it is that of the paper's method"
    if name == "compas":
        why += ", and the 26 features are a reconstruction"
    return f"{why}."
