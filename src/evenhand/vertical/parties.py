"""Base classes of the parties of vertical solvers: a model over their own columns."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from evenhand.arrays import Array
from evenhand.errors import DivergenceError
from evenhand.models.base import PartyModel, Scorer
from evenhand.protocol.messages import Message
from evenhand.protocol.roles import SERVER, Follower
from evenhand.protocol.terms import VerticalTerms
from evenhand.vertical.messages import GRADIENT_NORM, PRODUCT, VOCABULARY, message_sizes
from evenhand.vertical.problem import PartyData, own_model


class Party(Follower):
    """A participant with a model over its own columns. Its data never leave it; only its messages do."""

    vocabulary = VOCABULARY
    state_fields: ClassVar = {"round": int, "model_weights": Array}
    model: Scorer

    def __init__(self, terms: VerticalTerms, name: str, model: Scorer) -> None:
        super().__init__(name, message_sizes(terms))
        self.terms = terms
        self.model = model
        self.round = 0

    @property
    def model_weights(self) -> Array:
        """Weights of the model. In most solvers nothing else of it changes."""
        return self.model.weights

    @model_weights.setter
    def model_weights(self, weights: Array) -> None:
        self.model.weights = weights


class GradientParty(Party):
    """A party that trains its model along gradients and sends its scores."""

    model: PartyModel

    def __init__(self, terms: VerticalTerms, name: str, own: PartyData) -> None:
        super().__init__(terms, name, own_model(terms, name, own))
        if terms.hides_nu:
            self.sizes = {**self.sizes, "columns": own.matrix.shape[1]}

    def own_scores(self) -> Array:
        self.effort += self.model.effort
        # Raised here, where the cause is known. The receiver would only see invalid numbers.
        if not np.isfinite(self.model.squared_norm()):
            raise DivergenceError(
                f"{self.name}: weights are not finite in round {self.round}; the steps are too long. "
                "Scale the columns, or choose a smaller step"
            )
        return self.model.scores()

    def gradient(self, nu: Array) -> Array:
        self.effort += self.model.effort
        return self.model.gradient(nu)

    def gradient_told(self, message: Message) -> Array:
        """Return the gradient from ν, or from the product of ν with the party's columns where ν is hidden from it."""
        if message.kind != PRODUCT.kind:
            return self.gradient(message["nu"])
        return message["product"] + self.terms.regulariser * self.model.weights

    def gradient_norm(self, gradient: Array) -> Message:
        """Return the party's part of the certificate. The party is then done unless the server asks again."""
        self.done = True
        return GRADIENT_NORM.message(self.name, SERVER, squared_gradient=gradient @ gradient)
