"""A party of learners: it fits models of its own choice, and sends what they give its rows."""

from __future__ import annotations

import warnings
from typing import ClassVar

import numpy as np
import scipy.sparse as sp

from evenhand.arrays import Array
from evenhand.errors import DataError, EvenhandError, InputError, LearnerWarning, ProtocolError
from evenhand.models.learned import LearnedModel, shaped
from evenhand.models.learning.base import Fitted, Nothing, PartyLearner
from evenhand.models.learning.covering import OF_MODELS, OF_ROUNDS, CoveredFit, covering, explained_spread, length
from evenhand.models.learning.linear import LinearLearner
from evenhand.models.learning.random_features import RandomFeatures
from evenhand.models.relation import Relation
from evenhand.protocol.messages import Message
from evenhand.protocol.roles import SERVER, Sends
from evenhand.protocol.terms import VerticalTerms
from evenhand.vertical.learners.messages import COMBINATION, EMBEDDING, OUTPUTS, RELATION, RESPONSE, VOCABULARY
from evenhand.vertical.learners.options import Learners
from evenhand.vertical.problem import Party, PartyData, check_rows, has_intercept


class LearnersParty(Party):
    """Fits its learner to the working response of each model, and sends columns of outputs."""

    vocabulary = VOCABULARY
    state_fields: ClassVar = {"model": LearnedModel, "failures": int}
    model: LearnedModel

    def __init__(self, terms: VerticalTerms, name: str, own: PartyData) -> None:
        self.options = options = terms.job.settings(Learners)
        check_rows(terms, name, own)
        if own.weights is not None:
            raise InputError(f"{name}: learners cannot start from an earlier run; start without its weights")
        self.learner: PartyLearner = LinearLearner() if own.learner is None else own.learner
        self.folds = options.folds_of(terms)
        columns, intercept = own.matrix.shape[1], has_intercept(terms, name)
        super().__init__(terms, name, LearnedModel(self.learner, columns, options.features, intercept))
        self.sizes = {
            **self.sizes,
            "folds": self.folds,
            "columns": self.folds * options.features,
            "embedding": options.embedding,
        }
        self.model.matrix, self.model.folds = own.matrix, self.folds
        # Whether what the party sends hides in a sum what others send.
        self._covers = terms.only_sums and name in terms.passive
        # Length of all columns of the round, where they cover others.
        self._length = 1.0
        # Rounds in which a model could not be fitted.
        self.failures = 0

    def handle(self, message: Message) -> Sends:
        if message.kind == RESPONSE.kind:
            if message.integer("round") < 1:
                raise ProtocolError(f"{self.name} was sent round {message.integer('round')}; rounds count from 1")
            self.round = message.integer("round")
            answer = self._answer(message)
            embeds = self.options.exchange == "embedding" and self.round == 1
            return [self._embedding(), answer] if embeds else [answer]
        if message.kind == COMBINATION.kind:
            kept = message["coefficients"]
            if kept.size > len(self.model.fitted) * self.options.features:
                raise ProtocolError(f"{self.name} was sent coefficients of columns that it has not sent")
            self.model.keep(kept.ravel(), message.number("intercept"))
            self.model.embeds = bool(message.integer("embeds"))
            self.done = True
            return ()
        if message.kind == RELATION.kind and self.name == self.terms.active[0]:
            self.model.relation = self._relation(message)
            return ()
        raise ProtocolError(f"{self.name} takes no {message.kind!r}")

    def _embedding(self) -> Message:
        """Draw random functions of the party's columns."""
        matrix, count = self.model.matrix, self.options.embedding
        if not sp.issparse(matrix) and not isinstance(matrix, np.ndarray):
            raise InputError(
                f"{self.name}: its model takes raw columns, of which no random functions can be drawn; set exchange = "
                "'scores' in the solver's options"
            )
        self.model.random_features = RandomFeatures.drawn(matrix, count, self._seed(0, 0))
        features = np.ascontiguousarray(self.model.random_features.outputs(matrix).T)
        return EMBEDDING.message(self.name, SERVER, features=features)

    def _seed(self, number: int, fold: int) -> int:
        """Return a seed of the party's own, so that adding a party does not change other models."""
        entropy = [self.terms.job.seed, self.terms.names.index(self.name), number, fold]
        return int(np.random.SeedSequence(entropy).generate_state(1)[0]) % 2**31

    def _relation(self, message: Message) -> Relation:
        """Read the networks over all parties' embeddings."""
        together = (self.terms.active[:1], self.terms.passive)
        groups = together if self.terms.only_sums else tuple((one,) for one in self.terms.names)
        try:
            return Relation.of(groups, message.body)
        except (ValueError, KeyError) as error:
            raise ProtocolError(f"{self.name} was sent networks that cannot be read: {error}") from error

    def _answer(self, message: Message) -> Message:
        """Fit a model to each working response."""
        gradient, curvature = self.derivatives_in_units(message)
        if (curvature < 0.0).any() or (curvature.max(axis=1, initial=0.0) <= 0.0).any():
            raise ProtocolError(f"{self.name}: the curvature of round {self.round} is negative or zero; refused")
        self.check_derivatives(np.sqrt(curvature))
        columns = [self._column(fold, *both) for fold, both in enumerate(zip(gradient, curvature, strict=True))]
        return OUTPUTS.message(self.name, SERVER, round=self.round, columns=np.concatenate(columns))

    def _column(self, fold: int, gradient: Array, curvature: Array) -> Array:
        """Fit one model; return its outputs, (features, rows)."""
        response = np.divide(-gradient, curvature, out=np.zeros_like(gradient), where=curvature > 0.0)
        # The same model of the round before.
        before = len(self.model.fitted) - self.folds
        warm = self.model.fitted[before] if before >= 0 else None
        warm = warm.inner if isinstance(warm, CoveredFit) else warm
        seed = self._seed(self.round, fold)
        found, outputs = self._fitted(response, curvature, warm, seed)
        if self._covers and not (full := covering(outputs)).all():
            found = CoveredFit.drawn(found, ~full, self.model.matrix, seed)
            outputs = found.outputs(self.model.matrix)
        lengths: Array | float = 1.0
        if self._covers:
            lengths = self._lengths(fold, seed) * explained_spread(outputs, response, curvature)
        self.effort += float(outputs.size) * max(self.model.columns, 1)
        return self.model.add(found, outputs, lengths)

    def _lengths(self, fold: int, seed: int) -> Array:
        """Return a factor on each output's spread. A row's column has parts of all models, so theirs differ little."""
        matrix = self.model.matrix
        if fold == 0:
            self._length = length(matrix, seed, OF_ROUNDS)
        places = range(1, self.options.features + 1)
        return np.array([self._length * length(matrix, seed, OF_MODELS, place) for place in places])

    def _fitted(self, response: Array, weight: Array, warm: Fitted | None, seed: int) -> tuple[Fitted, Array]:
        """Fit the learner; return the model and its outputs, (rows, features)."""
        rows, features = self.terms.n_rows, self.options.features
        try:
            found = self.learner.fit(
                self.model.matrix,
                response,
                weight / weight.max(),
                warm=None if isinstance(warm, Nothing) else warm,
                seed=seed,
                features=features,
            )
            outputs = shaped(found.outputs(self.model.matrix), rows, features)
            if not np.isfinite(outputs).all():
                raise DataError("its model gave numbers that are not finite")
            # A learner of this library may find nothing to fit.
            if not isinstance(found, Nothing) and not np.ptp(outputs, axis=0).any():
                raise DataError("its model gives all rows the same output")
            return found, outputs
        except ImportError:
            raise
        except Exception as error:
            told = str(error) if isinstance(error, EvenhandError) else f"{type(error).__name__}: {error}"
            problem = f"{self.name}: its learner failed in round {self.round}: {told}"
            if self.options.failing == "end":
                advice = "mend the learner, or set failing = 'continue' in the solver's options"
                raise DataError(f"{problem}; {advice}") from error
            self.failures += 1
            warnings.warn(LearnerWarning(f"{problem}; the party adds nothing in this round"), stacklevel=2)
            return Nothing(), np.zeros((rows, features))
