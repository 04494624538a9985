"""What all estimators share: parameters of nested objects, classes, labels from scores, checkpoints and warnings."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import MISSING, fields, is_dataclass, replace
from pathlib import Path
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import pandas as pd
from scipy.special import expit, softmax
from sklearn.base import BaseEstimator
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state
from sklearn.utils.multiclass import check_classification_targets

from evenhand.arrays import Array
from evenhand.constraints.families import LossName, check_targets, find_loss
from evenhand.constraints.group_cuts import MEANING
from evenhand.constraints.kinds import Label, NeymanPearson
from evenhand.constraints.thresholds import Cut
from evenhand.data.tables.encoding import PartyEncoder
from evenhand.errors import DataError, EvenhandWarning, GroupDecisionsWarning, InputError, MajorityWarning
from evenhand.jobs.folder import record_in
from evenhand.metrics.deviance import deviance_explained
from evenhand.metrics.majority import below_lottery, below_majority
from evenhand.protocol.job import Job
from evenhand.protocol.solver import Solver, Split
from evenhand.runtime.folder import RunFolder
from evenhand.solvers.registry import HORIZONTAL, VERTICAL


class NestedParameters(BaseEstimator):  # type: ignore[misc]
    """An estimator with objects as parameters: constraint, solver, model, encoder, label privacy.

    ``get_params`` lists the parameters of these objects and ``set_params`` changes them, for instance
    ``solver__history``.
    """

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        found: dict[str, Any] = super().get_params(deep)
        if deep:
            for name, value in list(found.items()):
                found |= {f"{name}__{inner}": one for inner, one in (_parameters(value) or {}).items()}
        return found

    def set_params(self, **params: Any) -> Self:
        own = super().get_params(deep=False)
        nested: dict[str, dict[str, Any]] = {}
        plain = {}
        for key, value in params.items():
            name, _, inner = key.partition("__")
            if inner and name in own:
                nested.setdefault(name, {})[inner] = value
            else:
                plain[key] = value
        super().set_params(**plain)
        for name, changed in nested.items():
            setattr(self, name, _replaced(name, getattr(self, name), changed))
        return self


def _parameters(value: Any) -> dict[str, Any] | None:
    """Return the parameters of an object; None if it is no such object."""
    if isinstance(value, PartyEncoder):
        return value.settings
    if not is_dataclass(value) or isinstance(value, type):
        return None
    return {one.name: getattr(value, one.name) for one in fields(value)}


def _replaced(name: str, value: Any, changed: dict[str, Any]) -> Any:
    known = _parameters(value)
    if known is None and hasattr(value, "set_params"):
        return value.set_params(**changed)
    if known is None:
        raise InputError(
            f"{name}__{next(iter(changed))} needs one object as {name}, such as EqualOpportunity(), Subspace() or "
            f"MLP(); it is {value!r}"
        )
    for inner in changed:
        if inner not in known:
            raise InputError(f"{type(value).__name__} has no parameter {inner!r}; it has {', '.join(known)}")
    return value.unfitted(**changed) if isinstance(value, PartyEncoder) else replace(value, **changed)


class LabelsFromScores:
    """Predictions of a fitted classifier from the scores of its `decision_function`."""

    classes_: npt.NDArray[Any]
    cut_: Cut | None = None

    def decision_function(self, X: Any) -> Array:
        raise NotImplementedError

    def predict(self, X: Any, *, sensitive_features: Any = None) -> npt.NDArray[Any]:
        """Return labels: decisions at the cut.

        Parameters
        ----------
        sensitive_features
            Where each group has a cut of its own (`threshold_by`): the group of each row, in the order of the scores.
            Rows of an unknown or missing group get the general cut, with a warning.
        """
        scores, cut = self.decision_function(X), self.cut_
        if cut is None or cut.by is None:
            if sensitive_features is not None:
                raise InputError("sensitive_features is given, but there is one cut for all rows; leave it out")
            return self._decided(scores)
        if sensitive_features is None:
            raise InputError(
                f"there is a cut for each group of {cut.by!r}: give sensitive_features, the group of each row; "
                f"{MEANING}"
            )
        groups = groups_of_rows(sensitive_features, cut.by, len(scores))
        if unknown := cut.unknown(groups):
            warnings.warn(
                f"{unknown:,} of {len(scores):,} rows have no group of {cut.by!r} that the model knows; they get the "
                f"general cut, {cut.score:.3f}",
                GroupDecisionsWarning,
                stacklevel=2,
            )
        return self._decided(scores, self._turned_cut(np.asarray(cut.of_rows(groups))))

    def _decided(self, scores: Array, cut: float | Array | None = None) -> npt.NDArray[Any]:
        at = self._own_cut if cut is None else cut
        chosen = (scores > at).astype(np.int64) if scores.ndim == 1 else scores.argmax(axis=1)
        return self.classes_[chosen]

    def _turned_cut(self, cut: Array) -> Array:
        """Return cuts of the positive label's scores as cuts of `decision_function`."""
        return cut

    @property
    def _own_cut(self) -> float:
        """The score of `decision_function` above which ``classes_[1]`` is predicted."""
        if self.cut_ is None:
            return 0.0
        if self.cut_.by is not None:
            raise InputError(f"there is a cut for each group of {self.cut_.by!r}, and one for all rows is needed here")
        return float(self._turned_cut(np.asarray(self.cut_.score)))

    def predict_proba(self, X: Any) -> Array:
        """Return probabilities, with columns in the order of ``classes_``."""
        scores = self.decision_function(X)
        if scores.ndim > 1:
            return np.asarray(softmax(scores, axis=1))
        odds = self._log_odds(scores)
        return np.stack([expit(-odds), expit(odds)], axis=1)

    def _log_odds(self, scores: Array) -> Array:
        """Return the log-odds that scores stand for."""
        return scores


