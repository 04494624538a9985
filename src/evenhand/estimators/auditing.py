"""`evenhand.audit`: measure what training an estimator would disclose to each participant."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
from sklearn.base import clone

from evenhand.auditing.audits import audit_horizontal, audit_vertical
from evenhand.auditing.findings import Audit
from evenhand.auditing.views import AuditInput
from evenhand.errors import InputError
from evenhand.estimators.horizontal import HorizontalClassifier
from evenhand.estimators.vertical import VerticalClassifier


def audit(
    estimator: VerticalClassifier | HorizontalClassifier,
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
    if not isinstance(estimator, (VerticalClassifier, HorizontalClassifier)):
        raise InputError(f"cannot audit a {type(estimator).__name__}; give a classifier of evenhand")
    if (classes := len(np.unique(np.asarray(y).astype(str)))) > 2 and isinstance(estimator, VerticalClassifier):
        raise InputError(f"y has {classes} classes; across columns the attacks of the audit are for two")
    scene = trained_for_audit(estimator, X, y, sensitive_features, clients)[1]
    if isinstance(scene, AuditInput):
        return audit_vertical(scene, coalitions=coalitions)
    return audit_horizontal(scene, coalitions=coalitions)


def trained_for_audit(
    estimator: VerticalClassifier | HorizontalClassifier, X: Any, y: Any, sensitive_features: Any, clients: Any = None
) -> tuple[Any, Any]:
    """Train a copy of an estimator; return it with the records that an audit needs."""
    copy = clone(estimator)
    scenes: list[Any] = []
    copy._audit_inputs = scenes
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if isinstance(copy, VerticalClassifier):
            copy.fit(X, y, sensitive_features=sensitive_features)
        else:
            copy.fit(X, y, sensitive_features=sensitive_features, clients=clients)
    (scene,) = scenes
    return copy, scene
