"""Base class of the servers of vertical solvers: labels, multipliers and the certificate.

The server holds labels and groups. In a deployment it runs at the active party, or at an organisation that all active
parties trust with both.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, ClassVar, Final, NamedTuple

import numpy as np

from evenhand.arrays import Array
from evenhand.constraints.evaluation import Lagrangian, Point
from evenhand.constraints.proving import Proof
from evenhand.errors import InputError, ProtocolError
from evenhand.models.base import PartyModel
from evenhand.models.weight_share import WeightShare
from evenhand.protocol.messages import Message
from evenhand.protocol.roles import SERVER, Role, Sends
from evenhand.protocol.solver import Certificate
from evenhand.protocol.terms import VerticalTerms
from evenhand.vertical.messages import VOCABULARY
from evenhand.vertical.problem import ServerData, message_sizes, own_lagrangian

CROSS_FITTED: Final = "cross-fitted scores"
TRAINING_ROWS: Final = "training rows"

BALANCED: Final = 1e-3
"""Largest derivative in the intercept, as a share of the sum of all rows', at which the intercept is at its best."""


class UnseenScores(NamedTuple):
    """Scores of the training rows by models that have not seen them, and how they were made."""

    scores: Array
    words: str


class Distance(NamedTuple):
    """Relative distance from the optimum: at most `bound`, or about `estimate`; at least one of the two is None."""

    bound: float | None = None
    estimate: float | None = None

    @property
    def value(self) -> float | None:
        return self.bound if self.estimate is None else self.estimate


def distance(
    point: Point,
    multipliers: Array,
    *,
    squared_gradient: float,
    objective: float,
    regulariser: float,
) -> Distance:
    """Return the distance of the model with these scores.

    Parameters
    ----------
    point
        Scores, and the constraints that the model is trained under.
    squared_gradient
        ‖∇L‖², over all weights.
    regulariser
        μ.
    """
    if not (regulariser > 0.0 and objective > 0.0 and np.isfinite(squared_gradient)):
        return Distance()
    slack = point.lagrangian.constraints.bounds.excess(point.values)
    unused = float(np.abs(multipliers * np.where(multipliers > 0.0, slack, 0.0)).sum())
    relative = (0.5 * squared_gradient / regulariser + unused) / objective
    return Distance(bound=relative) if is_convex(point.lagrangian, multipliers) else Distance(estimate=relative)


def is_convex(lagrangian: Lagrangian, multipliers: Array) -> bool:
    """Return whether the Lagrangian is convex in the scores, for all scores, at these multipliers."""
    rows = lagrangian.constraints
    used = {measure: places for measure, places in rows.measures.items() if multipliers[:, places].any()}
    # Predictions of the squared loss are linear in the scores; means of counts bend as their loss does.
    bends = {"loss", "prediction"} if lagrangian.loss.name == "poisson" else {"loss"}
    linear = {"prediction"} if lagrangian.loss.name == "squared" else set()
    if any(measure.name not in bends | linear for measure in used):
        return False
    net = multipliers[0] - multipliers[1]
    tilts = np.zeros(rows.weights.shape[1])
    for measure, places in used.items():
        if measure.name in bends:
            tilts += net[places] @ rows.of_measure(measure)
    occurs = np.bincount(rows.stratum, minlength=len(tilts)) > 0
    if isinstance(lagrangian.shares, np.ndarray):
        return bool((lagrangian.shares + rows.weighted(tilts[rows.stratum]) >= 0.0).all())
    return bool((1.0 + rows.total_weight * tilts[occurs] >= 0.0).all())


