"""What comes before training, in one process: participants are enrolled, rows aligned, encodings and groups agreed on.

The same exchanges that a deployment has, between the same roles; their messages open the run's transcript.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np
import pandas as pd

from evenhand.arrays import Array, Integers
from evenhand.constraints.binding import compared_groups
from evenhand.constraints.groups import group_codes, groups_frame, groups_of
from evenhand.data.tables.align import align, check_ids
from evenhand.data.tables.encoding import PartyEncoder
from evenhand.errors import DataError, InputError
from evenhand.protocol.agree import AgreeClient, AgreeServer, LabelParty, LabelServer, Summary
from evenhand.protocol.align import AlignParty, AlignServer, How
from evenhand.protocol.enrol import EnrolParty, EnrolServer, Policy, anything
from evenhand.protocol.job import Job
from evenhand.protocol.roles import Role
from evenhand.protocol.terms import Part, Terms, VerticalTerms
from evenhand.protocol.transcript import Transcript
from evenhand.runtime.inprocess import InProcess
from evenhand.vertical.solvers import vertical_terms

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

    def align(self, ids: Mapping[str, pd.Index | int], how: How = "equal") -> dict[str, Integers]:
        """For each party the rows of its table that all have, in one order; `ids` is a number where rows have none."""
        for name, index in ids.items():
            if not isinstance(index, int):
                check_ids(index, name)
        parties = {name: AlignParty(name, index) for name, index in ids.items()}
        server = AlignServer(list(ids), how)
        self.run(server, list(parties.values()))
        if server.problem:
            # All ids are in this process: the error can name some.
            known = {name: pd.DataFrame(index=index) for name, index in ids.items() if not isinstance(index, int)}
            if known:
                align(list(known.values()), list(known), how)
            raise DataError(server.problem)
        return {name: party.places for name, party in parties.items() if party.places is not None}

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

    def vertical_terms(
        self,
        job: Job,
        parts: Mapping[str, Part],
        holder: str,
        labels: Array,
        sensitive: pd.DataFrame | None,
        *,
        warm: bool = False,
    ) -> VerticalTerms:
        """The terms of aligned rows, accepted by all; active parties beside the holder of the labels then get them."""
        frame = groups_frame(sensitive, len(labels))
        _, groups = compared_groups(job.constraints, labels, frame)
        terms = self.enrol(vertical_terms(job, parts, len(labels), groups, warm=warm))
        self._hand_labels(
            [name for name in terms.active if name != holder], labels, group_codes(frame, groups_of(frame))
        )
        return terms

    def _hand_labels(self, active: Sequence[str], labels: Array, codes: Mapping[str, Integers]) -> None:
        """Labels and groups from their holder to further active parties."""
        if active:
            parties = [LabelParty(name, len(labels), list(codes)) for name in active]
            self.run(LabelServer(active, labels, codes), parties)

    def run(self, server: Role, participants: Sequence[Role]) -> None:
        """An exchange, in which everybody has a role."""
        InProcess([server, *participants], transcript=self.transcript).run()


def take_rows(table: Any, places: Integers) -> Any:
    """Some rows of a table, series or array in an order; itself where that is all of them as they are."""
    n_rows = table.shape[0]
    if len(places) == n_rows and bool((places == np.arange(n_rows)).all()):
        return table
    return table.iloc[places] if isinstance(table, (pd.DataFrame, pd.Series)) else table[places]
