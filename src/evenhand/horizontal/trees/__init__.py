"""Boosted trees across clients by summed histograms: the trees of the pooled rows, under any constraint.

Columns are first binned, from counts that add up (`binning.py`). A tree then grows one level a round: clients sum
derivatives by bin of each column in all open nodes, and the server adds these sums and splits nodes (`splits.py`). Leaf
values need one more round of sums, by leaf, stratum (label and groups) and score (`strata.py`). The server solves for
them under the inequalities, with the same solver as vertical trees.

All answers of clients are sums of integers. So the sum does not depend on the partition of the rows: the trees equal
those of one client with all rows, bit for bit.
"""

from __future__ import annotations

from evenhand.horizontal.problem import ClientData, HorizontalServerData
from evenhand.horizontal.roles import HorizontalClient, HorizontalServer
from evenhand.horizontal.trees.messages import VOCABULARY
from evenhand.models.growth import HistogramTrees
from evenhand.protocol.job import Job
from evenhand.protocol.solver import Solver
from evenhand.protocol.terms import HorizontalTerms

__all__ = ["SOLVER"]

# The compiler takes a second to load, so it is imported only when needed.


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
    tol=1e-3,
    default_rounds=300,
)
