"""What people are told: a party before anything of its rows is said, and whoever submitted a job when it has ended."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from rich.table import Table

from evenhand.errors import EvenhandError
from evenhand.jobs.federation.files import AnyJob, FederationJob
from evenhand.printing import printable
from evenhand.protocol.disclosure import SENT_AS_IT_IS
from evenhand.protocol.messages import Schema
from evenhand.protocol.terms import Terms
from evenhand.report.tables import certificate_table, constraints_table, quality_table
from evenhand.solvers.announcing import announced, announced_for_scores


def notice(job: AnyJob, name: str, terms: Terms, *, scores: bool = False) -> str:
    """Say on which terms a participant takes part, and which messages will leave and reach it.

    Parameters
    ----------
    scores
        Whether a finished run is asked for scores of new people, rather than a model trained.
    """
    private = isinstance(job, FederationJob) and job.job.ids == "private"
    vocabularies = announced_for_scores() if scores else announced(terms, private_ids=private)
    trained = terms.job
    constraints = ", ".join(str(one) for one in trained.constraints) or "none"
    lines = [
        "terms this party takes part on:",
        f"  solver {trained.solver}, model {trained.model}, at most {trained.max_rounds} rounds; "
        f"constraints: {constraints}",
        f"  protection: {trained.protection}",
        *([] if trained.label_privacy is None else [f"  label privacy: {trained.label_privacy.words}"]),
        f"  participants: {', '.join(f'{one} ({part})' for one, part in terms.participants.items())}",
    ]
    kinds = {schema.kind: schema for vocabulary in vocabularies for schema in vocabulary}.values()
    leaving = [one for one in kinds if one.direction.leaves(name, terms.participants)]
    reaching = [one for one in kinds if one.direction.reaches(name, terms.participants)]
    for title, schemas in (("what will leave this site", leaving), ("what will reach this site", reaching)):
        lines += [f"{title}, by kind of message:", *(f"  {one.kind}: {_explained(one, terms)}" for one in schemas)]
    return printable("\n".join(lines))


def _explained(schema: Schema, terms: Terms) -> str:
    """Say what a kind of message reveals, and what the protections of these terms make of it."""
    level, private = terms.job.protection, terms.job.label_privacy is not None
    made = schema.at_level("none" if level == "auto" else level)
    covered = [] if made == SENT_AS_IT_IS else [f"With protection {level!r}: {made}."]
    if private and schema.coverage.from_labels:
        covered.append("With label privacy: computed from randomised responses.")
    return " ".join([schema.reveals, *covered])


def announcer(job: AnyJob, name: str, *, scores: bool = False) -> Callable[[Terms], None]:
    """Return what prints the notice of a job to a participant, before anything about its rows is sent."""
    return lambda terms: print(notice(job, name, terms, scores=scores), file=sys.stderr, flush=True)


_OUTSIDE: Final = ("certificate", "proofs", "bytes", "messages", "statistics", "labels", "privacy")
"""What a result says that follows from messages, or is known anyway."""


def for_submitter(job: AnyJob, result: Mapping[str, Any]) -> dict[str, Any]:
    """What whoever submitted a job is told of its result.

    With label privacy nothing that was measured on true labels: the label holder finds that in the server's folder.
    """
    private = isinstance(job, FederationJob) and job.job.label_privacy is not None and "certificate" in result
    return {name: value for name, value in result.items() if not private or name in _OUTSIDE}


def result_tables(result: Mapping[str, Any]) -> Iterator[Table]:
    """A result as tables, as far as it was told."""
    if "quality" in result:
        yield quality_table(result, "test" if "test" in result["quality"] else "train")
    if (constraints := constraints_table(result)) is not None:
        yield constraints
    if result["certificate"]["objective"] is not None:
        yield certificate_table(result["certificate"])


def public_error(error: Exception) -> str:
    """What others learn of an error: that there was one. It may quote a row."""
    kind = type(error).__name__ if isinstance(error, EvenhandError) else "error"
    return f"it stopped ({kind}); its own console says why"
