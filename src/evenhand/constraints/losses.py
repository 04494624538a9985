"""Losses of a score: value, derivative and curvature, with the bounds that step sizes need; and measures of slices.

A loss is a function of the score z and the label y, applied elementwise; it knows no features, slices or
parties. Labels of the logistic loss are ±1, those of all others numbers. `log_link.py` has the losses of counts and
amounts, `families.py` lists all losses by name.

The softmax loss takes a score for each class and row, as an array (classes, n), and labels 0, 1, ..., classes − 1. Its
derivatives have the shape of the scores, its curvature is (classes, classes, n).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Final, Literal, Protocol

import numpy as np
from scipy.special import expit, softmax

from evenhand.arrays import Array, Booleans, Integers
from evenhand.errors import ConstraintError
from evenhand.printing import is_number, quoted

PART = 1 << 14


class Loss(Protocol):
    """What a solver may ask of a loss of one score per row."""

    name: str
    classifies: bool
    """Whether labels are ±1; otherwise they are numbers, and `mean` predicts them."""
    derivative_bound: float
    """sup |∂l/∂z|; infinite where there is none."""
    curvature_bound: float
    """sup ∂²l/∂z²; infinite where there is none."""
    tells_curvature: bool
    """Whether ∂l/∂z tells the curvature."""

    def value(self, scores: Array, labels: Array) -> Array: ...
    def derivative(self, scores: Array, labels: Array) -> Array: ...
    def value_and_derivative(self, scores: Array, labels: Array) -> tuple[Array, Array]: ...
    def curvature(self, scores: Array, labels: Array) -> Array: ...
    def curvature_by_derivative(self, derivative: Array) -> Array:
        """Return ∂²l/∂z² from ∂l/∂z, without the score or the label."""

    def expected_curvature(self, scores: Array) -> Array:
        """Return the expectation of ∂²l/∂z² over labels whose mean is predicted: it depends on no label."""

    def mean(self, scores: Array) -> tuple[Array, Array, Array]:
        """Return the predicted mean of the label, with its first and second derivative in the score."""


class Logistic:
    """l(z, y) = log(1 + exp(−y z)), y = ±1."""

    name = "logistic"
    classifies = True
    derivative_bound = 1.0
    curvature_bound = 0.25
    tells_curvature = True

    def value(self, scores: Array, labels: Array) -> Array:
        return self.value_and_derivative(scores, labels)[0]

    def derivative(self, scores: Array, labels: Array) -> Array:
        return -labels * expit(-labels * scores)

    def value_and_derivative(self, scores: Array, labels: Array) -> tuple[Array, Array]:
        """Return both from one exponential, in parts that fit into the processor's cache."""
        if len(scores) <= PART:
            return self._value_and_derivative(scores, labels)
        value, derivative = np.empty_like(scores), np.empty_like(scores)
        for start in range(0, len(scores), PART):
            part = slice(start, start + PART)
            value[part], derivative[part] = self._value_and_derivative(scores[part], labels[part])
        return value, derivative

    def _value_and_derivative(self, scores: Array, labels: Array) -> tuple[Array, Array]:
        margin = labels * scores
        tail = np.abs(margin)
        np.negative(tail, out=tail)
        np.exp(tail, out=tail)
        value = np.log1p(tail)
        value -= np.minimum(margin, 0.0)
        derivative = np.where(margin < 0, -1.0, -tail)
        tail += 1.0
        derivative /= tail
        derivative *= labels
        return value, derivative

    def curvature(self, scores: Array, labels: Array) -> Array:
        tail = np.exp(-np.abs(scores))
        return tail / (1.0 + tail) ** 2

    def curvature_by_derivative(self, derivative: Array) -> Array:
        """Return σ(1 − σ) with σ = |∂l/∂z|, clipped to one, since tilts can make derivatives larger."""
        size: Array = np.minimum(np.abs(derivative), 1.0)
        return size * (1.0 - size)

    def expected_curvature(self, scores: Array) -> Array:
        return self.curvature(scores, scores)

    def mean(self, scores: Array) -> tuple[Array, Array, Array]:
        """Return the probability of the positive label."""
        rate: Array = expit(scores)
        bend = rate * (1.0 - rate)
        return rate, bend, bend * (1.0 - 2.0 * rate)


