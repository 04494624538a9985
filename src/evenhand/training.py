"""The one path everybody takes: a job and the parties' columns become roles, a runtime runs them, a run comes out."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import scipy.sparse as sp
from threadpoolctl import threadpool_limits

from evenhand.arrays import Array, Matrix
from evenhand.certificate import Certificate
from evenhand.constraints import bind
from evenhand.errors import RunError
from evenhand.job import Job
from evenhand.lagrangian import Lagrangian
from evenhand.models.base import PartyModel
from evenhand.privacy.transcript import Transcript
from evenhand.report.record import RunFolder
from evenhand.roles import Report
from evenhand.runtime import checkpoints
from evenhand.runtime.clock import VirtualClock
from evenhand.runtime.inprocess import InProcess
from evenhand.vertical.problem import PartyColumns, Start
from evenhand.vertical.solvers import build_roles


@dataclass(frozen=True, eq=False)
class Run:
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
    """

    models: Mapping[str, PartyModel]
    history: pd.DataFrame
    certificate: Certificate
    transcript: Transcript
    multipliers: Array
    row_names: Sequence[str]

    def as_start(self) -> Start:
        """Where this run ended, for another to begin from."""
        return Start({name: model.weights for name, model in self.models.items()}, self.multipliers)


def train_vertical(
    job: Job,
    parties: Sequence[PartyColumns],
    labels: Array,
    sensitive: pd.DataFrame | None = None,
    *,
    clock: VirtualClock | None = None,
    folder: RunFolder | None = None,
    checkpoint_seconds: float = 10.0,
    on_round: Callable[[Report], None] | None = None,
    keep_messages: bool = False,
    start: Start | None = None,
) -> Run:
    """Train across parties in this process.

    Parameters
    ----------
    labels
        ±1 for each row.
    sensitive
        One column per sensitive attribute.
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
    lagrangian = Lagrangian(labels, bind(job.constraints, labels, sensitive))
    recorder = _Recorder(folder, checkpoint_seconds, on_round)
    # One BLAS thread: a party's products are short and bound by memory, waiting threads cost more than they bring,
    # and sums come out the same whatever the machine.
    # Numbers that overflow are a DivergenceError of the party that sees them first, not a warning on the way there.
    with threadpool_limits(limits=1, user_api="blas"), np.errstate(over="ignore", invalid="ignore"):
        server, roles = build_roles(parties, lagrangian, job, start)
        runtime = InProcess([server, *roles], clock, Transcript(keep_messages), recorder.report)
        recorder.attach(runtime, _fingerprint(job, clock, parties, labels, sensitive))
        runtime.run()
    recorder.flush()
    if server.certificate is None:
        raise RunError("the run ended without a certificate")
    return Run(
        models={role.name: role.model for role in roles},
        history=pd.DataFrame(recorder.history),
        certificate=server.certificate,
        transcript=runtime.transcript,
        multipliers=server.multipliers,
        row_names=lagrangian.rows.names,
    )


class _Recorder:
    """Collects history, and writes it and checkpoints to the run folder if there is one."""

    def __init__(
        self, folder: RunFolder | None, checkpoint_seconds: float, on_round: Callable[[Report], None] | None
    ) -> None:
        self.history: list[Report] = []
        self._folder = folder
        self._every = checkpoint_seconds
        self._on_round = on_round
        self._written = (0, 0)
        self._last = time.monotonic()

    def attach(self, runtime: InProcess, fingerprint: str) -> None:
        """Go on from the folder's last checkpoint, if it has one."""
        self._runtime = runtime
        self._fingerprint = fingerprint
        if self._folder is None:
            return
        states = self._folder.last_checkpoint()
        if states is not None:
            # The recorder's own numbers travel with the runtime's: any other key could be the name of a party.
            progress = states.get("", {}).get("progress", {})
            if progress.get("fingerprint") != fingerprint:
                raise RunError(f"{self._folder.path} was begun with another job or other data; start a new run")
            checkpoints.put_back(runtime, states)
            self._written = (progress["rows"], progress["entries"])
        self.history, entries = self._folder.rewind(*self._written)
        runtime.transcript.extend(entries)

    def report(self, row: Report) -> None:
        self.history.append(row)
        if self._on_round is not None:
            self._on_round(row)
        if self._folder is not None and time.monotonic() - self._last >= self._every:
            self.flush()
            rows, entries = self._written
            progress: dict[str, Any] = {"rows": rows, "entries": entries, "fingerprint": self._fingerprint}
            states = checkpoints.take(self._runtime)
            states[""]["progress"] = progress
            self._folder.checkpoint(states)
            self._last = time.monotonic()

    def flush(self) -> None:
        if self._folder is None:
            return
        rows, entries = self._written
        transcript = self._runtime.transcript
        self._folder.append(self.history[rows:], transcript.entries[entries:])
        self._written = (len(self.history), len(transcript))


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
            digest.update(np.ascontiguousarray(part).tobytes())
    return digest.hexdigest()


def _parts(matrix: Matrix) -> tuple[Any, ...]:
    return (matrix.indptr, matrix.indices, matrix.data) if sp.issparse(matrix) else (matrix,)
