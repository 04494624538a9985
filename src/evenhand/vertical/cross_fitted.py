"""Base of the servers whose parties fit models to derivatives: trees and learners.

The server sends derivatives for each of K models, each fitted without one fold of the rows. It combines what comes back
under the inequalities, and judges each row by the model that has not seen it. It keeps the best model so far, and stops
when the loss of held-out rows no longer falls. With K = 1 a tenth of the rows stays without influence on the parties'
models, and inequalities are judged at leave-one-out scores.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np

from evenhand.arrays import Array, Integers
from evenhand.constraints.debiased import DebiasedLagrangian
from evenhand.constraints.evaluation import Lagrangian, Point
from evenhand.constraints.losses import constant_score
from evenhand.constraints.slices import stated
from evenhand.errors import InputError, ProtocolError
from evenhand.programs.combining.cross_fitting import CrossFitting, FoldsFit
from evenhand.programs.combining.folds import assign_folds
from evenhand.programs.combining.leaf_values import HOLDS, LeafProblem, is_better
from evenhand.protocol.messages import Message
from evenhand.protocol.roles import Sends
from evenhand.protocol.solver import Certificate
from evenhand.protocol.terms import VerticalTerms
from evenhand.vertical.problem import MOST_NARROW_ROUNDS, NARROWEST, ServerData, narrowness, own_lagrangian
from evenhand.vertical.server import CROSS_FITTED, Server, UnseenScores

BLANK = 0.1
"""Share of the rows that do not influence the parties' models, where there are no folds."""


