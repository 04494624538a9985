"""Data of each participant of a vertical run, and the Lagrangian and models built from them and the terms.

A process that has the data of all parties takes `PartyColumns` and `Start`; roles never see these two.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar, Final

import numpy as np
import pandas as pd

from evenhand.arrays import Array, Integers, Matrix
from evenhand.constraints.binding import bind_inequalities, compared_groups
from evenhand.constraints.debiased import debiased
from evenhand.constraints.evaluation import Lagrangian
from evenhand.constraints.groups import group_codes, groups_frame
from evenhand.constraints.labelled_rows import LabelledRows
from evenhand.errors import DataError, DivergenceError, InputError, ProtocolError
from evenhand.models.base import PartyModel, Scorer
from evenhand.models.learning.base import PartyLearner
from evenhand.models.leverage import leverages
from evenhand.models.linear import LinearModel
from evenhand.models.mlp import MLPModel
from evenhand.privacy.key_exchange import Session
from evenhand.privacy.randomised_response import AnswerKey, answers
from evenhand.protocol.job import Job
from evenhand.protocol.messages import Message
from evenhand.protocol.roles import SERVER, Follower
from evenhand.protocol.terms import VerticalTerms, check_name
from evenhand.vertical.messages import GRADIENT_NORM, LEVERAGES, VOCABULARY


@dataclass(frozen=True, eq=False)
class PartyColumns:
    """One party's encoded columns for the aligned training rows. An active party holds labels and groups as well."""

    name: str
    matrix: Matrix
    active: bool = False
    categorical: tuple[int, ...] = ()
    """Indices of the columns that hold category codes, for models that use the codes directly (trees)."""
    signs: Integers | None = None
    """For each column 1 if scores may only rise with it, −1 if they may only fall, and 0 for either."""
    learner: PartyLearner | None = None
    """The model of the party's own choice, with solver ``"learners"``; None is a linear one."""

    def __post_init__(self) -> None:
        check_name("party", self.name)


@dataclass(frozen=True, eq=False)
class Start:
    """Starting point of a warm start: each party's weights, and the server's multipliers."""

    weights: Mapping[str, Array]
    multipliers: Array


@dataclass(frozen=True, eq=False)
class ServerData(LabelledRows):
    """Labels and groups that the server holds, the multipliers of an earlier run, if any, and the server's secrets."""

    multipliers: Array | None = None
    session: Session | None = field(default=None, kw_only=True)


@dataclass(frozen=True, eq=False)
class PartyData:
    """Data of one party.

    Attributes
    ----------
    matrix
        Encoded columns for the aligned rows.
    weights
        Weights of an earlier run, if any.
    known
        Labels and groups, if the party is active.
    categorical
        Indices of the columns that hold category codes, for models that use the codes directly (trees).
    signs
        For each column 1 if scores may only rise with it, −1 if they may only fall, and 0 for either; None if all may
        do either.
    marks_absence
        Whether the last column marks rows that the party lacks, which are zeros (NaN for trees) in all others.
    learner
        The model of the party's own choice, with solver ``"learners"``; None is a linear one.
    session
        Secrets of the party in this attempt, if participants have agreed on keys. VFB² and masked runs need them.
    """

    matrix: Matrix
    weights: Array | None = None
    known: LabelledRows | None = None
    categorical: tuple[int, ...] = ()
    signs: Integers | None = None
    marks_absence: bool = False
    learner: PartyLearner | None = field(default=None, kw_only=True)
    session: Session | None = field(default=None, kw_only=True)


def own_lagrangian(terms: VerticalTerms, own: LabelledRows) -> Lagrangian:
    """Return the Lagrangian over a participant's labels and groups, with the inequalities of the terms."""
    if len(own.labels) != terms.n_rows:
        raise DataError(f"{len(own.labels)} labels were given, but the terms describe {terms.n_rows} rows")
    given = groups_frame(own.groups, terms.n_rows)
    if own.answers != terms.job.label_privacy:
        raise DataError(
            "these labels were not drawn with the label privacy of the terms; draw randomised responses with it"
        )
    frame, _ = compared_groups(terms.job.constraints, own.labels, given, terms.groups)
    lacking = [name for name in terms.groups if name not in frame]
    if lacking:
        raise DataError(f"the terms name the sensitive attribute {lacking[0]!r}, which is not among {list(given)}")
    loss, asked = terms.job.loss_function, terms.job.label_privacy
    met = terms.inequalities, terms.groups, own.labels, frame
    if asked is not None:
        return debiased(*met, loss, asked.of_labels, asked.of_groups(terms.groups))
    shares = class_shares(terms.job, own.labels, own.sample_weight)
    return Lagrangian(own.labels, bind_inequalities(*met, own.sample_weight), loss, shares)


