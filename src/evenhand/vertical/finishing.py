"""Let the label holder fit its own part of the model to the true labels, at the end of a run with label privacy.

All messages before follow from randomised responses, and so do the other parties' parts of the model. At the end the
server sends the label holder the sum of all parties' scores. The holder fits its own part with its true labels and
groups: the weights of a linear model, the coefficients of its learners, or a few more trees that it grows alone.
Constraints then hold on the true labels of the training rows. Its part never leaves it, and nothing is sent after it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar, Final

import numpy as np

from evenhand.arrays import Array
from evenhand.constraints.evaluation import Lagrangian
from evenhand.constraints.labelled_rows import LabelledRows
from evenhand.constraints.leave_one_out import LeftOutValues
from evenhand.constraints.proving import ShiftedBounds
from evenhand.errors import ProtocolError
from evenhand.models.base import Scorer
from evenhand.models.learned import LearnedModel
from evenhand.models.linear import LinearModel
from evenhand.models.trees import TreesModel
from evenhand.programs.combining.columns import Columns, DenseColumns
from evenhand.programs.combining.cuts import CutModel, cut_models
from evenhand.programs.combining.reduced import Quadratic, ReducedSolution, solve_reduced
from evenhand.protocol.disclosure import Coverage, Direction
from evenhand.protocol.messages import Message, Schema, Vocabulary
from evenhand.protocol.roles import SERVER, Follower, Role, Sends
from evenhand.protocol.terms import VerticalTerms
from evenhand.vertical.messages import PER_ROW
from evenhand.vertical.problem import message_sizes, own_lagrangian
from evenhand.vertical.subspace.rate_search import LADDER, RateSchedule

MOST_COLUMNS: Final = 256
"""Maximum number of the holder's columns that get a weight each. With more, one factor scales all its weights."""

JOINT_SCORES = Schema(
    "joint-scores",
    {"scores": PER_ROW},
    direction=Direction("server", "label holder"),
    reveals=(
        "The sum of all parties' scores at the end of a run with label privacy, to the label holder. It "
        "refits its own part to the true labels, and sends no answer."
    ),
    coverage=Coverage(from_labels=True),
)
VOCABULARY = Vocabulary(JOINT_SCORES, title="Vertical: the label holder's own end")


class FinishServer(Role):
    """Sends the sum of all parties' scores."""

    vocabulary = VOCABULARY

    def __init__(self, terms: VerticalTerms, scores: Array) -> None:
        super().__init__(SERVER, message_sizes(terms))
        self._holder, self._scores = terms.active[0], scores
        self.done = True

    def start(self) -> Sends:
        return [JOINT_SCORES.message(SERVER, self._holder, scores=self._scores)]

    def handle(self, message: Message) -> Sends:
        raise ProtocolError(f"the server takes no {message.kind!r} from {message.sender!r} at this point")


class FinishParty(Follower):
    """The label holder, with its true labels and groups."""

    vocabulary = VOCABULARY
    state_fields: ClassVar = {"fitted": Array | None, "grown": tuple[str, list[str]] | None}

    def __init__(self, terms: VerticalTerms, model: Scorer, known: LabelledRows) -> None:
        super().__init__(terms.active[0], message_sizes(terms))
        # The job without label privacy: with its own regulariser, and true labels.
        self.terms = replace(terms, job=replace(terms.job, label_privacy=None))
        self.model = model
        self.lagrangian = own_lagrangian(self.terms, known)

    def handle(self, message: Message) -> Sends:
        if self.done:
            raise ProtocolError(f"{self.name} takes no {message.kind!r} at this point")
        if isinstance(self.model, TreesModel):
            # Imported here because it loads the compiler, which only trees need.
            from evenhand.vertical.trees.finishing import grow_on

            grow_on(self.model, self.lagrangian, message["scores"], self.terms)
        else:
            assert isinstance(self.model, LinearModel | LearnedModel)
            refit(self.model, self.lagrangian, message["scores"], self.terms.regulariser)
        self.done = True
        return ()

    # The model belongs to another role. What this role changed in it is part of its own state.

    @property
    def fitted(self) -> Array | None:
        """Fitted weights."""
        return self.model.weights if self.done else None

    @fitted.setter
    def fitted(self, weights: Array | None) -> None:
        if weights is not None:
            self.model.weights = weights

    @property
    def grown(self) -> tuple[str, list[str]] | None:
        """Text of the trees that were grown."""
        return (self.model.head, self.model.trees) if self.done and isinstance(self.model, TreesModel) else None

    @grown.setter
    def grown(self, text: tuple[str, list[str]] | None) -> None:
        if text is not None and isinstance(self.model, TreesModel):
            self.model.head, self.model.trees = text
            self.model.keep(self.model.values, self.model.intercept_value)


def refit(model: LinearModel | LearnedModel, lagrangian: Lagrangian, scores: Array, regulariser: float) -> None:
    """Fit the weights of a linear party, or the coefficients of learners, with the other parties' weights fixed."""
    matrix = model.matrix if isinstance(model, LinearModel) else model.training_outputs()
    count = matrix.shape[1]
    inner = model.weights[:count]
    few = count <= MOST_COLUMNS
    # Directions in which the weights may move: each column, or the present weights as a whole.
    ways = np.eye(count) if few else inner[None]
    columns = np.asarray(matrix @ ways.T)
    gram, linear = regulariser * ways @ ways.T, regulariser * ways @ inner
    if model.intercept:
        columns = np.hstack([columns, np.ones((len(scores), 1))])
        gram, linear = np.pad(gram, (0, 1)), np.append(linear, 0.0)
    own, norms = DenseColumns(np.asfortranarray(columns)), Quadratic(gram, linear)
    found = _solved(lagrangian, scores, own, norms, model.intercept)
    change = np.zeros_like(model.weights)
    change[:count] = found.coefficients[: len(ways)] @ ways
    if model.intercept:
        change[-1] = found.coefficients[-1]
    model.weights = model.weights + change


def _solved(
    lagrangian: Lagrangian, scores: Array, columns: Columns, norms: Quadratic, intercept: bool
) -> ReducedSolution:
    """Return the best combination of columns under the constraints, with exact rates where they are bounded."""
    schedule = RateSchedule(lagrangian)
    multipliers = lagrangian.constraints.bounds.no_multipliers()

    def solve(problem: Lagrangian, start: Array | None) -> ReducedSolution:
        nonlocal multipliers
        found = solve_reduced(problem, scores, columns, norms, multipliers, start=start)
        multipliers = found.multipliers
        return found

    def measure(found: ReducedSolution) -> LeftOutValues:
        raise AssertionError("constraints with a confidence level need true labels, without label privacy")

    def cuts(found: ReducedSolution, shifted: ShiftedBounds) -> list[CutModel]:
        return cut_models(found, columns, norms, shifted)

    return schedule.solve(len(LADDER) + 1, solve, measure, cuts if intercept else None)
