"""A party of the subspace solver."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import scipy.sparse as sp

from evenhand.arrays import Array
from evenhand.constraints.losses import LOSSES
from evenhand.errors import ProtocolError
from evenhand.models.linear import LinearModel
from evenhand.models.preconditioner import make_preconditioner
from evenhand.privacy.fixed_point import largest_score
from evenhand.protocol.messages import Message
from evenhand.protocol.roles import SERVER, Sends
from evenhand.protocol.terms import VerticalTerms
from evenhand.vertical.messages import COEFFICIENTS, DERIVATIVE, DIRECTION, GO_BACK, OWN_COLUMNS, SCORES
from evenhand.vertical.problem import GradientParty, PartyData
from evenhand.vertical.subspace.blocks import split_step
from evenhand.vertical.subspace.options import Subspace

MOST_OWN_COLUMNS = 64
"""Maximum number of the label holder's columns in the tiny problem. Its cost grows with the square of their number."""
MOST_OWN_NUMBERS = 2**25
"""Maximum number of values that the label holder sends to its own server where only sums arrive otherwise: 268 MB."""
FEW_OWN_NUMBERS = 2**19
"""The same elsewhere. On larger tables directions and steps take as many rounds, and cost less."""
LEAST_CURVATURE = 0.08
"""Lower limit on the curvature of a row, as a share of its bound: a row with little curvature may still move."""


class SubspaceParty(GradientParty):
    """Computes directions from its own columns, and moves by the server's coefficients."""

    state_fields: ClassVar = {"directions": Array, "steps": list[Array], "best": Array | None}

    model: LinearModel

    def __init__(self, terms: VerticalTerms, name: str, own: PartyData) -> None:
        super().__init__(terms, name, own)
        options = terms.job.settings(Subspace)
        self.bands, self.history = options.bands_asked(terms), options.steps_kept(terms)
        # If the server combines its columns directly, the party gets a coefficient for each.
        most = MOST_OWN_NUMBERS if terms.only_sums else FEW_OWN_NUMBERS
        few = self.model.columns <= MOST_OWN_COLUMNS and self.model.columns * terms.n_rows <= most
        self.holds_labels = options.own_columns and name == terms.active[0]
        # With a single party there is nothing to combine.
        self.whole = self.holds_labels and few and len(terms.names) > 1
        basis = self.model.columns if self.whole else self.bands + self.history
        self.sizes = {**self.sizes, "bands": self.bands, "basis": basis}
        self.loss = LOSSES[terms.job.loss]
        bound = self.loss.curvature_bound / terms.n_rows
        self.preconditioner = make_preconditioner(self.model.matrix, bound, self.model.regulariser)
        self.directions: Array = np.zeros((self.bands, self.model.columns))
        self.steps: list[Array] = []
        self.most_score = largest_score(len(terms.names)) if terms.only_sums else None
        self.best: Array | None = None

    def start(self) -> Sends:
        """Send the label holder's columns and, in a warm start, the scores of the starting weights."""
        sends = [self._own_columns()] if self.holds_labels else []
        if self.terms.warm:
            body = {"scores": self.own_scores(), "squared_norm": self.model.squared_norm(), "squared_move": 0.0}
            sends.append(SCORES.message(self.name, SERVER, round=0, sequence=1, **body))
        return sends

    def _own_columns(self) -> Message:
        shown = self.model.matrix if self.whole else self.model.matrix[:, :0]
        columns = shown.toarray() if sp.issparse(shown) else shown
        weights = self.model.weights[: shown.shape[1]]
        return OWN_COLUMNS.message(self.name, SERVER, columns=np.ascontiguousarray(columns.T), weights=weights)

    def handle(self, message: Message) -> Sends:
        self.round = message.integer("round")
        if message.kind == DERIVATIVE.kind:
            gradient = self.gradient_told(message)
            if message.integer("last"):
                return [self.gradient_norm(gradient)]
            return [self._propose(gradient, self._curvature(message["nu"][self.preconditioner.rows]))]
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

    def _propose(self, gradient: Array, curvature: Array) -> Message:
        slope = gradient[: self.model.columns]
        self.directions = -self.preconditioner.solve(slope, curvature, self.bands)
        scores = np.ascontiguousarray((self.model.matrix @ self.directions.T).T)
        if self.most_score is not None:
            # The length of a direction is free, so one that is too large to be masked is shortened.
            largest = max(float(scores.max(initial=0.0)), -float(scores.min(initial=0.0)))
            if largest > self.most_score:
                self.directions *= self.most_score / largest
                scores *= self.most_score / largest
        self.effort += self.preconditioner.effort + self.bands * self.model.effort
        basis = np.zeros((self.bands + self.history, self.model.columns))
        basis[: self.bands + len(self.steps)] = [*self.directions, *self.steps]
        weights = self.model.weights[: self.model.columns]
        return DIRECTION.message(
            self.name,
            SERVER,
            round=self.round,
            scores=scores,
            gram=basis @ basis.T,
            linear=basis @ weights,
            squared_norm=weights @ weights,
            squared_gradient=gradient @ gradient,
            decrement=-0.5 * float((self.directions @ slope).sum()),
        )

    def _curvature(self, nu: Array) -> Array:
        """Return the curvature of the loss on each row, estimated from ν.

        The estimate treats the tilt of the slices as part of the loss's slope.
        """
        rows = self.terms.n_rows
        curvature = self.loss.curvature_by_derivative(rows * nu)
        return np.maximum(curvature, LEAST_CURVATURE * self.loss.curvature_bound) / rows

    def _go(self, coefficients: Array, intercept: float) -> None:
        change = np.zeros_like(self.model.weights)
        if self.whole:
            change[: self.model.columns] = coefficients
        else:
            known = [*self.directions, *self.steps]
            parts = split_step(coefficients[: len(known)], self.bands) @ np.array(known)
            change[: self.model.columns] = parts.sum(axis=0)
            self.steps = [*parts, *self.steps][: self.history]
        if self.model.intercept:
            change[-1] = intercept
        self.model.move(change)
