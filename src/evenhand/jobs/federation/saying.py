"""What people are told: a party before anything of its rows is said, and whoever submitted a job when it has ended."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from typing import Any, Final

from rich.table import Table

from evenhand.horizontal.averaging import messages as averaging
from evenhand.horizontal.masked import messages as masked
from evenhand.horizontal.prox_al import messages as prox_al
from evenhand.horizontal.sqp import messages as sqp
from evenhand.jobs.federation.files import AnyJob, FederationJob
from evenhand.printing import printable
from evenhand.privacy import key_exchange
from evenhand.protocol import agree, align, measuring, scoring
from evenhand.protocol.messages import Vocabulary
from evenhand.protocol.terms import HorizontalTerms, Terms, VerticalTerms
from evenhand.report.tables import certificate_table, constraints_table, quality_table
from evenhand.vertical import solvers as vertical
from evenhand.vertical.protected.build import spoken


def terms_in_words(terms: Terms) -> str:
    job = terms.job
    constraints = ", ".join(str(one) for one in job.constraints) or "none"
    lines = [
        "terms this party takes part on:",
        f"  solver {job.solver}, model {job.model}, at most {job.max_rounds} rounds; constraints: {constraints}",
        f"  protection: {job.protection}",
        *([] if job.label_privacy is None else [f"  label privacy: {job.label_privacy.words}"]),
        f"  participants: {', '.join(f'{name} ({part})' for name, part in terms.participants.items())}",
        "what will leave, or reach, this site, by kind of message:",
    ]
    told: dict[str, str] = {}
    for vocabulary in _vocabularies(terms):
        told |= {schema.kind: schema.reveals for schema in vocabulary if schema.kind not in told}
    lines += [f"  {kind}: {words}" for kind, words in told.items()]
    return printable("\n".join(lines))


def _vocabularies(terms: Terms) -> Iterator[Vocabulary]:
    if isinstance(terms, HorizontalTerms):
        programs = {"prox-al": prox_al.VOCABULARY, "sqp": sqp.VOCABULARY}
        yield agree.VOCABULARY
        yield programs.get(terms.job.solver, averaging.VOCABULARY)
        if terms.only_sums:
            yield masked.VOCABULARY
        yield measuring.VOCABULARY
    else:
        yield align.VOCABULARY
        solver = vertical.SOLVERS[terms.job.solver]
        yield solver.vocabulary
        if solver.agrees_on_keys:
            yield key_exchange.VOCABULARY
        assert isinstance(terms, VerticalTerms)
        yield spoken(terms)
        yield scoring.VOCABULARY


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


def announce(terms: Terms) -> None:
    print(terms_in_words(terms), file=sys.stderr, flush=True)
