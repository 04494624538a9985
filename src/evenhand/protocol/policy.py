"""A participant's policy: on which terms it takes part, and what it never sends.

The participant itself checks the offered terms against it, before anything about its rows is sent.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from evenhand.errors import RunError
from evenhand.protocol.job import PROTECTIONS, LostParty, Protection
from evenhand.protocol.messages import Message
from evenhand.protocol.terms import HorizontalTerms, Terms, VerticalTerms

Questions = Literal["any", "trained", "none"]
"""Which people a party scores after training."""


@dataclass(frozen=True)
class OwnPolicy:
    """What one participant agrees to; a policy without settings accepts everything.

    Parameters
    ----------
    solvers
        Allowed solvers; None is any.
    most_rounds
        Maximum number of communication rounds, over all trainings of all runs on its table.
    least_rows
        Minimum number of common rows.
    least_common
        Minimum number of its own rows that the label holder must have too, and of ids in a list that it compares its
        own with.
    participants
        Allowed participants; None is any.
    protected
        Whether clients' updates must have noise that amounts to a stated ε. Other runs are refused.
    most_epsilon
        Maximum ε of clients' updates. In a federation the ledger adds up the ε of all jobs on the same data.
    protection
        Minimum protection of a vertical run: ``"none"``, ``"masked"``, ``"dealer"`` or ``"encrypted"``.
    allow_experimental
        Whether a level that a known attack breaks counts for `protection`.
    never_send
        Kinds of messages that it never sends, whatever the terms, not even under masks or encryption.
    label_epsilon
        Maximum ε of label privacy; if set, label privacy is required.
    most_ids
        Maximum number of ids of another party that it compares its own with; if set, jobs without private ids are
        refused. None is the default under private ids.
    questions
        People that it scores after training: ``"any"`` in its table, ``"trained"``, the common rows of the run, or
        ``"none"``. None is ``"trained"`` under private ids, and ``"any"`` otherwise.
    most_asked
        Maximum number of people that may be asked for after one run, over all questions.
    rounds_before
        Returns how many rounds its table took before, in other runs and in earlier trainings of this one.
    lost_party
        ``"end"`` refuses jobs that go on when a party is gone for good.
    trainings
        Returns how often a run on these terms trains; by default once.
    least_summed
        Minimum number of participants in every combination of masked sums that this participant was in, over all jobs
        on its data. None lets a job decide within its run, and all jobs on its data must have the same participants.
    """

    solvers: Sequence[str] | None = None
    most_rounds: int | None = None
    least_rows: int = 0
    least_common: int = 0
    participants: Sequence[str] | None = None
    protected: bool = False
    never_send: Sequence[str] = ()
    protection: Protection = "none"
    label_epsilon: float | None = None
    allow_experimental: bool = False
    most_epsilon: float | None = None
    most_ids: int | None = None
    questions: Questions | None = None
    most_asked: int | None = None
    least_summed: int | None = None
    rounds_before: Callable[[], int] = lambda: 0
    lost_party: LostParty = "continue"
    trainings: Callable[[Terms], int] = lambda _: 1

    def __call__(self, terms: Terms) -> str | None:
        """Return why the participant refuses these terms, or None."""
        job = terms.job
        if self.solvers is not None and job.solver not in self.solvers:
            return f"it takes no part in solver {job.solver!r}, only in {', '.join(self.solvers) or 'none'}"
        if (too_many := self._too_many_rounds(terms)) is not None:
            return too_many
        # The draft does not contain the number of rows yet.
        if 0 < terms.n_rows < self.least_rows:
            return f"{terms.n_rows} common rows are fewer than its {self.least_rows}"
        if self.participants is not None:
            strangers = [name for name in terms.participants if name not in self.participants]
            if strangers:
                return f"it takes no part together with {', '.join(strangers)}"
        stated = terms.epsilon if isinstance(terms, HorizontalTerms) else None
        if self.protected and stated is None:
            return "it takes part only where noise covers all that clients send, with a stated ε"
        if self.most_epsilon is not None and isinstance(terms, HorizontalTerms):
            if stated is None:
                return f"the terms state no ε for what clients send; it wants at most {self.most_epsilon:g}"
            if stated > self.most_epsilon:
                return f"ε = {stated:g} is more than its {self.most_epsilon:g}"
        sums = isinstance(terms, HorizontalTerms) and terms.only_sums and not terms.noise_covers
        if sums and self.least_summed is not None and job.least_summed < self.least_summed:
            return f"the terms may show sums over {job.least_summed} clients; it wants {self.least_summed} or more"
        if job.lost_party == "continue" and self.lost_party == "end":
            return 'it takes part only where the run ends when a party is gone (lost_party = "end")'
        if (
            job.lost_party == "continue"
            and isinstance(terms, VerticalTerms)
            and terms.only_sums
            and (self.least_summed or 1) > 1
        ):
            return (
                "if the run goes on without a party, masked sums before and after differ by that party alone "
                f"(lost_party); it wants {self.least_summed} or more in every difference (least_summed)"
            )
        if self.protection != "none" and (job.protection == "auto" or _less(job.protection, self.protection)):
            return f"protection {job.protection!r} is less than its {self.protection!r}"
        if self.protection != "none" and job.experimental and not self.allow_experimental:
            return job.experimental
        if self.label_epsilon is not None:
            if job.label_privacy is None:
                return f"labels have no privacy by the terms; it wants label_privacy of at most {self.label_epsilon:g}"
            if job.label_privacy.epsilon > self.label_epsilon:
                return f"label_privacy of {job.label_privacy.epsilon:g} is more than its {self.label_epsilon:g}"
        return None

    def _too_many_rounds(self, terms: Terms) -> str | None:
        if self.most_rounds is None:
            return None
        times, a_training, before = self.trainings(terms), terms.job.max_rounds, self.rounds_before()
        if times * a_training + before <= self.most_rounds:
            return None
        why = f" (a rule for the cut trains {times} times, up to {a_training} rounds each)" if times > 1 else ""
        said = f"{times * a_training} rounds{why} are more than "
        if not before:
            return f"{said}its {self.most_rounds}"
        left = max(self.most_rounds - before, 0)
        return (
            f"{said}the {left} that are left of its {self.most_rounds}: its table took {before} before. "
            "Set a smaller max_rounds, or let the party raise most_rounds in its [policy]"
        )

    def check_common(self, name: str, shared: int) -> None:
        """Refuse to take part with so few rows that the label holder has too."""
        if shared < self.least_common:
            raise RunError(
                f"{name} shares {shared:,} rows with the others, fewer than the {self.least_common:,} of its policy "
                "(least_common), so it takes no part; sums over so few people tell about single ones"
            )

    def admit(self, asked: int, before: int) -> None:
        """Refuse a question for so many people, if as many as `before` were asked for after the same run."""
        if self.questions == "none":
            raise RunError("it answers no questions about people after training, by its policy (questions)")
        if self.most_asked is not None and before + asked > self.most_asked:
            raise RunError(
                f"{before:,} people were asked for before and {asked:,} are now; its policy allows {self.most_asked:,} "
                "after one run (most_asked)"
            )

    def veto(self, message: Message) -> str | None:
        """Return why a message may not be sent, or None."""
        kept = [kind for kind in (message.kind, *message.inside) if kind in self.never_send]
        return f"messages of kind {kept[0]!r} never leave it" if kept else None


def _less(given: Protection, wanted: Protection) -> bool:
    """Return whether one level is weaker than another; the two that hide ν are equal."""
    steps = {name: min(place, PROTECTIONS.index("dealer")) for place, name in enumerate(PROTECTIONS)}
    return steps[given] < steps[wanted]