class CrossFittedServer(Server):
    """Judges models on rows that they have not seen, and keeps the best one so far.

    Parameters
    ----------
    folds
        K.
    shrinkage, exact_rates
        See `LeafProblem`.
    patience
        Steps without progress after which the run ends.
    """

    state_fields: ClassVar = {
        "scores": Array,
        "held_out": Array,
        "fold_multipliers": Array,
        "futile": int,
        "narrow_rounds": int,
        "ended": str,
        "answers": dict[int, Message],
        "best": Any,
        "best_scores": Array,
        "best_held_out": Array,
        "best_multipliers": Array,
        "problem": LeafProblem,
    }

    def __init__(
        self,
        terms: VerticalTerms,
        own: ServerData,
        *,
        folds: int,
        shrinkage: float,
        exact_rates: bool,
        patience: int,
    ) -> None:
        super().__init__(terms, own)
        if terms.warm:
            raise InputError(f"{terms.job.solver} cannot start from an earlier run; start without warm_start")
        self.folds, self.patience = folds, patience
        # The fold of each row, and the rows that each model is fitted to.
        self.fold, self.parts = self._parts(own)
        self.problem = self.make_problem(shrinkage, exact_rates)
        self.intercept = self._first_score(own) if self.job.fit_intercept else 0.0
        # Scores by each model, and of each row by the model that has not seen it.
        self.scores: Array = np.full((self.folds, terms.n_rows), self.intercept)
        self.held_out: Array = self.scores[0].copy()
        self.fold_multipliers: Array = np.repeat(self.multipliers[None], self.folds, axis=0)
        # Leave-one-out scores correct for coefficients only: a model that fits noise lowers the loss of the rows it was
        # fitted to, but not of these.
        drawn = np.random.default_rng(0).random(terms.n_rows) < (BLANK if self.folds == 1 else 0.0)
        self.blank: Integers = np.flatnonzero(drawn)
        self.answers: dict[int, Message] = {}
        # The best model so far, and its measurements.
        self.best: dict[str, float] = {}
        self.best_scores, self.best_held_out, self.best_multipliers = self.scores, self.held_out, self.fold_multipliers
        self.futile = self.narrow_rounds = 0
        self.ended = ""
        # A constraint holds within a margin of its bound: one data row, or a twentieth of the bound.
        self.tolerance = max(HOLDS, float(np.max(self.problem.shifted.margin, initial=0.0)))

    def _parts(self, own: ServerData) -> tuple[Integers, list[Lagrangian]]:
        """Return the fold of each row, and the problem of each model, in which the rows of its fold have no weight."""
        if self.folds == 1:
            return np.full(self.terms.n_rows, -1), [self.lagrangian]
        # Targets of a regression have no strata.
        stratum = self.lagrangian.constraints.stratum
        fold = assign_folds(stratum if self.lagrangian.loss.classifies else np.zeros_like(stratum), self.folds)
        weights = np.ones(self.terms.n_rows) if own.sample_weight is None else own.sample_weight
        weighted = (np.where(fold == place, 0.0, weights) for place in range(self.folds))
        return fold, [own_lagrangian(self.terms, replace(own, sample_weight=one)) for one in weighted]

    @abstractmethod
    def make_problem(self, shrinkage: float, exact_rates: bool) -> LeafProblem:
        """Return the problem that each step solves."""

    def _first_score(self, own: ServerData) -> float:
        if isinstance(self.lagrangian, DebiasedLagrangian):
            return log_odds(self.lagrangian.positives, self.terms.n_rows)
        loss = self.lagrangian.loss
        if loss.classifies or loss.name == "squared":
            return best_constant(own.labels, self.job.loss, own.sample_weight)
        shares = self.lagrangian.shared(np.ones(self.terms.n_rows))
        return float(constant_score(loss, own.labels, shares)[0])

    def answered(self, message: Message, kind: str) -> list[Message] | None:
        """Take a party's answer of this round; return all in the order of the parties when the last has come."""
        place = self.place(message)
        fits = message.kind == kind and message.integer("round") == self.round and place not in self.answers
        if not fits or self.done:
            raise ProtocolError(f"server: {message.kind!r} from {message.sender} does not belong to round {self.round}")
        self.check_answer(message)
        self.answers[place] = message
        if len(self.answers) < len(self.parties):
            return None
        return [self.answers.pop(place) for place in range(len(self.parties))]

    def check_answer(self, message: Message) -> None:
        """Refuse an answer that cannot be."""

    def present(self) -> Point:
        """Return the training rows scored by the average of all models."""
        return self.lagrangian.at(self.scores.mean(axis=0))

    def derivatives(self) -> tuple[Array, Array]:
        """Return gradient and curvature of each fold's rows."""
        points = [part.at(scores) for part, scores in zip(self.parts, self.scores, strict=True)]
        found = [self.problem.derivatives(*one) for one in zip(points, self.fold_multipliers, strict=True)]
        gradient, curvature = np.array(found).transpose(1, 0, 2)
        gradient[:, self.blank] = curvature[:, self.blank] = 0.0
        return gradient, curvature

    @staticmethod
    def in_units(gradient: Array, curvature: Array) -> dict[str, Any]:
        """Return derivatives as fields of a message: between −1 and 1, so that short numbers hold them."""
        units = [float(np.abs(values).max()) or 1.0 for values in (gradient, curvature)]
        return {
            "gradient": gradient / units[0],
            "curvature": curvature / units[1],
            "gradient_unit": units[0],
            "curvature_unit": units[1],
        }

    def too_narrow(self, gradient: Array) -> bool:
        """Return whether parties would refuse derivatives, as under bounds on sharp rates that cannot hold."""
        effective, narrow = narrowness(gradient)
        self.narrow_rounds += narrow
        return effective < NARROWEST or self.narrow_rounds > MOST_NARROW_ROUNDS

    def held_out_loss(self) -> float:
        """Return the mean loss at cross-fitted scores; without folds, at leave-one-out scores of the blank rows."""
        rows = self.blank if len(self.blank) else slice(None)
        shares = self.lagrangian.shared(np.ones(len(self.held_out)))[rows]
        return float(self.lagrangian.losses(self.held_out, rows).sum() / shares.sum())

    def take_fit(self, fit: FoldsFit) -> None:
        """Take the models of a solution as the present ones."""
        self._take(np.array(fit.scores), fit.held_out, fit.multipliers)

    def _take(self, scores: Array, held_out: Array, multipliers: Array) -> None:
        self.scores, self.held_out, self.fold_multipliers = scores, held_out, multipliers
        self.multipliers = multipliers.mean(axis=0)

    @abstractmethod
    def size(self) -> dict[str, int]:
        """Return how much of the model there is, by name, so that the best model can be returned to."""

    @abstractmethod
    def cut_back(self, size: dict[str, int]) -> None:
        """Discard what came after the best model."""

    def judge(self, fit: FoldsFit) -> bool:
        """Report how good the model is, and keep it if it is the best so far; return whether it is.

        Feasible models rank before infeasible ones, and among them the one with the lowest held-out loss is best.
        """
        point, held_out = self.present(), self.held_out_loss()
        told = {
            "held-out loss": held_out,
            "stationarity": fit.stationarity,
            "complementarity": fit.complementarity,
        }
        self.reports.append({"round": self.round, **self.row_report(point), **told})
        missed = max(fit.violation, self.tolerance)
        better = progress = True
        if self.best:
            least, loss = self.best["missed"], self.best["held-out loss"]
            better, progress = is_better(missed, held_out, least, loss, self.job.tol)
        self.futile = 0 if progress else self.futile + 1
        if better:
            self.best = {**self.size(), "missed": missed, **told}
            self.best_scores, self.best_held_out = self.scores, self.held_out
            self.best_multipliers = self.fold_multipliers
        return better

    @abstractmethod
    def ask(self, gradient: Array, curvature: Array) -> Sends:
        """Begin a round: send derivatives."""

    @abstractmethod
    def give_back(self) -> Sends:
        """Send each party its part of the best model."""

    def answerable(self, gradient: Array, curvature: Array) -> bool:
        """Return whether parties will fit models to these derivatives."""
        return not self.too_narrow(gradient)

    def last_step(self) -> None:
        """Improve the model without a message, after the last round."""

    def go_on(self) -> Sends:
        """Stop, or ask for more."""
        if self.futile >= self.patience:
            self.ended = "the held-out loss fell no more"
        elif self.round >= self.job.max_rounds:
            self.ended = "max_rounds"
        else:
            derivatives = self.derivatives()
            if self.answerable(*derivatives):
                return self.ask(*derivatives)
            self.ended = "derivatives that concentrate on a few rows"
        self.last_step()
        self.end()
        return self.give_back()

    def end(self) -> None:
        """Return to the best model, and certify it.

        A feasible model is complete after any number of rounds. The record tells what ended the run.
        """
        self._take(self.best_scores, self.best_held_out, self.best_multipliers)
        if isinstance(self.problem, CrossFitting):
            self.problem.take_models(list(self.scores))
        self.cut_back({name: int(self.best[name]) for name in self.size()})
        converged = self.best["missed"] <= self.tolerance
        self.certificate = Certificate(
            stationarity=self.best["stationarity"],
            violation=self.violation(self.present()),
            complementarity=self.best["complementarity"],
            objective=self.objective(self.present()),
            rounds=self.round,
            converged=converged,
            unmet=None if converged else self.unmet(),
        )
        self.done = True

    def violation(self, point: Point) -> float:
        return self.problem.violation(point, self.held_out)

    def shortfall(self) -> str:
        if self.best["missed"] <= self.tolerance:
            return ""
        return (
            f"no model was found that meets the bounds on held-out rows: the worst is exceeded by "
            f"{self.best['missed']:.2g} at best. Its slices may be too small for the bound; widen it or merge groups"
        )

    def objective(self, point: Point) -> float:
        """Return the mean training loss, without what restrains coefficients."""
        return point.loss

    def unseen_scores(self) -> UnseenScores | None:
        return UnseenScores(self.held_out, CROSS_FITTED) if self.folds > 1 else None

    def statistics(self) -> dict[str, Any]:
        return {
            "ended by": self.ended,
            **self.kept(),
            "held-out loss": self.best["held-out loss"],
            "violation on training rows": self.problem.violation_of(self.present(), self._on_rows()),
            "constraints": self._stated(),
            "folds": self.folds,
        }

    def kept(self) -> dict[str, int]:
        """Return how much of the model was kept, in words."""
        return {}

    def _stated(self) -> list[dict[str, Any]]:
        """Return for each inequality what it is on training rows and on held-out ones, and what was asked."""
        rows = self.lagrangian.constraints
        return stated(rows.names, rows.bounds, self._on_rows(), self.problem.judged(self.held_out))

    def _on_rows(self) -> Array:
        """Return the values of inequalities on the training rows."""
        return self.problem.values(self.present())


def best_constant(labels: Array, loss: str, weights: Array | None = None) -> float:
    """Return the best constant score: the log-odds, or the mean."""
    people = np.ones(len(labels)) if weights is None else weights * (len(labels) / weights.sum())
    if loss == "squared":
        return float(np.average(labels, weights=people))
    return log_odds(float(people[labels > 0].sum()), len(labels))


def log_odds(positive: float, rows: int) -> float:
    """Return the log-odds of this many positive rows among all.

    Half a row of either label keeps them finite where only one label occurs.
    """
    within = min(max(positive, 0.0), float(rows))
    return float(np.log((within + 0.5) / (rows - within + 0.5)))
