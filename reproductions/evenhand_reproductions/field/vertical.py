"""The adversarial FairVFL on the vertical sets, beside ours, and what an attacker reads from its representation."""

from __future__ import annotations

import time
import warnings
from functools import partial
from typing import Any, Final

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import f1_score
from sklearn.neural_network import MLPClassifier

from evenhand.arrays import Array, Integers
from evenhand.constraints.kinds import EqualizedOdds
from evenhand.protocol.job import Job
from evenhand.runtime.inprocess import InProcess
from evenhand.vertical.problem import PartyColumns
from evenhand_reproductions.experiments import FairVFLProblem, fitting, head, measured, on_test_rows, subspace
from evenhand_reproductions.in_memory import Holdings
from evenhand_reproductions.methods.adversarial_fairvfl import SOLVER, AdversarialParty
from evenhand_reproductions.settings import Meter, Record

EPOCHS: Final = 2
LEAST_ROUNDS: Final = 1000
ADVERSARIES: Final = (0.0, 1.0, 10.0)
BOUND: Final = 0.05
PLAIN: Final = "subspace, no constraint"
ODDS: Final = f"subspace, equalized odds ≤ {BOUND:g}"
FITS: Final = len(ADVERSARIES) + 2


def adversarial(weight: float) -> str:
    return f"adversarial FairVFL, λ = {weight:g}"


def run(problem: FairVFLProblem, meter: Meter) -> list[Record]:
    at = partial(fitting, meter, problem)
    records = []
    for weight in ADVERSARIES:
        at(adversarial(weight))
        records.append(_adversarial(problem, weight))
    for name, constraint in ((PLAIN, None), (ODDS, EqualizedOdds(BOUND, measure="error"))):
        at(name)
        records.append({**measured(problem, name, subspace(problem, constraint)), "part": "vertical"})
    return records


def _adversarial(problem: FairVFLProblem, weight: float) -> Record:
    start = time.perf_counter()
    batch = SOLVER.options().batch_size
    job = Job(
        solver=SOLVER.name,
        max_rounds=max(EPOCHS * (problem.rows // batch), LEAST_ROUNDS),
        seed=problem.seed,
        options={"adversary": weight},
        protection="none",
    )
    columns = [PartyColumns(f"p{place}", matrix, place == 0) for place, matrix in enumerate(problem.train)]
    held = Holdings.of(job, columns, problem.labels.astype(np.float64), problem.groups)
    server, parties = held.roles()
    runtime = InProcess([server, *parties])
    runtime.run()
    scores = np.zeros(len(problem.test_labels))
    unified = np.zeros((len(scores), SOLVER.options().width))
    for party, matrix in zip(parties, problem.test, strict=True):
        assert isinstance(party, AdversarialParty)
        scores += party.model.predict(matrix)
        unified = unified + party.represent(matrix)
    name = adversarial(weight)
    more: dict[str, Any] = {"rounds": job.max_rounds, "bytes": runtime.transcript.total_bytes, "part": "vertical"}
    more["seconds"] = time.perf_counter() - start
    codes = problem.test_groups.iloc[:, 0].astype("category").cat.codes.to_numpy().astype(np.int64)
    more["attacker F1"] = attacked(unified, codes, problem.seed)
    more["constant F1"] = float(f1_score(codes, np.full_like(codes, np.bincount(codes).argmax()), average="macro"))
    return {**head(problem, name), **on_test_rows(problem, scores), **more}


def attacked(unified: Array, codes: Integers, seed: int) -> float:
    """Return the macro F1 of a network that reads the group from the representation, as the authors' code trains it.

    It sees three quarters of the test rows for five epochs, and is judged on the others; the mean of two.
    """
    cut, found = int(0.75 * len(unified)), []
    for start in range(2):
        network = MLPClassifier(
            (256, 128, 128, 128),
            batch_size=min(32, cut),
            learning_rate_init=1e-4,
            max_iter=5,
            alpha=0.0,
            random_state=2 * seed + start,
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            network.fit(unified[:cut], codes[:cut])
        found.append(f1_score(codes[cut:], network.predict(unified[cut:]), average="macro"))
    return float(np.mean(found))
