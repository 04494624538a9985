"""The part of a job that somebody without data has: the dealer, who gives the others random numbers that fit together.

It is told the terms and accepts them by a policy of its own, as everybody does; of rows it learns how many there are,
and of each party how many columns it has.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from evenhand.errors import JobError
from evenhand.jobs.federation.enrolling import accepted_terms
from evenhand.jobs.federation.files import FederationJob, PartyFile
from evenhand.jobs.federation.keeping import Keeping, to_its_end
from evenhand.protocol.enrol import EnrolParty
from evenhand.protocol.terms import Terms, VerticalTerms
from evenhand.runtime.folder import RunFolder
from evenhand.runtime.site import Program
from evenhand.vertical import solvers


@dataclass(frozen=True, eq=False)
class DealerEnd:
    """What a dealer has when the run is over."""

    terms: VerticalTerms

    def write(self, _: RunFolder) -> dict[str, Any]:
        """What the dealer's `result.json` says: it keeps nothing else."""
        return {"terms": self.terms.digest}


def dealer_program(
    job: FederationJob,
    own: PartyFile,
    on_terms: Callable[[Terms], None] | None = None,
    keeping: Keeping | None = None,
) -> Program[DealerEnd]:
    """What the dealer does; parameters are those of a party's."""
    name = own.party.name
    if job.parts.get(name) != "dealer":
        raise JobError(f"by the job {name} is not the dealer, as its own file says")
    policy = own.policy.to_policy()
    enrolled = EnrolParty(name, VerticalTerms, policy, solvers.vertical_terms(job.to_job(), job.parts, 0, {}))
    yield enrolled
    accepted = accepted_terms(enrolled, VerticalTerms)
    if on_terms is not None:
        on_terms(accepted)
    again = EnrolParty(name, VerticalTerms, policy, accepted)
    yield again
    terms = accepted_terms(again, VerticalTerms)
    (role,) = solvers.helpers(terms)
    yield from to_its_end(keeping, role, terms.to_plain())
    return DealerEnd(terms)
