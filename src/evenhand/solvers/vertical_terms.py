"""The terms of a vertical run, from its job and its participants."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from evenhand.constraints.groups import Groups
from evenhand.errors import InputError
from evenhand.protocol.job import Job, Protection
from evenhand.protocol.solver import Solver
from evenhand.protocol.terms import Part, VerticalTerms
from evenhand.solvers.checking import check_job
from evenhand.solvers.choosing import solver_name

_DEALER: Final = "dealer"
"""The dealer's name in one process, where no participant is the dealer."""


def vertical_terms(
    job: Job, participants: Mapping[str, Part], n_rows: int, groups: Groups, *, warm: bool = False
) -> VerticalTerms:
    """Return the terms of a job that can be run, with the solver by name."""
    protection = _protection(job, check_job(job, "vertical"), participants)
    if job.label_privacy is not None and (active := list(participants.values()).count("active")) != 1:
        raise InputError(f"label_privacy takes one active party, which holds the labels; {active} would be sent them")
    everybody = _in_order(_with_dealer(participants, protection))
    draft = VerticalTerms(job.resolved(solver_name(job), protection), everybody, 0)
    return with_rows(draft, n_rows, groups, warm=warm)


def with_rows(draft: VerticalTerms, n_rows: int, groups: Groups, *, warm: bool = False) -> VerticalTerms:
    """Return draft terms with what is known once rows are aligned: how many there are, and their groups."""
    if draft.job.label_privacy is not None and warm:
        raise InputError("label_privacy begins anew: an earlier run may have known the true labels; drop warm_start")
    agreed = {name: tuple(values) for name, values in groups.items()}
    return replace(draft, n_rows=n_rows, groups=agreed, warm=warm)


def _in_order(participants: Mapping[str, Part]) -> dict[str, Part]:
    """The first active party, whose model has the intercept, then all others by name.

    Parties are numbered so: scores are summed, steps launched and delays drawn in this order, whatever order they were
    given in. Shorter names come first, so that numbered ones stay in the order of their numbers.
    """
    first = next((name for name, part in participants.items() if part == "active"), "")
    return {
        name: participants[name] for name in sorted(participants, key=lambda name: (name != first, len(name), name))
    }


def _protection(job: Job, solver: Solver[Any, Any], participants: Mapping[str, Part]) -> Protection:
    """The job's protection; ``"auto"`` is what costs next to nothing."""
    parts = list(participants.values())
    passive, active = parts.count("passive"), parts.count("active")
    if job.protection == "auto":
        return "masked" if solver.masked_by_default and passive > 1 and active == 1 else "none"
    if job.protection == "none":
        return "none"
    if active != 1:
        raise InputError(f"protection {job.protection!r} takes one active party, which holds the labels; {active} are")
    if passive < (2 if job.protection == "masked" else 1):
        raise InputError(
            f"protection {job.protection!r} with {passive} passive part{'y' if passive == 1 else 'ies'}: a sum over "
            "one is its own message and hides nothing; choose 'none' and accept that the server reads it"
        )
    return job.protection


def _with_dealer(participants: Mapping[str, Part], protection: Protection) -> Mapping[str, Part]:
    """With the third party that has no data, where there is to be one and nobody says who it is."""
    if "dealer" in participants.values():
        if protection != "dealer":
            raise InputError(f"a participant is the dealer, who has no part in protection {protection!r}; leave it out")
        return participants
    if protection != "dealer":
        return participants
    if _DEALER in participants:
        raise InputError(
            f"a party's name is {_DEALER!r}, which is that of the third party without data; choose another"
        )
    return {**participants, _DEALER: "dealer"}
