"""Linear models across clients as programs: a job and the clients' rows become roles of `prox-al` or `sqp`, and run.

Averaging solvers know constraints over everybody's rows only. Here a constraint may also hold at each client over its
own rows, with a limit of the client's own, and at the server over rows of the server's.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import fields
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pandas as pd
from threadpoolctl import threadpool_limits

from evenhand.arrays import Array
from evenhand.constraints.scope import EVERYWHERE, ConstraintScope
from evenhand.errors import InputError, RunError
from evenhand.horizontal.problem import ClientRows, agree
from evenhand.horizontal.prox_al.options import ProxALOptions
from evenhand.horizontal.prox_al.solve import ProxALRoles, prox_al_roles
from evenhand.horizontal.sqp.options import SQPOptions
from evenhand.horizontal.sqp.solve import SQPRoles, sqp_roles
from evenhand.programs.classification import Federated
from evenhand.programs.optimality import SHARED
from evenhand.protocol.job import Job
from evenhand.protocol.roles import Report
from evenhand.protocol.transcript import Transcript
from evenhand.runtime.clock import VirtualClock
from evenhand.runtime.folder import RunFolder
from evenhand.runtime.inprocess import InProcess
from evenhand.training.client_programs import ClientPrograms
from evenhand.training.horizontal import HorizontalRun
from evenhand.training.recording import Recorder

PROGRAM_SOLVERS: Final[Mapping[str, type[Any]]] = {"prox-al": ProxALOptions, "sqp": SQPOptions}
"""Solvers of programs by name, with their options."""


class SharedLinear:
    """scores = X w + b, the model of all clients; w and b as one vector."""

    def __init__(self, weights: Array) -> None:
        self.weights = weights

    def load(self, weights: Any, statistics: Any) -> None:
        self.weights = np.asarray(weights, dtype=np.float64)

    def predict(self, features: npt.ArrayLike) -> Array:
        """One score a row, positive for label +1."""
        rows = np.asarray(features, dtype=np.float64)
        if rows.ndim != 2 or rows.shape[1] != len(self.weights) - 1:
            raise InputError(
                f"rows have the shape {rows.shape[1:]}; the model was trained on {len(self.weights) - 1} columns"
            )
        return rows @ self.weights[:-1] + self.weights[-1]


def train_programs(
    job: Job,
    clients: Sequence[ClientRows],
    *,
    where: ConstraintScope = EVERYWHERE,
    server: ClientRows | None = None,
    groups: Mapping[str, Sequence[Hashable]] | None = None,
    clock: VirtualClock | None = None,
    folder: RunFolder | None = None,
    checkpoint_seconds: float = 10.0,
    on_round: Callable[[Report], None] | None = None,
) -> HorizontalRun:
    """Train a linear model by ``"prox-al"`` or ``"sqp"`` in this process.

    The job's `alpha` is μ of (μ/2)‖w‖², which leaves the intercept out; None is 2/n, so that a minimiser exists.
    `tol` is ε₁ and ε₂ of the solver unless it is zero or the options say otherwise.

    Parameters
    ----------
    server
        Rows of the server's own; a global constraint is then over them (Eq. 32) and not over the clients'.

    The other parameters are those of `train_horizontal`.
    """
    options = program_options(job)
    agreement = agree(clients, groups)
    names = [client.name for client in clients]
    where.check(job.constraints, names)
    if agreement.classes is not None or len(agreement.shape) != 1:
        raise InputError(f"solver {job.solver!r} trains linear models of two classes on rows of numbers")
    if SHARED in names:
        raise InputError(f"a client is called {SHARED!r}, which is what {job.solver!r} calls rows of all; rename it")
    if server is not None:
        if where.scope == "local":
            raise InputError("the server has rows, which scope='local' has no use for; choose 'global' or 'both'")
        agree([*clients, server], agreement.groups)
        agreement.codes(server)
    for client in clients:
        agreement.codes(client)
    bound = ClientPrograms(job, sorted(clients, key=lambda client: client.name), server, agreement.groups, where)
    recorder = Recorder(folder, checkpoint_seconds, on_round)
    with threadpool_limits(limits=1, user_api="blas"), np.errstate(over="ignore", invalid="ignore"):
        roles = _roles(bound.federated(), bound.names, options)
        runtime = InProcess([roles.server, *roles.clients], clock, Transcript(), recorder.report)
        settings = repr((job, where, clock or VirtualClock()))
        recorder.attach(runtime, _fingerprint(settings, [*clients, *([] if server is None else [server])]))
        runtime.run()
    recorder.flush()
    solution = roles.solution()
    if roles.server.certificate is None:
        raise RunError("the run ended without a certificate")
    tables = [solution.multipliers[name] for name in bound.holders if name in solution.multipliers]
    multipliers = np.concatenate([np.zeros((2, 0)), *tables], axis=1)
    weights: Any = solution.weights
    return HorizontalRun(
        model=SharedLinear(weights),
        weights=weights,
        statistics=np.zeros(0, dtype=np.float32),
        history=pd.DataFrame(recorder.history),
        certificate=roles.server.certificate,
        transcript=runtime.transcript,
        multipliers=multipliers,
        raw_multipliers=multipliers[0] - multipliers[1],
        row_names=bound.row_names(),
    )


def program_options(job: Job) -> ProxALOptions | SQPOptions:
    """The solver's options, with the job's tolerance, cap and seed where they say nothing of their own.

    Of ``"prox-al"`` `rho_rule` is ``"balanced"`` here unless the options say ``"fixed"``, which is the paper's.
    """
    kind = PROGRAM_SOLVERS[job.solver]
    known = [field.name for field in fields(kind)]
    for name in job.options:
        if name not in known:
            raise InputError(f"solver {job.solver!r} has no option {name!r}; it has {', '.join(known)}")
    # With ρ as published, rows that all clients share can take many times the rounds.
    general: dict[str, Any] = {"max_rounds": job.max_rounds, "seed": job.seed, "rho_rule": "balanced"}
    if job.tol > 0:
        general |= {"stationarity": job.tol, "feasibility": job.tol}
    settings = {name: value for name, value in general.items() if name in known}
    options: ProxALOptions | SQPOptions = kind(**{**settings, **job.options})
    return options


def _roles(federated: Federated, names: Sequence[str], options: ProxALOptions | SQPOptions) -> ProxALRoles | SQPRoles:
    programs = dict(zip(names, federated.clients, strict=True))
    if isinstance(options, SQPOptions):
        return sqp_roles(programs, federated.server, shared=federated.shared, options=options)
    return prox_al_roles(programs, federated.server, shared=federated.shared, options=options)


def _fingerprint(settings: str, holders: Sequence[ClientRows]) -> str:
    """A sum over job and data: resuming with anything else would not be resuming."""
    digest = hashlib.blake2b(settings.encode(), digest_size=16)
    for rows in holders:
        digest.update(f"{rows.name} {rows.features.shape}".encode())
        digest.update(rows.features.tobytes())
        digest.update(rows.labels.tobytes())
        if rows.groups is not None and len(rows.groups.columns):
            digest.update(pd.util.hash_pandas_object(rows.groups, index=False).to_numpy().tobytes())
    return digest.hexdigest()
