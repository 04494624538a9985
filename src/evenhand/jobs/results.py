"""What `result.json` says of a run, and the table of scores of new rows; the same for both splits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any, Final

import numpy as np
import pandas as pd
from scipy.special import expit, softmax

from evenhand.arrays import Array
from evenhand.constraints.proving import Proof
from evenhand.constraints.thresholds import Cut
from evenhand.jobs.cuts import cuts_fall_short, stated_cut, told_cut
from evenhand.jobs.quality import QualityRows
from evenhand.jobs.tables import Classes, Labels, NumericTargets, labels_of
from evenhand.metrics.performance import fit_platt
from evenhand.protocol.job import Job
from evenhand.protocol.solver import Certificate
from evenhand.protocol.transcript import Transcript
from evenhand.report.verdicts import contradictions
from evenhand.training.run import shortfalls
from evenhand.vertical.server import UnseenScores

FEWEST_OF_A_CLASS: Final = 20
"""Fewest unseen rows of each class that probabilities are recalibrated on."""


def recalibrated(
    job: Job, rows: Mapping[str, QualityRows], scores: Mapping[str, Array], unseen: UnseenScores | None
) -> dict[str, Any]:
    """Return the map from scores to probabilities, fitted on rows that the model has not seen (Platt, 1999).

    Constraints and class weights move scores away from log-odds, so that probabilities need it; decisions do not, and
    stay as they are. Empty if nothing moves them, or if too few rows are unseen.
    """
    if not job.loss_function.classifies:
        return {}
    if not (job.constraints or job.class_weight) or (unseen is None and "test" not in rows):
        return {}
    part = "test" if unseen is None else "train"
    truth = rows[part].labels > 0
    if isinstance(rows[part].names, Classes) or min(truth.sum(), (~truth).sum()) < FEWEST_OF_A_CLASS:
        return {}
    found = fit_platt(truth, scores[part] if unseen is None else unseen.scores)
    # A falling map would turn the order of people around.
    if found is None or found[0] <= 0.0:
        return {}
    words = "held-out rows" if unseen is None else unseen.words
    return {"probability": {"slope": found[0], "intercept": found[1], "fitted_on": words}}


def run_result(
    job: Job,
    certificate: Certificate,
    proofs: Sequence[Proof],
    labels: Labels | Classes | NumericTargets,
    scores: Array,
    transcript: Transcript,
    cut: Cut,
    groups: pd.DataFrame | None = None,
) -> dict[str, Any]:
    """Return the server's part of `result.json`, without quality; scores and groups belong to the training rows."""
    # JSON has no NaN: values that were not measured become null.
    measured = {
        name: None if isinstance(value, float) and np.isnan(value) else value
        for name, value in certificate.as_dict().items()
    }
    return {
        "certificate": measured,
        "proofs": [{**asdict(proof), "holds": proof.holds} for proof in proofs],
        "shortfalls": shortfalls(
            certificate,
            job.tol,
            job.max_rounds,
            None if isinstance(labels, NumericTargets) else labels.named(scores - cut.of_rows(groups)),
        ),
        "bytes": transcript.total_bytes,
        "messages": transcript.total_messages,
        "labels": labels._asdict(),
        **({"cut": stated_cut(cut)} if isinstance(labels, Labels) else {}),
    }


def later_shortfalls(job: Job, result: Mapping[str, Any]) -> list[str]:
    """Return what a result says of a run that falls short after training: cuts by group, and held-out rows."""
    return [*cuts_fall_short(job, result.get("constraints", {}).get("train", ())), *contradictions(result)]


def scored(
    scores: Array, result: Mapping[str, Any], index: pd.Index, groups: pd.DataFrame | None = None
) -> pd.DataFrame:
    """Return scores of new rows with probabilities and predictions, from the labels and the cut of a run's result.

    Where groups have cuts of their own, `groups` has the group of each row, and the table has the row's cut too.
    Without groups it then has no decisions.

    Probabilities are recalibrated if the run has done so; scores are as the model gives them.

    With more than two classes, return the probability of each class and the most probable class.
    """
    known = labels_of(result["labels"])
    if isinstance(known, NumericTargets):
        return pd.DataFrame({"score": scores, "prediction": known.named(scores)}, index=index)
    cut = told_cut(result)
    at = np.nan if cut.by is not None and groups is None else cut.of_rows(groups)
    predicted = known.named(scores if isinstance(known, Classes) else scores - at)
    if isinstance(known, Classes):
        shares = softmax(scores, axis=1)
        each = {f"probability {name}": shares[:, place] for place, name in enumerate(known.classes)}
        return pd.DataFrame({"score": scores.max(axis=1), **each, "prediction": predicted}, index=index)
    given = result.get("probability", {"slope": 1.0, "intercept": 0.0})
    chance = expit(given["slope"] * scores + given["intercept"])
    found = pd.DataFrame({"score": scores, "probability": chance, "prediction": predicted}, index=index)
    if cut.by is None:
        return found
    return found.drop(columns="prediction") if groups is None else found.assign(cut=at)
