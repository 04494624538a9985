"""Notices: the terms and messages shown to a participant before training, and the result shown to the submitter."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from typing import Any, Final

from rich.table import Table

from evenhand.jobs.federation.files import AnyJob, FederationJob
from evenhand.jobs.vertical.values import HELD_OUT
from evenhand.printing import printable
from evenhand.protocol.disclosure import SENT_AS_IT_IS
from evenhand.protocol.messages import Schema
from evenhand.protocol.roles import SERVER
from evenhand.protocol.terms import Terms, VerticalTerms
from evenhand.report.tables import certificate_table, constraints_table, quality_table
from evenhand.solvers.announcing import announced, announced_for_scores
from evenhand.solvers.roles import trainings


def notice(job: AnyJob, name: str, terms: Terms, *, scores: bool = False) -> str:
    """Return the terms of a run, and what the messages that a participant sends and receives reveal.

    The participant reads this before anything about its rows is sent.

    Parameters
    ----------
    scores
        Whether the run scores new rows with a trained model, instead of training one.
    """
    private = isinstance(job, FederationJob) and job.job.private_ids
    left = isinstance(job, FederationJob) and job.job.keeps_all
    hidden = isinstance(job, FederationJob) and job.job.ids == "hidden-left"
    told = announced(terms, private_ids=private, left=left, hidden=hidden)
    vocabularies = announced_for_scores(terms) if scores else told
    trained = terms.job
    times = 1 if scores else trainings(terms)
    again = "" if times == 1 else f" in each of {times} trainings, because a rule chooses the cut"
    constraints = ", ".join(str(one) for one in trained.constraints) or "none"
    lines = [
        "terms of this run (this site's policy accepts them; nothing about its rows has been sent yet):",
        f"  task: {'score new rows with the trained model' if scores else 'train a model'}",
        f"  solver: {trained.solver}; model: {trained.model}; at most {trained.max_rounds} rounds{again}",
        f"  constraints: {constraints}",
        f"  protection of messages: {trained.described_protection}",
        *([] if trained.label_privacy is None else [f"  label privacy: {trained.label_privacy.words}"]),
        *([] if trained.lost_party == "end" else [f"  if a party is gone for good: {_GOES_ON[_masked(terms)]}"]),
        f"  participants: {', '.join(f'{one} ({part})' for one, part in terms.participants.items())}",
    ]
    kinds = {schema.kind: schema for vocabulary in vocabularies for schema in vocabulary}.values()
    leaving = [one for one in kinds if one.direction.leaves(name, terms.participants)]
    reaching = [one for one in kinds if one.direction.reaches(name, terms.participants)]
    for title, schemas in (
        ("messages that this site will send", leaving),
        ("messages that this site will receive", reaching),
    ):
        lines += [
            f"{title}, and what each kind reveals:",
            *(f"  {one.kind}: {_explained(one, terms)}" for one in schemas),
        ]
    return printable("\n".join(lines))


_GOES_ON: Final = {
    False: "the others train a model without it",
    True: "the others train a model without it; the server can read what it added, as the difference of two sums",
}


def _masked(terms: Terms) -> bool:
    return isinstance(terms, VerticalTerms) and terms.only_sums


def _explained(schema: Schema, terms: Terms) -> str:
    """Say what a kind of message reveals, and how the protections in these terms change that."""
    level, private = terms.job.protection, terms.job.label_privacy is not None
    made = schema.at_level("none" if level == "auto" else level)
    covered = [] if made == SENT_AS_IT_IS else [f"With protection {level!r}: {made}."]
    if private and schema.coverage.from_labels:
        covered.append("With label privacy: computed from randomised responses.")
    return " ".join([schema.reveals, *covered])


def announcer(job: AnyJob, name: str, *, scores: bool = False) -> Callable[[Terms], None]:
    """Return a function that prints the notice; it is called before anything about the participant's rows is sent."""
    return lambda terms: print(notice(job, name, terms, scores=scores), file=sys.stderr, flush=True)


_OUTSIDE: Final = ("certificate", "proofs", "bytes", "messages", "statistics", "labels", "privacy", "disclosure")
"""Keys of a result that follow from messages or from the job, not from true labels."""


def for_submitter(job: AnyJob, result: Mapping[str, Any]) -> dict[str, Any]:
    """Return the part of a result that the submitter of the job may see.

    With label privacy, this excludes everything measured on true labels. The label holder finds that in the server's
    run folder.
    """
    private = isinstance(job, FederationJob) and job.job.label_privacy is not None and "certificate" in result
    # Losses of single rows stay in the server's run folder as well.
    found = {name: value for name, value in result.items() if name != HELD_OUT}
    return {name: value for name, value in found.items() if not private or name in _OUTSIDE}


def result_tables(result: Mapping[str, Any]) -> Iterator[Table]:
    """Yield tables of the parts of a result that are present."""
    if result.get("quality"):
        yield quality_table(result, "test" if "test" in result["quality"] else "train")
    if (constraints := constraints_table(result)) is not None:
        yield constraints
    if result["certificate"]["objective"] is not None:
        yield certificate_table(result["certificate"])


def tell(text: str) -> None:
    """Print a line with the time of day on this participant's console."""
    print(f"{datetime.now():%H:%M:%S} {printable(text)}", file=sys.stderr, flush=True)


def tell_silence(peer: str, seconds: float | None) -> None:
    """Say that a participant is silent, or is heard from again."""
    name = "the server" if peer == SERVER else peer
    if seconds is None:
        tell(f"{name} is heard from again")
    else:
        tell(f"{name} has not been heard from for {seconds:.0f} seconds; the run waits for it")
