"""Every estimator that ends unconverged, or with one label for all rows, says so with scikit-learn's warning."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.exceptions import ConvergenceWarning

from evenhand import (
    HorizontalClassifier,
    LossParity,
    NeymanPearson,
    SplitTableClassifier,
    VerticalClassifier,
    VerticalRegressor,
)
from evenhand.errors import MajorityWarning
from evenhand.estimators.shared import warn_of_majority
from evenhand.programs.optimality import Residual
from evenhand.protocol.job import Job
from evenhand.protocol.solver import Certificate
from evenhand.solvers import FedAvg, HistogramTrees, Trees
from evenhand.solvers.registry import HORIZONTAL, VERTICAL
from evenhand.training.run import shortfalls

ROWS = 240
RNG = np.random.default_rng(0)
X = RNG.standard_normal((ROWS, 4))
# Many more of one label: a model that knows nothing gives everybody that one.
Y = np.where(X @ [2.0, -1.0, 0.0, 0.5] + RNG.logistic(size=ROWS) > -2.0, "yes", "no")
GROUPS = pd.DataFrame({"sex": RNG.choice(["f", "m"], ROWS)})
CLIENTS = np.arange(ROWS) % 3


def vertical(**settings: Any) -> Any:
    return VerticalClassifier(random_state=0, **settings).fit([X[:, :2], X[:, 2:]], Y, sensitive_features=GROUPS)


def regressor(**settings: Any) -> Any:
    return VerticalRegressor(random_state=0, **settings).fit([X[:, :2], X[:, 2:]], X @ [1.0, 2.0, 0.0, 1.0])


def split_table(**settings: Any) -> Any:
    return SplitTableClassifier(VerticalClassifier(random_state=0, **settings)).fit(X, Y, sensitive_features=GROUPS)


def horizontal(**settings: Any) -> Any:
    if settings.get("solver", "auto") not in ("auto", "sqp", "prox-al", "trees"):
        pytest.importorskip("torch")
    return HorizontalClassifier(random_state=0, **settings).fit(X, Y, sensitive_features=GROUPS, clients=CLIENTS)


FITS: list[tuple[Callable[..., Any], str]] = [
    # Trees and learners are whole after any number of rounds: see below.
    *((vertical, name) for name in VERTICAL if name not in ("trees", "learners")),
    # Averaging solvers train for all their rounds, and promise the constraint: see below.
    *((horizontal, name) for name in ("sqp", "prox-al")),
    (split_table, "auto"),
    (regressor, "vfb2-svrg"),
]


@pytest.mark.parametrize(("fit", "solver"), FITS)
def test_who_ends_unconverged_warns(fit: Callable[..., Any], solver: str) -> None:
    with pytest.warns(ConvergenceWarning, match=r"did not converge in \d+ rounds") as caught:
        model = fit(solver=solver, max_rounds=1, tol=1e-12)
    told = [one for one in caught if "did not converge" in str(one.message)]
    assert len(told) == 1
    # Whoever called fit is told, except where another estimator did.
    assert told[0].filename == __file__ or fit is split_table
    assert not (model.classifier_ if fit is split_table else model).certificate_.converged


def test_learners_are_whole_after_any_number_of_rounds_and_say_what_ended_them() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        run = vertical(solver="learners", model="linear", max_rounds=1, tol=1e-12).run_
    assert run.certificate.converged
    assert run.statistics["ended by"] == "max_rounds"


@pytest.mark.parametrize("fit", [vertical, horizontal])
def test_trees_are_whole_after_any_number_of_rounds_and_say_what_ended_them(fit: Callable[..., Any]) -> None:
    kind = Trees if fit is vertical else HistogramTrees
    if fit is vertical:
        pytest.importorskip("lightgbm")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        run = fit(solver=kind(rows_a_leaf=5, shrinkage=1.0), max_rounds=20).run_
    told = run.statistics if fit is vertical else run.record
    assert run.certificate.converged
    assert told["ended by"] in ("max_rounds", "the held-out loss fell no more", "the leave-one-out loss fell no more")


@pytest.mark.parametrize("fit", [vertical, horizontal, split_table, regressor])
def test_who_converges_does_not(fit: Callable[..., Any]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fit(tol=1e-3)


@pytest.mark.parametrize("fit", [vertical, horizontal, split_table])
def test_one_label_for_every_row_is_told(fit: Callable[..., Any]) -> None:
    with pytest.warns(ConvergenceWarning, match=f"gives all {ROWS} rows the same label, yes"):
        model = fit(alpha=1e6)
    assert set(model.predict([X[:, :2], X[:, 2:]] if fit is vertical else X)) == {"yes"}


def test_a_fit_is_kept_where_warnings_are_errors() -> None:
    model = VerticalClassifier(max_rounds=1, tol=1e-12)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(ConvergenceWarning):
            model.fit([X[:, :2], X[:, 2:]], Y)
    assert len(model.predict([X[:, :2], X[:, 2:]])) == ROWS


def test_where_clients_were_not_asked_to_measure_nothing_is_said_of_convergence() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        horizontal(solver=FedAvg(report_every=0, step=0.5, batch_size=8), max_rounds=30)


@pytest.mark.parametrize("solver", [name for name, one in HORIZONTAL.items() if one.fixed_rounds])
def test_averaging_solvers_promise_the_constraint_and_no_optimum(solver: str) -> None:
    wide = LossParity(9.0) if HORIZONTAL[solver].takes_constraints else None
    # Warnings are errors: this says nothing.
    horizontal(solver=solver, max_rounds=30, tol=1e-12, constraint=wide)


def test_an_averaging_solver_that_misses_its_constraint_names_it() -> None:
    with pytest.warns(ConvergenceWarning, match=r"did not converge in 1 rounds .*a constraint is missed"):
        horizontal(solver="fairfedavgalm", max_rounds=1, constraint=LossParity(0.0))


def test_prox_al_names_what_its_stopping_rule_lacks() -> None:
    residual = Residual(stationarity=1e-4, violation=0.0, complementarity=1e-5, distance=0.02, objective=1.0)
    certificate = residual.certificate(7, converged=False, unmet="a constraint is 2.0e-02 inside its bound")
    (line,) = shortfalls(certificate, 1e-3, 7)
    assert "tol 0.001; a constraint is 2.0e-02 inside its bound)" in line
    assert residual.certificate(7, converged=True, unmet="anything").unmet is None
    # At the first round nothing is solved; the numbers already tell what fails.
    with pytest.warns(ConvergenceWarning):
        model = horizontal(solver="prox-al", max_rounds=1, tol=1e-12)
    assert model.certificate_.unmet is None
    # A tolerance that the model meets at once leaves only the rule itself.
    with pytest.warns(ConvergenceWarning, match="proximal AL Eq"):
        horizontal(solver="prox-al", max_rounds=1, tol=10.0)


CERTIFICATE = Certificate(
    stationarity=0.1, violation=0.1, complementarity=0.0, objective=1.0, rounds=7, converged=False
)


@pytest.mark.parametrize(("given", "told"), [(2000, True), (1998, True), (1997, False)])
def test_nearly_one_label_is_one_label(given: int, told: bool) -> None:
    decisions = ["yes"] * given + ["no"] * (2000 - given)
    found = shortfalls(replace(CERTIFICATE, converged=True), 1e-3, 10, decisions)
    assert bool(found) == told
    assert all("rows the same label, yes" in line for line in found)


def eight_groups() -> tuple[np.ndarray, np.ndarray, pd.DataFrame]:
    """Draw rows of eight groups, nearly all of one label, with columns that say little."""
    random, rows = np.random.default_rng(5), 1600
    columns = random.standard_normal((rows, 4))
    labels = np.where(0.2 * columns[:, 0] + random.logistic(size=rows) > -5.0, "yes", "no")
    return columns, labels, pd.DataFrame({"place": np.arange(rows) // 2 % 8})


EVERY_SOLVER = [
    pytest.param("vertical", name, marks=pytest.mark.soak if name.startswith(("vfb2-sgd", "afs")) else ())
    for name in VERTICAL
] + [pytest.param("horizontal", name) for name in HORIZONTAL]


@pytest.mark.slow
@pytest.mark.parametrize(("split", "solver"), EVERY_SOLVER)
def test_nearly_one_label_is_told_of_every_solver_with_eight_groups(split: str, solver: str) -> None:
    columns, labels, groups = eight_groups()
    registered = {"vertical": VERTICAL, "horizontal": HORIZONTAL}[split][solver]
    needs = "lightgbm" if (split, solver) == ("vertical", "trees") else "torch" if registered.fixed_rounds else None
    if needs is not None:
        pytest.importorskip(needs)
    settings: dict[str, Any] = {"random_state": 0, "solver": solver, "max_rounds": 6}
    if registered.takes_constraints:
        settings["constraint"] = LossParity(5.0)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        if split == "vertical":
            parts = [columns[:, :2], columns[:, 2:]]
            model: Any = VerticalClassifier(**settings).fit(parts, labels, sensitive_features=groups)
            decided = model.predict(parts)
        else:
            model = HorizontalClassifier(**settings)
            model.fit(columns, labels, sensitive_features=groups, clients=np.arange(len(labels)) % 3)
            decided = model.predict(columns)
    most = int(np.sum(decided == "yes"))
    assert most >= 0.999 * len(labels), "the rows do not test what they are drawn for"
    assert any("rows the same label, yes: it does not separate" in str(one.message) for one in caught)


def test_a_run_that_stopped_by_itself_is_not_told_to_take_more_rounds() -> None:
    (ended,) = shortfalls(CERTIFICATE, 1e-3, 7)
    (stopped,) = shortfalls(CERTIFICATE, 1e-3, 8)
    assert "raise max_rounds" in ended
    assert "stopped by itself after 7 of 8 rounds" in stopped
    assert "max_rounds" not in stopped


def of_noise(**settings: Any) -> Any:
    """Fit labels that no column explains: 19 of 30 are decided right, and 22 have the commoner label."""
    random = np.random.default_rng(3)
    columns, labels = random.normal(size=(30, 4)), np.where(random.random(30) < 0.58, "b", "a")
    return VerticalClassifier(alpha=1e-3, random_state=0, **settings).fit([columns[:, :2], columns[:, 2:]], labels)


def one_round(**settings: Any) -> Any:
    """Fit for one round, which ends at zero: everybody gets the negative label."""
    return horizontal(solver="sqp", max_rounds=1, tol=1e-9, pos_label="yes", **settings)


@pytest.mark.parametrize("fit", [of_noise, one_round])
def test_worse_than_the_commoner_label(fit: Callable[..., Any]) -> None:
    with pytest.warns(MajorityWarning, match=r"training rows .* commoner label .* use more rows"):
        fit()
    with warnings.catch_warnings():
        warnings.simplefilter("error", MajorityWarning)
        # A cut and a limit ask for few errors of one kind.
        fit(threshold=0.4)
        fit(constraint=NeymanPearson(0.9))


def test_worse_than_a_lottery() -> None:
    labels = np.repeat(["no", "yes"], [80, 20])
    random, everybody = np.arange(100) % 5 == 0, np.ones(100, dtype=bool)
    for limit, selected, told in ((0.2, everybody, "32.0%"), (0.2, ~random, ""), (0.6, random, "")):
        job = Job("subspace", constraints=(NeymanPearson(limit, measure="error"),))
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            warn_of_majority(job, np.where(selected, "yes", "no"), labels, "yes")
        assert [told in str(one.message) for one in caught] == [True] * bool(told)