class Server(Role):
    """Evaluates the Lagrangian at the sum of the parties' scores, and keeps the multipliers.

    Attributes
    ----------
    lagrangian
        Lagrangian over the server's own labels and groups.
    parties
        Names of the parties, in the order in which their scores are summed.
    weight_shares
        After training: the server's shares of passive parties' weights, where nobody has the weights.
    """

    vocabulary = VOCABULARY
    state_fields: ClassVar = {
        "round": int,
        "multipliers": Array,
        "squared_norms": Array,
        "squared_gradients": Array,
        "certificate": Certificate | None,
    }

    def __init__(self, terms: VerticalTerms, own: ServerData) -> None:
        super().__init__(SERVER, message_sizes(terms))
        self.terms = terms
        self.job = terms.job
        self.lagrangian = own_lagrangian(terms, own)
        self.parties = terms.names
        self.active = frozenset(terms.active)
        self.regulariser = terms.regulariser
        self.round = 0
        self.multipliers = self._first_multipliers(own)
        self.squared_norms: Array = np.zeros(len(self.parties))
        self.squared_gradients: Array = np.full(len(self.parties), np.nan)
        self.certificate: Certificate | None = None
        self.weight_shares: dict[str, WeightShare] = {}
        self._place = {name: place for place, name in enumerate(self.parties)}

    def _first_multipliers(self, own: ServerData) -> Array:
        """Return the multipliers of an earlier run if it had as many inequalities, else zeros."""
        none = self.lagrangian.constraints.bounds.no_multipliers()
        if own.multipliers is None:
            return none
        if not self.terms.warm:
            raise InputError("there are multipliers to start from, but the terms have no warm start; drop them")
        return own.multipliers.copy() if own.multipliers.shape == none.shape else none

    def place(self, message: Message) -> int:
        """Return the sender's index among the parties; refuse other senders."""
        if message.sender not in self._place:
            raise ProtocolError(f"{message.sender!r} is not a party of this run; its message is refused")
        return self._place[message.sender]

    @abstractmethod
    def present(self) -> Point:
        """Return the Lagrangian evaluated at the sum of all parties' latest scores."""

    def objective(self, point: Point) -> float:
        return point.loss + 0.5 * self.regulariser * float(self.squared_norms.sum())

    def violation(self, point: Point) -> float:
        """Return the largest violation over the inequalities, by exact or smooth values as each bound asks."""
        return point.violation

    def complementarity(self, point: Point) -> float:
        return point.complementarity(self.multipliers)

    def distance(self, point: Point) -> Distance:
        """Return the distance of a linear model from the optimum, by the parties' last gradients."""
        if self.job.model != "linear":
            return Distance()
        objective = self.objective(point)
        found = distance(
            point,
            self.multipliers,
            squared_gradient=float(self.squared_gradients.sum()),
            objective=objective,
            regulariser=self.regulariser,
        )
        return self._with_intercept(point, found, objective) if self.job.fit_intercept else found

    def _with_intercept(self, point: Point, found: Distance, objective: float) -> Distance:
        """Add what a better intercept gains. It is not regularised, so no bound is known unless it is at its best."""
        if found.value is None:
            return found
        nu = point.derivative(self.multipliers)
        slopes = np.atleast_1d(nu.sum(axis=-1))
        # Classes share their curvature, (classes, classes). That of the loss alone is never negative.
        bends = np.atleast_2d(point.loss_curvature().sum(axis=-1))
        gained = 0.5 * float(slopes @ np.linalg.pinv(bends, rcond=1e-10, hermitian=True) @ slopes)
        value = found.value + max(gained - 0.5 * float(slopes @ slopes) / self.regulariser, 0.0) / objective
        balanced = bool((np.abs(slopes) <= BALANCED * np.abs(nu).sum(axis=-1)).all())
        return Distance(bound=value) if found.estimate is None and balanced else Distance(estimate=value)

    def shortfall(self) -> str:
        """Describe which constraints no model was found to meet; empty if none."""
        return ""

    def unmet(self) -> str | None:
        """Describe what an unconverged run lacks, beyond the certificate's numbers."""
        return self.shortfall() or None

    def proofs(self) -> list[Proof]:
        """Return what the training rows prove about new rows, for constraints with a confidence level."""
        return []

    def row_report(self, point: Point) -> dict[str, float]:
        """Return one row of history: objective, and value, exact rate and multipliers of each inequality."""
        report: dict[str, float] = {"objective": self.objective(point), "violation": self.violation(point)}
        for index, name in enumerate(self.lagrangian.constraints.names):
            report[f"value[{name}]"] = float(point.values[index])
            report[f"exact[{name}]"] = float(point.exact[index])
            report[f"upper multiplier[{name}]"] = float(self.multipliers[0, index])
            report[f"lower multiplier[{name}]"] = float(self.multipliers[1, index])
        return report

    def receive_gradient_norm(self, message: Message, converged: bool) -> None:
        """Add one party's part of the stationarity. The last one completes the certificate."""
        self.squared_gradients[self.place(message)] = message.number("squared_gradient")
        if not np.isnan(self.squared_gradients).any():
            self.certify(self.present(), converged)

    def certify(self, point: Point, converged: bool) -> None:
        self.certificate = Certificate(
            stationarity=float(np.sqrt(self.squared_gradients.sum())),
            violation=self.violation(point),
            complementarity=self.complementarity(point),
            objective=self.objective(point),
            rounds=self.round,
            converged=converged,
            unmet=None if converged else self.unmet(),
            **self.distance(point)._asdict(),
        )
        self.done = True

    def unseen_scores(self) -> UnseenScores | None:
        """Return the training rows' scores by models that have not seen them; None if the solver has none."""
        return None

    def statistics(self) -> dict[str, Any]:
        """Return further plain values for the run record."""
        return {}

    def uncertainty(self, party: str) -> Array | None:
        """Return the covariance of a party's weights, if the server knows the columns; None otherwise."""
        return None

    @abstractmethod
    def handle(self, message: Message) -> Sends: ...


class CompiledRun(Server):
    """A server that also does the work of all parties: messages are counted, not sent.

    Attributes
    ----------
    models
        Models of the parties, complete when the run is done.
    """

    models: dict[str, PartyModel]
