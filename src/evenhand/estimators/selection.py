"""Choose ε and the regulariser by cross-validation inside the federation; compute the accuracy-fairness frontier.

Folds are drawn by row id, so that all parties agree on them without a message; encoders are fitted on each fold's
training rows; no other messages are sent than those of training and scoring. Within a fold, each ε starts from its
neighbour.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
from sklearn.base import clone

from evenhand.arrays import Array, Integers
from evenhand.constraints.kinds import Constraint, as_list, moved
from evenhand.constraints.proving import rate_variance
from evenhand.errors import DataError, GridEdgeWarning, InputError, SmallSliceWarning
from evenhand.estimators.client_rows import read_inputs
from evenhand.estimators.horizontal import HorizontalClassifier
from evenhand.estimators.tables import (
    Beside,
    align_all,
    in_pandas,
    named_columns,
    named_tables,
    row_ids,
    split_off,
    take_rows,
)
from evenhand.estimators.vertical import VerticalClassifier
from evenhand.jobs.tables import fold_numbers
from evenhand.metrics import constraint_gaps, summary
from evenhand.report.frontier import draw_frontier

EPSILONS = (0.5, 0.2, 0.1, 0.05, 0.02, 0.01, 0.005, 0.001)


@dataclass(frozen=True, eq=False)
class Selection:
    """Result of cross-validation.

    Attributes
    ----------
    table
        One row for each alpha, temperature and ε, as :func:`frontier` returns it.
    epsilon, alpha, temperature
        The chosen settings.
    feasible
        Whether they meet `subject_to`; if no settings do, the closest ones are chosen.
    estimator
        Fitted on all rows with the chosen settings.
    """

    table: pd.DataFrame
    epsilon: float
    alpha: float | None
    temperature: float | None
    feasible: bool
    estimator: VerticalClassifier | HorizontalClassifier

    def plot(self, path: Path, fairness: str = "gap") -> None:
        """Draw accuracy against unfairness at the chosen temperature, one line for each alpha.

        ``"gap"`` is the gap that the constraint bounds; any other metric of the table can be drawn instead.
        """
        same = (
            self.table["temperature"].isna()
            if self.temperature is None
            else self.table["temperature"] == self.temperature
        )
        draw_frontier(self.table[same], path, fairness=fairness, chosen=(self.epsilon, self.alpha))


def frontier(
    estimator: VerticalClassifier | HorizontalClassifier,
    X: Any,
    y: Any,
    *,
    sensitive_features: Any,
    sample_weight: Any = None,
    clients: Any = None,
    epsilons: Sequence[float] = EPSILONS,
    alphas: Sequence[float | None] = (None,),
    temperatures: Sequence[float | None] = (None,),
    vary: str | None = None,
    folds: int = 5,
    seed: int = 0,
) -> pd.DataFrame:
    """Return accuracy and fairness for each ε, alpha and temperature, on held-out rows.

    Metrics are computed once on the held-out scores of all folds together. Gaps averaged over small folds would be
    biased upwards by chance.

    Beside the metrics of :func:`evenhand.metrics.summary` and the rounds and bytes of a fit, the table has ``gap``:
    what the constraint bounds, measured exactly (rates, not their smooth stand-ins). Of several constraints `vary`
    names the kind of the one whose ε changes, by default the first that has one; the others keep their bounds.
    ``gap_error`` and ``gap_bound`` are its standard error and bound (:func:`evenhand.metrics.gaps`),
    ``accuracy_error`` is the standard error of accuracy, ``converged`` is the share of folds whose fit converged, and
    ``score`` is the harmonic mean of accuracy and 1 − gap: for DEO the papers' HM. `sample_weight` is for training, as
    in `fit`; metrics count each held-out row once, as those of runs do.
    """
    if not isinstance(estimator, VerticalClassifier | HorizontalClassifier):
        raise InputError(f"cannot vary a {type(estimator).__name__}; give a VerticalClassifier or HorizontalClassifier")
    constraints = as_list(estimator.constraint)
    place = moved(constraints, vary)
    if place is None:
        raise InputError("the estimator has no constraint with an epsilon to vary; add one")
    rows = _rows_of(estimator, X, Beside(y, sensitive_features, sample_weight), clients)
    if (classes := len(pd.unique(rows.labels))) > 2:
        raise DataError(f"y has {classes} classes; select and frontier measure gaps of two")
    fold = fold_numbers(rows.ids, folds, seed)
    path = sorted(set(epsilons), reverse=True)
    lines = []
    for alpha, temperature in product(alphas, temperatures):
        scores = np.zeros((len(path), len(rows.labels)))
        cost = np.zeros((len(path), 3))
        for number in range(folds):
            train, test = np.flatnonzero(fold != number), np.flatnonzero(fold == number)
            # With label privacy every fit starts from scratch.
            fresh = getattr(estimator, "label_privacy", None) is not None
            model = clone(estimator).set_params(alpha=alpha, warm_start=not fresh)
            for bound, epsilon in enumerate(path):
                model.set_params(constraint=with_settings(constraints, place, epsilon, temperature))
                with warnings.catch_warnings():
                    # The final fit on all rows warns about small slices; those of single folds do not matter.
                    warnings.simplefilter("ignore", SmallSliceWarning)
                    model.fit(rows.features(train), rows.labels[train], **rows.beside(train))
                # Decisions of the fold's own cut.
                part = model.decision_function(rows.features(test)) - model._own_cut
                scores[bound, test] = part if model.pos_label_ == model.classes_[1] else -part
                cost[bound] += np.array([model.n_iter_, model.bytes_sent_, model.certificate_.converged]) / folds
        for epsilon, values, (rounds, nbytes, converged) in zip(path, scores, cost, strict=True):
            given: dict[str, Any] = {"sensitive_features": rows.groups, "pos_label": model.pos_label_}
            quality = summary(rows.labels, values, **given, cross=any(one.crosses for one in constraints))
            setting = {"alpha": alpha, "temperature": temperature, "epsilon": epsilon}
            gap = judged(quality["accuracy"], constraint_gaps(constraints[place], rows.labels, values, **given))
            error = float(np.sqrt(rate_variance(quality["accuracy"] * len(rows.labels), len(rows.labels))))
            told = {"accuracy_error": error, "rounds": rounds, "bytes": nbytes, "converged": converged}
            lines.append({**setting, **quality, **gap, **told})
    return pd.DataFrame(lines)


@dataclass(frozen=True, eq=False)
class _Rows:
    """Aligned rows: one table for each party, or all clients' rows in one.

    Attributes
    ----------
    tables
        Tables by party; clients' rows are the only table, without a name.
    clients
        The client of each row; None across columns.
    """

    tables: Mapping[str, Any]
    labels: npt.NDArray[Any]
    groups: Any
    weights: Array | None
    clients: npt.NDArray[Any] | None

    @property
    def ids(self) -> pd.Index:
        return row_ids(self.tables, len(self.labels))

    def features(self, rows: Integers) -> Any:
        """Return what `fit` and `decision_function` take as X."""
        found = {name: take_rows(table, rows) for name, table in self.tables.items()}
        return found if self.clients is None else found[""]

    def beside(self, rows: Integers) -> dict[str, Any]:
        """Return the other arguments of `fit`."""
        found = {"sensitive_features": None if self.groups is None else take_rows(self.groups, rows)}
        if self.clients is not None:
            return {**found, "clients": self.clients[rows]}
        return found if self.weights is None else {**found, "sample_weight": take_rows(self.weights, rows)}


def _rows_of(estimator: VerticalClassifier | HorizontalClassifier, X: Any, beside: Beside, clients: Any) -> _Rows:
    """Align tables, labels, groups and weights; refuse arguments that the estimator's split does not have."""
    if isinstance(estimator, HorizontalClassifier):
        if beside.weights is not None:
            raise InputError("HorizontalClassifier takes no sample_weight: clients report how many rows they have")
        X, groups = in_pandas(X), beside.groups
        if (columns := named_columns(groups, getattr(X, "shape", (0,))[0])) is not None:
            X, groups = split_off(X, columns, "X")
        inputs = read_inputs(X, beside.y, groups, clients)
        groups = inputs.sensitive
        if groups is not None and not isinstance(groups, (pd.DataFrame, pd.Series)):
            groups = np.asarray(groups)
        return _Rows({"": inputs.X}, inputs.labels, groups, None, inputs.clients)
    if clients is not None:
        raise InputError("clients is for HorizontalClassifier: parties of a VerticalClassifier have all rows")
    tables, (labels, groups, weights) = align_all(named_tables(X), beside)
    return _Rows(tables, labels, groups, weights, None)


