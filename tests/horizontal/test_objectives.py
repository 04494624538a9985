"""What `prox-al` and `sqp` minimise: rows, clients or the class without a bound, against programs solved by scipy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.optimize import minimize
from support.programs import samples

from evenhand import HorizontalClassifier, LossParity, NeymanPearson
from evenhand.constraints.labelled_rows import FeatureRows
from evenhand.constraints.scope import ConstraintScope
from evenhand.data import PartyEncoder
from evenhand.errors import DataError, InputError
from evenhand.solvers import SQP, ProxAL

# Clients of 20, 40 and 60 rows, so that weighing clients or rows alike are two problems.
DEALT = samples(seed=5, rows=240, clients=6)
HELD = [DEALT[:1], DEALT[1:3], DEALT[3:]]
CLIENTS = [
    FeatureRows(np.vstack([one.features for one in part]), np.concatenate([one.labels for one in part]))
    for part in HELD
]
# One client's bound holds with room to spare, the others' are active.
LIMITS = {"a": 0.5, "b": 0.45, "c": 0.45}


def loss(w: np.ndarray, held: FeatureRows, label: int | None) -> float:
    inside = np.full(len(held.labels), True) if label is None else held.labels == label
    return float(np.logaddexp(0.0, -held.labels[inside] * (held.features[inside] @ w)).mean())


def by_scipy(objective: str) -> np.ndarray:
    """Minimise the objective as the paper writes it, under g(y=1) ≤ r_i at each client."""
    rows = np.array([len(held.labels) for held in CLIENTS])
    shares = rows / rows.sum() if objective == "rows" else np.full(3, 1.0 / 3.0)
    label = -1 if objective == "other-class" else None

    def value(w: np.ndarray) -> float:
        return float(shares @ [loss(w, held, label) for held in CLIENTS])

    bounds = [
        {"type": "ineq", "fun": lambda w, held=held, limit=limit: limit - loss(w, held, 1)}
        for held, limit in zip(CLIENTS, LIMITS.values(), strict=True)
    ]
    options = {"ftol": 1e-13, "maxiter": 500}
    found = minimize(value, np.zeros(CLIENTS[0].features.shape[1]), constraints=bounds, method="SLSQP", options=options)
    assert found.success
    return np.asarray(found.x)


def fitted(solver: Any, **changes: Any) -> HorizontalClassifier:
    scope = ConstraintScope("local", LIMITS)
    settings = {"constraint": NeymanPearson(0.5), "scope": scope, "alpha": 0.0, "tol": 1e-4}
    model = HorizontalClassifier(solver=solver, encoder=PartyEncoder(scale=False), **(settings | changes))
    names = np.concatenate([np.full(len(held.labels), name) for held, name in zip(CLIENTS, LIMITS, strict=True)])
    labels = np.concatenate([held.labels for held in CLIENTS])
    return model.fit(np.vstack([held.features[:, :-1] for held in CLIENTS]), labels, clients=names)


@pytest.mark.parametrize("solver", [SQP, ProxAL], ids=["sqp", "prox-al"])
@pytest.mark.parametrize("objective", ["rows", "clients", "other-class"])
def test_each_objective_ends_where_scipy_does(solver: Any, objective: str) -> None:
    model = fitted(solver(objective=objective))
    assert model.certificate_.converged
    found = np.append(model.coef_.ravel(), model.intercept_)
    np.testing.assert_allclose(found, by_scipy(objective), atol=2e-3)
    others = {"rows", "clients", "other-class"} - {objective}
    assert all(np.abs(found - by_scipy(other)).max() > 0.02 for other in others)


def test_the_other_class_needs_a_bound_on_one_class() -> None:
    with pytest.raises(InputError, match="Neyman-Pearson"):
        fitted(SQP(objective="other-class"), constraint=LossParity(0.1), scope="local")


def test_the_other_class_is_needed_at_every_client() -> None:
    names = np.array(["a", "a", "b", "b"])
    labels = np.array([1, -1, 1, 1])
    model = HorizontalClassifier(constraint=NeymanPearson(0.5), solver=SQP(objective="other-class"))
    with pytest.raises(DataError, match="'b' has no rows"):
        model.fit(np.arange(8.0).reshape(4, 2), labels, clients=names)
