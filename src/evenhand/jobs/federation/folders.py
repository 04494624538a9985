"""One participant's run folder: only its own data, saved so that an interrupted run can resume."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, ClassVar, Final

from evenhand.errors import RunError
from evenhand.jobs.federation.files import AnyJob, SiteEnv, as_given
from evenhand.jobs.folder import check_version
from evenhand.protocol.messages import Message
from evenhand.protocol.roles import SERVER, Report
from evenhand.protocol.state import restore, snapshot
from evenhand.protocol.transcript import Transcript
from evenhand.runtime.checkpointfiles import Checkpoint
from evenhand.runtime.consistent_cut import ConsistentCut
from evenhand.runtime.files import check_not_held, hold, write_bytes
from evenhand.runtime.folder import RunFolder, is_run
from evenhand.runtime.manifest import parse_json

HANDLED: Final = "handled.json"
"""File of a run folder that counts the messages which all attempts at the run have handled."""
_LETS_GO: Final = 60.0
"""Seconds that the process of an interrupted run may take to end."""


class SideFolder:
    """One participant's record of a run.

    Parameters
    ----------
    transcript
        Transcript of the participant's site.
    on_report
        Called with each row of history, after it is recorded.

    Attributes
    ----------
    resumed
        Whether this is a resumed run.
    again
        Ranges of transcript positions that hold messages which the resumed run sent a second time.
    in_flight
        Messages in flight at the last checkpoint: sent to the role, but not yet handled.
    leaving
        Messages that the role had returned at the last checkpoint, and that were not yet sent.
    """

    state_fields: ClassVar = {
        "identity": str,
        "again": list[list[int]],
        "in_flight": list[Message],
        "leaving": list[Message],
    }

    def __init__(
        self, folder: RunFolder, name: str, resumed: bool, on_report: Callable[[Report], None] | None = None
    ) -> None:
        self.folder = folder
        self.name = name
        self.resumed = resumed
        self.transcript = Transcript()
        self.identity = ""
        self.again: list[list[int]] = []
        self.in_flight: list[Message] = []
        self.leaving: list[Message] = []
        self._history: list[Report] = []
        self._written = (0, 0)
        self._handled = self._counted()
        self._on_report = on_report

    def report(self, row: Report) -> None:
        self._history.append(row)
        if self._on_report is not None:
            self._on_report(row)

    # -- checkpoints

    def note(self) -> None:
        """Write history and transcript up to now, and count what was handled."""
        rows, entries = self._written
        counts = self._counted()
        for entry in self.transcript.entries[entries:]:
            if entry.receiver == self.name:
                key = f"{entry.sender} {entry.kind}"
                counts[key] = counts.get(key, 0) + entry.messages
        write_bytes(self.folder.path / HANDLED, json.dumps(counts).encode(), private=True)
        self.folder.append(self._history[rows:], self.transcript.entries[entries:])
        self._written = (len(self._history), len(self.transcript))

    def _counted(self) -> dict[str, int]:
        """Return the messages that all attempts have handled and noted, by sender and kind."""
        path = self.folder.path / HANDLED
        found: dict[str, int] = parse_json(path, path.read_bytes()) if path.exists() else {}
        return found

    def keep(self, cut: ConsistentCut) -> None:
        self.in_flight, self.leaving = cut.in_flight, cut.leaving
        self.folder.checkpoint({self.name: cut.state, "": snapshot(self)}, cut.number)

    def checkpoints(self, identity: str) -> Mapping[int, Checkpoint]:
        """Return the complete checkpoints of a run with the same terms and data."""
        self.identity = identity
        found = self.folder.whole_checkpoints()
        if any(one.states[""].get("identity") != identity for one in found.values()):
            raise RunError(
                f"{self.folder.path} was started with other terms or other data; put the table back as it was, "
                "or submit the job as a new run"
            )
        return found

    def handled_before(self, handled: Mapping[str, int]) -> dict[str, int]:
        """Count the messages that were handled before a training, by sender and kind, beyond those of its checkpoint.

        These are messages of all earlier attempts, and of earlier trainings in this one. Without this count, a server
        could get any number of rounds by ending and resuming the run.

        Parameters
        ----------
        handled
            Messages that the role had handled at the checkpoint.
        """
        return {key: max(count - handled.get(key, 0), 0) for key, count in self._handled.items()}

    def add_handled(self, handled: Mapping[str, int]) -> None:
        """Count the messages of a training of this attempt, for the trainings that follow."""
        for key, count in handled.items():
            self._handled[key] = self._handled.get(key, 0) + count

    def resume_from(self, checkpoint: Checkpoint | None) -> float:
        """Cut the record back to a checkpoint; return the seconds that the run had taken by then."""
        new = len(self.transcript)
        self._history, entries = self.folder.resume_from(checkpoint)
        self._written = (len(self._history), len(entries))
        if checkpoint is not None:
            restore(self, checkpoint.states[""])
            # Exchanges before training are repeated: they left this site twice, and the record lists them twice.
            self.again.append([len(entries), len(entries) + new])
        self.transcript.restart([*entries, *self.transcript])
        return entries[-1].time if entries else 0.0

    # -- the end

    @contextmanager
    def recorded(self) -> Iterator[None]:
        """Record what left this site, even if the run fails."""
        try:
            yield
        finally:
            if not self.folder.finished:
                self.note()

    def finish(self, result: dict[str, Any]) -> None:
        self.note()
        self.folder.finish(result)


@contextmanager
def side_folder(
    path: Path,
    name: str,
    job: AnyJob,
    env: SiteEnv | None,
    resume: bool,
    on_report: Callable[[Report], None] | None = None,
) -> Iterator[SideFolder]:
    """Open the folder of a new or resumed run, and lock it against other processes."""
    content: dict[str, Any] = {"side": name, **as_given(job)}
    # Times of the transcript are seconds since then; an audit compares transcripts, so they hold no wall-clock time.
    description = {**content, "began": datetime.now(UTC).isoformat(timespec="milliseconds")}
    if env is not None:
        description |= {"base": str(env.base), "own": as_given(env.own)}
    with ExitStack() as stack:
        if resume:
            wait_until_free(path)
        stack.enter_context(hold(path))
        if not (resume and is_run(path)):
            yield SideFolder(RunFolder.create(path, description), name, resume, on_report)
            return
        folder = RunFolder.open(path)
        check_version(folder)
        if {key: folder.description.get(key) for key in content} != content:
            raise RunError(f"the run in {path} was started with another job; submit this one without --resume")
        if folder.finished:
            if name == SERVER:
                raise RunError(f"the run in {path} has finished; there is nothing to resume")
            folder.begin_again()
        folder.clean()
        yield SideFolder(folder, name, resume, on_report)


def wait_until_free(path: Path) -> None:
    """Wait until no process holds a folder, for as long as an abandoned process may take to end."""
    end = time.monotonic() + _LETS_GO
    while True:
        try:
            return check_not_held(path)
        except RunError:
            if time.monotonic() > end:
                raise
        time.sleep(0.2)
