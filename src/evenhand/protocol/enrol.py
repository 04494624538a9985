"""Enrol participants: the server offers terms, and each participant accepts them or says why not.

Terms are offered twice: as a draft before anything about data is sent, and complete when rows and groups are known. A
participant decides by its own policy, and refuses complete terms that differ from the draft.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, TypeAlias

from evenhand.errors import ProtocolError
from evenhand.protocol.disclosure import PARTICIPANT_TO_SERVER, SERVER_TO_PARTICIPANTS, Coverage
from evenhand.protocol.messages import TEXT, Message, Schema, Vocabulary, as_bytes
from evenhand.protocol.roles import SERVER, Follower, Role, Sends
from evenhand.protocol.terms import Terms
from evenhand.protocol.versions import objection, own_version

Policy: TypeAlias = Callable[[Terms], str | None]
"""A participant's policy: returns None to accept the terms, or the reason to refuse."""

OFFER = Schema(
    "offer",
    {"terms": TEXT, "version": TEXT},
    direction=SERVER_TO_PARTICIPANTS,
    reveals=(
        "The terms, to every participant: the job with its constraints and solver, the participants and their "
        "roles. The second offer also has the number of rows, the groups and, for clients, the agreement "
        "about columns and slices. The version of the server's software. Nothing else about any participant's rows."
    ),
)
ACCEPTED = Schema(
    "accepted",
    {"terms": TEXT, "version": TEXT},
    direction=PARTICIPANT_TO_SERVER,
    reveals="That the sender accepts the terms with this digest, and the version of its software.",
    coverage=Coverage(noise_covers=True),
)
REFUSED = Schema(
    "refused",
    {"reason": TEXT},
    direction=PARTICIPANT_TO_SERVER,
    reveals="That the sender does not take part, and its reason.",
    coverage=Coverage(noise_covers=True),
)
OUTCOME = Schema(
    "outcome",
    {"reason": TEXT},
    direction=SERVER_TO_PARTICIPANTS,
    reveals="That all participants have accepted (no reason), or which one has not and why; to every participant.",
)
VOCABULARY = Vocabulary(OFFER, ACCEPTED, REFUSED, OUTCOME, title="Before training: enrolling")


def anything(_: Terms) -> str | None:
    """Accept everything: the policy of a process that holds all participants."""
    return None


class EnrolServer(Role):
    """Offer terms.

    Attributes
    ----------
    refusals
        Reasons of refusal by participant.
    versions
        What each participant that accepts runs.
    """

    vocabulary = VOCABULARY
    state_fields: ClassVar = {"answered": set[str], "refusals": dict[str, str], "versions": dict[str, str]}

    def __init__(self, terms: Terms) -> None:
        super().__init__(SERVER, {})
        self.terms = terms
        self.answered: set[str] = set()
        self.refusals: dict[str, str] = {}
        self.versions: dict[str, str] = {}

    def start(self) -> Sends:
        text, version = as_bytes(self.terms.to_plain()), as_bytes(own_version().to_text())
        return [OFFER.message(SERVER, name, terms=text, version=version) for name in self.terms.participants]

    def handle(self, message: Message) -> Sends:
        if message.sender not in self.terms.participants or message.sender in self.answered:
            raise ProtocolError(f"the server has no open offer to {message.sender!r}; its message is refused")
        if message.kind == REFUSED.kind:
            self.refusals[message.sender] = message.text("reason")
        elif message.kind != ACCEPTED.kind or message.text("terms") != self.terms.digest:
            raise ProtocolError(f"{message.sender} answers other terms than it was offered; its message is refused")
        elif reason := objection(version := message.text("version"), own_version().to_text()):
            self.refusals[message.sender] = reason
        else:
            self.versions[message.sender] = version
        self.answered.add(message.sender)
        if len(self.answered) < len(self.terms.participants):
            return ()
        self.done = True
        self.restored()
        reason = "; ".join(f"{name}: {why}" for name, why in self.refusals.items())
        return [OUTCOME.message(SERVER, name, reason=as_bytes(reason)) for name in self.terms.participants]

    def restored(self) -> None:
        """List answers in the order of the terms, not in that of their arrival."""
        self.versions = {name: self.versions[name] for name in self.terms.participants if name in self.versions}
        self.refusals = {name: self.refusals[name] for name in self.terms.participants if name in self.refusals}


class EnrolParty(Follower):
    """Receive terms and decide.

    Parameters
    ----------
    kind
        Class of terms that the participant understands.
    policy
        Its policy.
    draft
        Terms it accepted before, if any: job and participants must be the same.
    """

    vocabulary = VOCABULARY
    state_fields: ClassVar = {"offered": Any, "outcome": str | None, "refusal": str, "servers_version": str}

    def __init__(self, name: str, kind: type[Terms], policy: Policy = anything, draft: Terms | None = None) -> None:
        super().__init__(name, {})
        self._kind = kind
        self._policy = policy
        self._draft = draft
        self.terms: Terms | None = None
        self.outcome: str | None = None
        self.refusal = ""
        """Why the participant itself has refused the terms; empty if it has not."""
        self.servers_version = ""

    def handle(self, message: Message) -> Sends:
        if message.kind == OFFER.kind and self.terms is None and not self.refusal:
            version = message.text("version")
            # Terms of another protocol may not be readable.
            if reason := objection(own_version().to_text(), version):
                self.refusal = reason
                return [REFUSED.message(self.name, SERVER, reason=as_bytes(reason))]
            terms = self._kind.from_text(message.text("terms"))
            self.terms, self.servers_version = terms, version
            reason = self._objection(terms) or self._policy(terms)
            if reason:
                self.refusal = reason
                return [REFUSED.message(self.name, SERVER, reason=as_bytes(reason))]
            version = own_version().to_text()
            return [ACCEPTED.message(self.name, SERVER, terms=as_bytes(terms.digest), version=as_bytes(version))]
        if message.kind == OUTCOME.kind and (self.terms is not None or self.refusal):
            # A server that goes on all the same does not get around a policy.
            self.outcome, self.done = message.text("reason") or self.refusal, True
            return ()
        raise ProtocolError(f"{self.name} takes no {message.kind!r} at this point")

    def _objection(self, terms: Terms) -> str | None:
        if self.name not in terms.participants:
            return f"{self.name!r} is not among the participants"
        if self._draft is not None:
            # Compared as JSON: a tuple and a list are the same setting.
            offered, accepted = terms.settled, self._draft.settled
            if changed := [name for name in accepted if offered[name] != accepted[name]]:
                return f"{changed[0]}: the offered terms differ from the accepted ones"
        return None

    @property
    def offered(self) -> dict[str, Any] | None:
        """Return the terms as plain values, for checkpoints."""
        return None if self.terms is None else self.terms.to_plain()

    @offered.setter
    def offered(self, plain: dict[str, Any] | None) -> None:
        self.terms = None if plain is None else self._kind.from_plain(plain)
