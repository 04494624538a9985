"""Label privacy on Adult: accuracy, gaps on the true labels, and what passive parties can still infer, by ε.

Six parties dealt as for `python -m evenhand_reproductions privacy`, three draws of rows, columns and answers; equal
opportunity, of
losses within .01 for linear parties and of exact error rates within .02 for boosted trees. *Gap* is what the constraint
bounds, on the true labels of the training rows and, exact, on the test rows. *Attack* is the best of `evenhand audit`
on labels from ν, mean over the passive parties, beside the floor of their own columns. *Own end*: the label holder fits
its own part to the truth (`finish`).

    python benchmarks/label_privacy.py [--source FOLDER]
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator

import numpy as np
from problems import arguments
from rich.console import Console
from rich.table import Table

from evenhand.auditing.audits import audit_vertical
from evenhand.constraints import bind
from evenhand.constraints.evaluation import Lagrangian
from evenhand.constraints.kinds import EqualOpportunity
from evenhand.data import PartyEncoder, load
from evenhand.estimators import VerticalClassifier
from evenhand.estimators.auditing import trained_for_audit
from evenhand.privacy import RandomizedResponse
from evenhand_reproductions.experiments import FairVFLProblem
from evenhand_reproductions.privacy.problems import dealt

SEEDS = (10, 11, 12)
CONSTRAINTS = {"linear": EqualOpportunity(0.01), "trees": EqualOpportunity(0.02, measure="error")}
ATTACKED = 10_000


def settings() -> Iterator[tuple[str, RandomizedResponse | None]]:
    yield "none", None
    for epsilon in (2.0, 1.0, 0.5):
        yield f"ε = {epsilon:g}", RandomizedResponse(epsilon)
        yield f"ε = {epsilon:g}, own end", RandomizedResponse(epsilon, finish=True)
    yield "ε = 1, groups ε = 2", RandomizedResponse(1.0, groups=2.0)


def run(problem: FairVFLProblem, model: str, asked: RandomizedResponse | None) -> list[float]:
    constraint = CONSTRAINTS[model]
    classifier = VerticalClassifier(
        model=model,  # type: ignore[arg-type]
        constraint=constraint,
        max_rounds=30,
        encoder=PartyEncoder(scale=False),
        random_state=problem.seed,
        protection="none",
        label_privacy=asked,
    )
    trained, scene = trained_for_audit(classifier, problem.train, problem.labels, problem.groups)
    gaps = []
    for tables, labels, groups in (
        (problem.train, problem.labels, problem.groups),
        (problem.test, problem.test_labels, problem.test_groups),
    ):
        rows = bind([constraint], labels, groups)
        point = Lagrangian(labels.astype(np.float64), rows).at(trained.decision_function(tables))
        gaps.append(float(np.abs(point.exact if model == "trees" or gaps else point.values).max()))
    found = [one for one in audit_vertical(scene, most_rows=ATTACKED).findings if one.target == "each person's label"]
    best = [
        max((one for one in found if one.who == who), key=lambda one: one.value.value) for who in {f.who for f in found}
    ]
    accuracy = float((trained.predict(problem.test) == problem.test_labels).mean())
    attack = float(np.mean([one.value.value for one in best]))
    return [accuracy, *gaps, attack, float(np.mean([max(one.floors.values()) for one in best])), trained.n_iter_]


def main() -> None:
    data = load("adult", source=arguments(__doc__).source)
    console = Console(width=120)
    problems = [dealt(data, seed) for seed in SEEDS]
    for model in CONSTRAINTS:
        table = Table(
            "labels", "ACC %", "gap, training", "exact gap, test", "attack, AUC", "floor", "rounds", title=model
        )
        for name, asked in settings():
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                found = np.array([run(problem, model, asked) for problem in problems])
            mean, spread = found.mean(axis=0), found.std(axis=0, ddof=1)
            cells = [f"{100 * mean[0]:.2f} ± {100 * spread[0]:.2f}", f"{mean[1]:.4f} (worst {found[:, 1].max():.4f})"]
            table.add_row(name, *cells, *(f"{value:.3f}" for value in mean[2:5]), f"{mean[5]:.1f}")
        console.print(table)


if __name__ == "__main__":
    main()
