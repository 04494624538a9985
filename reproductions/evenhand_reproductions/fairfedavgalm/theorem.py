"""FairFedAvgALM with the steps of its Theorem 4.2, beside those of the tables."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import pandas as pd

from evenhand_reproductions.fairfedavgalm import methods, pages
from evenhand_reproductions.fairfedavgalm.methods import FEDAVG, PUBLISHED, PaperSetting
from evenhand_reproductions.presets import preset_options
from evenhand_reproductions.settings import SETS, Meter, Record, Settings
from evenhand_reproductions.writing import Page

PRESET: Final = "fairfedavgalm-theorem"
CONVEXITIES: Final = (1.0, 10.0)
"""μ; κ = 1 makes the steps of the multipliers as short as the theorem allows."""
SETTING: Final = PaperSetting("α = 1, N = 10")


def _by_theorem(convexity: float) -> methods.PaperMethod:
    given = preset_options(PRESET, PUBLISHED.solver)
    options = {**given, "step": given["step"] / convexity, "dual_step": given["dual_step"] / convexity}
    return replace(PUBLISHED, name=f"FairFedAvgALM, Theorem 4.2, μ = {convexity:g}", options=options)


METHODS: Final = (FEDAVG, PUBLISHED, *(_by_theorem(convexity) for convexity in CONVEXITIES))


def compute(settings: Settings, meter: Meter) -> list[Record]:
    return pages.run_all(settings, meter, (SETTING,), METHODS)


def constants(name: str) -> Record:
    return methods.constants(name, convexities=CONVEXITIES)


def page(records: pd.DataFrame) -> Page:
    how = (
        "Theorem 4.2: η_w,t = 2/(μt), η_λ,t = 16κ²/(μt^(2/3)) with κ = 1, β = 5 in all rounds, gradients not clipped, "
        "as the preset `fairfedavgalm-theorem`; μ is not known, and two values are tried."
    )
    notes = [
        "The theorem needs an objective that is strongly concave in λ. The augmented Lagrangian is linear in λ, so no "
        "problem of the paper meets that, with these steps or others.",
        *_notes(records),
    ]
    pairs = [(method.name, PUBLISHED.name) for method in METHODS[2:]]
    return Page(pages.ran(records, how), pages.tables(records, {}), notes, pages.checks(records, pairs))


def _notes(records: pd.DataFrame) -> list[str]:
    return [
        f"{SETS[str(name)]}, {method}: the multiplier ends at {runs['multiplier'].mean():.2g} in the mean, "
        f"{runs['multiplier'].max():.2g} at most."
        for (name, method), runs in records.groupby(["set", "method"], sort=False)
        if method != FEDAVG.name
    ]
