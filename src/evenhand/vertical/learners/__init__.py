"""Any model at any party: in a round each party fits a model of its own choice and sends one column.

The server, which holds labels and groups, sends first and second derivatives of the Lagrangian in every row's score.
Each party fits a model to the working response −g/h with weights h, keeps it, and sends its output for every row, of
unit spread. The server solves for the coefficients of all columns so far jointly, under the inequalities
(`programs/combining/`). The multipliers of that problem enter the next derivatives. At the end each party receives the
coefficients of its own columns.

What kind of model a party fits is known to nobody else. `subspace` is the same round with linear models, and `trees`
with a tree a party and a column a leaf. Scores are sums over parties: interactions across parties are not learned.
"""

from __future__ import annotations

from evenhand.constraints.families import LOSSES
from evenhand.protocol.solver import Solver
from evenhand.vertical.learners.messages import VOCABULARY
from evenhand.vertical.learners.options import Learners
from evenhand.vertical.learners.party import LearnersParty
from evenhand.vertical.learners.server import LearnersServer

__all__ = ["SOLVER"]

SOLVER = Solver(
    name="learners",
    split="vertical",
    options=Learners,
    server=LearnersServer,
    participant=LearnersParty,
    vocabulary=VOCABULARY,
    models=("own",),
    runtimes=("messages", "flower", "threads"),
    losses=LOSSES,
    exact=False,
    tol=1e-3,
    bounds_means=True,
    takes_weights=True,
    takes_label_privacy=True,
    protections=("none", "masked"),
    masked_by_default=True,
)
