"""What a run writes down while it goes on: history, transcript and checkpoints, the same for every kind of split."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from evenhand.errors import RunError
from evenhand.protocol.roles import Report
from evenhand.runtime.folder import RunFolder
from evenhand.runtime.inprocess import InProcess
from evenhand.runtime.threads import Threads

FLUSH_SECONDS: Final = 1.0
"""At most so long a finished round is known to the run alone: people may be watching its folder."""


class Recorder:
    """Collects history, and writes it and checkpoints to the run folder if there is one."""

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
        """Go on from the folder's last checkpoint, if it has one. A run of threads has none and begins anew."""
        self._runtime = runtime
        self._fingerprint = fingerprint
        if self._folder is None:
            return
        checkpoint = self._folder.last_checkpoint()
        if checkpoint is not None:
            # The recorder's own note travels with the runtime's state: any other key could be the name of a party.
            if checkpoint.states.get("", {}).pop("fingerprint", None) != fingerprint:
                raise RunError(f"{self._folder.path} was begun with another job or other data; start a new run")
            if isinstance(runtime, Threads):
                raise RunError(
                    f"{self._folder.path} holds a checkpoint, which threads cannot go on from; use 'messages'"
                )
            runtime.restore(checkpoint.states)
        self.history, entries = self._folder.go_on(checkpoint)
        self._written = (len(self.history), len(entries))
        if entries:
            # Exchanges before training are gone through again; the record has them from the first time.
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
        # Threads may be adding to the transcript meanwhile: what is written is what is counted.
        sent = self._runtime.transcript.entries[entries:]
        self._last_flush = time.monotonic()
        self._folder.append(self.history[rows:], sent)
        self._written = (len(self.history), entries + len(sent))
