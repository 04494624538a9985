"""The path of horizontal runs: a job and the clients' rows become roles, a runtime runs them, a run comes out."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from threadpoolctl import threadpool_limits

from evenhand.arrays import Array
from evenhand.errors import InputError, RunError
from evenhand.horizontal.problem import ClientRows, Single, Start, agree
from evenhand.horizontal.solver import HorizontalModel, Protection, Setup
from evenhand.horizontal.solvers import build_roles
from evenhand.protocol.certificate import Certificate
from evenhand.protocol.job import Job
from evenhand.protocol.roles import Report
from evenhand.protocol.transcript import Transcript
from evenhand.runtime.clock import VirtualClock
from evenhand.runtime.folder import RunFolder
from evenhand.runtime.inprocess import InProcess
from evenhand.training.recording import Recorder


@dataclass(frozen=True, eq=False)
class HorizontalRun:
    """What training leaves behind.

    Attributes
    ----------
    model
        The model all clients share; `model.predict(features)` gives scores.
    weights, statistics
        The model's weights and running statistics (of batch normalisation), flat.
    history
        One row for the start and one for each round: objective, constraint values and exact rates of the model over the
        participants' rows (of the last row: over everybody's), multipliers, bytes sent so far, virtual time.
    certificate
        How well the result satisfies the optimality conditions on all clients' rows.
    transcript
        Every message sent.
    multipliers
        (2, R): λ⁺ and λ⁻ of each constraint row.
    raw_multipliers
        The solver's own multipliers, from which another run can start.
    row_names
        The R constraint rows in words.
    """

    model: HorizontalModel
    weights: Single
    statistics: Single
    history: pd.DataFrame
    certificate: Certificate
    transcript: Transcript
    multipliers: Array
    raw_multipliers: Array
    row_names: Sequence[str]

    def as_start(self) -> Start:
        """Where this run ended, for another to begin from."""
        return Start(self.weights, self.statistics, self.raw_multipliers)


def train_horizontal(
    job: Job,
    clients: Sequence[ClientRows],
    *,
    model: Any = None,
    groups: Mapping[str, Sequence[Hashable]] | None = None,
    classes: int | None = None,
    clock: VirtualClock | None = None,
    folder: RunFolder | None = None,
    checkpoint_seconds: float = 10.0,
    on_round: Callable[[Report], None] | None = None,
    keep_messages: bool = False,
    protect: Protection | Mapping[str, Protection] | None = None,
    start: Start | None = None,
) -> HorizontalRun:
    """Train across clients in this process.

    Parameters
    ----------
    model
        ``"logistic"``, ``"mlp"`` (with the job's hidden widths), ``"resnet18"``, a `torch.nn.Module` (which is copied
        and begins with its own weights) or a function that makes one (called under the job's seed). None takes what the
        job's `model` says: logistic for ``"linear"``, else a perceptron.
    groups
        The values each sensitive attribute may take, agreed beforehand; None takes those that occur.
    classes
        Number of classes, if labels are class indices; None finds out.
    folder
        Where to record the run. If it holds a checkpoint of the same job and data, training goes on from there, and
        ends exactly where an uninterrupted run would have.
    checkpoint_seconds
        Least time between two checkpoints.
    on_round
        Called with each row of history as it appears.
    keep_messages
        Keep the arrays of all messages in the transcript.
    protect
        What clients do to their updates before sending them: one protection for all, or one for each by name.
    start
        Weights and multipliers to begin with, of an earlier run.
    """
    agreement = agree(clients, groups, classes)
    protections = _protections(protect, clients)
    recorder = Recorder(folder, checkpoint_seconds, on_round)
    # One BLAS thread, as in vertical training: sums come out the same whatever the machine.
    with threadpool_limits(limits=1, user_api="blas"), np.errstate(over="ignore", invalid="ignore"):
        server, roles, network = build_roles(Setup(clients, agreement, job, model, start, protections))
        runtime = InProcess([server, *roles], clock, Transcript(keep_messages), recorder.report)
        begin = (server.weights, server.statistics, server.multipliers)
        recorder.attach(runtime, _fingerprint((job, clock or VirtualClock(), protections), clients, begin))
        runtime.run()
    recorder.flush()
    if server.certificate is None:
        raise RunError("the run ended without a certificate")
    network.load(server.weights, server.statistics)
    return HorizontalRun(
        model=network,
        weights=server.weights,
        statistics=server.statistics,
        history=pd.DataFrame(recorder.history),
        certificate=server.certificate,
        transcript=runtime.transcript,
        multipliers=server.multiplier_table,
        raw_multipliers=server.multipliers,
        row_names=server.rows.names,
    )


def _protections(
    protect: Protection | Mapping[str, Protection] | None, clients: Sequence[ClientRows]
) -> dict[str, Protection] | None:
    names = [client.name for client in clients]
    if protect is None:
        return None
    if not isinstance(protect, Mapping):
        return dict.fromkeys(names, protect)
    if unknown := sorted(protect.keys() - set(names)):
        raise InputError(f"protect names {unknown[0]!r}, which is not a client; the clients are {', '.join(names)}")
    return dict(protect)


def _fingerprint(settings: tuple[Any, ...], clients: Sequence[ClientRows], begin: tuple[Any, ...]) -> str:
    """A sum over job, data and first weights: resuming with anything else would not be resuming."""
    digest = hashlib.blake2b(repr(settings).encode(), digest_size=16)
    for array in begin:
        digest.update(np.ascontiguousarray(array).tobytes())
    for client in clients:
        digest.update(f"{client.name} {client.features.shape}".encode())
        digest.update(client.features.tobytes())
        digest.update(client.labels.tobytes())
        if client.groups is not None and len(client.groups.columns):
            digest.update(pd.util.hash_pandas_object(client.groups, index=False).to_numpy().tobytes())
    return digest.hexdigest()
