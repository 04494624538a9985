"""The label holder of boosted trees: it sends derivatives, solves for leaf values, and stops by leave-one-out loss."""

from __future__ import annotations

from typing import Any

import numpy as np

from evenhand.arrays import Array
from evenhand.constraints.lagrangian import Point
from evenhand.errors import InputError, ProtocolError
from evenhand.protocol.certificate import Certificate
from evenhand.protocol.messages import Message
from evenhand.protocol.roles import SERVER, Sends, State
from evenhand.protocol.terms import VerticalTerms
from evenhand.vertical.problem import ServerData
from evenhand.vertical.server import Server
from evenhand.vertical.trees.leaf_values import LeafFit, LeafProblem
from evenhand.vertical.trees.leaves import LeafColumns
from evenhand.vertical.trees.messages import DERIVATIVES, LEAF_VALUES, LEAVES, VOCABULARY
from evenhand.vertical.trees.options import TreesOptions

HOLDS = 1e-5
"""Largest violation of a model that counts as one that holds, where rows are judged as they are solved."""


class TreesServer(Server):
    """Sends derivatives, solves for the values of the leaves that come back, and keeps the best model so far."""

    vocabulary = VOCABULARY
    kept = frozenset({"scores", "held_out", "values", "futile", "best", "best_scores", "best_held_out"})
    kept |= {"best_multipliers"}

    def __init__(self, terms: VerticalTerms, own: ServerData) -> None:
        super().__init__(terms, own)
        if terms.warm:
            raise InputError("trees begin anew: there is nothing of an earlier run that they could go on from")
        self.options = TreesOptions(**terms.job.options)
        self.sizes = {**self.sizes, "trees": self.options.trees, "leaves": self.options.leaves}
        self.problem = LeafProblem(self.lagrangian, self.options.shrinkage, self.regulariser, self.options.exact_rates)
        self.intercept = best_constant(own.labels, self.job.loss) if self.job.fit_intercept else 0.0
        self.scores: Array = np.full(terms.n_rows, self.intercept)
        self.held_out: Array = self.scores.copy()
        # Leaf values of every round, party, tree and leaf.
        self.values: Array = np.zeros((0, len(self.parties), self.options.trees, self.options.leaves))
        self.answers: dict[int, Message] = {}
        # The best round so far, and what is known of it.
        self.best: dict[str, float] = {}
        self.best_scores, self.best_held_out, self.best_multipliers = self.scores, self.held_out, self.multipliers
        self.futile = 0
        # Within a margin of its bound a row holds: one person more or less, or a twentieth of the bound.
        self.tolerance = max(HOLDS, float(np.max(self.problem.shifted.margin, initial=0.0)))

    def start(self) -> Sends:
        return self._ask()

    def handle(self, message: Message) -> Sends:
        place = self.place(message)
        fits = message.kind == LEAVES.kind and message.integer("round") == self.round and place not in self.answers
        if not fits or self.done:
            raise ProtocolError(f"server: {message.kind!r} from {message.sender} does not belong to round {self.round}")
        counts = message["counts"]
        if (counts < 1).any() or (counts > self.options.leaves).any() or (message["leaves"] >= counts).any():
            raise ProtocolError(f"server: {message.sender} names leaves that its trees do not have")
        self.answers[place] = message
        return self._combine() if len(self.answers) == len(self.parties) else ()

    def present(self) -> Point:
        return self.lagrangian.at(self.scores)

    def _ask(self) -> Sends:
        self.round += 1
        gradient, curvature = self.problem.derivatives(self.present(), self.multipliers)
        units = [float(np.abs(values).max()) or 1.0 for values in (gradient, curvature)]
        body = {
            "gradient": gradient / units[0],
            "curvature": curvature / units[1],
            "gradient_unit": units[0],
            "curvature_unit": units[1],
        }
        return [DERIVATIVES.message(SERVER, party, round=self.round, **body) for party in self.parties]

    def _combine(self) -> Sends:
        """All leaves are in: solve for their values. Then stop, or ask for more trees."""
        answers = [self.answers.pop(place) for place in range(len(self.parties))]
        counts = np.concatenate([answer["counts"] for answer in answers])
        columns = LeafColumns(np.concatenate([answer["leaves"] for answer in answers], axis=1), counts)
        fit = self.problem.fit(columns, self.scores, self.held_out, self.multipliers)
        self.effort += fit.solution.iterations * float(columns.leaves.size) * len(counts)
        self.scores, self.held_out = fit.scores, fit.held_out
        self.multipliers = fit.solution.multipliers
        table = np.zeros(self.values.shape[1:])
        table.reshape(len(counts), -1)[np.arange(self.options.leaves) < counts[:, None]] = fit.values
        self.values = np.concatenate([self.values, table[None]])
        self._judge(fit)
        converged = self.futile >= self.options.patience
        if not converged and self.round < self.job.max_rounds:
            return self._ask()
        self._finish(converged)
        return self._return()

    def _judge(self, fit: LeafFit) -> None:
        """Say how good the model is, and keep it if it is the best so far.

        Models that hold come before those that do not, and among them the one with the least leave-one-out loss.
        """
        point, held_out = self.present(), self.lagrangian.at(self.held_out).loss
        told = {
            "leave-one-out loss": held_out,
            "stationarity": fit.solution.stationarity,
            "complementarity": fit.solution.complementarity,
        }
        self.reports.append({"round": self.round, **self.row_report(point), **told})
        missed = max(fit.violation, self.tolerance)
        if self.best:
            least, loss = self.best["missed"], self.best["leave-one-out loss"]
            nearer = missed < (1.0 - 1e-3) * least
            better = nearer or (missed <= least and held_out < loss)
            progress = nearer or (missed <= least and held_out < (1.0 - self.job.tol) * loss)
        else:
            better = progress = True
        self.futile = 0 if progress else self.futile + 1
        if better:
            self.best = {"round": self.round, "missed": missed, **told}
            self.best_scores, self.best_held_out, self.best_multipliers = self.scores, self.held_out, self.multipliers

    def _finish(self, converged: bool) -> None:
        """Go back to the best model, and certify it."""
        self.scores, self.held_out, self.multipliers = self.best_scores, self.best_held_out, self.best_multipliers
        self.certificate = Certificate(
            stationarity=self.best["stationarity"],
            violation=self.violation(self.present()),
            complementarity=self.best["complementarity"],
            objective=self.objective(self.present()),
            rounds=self.round,
            converged=converged and self.best["missed"] <= self.tolerance,
        )
        self.done = True

    def _return(self) -> Sends:
        """Each party's leaf values, of the trees of the best round and of those before it."""
        kept = self.values[: int(self.best["round"])]
        return [
            LEAF_VALUES.message(
                SERVER,
                party,
                values=kept[:, place].reshape(-1, self.options.leaves),
                intercept=self.intercept if party == self.terms.active[0] else 0.0,
            )
            for place, party in enumerate(self.parties)
        ]

    def violation(self, point: Point) -> float:
        return self.problem.violation(point, self.held_out)

    def shortfall(self) -> str:
        if self.best["missed"] <= self.tolerance:
            return ""
        return (
            f"no model was found whose rows hold at leave-one-out scores: the worst is missed by "
            f"{self.best['missed']:.2g} at best. Its slices may be too small for the bound; widen it or merge groups"
        )

    def objective(self, point: Point) -> float:
        """The mean training loss: leaf values are held back by shrinkage, round by round, not by one regulariser."""
        return point.loss

    def statistics(self) -> dict[str, Any]:
        return {
            "rounds kept": int(self.best["round"]),
            "leave-one-out loss": self.best["leave-one-out loss"],
            "violation on training rows": self.problem.violation(self.present(), self.scores),
        }

    def snapshot(self) -> State:
        answers = {
            f"answer {place} {name}": array
            for place, answer in self.answers.items()
            for name, array in answer.body.items()
        }
        own: State = {"shift": self.problem.shifted.shift.copy()}
        return super().snapshot() | own | answers

    def restore(self, state: State) -> None:
        super().restore(state)
        self.problem.shifted.shift = np.array(state["shift"])
        bodies: dict[int, dict[str, Any]] = {}
        for name, value in state.items():
            if name.startswith("answer "):
                _, place, field = name.split(" ", 2)
                bodies.setdefault(int(place), {})[field] = np.array(value)
        self.answers = {
            place: Message(self.parties[place], SERVER, LEAVES.kind, body) for place, body in bodies.items()
        }


def best_constant(labels: Array, loss: str) -> float:
    """The score that is best for all rows alike: the log-odds, or the mean."""
    if loss == "squared":
        return float(labels.mean())
    positive = float((labels > 0).sum())
    # With one label only the log-odds are infinite; half a row of either keeps them finite.
    return float(np.log((positive + 0.5) / (len(labels) - positive + 0.5)))
