"""The server of learners: it sends derivatives, combines all columns so far, and stops by the loss of held-out rows.

Round:

1. The server sends every party first and second derivatives in each row's score, for each of K models: each is fitted
   without one fold of the rows, and judged on it.
2. Each party fits a model to each, and answers with their outputs for every row.
3. The server solves for the coefficients of all columns so far jointly, under the inequalities. A row's columns are the
   outputs of the models that have not seen it.
4. It stops when the held-out loss no longer falls, or at the round limit, and sends each party the coefficients of its
   columns up to the best round. The model is the average of the K.
5. With exchange = "embedding" it first fits networks of its own over all columns (`relating.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar

import numpy as np

from evenhand.arrays import Array
from evenhand.errors import InputError, ProtocolError
from evenhand.models.relation import Relation, Stage
from evenhand.programs.combining.cross_fitting import FoldsFit
from evenhand.programs.combining.leaf_values import TOLERANCE, LeafProblem
from evenhand.protocol.messages import Message
from evenhand.protocol.roles import SERVER, Sends
from evenhand.protocol.terms import VerticalTerms
from evenhand.vertical.cross_fitted import CrossFittedServer
from evenhand.vertical.learners.columns import OutputColumns
from evenhand.vertical.learners.messages import COMBINATION, EMBEDDING, OUTPUTS, RELATION, RESPONSE, VOCABULARY
from evenhand.vertical.learners.options import Learners
from evenhand.vertical.learners.relating import LEAST_GAIN, STAGES, fit_stage
from evenhand.vertical.problem import ServerData

LARGEST_RESPONSE = 4.0
"""Limit on the working response: of a score in log-odds, or in logarithms of a mean; of numbers, in their deviation."""

PASSES = 15
"""Most solutions of a round's problem: it has few columns, and there are few rounds to find a feasible model in."""


