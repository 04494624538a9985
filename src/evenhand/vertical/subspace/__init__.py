"""Subspace: fair in ten rounds.

The server sends ν = ∂f/∂z at the present scores and multipliers. Party k answers with its own direction

    d_k = −(X_kᵀ W X_k + μI)⁻¹ (X_kᵀν + μθ_k),

as the change X_k d_k that it would make to every row's score. W is the curvature of the loss on each row, which follows
from ν (`party.py`). The server holds labels and groups. It can therefore evaluate objective and constraints for any
combination of the parties' directions and last few steps. It solves for the best one exactly (`reduced.py`): a
constrained problem in a few dozen variables, the *tiny problem*. It returns each party its few coefficients.

Constraints hold to the solver's precision after the first round or two. The multipliers of the tiny problem are λ of
the next round. Neither objective nor violation ever gets worse.

All columns of the label holder enter the tiny problem directly (`blocks.py`), because the server works at its side. The
label holder needs no direction.

Past steps cost no messages: the server keeps their columns, and the party keeps the steps.

Bounds on rates need extra steps at the server: see `rate_search.py`.
"""

from evenhand.constraints.families import LOSSES
from evenhand.protocol.solver import Solver
from evenhand.vertical.messages import SUBSPACE
from evenhand.vertical.subspace.party import Subspace, SubspaceParty
from evenhand.vertical.subspace.server import SubspaceServer

__all__ = ["SOLVER"]

SOLVER = Solver(
    name="subspace",
    split="vertical",
    options=Subspace,
    server=SubspaceServer,
    participant=SubspaceParty,
    vocabulary=SUBSPACE,
    takes_confidence=True,
    bounds_means=True,
    takes_weights=True,
    takes_monotone=True,
    models=("linear",),
    losses=LOSSES,
    many_classes=True,
    curves=True,
    tol=1e-3,
    protections=("none", "masked", "dealer", "encrypted"),
    masked_by_default=True,
    takes_label_privacy=True,
)
