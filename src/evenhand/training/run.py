"""The skeleton of every run: roles are built, a runtime carries them to the end, and what happened is written down."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np
import pandas as pd
import scipy.sparse as sp
from threadpoolctl import ThreadpoolController

from evenhand.errors import RunError
from evenhand.protocol.certificate import Certificate
from evenhand.protocol.roles import Report, Role
from evenhand.protocol.transcript import Transcript
from evenhand.runtime.clock import VirtualClock
from evenhand.runtime.folder import RunFolder
from evenhand.runtime.inprocess import InProcess
from evenhand.runtime.threads import Threads
from evenhand.training.recording import Recorder

Server = TypeVar("Server", bound=Role)
Other = TypeVar("Other", bound=Role)


@dataclass(frozen=True, eq=False)
class RunSettings:
    """How a run is carried out and recorded; nothing here changes its result.

    Attributes
    ----------
    clock
        Speeds of machines and links; None where nobody asks.
    folder
        Where to record the run. If it holds a checkpoint of the same run, it goes on from there.
    checkpoint_seconds
        Least time between two checkpoints.
    on_round
        Called with each row of history as it appears.
    keep_messages
        Keep the arrays of all messages in the transcript.
    threads
        How many each party has, where they run in parallel; None where participants take turns.
    transcript
        Of the exchanges before, to be gone on with; None begins one.
    """

    clock: VirtualClock | None = None
    folder: RunFolder | None = None
    checkpoint_seconds: float = 10.0
    on_round: Callable[[Report], None] | None = None
    keep_messages: bool = False
    threads: int | None = None
    transcript: Transcript | None = None


class Finished(NamedTuple, Generic[Server, Other]):
    """Roles that have come to their end, and the record of it."""

    server: Server
    others: Sequence[Other]
    history: list[Report]
    transcript: Transcript


def carry_out(
    build: Callable[[], tuple[Server, Sequence[Other]]],
    settings: RunSettings,
    identity: Callable[[Server], Iterable[Any]],
) -> Finished[Server, Other]:
    """Build roles and run them to the end.

    Parameters
    ----------
    identity
        What makes this run the same as one before, for `fingerprint`: terms, data, where the server begins. Asked for
        only where there is a folder.
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
    return Finished(server, others, recorder.history, runtime.transcript)


def certified(certificate: Certificate | None) -> Certificate:
    if certificate is None:
        raise RunError("the run ended without a certificate")
    return certificate


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """One thread for products, and no warnings about numbers that overflow.

    Products are short and bound by memory, waiting threads cost more than they bring, and sums come out the same
    whatever the machine. Numbers that overflow are a DivergenceError of the role that sees them first.
    """
    with _libraries().limit(limits=1, user_api="blas"), np.errstate(over="ignore", invalid="ignore"):
        yield


@cache
def _libraries() -> ThreadpoolController:
    """The numerical libraries of this process; looking for them takes milliseconds."""
    return ThreadpoolController()


def fingerprint(*parts: Any) -> str:
    """A sum over settings, data and where the server begins: resuming with anything else would not be resuming."""
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
        # Some rows at a time: an array that is stored by column is not copied whole.
        for rows in np.array_split(part, -(-len(part) // 2**16)) if part.ndim > 1 and part.size else [part]:
            digest.update(np.ascontiguousarray(rows).data.cast("B") if rows.size else b"")
    else:
        digest.update(repr(part).encode())
