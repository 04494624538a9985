"""The papers' two baselines: FedBCD's pooled scores, post-processed on the training rows."""

from __future__ import annotations

import numpy as np
from scipy.special import expit, logit

from evenhand_reproductions.central import CalibratedEqualOddsPostprocessor, EqualOddsPostprocessor
from evenhand_reproductions.experiments import FairVFLProblem, Fit, head, measured, on_test_rows, published
from evenhand_reproductions.settings import Record

EO, CEO = "FedBCD + EO", "FedBCD + CEO"

HOW = (
    "EO is fairlearn's ThresholdOptimizer (equalized odds, largest accuracy), CEO our calibrated equal odds on the "
    "generalised false-negative cost; both are fitted on FedBCD's scores of the pooled training rows, and their "
    "random decisions are drawn once a run."
)
HOW_DEO = (
    "DEO, and with it FR = 1 - DEO and HM, is a gap in losses, and a post-processed decision has no score. The papers "
    "do not say what they took. Here EO's decision ±1 stands for its score: its logistic loss is then 0.313 where "
    "right and 1.313 where wrong, so that DEO is exactly the gap in false-negative rates. CEO gives a probability, "
    "whose logit is the score."
)


def fedbcd(problem: FairVFLProblem, rounds: int) -> list[Record]:
    """FedBCD and the two baselines made of its scores, each to stand beside the paper's own row."""
    plain = published(problem, None, rounds)
    return [measured(problem, "FedBCD", plain, beside="FedBCD"), *postprocessed(problem, plain)]


def postprocessed(problem: FairVFLProblem, plain: Fit) -> list[Record]:
    """The two baselines made of FedBCD's scores."""
    records = [equal_odds(problem, plain), calibrated(problem, plain)]
    return [{**record, "beside": record["method"]} for record in records]


def equal_odds(problem: FairVFLProblem, fit: Fit) -> Record:
    processor = EqualOddsPostprocessor(objective="accuracy_score", random_state=problem.seed)
    processor.fit(fit.classifier.decision_function(problem.train), problem.labels, problem.groups)
    decisions = processor.predict(fit.classifier.decision_function(problem.test), problem.test_groups)
    return {**head(problem, EO), **on_test_rows(problem, decisions.astype(np.float64))}


def calibrated(problem: FairVFLProblem, fit: Fit) -> Record:
    processor = CalibratedEqualOddsPostprocessor(on_infeasible="clip", random_state=problem.seed)
    processor.fit(expit(fit.classifier.decision_function(problem.train)), problem.labels, problem.groups)
    mixed = processor.predict_proba(expit(fit.classifier.decision_function(problem.test)), problem.test_groups)
    needed = {"feasible": processor.feasible_, "required_rate": processor.required_rate_}
    # A model that was trained for long gives chances that are one to the last bit, whose logit is no number.
    surest = np.finfo(np.float64).eps
    return {**head(problem, CEO), **on_test_rows(problem, logit(np.clip(mixed, surest, 1 - surest))), **needed}