class Squared:
    """l(z, y) = (z − y)² / 2, y real."""

    name = "squared"
    classifies = False
    derivative_bound = np.inf
    curvature_bound = 1.0
    tells_curvature = True

    def value(self, scores: Array, labels: Array) -> Array:
        return 0.5 * (scores - labels) ** 2

    def derivative(self, scores: Array, labels: Array) -> Array:
        return scores - labels

    def value_and_derivative(self, scores: Array, labels: Array) -> tuple[Array, Array]:
        residual = scores - labels
        return 0.5 * residual**2, residual

    def curvature(self, scores: Array, labels: Array) -> Array:
        return np.ones_like(scores)

    def curvature_by_derivative(self, derivative: Array) -> Array:
        return np.ones_like(derivative)

    def expected_curvature(self, scores: Array) -> Array:
        return np.ones_like(scores)

    def mean(self, scores: Array) -> tuple[Array, Array, Array]:
        return scores, np.ones_like(scores), np.zeros_like(scores)


class Softmax:
    """l(z, y) = log Σ_k exp(z_k) − z_y, the multinomial logistic loss of a score for each class."""

    name = "softmax"
    classifies = True
    derivative_bound = 1.0
    curvature_bound = 0.25
    """Of each class by itself; the curvature over all classes of a row is at most 1/2."""
    tells_curvature = True

    def value(self, scores: Array, labels: Array) -> Array:
        largest = scores.max(axis=0)
        found: Array = np.log(np.exp(scores - largest).sum(axis=0)) + largest - chosen(scores, labels)
        return found

    def derivative(self, scores: Array, labels: Array) -> Array:
        shares: Array = softmax(scores, axis=0)
        shares[labels.astype(np.int64), np.arange(len(labels))] -= 1.0
        return shares

    def value_and_derivative(self, scores: Array, labels: Array) -> tuple[Array, Array]:
        return self.value(scores, labels), self.derivative(scores, labels)

    def curvature(self, scores: Array, labels: Array) -> Array:
        return spread(softmax(scores, axis=0))

    def curvature_by_derivative(self, derivative: Array) -> Array:
        """Return p_k(1 − p_k), each class by itself."""
        size: Array = np.minimum(np.abs(derivative), 1.0)
        return size * (1.0 - size)

    def expected_curvature(self, scores: Array) -> Array:
        return spread(softmax(scores, axis=0))

    def mean(self, scores: Array) -> tuple[Array, Array, Array]:
        raise ConstraintError("the mean of a class is not a number; bound rates of classes instead")


def chosen(values: Array, labels: Array | Integers) -> Array:
    """Return each row's entry at its label, from values (classes, n)."""
    found: Array = values[labels.astype(np.int64), np.arange(values.shape[1])]
    return found


def spread(shares: Array) -> Array:
    """Return diag(p) − ppᵀ of each row, (classes, classes, n)."""
    found = -shares[:, None] * shares
    every = np.arange(len(shares))
    found[every, every] += shares
    return found


SOFTMAX: Final[Loss] = Softmax()


MeasureName = Literal["loss", "error", "positive", "prediction"]
MEASURES: tuple[MeasureName, ...] = ("loss", "error", "positive", "prediction")


