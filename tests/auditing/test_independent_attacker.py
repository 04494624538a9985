"""The audit is at least as strong as attackers that were written without it, from the same messages."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.ensemble import ExtraTreesRegressor, HistGradientBoostingClassifier
from sklearn.metrics import roc_auc_score

from evenhand.auditing.audits import audit_vertical
from evenhand.auditing.gradient_attacks import subset_labels
from evenhand.auditing.views import listening
from evenhand.constraints.kinds import EqualOpportunity
from evenhand.protocol.job import Job
from evenhand.training.auditing import audit_input
from evenhand.vertical.problem import PartyColumns
from evenhand_reproductions.in_memory import Holdings, train_vertical

pytest.importorskip("nacl")
ROWS = 1500


def scene_of(level: Any, parties: list[PartyColumns], labels: np.ndarray, rounds: int = 8) -> Any:
    groups = pd.DataFrame({"sex": np.where(np.random.default_rng(1).random(len(labels)) < 0.5, "f", "m")})
    settings: dict[str, Any] = {"solver": "subspace", "protection": level, "allow_experimental": True}
    job = Job(constraints=(EqualOpportunity(0.02),), tol=0.0, max_rounds=rounds, **settings)
    terms = Holdings.of(job, parties, labels, groups).terms
    run = train_vertical(job, parties, labels, groups, transcript=listening())
    return audit_input(run.transcript, parties, labels, groups, run.models, terms)


def one_hot_parties(rng: np.random.Generator) -> tuple[list[PartyColumns], np.ndarray]:
    """Parties with several categorical columns each, as in tables about people."""
    blocks = []
    for columns in (3, 3, 3):
        codes = [rng.integers(0, 5, ROWS) for _ in range(columns)]
        blocks.append(np.hstack([np.eye(5)[code][:, 1:] for code in codes]))
    scores = sum(block @ rng.normal(size=block.shape[1]) for block in blocks)
    labels = np.where(rng.random(ROWS) < 1.0 / (1.0 + np.exp(-scores)), 1.0, -1.0)
    names = ("bank", "shop", "phone")
    parties = [PartyColumns(name, block, name == "bank") for name, block in zip(names, blocks, strict=True)]
    return parties, labels


def strangers_r2(scene: Any, other: str, known: np.ndarray) -> float:
    """What extra-trees make of the sums that the server received, with the label holder's columns and labels."""
    sums = [one["scores"] for one in scene.messages if one.kind == "direction" and one.sender not in scene.columns]
    evidence = np.vstack(sums).T
    scaled = (evidence - evidence.mean(axis=0)) / evidence.std(axis=0)
    directions, sizes, _ = np.linalg.svd(scaled, full_matrices=False)
    table = np.hstack([scene.columns["bank"], scene.labels[:, None], scaled, directions[:, sizes > 1e-9 * sizes[0]]])
    wanted = scene.columns[other]
    model = ExtraTreesRegressor(120, max_features=0.5, random_state=0).fit(table[known], wanted[known])
    missed = ((model.predict(table[~known]) - wanted[~known]) ** 2).mean(axis=0)
    spread = ((wanted[~known] - wanted[known].mean(axis=0)) ** 2).mean(axis=0)
    return float(np.clip(1.0 - missed / spread, 0.0, None).mean())


@pytest.fixture(scope="module")
def masked_scene() -> Any:
    """One run; none is repeated without a person, which is another attack."""
    return replace(scene_of("masked", *one_hot_parties(np.random.default_rng(0))), again=None)


def test_columns_under_masks(masked_scene: Any) -> None:
    scene = masked_scene
    found = audit_vertical(scene, attackers=["bank"]).findings
    known = np.random.default_rng(5).random(ROWS) < 0.5
    for other in ("shop", "phone"):
        best = max(one.value.value for one in found if one.target == f"the columns of {other}")
        assert best >= strangers_r2(scene, other, known) - 0.02


def baskets(rng: np.random.Generator, departments: int = 40, customers: int = 12) -> np.ndarray:
    """Amounts spent in departments that few people visit, standardised, and a column of zeros and ones."""
    spent = np.zeros((ROWS, departments))
    for column in spent.T:
        column[rng.choice(ROWS, customers, replace=False)] = np.round(rng.uniform(20.0, 200.0, customers), 2)
    return np.hstack([(spent - spent.mean(axis=0)) / spent.std(axis=0), rng.random((ROWS, 1)) < 0.5])


def test_the_first_gradient_of_sparse_columns() -> None:
    """A stranger that enumerates the subsets of each column by itself finds no more labels than the audit's attack."""
    rng = np.random.default_rng(3)
    columns = baskets(rng)
    labels = np.where(rng.random(ROWS) < 0.4, 1.0, -1.0)
    share = (labels > 0).mean()
    gradient = columns.T @ ((share - (labels > 0)) / ROWS)
    found = subset_labels(columns, gradient)
    bits = (np.arange(2**12)[:, None] >> np.arange(12)) & 1
    alone = np.zeros(ROWS)
    for place, column in enumerate(columns[:, :-1].T):
        inside = np.flatnonzero(column != column.min())
        sums = bits @ (column[inside] - column.min())
        wanted = share * column.sum() - ROWS * gradient[place] - column.min() * (labels > 0).sum()
        (hits,) = np.nonzero(np.abs(sums - wanted) < 1e-5)
        if len(hits) == 1:
            alone[inside] = 2 * bits[hits[0]] - 1
    assert (alone != 0).sum() > 300
    assert (found * labels >= 0).all()
    assert (found != 0).sum() >= (alone != 0).sum()


def test_groups_from_the_sequence_of_derivatives(masked_scene: Any) -> None:
    """A stranger that boosts trees on ratios of the sizes of ν finds no more than the audit."""
    scene = masked_scene
    found = [one for one in audit_vertical(scene, attackers=["shop"]).findings if one.target == "each person's sex"]
    sizes = np.log(np.abs([one["nu"] for one in scene.messages if one.kind == "derivative" and one.receiver == "shop"]))
    sex, known = scene.groups["sex"].to_numpy() == "f", np.random.default_rng(5).random(ROWS) < 0.5
    table = np.hstack([scene.columns["shop"], np.diff(sizes, axis=0).T])
    model = HistGradientBoostingClassifier(max_iter=60, random_state=0).fit(table[known], sex[known])
    strangers = roc_auc_score(sex[~known], model.predict_proba(table[~known])[:, 1])
    assert strangers > 0.6
    assert max(one.value.value for one in found) >= strangers - 0.03
