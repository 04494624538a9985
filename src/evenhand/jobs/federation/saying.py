"""What a party's own console shows before anything of its rows is said: the terms, and which messages will leave."""

from __future__ import annotations

import sys
from collections.abc import Iterator

from evenhand.horizontal.averaging import messages as averaging
from evenhand.horizontal.masked import messages as masked
from evenhand.horizontal.prox_al import messages as prox_al
from evenhand.horizontal.sqp import messages as sqp
from evenhand.printing import printable
from evenhand.privacy import key_exchange
from evenhand.protocol import agree, align, measuring, scoring
from evenhand.protocol.messages import Vocabulary
from evenhand.protocol.terms import HorizontalTerms, Terms, VerticalTerms
from evenhand.vertical import solvers as vertical
from evenhand.vertical.protected.build import spoken


def terms_in_words(terms: Terms) -> str:
    job = terms.job
    constraints = ", ".join(str(one) for one in job.constraints) or "none"
    lines = [
        "terms this party takes part on:",
        f"  solver {job.solver}, model {job.model}, at most {job.max_rounds} rounds; constraints: {constraints}",
        f"  protection: {job.protection}",
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


def announce(terms: Terms) -> None:
    print(terms_in_words(terms), file=sys.stderr, flush=True)