def groups_of_rows(sensitive_features: Any, by: str, rows: int) -> pd.DataFrame:
    """Return the column of an attribute, for as many rows as are scored; groups may be missing."""
    frame = sensitive_features if isinstance(sensitive_features, pd.DataFrame) else None
    if frame is None:
        frame = pd.DataFrame({by: np.asarray(sensitive_features, dtype=object).ravel()})
    if by not in frame.columns or len(frame) != rows:
        raise DataError(
            f"sensitive_features must have the column {by!r}, with a group for each of the {rows:,} rows; it has "
            f"{len(frame):,} rows and {', '.join(map(str, frame.columns))}"
        )
    return frame[[by]]


def warn_of_groups(cut: Cut | None) -> None:
    """Warn that decisions use the sensitive attribute."""
    if cut is not None and cut.by is not None:
        warnings.warn(
            f"there is a cut for each group of {cut.by!r}, so {MEANING}. New rows need their group",
            GroupDecisionsWarning,
            stacklevel=3,
        )


class MeansFromScores:
    """Predictions of a fitted regressor: the means that its scores stand for."""

    loss: LossName
    power: float

    def _scores_of(self, X: Any) -> Array:
        raise NotImplementedError

    def predict(self, X: Any) -> Array:
        """Return the predicted mean of each row's target."""
        return find_loss(self.loss, self.power).mean(self._scores_of(X))[0]

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Return D², the share of the deviance that the model explains; R² with the squared loss."""
        targets = read_targets(np.asarray(y), self.loss)
        return deviance_explained(find_loss(self.loss, self.power), targets, self._scores_of(X), sample_weight)


def read_targets(targets: npt.NDArray[Any], loss: str) -> Array:
    """Return the targets of a regression as numbers; refuse those that the loss cannot have."""
    if loss == "logistic":
        raise InputError("loss is 'logistic', which is for classes; choose 'squared', 'poisson', 'gamma' or 'tweedie'")
    try:
        numbers = targets.astype(np.float64)
    except (TypeError, ValueError) as error:
        raise DataError("y holds values that are not numbers; a regression needs numbers") from error
    check_targets(loss, numbers)
    return numbers


def read_classes(labels: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return the classes in sorted order; refuse missing labels, and labels of one class only."""
    if missing := int(pd.isna(labels).sum()):
        raise DataError(f"y has {missing} missing labels; fill or drop those rows (NaN or None is no class)")
    check_classification_targets(labels)
    classes = np.unique(labels)
    if len(classes) < 2:
        raise DataError(f"y has 1 class ({classes[0]!r}); the classifier can't train when there is only one class")
    return classes


def more_classes(y: Any, threshold: Any) -> tuple[npt.NDArray[Any], tuple[Label, ...]]:
    """Return the classes in `y` and as a job names them, if there are more than two; otherwise nothing.

    Parameters
    ----------
    threshold
        The estimator's, which more than two classes do not have.
    """
    nothing: npt.NDArray[Any] = np.empty(0)
    labels = np.asarray(y).ravel()
    try:
        known = labels[~pd.isna(labels)]
        if len(pd.unique(known)) <= 2:
            return nothing, ()
        classes = read_classes(known)
    except TypeError:
        # Labels of mixed kinds are refused when they are read.
        return nothing, ()
    if threshold != 0.5:
        raise InputError(
            f"threshold is {threshold!r}, which is for two labels, and y has {len(classes)} classes: the one with the "
            "highest probability is predicted"
        )
    return classes, tuple(one if isinstance(one, (str, int, float)) else str(one) for one in classes.tolist())


