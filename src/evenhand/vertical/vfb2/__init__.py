"""VFB²: vertical learning with backward updating, asynchronous on two levels; SGD, SVRG and SAGA.

The server opens and closes rounds (`server`). Active parties draw rows, have their scores summed, and send ϑ, the
derivative of the loss, to all parties (a dominated update: `dominator`, VFB² Algorithm 2). All parties score rows
behind masks (`aggregation`, VFB² Algorithm 1) and update their own blocks (a collaborative update: `party`,
VFB² Algorithm 3). `staleness` defines how far a party may run ahead. The method also works with one or two parties, but
then masks hide nothing.

`interleaver` does the work of all parties in one compiled loop, and `compiled` is the role around it.
"""

from __future__ import annotations

from collections.abc import Mapping

from evenhand.protocol.solver import Solver
from evenhand.protocol.terms import VerticalTerms
from evenhand.vertical.problem import Party, PartyData, ServerData
from evenhand.vertical.server import CompiledRun, Server
from evenhand.vertical.vfb2.messages import VOCABULARY
from evenhand.vertical.vfb2.options import AFSAGAVP, AFSGDVP, AFSVRGVP, VFB2, VFB2SAGA, VFB2SGD, VFB2SVRG

# The compiler takes a second to load, so it is imported only where it is needed.


def _server(terms: VerticalTerms, own: ServerData) -> Server:
    from evenhand.vertical.vfb2.server import VFB2Server

    return VFB2Server(terms, own)


def _party(terms: VerticalTerms, name: str, own: PartyData) -> Party:
    from evenhand.vertical.vfb2.dominator import VFB2ActiveParty
    from evenhand.vertical.vfb2.party import VFB2PassiveParty

    kind = VFB2ActiveParty if terms.participants[name] == "active" else VFB2PassiveParty
    return kind(terms, name, own)


def _compiled(terms: VerticalTerms, own: ServerData, parties: Mapping[str, PartyData]) -> CompiledRun:
    from evenhand.vertical.vfb2.compiled import CompiledVFB2

    return CompiledVFB2(terms, own, parties)


def _solver(name: str, options: type[VFB2], exact: bool) -> Solver[Server, Party]:
    return Solver(
        name=name,
        split="vertical",
        options=options,
        server=_server,
        participant=_party,
        models=("linear",),
        losses=("logistic", "squared"),
        compiled=_compiled,
        # Flower does not support messages between parties that compute at the same time.
        runtimes=("messages", "interleaved", "threads"),
        exact=exact,
        agrees_on_keys=True,
        vocabulary=VOCABULARY,
    )


SOLVERS = (
    _solver("vfb2-sgd", VFB2SGD, exact=False),
    _solver("vfb2-svrg", VFB2SVRG, exact=True),
    _solver("vfb2-saga", VFB2SAGA, exact=True),
    _solver("afsgd-vp", AFSGDVP, exact=False),
    _solver("afsvrg-vp", AFSVRGVP, exact=False),
    _solver("afsaga-vp", AFSAGAVP, exact=False),
)
