"""FedBCD, the baseline of the papers: the roles of FairVFL without constraints.

Round:

1. The server sums the parties' latest scores to z. It sends passive parties ν, and active parties z.
2. Each party takes gradient steps in its own weights: passive parties one, active parties up to Q.
3. Each party answers with its new scores, ‖θ_k‖² and the length of its move.
4. The server solves nothing: without constraints there are no multipliers to update.
5. It stops when the parties' moves over the step meet the tolerance, or at the round limit.

That is FedBCD as FairVFL's experiments have it. In its own paper (Liu et al., "A Communication-Efficient Collaborative
Learning Framework for Distributed Features", 2019, the parallel FedBCD-p) steps are stochastic, and every party takes Q
of them between two exchanges: `batch_size` and ``local_steps_at="all"``. All Q steps of a round are on the same rows.
A passive party has no labels, so ν stays as received; what is fresh in its later steps are its own weights.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import ClassVar, Literal

import numpy as np

from evenhand.arrays import Array
from evenhand.protocol.job import Count
from evenhand.protocol.solver import Solver
from evenhand.vertical import fairvfl
from evenhand.vertical.fairvfl_schedule import FairVFL
from evenhand.vertical.messages import FAIRVFL


@dataclass(frozen=True)
class FedBCD(FairVFL):
    """FedBCD: parties take gradient steps on their own blocks. It takes no constraint.

    Parameters are those of `FairVFL`; those of multipliers have no effect.

    Parameters
    ----------
    batch_size
        Number of rows in the steps of a round, drawn anew in every round from the job's seed. None takes all rows.
        Parties still send the scores of all rows, because the server reports the objective in every round.
    local_steps_at
        Who takes Q steps in a round: ``"active"`` parties, as in FairVFL, or ``"all"``.
    """

    batch_size: Count | None = None
    local_steps_at: Literal["active", "all"] = "active"

    @property
    def passive_steps(self) -> int:
        return self.local_steps if self.local_steps_at == "all" else 1

    def on_batch(self, nu: Array, seed: int, round_number: int) -> Array:
        """Return n / |S| times the derivatives of the rows S of this round, and zero for others."""
        rows = nu.shape[-1]
        if self.batch_size is None or self.batch_size >= rows:
            return nu
        chosen = np.random.default_rng([seed, round_number]).choice(rows, self.batch_size, replace=False)
        found = np.zeros_like(nu)
        found[..., chosen] = nu[..., chosen] * (rows / self.batch_size)
        return found


class FedBCDServer(fairvfl.FairVFLServer):
    option_class: ClassVar = FedBCD


class FedBCDPassiveParty(fairvfl.FairVFLPassiveParty):
    option_class: ClassVar = FedBCD


class FedBCDActiveParty(fairvfl.FairVFLActiveParty):
    option_class: ClassVar = FedBCD


SOLVER = Solver(
    name="fedbcd",
    split="vertical",
    options=FedBCD,
    server=FedBCDServer,
    participant=partial(fairvfl.party, active=FedBCDActiveParty, passive=FedBCDPassiveParty),
    vocabulary=FAIRVFL,
    models=("linear", "mlp"),
    runtimes=("messages", "flower", "threads"),
    takes_constraints=False,
    takes_weights=True,
    takes_label_privacy=True,
)
