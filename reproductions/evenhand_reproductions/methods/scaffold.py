"""SCAFFOLD (Karimireddy et al., "SCAFFOLD: Stochastic Controlled Averaging", ICML 2020, Algorithm 1, Option II).

Client i has a control c_i, the server the mean c. In K_i local steps from the received weights x the client takes

    y ← y − η (g_i(y) − c_i + c),      then   c_i ← c_i − c + (x − y) / (K_i η)

and the server

    x ← x + η_g Σ_i p_i (y_i − x),     c ← c + (|S|/N) Σ_i p_i (new c_i − old c_i)

The paper has equal shares p_i; here they are the clients' shares of the rows, its weighted form. The change of c_i is
−c + (x − y_i) / (K_i η), which the server computes itself, so clients send what they send in FedAvg.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from evenhand.arrays import Array
from evenhand.horizontal.averaging.build import averaging_solver
from evenhand.horizontal.averaging.messages import FEDAVG, MODEL, VOCABULARY, WEIGHTS
from evenhand.horizontal.averaging.rounds import AveragingClient
from evenhand.horizontal.problem import Single
from evenhand.protocol.asking import Body
from evenhand.protocol.job import Positive
from evenhand.protocol.messages import Message, Schema
from evenhand_reproductions.methods.server_steps import LocalOptions, SteppingServer, local_steps, with_broadcast

CONTROLLED_MODEL = Schema(
    "controlled-model",
    {**MODEL.fields, "control": WEIGHTS},
    direction=MODEL.direction,
    reveals=(
        "The model, and the mean of the clients' controls, to every client of the round. A control is close to the "
        "mean gradient of a client's rows. With two clients, each can compute the other's from its own."
    ),
)


@dataclass(frozen=True)
class Scaffold(LocalOptions):
    """Options of SCAFFOLD.

    Parameters
    ----------
    server_step
        η_g of the server.
    """

    server_step: Positive = 1.0


class ControllingServer(SteppingServer):
    """Server with the mean control c."""

    vocabulary = with_broadcast(VOCABULARY, CONTROLLED_MODEL)
    broadcast = CONTROLLED_MODEL
    state_fields: ClassVar = {"control": Array}

    options: Scaffold

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self.control = np.zeros(self.weights.size)

    def told(self) -> dict[str, Any]:
        return {**super().told(), "control": self.control.astype(np.float32)}

    def change(self, updates: Mapping[str, Body], shares: Mapping[str, float]) -> Array:
        step, sent = self.options.settings(self.round).step, self.control.astype(np.float32)
        moves = {name: body["weights"].astype(np.float64) for name, body in updates.items()}
        length = {name: step * local_steps(self.options, int(body["rows"])) for name, body in updates.items()}
        change = sum(shares[name] * (-sent - move / length[name]) for name, move in moves.items())
        self.control = self.control + len(updates) / len(self.clients) * change
        return self.options.server_step * self.mean_change(updates, shares)


class ControlledClient(AveragingClient):
    """Client with its own control c_i."""

    vocabulary = ControllingServer.vocabulary
    broadcast = CONTROLLED_MODEL
    state_fields: ClassVar = {"control": Single, "correction": Single}

    options: Scaffold

    def __init__(self, name: str, sizes: Mapping[str, int], *arguments: Any, **named: Any) -> None:
        super().__init__(name, sizes, *arguments, **named)
        self.control = np.zeros(sizes["weights"], dtype=np.float32)
        # c − c_i of the current round.
        self.correction = self.control

    def guidance(self, message: Message) -> Mapping[str, Any]:
        self.correction = message["control"] - self.control
        return {"shift": self.correction}

    def update(self, weights: Single, statistics: Single, multipliers: Array) -> Message:
        length = self.options.settings(self.round).step * local_steps(self.options, self.learner.n_rows)
        self.control = (-self.correction - weights / length).astype(np.float32)
        return super().update(weights, statistics, multipliers)


SOLVER = replace(
    averaging_solver(
        "scaffold",
        Scaffold,
        server=ControllingServer,
        client=ControlledClient,
        vocabulary=with_broadcast(FEDAVG, CONTROLLED_MODEL),
        takes_constraints=False,
    ),
    protections=("none",),
    takes_noise=False,
    models=("linear", "mlp"),
)
