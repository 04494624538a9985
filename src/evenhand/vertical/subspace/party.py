"""A party of the subspace solver."""

from __future__ import annotations

import numpy as np

from evenhand.arrays import Array
from evenhand.constraints.losses import LOSSES
from evenhand.errors import ProtocolError
from evenhand.models.linear import LinearModel
from evenhand.models.preconditioner import make_preconditioner
from evenhand.protocol.messages import Message
from evenhand.protocol.roles import SERVER, Sends, State
from evenhand.protocol.terms import VerticalTerms
from evenhand.vertical.messages import COEFFICIENTS, DERIVATIVE, DIRECTION, GO_BACK, SCORES
from evenhand.vertical.parties import GradientParty
from evenhand.vertical.problem import PartyData
from evenhand.vertical.subspace.options import SubspaceOptions

LEAST_CURVATURE = 0.08
"""Share of its bound that the curvature of a row is taken for at least: a row that seems settled may yet move."""


class SubspaceParty(GradientParty):
    """Forms directions from its own columns, and goes where the server's coefficients say."""

    model: LinearModel

    def __init__(self, terms: VerticalTerms, name: str, own: PartyData) -> None:
        super().__init__(terms, name, own)
        self.history = SubspaceOptions(**terms.job.options).steps_kept(len(terms.names))
        self.sizes = {**self.sizes, "basis": self.history + 1}
        self.loss = LOSSES[terms.job.loss]
        bound = self.loss.curvature_bound / terms.n_rows
        self.preconditioner = make_preconditioner(self.model.matrix, bound, self.model.regulariser)
        self.direction: Array = np.zeros(self.model.columns)
        self.steps: list[Array] = []
        self.best: Array | None = None

    def start(self) -> Sends:
        """Where a run begins with weights of an earlier one, what they score; at zero there is nothing to say."""
        if not self.terms.warm:
            return ()
        body = {"scores": self.own_scores(), "squared_norm": self.model.squared_norm(), "squared_move": 0.0}
        return [SCORES.message(self.name, SERVER, round=0, sequence=1, **body)]

    def handle(self, message: Message) -> Sends:
        self.round = message.integer("round")
        if message.kind == DERIVATIVE.kind:
            if message.integer("last"):
                return [self.gradient_norm(message["nu"])]
            return [self._propose(message["nu"])]
        if message.kind == COEFFICIENTS.kind:
            self._go(message["coefficients"], message.number("intercept"))
            if message.integer("keep"):
                self.best = self.model.weights.copy()
            self.done = bool(message.integer("last"))
            return ()
        if message.kind == GO_BACK.kind and self.best is not None:
            self.model.weights = self.best.copy()
            return ()
        raise ProtocolError(f"{self.name} takes no {message.kind!r}")

    def _propose(self, nu: Array) -> Message:
        gradient = self.gradient(nu)
        slope = gradient[: self.model.columns]
        self.direction = -self.preconditioner.solve(slope, self._curvature(nu))
        self.effort += self.preconditioner.effort + self.model.effort
        basis = np.zeros((self.history + 1, self.model.columns))
        basis[: len(self.steps) + 1] = [self.direction, *self.steps]
        weights = self.model.weights[: self.model.columns]
        return DIRECTION.message(
            self.name,
            SERVER,
            round=self.round,
            scores=self.model.matrix @ self.direction,
            gram=basis @ basis.T,
            linear=basis @ weights,
            squared_norm=weights @ weights,
            squared_gradient=gradient @ gradient,
            decrement=-0.5 * slope @ self.direction,
        )

    def _curvature(self, nu: Array) -> Array:
        """Of the loss on each row, as far as ν tells: the tilt of slices is taken for a part of the loss's slope."""
        curvature = self.loss.curvature_by_derivative(len(nu) * nu)
        return np.maximum(curvature, LEAST_CURVATURE * self.loss.curvature_bound) / len(nu)

    def _go(self, coefficients: Array, intercept: float) -> None:
        change = np.zeros_like(self.model.weights)
        step = change[: self.model.columns]
        for weight, part in zip(coefficients, [self.direction, *self.steps], strict=False):
            step += weight * part
        if self.model.intercept:
            change[-1] = intercept
        self.model.move(change)
        self.steps = [step.copy(), *self.steps][: self.history]

    def snapshot(self) -> State:
        steps = {f"step {age}": step.copy() for age, step in enumerate(self.steps)}
        best = {} if self.best is None else {"best": self.best.copy()}
        return super().snapshot() | steps | best | {"direction": self.direction.copy()}

    def restore(self, state: State) -> None:
        super().restore(state)
        self.direction = np.array(state["direction"])
        self.best = np.array(state["best"]) if "best" in state else None
        ages = sorted(int(name.split()[1]) for name in state if name.startswith("step "))
        self.steps = [np.array(state[f"step {age}"]) for age in ages]
