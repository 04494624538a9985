"""The cut of decisions: rules against an exhaustive search, and wrong settings."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from evenhand.constraints.thresholds import as_threshold, fixed_cut
from evenhand.errors import InputError
from evenhand.metrics import Threshold, summary
from evenhand.metrics.gaps import constraint_gaps

RULES = [
    Threshold("accuracy"),
    Threshold("cost", missed=10.0, false_alarm=1.0),
    Threshold("rate", capacity=0.2),
    Threshold("recall", target=0.6),
    Threshold("precision", target=0.5),
]


def best(rule: Threshold, signs: Any, scores: Any) -> tuple[float, float]:
    """Return what a rule asks for, the larger the better: tried at every cut."""

    def worth(cut: float) -> tuple[float, float]:
        chosen = scores > cut
        hits, wrong = int((chosen & (signs > 0)).sum()), int((chosen & (signs < 0)).sum())
        missed, share = int((signs > 0).sum()) - hits, float(chosen.mean())
        precision = hits / max(hits + wrong, 1)
        recall = hits / int((signs > 0).sum())
        return {
            "accuracy": (-(missed + wrong), 0.0),
            "cost": (-(10.0 * missed + wrong), 0.0),
            "rate": (float(share <= 0.2 + 1e-12), share),
            "recall": (float(recall >= 0.6 - 1e-12), -share),
            "precision": (1.0, share) if precision >= 0.5 - 1e-12 else (0.0, precision),
        }[rule.rule]

    cuts = [scores.min() - 1.0, *np.unique(scores)]
    return max(worth(cut) for cut in cuts), worth(rule.choose(signs, scores))  # type: ignore[return-value]


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.rule)
@pytest.mark.parametrize("seed", range(8))
def test_a_rule_chooses_the_best_of_all_cuts(rule: Threshold, seed: int) -> None:
    random = np.random.default_rng(seed)
    # Rounded scores have ties.
    scores = np.round(random.normal(size=60), 1)
    signs = np.where(random.random(60) < 1.0 / (1.0 + np.exp(1.0 - scores)), 1.0, -1.0)
    wanted, found = best(rule, signs, scores)
    assert found == wanted
    assert not (scores == rule.choose(signs, scores)).any()


def test_a_number_is_a_probability() -> None:
    assert fixed_cut(as_threshold(0.5)) == 0.0
    assert fixed_cut(as_threshold(0.25)) == pytest.approx(np.log(1 / 3))
    assert fixed_cut(Threshold("cost", missed=4.0, false_alarm=1.0)) == pytest.approx(np.log(1 / 4))


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (1.0, "between 0 and 1"),
        (0, "between 0 and 1"),
        (None, "between 0 and 1"),
        ("best", "one of 'accuracy'"),
        ("cost", "needs missed"),
        ("rate", "needs capacity"),
        ("recall", "needs target"),
    ],
)
def test_wrong_thresholds_are_refused(given: Any, words: str) -> None:
    with pytest.raises(InputError, match=words):
        as_threshold(given)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"rule": "rate", "capacity": 2.0}, "at most 1"),
        ({"rule": "rate", "capacity": 0.0}, "positive number"),
        ({"rule": "rate", "capacity": 0.1, "target": 0.5}, "does not use target"),
        ({"rule": "cost", "missed": -1.0, "false_alarm": 1.0}, "positive number"),
    ],
)
def test_wrong_numbers_of_a_rule_are_refused(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        Threshold(**settings)


def test_metrics_count_decisions_at_the_cut_and_losses_at_the_score() -> None:
    from evenhand import DemographicParity, LossParity

    random = np.random.default_rng(3)
    scores, groups = random.normal(size=200), np.tile(["a", "b"], 100)
    labels = np.where(random.random(200) < 0.5, 1, 0)
    plain = summary(labels, scores, sensitive_features=groups)
    moved = summary(labels, scores, sensitive_features=groups, cut=0.7)
    shifted = summary(labels, scores - 0.7, sensitive_features=groups)
    assert moved["DP"] == shifted["DP"] != plain["DP"]
    assert moved["accuracy"] == shifted["accuracy"]
    assert moved["log_loss"] == plain["log_loss"] != shifted["log_loss"]
    bounds = [DemographicParity(0.1), LossParity(0.1)]
    found = constraint_gaps(bounds, labels, scores, sensitive_features=groups, cut=0.7)["estimate"]
    assert found["demographic-parity"] == pytest.approx(shifted["DP"])
    assert (
        found["loss-parity"] == constraint_gaps(bounds[1], labels, scores, sensitive_features=groups)["estimate"].item()
    )
