"""`evenhand.audit`: measure what training an estimator would disclose to each participant."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any, TypeAlias

from sklearn.base import clone

from evenhand.auditing.audits import audit_horizontal, audit_vertical
from evenhand.auditing.findings import Audit
from evenhand.auditing.views import AuditInput
from evenhand.errors import InputError
from evenhand.estimators.horizontal import HorizontalClassifier
from evenhand.estimators.horizontal_regression import HorizontalRegressor
from evenhand.estimators.vertical import VerticalClassifier, VerticalRegressor

Audited: TypeAlias = VerticalClassifier | VerticalRegressor | HorizontalClassifier | HorizontalRegressor
"""Estimators that can be audited."""


def audit(
    estimator: Audited,
    X: Any,
    y: Any,
    *,
    sensitive_features: Any = None,
    clients: Any = None,
    coalitions: Sequence[Sequence[str]] = (),
) -> Audit:
    """Train a copy of an estimator, and attack it with the messages that each participant receives.

    Each attack has a control on which it must succeed. Its result is compared with what the participant's own columns
    reveal.

    Parameters
    ----------
    estimator
        Estimator with the settings to audit; it is not changed and need not be fitted.
    X, y, sensitive_features, clients
        Arguments of its `fit`.
    coalitions
        Names of parties or clients (or ``"server"``) that collude, in addition to each participant alone.

    Returns
    -------
    Audit
        It has `findings`, and `sentences` for people; `write(folder)` writes them as JSON.

    Examples
    --------
    >>> evenhand.audit(VerticalClassifier(), {"bank": A, "shop": B}, y).sentences  # doctest: +SKIP
    """
    if not isinstance(estimator, Audited):
        raise InputError(f"cannot audit a {type(estimator).__name__}; give a classifier or regressor of evenhand")
    scene = trained_for_audit(estimator, X, y, sensitive_features, clients)[1]
    if isinstance(scene, AuditInput):
        return audit_vertical(scene, coalitions=coalitions)
    return audit_horizontal(scene, coalitions=coalitions)


def trained_for_audit(
    estimator: Audited, X: Any, y: Any, sensitive_features: Any, clients: Any = None
) -> tuple[Any, Any]:
    """Train a copy of an estimator; return it with the records that an audit needs."""
    copy = clone(estimator)
    scenes: list[Any] = []
    copy._audit_inputs = scenes
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if isinstance(copy, VerticalClassifier | VerticalRegressor):
            copy.fit(X, y, sensitive_features=sensitive_features)
        else:
            copy.fit(X, y, sensitive_features=sensitive_features, clients=clients)
    (scene,) = scenes
    return copy, scene
