"""A scikit-learn style classifier across clients that hold different rows."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np

from evenhand.constraints import Constraints, as_list, groups_frame
from evenhand.constraints.group_cuts import check_attribute, split_closed
from evenhand.constraints.kinds import Label
from evenhand.constraints.scope import ConstraintScope, Scope
from evenhand.constraints.thresholds import Threshold, as_threshold, fixed_cut
from evenhand.data.tables.encoding import PartyEncoder
from evenhand.errors import DataError, InputError
from evenhand.estimators.client_rows import ClientPool, read_inputs
from evenhand.estimators.client_scores import ScoresAcrossClients
from evenhand.estimators.shared import (
    class_codes,
    more_classes,
    named_solver,
    recorded_fit,
    seed_of,
    trains_several,
    warn_of,
    warn_of_groups,
    warn_of_majority,
)
from evenhand.estimators.tables import in_pandas, named_columns, split_off
from evenhand.horizontal.problem import HorizontalServerData, UpdateNoise
from evenhand.horizontal.summaries import learns_crossings
from evenhand.jobs.cuts import missed_by_cuts, run_cut
from evenhand.models.kinds import ModelKind, as_model
from evenhand.privacy.levels import protection_of
from evenhand.privacy.mechanism import noise_terms
from evenhand.protocol.job import Job
from evenhand.protocol.solver import Solver
from evenhand.report.tables import Progress
from evenhand.runtime.inprocess import VirtualClock
from evenhand.solvers.agreeing import KnownBefore, draft_terms
from evenhand.solvers.registry import check_job, check_several, choose_solver, find, stopping
from evenhand.training.horizontal import train_together, update_noise_of
from evenhand.training.protection import LEARNED_COLUMNS, LEARNED_GROUPS
from evenhand.training.run import shortfalls


class HorizontalClassifier(ScoresAcrossClients):
    """A classifier across clients that hold different rows of the same columns, optionally under constraints.

    All clients run in this process. Their messages are those of a deployment, and are counted.

    Before the first round clients agree on columns and their encoding, classes, and groups. By default these are
    learned from all clients' rows: for the encoding each client sends, for every numeric column, its number of rows,
    mean and sum of squared deviations, and for every other column the levels that occur. To learn nothing, give a
    fitted `encoder` (or one with ``scale=False``, and numbers only), and `group_values` to `fit`.

    Parameters
    ----------
    solver
        ``"fedavg"`` (no constraints), ``"fairfedavgalm"``, ``"fairalm"``, ``"fpfl"``, ``"fairfed"`` (no constraints;
        it weights clients by a fairness metric): averaged local SGD, for any model, with the ``torch`` extra.
        ``"prox-al"`` (two classes) and ``"sqp"``: linear models, to the optimum and with multipliers. ``"trees"``:
        boosted trees by summed histograms. ``"auto"`` is ``"sqp"`` for a linear model without
        protection, which needs about a dozen rounds; ``"trees"`` for trees; otherwise ``"fairfedavgalm"`` under a
        constraint and ``"fedavg"`` without. An object of `evenhand.solvers` sets its options too:
        ``FedAvg(step=0.1, local_epochs=2)``.
    constraint
        One constraint or several, for instance ``EqualOpportunity(0.01)``. None trains without constraints, or with
        the solver's default (``LossParity(0)`` of FairFedAvgALM and FairALM, ``GroupAgainstOverall(0)`` of FPFL).
    model
        ``"linear"``, ``"mlp"``, ``"resnet18"`` (images), ``"trees"`` (of two classes; supports missing values
        and categories), a `torch.nn.Module`, which starts with its own weights, or a function without arguments that
        returns one. An object of `evenhand.models` has settings too: ``MLP(hidden=(64, 32))``,
        ``ResNet18(crop=56, device="cuda")``, ``TorchModule(module, crop=56)``.
    scope
        Rows over which constraints hold: ``"global"``, over all clients' rows together; ``"local"``, over each client's
        separately; or ``"both"``. The last two need ``"prox-al"`` or ``"sqp"``. A
        :class:`~evenhand.constraints.scope.ConstraintScope` also sets bounds by client, and what happens at clients
        without rows in a slice.
    alpha
        μ of (μ/2)‖w‖². None is zero for averaging solvers, where it is over all weights; for ``"prox-al"`` and
        ``"sqp"`` 2/n, and the intercept is left out.
    max_rounds
        Averaging solvers train for this many rounds; the others stop at convergence, or after at most as many. None is
        100, 200 for ``"sqp"``, 300 for ``"trees"`` (a round a level of a tree), 100,000 for ``"prox-al"``.
    tol
        Stopping tolerance: the run has converged once stationarity and violation in `certificate_` are at most `tol`.
        Averaging solvers train all rounds in any case; `tol` bounds their violation alone. None is 1e-3.
        ``SQP(stationarity=..., feasibility=...)`` sets the two separately; a value there that differs from `tol` is an
        error.
    random_state
        Seed of initial weights, batches, participants and protections.
    pos_label
        The positive class of two; None is the larger.
    encoder
        How columns are encoded. A fitted :class:`~evenhand.data.PartyEncoder` was agreed on beforehand, for
        instance from public rows. An unfitted one is fitted on all clients' rows, with its parameters:
        ``PartyEncoder(scale=False)``. None standardises numbers and one-hot encodes categories.
    update_noise
        Noise that clients add to their updates before they send them: a :class:`~evenhand.privacy.ClippedGaussian` for
        instance, or one for each client by name. Averaging solvers only.
    protection
        ``"masked"`` or :class:`~evenhand.privacy.Masked`: a server that follows the protocol receives sums over
        clients. Masks cancel in the sum and outlive clients that drop out (extra ``privacy``). It needs
        ``scope="global"``. ``"none"`` and ``"auto"``: every answer as it is.
    runtime
        ``"auto"``, or a :class:`~evenhand.VirtualClock` with the speeds of machines and links.
    warm_start
        Start from the model of the last `fit`, if it has the same number of weights.
    verbose
        Show progress.
    threshold
        Where `predict` decides: a probability of the positive label, or the rule that chooses the cut, a
        :class:`~evenhand.Threshold`; see :class:`~evenhand.VerticalClassifier`. The server chooses the cut from
        summed counts of the clients' scores in bins, by models that have not seen the row; averaging solvers count
        scores of training rows. Constraints bound rates at the cut.
    threshold_by
        A sensitive attribute with a cut for each group; see :class:`~evenhand.VerticalClassifier`. Clients then also
        count scores by group.

    Attributes
    ----------
    classes_ : the labels, sorted.
    cut_ : the score above which the positive label is predicted, the rule, and the rows it was chosen on
        (:class:`~evenhand.metrics.Cut`); None with more than two labels.
    clients_ : names of the clients.
    coef_, intercept_ : weights of a linear model, of shape (1, n_features) in the order of `get_feature_names_out`, and
        (1,), as in scikit-learn's LogisticRegression; one row a class for more than two. Positive favours
        ``classes_[1]``.
    n_iter_, bytes_sent_ : communication rounds, and bytes of all messages.
    history_ : DataFrame, one row a round.
    certificate_ : stationarity, violation and complementarity at the returned model.
    proofs_ : bounds that the training rows prove for new people, if a constraint has a `confidence`: a list of
        :class:`~evenhand.constraints.proving.Proof`.
    privacy_ : `privacy_statements` at δ = 1e-5; None without `update_noise`.
    encoder_ : how columns are encoded; None for images.
    run_ : the whole run, with its transcript.
    """

    def __init__(
        self,
        *,
        solver: Any = "auto",
        constraint: Constraints = None,
        model: Any = "linear",
        scope: Scope | ConstraintScope = "global",
        alpha: float | None = None,
        max_rounds: int | None = None,
        tol: float | None = None,
        random_state: int | np.random.RandomState | None = None,
        pos_label: Any = None,
        encoder: PartyEncoder | None = None,
        protection: Any = "auto",
        update_noise: UpdateNoise | Mapping[str, UpdateNoise] | None = None,
        runtime: Literal["auto"] | VirtualClock = "auto",
        warm_start: bool = False,
        verbose: bool = False,
        threshold: Any = 0.5,
        threshold_by: str = "",
    ) -> None:
        self.threshold_by = threshold_by
        self.threshold = threshold
        self.solver = solver
        self.constraint = constraint
        self.model = model
        self.scope = scope
        self.alpha = alpha
        self.max_rounds = max_rounds
        self.tol = tol
        self.random_state = random_state
        self.pos_label = pos_label
        self.encoder = encoder
        self.protection = protection
        self.update_noise = update_noise
        self.runtime = runtime
        self.warm_start = warm_start
        self.verbose = verbose

    def fit(
        self,
        X: Any,
        y: Any,
        *,
        sensitive_features: Any = None,
        clients: Any = None,
        server_rows: tuple[Any, ...] | None = None,
        group_values: Mapping[str, Sequence[Hashable]] | None = None,
        start: str | Path | None = None,
        checkpoints: str | Path | None = None,
    ) -> Self:
        """Train.

        Sample weights are not supported, because clients report how many rows they have. Repeat rows instead.

        Parameters
        ----------
        X
            A DataFrame, an array (n, d) or sparse matrix, or images (n, channels, height, width). Images of bytes may
            be memory-mapped (``np.load(file, mmap_mode="r")``): they are read batch by batch and never copied.
        y
            Labels of any two values; of more for averaging solvers and for ``"sqp"``.
        sensitive_features
            One column for each sensitive attribute; or names of columns of a DataFrame X, which are then not used as
            features.
        clients
            One client id for each row.
        server_rows
            The server's own rows, ``(X, y, sensitive_features)``; a global constraint is then over them alone
            (``"prox-al"`` and ``"sqp"``).
        group_values
            The possible values of each sensitive attribute, agreed beforehand; None takes those that occur. Crossings
            can be among them: ``{"sex": [...], "ward": [...], "sex × ward": ["f × a", ...]}``.
        start
            A file of weights to start from: `model/weights.safetensors` of a run folder, or a safetensors file with the
            parameters and buffers of the torch module by their names. None starts from the model's own.
        checkpoints
            Folder for checkpoints. If it holds those of an unfinished `fit` of the same estimator on the same
            rows, training resumes from it and gives the same result.

        Warns
        -----
        ShortfallWarning
            (A ``sklearn.exceptions.ConvergenceWarning``.) If the solver did not converge (where clients
            measure it), or the model gives every training row the same label.
        """
        where = self.scope if isinstance(self.scope, ConstraintScope) else ConstraintScope(self.scope)
        model = as_model(self.model, "horizontal")
        self._check_plain()
        X = in_pandas(X)
        rows_given = getattr(X, "shape", (0,))[0]
        if (columns := named_columns(sensitive_features, rows_given)) is not None:
            X, sensitive_features = split_off(X, columns, "X")
        inputs = read_inputs(X, y, sensitive_features, clients)
        if len(inputs.X.shape) > 2 and model.kind in ("linear", "mlp", "trees"):
            raise InputError(
                f"X has the shape {tuple(inputs.X.shape)}, as images have; model {model.kind!r} takes tables. Give "
                "model='resnet18' or a torch module"
            )
        classes, pos_label, codes = class_codes(inputs.labels, self.pos_label)
        _, named = more_classes(inputs.labels, self.threshold)
        check_several(self._solver(model, two_classes=not named), "horizontal", len(named))
        job = self._job(model, named)
        protected = self.update_noise is not None
        settings: dict[str, Any] = {"scope": where, "has_server": server_rows is not None, "protected": protected}
        check_job(job, "horizontal", **settings)
        if job.cut_by:
            frame = groups_frame(inputs.sensitive, len(codes))
            check_attribute(job.cut_by, list(frame.columns))
            if where.scope != "global" or server_rows is not None:
                raise InputError("threshold_by chooses cuts over all clients' rows; use scope='global', no server_rows")
        for constraint in job.asked:
            if constraint.compares_groups and inputs.sensitive is None:
                raise DataError(f"constraint {constraint.kind} compares groups: give sensitive_features")
        pool = ClientPool(inputs, codes, encoder=self.encoder, model=model, trees=job.model == "trees")
        count = None if len(classes) == 2 else len(classes)

        def at_server() -> HorizontalServerData:
            rows = None if server_rows is None else pool.server_rows(server_rows, classes, pos_label)
            shape = next(iter(pool.rows.values())).features.shape[1:]
            begin = self._start(start, shape, count, job, pool.module)
            return HorizontalServerData(rows, pool.module, begin, pool.device)

        draft = draft_terms(
            job,
            pool.names,
            scope=where,
            noise=noise_terms(self.update_noise),
            two_classes=count is None,
            server_rows=server_rows is not None,
        )
        known = KnownBefore(group_values, count, simulated=True)
        noise = update_noise_of(self.update_noise, pool.names)
        together = pool.together(draft, known, at_server, noise, self._listening())
        recorded = recorded_fit(checkpoints, "horizontal")
        with Progress(job.max_rounds, enabled=self.verbose) as progress, recorded as folder:
            clock = self.runtime if isinstance(self.runtime, VirtualClock) else None
            run = train_together(together, clock=clock, folder=folder, on_round=progress.round)
        # Set fitted attributes last: a refused fit leaves those of an earlier fit unchanged.
        self.classes_, self.pos_label_ = classes, pos_label
        self.cut_ = None if named else run_cut(run.terms)
        self._keep(run, inputs.X)
        self.clients_, self.encoder_ = pool.names, pool.encoder
        self._record(run, pool)
        unknown = group_values is None or learns_crossings(job.constraints, group_values)
        learned = [LEARNED_COLUMNS] if pool.learned else []
        learned += [LEARNED_GROUPS] if inputs.sensitive is not None and unknown else []
        self._noise = self.update_noise, learned
        self.privacy_ = self.privacy_statements()
        own, scores, frame = None, run.model.predict(pool.features), groups_frame(inputs.sensitive, len(codes))
        if self.cut_ is not None and self.cut_.by is not None:
            own = self._in_order(np.asarray(self.cut_.of_rows(frame)))
        missed = missed_by_cuts(job, self.cut_, codes, scores, frame)
        decisions = self._decided(self._in_order(scores), own)
        warn_of_groups(self.cut_)
        warn_of_majority(job, decisions, inputs.labels, pos_label)
        warn_of([*shortfalls(run.certificate, job.tol, job.max_rounds, decisions), *missed])
        return self

    def _check_plain(self) -> None:
        if self.encoder is not None and not isinstance(self.encoder, PartyEncoder):
            raise InputError(f"encoder is a {type(self.encoder).__name__}; give an evenhand.data.PartyEncoder")
        if self.encoder is not None and self.encoder.rules.monotone:
            raise InputError("monotone is not supported across clients; remove it from the encoder")
        if self.runtime != "auto" and not isinstance(self.runtime, VirtualClock):
            raise InputError(f"runtime is {self.runtime!r}; choose 'auto' or give a VirtualClock")

    def _solver(self, model: ModelKind, *, two_classes: bool) -> Solver[Any, Any]:
        name = choose_solver(
            named_solver("horizontal", self.solver)[0],
            model=model.kind,
            constrained=bool(as_list(self.constraint)),
            two_classes=two_classes,
            protected=self.update_noise is not None,
        )
        return find("horizontal", name)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = trains_several(
            lambda: self._solver(as_model(self.model, "horizontal"), two_classes=False)
        )
        return tags

    def _job(self, model: ModelKind, classes: tuple[Label, ...]) -> Job:
        _, options = named_solver("horizontal", self.solver)
        solver = self._solver(model, two_classes=not classes).name
        threshold = as_threshold(self.threshold)
        rule = threshold if isinstance(threshold, Threshold) else None
        constraints, closed = split_closed(as_list(self.constraint), self.threshold_by, rule)
        return Job(
            cut=fixed_cut(threshold),
            rule=rule,
            closed=closed,
            cut_by=self.threshold_by,
            solver=solver,
            constraints=constraints,
            classes=classes,
            alpha=self.alpha,
            seed=seed_of(self.random_state),
            options=options,
            **stopping(solver, options, self.tol, self.max_rounds),
            **protection_of(self.protection),
            **model.job_fields,
        )
