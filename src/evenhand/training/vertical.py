"""The one path everybody takes: a job and the parties' columns become roles, a runtime runs them, a run comes out."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np
import pandas as pd
import scipy.sparse as sp
from threadpoolctl import ThreadpoolController

from evenhand.arrays import Array, Matrix
from evenhand.constraints import bind
from evenhand.constraints.lagrangian import Lagrangian
from evenhand.constraints.losses import LOSSES
from evenhand.errors import InputError, RunError
from evenhand.models.base import PartyModel
from evenhand.moved import keep_old_names
from evenhand.protocol.certificate import Certificate
from evenhand.protocol.job import Job, RuntimeName, runtime_name
from evenhand.protocol.roles import Report
from evenhand.protocol.transcript import Transcript
from evenhand.runtime.clock import VirtualClock
from evenhand.runtime.folder import RunFolder
from evenhand.runtime.inprocess import InProcess
from evenhand.runtime.threads import Threads
from evenhand.training.recording import Recorder
from evenhand.vertical.parties import Party
from evenhand.vertical.problem import PartyColumns, Start
from evenhand.vertical.server import CompiledRun, Server
from evenhand.vertical.solvers import SOLVERS, build_compiled, build_roles, check_job, solver_name

keep_old_names(__name__)


@dataclass(frozen=True, eq=False)
class VerticalRun:
    """What training leaves behind.

    Attributes
    ----------
    models
        Each party's model; in a deployment each stays with its party.
    history
        One row a round: objective, constraint values, exact rates, multipliers, bytes sent so far, virtual time.
    certificate
        How well the result satisfies the optimality conditions.
    transcript
        Every message sent.
    multipliers
        (2, R): λ⁺ and λ⁻ of each constraint row.
    row_names
        The R constraint rows in words.
    statistics
        What else the solver recorded; of VFB², how stale updates were.
    """

    models: Mapping[str, PartyModel]
    history: pd.DataFrame
    certificate: Certificate
    transcript: Transcript
    multipliers: Array
    row_names: Sequence[str]
    statistics: Mapping[str, Any] = field(default_factory=dict)

    def as_start(self) -> Start:
        """Where this run ended, for another to begin from."""
        return Start({name: model.weights for name, model in self.models.items()}, self.multipliers)


def train_vertical(
    job: Job,
    parties: Sequence[PartyColumns],
    labels: Array,
    sensitive: pd.DataFrame | None = None,
    *,
    runtime: RuntimeName = "auto",
    clock: VirtualClock | None = None,
    folder: RunFolder | None = None,
    checkpoint_seconds: float = 10.0,
    on_round: Callable[[Report], None] | None = None,
    keep_messages: bool = False,
    start: Start | None = None,
) -> VerticalRun:
    """Train across parties in this process.

    Parameters
    ----------
    labels
        ±1 for each row; any numbers with the squared loss.
    sensitive
        One column per sensitive attribute.
    runtime
        ``"messages"``: server and parties take turns and exchange messages. ``"interleaved"``: one compiled loop plays
        them all and counts the messages (VFB² only). ``"threads"``: a group of threads for each party, for solvers
        that stand it (VFB² only); no two such runs are the same. ``"auto"``: interleaved where the solver can and no
        clock is given, else messages.
    clock
        Speeds of machines and links, for ``"messages"``.
    folder
        Where to record the run. If it holds a checkpoint of the same job and data, training goes on from there, and
        ends exactly where an uninterrupted run would have.
    checkpoint_seconds
        Least time between two checkpoints.
    on_round
        Called with each row of history as it appears.
    keep_messages
        Keep the arrays of all messages in the transcript.
    start
        Weights and multipliers to begin with, of an earlier run on the same columns.
    """
    runtime = runtime_name(runtime)
    lagrangian = Lagrangian(labels, bind(job.constraints, labels, sensitive), LOSSES[job.loss])
    recorder = Recorder(folder, checkpoint_seconds, on_round)
    # One BLAS thread: a party's products are short and bound by memory, waiting threads cost more than they bring,
    # and sums come out the same whatever the machine.
    # Numbers that overflow are a DivergenceError of the party that sees them first, not a warning on the way there.
    with _libraries().limit(limits=1, user_api="blas"), np.errstate(over="ignore", invalid="ignore"):
        server, roles = _build_roles(runtime, clock, parties, lagrangian, job, start)
        running: InProcess | Threads
        if runtime == "threads":
            running = Threads([server, *roles], Transcript(keep_messages), recorder.report)
        else:
            running = InProcess([server, *roles], clock, Transcript(keep_messages), recorder.report)
        if folder is not None:
            recorder.attach(running, _fingerprint(job, clock, parties, labels, sensitive))
        running.run()
    recorder.flush()
    if server.certificate is None:
        raise RunError("the run ended without a certificate")
    return VerticalRun(
        models=server.models if isinstance(server, CompiledRun) else {role.name: role.model for role in roles},
        history=pd.DataFrame(recorder.history),
        certificate=server.certificate,
        transcript=running.transcript,
        multipliers=server.multipliers,
        row_names=lagrangian.constraints.names,
        statistics=server.statistics(),
    )


@cache
def _libraries() -> ThreadpoolController:
    """The numerical libraries of this process; looking for them takes milliseconds."""
    return ThreadpoolController()


def _build_roles(
    runtime: RuntimeName,
    clock: VirtualClock | None,
    parties: Sequence[PartyColumns],
    lagrangian: Lagrangian,
    job: Job,
    start: Start | None,
) -> tuple[Server, Sequence[Party]]:
    """Who plays: the ensemble alone, or server and parties."""
    check_job(job)
    solver = SOLVERS[solver_name(job)]
    if clock is not None and runtime in ("interleaved", "threads"):
        raise InputError(f"a virtual clock tells the time of roles; runtime {runtime!r} has none")
    if solver.compiled is None and runtime in ("interleaved", "threads"):
        raise InputError(f"solver {solver_name(job)!r} does not run {runtime}; choose a VFB² solver, or 'messages'")
    if runtime == "interleaved" or (runtime == "auto" and clock is None):
        compiled = build_compiled(parties, lagrangian, job, start)
        if compiled is not None:
            return compiled, ()
    return build_roles(parties, lagrangian, job, start)


def _fingerprint(
    job: Job,
    clock: VirtualClock | None,
    parties: Sequence[PartyColumns],
    labels: Array,
    sensitive: pd.DataFrame | None,
) -> str:
    """A sum over job and data: resuming with anything else would not be resuming."""
    digest = hashlib.blake2b(repr((job, clock or VirtualClock())).encode(), digest_size=16)
    digest.update(np.ascontiguousarray(labels).tobytes())
    if sensitive is not None:
        digest.update(pd.util.hash_pandas_object(sensitive, index=False).to_numpy().tobytes())
    for party in parties:
        digest.update(f"{party.name} {party.active}".encode())
        for part in _parts(party.matrix):
            digest.update(np.ascontiguousarray(part).data.cast("B"))
    return digest.hexdigest()


def _parts(matrix: Matrix) -> tuple[Any, ...]:
    return (matrix.indptr, matrix.indices, matrix.data) if sp.issparse(matrix) else (matrix,)
