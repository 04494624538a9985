"""Protection by what it hides and what it costs: attacks with their floors, accuracy, gaps, rounds, time, bytes."""

from __future__ import annotations

import time
import warnings
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np
import pandas as pd

from evenhand.auditing.audits import audit_vertical
from evenhand.auditing.findings import NEGLIGIBLE, Audit, Finding
from evenhand.constraints.kinds import EqualOpportunity
from evenhand.data import PartyEncoder
from evenhand.estimators import VerticalClassifier
from evenhand.estimators.auditing import trained_for_audit
from evenhand.privacy import Dealer, Encrypted, RandomizedResponse
from evenhand_reproductions.experiments import FairVFLProblem, Fit, fitting, measured
from evenhand_reproductions.privacy.problems import FARTHEST, LEAST_ROWS, PARTIES, dealt
from evenhand_reproductions.settings import SETS, Meter, Record, Settings
from evenhand_reproductions.writing import Page, counted, markdown_table, seeds_of, spread

RUNS: Final = 3
EPSILON: Final = 0.01
ROUNDS: Final = 30
ATTACKED: Final = 10_000
"""Rows that attacks are tried on."""
LARGE: Final = 10_000
"""Training rows beyond which `encrypted` is run in the first run only: what it computes is `dealer`'s to the bit."""
LABELS: Final = RandomizedResponse(epsilon=1.0)
DEALER: Final = Dealer(allow_experimental=True)
LEVELS: Final[dict[str, dict[str, Any]]] = {
    "none": {"protection": "none"},
    "masked": {"protection": "masked"},
    "dealer": {"protection": DEALER},
    "encrypted": {"protection": Encrypted(allow_experimental=True)},
    "none, labels ε = 1": {"protection": "none", "label_privacy": LABELS},
    "dealer, labels ε = 1": {"protection": DEALER, "label_privacy": LABELS},
    "dealer, labels ε = 1, own end": {"protection": DEALER, "label_privacy": replace(LABELS, finish=True)},
}


def compute(settings: Settings, meter: Meter) -> list[Record]:
    data, draws = settings.datasets(), settings.draws(RUNS)
    meter.expect(len(draws) * len(LEVELS))
    records: list[Record] = []
    for name, seed in draws:
        problem = dealt(data[name], seed)
        for level, protection in LEVELS.items():
            fitting(meter, problem, level)
            if level == "encrypted" and problem.rows > LARGE and seed != settings.seed:
                continue
            records.append(_run(problem, level, protection, settings.rounds_or(ROUNDS)))
    return records


def _run(problem: FairVFLProblem, level: str, protection: dict[str, Any], rounds: int) -> Record:
    classifier = VerticalClassifier(
        solver="subspace",
        constraint=EqualOpportunity(EPSILON),
        max_rounds=rounds,
        encoder=PartyEncoder(scale=False),
        random_state=0,
    ).set_params(**protection)
    start = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        trained, scene = trained_for_audit(classifier, problem.train, problem.labels, problem.groups)
    seconds = time.process_time() - start
    return measured(problem, level, Fit(trained, seconds), **_told(audit_vertical(scene, most_rows=ATTACKED)))


def _told(audit: Audit) -> Record:
    """The audit in a few numbers: means over the passive parties of the best attack on what each could learn."""
    found = list(audit.findings)
    labels = _best([one for one in found if one.target == "each person's label"])
    groups = _best(
        [one for one in found if one.attack in ("tilt", "minimum norm") and one.target != "each person's label"]
    )
    columns = _best([one for one in found if one.attack == "variance"], by_target=True)
    alike = _best([one for one in found if one.attack == "distinct values"], by_target=True)
    return {
        **_means("label", labels),
        **_means("group", groups),
        **_means("columns", columns),
        **_means("alike", alike),
    }


def _best(found: Sequence[Finding], by_target: bool = False) -> list[Finding]:
    """Of each attacker (or of each target of the server's) the attack that gains most."""
    best: dict[str, Finding] = {}
    for one in found:
        key = one.target if by_target else one.who
        if key not in best or one.lift.value > best[key].lift.value:
            best[key] = one
    return list(best.values())


def _means(name: str, found: Sequence[Finding]) -> Record:
    """An attack that could not be made gains nothing, and is shown as such."""
    if not found:
        return {f"{name} value": np.nan, f"{name} floor": np.nan, f"{name} lift": 0.0, f"{name} real": 0}
    return {
        f"{name} value": float(np.mean([one.value.value for one in found])),
        f"{name} floor": float(np.mean([max(one.floors.values()) for one in found])),
        f"{name} lift": float(np.mean([one.lift.value for one in found])),
        f"{name} low": float(np.mean([one.lift.low for one in found])),
        f"{name} high": float(np.mean([one.lift.high for one in found])),
        f"{name} real": sum(one.real for one in found),
    }


def constants(name: str) -> Record:
    return {"epsilon": EPSILON, "rounds": ROUNDS, "attacked rows": ATTACKED, "levels": LEVELS}


