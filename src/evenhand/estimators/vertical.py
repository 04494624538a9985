"""Scikit-learn style estimators across parties that hold different columns of the same rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
import numpy.typing as npt
import pandas as pd
from sklearn.base import ClassifierMixin, RegressorMixin

from evenhand.arrays import Array
from evenhand.constraints import Constraints, groups_frame
from evenhand.constraints.families import POWER, LossName
from evenhand.constraints.group_cuts import check_attribute
from evenhand.constraints.labelled_rows import LabelledRows
from evenhand.constraints.presence import Presence, with_patterns
from evenhand.constraints.small_slices import check_slices
from evenhand.constraints.thresholds import Cut, Threshold, as_threshold
from evenhand.data.tables.encoding import PartyEncoder
from evenhand.errors import InputError
from evenhand.estimators.base import RoleName, TrainedScores, VerticalEstimator
from evenhand.estimators.shared import (
    LabelsFromScores,
    MeansFromScores,
    class_codes,
    more_classes,
    named_solver,
    read_targets,
    trains_several,
    warn_of,
    warn_of_groups,
    warn_of_majority,
)
from evenhand.estimators.tables import Beside, Tables
from evenhand.jobs.cuts import chosen_cut, cut_by_group, missed_by_cuts, searched_cut
from evenhand.protocol.job import Job, MissingParty, RuntimeName
from evenhand.protocol.solver import Solver
from evenhand.runtime.inprocess import VirtualClock
from evenhand.solvers.registry import check_job, check_several, find, solver_name
from evenhand.training.run import shortfalls


class VerticalClassifier(LabelsFromScores, ClassifierMixin, VerticalEstimator):  # type: ignore[misc]
    """A classifier over several parties' tables, optionally under constraints such as equal opportunity.

    All parties run in this process. Their messages are those of a deployment, and are counted.

    Parameters
    ----------
    solver
        ``"subspace"`` (linear parties, about ten rounds), ``"trees"`` (boosted trees, about ten rounds),
        ``"learners"`` (any model at any party, about five rounds),
        ``"fairvfl"`` (the papers' method, also for neural parties), ``"fedbcd"`` (which takes no constraint), or VFB²'s
        stochastic ``"vfb2-svrg"``, ``"vfb2-saga"`` and ``"vfb2-sgd"`` (linear parties, scores summed behind masks,
        very wide sparse tables); ``"auto"`` is the first that applies. An object of `evenhand.solvers` sets its options
        too: ``Subspace(history=8)``.
    constraint
        One constraint or several, for instance ``EqualOpportunity(0.01)``. None trains without constraints.
    model
        ``"linear"``; ``"mlp"`` for neural parties (extra ``torch``); ``"trees"`` for boosted trees (extra ``trees``),
        which support missing values and categories. An object of `evenhand.models` has settings too:
        ``Linear(fit_intercept=False)``, ``MLP(hidden=(64, 32))``, ``BoostedTrees()``. With solver ``"learners"``, any
        model for all parties: also ``"curves"``, a regressor of scikit-learn's or LightGBM's, a torch module, or an
        object of `evenhand.models` such as ``NetworkLearner(epochs=50)``.
    models
        With solver ``"learners"``, which it implies: a model for each party, as a list or by the party's name.
    roles
        Which parties hold labels and groups: ``None`` makes the first party active and the others passive,
        ``"all-active"`` is the setting of FairVFL's first version, and a list names the role of each.
    alpha
        μ of the regulariser (μ/2)‖θ‖²; None is 2/n.
    max_rounds
        Maximum number of communication rounds.
    tol
        Stopping tolerance: the run has converged once the certificate is within `tol`, with all constraints met.
        ``"subspace"`` compares it with the relative distance of the objective from the constrained optimum, ``"trees"``
        with the share by which a round lowers the leave-one-out loss, the others with the stationarity gap. None is
        1e-3 for ``"subspace"`` and 1e-4 for the others.
    random_state
        Seed of the initial weights of neural parties (linear ones start at zero) and of the rows VFB² visits.
    pos_label
        The label that counts as positive (the protected class of equal opportunity); None is the larger of the two.
        With more than two labels a constraint names one in `of_class`.
    encoder
        How each party encodes its columns: a :class:`~evenhand.data.PartyEncoder`, or one for each party by name, for
        instance ``PartyEncoder(scale=False)``. Each party fits its own on its own training rows; one that is fitted
        already is used as it is. None one-hot encodes categories. It makes curves of numbers for ``"subspace"`` and
        standardises them for other solvers; trees take both as they are. ``PartyEncoder(numbers="standard")``
        standardises numbers for every solver.
    protection
        What messages hide, by name or as an object of `evenhand.privacy` (``"subspace"`` and ``"fairvfl"`` with linear
        parties). ``"none"``: messages as published, which disclose labels, scores and which records are equal.
        ``"masked"`` or ``Masked()``: during training the server receives sums over the passive parties.
        ``Dealer()``: passive parties hold their weights in shares with the server and learn nothing of labels, with the
        help of a third party that has no data. ``Encrypted()``: the same by encryption, without a third party. With
        ``weights="party"`` both need ``allow_experimental=True`` (docs/privacy.md).
        ``"auto"``: ``"masked"`` for ``"subspace"`` with two or more passive parties, else ``"none"``. Bounds on signs
        (``PartyEncoder(monotone=...)``) of linear models need ``"none"``.
    label_privacy
        A :class:`~evenhand.privacy.RandomizedResponse`: labels leave their holder as randomised responses only. Loss
        and constraints are then debiased estimates (``"subspace"``, ``"trees"``, ``"fairvfl"`` and ``"fedbcd"``).
        Responses are drawn from `random_state` (0 unless it is a number), one for each row id, or for each position
        if the label holder's table has no pandas index.
    runtime
        ``"auto"``; ``"messages"``: parties take turns and exchange messages; ``"interleaved"`` or ``"threads"``: all
        parties in one compiled loop (VFB²), or in real threads (VFB², FairVFL); or a
        :class:`~evenhand.VirtualClock` with speeds of machines and links.
    warm_start
        Start from the end of the last `fit`, if it had the same features: for a neighbouring ε or alpha, or with
        parties that have joined or left since.
    verbose
        Show progress.
    threshold
        Where `predict` decides: a probability of the positive label (as scikit-learn's FixedThresholdClassifier), or
        the rule that chooses the cut after training, a :class:`~evenhand.Threshold`:
        ``Threshold("cost", missed=10, false_alarm=1)``, ``Threshold("rate", capacity=0.05)``,
        ``Threshold("recall", target=0.6)``. A rule chooses the cut on cross-fitted scores, from three more models that
        each leave out a third of the rows (trees need none). Constraints bound rates at the cut. With a rule it is
        looked for twice then: rates depend on the cut, and the cut on the model.
    threshold_by
        A sensitive attribute (``"group"`` where `sensitive_features` is a column without a name) with a cut for each
        group: those at which the constraint's rate is equal in all groups (Hardt et al., 2016). It needs a rule as
        `threshold`, which chooses the level of the rate, and one constraint on rates, which the cuts meet and training
        then leaves out; of equalized odds they meet what one cut for each group can. Decisions then use the sensitive
        attribute, which is unlawful in some fields, and `predict` needs `sensitive_features`.
    class_weight
        How much rows of each class weigh in the mean loss: ``"balanced"`` or a weight for each label. Constraints count
        people, and are not weighted.
    missing_party
        Whether `predict` scores rows that a party lacks, or without the table of a party: ``"refuse"``, or
        ``"absent"``, where the party adds the number that it has learned for rows that it lacks. `rests_on` returns
        which parties each score rests on.

    Attributes
    ----------
    classes_ : the labels, sorted.
    cut_ : the score above which the positive label is predicted, the rule, and the rows it was chosen on
        (:class:`~evenhand.metrics.Cut`); None with more than two labels.
    coef_, intercept_ : weights of linear parties, of shape (1, n_features) in the order of `get_feature_names_out`, and
        (1,), as in scikit-learn's LogisticRegression. Positive favours ``classes_[1]``. With more than two labels they
        have a row for each. `coefficients` gives each party's weights by name. Trees and networks have neither.
    feature_names_in_ : every party's raw columns, each as ``party__column``.
    models_ : each party's model.
    n_iter_, bytes_sent_ : communication rounds, and bytes of all messages.
    history_ : DataFrame, one row a round.
    certificate_ : stationarity, violation and complementarity at the returned model; its distance from the optimum,
        as a `bound` or, if there is none, an `estimate`.
    proofs_ : bounds that the training rows prove for new people, if a constraint has a `confidence`: a list of
        :class:`~evenhand.constraints.proving.Proof`.
    label_privacy_ : the privacy statement about the labels, or None.
    run_ : the whole run, with its transcript.
    """

    @property
    def _loss(self) -> LossName:
        return "logistic"

    def fit(
        self,
        X: Tables,
        y: Any,
        sample_weight: Any = None,
        *,
        sensitive_features: Any = None,
        ids: Literal["equal", "inner", "left"] = "equal",
        checkpoints: str | Path | None = None,
    ) -> Self:
        """Train.

        Parameters
        ----------
        X
            One table for each party, as a list or as a mapping from the party's name: DataFrames, arrays or sparse
            matrices; Arrow and polars tables become DataFrames. If tables, `y` and `sensitive_features` have a
            pandas index, it holds the row ids: ids must be the same everywhere, in any order.
        y
            Labels of two values; of more for linear models with ``"subspace"``, which then fits a multinomial model.
        sample_weight
            One weight for each row. It applies to the mean loss and to the means and rates that constraints compare: a
            row of weight 2 counts as the row twice. Weights stay with the label holder. They change neither how parties
            scale their columns nor the default of `alpha`, nor how many rows a leaf of a tree needs. VFB² refuses them.
        sensitive_features
            One column for each sensitive attribute; or names of columns of the first active party's DataFrame. Named
            columns are not used as features.
        ids
            ``"equal"`` refuses tables with different row ids. ``"inner"`` trains on the rows that all tables have.
            ``"left"`` trains on all rows of the first active party, which holds the labels; a party adds one learned
            number to the score of a row that it lacks.
        checkpoints
            Folder for checkpoints. If it holds those of an unfinished `fit` of the same estimator on the same
            rows, training resumes from it and gives the same result.

        Warns
        -----
        ShortfallWarning
            (A ``sklearn.exceptions.ConvergenceWarning``.) If the solver did not converge, or the model gives every
            training row the same label.
        """
        several, named = more_classes(y, self.threshold)
        check_several(self._solver(), "vertical", len(named))
        job = self._job(named)
        check_job(job, "vertical")
        classes: npt.NDArray[Any] = np.empty(0)
        pos_label: Any = None
        numbers: Array = np.empty(0)
        frame: pd.DataFrame | None = None

        def read(
            labels: npt.NDArray[Any], sensitive: Any, presence: Presence | None
        ) -> tuple[Array, pd.DataFrame | None]:
            nonlocal classes, pos_label, numbers, frame
            classes, pos_label, signs = self._codes(labels, several)
            if not named and isinstance(self.class_weight, Mapping) and set(self.class_weight) != set(classes.tolist()):
                raise InputError(f"class_weight names {list(self.class_weight)}, but the labels in y are {classes}")
            numbers = signs
            frame = groups_frame(sensitive, len(signs))
            check_attribute(job.cut_by, list(frame.columns))
            groups = with_patterns(job.asked, signs, frame, presence)
            check_slices(job.asked, signs, groups)
            return signs, groups if groups.shape[1] else None

        beside, threshold = Beside(y, sensitive_features, sample_weight), as_threshold(self.threshold)
        scores = self._train(job, X, beside, ids, read, checkpoints)
        self.classes_, self.pos_label_ = classes, pos_label
        self.cut_ = None if named else self._chosen(job, threshold, LabelledRows(numbers, frame), scores)
        own = None if self.cut_ is None or self.cut_.by is None else np.asarray(self.cut_.of_rows(frame))
        decisions = self._decided(self._turned(scores.seen), None if own is None else self._turned(own))
        warn_of_groups(self.cut_)
        missed = missed_by_cuts(job, self.cut_, numbers, scores.seen, frame)
        held = numbers if named else self._turned(numbers) > 0.0
        truth = classes[held.astype(np.int64)]
        warn_of_majority(job, decisions, truth, pos_label, weighted=sample_weight is not None)
        warn_of([*shortfalls(self.certificate_, job.tol, job.max_rounds, decisions), *missed])
        return self

    @staticmethod
    def _chosen(job: Job, threshold: float | Threshold, rows: LabelledRows, scores: TrainedScores) -> Cut:
        if scores.cut is not None:
            cut = searched_cut(job, scores.cut, scores.unseen)
        else:
            cut = chosen_cut(threshold, rows.labels, scores.seen, scores.unseen)
        return cut_by_group(cut, job, rows, scores.seen, scores.unseen)

    def _turned_cut(self, cut: Array) -> Array:
        return self._turned(cut)

    def _codes(self, labels: npt.NDArray[Any], several: npt.NDArray[Any]) -> tuple[npt.NDArray[Any], Any, Array]:
        """Return the classes, the positive one of two, and for each row ±1 or the index of its class.

        Parameters
        ----------
        several
            The classes of all rows, if there are more than two. Some may have no row in all tables.
        """
        if not len(several):
            return class_codes(labels, self.pos_label)
        class_codes(labels, self.pos_label)
        return several, None, np.searchsorted(several, labels).astype(np.float64)

    @property
    def coef_(self) -> Array:
        return self._turned(self._all_weights()[0])

    @property
    def intercept_(self) -> Array:
        return self._turned(self._all_weights()[1])

    def _turned(self, values: Array) -> Array:
        """Return scores or weights in favour of ``classes_[1]`` rather than of the positive label."""
        return values if self.pos_label_ in (None, self.classes_[1]) else -values

    def decision_function(self, X: Tables) -> Array:
        """Return scores: larger ones favour ``classes_[1]``, which `predict` gives above the cut.

        With more than two classes there is a column for each, and `predict` gives the one with the largest score.
        """
        return self._turned(self._scores(X))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = trains_several(self._solver)
        return tags

    def _solver(self) -> Solver[Any, Any]:
        name, _ = named_solver("vertical", self.solver)
        return find("vertical", solver_name(Job(solver=name, **self._model_kind().job_fields)))


class VerticalRegressor(MeansFromScores, RegressorMixin, VerticalEstimator):  # type: ignore[misc]
    """Regression over several parties' tables, of numbers, counts or amounts, optionally under constraints.

    Parameters are those of :class:`VerticalClassifier` that apply, and:

    Parameters
    ----------
    loss
        ``"squared"``; ``"poisson"`` for counts, ``"gamma"`` for amounts above zero and ``"tweedie"`` for amounts with
        zeros. The last three predict exp(score). Each is half the unit deviance, so that the objective is that of
        scikit-learn's Ridge (divided by 2n), PoissonRegressor, GammaRegressor and TweedieRegressor, with the same
        alpha. For rates such as claims a year give the rates as `y` and the exposures as `sample_weight`.
    power
        p of ``"tweedie"``: the variance of a target with mean μ is proportional to μᵖ; between 1 and 2.
    solver
        ``"subspace"`` (all losses, about ten rounds), or ``"trees"``, ``"vfb2-svrg"``, ``"vfb2-saga"`` and
        ``"vfb2-sgd"`` (squared loss). ``"auto"`` is the first for linear parties and ``"trees"`` for trees. For VFB²
        targets should be of moderate size, as standardised ones are: scores are masked in fixed point.
    constraint
        :class:`~evenhand.MeanPredictionParity`, :class:`~evenhand.LossParity`, :class:`~evenhand.BoundedGroupLoss` or
        :class:`~evenhand.GroupAgainstOverall`; ``"subspace"`` only.

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
        model: Any = "linear",
        models: Any = None,
        roles: Sequence[RoleName] | Literal["all-active"] | None = None,
        alpha: float | None = None,
        max_rounds: int = 1000,
        tol: float | None = None,
        random_state: int | np.random.RandomState | None = None,
        encoder: PartyEncoder | Mapping[str, PartyEncoder] | None = None,
        protection: Any = "auto",
        runtime: RuntimeName | VirtualClock = "auto",
        warm_start: bool = False,
        verbose: bool = False,
        missing_party: MissingParty = "refuse",
    ) -> None:
        self.loss = loss
        self.power = power
        super().__init__(
            solver=solver,
            constraint=constraint,
            model=model,
            models=models,
            roles=roles,
            alpha=alpha,
            max_rounds=max_rounds,
            tol=tol,
            random_state=random_state,
            encoder=encoder,
            protection=protection,
            runtime=runtime,
            warm_start=warm_start,
            verbose=verbose,
            missing_party=missing_party,
        )

    @property
    def _loss(self) -> LossName:
        return self.loss

    def fit(
        self,
        X: Tables,
        y: Any,
        sample_weight: Any = None,
        *,
        sensitive_features: Any = None,
        ids: Literal["equal", "inner", "left"] = "equal",
        checkpoints: str | Path | None = None,
    ) -> Self:
        """Train on one table for each party, as :meth:`VerticalClassifier.fit` takes them, and targets as numbers.

        Warns
        -----
        ShortfallWarning
            (A ``sklearn.exceptions.ConvergenceWarning``.) If the solver did not converge.
        """
        job = self._job()
        check_job(job, "vertical")

        def read(
            targets: npt.NDArray[Any], sensitive: Any, presence: Presence | None
        ) -> tuple[Array, pd.DataFrame | None]:
            numbers = read_targets(targets, job.loss)
            groups = with_patterns(job.asked, numbers, groups_frame(sensitive, len(numbers)), presence)
            return numbers, groups if groups.shape[1] else None

        self._train(job, X, Beside(y, sensitive_features, sample_weight), ids, read, checkpoints)
        warn_of(shortfalls(self.certificate_, job.tol, job.max_rounds))
        return self

    @property
    def intercept_(self) -> float:
        return float(self._all_weights()[1][0])

    def _scores_of(self, X: Tables) -> Array:
        return self._scores(X)
