"""Submit a job with the admin's kit, follow it to its end, and fetch the result from the server."""

from __future__ import annotations

import contextlib
import io
import json
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final, Self, TypeVar

from nvflare.fuel.flare_api import api_spec
from nvflare.fuel.flare_api.flare_api import Session, new_secure_session

from evenhand.errors import LostError, RunError
from evenhand.protocol.roles import Report
from evenhand.runtime.nvflare.kits import ADMIN, ALLOWED

OUTCOME: Final = "outcome.json"
"""File that the server leaves for the submitter of the job: its result, or the reason why there is none."""
PROGRESS: Final = "evenhand-progress"
"""Command that asks a running job for its last row of history."""
_REFUSALS: Final = (api_spec.AuthorizationError, api_spec.InvalidJobDefinition, api_spec.InvalidArgumentError)
_MUST_ANSWER: Final = 30.0
"""Seconds after which a job that is reported as running, but has no process, counts as lost."""
Answer = TypeVar("Answer")


class Admin:
    """Client of the server's admin interface, which reconnects if the server restarts.

    Parameters
    ----------
    patience
        Seconds for which the server may be unreachable.
    """

    def __init__(self, kit: Path, patience: float = 60.0) -> None:
        self._kit = kit
        self._patience = patience
        self._session: Session | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        if self._session is not None:
            with contextlib.suppress(Exception):
                self._session.close()
        self._session = None

    def ask(self, question: Callable[[Session], Answer], patience: float | None = None) -> Answer:
        end = time.monotonic() + (self._patience if patience is None else patience)
        while True:
            try:
                if self._session is None:
                    # FLARE's own output is not part of the result.
                    with contextlib.redirect_stdout(io.StringIO()):
                        self._session = new_secure_session(ADMIN, str(self._kit.absolute()), timeout=10.0)
                return question(self._session)
            except _REFUSALS as error:
                raise RunError(f"the server refuses: {error}") from error
            except api_spec.JobNotRunning:
                raise
            except Exception as error:
                # FLARE has many errors for an unreachable server; a new session shows whether it is.
                self.close()
                if time.monotonic() > end:
                    raise LostError(
                        f"the server of {self._kit} does not answer ({error}); check that it runs and can be reached"
                    ) from error
            time.sleep(1.0)


def wait_for_parties(admin: Admin, parties: Sequence[str], patience: float) -> None:
    """Wait until all of them have joined."""
    if missing := parties_away(admin, parties, patience):
        raise LostError(f"{', '.join(missing)} did not join within {patience:.0f} seconds")


def parties_away(admin: Admin, parties: Sequence[str], patience: float) -> list[str]:
    """Wait until all of them have joined; return those that have not by the deadline."""
    end, there = time.monotonic() + patience, set[str]()
    while missing := [name for name in parties if name not in there]:
        if time.monotonic() > end:
            return missing
        time.sleep(0.5)
        there = {client.name for client in admin.ask(lambda session: session.get_system_info()).client_info}
    return []


def submit(
    admin: Admin,
    name: str,
    job: dict[str, Any],
    parties: Sequence[str],
    resume: str = "",
    components: tuple[str, str] = ALLOWED,
) -> str:
    """Submit a job, and return FLARE's id of it.

    Parameters
    ----------
    resume
        Id of the job with the run to resume.
    components
        Classes of server and party; restricted kits run only those of this package.
    """
    with tempfile.TemporaryDirectory() as scratch:
        folder = write_job(Path(scratch) / name, job, parties, resume, components)
        return admin.ask(lambda session: session.submit_job(str(folder)))


def write_job(
    folder: Path,
    job: dict[str, Any],
    parties: Sequence[str],
    resume: str = "",
    components: tuple[str, str] = ALLOWED,
) -> Path:
    """Return a job in FLARE's form; it names our classes and contains no code."""
    config = folder / "app" / "config"
    config.mkdir(parents=True)
    # One text, so that FLARE does not read parts of it as components.
    arguments = {"job": json.dumps(job), "resume": resume}
    meta = {
        "name": folder.name,
        "resource_spec": {},
        "min_clients": len(parties),
        "mandatory_clients": list(parties),
        "deploy_map": {"app": ["server", *parties]},
    }
    at_server, at_party = components
    server = {"format_version": 2, "workflows": [{"id": "evenhand", "path": at_server, "args": arguments}]}
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
    admin: Admin, job_id: str, on_status: Callable[[str], None], on_report: Callable[[Report], None] | None = None
) -> str:
    """Return the job's last status; raise LostError if the job vanished without one when the server restarted."""
    told, seen = "", time.monotonic()
    while True:
        status = str(admin.ask(lambda session: session.get_job_meta(job_id)).get("status", ""))
        if status != told:
            on_status(status)
            told = status
        if status.startswith("FINISHED"):
            return status
        if status != "RUNNING" or _still_runs(admin, job_id, on_report):
            seen = time.monotonic()
        elif time.monotonic() - seen > _MUST_ANSWER:
            with contextlib.suppress(Exception):
                admin.ask(lambda session: session.abort_job(job_id), patience=0.0)
            raise LostError(f"job {job_id} is lost: the server was restarted without it")
        time.sleep(1.0)


def _still_runs(admin: Admin, job_id: str, on_report: Callable[[Report], None] | None) -> bool:
    def ask(session: Session) -> Report:
        try:
            found: Report = session.do_app_command(job_id, PROGRESS, None)
        except (api_spec.CommandError, api_spec.InternalError, api_spec.NoReply):
            # Its process exists, and is busy or not yet ready to answer.
            return {}
        return found

    try:
        report = admin.ask(ask)
    except api_spec.JobNotRunning:
        return False
    if on_report is not None and "round" in report:
        on_report(report)
    return True


def outcome(admin: Admin, job_id: str) -> dict[str, Any]:
    """Return the server's result of a finished job, or raise the reason why there is none."""
    with tempfile.TemporaryDirectory() as scratch:
        place = Path(admin.ask(lambda session: session.download_job_result(job_id, scratch)))
        found = next(iter(place.rglob(OUTCOME)), None)
        if found is None:
            raise LostError(f"job {job_id} ended without a result; see the logs of the server and of each site")
        content: dict[str, Any] = json.loads(found.read_text(encoding="utf-8"))
    if "error" in content:
        kind = LostError if content["again"] else RunError
        raise kind(f"job {job_id} ended: {content['error']}")
    return content


def parties_of(admin: Admin, job_id: str) -> list[str]:
    """Return the participants of a job, by the server's record of it."""
    try:
        meta = admin.ask(lambda session: session.get_job_meta(job_id), patience=0.0)
    except LostError as error:
        raise RunError(f"the server does not know run {job_id!r}, or does not answer ({error})") from error
    return list(meta["mandatory_clients"])
