"""A party of the subspace solver, and the options of the solver."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

import numpy as np
import scipy.sparse as sp
from pydantic import Field

from evenhand.arrays import Array
from evenhand.errors import ProtocolError
from evenhand.models.base import Scorer
from evenhand.models.class_preconditioner import ClassPreconditioner
from evenhand.models.linear import LinearModel
from evenhand.models.preconditioner import Preconditioner, make_preconditioner
from evenhand.models.uncertainty import covariance
from evenhand.privacy.fixed_point import largest_score
from evenhand.protocol.job import CheckedOptions
from evenhand.protocol.messages import Message
from evenhand.protocol.roles import SERVER, Sends
from evenhand.protocol.terms import VerticalTerms
from evenhand.vertical.messages import (
    COEFFICIENTS,
    DERIVATIVE,
    DIRECTION,
    GO_BACK,
    OWN_COLUMNS,
    REACH,
    SCORES,
    SIGNS,
)
from evenhand.vertical.problem import GradientParty, PartyData, check_told
from evenhand.vertical.subspace.bands import filling
from evenhand.vertical.subspace.blocks import split_step
from evenhand.vertical.subspace.signs import BANDS, REACHES, SignBounds, classes_of, least_gradient

STEPS_OF_ALL = 24
"""Number of past steps kept where only sums over parties arrive, so that a step is one column for all parties."""


@dataclass(frozen=True)
class Subspace(CheckedOptions):
    """Options of the subspace solver.

    Parameters
    ----------
    history
        Number of last steps that each party and the server keep. More steps mean fewer rounds on correlated columns,
        and more columns of n numbers at the server. None keeps 2 to 16, so that there are about 56 columns in all.
    exact_rates
        Whether the exact rates of the training rows meet the bounds of measures ``"error"`` and ``"positive"``. None:
        wherever lower and upper bound differ, since counts cannot be equal to the last digit. False bounds only the
        smooth rates. These end on their bounds, while the exact rates may be far beyond.
    bands
        1 or 2: number of parts of a party's direction, cut in the middle of its curvature's spectrum. Two bring fewer
        rounds and twice the upload. None means two where only sums arrive, which then carry more, and one otherwise.
    own_columns
        Whether all columns of the label holder enter the server's tiny problem, if they and the rows are few. This
        saves rounds and costs one message. Set it to False if the server runs elsewhere and may not see the columns.
    leave_one_out
        Whether bounds on exact rates are tightened by what rows lose if they are left out, so that they hold for new
        people. Parties then send leverages once, a number a row; behind masks, their mean. False bounds the rates of
        the training rows.
    monotone
        Whether parties may have columns in which scores may only rise, or only fall. Needs protection ``"none"``, and
        lets the server read columns whose weights go to their bound (docs/curves.md). Estimators and job files set it
        if a party names such columns; where each participant has its own file, set it in the job.
    """

    history: Annotated[int, Field(ge=0, le=50)] | None = None
    exact_rates: bool | None = None
    bands: Literal[1, 2] | None = None
    own_columns: bool = True
    leave_one_out: bool = True
    monotone: bool = False

    def leaves_out(self, terms: VerticalTerms) -> bool:
        """Return whether bounds are tightened: where rates of two classes are bounded, and by more than zero."""
        job = terms.job
        known = job.label_privacy is None and not job.classes and job.loss_function.classifies
        rates = any(row.measure.is_rate and row.lower < row.upper for row in terms.inequalities)
        return self.leave_one_out and self.exact_rates is not False and known and rates

    def bands_asked(self, terms: VerticalTerms) -> int:
        if self.monotone:
            return BANDS
        return self.bands or (2 if terms.only_sums else 1)

    def steps_kept(self, terms: VerticalTerms) -> int:
        """Return the number of steps to keep. Where only sums arrive, a step of all parties is a single column."""
        if self.history is not None:
            return self.history
        return STEPS_OF_ALL if terms.only_sums else min(16, max(2, 56 // len(terms.names) - 1))


MOST_OWN_COLUMNS = 64
"""Maximum number of the label holder's columns in the tiny problem. Its cost grows with the square of their number."""
MOST_OF_CLASSES = 192
"""The same times the number of classes, where there are more than two."""
MOST_OWN_NUMBERS = 2**25
"""Maximum number of values that the label holder sends to its own server where only sums arrive otherwise: 268 MB."""
FEW_OWN_NUMBERS = 2**19
"""The same elsewhere. On larger tables directions and steps take as many rounds, and cost less."""
LEAST_CURVATURE = 0.08
"""Lower limit on the curvature of a row, as a share of its bound: a row with little curvature may still move."""
LEAST_TOLD = 0.01
"""The same where curvatures have no bound and the server tells them: as a share of their mean."""


