"""What comes before horizontal training, in one process: clients are enrolled, encodings and groups agreed on.

The same exchanges that a deployment has, between the same roles; their messages open the run's transcript.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from evenhand.data.tables.encoding import PartyEncoder
from evenhand.errors import InputError
from evenhand.protocol.agree import AgreeClient, AgreeServer, Summary
from evenhand.protocol.enrol import EnrolParty, EnrolServer, Policy, anything
from evenhand.protocol.roles import Role
from evenhand.protocol.terms import Terms
from evenhand.protocol.transcript import Transcript
from evenhand.runtime.inprocess import InProcess

AnyTerms = TypeVar("AnyTerms", bound=Terms)


class Preparation:
    """The exchanges before a run, one after the other.

    Parameters
    ----------
    transcript
        To begin with; None is a new one.

    Attributes
    ----------
    transcript
        Their messages; the run goes on with it.
    """

    def __init__(self, policies: Mapping[str, Policy] | None = None, transcript: Transcript | None = None) -> None:
        self.transcript = Transcript() if transcript is None else transcript
        self._policies = policies or {}
        self._accepted: Terms | None = None

    def copy(self) -> Preparation:
        """Another one at the same point, so that several runs can go on from here."""
        other = Preparation(self._policies)
        other.transcript, other._accepted = self.transcript.copy(), self._accepted
        return other

    def enrol(self, terms: AnyTerms) -> AnyTerms:
        """Offer terms to everybody; the second time they must be what the draft became."""
        parties = [
            EnrolParty(name, type(terms), self._policies.get(name, anything), self._accepted)
            for name in terms.participants
        ]
        server = EnrolServer(terms)
        self.run(server, parties)
        if server.refusals:
            told = "; ".join(f"{name}: {reason}" for name, reason in server.refusals.items())
            raise InputError(f"the terms were refused by {told}")
        # As it was read from the message: what everybody holds from here on.
        self._accepted = parties[0].terms
        return terms

    def agree(self, summaries: Mapping[str, Summary], combine: Callable[[Mapping[str, Summary]], Summary]) -> Summary:
        """What comes out when everybody's summaries are put together."""
        server = AgreeServer(list(summaries), combine)
        clients = [AgreeClient(name, summary) for name, summary in summaries.items()]
        self.run(server, clients)
        assert clients[0].agreed is not None
        return clients[0].agreed

    def encoder(self, learned: Mapping[str, PartyEncoder], scale: bool, as_is: bool = False) -> PartyEncoder:
        """How everybody's columns are encoded, from what each client has learned of its own."""
        summaries = {name: one.to_summary() for name, one in learned.items()}
        rules = next(iter(learned.values())).rules
        made: list[PartyEncoder] = []

        def combine(told: Mapping[str, Summary]) -> Summary:
            made.append(PartyEncoder.from_summaries(told, scale=scale, as_is=as_is, **vars(rules)))
            return made[-1].to_state()

        agreed = PartyEncoder.from_state(dict(self.agree(summaries, combine)))
        agreed.remarks = made[-1].remarks
        return agreed

    def run(self, server: Role, participants: Sequence[Role]) -> None:
        """An exchange, in which everybody has a role."""
        InProcess([server, *participants], transcript=self.transcript).run()
