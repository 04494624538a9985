"""The cut of a run: a number, what a rule chooses on training rows, or one for each group."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
import pandas as pd
from scipy.special import expit

from evenhand.arrays import Array
from evenhand.constraints.group_cuts import MEANING, equal_rates
from evenhand.constraints.groups import groups_frame, groups_of
from evenhand.constraints.labelled_rows import LabelledRows
from evenhand.constraints.thresholds import Cut, Ranked, Threshold, fixed_cut, group_text
from evenhand.errors import InputError
from evenhand.metrics import constraint_gaps
from evenhand.protocol.job import Job
from evenhand.protocol.terms import HorizontalTerms
from evenhand.solvers.roles import folds
from evenhand.vertical.server import CROSS_FITTED, TRAINING_ROWS, UnseenScores


def chosen_cut(threshold: float | Threshold, labels: Array, scores: Array, unseen: UnseenScores | None) -> Cut:
    """Return the cut that a number is, or that a rule chooses on the training rows.

    Held-out rows have no say in it, because they judge the model at the cut.

    Parameters
    ----------
    labels, scores
        Of the training rows.
    unseen
        Their scores by models that have not seen them, if the solver has them.
    """
    if not isinstance(threshold, Threshold):
        return Cut(fixed_cut(threshold), f"{threshold:g}")
    if unseen is None:
        return Cut.of_rule(threshold, threshold.choose(labels, scores), "training rows")
    return Cut.of_rule(threshold, threshold.choose(labels, unseen.scores), unseen.words)


def searched_cut(job: Job, cut: float, unseen: UnseenScores | None) -> Cut:
    """Return the cut that earlier trainings of a run have found."""
    assert job.rule is not None
    return Cut.of_rule(job.rule, cut, "training rows" if unseen is None else unseen.words)


def run_cut(terms: HorizontalTerms) -> Cut:
    """Return the cut of a run across clients, whose terms hold it: a number, or chosen from summed counts of scores."""
    job = terms.job
    if job.rule is None:
        return Cut(job.cut, f"{expit(job.cut):g}")
    found = Cut.of_rule(job.rule, job.cut, CROSS_FITTED if folds(terms) > 1 else TRAINING_ROWS)
    return _by_group(found, job, terms.groups.get(job.cut_by, ()), job.group_cuts)


def cut_by_group(cut: Cut, job: Job, rows: LabelledRows, scores: Array, unseen: UnseenScores | None) -> Cut:
    """Return the cut with one for each group, where the job asks for that; else as it is.

    Parameters
    ----------
    rows, scores
        Labels and groups of the training rows, and their scores.
    unseen
        Their scores by models that have not seen them, if there are any.
    """
    if job.closed is None or job.rule is None:
        return cut
    frame = groups_frame(rows.groups, len(rows.labels))
    groups, told = groups_of(frame[[job.cut_by]])[job.cut_by], scores if unseen is None else unseen.scores
    inside = [np.asarray(frame[job.cut_by] == group) for group in groups]
    ranked = [Ranked.of_scores(rows.labels[one], told[one]) for one in inside]
    places = equal_rates(job.rule, job.closed, ranked)
    return _by_group(cut, job, groups, [float(one.cuts[place]) for one, place in zip(ranked, places, strict=True)])


def _by_group(cut: Cut, job: Job, groups: Sequence[Any], cuts: Sequence[float]) -> Cut:
    if job.closed is None:
        return cut
    return cut._replace(by=job.cut_by, groups={group_text(group): one for group, one in zip(groups, cuts, strict=True)})


def single_cut(result: Mapping[str, Any], what: str) -> float:
    """Return the one cut of a run; refuse to write `what` for a run that decides by group."""
    cut = told_cut(result)
    if cut.by is not None:
        raise InputError(
            f"the run has a cut for each group of {cut.by!r}, which {what} cannot hold; {MEANING}. Use "
            "evenhand predict, or load_run in Python, which take the groups"
        )
    return cut.score


def told_cut(result: Mapping[str, Any]) -> Cut:
    """Return the cut of a run's result."""
    given = result.get("cut", {})
    return Cut(**{name: given[name] for name in Cut._fields if name in given})


CLEARLY: Final = 2.0
"""Standard errors by which a gap that is no chance exceeds its bound."""


def cuts_fall_short(job: Job, held: Sequence[Mapping[str, Any]]) -> list[str]:
    """Say if cuts by group clearly miss the constraint that they are to meet.

    Parameters
    ----------
    held
        How well constraints hold on the training rows, as `constraint_gaps` measures it.
    """
    if job.closed is None:
        return []
    advice = "use more rows, or merge groups"
    if job.closed.kind == "equalized-odds":
        advice = (
            "a cut for each group makes one rate equal, and equalized odds bounds two. Remove threshold_by, so that "
            "training meets the constraint, or bound equal opportunity"
        )
    return [
        f"with a cut for each group of {job.cut_by!r}, the {one['row']} differs by {abs(one['estimate']):.3f} on the "
        f"training rows, and {one['asked']:g} was asked: {advice}"
        for one in held
        if one["constraint"] == job.closed.kind
        and one["measure"] != "loss"
        and abs(one["estimate"]) > one["asked"] + CLEARLY * (one["standard_error"] or 0.0)
    ]


def missed_by_cuts(job: Job, cut: Cut | None, signs: Array, scores: Array, groups: pd.DataFrame | None) -> list[str]:
    """Say if cuts by group clearly miss their constraint on rows with these labels, scores and groups."""
    if job.closed is None or cut is None or groups is None:
        return []
    table = constraint_gaps(job.closed, signs, scores - cut.of_rows(groups), sensitive_features=groups)
    held = [{str(name): value for name, value in one.items()} for one in table.reset_index().to_dict("records")]
    return cuts_fall_short(job, held)


def stated_cut(cut: Cut) -> dict[str, Any]:
    """Return the cut as `result.json` states it."""
    return {**cut._asdict(), "probability": float(expit(cut.score))}
