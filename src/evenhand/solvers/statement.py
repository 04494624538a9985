"""State in one line what messages of a run disclose, and to which participants, before anything is trained."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from evenhand.protocol.job import Job
from evenhand.protocol.terms import Part, VerticalTerms
from evenhand.solvers.registry import find
from evenhand.solvers.roles import trainings

MORE: Final = "To list every message: evenhand audit --plan JOB"


def disclosure(job: Job, participants: Mapping[str, Part], *, noisy: bool = False, marks: bool = False) -> str:
    """Return what the job's protection leaves to be read, by participant.

    Parameters
    ----------
    job
        With its solver and its protection named, as terms hold it.
    noisy
        Whether clients add noise to what they send.
    marks
        Whether columns mark rows that a party lacks, which no message names.
    """
    level = "none" if job.protection == "auto" else job.protection
    if "client" in participants.values():
        said, times = _of_clients(level, noisy), 1 + job.searches
    else:
        said, times = _of_parties(job, level, participants, marks), trainings(VerticalTerms(job, participants, 0))
    again = f" A rule chooses the cut, so the model is trained {times} times." if times > 1 else ""
    return f"Protection {level}: {said}.{again} {MORE}"


def _of_clients(level: str, noisy: bool) -> str:
    noise = ", with the noise that clients add" if noisy else ""
    if level == "masked":
        return (
            f"in training the server reads sums over clients only{noise}; before and after it, the server reads each "
            "client's summaries of columns and counts by group. Clients read the shared model, and no other's messages"
        )
    return (
        f"the server reads every client's own updates{noise}; those of a client with few rows can tell about single "
        "rows. Clients read the shared model, and no other's messages"
    )


def _of_parties(job: Job, level: str, participants: Mapping[str, Part], marks: bool) -> str:
    passive = [name for name, part in participants.items() if part == "passive"]
    others = [name for name, part in participants.items() if part == "active"][1:]
    label = "label" if job.loss == "logistic" else "target"
    sent = f"; {_listed(others)} (active) can read all {label}s and groups" if others else ""
    if not passive:
        return f"all parties hold the {label}s, and the server reads their scores{sent}"
    return _of_passive(job, level, passive, label, marks) + sent


def _of_passive(job: Job, level: str, passive: list[str], label: str, marks: bool) -> str:
    compares = any(one.compares_groups for one in job.constraints)
    who, what = _listed(passive), f"the {label} of each row"
    if compares:
        what += " and its group"
    if level in ("dealer", "encrypted"):
        told = f"{who} read shares that look random, not labels or groups"
        if job.weights == "party":
            told += "; their own weights at the end tell what any model tells"
    elif job.label_privacy is not None:
        told = f"{who} can work out randomised labels, and the true ones only as far as those tell them"
        if compares and job.label_privacy.groups is None:
            told += ", and the true group of each row"
    else:
        told = f"{who} can work out {what}"
    if level != "none":
        return f"{told}; the server reads sums over {who} only, which {_of_sums(job, marks)}"
    return f"{told}; {_of_scores(job.solver)}"


def _of_sums(job: Job, marks: bool) -> str:
    """Return what sums over passive parties tell the server of their columns."""
    which = "columns of two values"
    if marks:
        which += ', which rows a party lacks (ids = "hidden-left") among them,'
    told = f"tell it a part of their columns: {which} can be read without knowing any row"
    if job.options.get("exchange") == "embedding":
        told += (
            '. exchange = "embedding" tells more than any other option: as many functions as columns tell nearly all'
        )
    return told


def _of_scores(solver: str) -> str:
    kinds = {one.kind for one in find("vertical", solver).vocabulary}
    if "masked-scores" in kinds:
        return "parties with labels read sums of all parties' scores"
    if "leaves" in kinds:
        return "the server reads the leaf of each row in every party's trees"
    return "the server reads every party's scores, which tell it which rows are alike"


def _listed(names: list[str]) -> str:
    shown = names if len(names) <= 3 else [*names[:2], f"{len(names) - 2} more parties"]
    return shown[0] if len(shown) == 1 else f"{', '.join(shown[:-1])} and {shown[-1]}"
