"""Regression across clients that hold different rows, in scikit-learn's style."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
from sklearn.base import RegressorMixin

from evenhand.arrays import Array
from evenhand.constraints import Constraints, as_list
from evenhand.constraints.families import POWER, LossName
from evenhand.constraints.scope import ConstraintScope, Scope
from evenhand.data.tables.encoding import PartyEncoder
from evenhand.errors import DataError, InputError
from evenhand.estimators.client_rows import ClientPool, read_inputs
from evenhand.estimators.client_scores import AcrossClients
from evenhand.estimators.shared import MeansFromScores, named_solver, read_targets, recorded_fit, seed_of, warn_of
from evenhand.estimators.tables import in_pandas, named_columns, split_off
from evenhand.horizontal.problem import HorizontalServerData
from evenhand.models.kinds import as_model
from evenhand.privacy.levels import protection_of
from evenhand.protocol.job import Job
from evenhand.report.tables import Progress
from evenhand.runtime.inprocess import VirtualClock
from evenhand.solvers.agreeing import KnownBefore, draft_terms
from evenhand.solvers.registry import check_job, choose_solver, stopping
from evenhand.training.horizontal import train_together
from evenhand.training.run import shortfalls


class HorizontalRegressor(MeansFromScores, RegressorMixin, AcrossClients):  # type: ignore[misc]
    """Regression across clients that hold different rows of the same columns: numbers, counts or amounts.

    Parameters are those of :class:`HorizontalClassifier` that apply, with `loss` and `power` as in
    :class:`VerticalRegressor`. The solver is ``"sqp"``, with a linear model.

    Parameters
    ----------
    constraint
        :class:`~evenhand.MeanPredictionParity`, :class:`~evenhand.LossParity`, :class:`~evenhand.BoundedGroupLoss` or
        :class:`~evenhand.GroupAgainstOverall`.

    Attributes
    ----------
    coef_, intercept_ : of shape (n_features,) and a number, as in scikit-learn's Ridge.
    """

    def __init__(
        self,
        *,
        loss: LossName = "squared",
        power: float = POWER,
        solver: Any = "auto",
        constraint: Constraints = None,
        scope: Scope | ConstraintScope = "global",
        alpha: float | None = None,
        max_rounds: int | None = None,
        tol: float | None = None,
        random_state: int | np.random.RandomState | None = None,
        encoder: PartyEncoder | None = None,
        protection: Any = "auto",
        runtime: Literal["auto"] | VirtualClock = "auto",
        warm_start: bool = False,
        verbose: bool = False,
    ) -> None:
        self.loss = loss
        self.power = power
        self.solver = solver
        self.constraint = constraint
        self.scope = scope
        self.alpha = alpha
        self.max_rounds = max_rounds
        self.tol = tol
        self.random_state = random_state
        self.encoder = encoder
        self.protection = protection
        self.runtime = runtime
        self.warm_start = warm_start
        self.verbose = verbose

    def fit(
        self,
        X: Any,
        y: Any,
        sample_weight: Any = None,
        *,
        sensitive_features: Any = None,
        clients: Any = None,
        group_values: Mapping[str, Sequence[Hashable]] | None = None,
        checkpoints: str | Path | None = None,
    ) -> Self:
        """Train on rows and targets as :meth:`HorizontalClassifier.fit` takes rows and labels.

        Parameters
        ----------
        sample_weight
            One weight for each row, in the mean loss and in the means that constraints compare. For rates such as
            claims a year give the rates as `y` and the exposures as weights. Clients report totals of their weights:
            of all rows, and of each group that a constraint compares.

        Warns
        -----
        ShortfallWarning
            (A ``sklearn.exceptions.ConvergenceWarning``.) If the solver did not converge.
        """
        where = self.scope if isinstance(self.scope, ConstraintScope) else ConstraintScope(self.scope)
        model, job = as_model("linear", "horizontal"), self._job()
        check_job(job, "horizontal", scope=where)
        X = in_pandas(X)
        if (columns := named_columns(sensitive_features, getattr(X, "shape", (0,))[0])) is not None:
            X, sensitive_features = split_off(X, columns, "X")
        inputs = read_inputs(X, y, sensitive_features, clients, sample_weight)
        if inputs.weights is not None and any(one.level is not None for one in job.constraints):
            raise InputError("confidence is given, and sample_weight; across clients choose one of them")
        targets = read_targets(inputs.labels, self.loss)
        for constraint in job.constraints:
            if constraint.compares_groups and inputs.sensitive is None:
                raise DataError(f"constraint {constraint.kind} compares groups: give sensitive_features")
        pool = ClientPool(inputs, targets, encoder=self.encoder, model=model, trees=False)

        def at_server() -> HorizontalServerData:
            shape = next(iter(pool.rows.values())).features.shape[1:]
            return HorizontalServerData(start=self._start(None, shape, None, job, None))

        draft = draft_terms(job, pool.names, scope=where)
        together = pool.together(draft, KnownBefore(group_values, simulated=True), at_server, {}, self._listening())
        recorded = recorded_fit(checkpoints, "horizontal")
        with Progress(job.max_rounds, enabled=self.verbose) as progress, recorded as folder:
            clock = self.runtime if isinstance(self.runtime, VirtualClock) else None
            run = train_together(together, clock=clock, folder=folder, on_round=progress.round)
        self._keep(run, inputs.X)
        self._record(run, pool)
        self.clients_, self.encoder_, self._noise = pool.names, pool.encoder, (None, [])
        warn_of(shortfalls(run.certificate, job.tol, job.max_rounds))
        return self

    def _job(self) -> Job:
        constraints = tuple(as_list(self.constraint))
        name, options = named_solver("horizontal", self.solver)
        solver = choose_solver(name, model="linear", constrained=bool(constraints))
        return Job(
            solver=solver,
            constraints=constraints,
            alpha=self.alpha,
            seed=seed_of(self.random_state),
            loss=self.loss,
            power=self.power,
            options=options,
            **stopping(solver, options, self.tol, self.max_rounds),
            **protection_of(self.protection),
        )

    def _keep_weights(self, weights: Array, outputs: int) -> None:
        self.coef_, self.intercept_ = weights[:-1], float(weights[-1])

    def _scores_of(self, X: Any) -> Array:
        return self._scores(X)
