"""The scikit-learn style front: classifiers trained across parties that hold different columns of the same rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, Self

import numpy as np
import numpy.typing as npt
import pandas as pd
from scipy.special import expit
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.utils import check_random_state
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, column_or_1d, validate_data

from evenhand.arrays import Array
from evenhand.constraints import Constraints, as_list, groups_frame
from evenhand.data.align import align
from evenhand.data.encoding import PartyEncoder
from evenhand.errors import DataError, InputError
from evenhand.job import Job, ModelName
from evenhand.report.progress import Progress
from evenhand.runtime.clock import VirtualClock
from evenhand.training import Run, train_vertical
from evenhand.vertical.problem import PartyColumns, Start
from evenhand.vertical.solvers import check_job

RoleName = Literal["active", "passive"]
Tables = Sequence[Any] | Mapping[str, Any]


class VerticalClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """A classifier over several parties' tables, optionally under constraints such as equal opportunity.

    Everything runs in this process; the parties' messages are the ones a deployment would send, and are counted.

    Parameters
    ----------
    solver
        ``"subspace"`` (linear parties, about ten rounds), ``"fairvfl"`` (the papers' method, also for neural
        parties) or ``"fedbcd"`` (which takes no constraint); ``"auto"`` is the first that applies.
    constraint
        One constraint or several, for instance ``EqualOpportunity(0.01)``. None trains without.
    model
        ``"linear"``, or ``"mlp"`` for neural parties (needs the ``torch`` extra).
    roles
        Which parties hold labels and groups: ``None`` makes the first party active and the others passive,
        ``"all-active"`` is the setting of FairVFL's first version, and a list names the role of each.
    alpha
        μ of the regulariser (μ/2)‖θ‖²; None is 2/n.
    max_rounds
        Most communication rounds.
    tol
        When to stop: ``"subspace"`` when the parties' quadratic models promise a gain of at most this share of the
        objective and every row holds, ``"fairvfl"`` when its stationarity gap is at most this.
    runtime
        ``"inprocess"``, or a :class:`~evenhand.VirtualClock` with speeds of machines and links.
    random_state
        Seed of the initial weights of neural parties; linear ones start at zero.
    positive
        The label that counts as positive (the protected class of equal opportunity); None is the larger of the two.
    scale
        Whether each party standardises its numeric columns, on its own training rows. Categories are one-hot encoded
        in any case.
    fit_intercept
        Whether the first active party has an intercept.
    hidden
        Widths of a neural party's hidden layers.
    solver_options
        The solver's own settings, for instance ``{"step": 0.01, "local_steps": 7}``.
    warm_start
        Begin where the last `fit` ended, if it saw the same features: for a neighbouring ε or alpha.
    verbose
        Show progress.

    Attributes
    ----------
    classes_ : the two labels, sorted.
    coef_ : one array of weights for each party, over the features it encoded.
    intercept_ : of the first active party.
    n_rounds_, bytes_sent_ : communication rounds, and bytes of all messages.
    history_ : DataFrame, one row a round.
    certificate_ : stationarity, violation and complementarity at the returned model.
    run_ : the whole run, with its transcript.
    """

    def __init__(
        self,
        *,
        solver: str = "auto",
        constraint: Constraints = None,
        model: ModelName = "linear",
        roles: Sequence[RoleName] | Literal["all-active"] | None = None,
        alpha: float | None = None,
        max_rounds: int = 1000,
        tol: float = 1e-4,
        runtime: Literal["inprocess"] | VirtualClock = "inprocess",
        random_state: int | np.random.RandomState | None = None,
        positive: Any = None,
        scale: bool = True,
        fit_intercept: bool = True,
        hidden: Sequence[int] = (32, 16),
        solver_options: Mapping[str, Any] | None = None,
        warm_start: bool = False,
        verbose: bool = False,
    ) -> None:
        self.solver = solver
        self.constraint = constraint
        self.model = model
        self.roles = roles
        self.alpha = alpha
        self.max_rounds = max_rounds
        self.tol = tol
        self.runtime = runtime
        self.random_state = random_state
        self.positive = positive
        self.scale = scale
        self.fit_intercept = fit_intercept
        self.hidden = hidden
        self.solver_options = solver_options
        self.warm_start = warm_start
        self.verbose = verbose

    def fit(self, X: Tables, y: Any, sensitive_features: Any = None) -> Self:
        """Train.

        Parameters
        ----------
        X
            One table for each party, as a list or as a mapping from the party's name: DataFrames, arrays or sparse
            matrices. Where tables, `y` and `sensitive_features` carry a pandas index it is the id of the row: ids
            must be the same everywhere, in any order.
        y
            Labels of any two values.
        sensitive_features
            One column for each sensitive attribute.
        """
        job = self._job()
        check_job(job)
        clock = self._clock()
        tables, labels, sensitive = _aligned(_named(X), y, sensitive_features)
        classes, positive, signs = self._signs(labels)
        groups = None if sensitive is None else groups_frame(sensitive, len(signs))
        encoders = {name: self._encoder(name, table) for name, table in tables.items()}
        parties = [
            PartyColumns(name, _encode(name, encoders[name], tables[name]), role == "active")
            for name, role in zip(tables, self._role_names(len(tables)), strict=True)
        ]
        with Progress(job.max_rounds, enabled=self.verbose) as progress:
            start = self._start(parties)
            run = train_vertical(job, parties, signs, groups, clock=clock, on_round=progress.round, start=start)
        # Only now: a fit that was refused leaves an earlier one as it was.
        self.classes_, self.positive_, self.encoders_ = classes, positive, encoders
        self._keep(run)
        return self

    def _start(self, parties: Sequence[PartyColumns]) -> Start | None:
        if not (self.warm_start and hasattr(self, "run_")):
            return None
        last = {name: coefficients.size for name, coefficients in zip(self.models_, self.coef_, strict=True)}
        same = self.model == "linear" and last == {party.name: party.matrix.shape[1] for party in parties}
        return self.run_.as_start() if same else None

    def _job(self) -> Job:
        state = self.random_state
        seed = int(state) if isinstance(state, (int, np.integer)) else int(check_random_state(state).randint(2**31))
        if not isinstance(self.hidden, Sequence):
            raise InputError(f"hidden is {self.hidden!r}; give the width of each hidden layer, for instance (32, 16)")
        return Job(
            solver=self.solver,
            constraints=tuple(as_list(self.constraint)),
            model=self.model,
            alpha=self.alpha,
            max_rounds=self.max_rounds,
            tol=self.tol,
            seed=seed,
            fit_intercept=self.fit_intercept,
            hidden=tuple(self.hidden),
            options=dict(self.solver_options or {}),
        )

    def _clock(self) -> VirtualClock | None:
        if isinstance(self.runtime, VirtualClock):
            return self.runtime
        if self.runtime != "inprocess":
            raise InputError(f"runtime is {self.runtime!r}; choose 'inprocess' or give a VirtualClock")
        return None

    def _role_names(self, count: int) -> Sequence[str]:
        if self.roles is None:
            return ["active"] + ["passive"] * (count - 1)
        if isinstance(self.roles, str):
            if self.roles != "all-active":
                raise InputError(f"roles is {self.roles!r}; give 'all-active' or one role for each party")
            return ["active"] * count
        if len(self.roles) != count:
            raise InputError(f"roles has {len(self.roles)} entries for {count} parties")
        for role in self.roles:
            if role not in ("active", "passive"):
                raise InputError(f"a role is {role!r}; choose 'active' or 'passive'")
        return self.roles

    def _signs(self, labels: npt.NDArray[Any]) -> tuple[npt.NDArray[Any], Any, Array]:
        """The two classes, the positive one, and ±1 for each row."""
        if missing := int(pd.isna(labels).sum()):
            raise DataError(f"y has {missing} missing labels; fill or drop those rows (NaN or None is no class)")
        check_classification_targets(labels)
        classes = np.unique(labels)
        if len(classes) != 2:
            some = ", ".join(map(repr, classes[:5].tolist()))
            raise DataError(
                f"y has {len(classes)} class(es) ({some}); the classifier can't train when there are not two. "
                "Only binary classification is supported."
            )
        positive = classes[1] if self.positive is None else self.positive
        if positive not in classes:
            raise DataError(f"positive is {self.positive!r}, which y does not have; its labels are {classes}")
        return classes, positive, np.where(labels == positive, 1.0, -1.0)

    def _encoder(self, name: str, table: Any) -> PartyEncoder:
        try:
            return PartyEncoder(scale=self.scale).fit(table)
        except DataError as error:
            raise DataError(f"{name}: {error}") from error

    def _keep(self, run: Run) -> None:
        self.run_ = run
        self.models_ = run.models
        weights = {name: model.weights for name, model in run.models.items()}
        with_intercept = [name for name, model in run.models.items() if getattr(model, "intercept", False)]
        self.intercept_ = float(weights[with_intercept[0]][-1]) if with_intercept else 0.0
        self.coef_ = [w[:-1] if name in with_intercept else w for name, w in weights.items()]
        self.history_ = run.history
        self.certificate_ = run.certificate
        self.n_rounds_ = run.certificate.rounds
        self.n_iter_ = run.certificate.rounds
        self.bytes_sent_ = run.transcript.total_bytes

    def decision_function(self, X: Tables) -> Array:
        """Scores, positive in favour of ``classes_[1]``. Each party scores its own table; the sum is the score."""
        check_is_fitted(self, "run_")
        tables = _named(X)
        if tables.keys() != self.models_.keys():
            raise DataError(f"tables are of {', '.join(tables)}; the model was trained on {', '.join(self.models_)}")
        tables, _, _ = _aligned({name: tables[name] for name in self.models_}, None, None)
        total = np.sum(
            [model.predict(_encode(name, self.encoders_[name], tables[name])) for name, model in self.models_.items()],
            axis=0,
        )
        return np.asarray(total if self.positive_ == self.classes_[1] else -total)

    def predict(self, X: Tables) -> npt.NDArray[Any]:
        scores = self.decision_function(X)
        return self.classes_[(scores > 0).astype(np.int64)]

    def predict_proba(self, X: Tables) -> Array:
        """Columns in the order of ``classes_``."""
        scores = self.decision_function(X)
        return np.stack([expit(-scores), expit(scores)], axis=1)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
        return tags


class SplitTableClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """A :class:`VerticalClassifier` for one table whose columns are dealt out to parties.

    For pipelines, cross-validation and comparisons with pooled learners.

    Parameters
    ----------
    classifier
        The vertical classifier; None is ``VerticalClassifier()``.
    parties
        A number of parties, each given whole neighbouring columns, or one list of columns (names or positions) each.
    """

    def __init__(
        self, classifier: VerticalClassifier | None = None, *, parties: int | Sequence[Sequence[Any]] = 2
    ) -> None:
        self.classifier = classifier
        self.parties = parties

    def fit(self, X: Any, y: Any, sensitive_features: Any = None) -> Self:
        X, y = self._checked(X, y, reset=True)
        if isinstance(X, pd.DataFrame) and X.index.has_duplicates:
            # The rows of one table belong together; ids that repeat could only keep its parts from being aligned.
            X, y = X.reset_index(drop=True), np.asarray(y)
            if isinstance(sensitive_features, (pd.DataFrame, pd.Series)):
                sensitive_features = sensitive_features.reset_index(drop=True)
        self.columns_ = self._columns()
        self.classifier_ = VerticalClassifier() if self.classifier is None else clone(self.classifier)
        self.classifier_.fit(self._dealt(X), y, sensitive_features)
        self.classes_ = self.classifier_.classes_
        self.n_iter_ = self.classifier_.n_iter_
        return self

    def decision_function(self, X: Any) -> Array:
        check_is_fitted(self, "classifier_")
        X = self._checked(X, None, reset=False)[0]
        if isinstance(X, pd.DataFrame) and X.index.has_duplicates:
            X = X.reset_index(drop=True)
        return self.classifier_.decision_function(self._dealt(X))

    def predict(self, X: Any) -> npt.NDArray[Any]:
        scores = self.decision_function(X)
        return self.classes_[(scores > 0).astype(np.int64)]

    def predict_proba(self, X: Any) -> Array:
        scores = self.decision_function(X)
        return np.stack([expit(-scores), expit(scores)], axis=1)

    def _checked(self, X: Any, y: Any, *, reset: bool) -> tuple[Any, Any]:
        if isinstance(X, pd.DataFrame):
            # Categories stay as they are: each party encodes its own.
            validate_data(self, X, skip_check_array=True, reset=reset)
            return X, y
        if y is None and not reset:
            return validate_data(self, X, reset=False, accept_sparse="csr", dtype=np.float64), None
        return validate_data(self, X, y, reset=reset, accept_sparse="csr", dtype=np.float64)

    def _columns(self) -> list[list[int]]:
        if isinstance(self.parties, (int, np.integer)):
            if self.parties < 1:
                raise InputError(f"parties is {self.parties}; there must be at least one")
            count = max(1, min(int(self.parties), self.n_features_in_))
            return [part.tolist() for part in np.array_split(np.arange(self.n_features_in_), count)]
        names = list(getattr(self, "feature_names_in_", range(self.n_features_in_)))
        columns = []
        for party, wanted in enumerate(self.parties):
            unknown = [name for name in wanted if name not in names]
            if unknown:
                raise DataError(f"party {party}: no column {unknown[0]!r} in the table")
            columns.append([names.index(name) for name in wanted])
        return columns

    def _dealt(self, X: Any) -> list[Any]:
        take = X.iloc if isinstance(X, pd.DataFrame) else X
        return [take[:, part] for part in self.columns_]

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
        tags.input_tags.sparse = True
        return tags


def _named(X: Tables) -> dict[str, Any]:
    tables = dict(X) if isinstance(X, Mapping) else {f"party{place}": table for place, table in enumerate(X)}
    if not tables:
        raise DataError("there is no table; give one for each party")
    for name, table in tables.items():
        if isinstance(table, (pd.Series, str)) or not hasattr(table, "shape") or len(table.shape) != 2:
            raise DataError(f"{name}: expected a table of two dimensions (DataFrame, array or sparse matrix)")
    return tables


def _aligned(tables: dict[str, Any], y: Any, sensitive: Any) -> tuple[dict[str, Any], npt.NDArray[Any], Any]:
    """Bring everything that has a pandas index to the first table's order; the rest must have as many rows."""
    named = {
        **tables,
        **({} if y is None else {"y": y}),
        **({} if sensitive is None else {"sensitive_features": sensitive}),
    }
    indexed = {name: item for name, item in named.items() if isinstance(item, (pd.DataFrame, pd.Series))}
    if len(indexed) > 1:
        named |= dict(zip(indexed, align(list(indexed.values()), list(indexed)), strict=True))
    first = next(iter(tables))
    rows = named[first].shape[0]
    if rows == 0:
        raise DataError(f"{first} has no rows")
    for name, item in named.items():
        size = item.shape[0] if hasattr(item, "shape") and item.shape else len(item)
        if size != rows:
            raise DataError(f"{name} has {size} rows, {first} has {rows}")
    labels = column_or_1d(named["y"], warn=True) if y is not None else np.empty(0)
    return {name: named[name] for name in tables}, labels, named.get("sensitive_features")


def aligned_inputs(X: Tables, y: Any, sensitive: Any) -> tuple[dict[str, Any], npt.NDArray[Any], Any, pd.Index]:
    """What `fit` works on: tables, labels and groups in one order, and the ids of their rows."""
    tables, labels, sensitive = _aligned(_named(X), y, sensitive)
    indexed = [table.index for table in tables.values() if isinstance(table, pd.DataFrame)]
    ids = indexed[0] if indexed else pd.RangeIndex(len(labels))
    return tables, labels, sensitive, ids


def _encode(name: str, encoder: PartyEncoder, table: Any) -> Any:
    try:
        return encoder.transform(table)
    except DataError as error:
        raise DataError(f"{name}: {error}") from error