def class_shares(job: Job, labels: Array, sample_weight: Array | None) -> Array | None:
    """Return what each row weighs in the mean loss under class weights; None without them."""
    if job.class_weight is None:
        return None
    people = np.ones(len(labels)) if sample_weight is None else sample_weight
    classes = labels.astype(np.int64) if job.classes else (labels > 0).astype(np.int64)
    if job.class_weight == "balanced":
        totals = np.bincount(classes, weights=people, minlength=max(2, len(job.classes)))
        of_class = np.divide(1.0, totals, out=np.zeros_like(totals), where=totals > 0)
    else:
        of_class = np.array(job.class_weight)
    weights = people * of_class[classes]
    return np.asarray(weights / weights.sum())


def answered(terms: VerticalTerms, known: LabelledRows, key: AnswerKey | None) -> LabelledRows:
    """Return the labels and groups that may leave their holder: with label privacy, randomised responses."""
    asked = terms.job.label_privacy
    if asked is None:
        return known
    assert key is not None, "label privacy draws responses from a key"
    codes = answers((known.labels > 0).astype(np.int64), asked.of_labels, key, "label")
    frame = groups_frame(known.groups, len(known.labels))
    responses = asked.of_groups(terms.groups)
    told = {name: group_codes(frame, {name: terms.groups[name]})[name] for name in responses}
    said = frame.assign(
        **{
            name: pd.Index(terms.groups[name]).take(answers(told[name], response, key, f"group {name}"))
            for name, response in responses.items()
        }
    )
    return LabelledRows(np.where(codes > 0, 1.0, -1.0), None if known.groups is None else said, answers=asked)


def party_lagrangian(terms: VerticalTerms, name: str, own: PartyData) -> Lagrangian:
    """Return the Lagrangian of an active party."""
    if own.known is None:
        raise DataError(f"{name} is active by the terms, but has no labels; give it labels or make it passive")
    return own_lagrangian(terms, own.known)


def own_model(terms: VerticalTerms, name: str, own: PartyData) -> PartyModel:
    """Return a party's model over its columns. With linear models the first active party has the intercept."""
    job = terms.job
    check_rows(terms, name, own)
    model: PartyModel
    if job.model == "mlp":
        # Each party has a seed of its own.
        seed = int(np.random.SeedSequence([job.seed, terms.names.index(name)]).generate_state(1)[0])
        model = MLPModel(own.matrix, terms.regulariser, job.hidden, seed)
    else:
        model = LinearModel(own.matrix, terms.regulariser, has_intercept(terms, name), outputs(terms))
    if own.weights is not None:
        if not terms.warm:
            raise InputError(
                f"{name}: there are weights to start from, but the terms have no warm start; drop the weights"
            )
        if own.weights.shape != model.weights.shape:
            raise InputError(f"{name}: {own.weights.size} weights to start from, {model.weights.size} needed")
        model.weights = own.weights.copy()
    return model


def check_rows(terms: VerticalTerms, name: str, own: PartyData) -> None:
    rows = own.matrix.shape[0]
    if rows != terms.n_rows:
        raise DataError(f"{name}: its columns have {rows} rows, but the terms describe {terms.n_rows}")


def check_told(name: str, told: bool) -> None:
    """Refuse monotone columns that the job does not announce, because other participants expect other messages."""
    if not told:
        raise InputError(
            f"{name} has monotone columns, but the job does not say so to the others; set monotone = true in "
            "[job.options]"
        )


def has_intercept(terms: VerticalTerms, name: str) -> bool:
    """Return whether a party's model has the intercept: the first active party, if the job fits one."""
    return terms.job.fit_intercept and name == terms.active[0]