def class_codes(labels: npt.NDArray[Any], pos_label: Any) -> tuple[npt.NDArray[Any], Any, Array]:
    """Return the classes, the positive one of two, and for each row ±1, or the number of its class if there are more.

    Parameters
    ----------
    pos_label
        The positive label; None is the larger of the two.
    """
    classes = read_classes(labels)
    if len(classes) > 2:
        if pos_label is not None:
            raise InputError(
                f"pos_label is {pos_label!r}, but y has {len(classes)} classes; it is for two classes only"
            )
        return classes, None, np.searchsorted(classes, labels).astype(np.float64)
    chosen = classes[1] if pos_label is None else pos_label
    if chosen not in classes:
        raise DataError(f"pos_label is {pos_label!r}, but the labels in y are {classes}")
    return classes, chosen, np.where(labels == chosen, 1.0, -1.0)


def seed_of(state: int | np.random.RandomState | None) -> int:
    """Return the seed that a `random_state` means."""
    return int(state) if isinstance(state, (int, np.integer)) else int(check_random_state(state).randint(2**31))


@contextmanager
def recorded_fit(path: str | Path | None, estimator: str) -> Iterator[RunFolder | None]:
    """Yield a folder for checkpoints. It is removed when the fit is done, and stays if the fit is interrupted."""
    if path is None:
        yield None
        return
    with record_in(Path(path), {"estimator": estimator}, Path.cwd(), resume=True) as folder:
        yield folder
        folder.remove()


class ShortfallWarning(EvenhandWarning, ConvergenceWarning):  # type: ignore[misc]
    """The solver did not converge, or the model gives every row the same label."""


def warn_of(shortfalls: Sequence[str]) -> None:
    """Warn the caller of `fit` last, so that the fitted model is kept if warnings are errors."""
    for one in shortfalls:
        warnings.warn(one, ShortfallWarning, stacklevel=3)


def warn_of_majority(
    job: Job, decisions: npt.NDArray[Any], labels: npt.NDArray[Any], positive: Any, *, weighted: bool = False
) -> None:
    """Warn if the model is right less often than an answer without columns, on its training rows.

    That answer is the commonest label for everybody. Under a limit on one label's error rate it is a lottery that keeps
    the limit. A chosen cut, weights and other limits ask for few errors of one kind, and not for few errors: then
    nothing is said.
    """
    chosen = job.rule is not None or job.cut != 0.0 or job.class_weight is not None or weighted
    others = [one for one in job.asked if not one.compares_groups]
    limits = [one for one in others if isinstance(one, NeymanPearson) and one.measure == "error" and not one.classes]
    if chosen or len(limits) < len(others):
        return
    right, rows = int(np.sum(decisions == labels)), len(labels)
    if limits:
        shares = [(one.limit, float(np.mean((labels == positive) == (one.label > 0)))) for one in limits]
        said = below_lottery(right / rows, rows, shares)
    else:
        common = int(np.unique(labels, return_counts=True)[1].max())
        said = below_majority(right, common, rows, "training", (one.kind for one in job.asked))
        wider = "widen the bound" if job.asked else "raise alpha"
        said += f": use more rows or fewer columns, or {wider}" if said else ""
    if said:
        warnings.warn(said, MajorityWarning, stacklevel=3)


def named_solver(split: Split, given: Any) -> tuple[str, dict[str, Any]]:
    """Return the name and the options of a solver, which a user gives by name or as an object with its options.

    Only options that differ from their defaults are returned, so that an object with defaults equals the name alone.
    """
    if isinstance(given, str):
        return given, {}
    listed: dict[str, Any] = {**(VERTICAL if split == "vertical" else HORIZONTAL)}
    for name, solver in listed.items():
        if type(given) is solver.options:
            return name, changed_fields(given)
    known = ", ".join(sorted(solver.options.__name__ for solver in listed.values()))
    raise InputError(f"solver is {given!r}; give a name such as {next(iter(listed))!r}, or an object of {known}")


def trains_several(solver: Callable[[], Solver[Any, Any]]) -> bool:
    """Return whether an estimator's solver trains more than two classes: the tag that scikit-learn reads.

    Parameters
    ----------
    solver
        Finds the solver. It raises an error for settings that `fit` refuses; tags must not.
    """
    try:
        return solver().many_classes
    except InputError:
        return False


def changed_fields(given: Any) -> dict[str, Any]:
    """Return the fields of a dataclass object that differ from their defaults."""
    assert is_dataclass(given)
    found = {}
    for one in fields(given):
        default = one.default if one.default_factory is MISSING else one.default_factory()
        if (value := getattr(given, one.name)) != default:
            found[one.name] = value
    return found
