"""Run roles to the end and record the run: history, transcript, checkpoints, and warnings about the result."""

from __future__ import annotations

import hashlib
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any, Final, Generic, NamedTuple, TypeVar

import numpy as np
import pandas as pd
import scipy.sparse as sp
from threadpoolctl import ThreadpoolController

from evenhand.errors import ExactRatesWarning, RunError, UnprovenWarning
from evenhand.protocol.roles import Report, Role
from evenhand.protocol.solver import Certificate
from evenhand.protocol.transcript import Transcript
from evenhand.runtime.folder import RunFolder
from evenhand.runtime.inprocess import InProcess, VirtualClock
from evenhand.runtime.threads import Threads

FLUSH_SECONDS: Final = 1.0
"""Maximum seconds before a finished round is written to the run folder, because users may watch it."""


class Recorder:
    """Collect history; write history, transcript and checkpoints to the run folder if there is one."""

    def __init__(
        self, folder: RunFolder | None, checkpoint_seconds: float, on_round: Callable[[Report], None] | None
    ) -> None:
        self.history: list[Report] = []
        self._folder = folder
        self._every = checkpoint_seconds
        self._on_round = on_round
        self._written = (0, 0)
        self._last = self._last_flush = time.monotonic()

    def attach(self, runtime: InProcess | Threads, fingerprint: str) -> None:
        """Resume from the folder's last checkpoint, if it has one. Runs in threads have none and start again."""
        self._runtime = runtime
        self._fingerprint = fingerprint
        if self._folder is None:
            return
        checkpoint = self._folder.last_checkpoint()
        if checkpoint is not None:
            # The fingerprint is stored with the runtime's state, under "": any other key could be the name of a party.
            if checkpoint.states.get("", {}).pop("fingerprint", None) != fingerprint:
                raise RunError(f"{self._folder.path} was started with another job or other data; start a new run")
            if isinstance(runtime, Threads):
                raise RunError(
                    f"{self._folder.path} holds a checkpoint, which runtime 'threads' cannot resume; use 'messages'"
                )
            runtime.restore(checkpoint.states)
        self.history, entries = self._folder.resume_from(checkpoint)
        self._written = (len(self.history), len(entries))
        if entries:
            # Exchanges before training are repeated; the record has them from the first time.
            runtime.transcript.restart(entries)

    def report(self, row: Report) -> None:
        self.history.append(row)
        if self._on_round is not None:
            self._on_round(row)
        if self._folder is None:
            return
        now = time.monotonic()
        if now - self._last >= self._every:
            self.flush()
            if not isinstance(self._runtime, Threads):
                self._checkpoint(self._folder, self._runtime)
            self._last = time.monotonic()
        elif now - self._last_flush >= FLUSH_SECONDS:
            self.flush()

    def _checkpoint(self, folder: RunFolder, runtime: InProcess) -> None:
        states = runtime.snapshot()
        states[""]["fingerprint"] = self._fingerprint
        folder.checkpoint(states)

    def flush(self) -> None:
        if self._folder is None:
            return
        rows, entries = self._written
        # Threads may add to the transcript meanwhile, so count the entries that are written here.
        sent = self._runtime.transcript.entries[entries:]
        self._last_flush = time.monotonic()
        self._folder.append(self.history[rows:], sent)
        self._written = (len(self.history), entries + len(sent))


Server = TypeVar("Server", bound=Role)
Other = TypeVar("Other", bound=Role)


@dataclass(frozen=True, eq=False)
class RunSettings:
    """How a run is executed and recorded; nothing here changes its result.

    Attributes
    ----------
    clock
        Speeds of machines and links, to simulate time; None for no simulation.
    folder
        Where to record the run. If it holds a checkpoint of the same run, training resumes from it.
    checkpoint_seconds
        Minimum time between two checkpoints.
    on_round
        Called with each row of history as it appears.
    keep_messages
        Whether to keep the arrays of all messages in the transcript.
    threads
        Number of threads of each party, if parties run in parallel; None if participants take turns.
    transcript
        Transcript of the exchanges before training, to append to; None starts a new one.
    """

    clock: VirtualClock | None = None
    folder: RunFolder | None = None
    checkpoint_seconds: float = 10.0
    on_round: Callable[[Report], None] | None = None
    keep_messages: bool = False
    threads: int | None = None
    transcript: Transcript | None = None


class Finished(NamedTuple, Generic[Server, Other]):
    """Finished roles, and the record of their run."""

    server: Server
    others: Sequence[Other]
    history: list[Report]
    transcript: Transcript
    recorder: Recorder
    """Writes messages that are sent after training to the run folder: call its `flush` once the last one is sent."""