LARGEST_DERIVATIVE: Final = 2.0**40
"""Maximum of n·|ν_i|."""
LARGEST_UNIT: Final = 1e30
"""Largest unit of derivatives that are sent in two bytes. LightGBM stores them in single precision."""
FEW_ROWS: Final = 60
"""Below this number of rows, derivatives may concentrate on any of them."""
NARROW: Final = 5.0
NARROWEST: Final = 1.5
"""Derivatives are narrow below the first effective number of rows, and refused below the second."""
SAME_ROWS: Final = 0.5
"""Cosine of squared derivatives from which on two models concentrate on the same rows."""
MOST_NARROW_ROUNDS: Final = 3
"""Maximum number of rounds with narrow derivatives that a party answers in a run."""


def outputs(terms: VerticalTerms) -> int:
    """Return how many scores a row has: one for two labels, otherwise one for each class."""
    return max(1, len(terms.job.classes))


def message_sizes(terms: VerticalTerms) -> dict[str, int]:
    """Return the sizes of arrays that every role of a run knows."""
    count = outputs(terms)
    curved = 0 if terms.job.loss_function.tells_curvature else terms.n_rows
    sizes = {"rows": terms.n_rows, "constraints": len(terms.inequalities), "curved": curved}
    return sizes | {"outputs": count, "scores": count * terms.n_rows}


def narrowness(nu: Array) -> tuple[float, int]:
    """Return the least effective number of rows of derivatives, and how many times they are narrow.

    The effective number of rows is (Σν²)² / Σν⁴: 1 if one row has all the weight, n if all rows weigh the same. Narrow
    derivatives of several models (models, rows) that concentrate on the same rows count once.
    """
    least, distinct = np.inf, list[Array]()
    for of_model in np.atleast_2d(nu):
        largest = float(np.abs(of_model).max(initial=0.0))
        if largest == 0.0 or len(of_model) < FEW_ROWS:
            continue
        squares = (of_model / largest) ** 2
        unit = squares / np.linalg.norm(squares)
        effective = float(unit.sum() ** 2)
        least = min(least, effective)
        if effective < NARROW and all(float(unit @ other) < SAME_ROWS for other in distinct):
            distinct.append(unit)
    return least, len(distinct)


def check_even(job: Job, lagrangian: Lagrangian, scores: Array, effective: float) -> None:
    """Refuse a class of a few rows, or a few targets that outweigh all others; the derivatives concentrate on them.

    Derivatives may also concentrate for another reason, such as sharp rates; that is no error of the labels.
    """
    if not lagrangian.loss.classifies:
        raise _uneven_targets(lagrangian, scores, effective)
    if job.label_privacy is None:
        weights = lagrangian.constraints.sample_weight
        _check_classes(job, lagrangian.labels if weights is None else lagrangian.labels[weights > 0.0], effective)


def _check_classes(job: Job, labels: Array, effective: float) -> None:
    """Refuse a class with so few rows that parties would refuse its derivatives."""
    names = [repr(one) for one in job.classes] or ["-1", "+1 (the positive one)"]
    counts = np.bincount(labels.astype(np.int64) if job.classes else (labels > 0).astype(np.int64))
    if counts.min() >= NARROW:
        return
    raise DataError(
        f"the label {names[int(counts.argmin())]} has {counts.min()} of the {len(labels):,} training rows: the "
        f"derivatives concentrate on {effective:.1f} rows, and parties refuse such derivatives, because answers would "
        f"describe single rows. Merge the label with another, drop its rows, or give at least {NARROW:.0f} rows of it"
        + ("" if job.rule is None else ". A rule for the cut leaves out a third of the rows at a time; give a number")
    )


def _uneven_targets(lagrangian: Lagrangian, scores: Array, effective: float) -> DataError:
    """Return the error about targets of which a few outweigh all others: parties would refuse the derivatives."""
    targets = lagrangian.labels
    worst = float(targets[np.argmax(np.abs(lagrangian.shared(lagrangian.loss.derivative(scores, targets))))])
    return DataError(
        f"a few targets outweigh all others: the derivatives concentrate on {effective:.1f} of {len(targets):,} rows, "
        f"and parties refuse such derivatives, because answers would describe single rows. The target {worst:g} weighs "
        f"most, and the 99.9 % quantile is {float(np.quantile(targets, 0.999)):g}; cap large targets, or train on "
        "their logarithm"
    )


