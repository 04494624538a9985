"""Fair boosted trees across columns: one round for a whole tree of each party.

The server, which holds labels and groups, sends first and second derivatives of the Lagrangian in every row's score.
Each party grows whole trees on its own columns from them, with LightGBM. It answers with every row's leaf: one byte a
row and tree. The server then solves for the values of all new leaves of all parties jointly, under the inequalities
(`programs/combining/leaf_values.py`). The multipliers of that problem enter the next derivatives. At the end each party
receives the values of its own leaves, and predicts with them like any other party.

The trees of one party include no interaction with another party's columns.
"""

from __future__ import annotations

from evenhand.protocol.solver import Solver
from evenhand.protocol.terms import VerticalTerms
from evenhand.vertical.problem import Party, PartyData, ServerData
from evenhand.vertical.server import Server
from evenhand.vertical.trees.messages import VOCABULARY
from evenhand.vertical.trees.options import Trees

__all__ = ["SOLVER"]

# The compiler takes a second to load, so it is imported only where it is needed.


def _server(terms: VerticalTerms, own: ServerData) -> Server:
    from evenhand.vertical.trees.server import TreesServer

    return TreesServer(terms, own)


def _party(terms: VerticalTerms, name: str, own: PartyData) -> Party:
    from evenhand.vertical.trees.party import TreesParty

    return TreesParty(terms, name, own)


SOLVER = Solver(
    name="trees",
    split="vertical",
    options=Trees,
    server=_server,
    participant=_party,
    models=("trees",),
    losses=("logistic", "squared"),
    exact=False,
    takes_weights=True,
    takes_monotone=True,
    takes_label_privacy=True,
    vocabulary=VOCABULARY,
)