def judged(accuracy: float, gaps: pd.DataFrame) -> dict[str, float]:
    """Return the worst gap that the constraints bound, and a score that combines accuracy and this gap."""
    worst = gaps.iloc[int(gaps["estimate"].to_numpy().argmax())]
    fairness = max(1.0 - worst["estimate"], 0.0)
    score = 2.0 * accuracy * fairness / (accuracy + fairness) if fairness > 0 else 0.0
    bound = float(gaps["bound"].max())
    return {"gap": worst["estimate"], "gap_error": worst["standard_error"], "gap_bound": bound, "score": score}


def select(
    estimator: VerticalClassifier | HorizontalClassifier,
    X: Any,
    y: Any,
    *,
    sensitive_features: Any,
    sample_weight: Any = None,
    clients: Any = None,
    epsilons: Sequence[float] = EPSILONS,
    alphas: Sequence[float | None] = (None,),
    temperatures: Sequence[float | None] = (None,),
    vary: str | None = None,
    folds: int = 5,
    maximise: str = "score",
    subject_to: Mapping[str, float] | None = None,
    seed: int = 0,
) -> Selection:
    """Choose ε, alpha and the temperature of rates by cross-validation, and fit with them on all rows.

    Among settings that meet `subject_to`, those come first whose fits converge in the most folds.

    Parameters
    ----------
    estimator
        Estimator with a constraint; it is not changed. A HorizontalClassifier needs `clients` too.
    clients
        One client id for each row, as in `HorizontalClassifier.fit`.
    sample_weight
        One weight for each row, as in `fit`. It changes training only: metrics count each held-out row once.
    epsilons, alphas, temperatures
        Values to try, in all combinations. None keeps alpha at 2/n, or the constraint's temperature.
    vary
        Kind of the constraint whose ε is chosen, by default the first that has one; the others keep their bounds.
    maximise
        A column of the table (see :func:`frontier`). ``"score"`` is the harmonic mean of accuracy and 1 − gap, of the
        gap that the constraint bounds; or ``"accuracy"``, ``"HM"``, ``"FR"``.
    subject_to
        Upper bounds on columns, for instance ``{"DFP": 0.01, "DFN": 0.04}``, or ``{"gap_bound": 0.05}``.

    Warns
    -----
    GridEdgeWarning
        If the chosen value of a parameter is the smallest or the largest that was tried.
    """
    if getattr(estimator, "label_privacy", None) is not None:
        raise InputError(
            "select does not support label_privacy: it chooses by true labels of held-out rows, and the terms of the "
            "last fit would reveal the choice. Use frontier, and set epsilon and alpha yourself"
        )
    data = {"sensitive_features": sensitive_features, "sample_weight": sample_weight, "clients": clients}
    grid: dict[str, Any] = {"epsilons": epsilons, "alphas": alphas, "temperatures": temperatures, "vary": vary}
    table = frontier(estimator, X, y, **data, **grid, folds=folds, seed=seed)
    for column in (maximise, *(subject_to or {})):
        if column not in table.columns:
            raise InputError(f"there is no metric {column!r}; choose one of {', '.join(table.columns)}")
    excess = [np.maximum(table[name] - bound, 0.0) / max(bound, 1e-3) for name, bound in (subject_to or {}).items()]
    missed = np.max(excess, axis=0) if excess else np.zeros(len(table))
    # Where fits of the folds do not converge, that on all rows hardly will.
    unconverged = 1.0 - table["converged"].to_numpy()
    best = int(np.lexsort((-table[maximise].to_numpy(), unconverged, missed))[0])
    chosen = {name: table[name].iloc[best] for name in ("epsilon", "alpha", "temperature")}
    epsilon, alpha, temperature = (None if pd.isna(value) else float(value) for value in chosen.values())
    assert epsilon is not None
    default = 2.0 / len(y)
    _warn_of_edge("epsilon", epsilon, epsilons)
    _warn_of_edge("alpha", default if alpha is None else alpha, [default if one is None else one for one in alphas])
    _warn_of_edge("temperature", temperature, temperatures)
    constraints = as_list(estimator.constraint)
    place = moved(constraints, vary)
    assert place is not None
    constraint = with_settings(constraints, place, epsilon, temperature)
    fitted = clone(estimator).set_params(alpha=alpha, constraint=constraint)
    fitted.fit(X, y, **{name: value for name, value in data.items() if value is not None})
    return Selection(table, epsilon, alpha, temperature, bool(missed[best] == 0.0), fitted)


def _warn_of_edge(name: str, chosen: float | None, tried: Sequence[float | None]) -> None:
    values = sorted({value for value in tried if value is not None})
    if chosen is None or len(values) < 2 or chosen not in (values[0], values[-1]):
        return
    edge, beyond = ("smallest", "smaller") if chosen == values[0] else ("largest", "larger")
    warnings.warn(
        f"the best {name} is {chosen:g}, the {edge} that was tried: a {beyond} one may be better; widen the grid",
        GridEdgeWarning,
        stacklevel=3,
    )


def with_settings(
    constraints: Sequence[Constraint], place: int, epsilon: float, temperature: float | None = None
) -> Constraint | tuple[Constraint, ...]:
    """Return the constraints, that at `place` with another ε and, if given, all with another temperature."""
    found = []
    for number, one in enumerate(constraints):
        wanted = {"epsilon": epsilon} if number == place else {}
        if temperature is not None and any(field.name == "temperature" for field in fields(one)):
            wanted["temperature"] = temperature
        found.append(replace(one, **wanted))
    return found[0] if len(found) == 1 else tuple(found)