def page(records: pd.DataFrame) -> Page:
    tables = []
    for name, part in records.groupby("set", sort=False):
        runs = counted(part["seed"].nunique())
        tables.append((f"{SETS[str(name)]} ({runs}): what is hidden", _hidden(part)))
        tables.append((f"{SETS[str(name)]} ({runs}): what it costs", _cost(part)))
    return Page(_ran(records), tables, NOTES, checks=_checks(records))


def _hidden(part: pd.DataFrame) -> str:
    header = [
        "protection",
        "labels, AUC",
        "floor",
        "lift",
        "groups, AUC",
        "floor",
        "columns, R²",
        "floor",
        "alike, AUC",
    ]
    rows = []
    for level, runs in part.groupby("method", sort=False):
        lift = f"{runs['label lift'].mean():+.3f} ({runs['label low'].mean():+.3f} to {runs['label high'].mean():+.3f})"
        cells = [_cell(runs, name) for name in ("group value", "group floor", "columns value", "columns floor")]
        rows.append(
            [
                str(level),
                _cell(runs, "label value"),
                _cell(runs, "label floor"),
                lift,
                *cells,
                _cell(runs, "alike value"),
            ]
        )
    return markdown_table(header, rows)


def _cost(part: pd.DataFrame) -> str:
    header = ["protection", "ACC %", "DEO", "DFP", "DFN", "training DEO", "rounds", "CPU s", "MB"]
    rows = []
    for level, runs in part.groupby("method", sort=False):
        gaps = [spread(runs[name]) for name in ("DEO", "DFP", "DFN", "train DEO")]
        rows.append(
            [
                str(level),
                spread(runs["accuracy"], 100.0, 2),
                *gaps,
                f"{runs['rounds'].mean():.1f}",
                f"{runs['seconds'].mean():.1f}",
                f"{runs['bytes'].mean() / 1e6:.1f}",
            ]
        )
    return markdown_table(header, rows)


def _cell(runs: pd.DataFrame, name: str) -> str:
    return "–" if runs[name].isna().all() else f"{runs[name].mean():.3f}"


def _checks(records: pd.DataFrame) -> list[str]:
    lines = []
    for (name, level), runs in records.groupby(["set", "method"], sort=False):
        said = f"{SETS[str(name)]}, {level}: "
        if level == "none":
            lines.append(f"{said}labels at AUC {runs['label value'].mean():.3f}, disclosed as expected.")
        elif str(level).startswith(("dealer", "encrypted")):
            within = "met" if runs["label lift"].mean() < NEGLIGIBLE else "MISSED"
            lines.append(
                f"{said}labels within {NEGLIGIBLE:g} of the floor: {within} (mean lift "
                f"{runs['label lift'].mean():+.3f}; of {len(runs) * (PARTIES - 1)} parties "
                f"{int(runs['label real'].sum())} have one of their own that is real)."
            )
    return lines


def _ran(records: pd.DataFrame) -> list[str]:
    lines = [
        f"Six parties, one of them active, `subspace` under equal opportunity at {EPSILON:g}. Columns that fewer than "
        f"{LEAST_ROWS} training rows have for themselves are left out and numbers cut off at {FARTHEST:g} standard "
        "deviations, at every level: with them `dealer` and `encrypted` refuse, and rightly.",
        "Attacks as in `evenhand audit`: means over the passive parties (labels, groups) or over the parties attacked "
        "by the server (columns, who is alike), each the best of its attacks, by one message or all. A floor is what "
        "the attacker's own columns say, knowing half of the answers; the lift is paired on the other half, with its "
        "95 % interval.",
        "Accuracy and gaps are of test rows; gaps are exact ones between groups (DFP, DFN), and of mean losses (DEO). "
        "CPU seconds are of training alone, in one process for all parties, with messages kept.",
    ]
    for name, part in records.groupby("set", sort=False):
        seeds = sorted(part["seed"].unique())
        once = part[part["method"] == "encrypted"]["seed"].nunique() < len(seeds)
        rest = "; `encrypted` in the first run only, since it computes what `dealer` does to the bit" if once else ""
        lines.append(f"{SETS[str(name)]}: {seeds_of(seeds)}{rest}.")
    return lines


NOTES: Final = [
    "`none` and `masked` send ν, and its sign is the label: AUC 1 is what the algebra says. `masked` hides one "
    "party's direction in the sum of all.",
    "`dealer` and `encrypted` tell a passive party X_kᵀν; it is attacked by the shortest ν that explains it (minimum "
    "norm).",
    "Sums hide less the fewer columns there are: COMPAS's passive parties have two each, and the sums of a few "
    "rounds, in two bands, with the label holder's own sixteen columns span all of them (R² 1). Who is alike in one "
    "party's columns they do hide.",
    "*Labels ε = 1* is `label_privacy`: labels leave as randomised responses. ν still tells everybody's joint score, "
    "which says more of a label than an answer does, and groups, which are not covered: with `dealer` neither is told. "
    "Constraints hold on answers; with an *own end* the label holder fits its own part to the true labels, for itself, "
    "and they hold there (training DEO).",
    "The attack on X_kᵀν uses sums over everybody's labels, its floor a model that was taught half of them: a lift "
    "of a hundredth can be no more than that.",
]
