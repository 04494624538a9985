"""Submit a job with the admin's kit, wait for its end, and bring back what the server says of it."""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

from nvflare.fuel.flare_api.api_spec import NoConnection
from nvflare.fuel.flare_api.flare_api import Session, new_secure_session

from evenhand.errors import RunError
from evenhand.runtime.nvflare.kits import ADMIN, ALLOWED

OUTCOME: Final = "outcome.json"
"""What the server leaves for whoever submitted the job: its result, or why there is none."""
_SERVER, _PARTY = ALLOWED


def open_session(kit: Path, timeout: float = 30.0) -> Session:
    try:
        return new_secure_session(ADMIN, str(kit.absolute()), timeout=timeout)
    except Exception as error:
        raise RunError(f"the server of {kit} does not answer ({error}); does it run, and can it be reached?") from error


def wait_for_parties(session: Session, parties: Sequence[str], patience: float) -> None:
    """Until all of them have joined."""
    end, there = time.monotonic() + patience, set[str]()
    while missing := [name for name in parties if name not in there]:
        if time.monotonic() > end:
            raise RunError(f"{', '.join(missing)} did not join within {patience:.0f} seconds")
        time.sleep(0.5)
        there = {client.name for client in session.get_system_info().client_info}


def submit(session: Session, name: str, job: dict[str, Any], parties: Sequence[str]) -> str:
    """Returns FLARE's name of the job."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch) / name
        config = folder / "app" / "config"
        config.mkdir(parents=True)
        # As one text, so that nothing in it is taken for a component.
        arguments = {"job": json.dumps(job)}
        meta = {
            "name": name,
            "resource_spec": {},
            "min_clients": len(parties),
            "mandatory_clients": list(parties),
            "deploy_map": {"app": ["server", *parties]},
        }
        server = {"format_version": 2, "workflows": [{"id": "evenhand", "path": _SERVER, "args": arguments}]}
        executor = {"tasks": ["run"], "executor": {"path": _PARTY, "args": arguments}}
        contents = {
            folder / "meta.json": meta,
            config / "config_fed_server.json": server,
            config / "config_fed_client.json": {"format_version": 2, "executors": [executor]},
        }
        for path, content in contents.items():
            path.write_text(json.dumps(content), encoding="utf-8")
        return session.submit_job(str(folder))


def wait_for_end(session: Session, job_id: str, on_status: Callable[[str], None]) -> str:
    """The job's last status."""
    told = ""
    while True:
        try:
            status = str(session.get_job_meta(job_id).get("status", ""))
        except NoConnection:
            status = told
        if status != told:
            on_status(status)
            told = status
        if status.startswith("FINISHED"):
            return status
        time.sleep(1.0)


def outcome(session: Session, job_id: str) -> dict[str, Any]:
    """What the server left; a job that ended before it could leave anything is an error."""
    with tempfile.TemporaryDirectory() as scratch:
        place = Path(session.download_job_result(job_id, scratch))
        found = next(iter(place.rglob(OUTCOME)), None)
        if found is None:
            raise RunError(f"job {job_id} ended without a word; the logs of the server and of each site say more")
        content: dict[str, Any] = json.loads(found.read_text(encoding="utf-8"))
    return content
