"""A problem of the papers for one random draw, and the methods that are run on it: all through `VerticalClassifier`."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pandas as pd

from evenhand.arrays import Array, Integers, Matrix
from evenhand.constraints.kinds import Constraint, EqualOpportunity
from evenhand.data import PartyEncoder
from evenhand.data.public.loaders import Dataset
from evenhand.estimators import VerticalClassifier
from evenhand.estimators.selection import Selection, select
from evenhand.metrics import gap_bounds, summary
from evenhand.models import MLP
from evenhand.solvers import FairVFL, FedBCD, Learners, Subspace
from evenhand_reproductions.data.splits import papers_split, party_sizes, split_columns
from evenhand_reproductions.settings import SETS, Meter, Record

PUBLISHED = {"step": 0.01, "dual_step": 0.1, "damping": 1e-3}
"""η = 100, β = 0.1, c = 10⁻³, both versions."""
ADAM = {"step": 0.01, "optimiser": "adam", "penalty": 1.0}
HIDDEN = (16, 8)
"""The paper says that neural parties have two hidden layers, not how wide."""
MOST_ROUNDS = 100
"""Cap on our solver's rounds, which stops by its own rule after 3 to 30."""
NEVER_BINDS = 1e6
"""A bound on DEO that is never met: FairVFL then takes FedBCD's steps, and records DEO."""

Version = Literal["journal", "first"]


def linear_constants(rounds: int, **more: Any) -> Record:
    """What fits of linear models hang on here."""
    return {"steps": PUBLISHED, "rounds": rounds, "most rounds of subspace": MOST_ROUNDS, **more}


@dataclass(frozen=True, eq=False)
class FairVFLProblem:
    """One draw: each party's encoded columns, labels (±1) and groups of training and test rows."""

    name: str
    seed: int
    all_active: bool
    train: list[Matrix]
    test: list[Matrix]
    labels: Integers
    test_labels: Integers
    groups: pd.DataFrame
    test_groups: pd.DataFrame

    @property
    def rows(self) -> int:
        return len(self.labels)


def make_problem(data: Dataset, version: Version, seed: int) -> FairVFLProblem:
    """Rows, columns and party sizes as in the papers: all features are encoded, then dealt out at random.

    One party is active in the journal version, all are in the first.
    """
    train, test = papers_split(data.name, seed)
    encoder = PartyEncoder().fit(data.frame.loc[train])
    shares = split_columns(encoder.feature_names_out, party_sizes(data.name, version), seed)
    blocks = [[encoder.transform(data.frame.loc[rows])[:, share] for share in shares] for rows in (train, test)]
    # Row ids are places.
    signs = np.where(data.label == data.positive, 1, -1).astype(np.int64)
    return FairVFLProblem(
        name=data.name,
        seed=seed,
        all_active=version == "first",
        train=blocks[0],
        test=blocks[1],
        labels=signs[train],
        test_labels=signs[test],
        groups=data.sensitive.loc[train].reset_index(drop=True),
        test_groups=data.sensitive.loc[test].reset_index(drop=True),
    )


@dataclass(frozen=True, eq=False)
class Fit:
    """A trained classifier and the time it took."""

    classifier: VerticalClassifier
    seconds: float


def published(
    problem: FairVFLProblem,
    epsilon: float | None,
    rounds: int,
    *,
    local_steps: int = 1,
    neural: bool = False,
    options: Mapping[str, Any] | None = None,
) -> Fit:
    """FairVFL at the papers' constants for a fixed number of rounds; FedBCD without ε."""
    solver = FedBCD if epsilon is None else FairVFL
    return _fit(
        problem,
        solver=solver(**{**PUBLISHED, "local_steps": local_steps, **(options or {})}),
        constraint=None if epsilon is None else EqualOpportunity(epsilon),
        model=MLP(hidden=HIDDEN) if neural else "linear",
        max_rounds=rounds,
        tol=0.0,
        random_state=problem.seed,
    )


def subspace(problem: FairVFLProblem, constraint: Constraint | None) -> Fit:
    """Our solver, to its own stopping rule."""
    return _fit(problem, solver="subspace", constraint=constraint, max_rounds=MOST_ROUNDS)


