"""`exchange = "embedding"`: the label holder's networks over all parties' embeddings, for interactions across them."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import roc_auc_score
from sklearn.tree import DecisionTreeRegressor
from support.problems import deal, small
from support.tables import SmallJob

from evenhand import VerticalClassifier
from evenhand.constraints import EqualizedOdds, EqualOpportunity
from evenhand.errors import InputError, RunError
from evenhand.jobs.new_rows import score_new_parties
from evenhand.jobs.vertical.runs import run_vertical_job
from evenhand.models import RegressorLearner
from evenhand.models.learned import LearnedModel
from evenhand.models.learning.choose import as_learner
from evenhand.models.saved import from_state, joint_scores, to_state
from evenhand.protocol.job import Job
from evenhand.runtime.folder import RunFolder
from evenhand.solvers import Learners
from evenhand.training.vertical import VerticalRun
from evenhand.vertical.learners.messages import EMBEDDING, RELATION
from evenhand_reproductions.in_memory import train_vertical

BLOCKS = [[0], [1], [2, 3]]
PEOPLE = small(seed=4, rows=900)
# A product of two parties' columns, of which neither tells anything alone.
PEOPLE = replace(PEOPLE, labels=np.where(PEOPLE.matrix[:, 0] * PEOPLE.matrix[:, 1] > 0, 1.0, -1.0))
RATES = EqualizedOdds(0.05, measure="error")


def train(order: tuple[int, ...] = (0, 1, 2), people: Any = PEOPLE, learner: Any = "linear", **job: Any) -> VerticalRun:
    settings: dict[str, Any] = {"solver": "learners", "max_rounds": 2, "protection": "none", **job}
    settings["options"] = {"exchange": "embedding", "embedding": 4, "folds": 2, **settings.get("options", {})}
    parties = [replace(one, learner=as_learner(learner)) for one in deal(people, BLOCKS, (0,))]
    given = [parties[place] for place in order]
    return train_vertical(Job(**settings), given, people.labels, people.sensitive, keep_messages=True)


def scores(run: VerticalRun, rows: np.ndarray = PEOPLE.matrix) -> np.ndarray:
    return joint_scores(run.models, {f"p{place}": rows[:, block] for place, block in enumerate(BLOCKS)})


@pytest.mark.parametrize("protection", ["none", "masked"])
def test_an_interaction_across_parties_is_learned_for_new_people(protection: str) -> None:
    others = np.random.default_rng(7).normal(size=(500, 4))
    truth = others[:, 0] * others[:, 1] > 0
    additive = train(protection=protection, options={"exchange": "scores"})
    related = train(protection=protection)
    assert roc_auc_score(truth, scores(additive, others)) < 0.6
    assert roc_auc_score(truth, scores(related, others)) > (0.85 if protection == "none" else 0.75)
    assert related.statistics["networks over embeddings"] > 0
    assert any(one.kind == RELATION.kind and one.receiver == "p0" for one in related.transcript.messages or [])


@pytest.mark.parametrize("protection", ["none", "masked"])
def test_certificate_and_constraint_belong_to_the_returned_model(protection: str) -> None:
    run = train(protection=protection, constraints=(EqualOpportunity(0.05),))
    given = scores(run)
    assert run.certificate.objective == pytest.approx(np.logaddexp(0.0, -PEOPLE.labels * given).mean(), abs=1e-6)
    assert run.certificate.converged


def test_bounds_on_rates_hold_at_cross_fitted_scores() -> None:
    run = train(constraints=(RATES,))
    assert run.certificate.converged
    assert run.unseen_scores is not None
    decided, labels = run.unseen_scores.scores > 0, PEOPLE.labels > 0
    for label in (False, True):
        rates = [np.mean(decided[(labels == label) & (PEOPLE.groups == group)] != label) for group in ("a", "b")]
        assert abs(rates[0] - rates[1]) <= 0.05 + 2.5 / min(PEOPLE.slice(one, g).sum() for one in (1, -1) for g in "ab")


def test_the_order_of_parties_changes_nothing() -> None:
    one, other = train(), train(order=(2, 0, 1))
    assert one.certificate.objective == pytest.approx(other.certificate.objective, abs=1e-12)


def test_without_an_interaction_scores_stay_sums() -> None:
    """Networks are kept only if the held-out loss falls; if not, no party gives its embedding of new rows."""
    random = np.random.default_rng(2)
    people = replace(PEOPLE, labels=np.where(PEOPLE.matrix @ np.ones(4) + random.logistic(size=900) > 0, 1.0, -1.0))
    run = train(people=people, max_rounds=6)
    assert run.statistics["networks over embeddings"] == 0
    assert not any(one.embeds for one in run.models.values() if isinstance(one, LearnedModel))
    parts = [one.predict(PEOPLE.matrix[:, block]) for one, block in zip(run.models.values(), BLOCKS, strict=True)]
    np.testing.assert_allclose(scores(run), np.sum(parts, axis=0), atol=1e-12)


def test_embeddings_leave_a_party_once_and_only_if_they_are_asked_for() -> None:
    asked, plain = train(), train(options={"exchange": "scores"})
    sent = [one.sender for one in asked.transcript.messages or [] if one.kind == EMBEDDING.kind]
    assert sorted(sent) == ["p0", "p1", "p2"]
    assert not any(one.kind == EMBEDDING.kind for one in plain.transcript.messages or [])


def test_a_model_is_read_as_it_was_kept() -> None:
    run = train()
    again = {name: from_state(to_state(model)) for name, model in run.models.items()}
    blocks = {f"p{place}": PEOPLE.matrix[:, block] for place, block in enumerate(BLOCKS)}
    np.testing.assert_array_equal(joint_scores(again, blocks), scores(run))
    with pytest.raises(RunError, match="embeddings of all parties, and p2 has none"):
        joint_scores({name: again[name] for name in ("p0", "p1")}, blocks)
    damaged = to_state(run.models["p0"])
    damaged["relation networks"] = damaged["relation networks"][:-1]
    with pytest.raises(RunError, match="the relation of embeddings cannot be read"):
        from_state(damaged)


def test_what_cannot_have_embeddings_is_refused() -> None:
    with pytest.raises(InputError, match="exchange = 'embedding' needs true labels"):
        train(label_privacy={"epsilon": 2.0})
    raw = RegressorLearner(DecisionTreeRegressor(max_depth=2), columns="raw")
    model = VerticalClassifier(models=["linear", raw], solver=Learners(exchange="embedding"))
    tables = [pd.DataFrame(PEOPLE.matrix[:, block], columns=[str(one) for one in block]) for block in BLOCKS[1:]]
    with pytest.raises(InputError, match="its model takes raw columns, of which no random functions can be drawn"):
        model.fit(tables, PEOPLE.labels)


def test_a_job_with_embeddings_is_resumed_and_scores_new_rows(tmp_path: Path) -> None:
    def job(folder: Path) -> SmallJob:
        small_job = SmallJob(folder, 700)
        small_job.content["job"] |= {
            "solver": "learners",
            "max_rounds": 3,
            "options": {"folds": 2, "patience": 9, "exchange": "embedding", "embedding": 6},
        }
        bank, shop = small_job.frames["bank"], small_job.frames["shop"]
        both = (bank["age"] - 48) * (shop["spent"] - 100) > 0
        bank["outcome"] = np.where(both, "repaid", "defaulted")
        return small_job

    whole = job(tmp_path / "whole").run()
    small_job, rounds = job(tmp_path / "killed"), []

    def killed(report: dict[str, float]) -> None:
        rounds.append(report["round"])
        if len(rounds) == 2:
            raise KeyboardInterrupt

    place = tmp_path / "killed"
    with pytest.raises(KeyboardInterrupt):
        run_vertical_job(small_job.read(), place, place / "run", on_round=killed, checkpoint_seconds=0.0)
    resumed = run_vertical_job(small_job.read(), place, place / "run", resume=True, checkpoint_seconds=0.0)
    assert whole.result["statistics"]["networks over embeddings"] > 0
    assert json.dumps(resumed.result["certificate"]) == json.dumps(whole.result["certificate"])
    one, other = (score_new_parties(RunFolder.open(tmp_path / name / "run")).scores for name in ("whole", "killed"))
    pd.testing.assert_frame_equal(one, other)
