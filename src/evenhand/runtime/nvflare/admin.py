"""Ask the server of a federation with the admin's kit: who is there, what runs, what has ended."""

from __future__ import annotations

import contextlib
import io
import json
import time
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple, Self, TypeVar

from nvflare.fuel.flare_api import api_spec
from nvflare.fuel.flare_api.flare_api import Session, new_secure_session

from evenhand.errors import InputError, LostError, RunError
from evenhand.printing import near
from evenhand.runtime.nvflare.kits import PARTICIPANTS

GOES_ON: Final = "evenhand-goes-on"
"""Key of FLARE's record of a job that goes on without a party that is gone: the names of all its parties."""
_REFUSALS: Final = (api_spec.AuthorizationError, api_spec.InvalidJobDefinition, api_spec.InvalidArgumentError)
_ANSWERS_IN: Final = 5.0
"""Seconds in which a party must answer the question whether it is there."""
Answer = TypeVar("Answer")


class Admin:
    """Client of the server's admin interface, by the kit of an admin, operator or submitter; it reconnects.

    Parameters
    ----------
    patience
        Seconds for which the server may be unreachable.
    """

    def __init__(self, kit: Path, patience: float = 60.0) -> None:
        self.kit = kit
        self._patience = patience
        self._session: Session | None = None
        try:
            settings = json.loads((kit / "startup" / "fed_admin.json").read_text(encoding="utf-8"))
            self._user = str(settings["admin"]["username"])
        except (OSError, ValueError, LookupError) as error:
            raise InputError(f"{kit} is not the kit of an admin: it has no valid startup/fed_admin.json") from error

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
                        self._session = new_secure_session(self._user, str(self.kit.absolute()), timeout=10.0)
                return question(self._session)
            except _REFUSALS as error:
                raise RunError(f"the server refuses: {error}") from error
            except (api_spec.JobNotRunning, api_spec.JobNotFound):
                raise
            except Exception as error:
                # FLARE has many errors for an unreachable server; a new session shows whether it is.
                self.close()
                if time.monotonic() > end:
                    raise LostError(
                        f"the server of {self.kit} does not answer ({error}); check that it runs and can be reached"
                    ) from error
            time.sleep(1.0)


class Presence(NamedTuple):
    """Whether a party is there.

    Attributes
    ----------
    heard
        When the server last heard from it, in seconds of the server's clock; None if it has not joined.
    answers
        Whether it answers now. A party that has left stays registered for minutes.
    """

    heard: float | None
    answers: bool

    @property
    def words(self) -> str:
        if self.answers:
            return "connected"
        return "has not joined" if self.heard is None else "has joined, and does not answer any more"


def presence(admin: Admin, parties: Collection[str] | None = None) -> dict[str, Presence]:
    """Return which parties are there; by default of all that the kit knows or that have joined."""
    joined = {one.name: float(one.last_connect_time) for one in admin.ask(_clients)}
    names = sorted({*known_parties(admin.kit), *joined}) if parties is None else parties
    asked = [name for name in names if name in joined]
    answers = admin.ask(lambda session: _answering(session, asked)) if asked else set()
    return {name: Presence(joined.get(name), name in answers) for name in names}


def _clients(session: Session) -> list[Any]:
    return list(session.get_system_info().client_info)


def _answering(session: Session, names: list[str]) -> set[str]:
    session.set_timeout(_ANSWERS_IN)
    try:
        told = session.check_status("client", names).get("client_status", [])
    except api_spec.InvalidTarget:
        # One of them has left in between.
        return set()
    finally:
        session.unset_timeout()
    return {one["client_name"] for one in told if one.get("status") != "no_reply"}


def wait_for_parties(
    admin: Admin, parties: Sequence[str], patience: float, on_missing: Callable[[str], None] = lambda _: None
) -> None:
    """Wait until all of them answer; a party that has left but is still registered is missing.

    Parameters
    ----------
    on_missing
        Told who is missing, whenever that changes.
    """
    if missing := parties_away(admin, parties, patience, on_missing):
        said = "; ".join(f"{name} {one.words}" for name, one in missing.items())
        raise LostError(
            f"{', '.join(missing)} missing: {said}, within {patience:.0f} seconds; nothing was submitted", list(missing)
        )


def parties_away(
    admin: Admin, parties: Sequence[str], patience: float, on_missing: Callable[[str], None] = lambda _: None
) -> dict[str, Presence]:
    """Wait until all of them answer; return those that do not by the deadline."""
    end, told = time.monotonic() + patience, ""
    while missing := {name: one for name, one in presence(admin, parties).items() if not one.answers}:
        if time.monotonic() > end:
            return missing
        said = "; ".join(f"{name} {one.words}" for name, one in missing.items())
        if said != told:
            on_missing(f"waiting for {', '.join(missing)}: {said}")
            told = said
        time.sleep(0.5)
    return {}


def known_parties(kit: Path) -> list[str]:
    """Return the names of all parties that kits were made for, by the admin's kit."""
    try:
        found = json.loads((kit / PARTICIPANTS).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return []
    return [str(name) for name in found["parties"]] if isinstance(found, dict) else []


def revoke(admin: Admin, party: str, *, restore: bool = False) -> list[str]:
    """Keep a party out at once, or admit it again; return the jobs that were ended because it took part in them."""
    known = {*known_parties(admin.kit), *(one.name for one in admin.ask(_clients))}
    if party not in known:
        raise InputError(f"this federation has no party {party!r}{near(party, sorted(known)) if known else ''}")
    if restore:
        admin.ask(lambda session: session.enable_client(party))
        return []
    # First its jobs, which would go on until they notice that it is gone.
    ended = [job.id for job in jobs(admin) if job.active and party in job.parties]
    for job_id in ended:
        admin.ask(lambda session, one=job_id: session.abort_job(one))  # type: ignore[misc]
    admin.ask(lambda session: session.disable_client(party))
    return ended


class JobRecord(NamedTuple):
    """A job as the server's store has it.

    Attributes
    ----------
    submitted
        Time of submission, as the server writes it.
    waits_for
        Why a job in the queue could not start, by the last attempt; empty if there was none.
    """

    id: str
    name: str
    status: str
    submitted: str
    parties: list[str]
    seconds: str
    waits_for: str

    @property
    def active(self) -> bool:
        return not self.status.startswith("FINISHED")


def jobs(admin: Admin) -> list[JobRecord]:
    """Return all jobs of the store, the newest last."""
    return [job_record(meta) for meta in admin.ask(lambda session: session.list_jobs(detailed=True))]


def job_of(admin: Admin, job_id: str, patience: float | None = None) -> JobRecord:
    """Return the record of a job; refuse an id that the server does not know."""
    try:
        return job_record(admin.ask(lambda session: session.get_job_meta(job_id), patience))
    except api_spec.JobNotFound as error:
        raise RunError(f"the server does not know run {job_id!r}; see evenhand federation jobs") from error


def job_record(meta: dict[str, Any]) -> JobRecord:
    history = meta.get("schedule_history") or []
    return JobRecord(
        str(meta.get("job_id", "")),
        str(meta.get("name") or meta.get("job_name", "")),
        str(meta.get("status", "")),
        str(meta.get("submit_time_iso") or meta.get("submit_time", "")),
        [str(name) for name in meta.get(GOES_ON) or meta.get("mandatory_clients") or []],
        str(meta.get("duration", "")),
        str(history[-1]).partition(": ")[2] if history else "",
    )
