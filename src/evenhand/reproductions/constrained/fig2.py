"""Proximal-AL paper, Figure 2: objectives and disparities of all clients and the server over rounds."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from evenhand.reproductions.constrained import curves, pages
from evenhand.reproductions.constrained.methods import PUBLISHED, ROUNDS, SQP
from evenhand.reproductions.constrained.problems import DISPARITY_LIMIT, fairness_problem, read
from evenhand.reproductions.settings import Meter, Record, Settings
from evenhand.reproductions.writing import Page

COUNT = 10
"""The paper does not say how many clients its figure has."""
METHODS = (PUBLISHED, SQP)


def compute(settings: Settings, meter: Meter) -> list[Record]:
    """One draw: a figure is of one run."""
    meter.expect(len(METHODS) * len(settings.sets))
    records: list[Record] = []
    for name in settings.sets:
        problem = fairness_problem(read(name, settings.source), COUNT, settings.seed)
        for method in METHODS:
            pages.at(meter, name, COUNT, settings.seed, method)
            records += curves.curve(method, problem, settings.rounds_or(ROUNDS[name]))
    return records


def page(records: pd.DataFrame) -> Page:
    def figure(path: Path) -> None:
        curves.draw(
            records,
            path,
            limit=DISPARITY_LIMIT,
            quantities=("loss", "loss disparity between groups"),
            title="Fairness constraints: clients' losses and disparities over rounds",
        )

    ran = [
        f"Eq. (32), {records['clients'].iloc[0]} clients and the server, seed {records['seed'].iloc[0]}, the problem "
        "of `constrained-table2`. prox-al with β = 50, s̄ = 0.01, ρ = 0.1; sqp with default settings.",
        "The paper draws outer iterations; here every round of ADMM counts, and ticks mark the ends of outer "
        "iterations. The axes are cut: within a subproblem the server's w can be far off.",
    ]
    notes = [
        "As in the paper, the disparities of all clients and of the server come to the limit or below it while all "
        "losses fall. The paper's figure gives no numbers in its text.",
        "β, s̄ and ρ are not the printed ones, see `constrained-table2`.",
    ]
    return Page(ran, curves.ends(records), notes, figure=figure)
