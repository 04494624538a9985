"""What comes before training, in one process: participants are enrolled, rows aligned, encodings and groups agreed on.

The same exchanges that a deployment has, between the same roles; their messages open the run's transcript.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

import numpy as np
import pandas as pd

from evenhand.arrays import Array, Integers
from evenhand.data.tables.align import align, check_ids
from evenhand.errors import DataError, InputError
from evenhand.protocol.agree import AgreeClient, AgreeServer, LabelParty, LabelServer, Summary
from evenhand.protocol.align import AlignParty, AlignServer, How
from evenhand.protocol.enrol import EnrolParty, EnrolServer, Policy, anything
from evenhand.protocol.roles import Role
from evenhand.protocol.terms import Terms
from evenhand.protocol.transcript import Transcript
from evenhand.runtime.inprocess import InProcess

AnyTerms = TypeVar("AnyTerms", bound=Terms)


class Preparation:
    """The exchanges before a run, one after the other.

    Attributes
    ----------
    transcript
        Their messages; the run goes on with it.
    """

    def __init__(self, policies: Mapping[str, Policy] | None = None) -> None:
        self.transcript = Transcript()
        self._policies = policies or {}
        self._accepted: Terms | None = None

    def enrol(self, terms: AnyTerms) -> AnyTerms:
        """Offer terms to everybody; the second time they must be what the draft became."""
        parties = [
            EnrolParty(name, type(terms), self._policies.get(name, anything), self._accepted) for name in terms.names
        ]
        server = EnrolServer(terms)
        self._run(server, parties)
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
        self._run(server, list(parties.values()))
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
        self._run(server, clients)
        assert clients[0].agreed is not None
        return clients[0].agreed

    def hand_labels(self, active: Sequence[str], labels: Array, codes: Mapping[str, Integers]) -> None:
        """Labels and groups from their holder to further active parties."""
        if active:
            parties = [LabelParty(name, len(labels), list(codes)) for name in active]
            self._run(LabelServer(active, labels, codes), parties)

    def _run(self, server: Role, participants: Sequence[Role]) -> None:
        InProcess([server, *participants], transcript=self.transcript).run()


def take_rows(table: pd.DataFrame, places: Integers) -> pd.DataFrame:
    """Some rows in an order; the table itself where that is all of them as they are."""
    return table if in_order(places, len(table)) else table.iloc[places]


def in_order(places: Integers, n_rows: int) -> bool:
    return len(places) == n_rows and bool((places == np.arange(n_rows)).all())
