"""Shared base of estimators over several parties' tables: align, encode, train, and keep the run."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd
from sklearn.utils.validation import check_is_fitted

from evenhand.arrays import Array
from evenhand.auditing.views import AuditInput, listening
from evenhand.constraints.families import POWER, LossName
from evenhand.constraints.group_cuts import split_closed
from evenhand.constraints.kinds import Constraints, Label, as_list
from evenhand.constraints.thresholds import Threshold, as_threshold, fixed_cut
from evenhand.data.tables.encoding import PartyEncoder, column_names
from evenhand.data.tables.unencoded import UnencodedColumns
from evenhand.errors import DataError, InputError
from evenhand.estimators.absent_rows import RowsToScore, rows_to_score
from evenhand.estimators.own_models import party_learners, vertical_model
from evenhand.estimators.rows import FrameRows, HolderRows, ReadLabels
from evenhand.estimators.shared import NestedParameters, named_solver, recorded_fit, seed_of
from evenhand.estimators.tables import (
    Beside,
    Tables,
    align_rows,
    encode,
    named_columns,
    named_tables,
    row_ids,
    split_off,
)
from evenhand.models.kinds import ModelKind
from evenhand.models.learning.base import PartyLearner
from evenhand.models.linear import LinearModel
from evenhand.models.saved import joint_scores, without_rows
from evenhand.privacy.levels import protection_of
from evenhand.protocol.align import How
from evenhand.protocol.job import Job, MissingParty, RandomizedResponse, RuntimeName
from evenhand.protocol.roles import SERVER
from evenhand.protocol.terms import Part
from evenhand.report.tables import Progress
from evenhand.runtime.inprocess import VirtualClock
from evenhand.solvers.registry import default_numbers, resolve
from evenhand.solvers.roles import vertical_terms
from evenhand.training.auditing import audit_input
from evenhand.training.together import Together
from evenhand.training.vertical import VerticalRun, train_together
from evenhand.training.vertical_sources import Alignment
from evenhand.training.vertical_steps import VerticalTraining, steps_together
from evenhand.vertical.problem import PartyColumns, Start
from evenhand.vertical.server import UnseenScores

RoleName = Literal["active", "passive"]


class TrainedScores(NamedTuple):
    """Scores of the training rows, (rows,) or (rows, classes), those of models that have not seen them, and the cut."""

    seen: Array
    unseen: UnseenScores | None
    cut: float | None


class VerticalEstimator(NestedParameters):
    """Base of the classifier and the regressor."""

    @property
    def _loss(self) -> LossName:
        """Loss of the job."""
        raise NotImplementedError

    _audit_inputs: list[AuditInput] | None = None
    """Records of training for an audit; None if there is no audit."""

    def __init__(
        self,
        *,
        solver: Any = "auto",
        constraint: Constraints = None,
        model: Any = "linear",
        models: Any = None,
        roles: Sequence[RoleName] | Literal["all-active"] | None = None,
        alpha: float | None = None,
        max_rounds: int = 1000,
        tol: float | None = None,
        random_state: int | np.random.RandomState | None = None,
        pos_label: Any = None,
        encoder: PartyEncoder | Mapping[str, PartyEncoder] | None = None,
        protection: Any = "auto",
        label_privacy: RandomizedResponse | None = None,
        runtime: RuntimeName | VirtualClock = "auto",
        warm_start: bool = False,
        verbose: bool = False,
        threshold: Any = 0.5,
        class_weight: Any = None,
        missing_party: MissingParty = "refuse",
        threshold_by: str = "",
    ) -> None:
        self.missing_party = missing_party
        self.threshold = threshold
        self.threshold_by = threshold_by
        self.class_weight = class_weight
        self.solver = solver
        self.constraint = constraint
        self.model = model
        self.models = models
        self.roles = roles
        self.alpha = alpha
        self.max_rounds = max_rounds
        self.tol = tol
        self.random_state = random_state
        self.pos_label = pos_label
        self.encoder = encoder
        self.protection = protection
        self.label_privacy = label_privacy
        self.runtime = runtime
        self.warm_start = warm_start
        self.verbose = verbose

    def _train(
        self, job: Job, X: Tables, beside: Beside, ids: How, read: ReadLabels, checkpoints: str | Path | None
    ) -> TrainedScores:
        """Train, then set the fitted attributes: a refused fit leaves those of an earlier fit unchanged.

        Parameters
        ----------
        beside
            Labels, groups and weights of the first active party.
        read
            Turns labels and groups of the common rows into numbers.

        Returns
        -------
        scores
            Scores of the training rows, and cross-fitted ones if the solver has them.
        """
        runtime, clock = self._runtime()
        tables = named_tables(X)
        parts: dict[str, Part] = {
            name: "active" if role == "active" else "passive"
            for name, role in zip(tables, self._role_names(len(tables)), strict=True)
        }
        draft = vertical_terms(job, parts, 0, {})
        holder = draft.active[0]
        rows = self._rows(job, tables, holder, beside, ids, read)

        def multipliers() -> Array | None:
            """Return the end of the last fit to start from, if parties in both have the same columns."""
            if (last := self._start(job, rows)) is None:
                return None
            for name, own in rows.items():
                own.weights = last.weights.get(name)
            return last.multipliers

        alignment = Alignment(list(rows), holder, ids)
        transcript = None
        if self._audit_inputs is not None:
            transcript = listening()
        together: Together[VerticalTraining] = Together(steps_together(draft, rows, alignment, multipliers), transcript)
        terms = together.to_training()[SERVER].terms
        recorded = recorded_fit(checkpoints, "vertical")
        with Progress(job.max_rounds, enabled=self.verbose) as progress, recorded as folder:
            run = train_together(together, runtime=runtime, clock=clock, folder=folder, on_round=progress.round)
        self.encoders_ = {name: own.encoder for name, own in rows.items()}
        self._holder = holder
        self._keep(run)
        if self._audit_inputs is not None:
            truth = rows[holder].labels().truth
            parties = [
                PartyColumns(name, own.matrix, parts[name] == "active", signs=own.encoder.signs, learner=own.learner)
                for name, own in rows.items()
            ]
            self._audit_inputs.append(
                audit_input(run.transcript, parties, truth.labels, truth.groups, run.models, terms)
            )
        scores = joint_scores(run.models, {name: own.matrix for name, own in rows.items()})
        return TrainedScores(scores.T, run.unseen_scores, run.cut)

    def _rows(
        self, job: Job, tables: dict[str, Any], holder: str, beside: Beside, how: How, read: ReadLabels
    ) -> dict[str, FrameRows]:
        """Return each party's rows; labels and groups are with the holder's."""
        if (columns := named_columns(beside.groups, tables[holder].shape[0])) is not None:
            tables[holder], groups = split_off(tables[holder], columns, holder)
            beside = beside._replace(groups=groups)
        everybody: dict[str, pd.Index | int] = {
            name: table.index if isinstance(table, pd.DataFrame) else int(table.shape[0])
            for name, table in tables.items()
        }
        seed = int(self.random_state) if isinstance(self.random_state, (int, np.integer)) else 0
        if isinstance(self.encoder, Mapping) and (strange := [name for name in self.encoder if name not in tables]):
            raise InputError(f"encoder names {strange[0]!r}, which is not a party; the parties are {', '.join(tables)}")
        named: dict[str, list[str]] = {}
        if isinstance(self.encoder, PartyEncoder) and not self.encoder.is_fitted and self.encoder.rules.named:
            named = {name: column_names(table) for name, table in tables.items()}
            self.encoder.rules.require_columns(list(dict.fromkeys(chain(*named.values()))))
        learners = party_learners(self.model, self.models, list(tables)) if job.model == "own" else {}
        rows: dict[str, FrameRows] = {}
        for name, table in tables.items():
            learner = learners.get(name)
            own = self._encoder(name, job, named.get(name, []), learner)
            if name == holder:
                rows[name] = HolderRows(name, table, everybody, how, job, own, beside, read, seed)
            else:
                rows[name] = FrameRows(name, table, everybody, how, job, own)
            rows[name].learner = learner
        return rows

    def _encoder(self, party: str, job: Job, columns: Sequence[str], learner: PartyLearner | None) -> PartyEncoder:
        """Return a party's encoder: a fitted one as it is, otherwise a new one with the same parameters.

        Of an encoder for all parties, each has the rules for its own columns.
        """
        given = self.encoder.get(party) if isinstance(self.encoder, Mapping) else self.encoder
        encoding = None if learner is None else learner.encoding
        defaults: dict[str, Any] = {
            "as_is": job.model == "trees" or encoding == "as_is",
            "auto_numbers": "curves" if encoding == "curves" else default_numbers(job, "vertical"),
        }
        if encoding == "raw":
            if given is not None and not isinstance(given, UnencodedColumns):
                raise InputError(f"{party}: its model takes raw columns, so it has no encoder; remove the encoder")
            return UnencodedColumns()
        if given is None:
            return PartyEncoder(**defaults)
        if not isinstance(given, PartyEncoder):
            raise InputError(
                f"encoder is {given!r}; give an evenhand.data.PartyEncoder for all parties, or one by party's name"
            )
        if given.is_fitted:
            return given
        rules = given.rules if isinstance(self.encoder, Mapping) else given.rules.of_columns(columns)
        return given.unfitted(**{**vars(rules), **defaults})

    def _start(self, job: Job, rows: Mapping[str, FrameRows]) -> Start | None:
        if not (self.warm_start and hasattr(self, "run_")):
            return None
        if (parts := self._linear_parts()) is None or job.model != "linear":
            return None
        count, both = max(1, len(job.classes)), parts.keys() & rows.keys()
        # Parties may have joined or left since; the intercept is at the label holder.
        same = all(parts[name].shape == (count, rows[name].matrix.shape[1]) for name in both)
        held = self._holder in both and isinstance(rows[self._holder], HolderRows)
        return self.run_.as_start() if same and held else None

    def _job(self, classes: tuple[Label, ...] = ()) -> Job:
        solver, options = named_solver("vertical", self.solver)
        given = self.encoder.values() if isinstance(self.encoder, Mapping) else [self.encoder]
        if any(isinstance(one, PartyEncoder) and one.rules.monotone for one in given):
            options = {**options, "monotone": True}
        threshold = as_threshold(self.threshold)
        rule = threshold if isinstance(threshold, Threshold) else None
        constraints, closed = split_closed(as_list(self.constraint), self.threshold_by, rule)
        job = Job(
            solver=solver,
            constraints=constraints,
            closed=closed,
            cut_by=self.threshold_by,
            alpha=self.alpha,
            max_rounds=self.max_rounds,
            seed=seed_of(self.random_state),
            loss=self._loss,
            power=getattr(self, "power", POWER),
            options=options,
            label_privacy=self._label_privacy(),
            class_weight=self._class_weight(classes),
            classes=classes,
            cut=fixed_cut(threshold),
            rule=rule,
            missing_party=self.missing_party,
            **protection_of(self.protection),
            **self._model_kind().job_fields,
        )
        return resolve(job, self.tol)

    def _model_kind(self) -> ModelKind:
        """Return the model as the job has it."""
        return vertical_model(self.model, self.models, named_solver("vertical", self.solver)[0])

    def _class_weight(self, classes: tuple[Label, ...]) -> Any:
        """Return the weights of the negative and the positive class, or of all of more than two."""
        given = self.class_weight
        if not isinstance(given, Mapping):
            return given
        if classes:
            if set(given) != set(classes):
                raise InputError(f"class_weight names {list(given)}, but the labels in y are {list(classes)}")
            return tuple(given[one] for one in classes)
        positive = getattr(self, "pos_label", None)
        if len(given) != 2 or (positive is not None and positive not in given):
            raise InputError(f"class_weight is {given!r}; give a weight for each of the two labels, or 'balanced'")
        positive = max(given) if positive is None else positive
        (negative,) = (label for label in given if label != positive)
        return given[negative], given[positive]

    def _label_privacy(self) -> RandomizedResponse | None:
        given = self.label_privacy
        if given is not None and not isinstance(given, RandomizedResponse):
            raise InputError(f"label_privacy is {given!r}; give RandomizedResponse(epsilon=1.0), for instance")
        return given

    def _runtime(self) -> tuple[RuntimeName, VirtualClock | None]:
        return ("messages", self.runtime) if isinstance(self.runtime, VirtualClock) else (self.runtime, None)

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

    def _keep(self, run: VerticalRun) -> None:
        # A fitted estimator keeps no row of anybody.
        self.models_ = {name: without_rows(model) for name, model in run.models.items()}
        self.run_ = replace(run, unseen_scores=None, models=self.models_)
        self.history_ = run.history
        self.certificate_ = run.certificate
        self.proofs_ = list(run.proofs)
        self.label_privacy_ = run.label_privacy
        self.n_iter_ = run.certificate.rounds
        self.bytes_sent_ = run.transcript.total_bytes

    @property
    def coef_(self) -> Array:
        """Weights of linear parties, in the order of `get_feature_names_out`."""
        return self._all_weights()[0][0]

    @property
    def feature_names_in_(self) -> npt.NDArray[Any]:
        """Every party's raw columns, each as ``party__column``."""
        return self._named(lambda encoder: encoder.columns_in)

    def get_feature_names_out(self, input_features: Any = None) -> npt.NDArray[Any]:
        """Every party's encoded features, each as ``party__feature``, in the order of ``coef_``."""
        return self._named(lambda encoder: encoder.feature_names_out)

    def _named(self, names: Callable[[PartyEncoder], Sequence[str]]) -> npt.NDArray[Any]:
        if not hasattr(self, "encoders_"):
            raise AttributeError(f"this {type(self).__name__} is not fitted yet")
        parties = getattr(self, "models_", self.encoders_)
        found = [f"{party}__{name}" for party in parties for name in names(self.encoders_[party])]
        return np.array(found, dtype=object)

    def coefficients(self) -> pd.DataFrame:
        """Return ``coef_`` as a table: the weight of each encoded feature, by party and name."""
        check_is_fitted(self, "run_")
        if self._linear_parts() is None:
            raise InputError("only linear parties have one weight for each feature")
        weights = np.atleast_2d(self.coef_).T
        lines = [(party, name) for party in self.models_ for name in self.encoders_[party].feature_names_out]
        index = pd.MultiIndex.from_tuples(lines, names=["party", "feature"])
        columns = ["weight"] if weights.shape[1] == 1 else list(getattr(self, "classes_", range(weights.shape[1])))
        return pd.DataFrame(weights, index=index, columns=columns)

    def _linear_parts(self) -> dict[str, Array] | None:
        """Return each party's weights (outputs, columns) without intercepts; None unless all parties are linear."""
        linear = self._linear_models()
        return None if linear is None else {name: one.slopes for name, one in linear.items()}

    def _linear_models(self) -> dict[str, LinearModel] | None:
        models = getattr(self, "models_", {})
        linear = {name: model for name, model in models.items() if isinstance(model, LinearModel)}
        return linear if models and len(linear) == len(models) else None

    def _all_weights(self) -> tuple[Array, Array]:
        """Return all parties' weights (outputs, features), ordered as `get_feature_names_out`, and the intercepts."""
        linear, parts = self._linear_models(), self._linear_parts()
        if linear is None or parts is None:
            # An AttributeError, as in scikit-learn.
            raise AttributeError("only a fitted estimator with linear parties has coef_ and intercept_")
        intercepts = [one.table[:, one.columns :].sum(axis=1) for one in linear.values()]
        return np.concatenate(list(parts.values()), axis=1), np.sum(intercepts, axis=0)

    def rests_on(self, X: Tables) -> pd.DataFrame:
        """Return which parties each score rests on: a row for each row to score, a column of booleans for each party.

        With ``missing_party="absent"`` a party may lack rows of the label holder, or be away: leave its table out of
        the mapping. Scores are in the order of the label holder's table then.
        """
        check_is_fitted(self, "run_")
        tables = named_tables(X)
        if self.missing_party == "absent":
            return self._rows_to_score(tables).there
        self._scores(X)
        index = row_ids(tables, tables[next(iter(tables))].shape[0])
        return pd.DataFrame(True, index=index, columns=list(self.models_))

    def _rows_to_score(self, tables: Mapping[str, Any]) -> RowsToScore:
        self._check_known(tables)
        return rows_to_score(tables, {name: self.encoders_[name] for name in self.models_}, self._holder)

    def _check_known(self, tables: Mapping[str, Any]) -> None:
        if not tables.keys() <= self.models_.keys():
            raise DataError(
                f"tables of {', '.join(tables)} were given; the model was trained on {', '.join(self.models_)}"
            )

    def _scores(self, X: Tables) -> Array:
        """Each party scores its own table; the sum is the score, or with more than two classes (rows, classes)."""
        check_is_fitted(self, "run_")
        tables = named_tables(X)
        if self.missing_party == "absent":
            return joint_scores(self.models_, self._rows_to_score(tables).matrices).T
        if away := [name for name in self.models_ if name not in tables]:
            raise DataError(
                f"the table of {', '.join(away)} is missing: a score is a sum over all parties of the trained model "
                f"({', '.join(self.models_)}). Without one of them it belongs to another model, for which no "
                "constraint was checked. Give all tables, or train without that party; missing_party='absent' scores "
                'without parties that lacked rows in training (ids="left")'
            )
        self._check_known(tables)
        tables, _, _ = align_rows({name: tables[name] for name in self.models_}, None, None)
        return joint_scores(
            self.models_, {name: encode(name, self.encoders_[name], table) for name, table in tables.items()}
        ).T