class SubspaceParty(GradientParty):
    """Computes directions from its own columns, and moves by the server's coefficients."""

    state_fields: ClassVar = {
        "directions": Array,
        "steps": list[Array],
        "best": Array | None,
        "last_nu": Array,
        "last_curvature": Array,
    }

    model: LinearModel

    def __init__(self, terms: VerticalTerms, name: str, own: PartyData) -> None:
        super().__init__(terms, name, own)
        options = terms.job.settings(Subspace)
        self.bands, self.history = options.bands_asked(terms), options.steps_kept(terms)
        # If the server combines its columns directly, the party gets a coefficient for each.
        most = MOST_OWN_NUMBERS if terms.only_sums else FEW_OWN_NUMBERS
        outputs, columns = self.model.outputs, self.model.columns
        few = columns * outputs <= (MOST_OWN_COLUMNS if outputs == 1 else MOST_OF_CLASSES)
        few &= columns * terms.n_rows <= most
        self.holds_labels = options.own_columns and name == terms.active[0]
        # With a single party there is nothing to combine.
        self.whole = self.holds_labels and few and len(terms.names) > 1
        basis = columns if self.whole else self.bands + self.history
        self.sizes = {**self.sizes, "basis": basis, "lines": outputs * self.bands, "slopes": outputs * basis}
        self.sizes["classes"] = len(REACHES)
        self.tells_reach, self.leaves_out = options.monotone, options.leaves_out(terms)
        # Bounds on signs are for a single output.
        self.signs = np.zeros(columns, dtype=np.int64) if own.signs is None else own.signs
        if self.signs.any():
            check_told(name, options.monotone)
        self.bounds = SignBounds.of(self.signs)
        self.loss = terms.job.loss_function
        self._keep_bounds()
        self.preconditioner = self._preconditioner()
        # Each output has its own; a step holds those of all outputs.
        self.directions: Array = np.zeros((outputs, self.bands, columns))
        self.steps: list[Array] = []
        self.most_score = largest_score(len(terms.names)) if terms.only_sums else None
        self.best: Array | None = None
        self.last_nu = self.last_curvature = np.zeros(0)

    @property
    def trained(self) -> Scorer:
        """The model, with the covariance of its weights if the last derivatives are known."""
        self.model.uncertainty = self._uncertainty
        return self.model

    def _uncertainty(self) -> Array | None:
        """Return the covariance of the weights, from the last derivatives; None if they are not of one score."""
        if self.model.outputs > 1 or len(self.last_nu) != self.terms.n_rows or self.terms.job.label_privacy is not None:
            return None
        rows = self.terms.n_rows
        told = self.last_curvature if len(self.last_curvature) else None
        curvature = self.loss.curvature_by_derivative(rows * self.last_nu) / rows if told is None else told
        return covariance(self.model.matrix, self.last_nu, curvature, self.model.regulariser)

    def start(self) -> Sends:
        """Send the label holder's columns, leverages, and in a warm start the scores of the starting weights."""
        sends = self._own_columns() if self.holds_labels else []
        if self.leaves_out:
            sends.append(self.leverages(self.model))
        if self.terms.warm:
            body = {"scores": self.own_scores().ravel(), "squared_norm": self.model.squared_norm(), "squared_move": 0.0}
            sends.append(SCORES.message(self.name, SERVER, round=0, sequence=1, **body))
        return sends

    def _own_columns(self) -> list[Message]:
        shown = self.model.matrix if self.whole else self.model.matrix[:, :0]
        columns = shown.toarray() if sp.issparse(shown) else shown
        weights = np.ascontiguousarray(self.model.slopes[:, : shown.shape[1]])
        own = OWN_COLUMNS.message(self.name, SERVER, columns=np.ascontiguousarray(columns.T), weights=weights)
        signs = SIGNS.message(self.name, SERVER, signs=self.signs[: shown.shape[1]])
        return [signs, own] if self.tells_reach else [own]

    def handle(self, message: Message) -> Sends:
        self.round = message.integer("round")
        if message.kind == DERIVATIVE.kind:
            gradient = self.gradient_told(message)
            self.last_nu, self.last_curvature = message["nu"], message["curvature"]
            if message.integer("last"):
                return [self.gradient_norm(self._least(gradient))]
            return self._propose(gradient, message)
        if message.kind == COEFFICIENTS.kind:
            self._go(message["coefficients"].reshape(self.model.outputs, -1), message["intercept"])
            if message.integer("keep"):
                self.best = self.model.weights.copy()
            self.done = bool(message.integer("last"))
            return ()
        if message.kind == GO_BACK.kind and self.best is not None:
            self.model.weights = self.best.copy()
            return ()
        raise ProtocolError(f"{self.name} takes no {message.kind!r}")

    def _keep_bounds(self) -> None:
        """Move weights to their bounds."""
        if self.signs.any():
            self.model.weights = self.bounds.kept(self.model.weights)

    def _least(self, gradient: Array) -> Array:
        """Return the gradient, without what the bounds take up."""
        if not self.signs.any():
            return gradient
        size, found = self.model.columns, gradient.copy()
        found[:size] = least_gradient(gradient[:size], self.model.weights[:size], self.signs, self.model.regulariser)
        return found

    def _preconditioner(self) -> Preconditioner | ClassPreconditioner:
        matrix, regulariser = self.model.matrix, self.model.regulariser
        if self.terms.job.classes:
            return ClassPreconditioner(matrix, self.model.outputs, regulariser)
        # A loss without a bound has the curvature that the server tells, or the expected one, which is one for gamma.
        bound = self.loss.curvature_bound if np.isfinite(self.loss.curvature_bound) else 1.0
        return make_preconditioner(matrix, bound / self.terms.n_rows, regulariser)

    def _directions(self, slopes: Array, message: Message) -> tuple[Array, float]:
        """Return directions (outputs, bands, columns), from the slopes of all outputs, and the gain they promise."""
        if isinstance(self.preconditioner, ClassPreconditioner):
            nu = self.by_output(message["nu"])[:, self.preconditioner.rows]
            found = -self.preconditioner.solve(slopes, nu, self.bands)
        elif self.signs.any():
            inverse = self.preconditioner.inverse(self._curvature(message))
            directions, gain = self.bounds.direction(inverse, slopes[0], self.model.slopes[0])
            return directions[None], gain
        else:
            found = -self.preconditioner.solve(slopes[0], self._curvature(message), self.bands)[None]
        return found, -0.5 * float((found @ slopes[:, :, None]).sum())

    def _propose(self, gradient: Array, message: Message) -> list[Message]:
        outputs, columns, weights = self.model.outputs, self.model.columns, self.model.slopes
        self.directions, gain = self._directions(gradient.reshape(outputs, -1)[:, :columns], message)
        scores = np.ascontiguousarray((self.model.matrix @ self.directions.reshape(-1, columns).T).T)
        if self.most_score is not None:
            scores = self._fill(scores, message["nu"].reshape(outputs, -1))
            # The length of a direction is free, so one that is too large to be masked is shortened.
            largest = max(float(scores.max(initial=0.0)), -float(scores.min(initial=0.0)))
            if largest > self.most_score:
                self.directions *= self.most_score / largest
                scores *= self.most_score / largest
        self.effort += self.preconditioner.effort + outputs * self.bands * self.model.effort
        bases = np.zeros((outputs, self.bands + self.history, columns))
        for basis, known in zip(bases, self._known, strict=True):
            basis[: len(known)] = known
        least = self._least(gradient)
        direction = DIRECTION.message(
            self.name,
            SERVER,
            round=self.round,
            scores=scores,
            gram=(bases @ bases.transpose(0, 2, 1)).reshape(-1, bases.shape[1]),
            linear=(bases @ weights[:, :, None]).ravel(),
            squared_norm=self.model.squared_norm(),
            squared_gradient=least @ least,
            decrement=gain,
        )
        if not self.tells_reach:
            return [direction]
        steps = bases[0, self.bands : self.bands + len(self.steps)]
        reach = classes_of(*self.bounds.reach(self.directions[0], steps, weights[0]), bases.shape[1])
        return [REACH.message(self.name, SERVER, round=self.round, reach=reach), direction]

    def _fill(self, scores: Array, nu: Array) -> Array:
        """Fill the parts of directions that are next to zero, which would leave other parties' parts uncovered."""
        if self.bands == 1:
            return scores
        filled = scores.reshape(len(self.directions), self.bands, -1)
        for output, own in enumerate(filled):
            combined = filling(own, self.round, nu[output])
            if combined is not None:
                self.directions[output], filled[output] = combined @ self.directions[output], combined @ own
        return filled.reshape(scores.shape)

    @property
    def _known(self) -> list[list[Array]]:
        """Each output's directions and past steps, newest first."""
        return [[*own, *(step[place] for step in self.steps)] for place, own in enumerate(self.directions)]

    def _curvature(self, message: Message) -> Array:
        """Return the curvature of the loss on the rows that the preconditioner asks for: as told, or from ν."""
        if self.loss.tells_curvature:
            return self._from_slopes(message["nu"][self.preconditioner.rows])
        curvature: Array = message["curvature"]
        self.check_curvature(curvature)
        return np.maximum(curvature, LEAST_TOLD * float(curvature.mean()))[self.preconditioner.rows]

    def _from_slopes(self, nu: Array) -> Array:
        """Return the curvature of the loss on each row, estimated from ν.

        The estimate treats the tilt of the slices as part of the loss's slope.
        """
        rows = self.terms.n_rows
        curvature = self.loss.curvature_by_derivative(rows * nu)
        least = LEAST_CURVATURE * self.loss.curvature_bound if np.isfinite(self.loss.curvature_bound) else 0.0
        return np.maximum(curvature, least) / rows

    def _go(self, coefficients: Array, intercepts: Array) -> None:
        change = np.zeros_like(self.model.table)
        if self.whole:
            change[:, : self.model.columns] = coefficients
        else:
            # (outputs, bands, columns)
            parts = np.array(
                [
                    split_step(own[: len(known)], self.bands) @ np.array(known)
                    for own, known in zip(coefficients, self._known, strict=True)
                ]
            )
            change[:, : self.model.columns] = parts.sum(axis=1)
            self.steps = [*parts.transpose(1, 0, 2), *self.steps][: self.history]
        if self.model.intercept:
            change[:, -1] = intercepts
        self.model.move(change.ravel())
        # Coefficients keep the bounds up to rounding.
        self._keep_bounds()
