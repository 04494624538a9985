"""Submit a job with the admin's kit, follow it to its end, and fetch the result from the server."""

from __future__ import annotations

import contextlib
import json
import tempfile
import time
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from nvflare.fuel.flare_api import api_spec
from nvflare.fuel.flare_api.flare_api import Session

from evenhand.errors import LostError, RunError
from evenhand.protocol.roles import Report
from evenhand.runtime.nvflare.admin import GOES_ON, Admin, job_of, presence
from evenhand.runtime.nvflare.kits import ALLOWED

OUTCOME: Final = "outcome.json"
"""File that the server leaves for the submitter of the job: its result, or the reason why there is none."""
PROGRESS: Final = "evenhand-progress"
"""Command that asks a running job how far it is; a job that nobody follows ends."""
_MUST_ANSWER: Final = 30.0
"""Seconds after which a job that is reported as running, but has no process, counts as lost."""
_LOOKS_EVERY: Final = 5.0
"""Seconds between two looks at who is missing while a job waits in the queue."""


class JobProgress(NamedTuple):
    """How far a running job is.

    Attributes
    ----------
    report
        The last row of its history; empty before the first round.
    silent
        Participants that the server has not heard from, and the seconds of their silence.
    seconds
        Seconds since the job began.
    resent
        How often the server has sent a message again, by participant: on a line that loses packets, or is slow.
    """

    report: Report
    silent: dict[str, float]
    seconds: float
    resent: dict[str, int]


def submit(
    admin: Admin,
    name: str,
    job: dict[str, Any],
    parties: Sequence[str],
    resume: str = "",
    components: tuple[str, str] = ALLOWED,
    detach: bool = False,
) -> str:
    """Submit a job, and return FLARE's id of it.

    Parameters
    ----------
    resume
        Id of the job with the run to resume.
    detach
        Whether the job goes on if nobody follows it.
    components
        Classes of server and party; restricted kits run only those of this package.
    """
    with tempfile.TemporaryDirectory() as scratch:
        folder = write_job(Path(scratch) / name, job, parties, resume, components, detach)
        # The same token in each attempt, so that a job whose answer was lost is not submitted twice.
        token = uuid.uuid4().hex
        return admin.ask(lambda session: session.submit_job(str(folder), submit_token=token))


def write_job(
    folder: Path,
    job: dict[str, Any],
    parties: Sequence[str],
    resume: str = "",
    components: tuple[str, str] = ALLOWED,
    detach: bool = False,
) -> Path:
    """Return a job in FLARE's form; it names our classes and contains no code."""
    config = folder / "app" / "config"
    config.mkdir(parents=True)
    # One text, so that FLARE does not read parts of it as components.
    arguments = {"job": json.dumps(job), "resume": resume}
    needed, goes_on = list(parties), job.get("job", {}).get("lost_party") == "continue"
    if goes_on:
        # FLARE ends a job when a mandatory client is gone.
        needed = [one["name"] for one in job["party"] if one["role"] == "active"][:1]
    meta = {
        "name": folder.name,
        "resource_spec": {},
        "min_clients": len(needed),
        "mandatory_clients": needed,
        "deploy_map": {"app": ["server", *parties]},
        **({GOES_ON: list(parties)} if goes_on else {}),
    }
    at_server, at_party = components
    workflow = {"id": "evenhand", "path": at_server, "args": arguments | ({"detach": True} if detach else {})}
    server = {"format_version": 2, "workflows": [workflow]}
    executor = {"tasks": ["run"], "executor": {"path": at_party, "args": arguments}}
    contents = {
        folder / "meta.json": meta,
        config / "config_fed_server.json": server,
        config / "config_fed_client.json": {"format_version": 2, "executors": [executor]},
    }
    for path, content in contents.items():
        path.write_text(json.dumps(content), encoding="utf-8")
    return folder


