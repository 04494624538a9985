"""Subspace: fair in ten rounds.

Round: the server sends ν = ∂f/∂z at the present scores and multipliers. Party k answers with its own direction

    d_k = −(X_kᵀ W X_k + μI)⁻¹ (X_kᵀν + μθ_k),

with the curvature W of the loss on each row, which ν tells (`party.py`), as the change X_k d_k it would make to every
row's score. The server, which holds labels and groups, then knows what any combination of the parties' directions and
of their last few steps would do to objective and constraints, and solves for the best one exactly (`reduced.py`): a
constrained problem in a few dozen variables. It returns each party its few coefficients. Constraints hold to the
solver's precision after the first round or two, the tiny problem's multipliers are next round's λ, and neither
objective nor violation ever gets worse.

All columns of the party that holds the labels, at whose side the server works, are in that problem as they are
(`blocks.py`): it needs no direction.

Past steps cost no messages: the server keeps their columns, the party keeps the steps.

Bounds on rates need some care of the server's own: see `rates.py`.
"""

from evenhand.protocol.job import PROTECTIONS
from evenhand.protocol.solver import Solver
from evenhand.vertical.messages import SUBSPACE
from evenhand.vertical.subspace.options import Subspace
from evenhand.vertical.subspace.party import SubspaceParty
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
    takes_weights=True,
    models=("linear",),
    tol=1e-3,
    protections=PROTECTIONS,
    masked_by_default=True,
    takes_label_privacy=True,
)
