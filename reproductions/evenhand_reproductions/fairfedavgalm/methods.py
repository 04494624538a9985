"""The methods of the FairFedAvgALM tables and how long each trains, and a fit measured on rows it has not seen."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from evenhand.constraints.kinds import Constraint, DemographicParity, EqualizedOdds, GroupAgainstOverall, LossParity
from evenhand.horizontal.problem import UpdateNoise
from evenhand.metrics import demographic_parity, equal_opportunity
from evenhand.protocol.job import Job
from evenhand.training.horizontal import HorizontalRun
from evenhand_reproductions.fairfedavgalm.published_gaps import (
    published_demographic_parity,
    published_equal_opportunity,
)
from evenhand_reproductions.fairfedavgalm.tasks import CELLS, LABEL_NOISE, TaskRows, TrainingTask
from evenhand_reproductions.in_memory import train_clients
from evenhand_reproductions.presets import preset_options
from evenhand_reproductions.settings import Record


@dataclass(frozen=True)
class PaperMethod:
    """A row of a table: a solver, what it trains under, and options where they are not those of supplement C.1."""

    name: str
    solver: str
    constraints: tuple[Constraint, ...] = ()
    options: Mapping[str, Any] = field(default_factory=dict)


PRESET: Final = "fairfedavgalm-celeba"
"""Supplement C.1: whatever a table does not say otherwise."""
# Rates move less than losses do, so their penalty starts lower and grows more slowly.
_ON_RATES: Final = {"penalty": 2.0, "growth": 1.02, "dual_step": 1.0}

FEDAVG: Final = PaperMethod("FedAvg", "fedavg")
FAIRFED: Final = PaperMethod("FairFed", "fairfed")
FAIRALM: Final = PaperMethod("FairALM-FedAvg", "fairalm", (LossParity(0.0),))
FPFL: Final = PaperMethod("FPFL", "fpfl", (GroupAgainstOverall(0.0),))
PUBLISHED: Final = PaperMethod("FairFedAvgALM", "fairfedavgalm", (LossParity(0.0),))
ON_ODDS: Final = PaperMethod(
    "FairFedAvgALM, equalized odds", "fairfedavgalm", (EqualizedOdds(0.0, "error"),), options=_ON_RATES
)
ON_SELECTION: Final = PaperMethod(
    "FairFedAvgALM, demographic parity", "fairfedavgalm", (DemographicParity(0.0),), options=_ON_RATES
)
OURS: Final = {
    method.name: what
    for method, what in ((ON_ODDS, "smooth error rates of both labels"), (ON_SELECTION, "smooth selection rates"))
}
"""FairFedAvgALM under constraints on the quantities that are measured, and what those are."""
BASELINES: Final = (FEDAVG, FAIRFED, FAIRALM, FPFL, PUBLISHED, ON_ODDS, ON_SELECTION)
COMPARED: Final = (FEDAVG, PUBLISHED, ON_ODDS)


@dataclass(frozen=True)
class TrainingSchedule:
    """How long and in what steps a set is trained on, and by how many rows a client."""

    rounds: int
    step: float
    decay_every: int
    rows: int
    many_rows: int
    """Rows of each client in the table about the number of clients, where up to fifty have to share."""

    def rows_in(self, setting: PaperSetting) -> int:
        """Rows of a client."""
        return self.many_rows if setting.many else self.rows

    @property
    def options(self) -> dict[str, Any]:
        # Measuring for the history costs a pass over the rows and the tables do not show it.
        return {"step": self.step, "step_decay_every": self.decay_every, "report_every": 0}


AS_PRINTED: Final = TrainingSchedule(rounds=70, step=0.01, decay_every=25, rows=2_800, many_rows=2_800)
"""Supplement C.1."""
SCHEDULES: Final = {
    "adult": TrainingSchedule(rounds=40, step=0.1, decay_every=25, rows=2_800, many_rows=700),
    "biased-digits": TrainingSchedule(rounds=20, step=0.2, decay_every=15, rows=2_400, many_rows=480),
    "symmetric-digits": TrainingSchedule(rounds=20, step=0.2, decay_every=15, rows=2_400, many_rows=480),
    "framed-digits": TrainingSchedule(rounds=20, step=0.2, decay_every=15, rows=2_400, many_rows=480),
    "celeba": AS_PRINTED,
}


def constants(name: str, **more: Any) -> Record:
    """What fits on a set hang on; all else is the preset's."""
    digits = {"label noise": LABEL_NOISE, "cells": str(CELLS[name])} if name in CELLS else {}
    return {"preset": PRESET, **vars(SCHEDULES[name]), **digits, **more}


@dataclass(frozen=True)
class PaperSetting:
    """What a table varies: the paper's own setting by default."""

    name: str
    alpha: float = 1.0
    clients: int = 10
    participation: float = 1.0
    update_noise: UpdateNoise | None = None
    many: bool = False
    """Whether each client has the smaller number of rows of the table about the number of clients."""


def fit(
    task: TrainingTask,
    method: PaperMethod,
    setting: PaperSetting,
    seed: int,
    rounds: int | None = None,
    schedule: TrainingSchedule | None = None,
) -> HorizontalRun:
    """Train by a method in a setting; the seed draws rows, clients, batches and first weights."""
    schedule = schedule or SCHEDULES[task.name]
    job = Job(
        solver=method.solver,
        constraints=method.constraints,
        max_rounds=rounds or schedule.rounds,
        seed=seed,
        options={
            **preset_options(PRESET, method.solver),
            **schedule.options,
            "participation": setting.participation,
            **method.options,
        },
    )
    dealt = task.deal(seed, clients=setting.clients, rows=schedule.rows_in(setting), alpha=setting.alpha)
    groups = {"group": sorted(task.test.groups.unique())}
    return train_clients(job, dealt, model=task.network, groups=groups, update_noise=setting.update_noise)


def measured(
    task: TrainingTask,
    method: PaperMethod,
    setting: PaperSetting,
    seed: int,
    rounds: int | None = None,
    *,
    schedule: TrainingSchedule | None = None,
    **more: Any,
) -> Record:
    """A fit and its quality on the test rows, as a record."""
    start = time.perf_counter()
    run = fit(task, method, setting, seed, rounds, schedule)
    seconds = time.perf_counter() - start
    return {
        "set": task.name,
        "seed": seed,
        "condition": setting.name,
        "method": method.name,
        **quality(run, task.test),
        "rows": (schedule or SCHEDULES[task.name]).rows_in(setting),
        "multiplier": float(np.abs(run.raw_multipliers).max(initial=0.0)),
        "rounds": run.certificate.rounds,
        "seconds": seconds,
        **more,
    }


def quality(run: HorizontalRun, rows: TaskRows) -> dict[str, float]:
    """Accuracy, DP and EO as Section 3.2 defines them, and what the published code computes in their place."""
    predicted = np.where(run.model.predict(rows.inputs) > 0, 1, -1)
    given: Any = {"y_true": rows.labels, "y_pred": predicted, "sensitive_features": rows.groups}
    return {
        "accuracy": float(np.mean(predicted == rows.labels)),
        "DP": demographic_parity(**given),
        "EO": equal_opportunity(**given),
        "published DP": published_demographic_parity(**given),
        "published EO": published_equal_opportunity(**given),
    }