class Party(Follower):
    """A participant with a model over its own columns. Its data never leave it; only its messages do."""

    vocabulary = VOCABULARY
    state_fields: ClassVar = {"round": int, "model_weights": Array, "narrow_rounds": int}
    model: Scorer

    def __init__(self, terms: VerticalTerms, name: str, model: Scorer) -> None:
        super().__init__(name, message_sizes(terms))
        self.terms = terms
        self.model = model
        self.round = 0
        self.narrow_rounds = 0

    def check_derivatives(self, nu: Array) -> None:
        """Refuse derivatives that probe single rows: the party's answer would describe those rows, not the data.

        Sharp rates under a bound that cannot hold may concentrate honest derivatives on a few rows, so that a few such
        rounds pass. The label holder does not check its own server. Tables of few rows are not checked: there every
        answer describes single rows.
        """
        if self.name in self.terms.active:
            return
        largest, rows = float(np.abs(nu).max(initial=0.0)), nu.shape[-1]
        if largest * rows > LARGEST_DERIVATIVE:
            raise DivergenceError(
                f"{self.name}: a derivative in round {self.round} is {largest:.3g}, too large to come from training; "
                "the steps are too long. Scale the columns, or choose a smaller step"
            )
        effective, narrow = narrowness(nu)
        self._check_width(effective, narrow)

    def check_curvature(self, curvature: Array) -> None:
        """Refuse a curvature that probes single rows, as `check_derivatives` does."""
        if self.name in self.terms.active:
            return
        largest = float(curvature.max(initial=0.0))
        if (curvature < 0.0).any() or not 0.0 < largest * len(curvature) <= LARGEST_DERIVATIVE:
            raise ProtocolError(
                f"{self.name}: the curvature of round {self.round} is negative, zero or too large; refused"
            )
        effective, narrow = narrowness(np.sqrt(curvature))
        self._check_width(effective, narrow)

    def _check_width(self, effective: float, narrow: int) -> None:
        self.narrow_rounds += narrow
        if effective < NARROWEST or self.narrow_rounds > MOST_NARROW_ROUNDS:
            raise ProtocolError(
                f"{self.name}: the derivatives of round {self.round} concentrate on {effective:.1f} rows, and an "
                f"answer would describe its columns in those rows; {self.name} ends the run"
            )

    def derivatives_in_units(self, message: Message) -> tuple[Array, Array]:
        """Return first and second derivatives, (models, rows), which were sent in two bytes each, with their units."""
        units = message.number("gradient_unit"), message.number("curvature_unit")
        if not all(0.0 < unit < LARGEST_UNIT for unit in units):
            raise ProtocolError(
                f"{self.name}: derivatives have invalid units {units}; they must be positive and below {LARGEST_UNIT:g}"
            )
        gradient, curvature = (
            message[name].astype(np.float64) * unit for name, unit in zip(("gradient", "curvature"), units, strict=True)
        )
        self.check_derivatives(gradient)
        return gradient, curvature

    def leverages(self, model: LinearModel) -> Message:
        """Return how far each row's score follows its own derivative, in the party's columns.

        Where only sums arrive, all rows have the mean. A leverage is a function of the row that the parties' directions
        do not have: if the columns of all other parties have few values, their sum would tell it exactly.
        """
        bound = self.terms.job.loss_function.curvature_bound / self.terms.n_rows
        found = leverages(model.matrix, bound, model.regulariser)
        if self.terms.only_sums and self.name in self.terms.passive:
            found = np.full_like(found, found.mean())
        self.effort += float(model.columns) * model.effort
        return LEVERAGES.message(self.name, SERVER, leverages=found)

    def by_output(self, values: Array) -> Array:
        """Return values of all scores, (n,), or (classes, n) with more than two classes."""
        return values.reshape(-1, self.terms.n_rows) if self.terms.job.classes else values

    @property
    def trained(self) -> Scorer:
        """What the party has of its model at the end."""
        return self.model

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
        """Return the gradient from the ν of a message, unless this ν probes single rows."""
        nu = self.by_output(message["nu"])
        self.check_derivatives(nu)
        return self.gradient(nu)

    def gradient_norm(self, gradient: Array) -> Message:
        """Return the party's part of the certificate. The party is then done unless the server asks again."""
        self.done = True
        return GRADIENT_NORM.message(self.name, SERVER, squared_gradient=gradient @ gradient)
