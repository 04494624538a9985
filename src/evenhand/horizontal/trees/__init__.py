"""Boosted trees across clients, by summed histograms: the trees of the pooled rows, under any constraint of the house.

Columns are cut into bins first, from counts that add up (`binning.py`). A tree then grows a level a round: clients sum
up derivatives by bin of each column in all nodes that are open, the server adds these up and splits nodes
(`splits.py`). Leaf values come from one more round of sums, by leaf, label and group and score (`cells.py`), under the
constraint rows, by the solver that leaves across columns have too.

Clients' answers are sums of whole numbers throughout. So they add up to the same whatever rows are where: the trees are
those of one client that has all rows, to the bit.
"""

from __future__ import annotations

from evenhand.horizontal.problem import ClientData, HorizontalServerData
from evenhand.horizontal.roles import HorizontalClient, HorizontalServer
from evenhand.horizontal.trees.messages import VOCABULARY
from evenhand.horizontal.trees.options import HistogramTrees
from evenhand.protocol.job import Job
from evenhand.protocol.solver import Solver
from evenhand.protocol.terms import HorizontalTerms

__all__ = ["SOLVER"]

# The compiler takes a second to load, so it is loaded only by who needs it.


def _options(job: Job) -> HistogramTrees:
    found: HistogramTrees = SOLVER.settings(job)
    return found


def _server(terms: HorizontalTerms, own: HorizontalServerData) -> HorizontalServer:
    from evenhand.horizontal.trees.server import HistogramServer

    return HistogramServer(terms, own, _options(terms.job))


def _client(terms: HorizontalTerms, name: str, own: ClientData) -> HorizontalClient:
    from evenhand.horizontal.trees.client import HistogramClient

    return HistogramClient(terms, name, own, _options(terms.job))


SOLVER = Solver(
    name="trees",
    split="horizontal",
    options=HistogramTrees,
    server=_server,
    participant=_client,
    vocabulary=VOCABULARY,
    models=("trees",),
    protections=("none", "masked"),
    weighs_rows=True,
    default_rounds=300,
)