def wait_for_end(
    admin: Admin,
    job_id: str,
    on_status: Callable[[str], None],
    on_progress: Callable[[JobProgress], None] = lambda _: None,
    patience: float | None = None,
) -> str:
    """Return the job's last status; raise LostError if the job vanished without one when the server restarted.

    Parameters
    ----------
    patience
        Seconds that a job may wait in the queue for a party that is missing. It is then aborted, so that it does not
        run later. None waits for ever.
    """
    told, seen, queue = "", time.monotonic(), _Queue(admin, job_id, on_status, patience)
    while True:
        job = job_of(admin, job_id)
        if job.status != told:
            on_status(job.status)
            told = job.status
        if not job.active:
            return job.status
        if job.status != "RUNNING":
            seen = time.monotonic()
            queue.look(job.parties)
        elif _still_runs(admin, job_id, on_progress):
            seen = time.monotonic()
        elif time.monotonic() - seen > _MUST_ANSWER:
            abort(admin, job_id)
            raise LostError(f"job {job_id} is lost: the server was restarted without it")
        time.sleep(1.0)


class _Queue:
    """Watch a job in the queue: it waits for a free place, or for a party that is missing."""

    def __init__(self, admin: Admin, job_id: str, on_status: Callable[[str], None], patience: float | None) -> None:
        self._admin, self._job_id, self._on_status, self._patience = admin, job_id, on_status, patience
        self._next, self._since, self._told = 0.0, 0.0, ""

    def look(self, parties: Sequence[str]) -> None:
        """Say who is missing; abort the job when that has lasted too long."""
        now = time.monotonic()
        if now < self._next:
            return
        self._next = now + _LOOKS_EVERY
        missing = {name: one for name, one in presence(self._admin, parties).items() if not one.answers}
        if not missing:
            self._since, self._told = 0.0, ""
            return
        self._since = self._since or now
        said = "; ".join(f"{name} {one.words}" for name, one in missing.items())
        if self._patience is not None and now - self._since > self._patience:
            abort(self._admin, self._job_id)
            raise LostError(
                f"{', '.join(missing)} missing: {said}, for {now - self._since:.0f} seconds; job {self._job_id} was "
                "aborted and will not run",
                list(missing),
            )
        if said != self._told:
            self._on_status(f"waiting for {', '.join(missing)}: {said}")
            self._told = said


def abort(admin: Admin, job_id: str) -> None:
    """Abort a job that waits or runs; nothing happens if it has ended, or if the server does not answer."""
    with contextlib.suppress(LostError, api_spec.JobNotRunning, api_spec.JobNotFound):
        admin.ask(lambda session: session.abort_job(job_id), patience=0.0)


def progress_of(admin: Admin, job_id: str, *, follows: bool = False) -> JobProgress | None:
    """Ask a job how far it is; None if it does not run. Who follows a job keeps it alive."""

    def ask(session: Session) -> JobProgress:
        try:
            found = session.do_app_command(job_id, PROGRESS, {"follows": follows})
        except (api_spec.CommandError, api_spec.InternalError, api_spec.NoReply):
            # Its process exists, and is busy or not yet ready to answer.
            found = {}
        return JobProgress(
            found.get("report", {}), found.get("silent", {}), found.get("seconds", 0.0), found.get("resent", {})
        )

    try:
        return admin.ask(ask)
    except api_spec.JobNotRunning:
        return None


def _still_runs(admin: Admin, job_id: str, on_progress: Callable[[JobProgress], None]) -> bool:
    found = progress_of(admin, job_id, follows=True)
    if found is not None:
        on_progress(found)
    return found is not None


def outcome(admin: Admin, job_id: str) -> dict[str, Any]:
    """Return the server's result of a finished job, or raise the reason why there is none."""
    with tempfile.TemporaryDirectory() as scratch:
        place = Path(admin.ask(lambda session: session.download_job_result(job_id, scratch)))
        found = next(iter(place.rglob(OUTCOME)), None)
        if found is None:
            status = job_of(admin, job_id).status
            if "ABORTED" in status:
                raise RunError(f"job {job_id} was aborted")
            raise LostError(
                f"job {job_id} ended without a result ({status}); see the logs of the server and of each site"
            )
        content: dict[str, Any] = json.loads(found.read_text(encoding="utf-8"))
    if "error" in content:
        said = f"job {job_id} ended: {content['error']}"
        raise LostError(said, content.get("names", [])) if content["again"] else RunError(said)
    return content


def parties_of(admin: Admin, job_id: str) -> list[str]:
    """Return the participants of a job, by the server's record of it."""
    return job_of(admin, job_id, patience=0.0).parties