class LearnersServer(CrossFittedServer):
    """Sends derivatives, combines the parties' columns, and keeps the best combination so far."""

    vocabulary = VOCABULARY
    state_fields: ClassVar = {
        "rounds": list[Array],
        "coefficients": Array,
        "best_coefficients": Array,
        "embeddings": dict[int, Array],
    }

    def __init__(self, terms: VerticalTerms, own: ServerData) -> None:
        options = terms.job.settings(Learners)
        super().__init__(
            terms,
            own,
            folds=options.folds_of(terms),
            # The coefficients of all columns are solved for anew in each round, so nothing is left to later rounds.
            shrinkage=1.0,
            exact_rates=options.exact_rates,
            patience=options.patience,
        )
        self.problem.tolerance = max(1e-13, min(TOLERANCE, 0.01 * terms.job.tol))
        self.problem.passes = PASSES
        self.features = options.features
        self.sizes = {
            **self.sizes,
            "folds": self.folds,
            "columns": self.folds * options.features,
            "embedding": options.embedding,
        }
        spread = float(np.std(own.labels)) if terms.job.loss == "squared" else 1.0
        self.largest = LARGEST_RESPONSE * (spread or 1.0)
        # (parties, columns, rows) of each round, and the coefficients at present and at their best: a model without the
        # rows of a fold has the same as all others.
        self.rounds: list[Array] = []
        self.coefficients: Array = np.zeros(int(terms.job.fit_intercept))
        self.best_coefficients = self.coefficients
        self.relates = options.exchange == "embedding"
        if self.relates and terms.job.label_privacy is not None:
            raise InputError("exchange = 'embedding' needs true labels; with label privacy set exchange = 'scores'")
        # Each party's random functions, (features, rows).
        self.embeddings: dict[int, Array] = {}
        # Stages of the label holder's networks, with their columns of unseen rows; they come after the last message.
        self.stages: list[Stage] = []
        self.related: list[Array] = []

    def start(self) -> Sends:
        return self.ask(*self.derivatives())

    def handle(self, message: Message) -> Sends:
        if message.kind == EMBEDDING.kind:
            place = self.place(message)
            if not self.relates or place in self.embeddings or self.round != 1:
                raise ProtocolError(f"server: {message.kind!r} from {message.sender} does not belong to this run")
            self.embeddings[place] = message["features"]
            return ()
        answers = self.answered(message, OUTPUTS.kind)
        return () if answers is None else self._combine(answers)

    def derivatives(self) -> tuple[Array, Array]:
        gradient, curvature = super().derivatives()
        # A larger h limits the response −g/h. A smaller g would not be zero on average where the scores are right.
        return gradient, np.maximum(curvature, np.abs(gradient) / self.largest)

    def ask(self, gradient: Array, curvature: Array) -> Sends:
        self.round += 1
        body = self.in_units(gradient, curvature)
        return RESPONSE.messages(SERVER, self.parties, round=self.round, **body)

    def make_problem(self, shrinkage: float, exact_rates: bool) -> LeafProblem:
        return LeafProblem(self.lagrangian, shrinkage, self.regulariser, exact_rates)

    def _combine(self, answers: Sequence[Message]) -> Sends:
        """Solve for the coefficients of all columns. Then stop, or ask for more."""
        self.rounds.append(np.array([answer["columns"] for answer in answers]))
        fit = self._fit()
        self.take_fit(fit)
        if self.judge(fit):
            self.best_coefficients = self.coefficients
        return self.go_on()

    def answerable(self, gradient: Array, curvature: Array) -> bool:
        # A party refuses a curvature, too, that concentrates on few rows.
        return super().answerable(gradient, curvature) and not self.too_narrow(np.sqrt(curvature))

    def last_step(self) -> None:
        if len(self.embeddings) == len(self.parties):
            self._relate()

    def _fit(self) -> FoldsFit:
        """Solve for the coefficients, at the outputs of models that have not seen the row."""
        parts = [self._unseen(one) for one in self.rounds]
        columns = OutputColumns([*parts, *(one[None] for one in self.related)], self.job.fit_intercept)
        start, width = np.zeros(columns.width), self._slopes(self.coefficients).size
        start[:width] = self._slopes(self.coefficients)
        start[columns.width - int(self.job.fit_intercept) :] = self.coefficients[width:]
        first = np.full(self.terms.n_rows, self.intercept)
        found = self.problem.fit(columns, first, first, self.multipliers, start=start)
        self.effort += found.solution.iterations * float(self.terms.n_rows) * columns.width**2
        self.coefficients = found.values
        fit = FoldsFit.of_one(found)
        scores, multipliers = [self._scores(place) for place in range(self.folds)], found.solution.multipliers
        return replace(fit, scores=scores, multipliers=np.repeat(multipliers[None], self.folds, axis=0))

    def _by_fold(self, outputs: Array) -> Array:
        """Return a round's columns as (parties, folds, features, rows)."""
        return outputs.reshape(len(self.parties), self.folds, self.features, -1)

    def _unseen(self, outputs: Array) -> Array:
        """Return (columns, rows): what models that have not seen a row give it; if all have, their average."""
        found = self._by_fold(outputs)
        if self.folds == 1:
            return found[:, 0].reshape(-1, found.shape[-1])
        unseen = found.mean(axis=1)
        for place in range(self.folds):
            rows = self.fold == place
            unseen[..., rows] = found[:, place][..., rows]
        return unseen.reshape(-1, found.shape[-1])

    def _scores(self, fold: int) -> Array:
        """Return the scores of all rows by one model."""
        slopes = self._round_slopes()
        scores = np.full(self.terms.n_rows, self._intercept) + self._relation_scores()
        for one, own in zip(self.rounds, slopes, strict=True):
            scores += own @ self._by_fold(one)[:, fold].reshape(len(own), -1)
        return scores

    def _relate(self) -> None:
        """Add columns of the label holder's networks to the best model, as long as the held-out loss falls."""
        self._take(self.best_scores, self.best_held_out, self.best_multipliers)
        self.cut_back({name: int(self.best[name]) for name in self.size()})
        for stage in range(STAGES):
            gradient, curvature = self.problem.derivatives(self.lagrangian.at(self.held_out), self.multipliers)
            curvature = np.maximum(curvature, np.abs(gradient) / self.largest)
            gradient[self.blank] = curvature[self.blank] = 0.0
            response = np.divide(-gradient, curvature, out=np.zeros_like(gradient), where=curvature > 0.0)
            found = fit_stage(
                self._beside([self._unseen(one) for one in self.rounds]),
                self._averages(),
                response,
                curvature / (float(curvature.max()) or 1.0),
                self.fold,
                self.folds,
                self.job.seed * (STAGES + 1) + stage,
            )
            if found is None:
                return
            before = self._row_losses()
            self.stages.append(found[0])
            self.related.append(found[1])
            fit = self._fit()
            self.take_fit(fit)
            if not self._is_gain(before) or not self.judge(fit):
                self.stages.pop()
                self.related.pop()
                return
            self.best_coefficients = self.coefficients

    def _row_losses(self) -> Array:
        """Return the loss of each row that is judged, at its held-out score."""
        rows = self.blank if len(self.blank) else np.arange(len(self.held_out))
        return self.lagrangian.losses(self.held_out, rows)

    def _is_gain(self, before: Array) -> bool:
        """Return whether losses fell by more than chance: among a few networks one is always a little better."""
        gain = before - self._row_losses()
        return float(gain.mean()) > LEAST_GAIN * float(gain.std()) / np.sqrt(len(gain))

    def _averages(self) -> Array:
        """Return what all parties' models give every row, as it is for new rows: (rows, width)."""
        return self._beside([self._by_fold(one).mean(axis=1) for one in self.rounds])

    def _beside(self, rounds: Sequence[Array]) -> Array:
        """Return (rows, width): of each party the columns of all rounds, and then its random functions."""
        places = range(len(self.parties))
        shaped = [one.reshape(len(places), self.features, -1) for one in rounds]
        parts = [one for place in places for one in (*(found[place] for found in shaped), self.embeddings[place])]
        return np.ascontiguousarray(np.concatenate(parts).T)

    def _relation(self) -> Relation:
        slopes = self._slopes(self.coefficients)
        return Relation((), tuple(self.stages), slopes[len(slopes) - len(self.stages) :])

    def _relation_scores(self) -> Array | float:
        if not self.stages:
            return 0.0
        embeddings, relation = self._averages(), self._relation()
        parts = zip(relation.coefficients, relation.stages, strict=True)
        return np.asarray(np.sum([one * stage.column(embeddings) for one, stage in parts], axis=0))

    def _round_slopes(self) -> Array:
        """Return (rounds, …): the coefficients of the parties' columns."""
        slopes = self._slopes(self.coefficients)
        return slopes[: len(slopes) - len(self.stages)].reshape(len(self.rounds), -1)

    def _slopes(self, coefficients: Array) -> Array:
        """Return the coefficients of columns: those of all parties in the first round, then in the next."""
        return coefficients[: len(coefficients) - int(self.job.fit_intercept)]

    @property
    def _intercept(self) -> float:
        return self.intercept + (float(self.coefficients[-1]) if self.job.fit_intercept else 0.0)

    def size(self) -> dict[str, int]:
        return {"rounds": len(self.rounds)}

    def cut_back(self, size: dict[str, int]) -> None:
        self.rounds, self.coefficients = self.rounds[: size["rounds"]], self.best_coefficients

    def kept(self) -> dict[str, int]:
        return {
            "rounds kept": len(self.rounds),
            **({"networks over embeddings": len(self.stages)} if self.relates else {}),
        }

    def give_back(self) -> Sends:
        """Send each party the coefficients of its columns in the average of all models."""
        slopes = self._round_slopes().reshape(len(self.rounds), len(self.parties), self.features)
        shares = np.tile(slopes / self.folds, (1, 1, self.folds))
        holder, arrays = self.terms.active[0], self._relation().arrays() if self.stages else {}
        relation = [RELATION.message(SERVER, holder, **arrays)] if self.stages else []
        return relation + [
            COMBINATION.message(
                SERVER,
                party,
                coefficients=np.ascontiguousarray(shares[:, place]),
                intercept=self._intercept if party == holder else 0.0,
                embeds=int(bool(self.stages)),
            )
            for place, party in enumerate(self.parties)
        ]
