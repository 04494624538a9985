"""What methods share that weight the rows of each slice: the server chooses the weights, clients train with them.

Slices are those of the job's constraints, and their risks are means of the constraints' measure over all clients' rows,
or of its exact counterpart. Clients report both sums of each slice in every round, as for the history of all averaging
solvers.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from evenhand.arrays import Array
from evenhand.constraints.kinds import LossParity
from evenhand.constraints.slices import Bounds
from evenhand.horizontal.averaging.build import averaging_solver
from evenhand.horizontal.averaging.formulation import Formulation
from evenhand.horizontal.averaging.messages import FEDAVG, MODEL, PER_PART, SUMS, VOCABULARY
from evenhand.horizontal.averaging.options import RoundSettings
from evenhand.horizontal.averaging.rounds import AveragingClient
from evenhand.protocol.asking import Body
from evenhand.protocol.messages import Message, Schema
from evenhand.protocol.solver import Solver
from evenhand_reproductions.methods.server_steps import LossOptions, SteppingServer, with_broadcast

if TYPE_CHECKING:
    from torch import Tensor

    from evenhand.horizontal.averaging.bound_tensors import BoundTensors

WEIGHTED_MODEL = Schema(
    "weighted-model",
    {**MODEL.fields, "emphasis": PER_PART},
    direction=MODEL.direction,
    reveals=(
        "The model, and what each slice adds to the weight of its rows, to every client of the round. The weights tell "
        "which slices have large risks over all clients."
    ),
)


class WeightingServer(SteppingServer):
    """Server that chooses the weight of each slice from the slices' risks.

    Attributes
    ----------
    slice_shares
        (P,): the weight of each slice in the objective; the share of its rows at first. Empty before the first report.
    risk
        Which of the reported sums risks are of: ``"sums"`` of the measure, or ``"exact"``.
    """

    vocabulary = with_broadcast(VOCABULARY, WEIGHTED_MODEL)
    broadcast = WEIGHTED_MODEL
    risk: ClassVar = "sums"
    state_fields: ClassVar = {"slice_shares": Array, "emphasis": Array}

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self.slice_shares = np.zeros(0)
        self.emphasis = np.zeros(len(self.means.parts))

    def told(self) -> dict[str, Any]:
        return {**super().told(), "emphasis": self.emphasis}

    def change(self, updates: Mapping[str, Body], shares: Mapping[str, float]) -> Array:
        told = list(self.answers.of(SUMS.kind).values())
        counts = np.sum([body["counts"] for body in told], axis=0)
        risks = np.sum([body[self.risk] for body in told], axis=0) / np.maximum(counts, 1.0)
        of_rows = counts / sum(int(body["rows"]) for body in told)
        before = self.slice_shares if self.slice_shares.size else of_rows
        self.slice_shares = self.next_shares(before, risks, of_rows)
        self.emphasis = np.divide(self.slice_shares, of_rows, out=np.ones_like(of_rows), where=of_rows > 0) - 1.0
        return self.mean_change(updates, shares)

    @property
    def alike(self) -> list[list[int]]:
        """The slices of each label, which a method compares; all slices if they name no label."""
        labels = [part.label for _, part in self.means.parts]
        return [[place for place, other in enumerate(labels) if other == label] for label in dict.fromkeys(labels)]

    @abstractmethod
    def next_shares(self, shares: Array, risks: Array, of_rows: Array) -> Array:
        """Return the weights of the slices for the next round, from the present ones and the slices' shares of rows."""


class WeightedClient(AveragingClient):
    """Client that weights its rows as the server says."""

    vocabulary = WeightingServer.vocabulary
    broadcast = WEIGHTED_MODEL

    def guidance(self, message: Message) -> Mapping[str, Any]:
        return {"emphasis": message["emphasis"]}


class NoMultipliers:
    """The methods have no multipliers: weights of slices take their place."""

    def __init__(self, bounds: Bounds) -> None:
        self._rows = bounds.n_rows

    def __len__(self) -> int:
        return 0

    def excess(self, values: Array) -> Array:
        return np.zeros(0)

    def project(self, multipliers: Array) -> Array:
        return multipliers

    def table(self, multipliers: Array, values: Array) -> Array:
        return np.zeros((2, self._rows))


class WeightedLoss(Formulation):
    """The mean loss over weighted rows; inequalities only name the slices."""

    def __init__(self, bounds: Bounds) -> None:
        super().__init__(bounds)
        self.multipliers = NoMultipliers(bounds)

    def push(self, values: Tensor | None, multipliers: Tensor, bounds: BoundTensors, settings: RoundSettings) -> Tensor:
        return multipliers.new_zeros((len(multipliers), len(bounds.lower)))

    def ascent(self, values: Array, settings: RoundSettings) -> Array:
        return np.zeros(0)


def weighting_solver(name: str, options: type[LossOptions], server: type[WeightingServer]) -> Solver[Any, Any]:
    """Return the registry entry of a method that weights slices."""
    made = averaging_solver(
        name,
        options,
        formulation=WeightedLoss,
        server=server,
        client=WeightedClient,
        vocabulary=with_broadcast(FEDAVG, WEIGHTED_MODEL),
        default_constraints=(LossParity(0.0),),
    )
    return replace(made, protections=("none",), takes_noise=False, models=("linear", "mlp"))