@dataclass(frozen=True)
class Measure:
    """φ(z, y), averaged over slices.

    Parameters
    ----------
    name
        ``"loss"``: the training loss itself. ``"error"``: σ(−y (z − t) / T), a smooth error rate.
        ``"positive"``: σ((z − t) / T), a smooth selection rate. With a score for each class, both are of the
        probabilities p = softmax(z / T): 1 − p_y, and p_c for the class `of_class`. ``"prediction"``: the predicted
        mean itself, such as exp(z) for counts.
    temperature
        T, of rates only. Sharper (smaller T) is nearer to the exact rate, but no better on unseen rows and
        harder to optimise: `benchmarks/temperature.py` compares.
    cut
        t, the score above which a row is decided positive, for rates only.
    of_class
        c, for ``"positive"`` with a score for each class: the rate at which c has the highest score.
    """

    name: MeasureName
    temperature: float = 0.5
    cut: float = 0.0
    of_class: int | None = None
    class_name: str = field(default="", compare=False)

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or self.name not in MEASURES:
            raise ConstraintError(f"measure is {quoted(self.name)}; choose one of {', '.join(map(repr, MEASURES))}")
        if not (is_number(self.temperature) and self.temperature > 0):
            raise ConstraintError(f"temperature is {quoted(self.temperature)}; it must be a positive number")

    def tempered(self, factor: float) -> Measure:
        """Return the measure at its temperature times a factor."""
        return replace(self, temperature=factor * self.temperature)

    @property
    def is_rate(self) -> bool:
        """Whether it is a smooth rate of decisions, which is reported as an exact one."""
        return self.name in ("error", "positive")

    def _margin(self, scores: Array) -> Array:
        # Most runs decide at zero, which needs no copy of the scores.
        return scores - self.cut if self.cut else scores

    def _direction(self, labels: Array) -> Array | float:
        return -labels if self.name == "error" else 1.0

    def value_and_derivative(self, loss: Loss, scores: Array, labels: Array) -> tuple[Array, Array]:
        if self.name == "loss":
            return loss.value_and_derivative(scores, labels)
        if self.name == "prediction":
            return loss.mean(scores)[:2]
        if scores.ndim == 2:
            return self._of_classes(scores, labels)
        direction = self._direction(labels)
        rate: Array = expit(direction * self._margin(scores) / self.temperature)
        return rate, rate * (1.0 - rate) * direction / self.temperature

    def curvature(self, loss: Loss, scores: Array, labels: Array) -> Array:
        if self.name == "loss":
            return loss.curvature(scores, labels)
        if self.name == "prediction":
            return loss.mean(scores)[2]
        if scores.ndim == 2:
            return self._curvature_of_classes(scores, labels)
        rate: Array = expit(self._direction(labels) * self._margin(scores) / self.temperature)
        return rate * (1.0 - rate) * (1.0 - 2.0 * rate) / self.temperature**2

    def _shares(self, scores: Array, labels: Array) -> tuple[Array, Array, Array]:
        """Return softmax(z / T), its entry at the counted class of each row, and e_class − softmax(z / T)."""
        shares: Array = softmax(scores / self.temperature, axis=0)
        counted = labels if self.name == "error" else np.full(len(labels), self.of_class, dtype=np.int64)
        away = -shares
        away[counted.astype(np.int64), np.arange(len(labels))] += 1.0
        return shares, chosen(shares, counted), away

    def _of_classes(self, scores: Array, labels: Array) -> tuple[Array, Array]:
        _, rate, away = self._shares(scores, labels)
        slope = rate * away / self.temperature
        return (1.0 - rate, -slope) if self.name == "error" else (rate, slope)

    def _curvature_of_classes(self, scores: Array, labels: Array) -> Array:
        shares, rate, away = self._shares(scores, labels)
        found: Array = rate * (away[:, None] * away - spread(shares)) / self.temperature**2
        return -found if self.name == "error" else found

    def exact(self, scores: Array, labels: Array) -> Booleans:
        """Return the indicator that the reported rate averages: of an error, or of a positive decision (z > t).

        With a score for each class, the decision is the class with the highest one.
        """
        if scores.ndim == 2:
            decided = scores.argmax(axis=0)
            found: Booleans = decided == self.of_class if self.name == "positive" else decided != labels
            return found
        positive: Booleans = scores > self.cut
        return positive if self.name == "positive" else positive != (labels > 0)

    def reported(self, loss: Loss, scores: Array, labels: Array) -> Array:
        """Return what each row adds to the mean that one would report: rates are exact."""
        if self.is_rate:
            return self.exact(scores, labels).astype(np.float64)
        return self.value_and_derivative(loss, scores, labels)[0]

    def derivative_bound(self, loss: Loss) -> float:
        """sup |∂φ/∂z|."""
        if self.name == "prediction":
            return _MEAN_BOUNDS.get(loss.name, (np.inf, np.inf))[0]
        return loss.derivative_bound if self.name == "loss" else 0.25 / self.temperature

    def curvature_bound(self, loss: Loss) -> float:
        """sup |∂²φ/∂z²|; for a sigmoid 1 / (6√3) at temperature one."""
        if self.name == "prediction":
            return _MEAN_BOUNDS.get(loss.name, (np.inf, np.inf))[1]
        return loss.curvature_bound if self.name == "loss" else 1.0 / (6.0 * np.sqrt(3.0) * self.temperature**2)


_MEAN_BOUNDS: Final = {"logistic": (0.25, 1.0 / (6.0 * np.sqrt(3.0))), "squared": (1.0, 0.0)}
"""Bounds on the first and second derivative of the predicted mean, by loss; there are none for other losses."""


def constant_score(loss: Loss, targets: Array, weights: Array) -> Array:
    """Return the score of each row whose prediction is the mean of targets that are numbers."""
    mean = float(np.average(targets, weights=weights))
    return np.full(len(targets), mean if loss.name == "squared" else np.log(max(mean, np.finfo(float).tiny)))


def by_measure(measures: Iterable[Measure]) -> dict[Measure, Integers]:
    """Group the places of a list by measure, so that each measure is evaluated once."""
    found: dict[Measure, list[int]] = {}
    for place, measure in enumerate(measures):
        found.setdefault(measure, []).append(place)
    return {measure: np.array(places) for measure, places in found.items()}