def carry_out(
    build: Callable[[], tuple[Server, Sequence[Other]]],
    settings: RunSettings,
    identity: Callable[[Server], Iterable[Any]],
) -> Finished[Server, Other]:
    """Build roles and run them to the end.

    Parameters
    ----------
    identity
        Returns what identifies the run when it is resumed, for `fingerprint`: terms, data, the server's initial state.
        Called only if there is a folder.
    """
    recorder = Recorder(settings.folder, settings.checkpoint_seconds, settings.on_round)
    with one_blas_thread():
        server, others = build()
        roles: list[Role] = [server, *others]
        transcript = Transcript(settings.keep_messages) if settings.transcript is None else settings.transcript
        runtime: InProcess | Threads
        if settings.threads is not None:
            runtime = Threads(roles, transcript, recorder.report, settings.threads)
        else:
            runtime = InProcess(roles, settings.clock, transcript, recorder.report)
        if settings.folder is not None:
            clock = settings.clock or VirtualClock()
            recorder.attach(runtime, fingerprint(repr(clock), *identity(server)))
        runtime.run()
    recorder.flush()
    return Finished(server, others, recorder.history, runtime.transcript, recorder)


def warn_of_results(server: Any) -> None:
    """Warn of exact rates beyond their bounds and of constraints that are not proven for new people."""
    if told := server.shortfall():
        warnings.warn(told, ExactRatesWarning, stacklevel=4)
    if unproven := [str(proof) for proof in server.proofs() if not proof.holds]:
        warnings.warn("; ".join(unproven), UnprovenWarning, stacklevel=4)


def certified(certificate: Certificate | None) -> Certificate:
    if certificate is None:
        raise RunError("the run ended without a certificate")
    return certificate


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """Limit BLAS to one thread, and silence warnings about overflow.

    Products are short and limited by memory, so waiting threads cost more than they gain. With one thread, sums are the
    same on every machine. The first role that sees an overflow raises a DivergenceError.
    """
    with _libraries().limit(limits=1, user_api="blas"), np.errstate(over="ignore", invalid="ignore"):
        yield


@cache
def _libraries() -> ThreadpoolController:
    """Return the numerical libraries of this process, cached because finding them takes milliseconds."""
    return ThreadpoolController()


def fingerprint(*parts: Any) -> str:
    """Return a checksum of settings, data and the server's initial state; a run resumes only if it is unchanged."""
    digest = hashlib.blake2b(digest_size=16)
    for part in parts:
        _add(digest, part)
    return digest.hexdigest()


def _add(digest: Any, part: Any) -> None:
    if isinstance(part, Mapping):
        for name, value in part.items():
            digest.update(str(name).encode())
            _add(digest, value)
    elif isinstance(part, pd.DataFrame):
        if len(part.columns):
            digest.update(pd.util.hash_pandas_object(part, index=False).to_numpy().tobytes())
    elif sp.issparse(part):
        for array in (part.indptr, part.indices, part.data):
            _add(digest, array)
    elif isinstance(part, np.ndarray):
        digest.update(repr(part.shape).encode())
        # Hash some rows at a time, so that an array stored by column is not copied as a whole.
        for rows in np.array_split(part, -(-len(part) // 2**16)) if part.ndim > 1 and part.size else [part]:
            digest.update(np.ascontiguousarray(rows).data.cast("B") if rows.size else b"")
    else:
        digest.update(repr(part).encode())


SAME_LABEL = 0.999
"""Share of rows with the same decision from which on a model does not separate the classes."""


def shortfalls(
    certificate: Certificate, tol: float, max_rounds: int, decisions: Iterable[Any] | None = None
) -> list[str]:
    """Return a warning for each shortfall of a finished run; empty if there is none.

    Estimators warn with these lines; the command line has an exit code for them.

    Parameters
    ----------
    tol
        Tolerance at which the solver was to stop.
    max_rounds
        Number of rounds that the solver was given.
    decisions
        Labels that the model gives to its training rows; None for a regression. Training rows have two classes, so a
        model that gives nearly all of them the same label has not learned to separate them.
    """
    found = []
    # The objective is NaN if clients did not measure the model; convergence is then unknown.
    if not certificate.converged and not np.isnan(certificate.objective):
        numbers = f"stationarity {certificate.stationarity:.1e}, violation {certificate.violation:.1e}, tol {tol:g}"
        measured = f"({numbers}{'' if certificate.unmet is None else f'; {certificate.unmet}'}): "
        found.append(
            f"the solver did not converge in {certificate.rounds} rounds {measured}raise max_rounds or tol; "
            "if the violation does not shrink, the constraint cannot be met"
            if certificate.rounds >= max_rounds
            else f"the solver stopped by itself after {certificate.rounds} of {max_rounds} rounds, without convergence "
            f"{measured}further rounds brought no progress. The constraint cannot be met with these rows and columns, "
            "or tol is out of reach: widen the bound, merge groups, or raise tol"
        )
    given = Counter(() if decisions is None else decisions)
    rows = given.total()
    label, most = max(given.items(), key=lambda one: one[1], default=(None, 0))
    if rows and most >= SAME_LABEL * rows:
        share = f"all {rows}" if most == rows else f"{most} of {rows}"
        found.append(f"the model gives {share} rows the same label, {label}: it does not separate the classes")
    return found
