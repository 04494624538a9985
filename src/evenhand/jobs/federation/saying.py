"""What a party's own console shows before anything of its rows is said: the terms, and which messages will leave."""

from __future__ import annotations

import sys

from evenhand.printing import printable
from evenhand.protocol.terms import Terms
from evenhand.report.disclosure import reveals
from evenhand.vertical.solvers import SOLVERS


def terms_in_words(terms: Terms) -> str:
    job = terms.job
    constraints = ", ".join(str(one) for one in job.constraints) or "none"
    lines = [
        "terms this party takes part on:",
        f"  solver {job.solver}, model {job.model}, at most {job.max_rounds} rounds; constraints: {constraints}",
        f"  participants: {', '.join(f'{name} ({part})' for name, part in terms.participants.items())}",
        "what will leave, or reach, this site, by kind of message:",
    ]
    known = reveals()
    kinds = ["ids", "common-rows", *(schema.kind for schema in SOLVERS[job.solver].vocabulary), "partial-scores"]
    lines += [f"  {kind}: {known[kind]}" for kind in kinds if kind in known]
    return printable("\n".join(lines))


def announce(terms: Terms) -> None:
    print(terms_in_words(terms), file=sys.stderr, flush=True)
