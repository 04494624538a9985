"""A participant's own rule: on which terms it takes part, and what never leaves it.

It is checked where the participant is, against the terms it was offered, before anything about its rows is said.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from evenhand.protocol.job import PROTECTIONS, Protection
from evenhand.protocol.messages import Message
from evenhand.protocol.terms import HorizontalTerms, Terms


@dataclass(frozen=True)
class OwnPolicy:
    """What one participant agrees to; a policy without settings takes part in anything.

    Parameters
    ----------
    solvers
        Those it takes part in; None is any.
    most_rounds
        Of communication.
    least_rows
        Fewer common rows than this are too few to hide among.
    participants
        Whom it takes part with; None is anybody.
    protected
        Whether clients' updates must be protected by noise. No other run has any, so it takes part in no other.
    protection
        The least protection that a vertical run must have: ``"none"``, ``"masked"``, ``"dealer"`` or ``"encrypted"``.
    never_send
        Kinds of messages that never leave it, whatever the terms.
    label_epsilon
        The most ε of label privacy; where it is set, labels must have such privacy.
    """

    solvers: Sequence[str] | None = None
    most_rounds: int | None = None
    least_rows: int = 0
    participants: Sequence[str] | None = None
    protected: bool = False
    never_send: Sequence[str] = ()
    protection: Protection = "none"
    label_epsilon: float | None = None

    def __call__(self, terms: Terms) -> str | None:
        """Why it does not take part on these terms, or None."""
        job = terms.job
        if self.solvers is not None and job.solver not in self.solvers:
            return f"it takes no part in solver {job.solver!r}, only in {', '.join(self.solvers) or 'none'}"
        if self.most_rounds is not None and job.max_rounds > self.most_rounds:
            return f"{job.max_rounds} rounds are more than its {self.most_rounds}"
        # The draft does not know how many rows there will be.
        if 0 < terms.n_rows < self.least_rows:
            return f"{terms.n_rows} common rows are fewer than its {self.least_rows}"
        if self.participants is not None:
            strangers = [name for name in terms.participants if name not in self.participants]
            if strangers:
                return f"it takes no part together with {', '.join(strangers)}"
        if self.protected and not (isinstance(terms, HorizontalTerms) and terms.protected):
            return "it takes part only where what clients send is protected"
        if self.protection != "none" and (job.protection == "auto" or _less(job.protection, self.protection)):
            return f"protection {job.protection!r} is less than its {self.protection!r}"
        if self.label_epsilon is not None:
            if job.label_privacy is None:
                return f"labels have no privacy by the terms; it wants label_privacy of at most {self.label_epsilon:g}"
            if job.label_privacy.epsilon > self.label_epsilon:
                return f"label_privacy of {job.label_privacy.epsilon:g} is more than its {self.label_epsilon:g}"
        return None

    def veto(self, message: Message) -> str | None:
        """Why a message may not leave, or None."""
        return f"messages of kind {message.kind!r} never leave it" if message.kind in self.never_send else None


def _less(given: Protection, wanted: Protection) -> bool:
    """Whether one level keeps less from others; of the two that hide ν, neither keeps less than the other."""
    steps = {name: min(place, PROTECTIONS.index("dealer")) for place, name in enumerate(PROTECTIONS)}
    return steps[given] < steps[wanted]
