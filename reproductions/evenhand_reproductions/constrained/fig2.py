"""Proximal-AL paper, Figure 2: objectives and disparities of all clients and the server over rounds."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from evenhand_reproductions.constrained import curves, methods
from evenhand_reproductions.constrained.methods import BY_SQP, PUBLISHED
from evenhand_reproductions.constrained.problems import DISPARITY_LIMIT, fairness_problem
from evenhand_reproductions.settings import Meter, Record, Settings
from evenhand_reproductions.writing import Page


def compute(settings: Settings, meter: Meter) -> list[Record]:
    return curves.compute(settings, meter, (PUBLISHED, BY_SQP), fairness_problem)


def constants(name: str) -> Record:
    return methods.constants(name, limit=DISPARITY_LIMIT, clients=curves.COUNT)


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
        curves.AXES,
    ]
    notes = [
        "As in the paper, the disparities of all clients and of the server come to the limit or below it while all "
        "losses fall. The paper's figure gives no numbers in its text.",
        "β, s̄ and ρ are not the printed ones, see `constrained-table2`.",
    ]
    return Page(ran, curves.ends(records), notes, figure=figure)
