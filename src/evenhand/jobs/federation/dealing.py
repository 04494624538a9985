"""The part of a job that somebody without data has: the dealer, who gives the others random numbers that fit together.

It is told the terms and accepts them by a policy of its own, as everybody does; of rows it learns how many there are,
and of each party how many columns it has.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from evenhand.errors import JobError
from evenhand.jobs.federation.files import FederationJob, PartyFile
from evenhand.jobs.federation.keeping import CheckpointManager, keeper
from evenhand.jobs.federation.sites import draft_terms
from evenhand.protocol.terms import Terms, VerticalTerms
from evenhand.runtime.folder import RunFolder
from evenhand.runtime.site import Program
from evenhand.training.together import alone
from evenhand.training.vertical_steps import dealer_steps


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
    keeping: CheckpointManager | None = None,
) -> Program[DealerEnd]:
    """What the dealer does; parameters are those of a party's."""
    name = own.party.name
    if job.parts.get(name) != "dealer":
        raise JobError(f"by the job {name} is not the dealer, as its own file says")
    steps = dealer_steps(name, draft_terms(job), policy=own.policy.to_policy(), on_terms=on_terms)
    return DealerEnd((yield from alone(steps, keeper(keeping))))
