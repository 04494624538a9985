"""The scikit-learn style front of horizontal training: a classifier across clients that hold different rows."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
import numpy.typing as npt
from sklearn.utils import check_random_state

from evenhand.auditing.horizontal import HorizontalAuditInput
from evenhand.auditing.views import listening
from evenhand.constraints import Constraints, as_list
from evenhand.constraints.scope import ConstraintScope, Scope
from evenhand.data.tables.encoding import PartyEncoder
from evenhand.errors import DataError, InputError
from evenhand.estimators.client_rows import ClientPool, class_codes, read_inputs, server_rows_of
from evenhand.estimators.client_scores import ScoresAcrossClients
from evenhand.estimators.recording import recorded_fit
from evenhand.estimators.sensitive import named_columns, split_off
from evenhand.estimators.tables import in_pandas
from evenhand.estimators.warning import warn_of
from evenhand.horizontal.crossings import learns_crossings
from evenhand.horizontal.problem import HorizontalServerData, ModelStart, UpdateNoise
from evenhand.privacy.levels import protection_of
from evenhand.privacy.mechanism import noise_terms
from evenhand.protocol.job import Job
from evenhand.protocol.roles import SERVER
from evenhand.report.tables import Progress
from evenhand.runtime.inprocess import VirtualClock
from evenhand.solvers.agreeing import KnownBefore, draft_terms
from evenhand.solvers.checking import check_job
from evenhand.solvers.registry import HORIZONTAL, choose_solver, named_solver
from evenhand.training.horizontal import train_together, update_noise_of
from evenhand.training.horizontal_steps import HorizontalTraining, client_steps, server_steps, start_from
from evenhand.training.protection import LEARNED_COLUMNS, LEARNED_GROUPS, client_privacy
from evenhand.training.run import shortfalls
from evenhand.training.together import Steps, Together

_MODELS = ("linear", "mlp", "resnet18", "trees")


class HorizontalClassifier(ScoresAcrossClients):
    """A classifier across clients that hold different rows of the same columns, optionally under constraints.

    Everything runs in this process; the clients' messages are the ones a deployment would send, and are counted.

    What clients must agree on before the first round: the columns and how they are encoded, the classes, and the
    groups. A deployment writes them down. Here they are found from all clients' rows, unless they are given: for the
    encoding each client would have to share, of every numeric column, its number of rows, mean and sum of squares
    about it, and of every other column the levels that occur. Give `encoder` and `groups` (or ``scale=False`` and
    numbers only) to have nothing learned.

    Parameters
    ----------
    solver
        ``"fedavg"`` (takes no constraint), ``"fairfedavgalm"``, ``"fairalm"``, ``"fpfl"``, ``"fairfed"`` (which has no
        constraint but shares that follow its metric): local SGD, averaged; for any model, with the ``torch`` extra.
        ``"prox-al"`` and ``"sqp"``: linear models of two classes, to the optimum and with multipliers. ``"trees"``:
        boosted trees by summed histograms. ``"auto"`` is ``"sqp"`` for a linear model of two classes without
        protection, which needs about a dozen rounds; ``"trees"`` for trees; otherwise ``"fairfedavgalm"`` under a
        constraint and ``"fedavg"`` without. An object of `evenhand.solvers` sets its options too:
        ``FedAvg(step=0.1, local_epochs=2)``.
    constraint
        One constraint or several, for instance ``EqualOpportunity(0.01)``. None trains without, or under what the
        solver has by default (``LossParity(0)`` of FairFedAvgALM and FairALM, ``GroupAgainstOverall(0)`` of FPFL).
    model
        ``"linear"``, ``"mlp"``, ``"resnet18"`` (images), ``"trees"`` (of two classes; values may be missing, and
        categories are taken as they are), a `torch.nn.Module`, which begins with its own weights, or a function without
        arguments that makes one. With K > 2 classes a module has K outputs. Pictures of bytes are shown to it as
        numbers from 0 to 1.
    scope
        Rows over which constraints hold: ``"global"``, over all clients' rows together; ``"local"``, over each client's
        separately; or ``"both"``. The last two need ``"prox-al"`` or ``"sqp"``. A
        :class:`~evenhand.constraints.scope.ConstraintScope` also sets bounds by client, and what happens at clients
        without rows in a slice.
    alpha
        μ of (μ/2)‖w‖². None is zero for averaging solvers, where it is over all weights; for ``"prox-al"`` and
        ``"sqp"`` 2/n, and the intercept is left out.
    max_rounds
        Averaging solvers train for so many rounds; the others end when they are done, at the latest then. None is 100,
        200 for ``"sqp"``, 300 for ``"trees"`` (a round a level of a tree), 100,000 for ``"prox-al"``.
    tol
        ``"prox-al"`` and ``"sqp"``: ε₁ and ε₂, when to stop. For the others only what counts as converged.
    random_state
        Seed of initial weights, batches, participants and protections.
    pos_label
        Of two classes, the one that counts as positive; None is the larger.
    scale
        Whether numeric columns are standardised. Categories are one-hot encoded in any case.
    encoder
        A fitted :class:`~evenhand.data.PartyEncoder` that clients have agreed on, for instance of public rows; None
        learns one.
    groups
        The values each sensitive attribute may take, agreed beforehand; None takes those that occur. Crossings can be
        among them: ``{"sex": [...], "ward": [...], "sex × ward": ["f × a", ...]}``.
    hidden
        Widths of the hidden layers of ``"mlp"``.
    update_noise
        Noise that clients add to their updates before they send them: a :class:`~evenhand.privacy.ClippedGaussian` for
        instance, or one for each client by name. Averaging solvers only.
    protection
        ``"masked"`` or :class:`~evenhand.privacy.Masked`: a server that follows the protocol receives sums over
        clients. Masks cancel in the sum and outlive clients that drop out (extra ``privacy``). It needs
        ``scope="global"``. ``"none"`` and ``"auto"``: every answer as it is.
    delta
        δ of the privacy statements.
    runtime
        ``"auto"``, or a :class:`~evenhand.VirtualClock` with the speeds of machines and links.
    device
        Where torch computes, ``"cuda"`` for instance; for averaging solvers and models that are no perceptrons.
    crop
        Of pictures of bytes, the side of the square that the model is shown: cut at random places to train, out of the
        middle to judge and to predict. None shows them whole.
    start
        A file of weights to begin with: `model/weights.safetensors` of a run folder, or a safetensors file with the
        parameters and buffers of the torch module by their names. None begins with the model's own.
    warm_start
        Begin where the last `fit` ended, if its model had as many weights.
    checkpoints
        A folder to keep checkpoints in. If it holds those of an unfinished `fit` of the same estimator on the same
        rows, training resumes from it and gives the same result.
    verbose
        Show progress.

    Attributes
    ----------
    classes_ : the labels, sorted.
    clients_ : names of the clients.
    coef_, intercept_ : weights of a linear model, of shape (1, n_features) in the order of `get_feature_names_out`, and
        (1,), as scikit-learn's LogisticRegression has them; one row a class for more than two. Positive favours
        ``classes_[1]``.
    n_iter_, bytes_sent_ : communication rounds, and bytes of all messages.
    history_ : DataFrame, one row a round.
    certificate_ : stationarity, violation and complementarity at the returned model.
    proofs_ : what the training rows prove of new people, where a constraint has a `confidence`: a list of
        :class:`~evenhand.constraints.proving.Proof`.
    privacy_ : by client a `PrivacyStatement`, or a `NoStatement` with the reason; None without `update_noise`. It does
        not cover measured quality that is published beside the model.
    encoder_ : how columns are encoded; None for images.
    run_ : the whole run, with its transcript.
    """

    _audit_inputs: list[HorizontalAuditInput] | None = None
    """Where an audit wants to find what was trained on and what was said; None where nobody asks."""

    def __init__(
        self,
        *,
        solver: Any = "auto",
        constraint: Constraints = None,
        model: Any = "linear",
        scope: Scope | ConstraintScope = "global",
        alpha: float | None = None,
        max_rounds: int | None = None,
        tol: float = 1e-3,
        random_state: int | np.random.RandomState | None = None,
        pos_label: Any = None,
        scale: bool = True,
        encoder: PartyEncoder | None = None,
        groups: Mapping[str, Sequence[Hashable]] | None = None,
        hidden: Sequence[int] = (32, 16),
        update_noise: UpdateNoise | Mapping[str, UpdateNoise] | None = None,
        delta: float = 1e-5,
        runtime: Literal["auto"] | VirtualClock = "auto",
        protection: Any = "auto",
        device: str = "cpu",
        crop: int | None = None,
        start: str | Path | None = None,
        warm_start: bool = False,
        checkpoints: str | Path | None = None,
        verbose: bool = False,
    ) -> None:
        self.solver = solver
        self.constraint = constraint
        self.model = model
        self.scope = scope
        self.alpha = alpha
        self.max_rounds = max_rounds
        self.tol = tol
        self.random_state = random_state
        self.pos_label = pos_label
        self.scale = scale
        self.encoder = encoder
        self.groups = groups
        self.hidden = hidden
        self.update_noise = update_noise
        self.delta = delta
        self.runtime = runtime
        self.protection = protection
        self.device = device
        self.crop = crop
        self.start = start
        self.warm_start = warm_start
        self.checkpoints = checkpoints
        self.verbose = verbose

    def fit(
        self,
        X: Any,
        y: Any,
        *,
        sensitive_features: Any = None,
        clients: Any = None,
        server_rows: tuple[Any, ...] | None = None,
    ) -> Self:
        """Train.

        Rows count once each, since clients tell how many they have: to weigh rows by whole numbers, repeat them.

        Parameters
        ----------
        X
            A DataFrame, an array (n, d) or sparse matrix, or images (n, channels, height, width). Images of bytes may
            be memory-mapped (``np.load(file, mmap_mode="r")``): they are read batch by batch and never copied.
        y
            Labels of any two values; of more for averaging solvers.
        sensitive_features
            One column for each sensitive attribute; or names of columns of a DataFrame X, which are no features then.
        clients
            One client id for each row.
        server_rows
            Rows of the server's own, ``(X, y, sensitive_features)``; a global constraint is then over them alone
            (``"prox-al"`` and ``"sqp"``).

        Warns
        -----
        ShortfallWarning
            (A ``sklearn.exceptions.ConvergenceWarning``.) If the solver did not converge, as far as clients were asked
            to measure it, or the model gives every training row the same label.
        """
        where = self.scope if isinstance(self.scope, ConstraintScope) else ConstraintScope(self.scope)
        self._check_plain()
        X = in_pandas(X)
        rows_given = getattr(X, "shape", (0,))[0]
        if (columns := named_columns(sensitive_features, rows_given)) is not None:
            X, sensitive_features = split_off(X, columns, "X")
        inputs = read_inputs(X, y, sensitive_features, clients)
        classes, pos_label, codes = class_codes(inputs.labels, self.pos_label)
        job = self._job(two_classes=len(classes) == 2)
        protected = self.update_noise is not None
        settings: dict[str, Any] = {"scope": where, "has_server": server_rows is not None, "protected": protected}
        check_job(job, "horizontal", **settings)
        if len(classes) > 2 and not HORIZONTAL[job.solver].many_classes:
            raise DataError(
                f"y has {len(classes)} classes, solver {job.solver!r} trains with two: Only binary classification is "
                "supported. Averaging solvers train with more"
            )
        for constraint in job.constraints:
            if constraint.compares_groups and inputs.sensitive is None:
                raise DataError(f"constraint {constraint.kind} compares groups: give sensitive_features")
        pool = ClientPool(
            inputs, codes, encoder=self.encoder, scale=self.scale, crop=self.crop, trees=job.model == "trees"
        )
        together = self._together(job, pool, where, classes, pos_label, server_rows)
        with (
            Progress(job.max_rounds, enabled=self.verbose) as progress,
            recorded_fit(self.checkpoints, "horizontal") as folder,
        ):
            clock = self.runtime if isinstance(self.runtime, VirtualClock) else None
            run = train_together(together, clock=clock, folder=folder, on_round=progress.round)
        # Only now is anything kept: a fit that was refused leaves an earlier one as it was.
        self._keep(run, inputs.X, classes, pos_label)
        self.clients_, self.encoder_ = pool.names, pool.encoder
        if self._audit_inputs is not None:
            messages = run.transcript.messages or ()
            self._audit_inputs.append(HorizontalAuditInput(messages, pool.rows, run.model, run.statistics, run.terms))
        self.privacy_ = None
        if protected:
            unknown = self.groups is None or learns_crossings(job.constraints, self.groups)
            learned = [LEARNED_COLUMNS] if pool.learned else []
            learned += [LEARNED_GROUPS] if inputs.sensitive is not None and unknown else []
            self.privacy_ = client_privacy(pool.names, self.update_noise, run.transcript, self.delta, learned=learned)
        warn_of(shortfalls(run.certificate, job.tol, self._decided(self._in_order(run.model.predict(pool.features)))))
        return self

    def _together(
        self,
        job: Job,
        pool: ClientPool,
        where: ConstraintScope,
        classes: npt.NDArray[Any],
        pos_label: Any,
        server_rows: tuple[Any, ...] | None,
    ) -> Together[HorizontalTraining]:
        """Return everybody's steps from the draft terms to the trained model."""
        network = None if isinstance(self.model, str) else self.model
        protections = update_noise_of(self.update_noise, pool.names)
        count = None if len(classes) == 2 else len(classes)
        draft = draft_terms(
            job,
            pool.names,
            scope=where,
            noise=noise_terms(self.update_noise),
            two_classes=count is None,
            server_rows=server_rows is not None,
        )
        known = KnownBefore(self.groups, count, simulated=True)

        def at_server() -> HorizontalServerData:
            rows = None
            if server_rows is not None:
                rows = server_rows_of(pool.encoder, server_rows, classes, pos_label, self.crop)
            start = self._start(next(iter(pool.rows.values())).features.shape[1:], count, job)
            return HorizontalServerData(rows, network, start, self.device)

        own = pool.server(at_server)
        warns = bool(job.constraints)
        steps: dict[str, Steps[Any]] = {
            SERVER: server_steps(draft, known, own, everybody=lambda: pool.rows, warns=warns)
        }
        for name in pool.names:
            rows = pool.client(name, network, protections.get(name), self.device)
            steps[name] = client_steps(name, draft, known, rows)
        return Together(steps, None if self._audit_inputs is None else listening())

    # -- what is asked for

    def _check_plain(self) -> None:
        if isinstance(self.model, str) and self.model not in _MODELS:
            raise InputError(
                f"model is {self.model!r}; choose {', '.join(map(repr, _MODELS))}, or give a torch.nn.Module"
            )
        if not isinstance(self.model, str) and not callable(self.model):
            raise InputError(f"model is a {type(self.model).__name__}; give a name, a torch.nn.Module or a function")
        if not isinstance(self.hidden, Sequence):
            raise InputError(f"hidden is {self.hidden!r}; give the width of each hidden layer, for instance (32, 16)")
        if self.encoder is not None and not isinstance(self.encoder, PartyEncoder):
            raise InputError(f"encoder is a {type(self.encoder).__name__}; give a fitted evenhand.data.PartyEncoder")
        if self.runtime != "auto" and not isinstance(self.runtime, VirtualClock):
            raise InputError(f"runtime is {self.runtime!r}; choose 'auto' or give a VirtualClock")
        if not 0 < self.delta < 1:
            raise InputError(f"delta is {self.delta!r}; give a number between 0 and 1, such as 1e-5")

    def _job(self, two_classes: bool) -> Job:
        constraints = tuple(as_list(self.constraint))
        model: Any = self.model if isinstance(self.model, str) else "module"
        name, options = named_solver("horizontal", self.solver)
        solver = choose_solver(
            name,
            model=model,
            constrained=bool(constraints),
            two_classes=two_classes,
            protected=self.update_noise is not None,
        )
        state = self.random_state
        seed = int(state) if isinstance(state, (int, np.integer)) else int(check_random_state(state).randint(2**31))
        rounds = HORIZONTAL[solver].default_rounds
        return Job(
            solver=solver,
            constraints=constraints,
            model=model,
            alpha=self.alpha,
            max_rounds=rounds if self.max_rounds is None else self.max_rounds,
            tol=self.tol,
            seed=seed,
            hidden=tuple(self.hidden),
            options=options,
            **protection_of(self.protection),
        )

    def _start(self, shape: tuple[int, ...], classes: int | None, job: Job) -> ModelStart | None:
        if self.warm_start and hasattr(self, "run_"):
            # Multipliers of other constraints would mean nothing.
            last = self.run_.as_start()
            same = self.run_.terms.shape == tuple(shape) and self.run_.terms.classes == classes
            alike = self.run_.terms.job.constraints == job.constraints and self.run_.terms.job.solver == job.solver
            return (last if alike else ModelStart(last.weights, last.statistics)) if same else None
        if self.start is None:
            return None
        return start_from(Path(self.start), job, shape, classes, None if isinstance(self.model, str) else self.model)