def learned(problem: FairVFLProblem, epsilon: float, rounds: int) -> Fit:
    """Our solver for any model at any party, with networks, to its own stopping rule."""
    return _fit(
        problem,
        solver=Learners(folds=1, exact_rates=False),
        constraint=EqualOpportunity(epsilon),
        model="mlp",
        max_rounds=rounds,
        random_state=problem.seed,
    )


def selected(
    problem: FairVFLProblem, constraint: Constraint, options: Mapping[str, Any] | None = None, **grid: Any
) -> tuple[Fit, Selection]:
    """Our solver with ε and alpha chosen by cross-validation on the training rows."""
    start = time.perf_counter()
    estimator = _classifier(problem, solver=Subspace(**(options or {})), constraint=constraint, max_rounds=MOST_ROUNDS)
    # The seed of the folds is not that of the draw, so that folds do not follow the split.
    chosen = select(estimator, problem.train, problem.labels, sensitive_features=problem.groups, seed=1, **grid)
    return Fit(chosen.estimator, time.perf_counter() - start), chosen


def _classifier(problem: FairVFLProblem, **options: Any) -> VerticalClassifier:
    roles: Any = "all-active" if problem.all_active else None
    # The columns are encoded already.
    return VerticalClassifier(encoder=PartyEncoder(scale=False), roles=roles, **options)


def _fit(problem: FairVFLProblem, **options: Any) -> Fit:
    start = time.perf_counter()
    classifier = _classifier(problem, **options).fit(problem.train, problem.labels, sensitive_features=problem.groups)
    return Fit(classifier, time.perf_counter() - start)


def fitting(meter: Meter, problem: FairVFLProblem, method: str) -> None:
    """Say what is being fitted."""
    meter.at(f"{SETS[problem.name]}, seed {problem.seed}: {method}")


def measured(problem: FairVFLProblem, method: str, fit: Fit, **more: Any) -> Record:
    """Quality on the test rows, and what the fit reached on the training rows at what cost."""
    train = quality(problem.labels, fit.classifier.decision_function(problem.train), problem.groups)
    certificate = fit.classifier.certificate_
    return {
        **head(problem, method),
        **on_test_rows(problem, fit.classifier.decision_function(problem.test)),
        **{f"train {name}": train[name] for name in ("accuracy", "DEO", "DFP", "DFN")},
        "objective": certificate.objective,
        "rounds": certificate.rounds,
        "bytes": fit.classifier.bytes_sent_,
        "seconds": fit.seconds,
        **more,
    }


def head(problem: FairVFLProblem, method: str) -> Record:
    return {"set": problem.name, "seed": problem.seed, "method": method}


def quality(labels: Integers, scores: Array, groups: pd.DataFrame) -> dict[str, float]:
    return summary(labels, scores, sensitive_features=groups)


def on_test_rows(problem: FairVFLProblem, scores: Array) -> dict[str, float]:
    """Metrics on the test rows, and the standard errors of the gaps in error rates."""
    errors = gap_bounds(problem.test_labels, scores, sensitive_features=problem.test_groups)["standard_error"]
    found = {f"{name} error": float(errors[name]) for name in ("DFP", "DFN")}
    return quality(problem.test_labels, scores, problem.test_groups) | found


def thinned(fit: Fit, points: int = 60) -> list[tuple[int, float, float]]:
    """Round, objective and DEO on the training rows, at about evenly spaced rounds of a log axis."""
    history = fit.classifier.history_.drop_duplicates("round", keep="last").set_index("round")
    gap = next(name for name in history.columns if name.startswith("value["))
    rounds = np.unique(np.geomspace(1, max(int(history.index[-1]), 1), points).round().astype(int))
    found = history.loc[rounds.tolist()]
    return [
        (int(number), float(objective), abs(float(value)))
        for number, objective, value in zip(rounds, found["objective"], found[gap], strict=True)
    ]


def curve(problem: FairVFLProblem, method: str, fit: Fit, points: int = 60, **more: Any) -> list[Record]:
    """A record for each point of a curve over rounds."""
    return [
        {**head(problem, method), **more, "round": number, "objective": objective, "DEO": value}
        for number, objective, value in thinned(fit, points)
    ]
