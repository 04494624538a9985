"""Make start-up kits with `nvflare provision`, and restrict them so that a site runs only this package's roles.

By default, FLARE lets a project's admin send code and shell commands to every site, and streams a site's error log to
the server. Here neither is allowed. Each site can check this in its own `local` folder, which it may change.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from evenhand.errors import InputError, MissingExtraError, RunError
from evenhand.protocol.identity import Identity, make_identities
from evenhand.protocol.roles import SERVER
from evenhand.runtime.files import make_folder, write_bytes
from evenhand.runtime.identityfiles import FOLDER, KNOWN, OWN, read_known, write_identity, write_known
from evenhand.runtime.nvflare.certificates import (
    ROOT,
    ROOT_DAYS,
    Authority,
    Request,
    certificate_in,
    load,
    write_certificate,
)


class AdminRights(NamedTuple):
    """A kind of admin's kit.

    Attributes
    ----------
    flare
        FLARE's name of the role.
    rights
        Commands that it may give, and for whose jobs; all others are refused.
    """

    flare: str
    rights: Mapping[str, str]


_LOOKS: Final = ("check_status", "list_jobs", "get_job_meta")
_OF_A_JOB: Final = ("abort_job", "app_command")
_ADMITS: Final = ("disable_client", "enable_client")
_OWN: Final = "n:submitter"
_ANY: Final = "any"
ROLES: Final = {
    "submitter": AdminRights(
        "lead",
        dict.fromkeys(("submit_job", *_LOOKS), _ANY) | dict.fromkeys(("download_job", *_OF_A_JOB), _OWN),
    ),
    "operator": AdminRights("org_admin", dict.fromkeys((*_LOOKS, *_OF_A_JOB, *_ADMITS), _ANY)),
    "admin": AdminRights(
        "project_admin", dict.fromkeys(("submit_job", "download_job", *_LOOKS, *_OF_A_JOB, *_ADMITS), _ANY)
    ),
}
"""Kits that connect to the server and hold no data. The submitter submits, and follows and aborts its own jobs. The
operator sees who is there, aborts any job and revokes parties. The admin does both. Each command is named: FLARE's own
categories would let a submitter turn on debugging at all sites for its job, and delete their logs of it."""
COMMANDS: Final = frozenset(command for role in ROLES.values() for command in role.rights)
"""All commands that the server carries out for admins."""
ALLOWED: Final = (
    "evenhand.jobs.federation.components.FederationServer",
    "evenhand.jobs.federation.components.FederationParty",
)
"""All classes that a job may name."""
PARTICIPANTS: Final = "participants.json"
"""File of the admins' kits with the names of all parties."""
LISTENER: Final = "evenhand"
"""Scheme of the server's address; `drivers/evenhand_listener.py` listens on it."""
DRIVERS: Final = Path(__file__).parent / "drivers"
"""Folder from which FLARE loads our listener."""
AUTHORITY: Final = "authority"
FEDERATION: Final = "federation.json"
"""File of the authority with name, address and parties of the federation."""
RESERVED: Final = frozenset({"server", AUTHORITY, *ROLES})
"""Names of kits that are no party's. A party of such a name would get another's kit, and with it another's rights."""
_NOBODY: Final = ("clone_job", "shell_commands", "byoc", "server-predeployed-flwr", "operate")
_GUARD: Final = "evenhand.runtime.nvflare.guard"
_GUARDED: Final = {"id": "guard", "path": f"{_GUARD}.SiteGuard"}
"""Component of every site that closes what FLARE leaves open."""
_STREAMS: Final = ("site_log_streamer", "log_receiver")


def provision(
    name: str, host: str, port: int, parties: Sequence[str], out: Path, requests: Sequence[Request] = ()
) -> list[Path]:
    """Make a kit for the server, one for each party, and those of `ROLES`, who submit jobs and look after them.

    Parameters
    ----------
    requests
        Requests of parties that have made their own keys; their kits hold none.
    """
    if out.exists() and any(out.iterdir()):
        raise InputError(f"{out} is not empty; kits contain keys and are never overwritten: choose another folder")
    if taken := [party for party in parties if party in RESERVED]:
        raise InputError(f"{taken[0]!r} is no name of a party: a kit of another kind has it")
    if strangers := [one.name for one in requests if one.name not in parties]:
        raise InputError(f"{strangers[0]!r} sends a request, but is not among the parties of the federation")
    if len({one.name for one in requests}) < len(requests):
        raise InputError("two requests have the same name; give one request for each party")
    with tempfile.TemporaryDirectory() as scratch:
        made, state = _provisioned(Path(scratch), name, host, port, parties)
        make_folder(out, private=True)
        # The holder of this folder can make further participants, so it is in no kit.
        shutil.move(state, out / AUTHORITY)
        authority = Authority(out / AUTHORITY)
        authority.forget_keys()
        kits = {"server": host, **{party: party for party in parties}, **{kit: user_of(kit) for kit in ROLES}}
        identities = make_identities([SERVER, *parties])
        known = {name: one.public for name, one in identities.items()} | {one.name: one.identity for one in requests}
        for kit, folder in kits.items():
            shutil.move(made / folder, out / kit)
            if kit in identities:
                own = identities[kit]
                write_identity(out / kit / FOLDER, Identity(kit, own.secret, {kit: own.public}))
                write_known(out / kit / FOLDER, known)
            path = certificate_in(out / kit / "startup")
            write_certificate(path, authority.limited(load(path), server=kit == "server"))
            _close(out / kit, kit)
        for request in requests:
            _without_keys(out / request.name, authority, request)
        for kit in ROLES:
            _write(out / kit / PARTICIPANTS, {"parties": list(parties)})
        _write(out / AUTHORITY / FEDERATION, {"name": name, "server": host, "port": port, "parties": list(parties)})
        write_known(out / AUTHORITY, known)
        _make_private(out / AUTHORITY)
    return [out / kit for kit in kits]


def admit(request: Request, kits: Path) -> tuple[Path, dict[str, bytes]]:
    """Make a kit for a party that has sent a request, in a federation that is running.

    Return the kit, and the public halves of all identities, which the others must add.
    """
    authority, out = Authority(kits / AUTHORITY), kits / request.name
    try:
        found = json.loads((kits / AUTHORITY / FEDERATION).read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(
            f"{kits / AUTHORITY} has no {FEDERATION}: these kits were made by an older version; make new kits"
        ) from error
    if request.name in (*RESERVED, found["server"]):
        raise InputError(f"{request.name!r} is no name of a party: a kit of another kind has it")
    if request.name in found["parties"] or out.exists():
        raise InputError(f"{request.name} has a kit; renew its certificate with evenhand federation renew")
    with tempfile.TemporaryDirectory() as scratch:
        # Another authority signs these kits; only their settings are taken.
        made, _ = _provisioned(Path(scratch), found["name"], found["server"], found["port"], [request.name])
        shutil.move(made / request.name, out)
    write_certificate(out / "startup" / ROOT, authority.root)
    known = read_known(kits / AUTHORITY / KNOWN) | {request.name: request.identity}
    make_folder(out / FOLDER, private=True)
    write_known(out / FOLDER, known)
    _close(out, request.name)
    _without_keys(out, authority, request)
    found["parties"].append(request.name)
    _write(kits / AUTHORITY / FEDERATION, found)
    write_known(kits / AUTHORITY, known)
    for kit in ROLES:
        if (kits / kit).is_dir():
            _write(kits / kit / PARTICIPANTS, {"parties": found["parties"]})
    return out, known


def _without_keys(kit: Path, authority: Authority, request: Request) -> None:
    """Certify the key of a request, and remove those that were made here."""
    path = certificate_in(kit / "startup")
    made = load(path)
    begins = made.not_valid_before_utc
    days = (made.not_valid_after_utc - begins).days
    write_certificate(path, authority.certified(made, request.public_key, days))
    path.with_suffix(".key").unlink()
    (kit / FOLDER / OWN).unlink(missing_ok=True)


def _provisioned(scratch: Path, name: str, host: str, port: int, parties: Sequence[str]) -> tuple[Path, Path]:
    """Run `nvflare provision`; return the folder with the kits, and that of the authority."""
    command = shutil.which("nvflare", path=f"{Path(sys.executable).parent}:{os.environ.get('PATH', '')}")
    if command is None:
        raise MissingExtraError("provisioning", "nvflare")
    project = scratch / "project.yml"
    # JSON is YAML.
    project.write_text(json.dumps(_project(name, host, port, parties)), encoding="utf-8")
    done = subprocess.run(
        [command, "provision", "-p", str(project), "-w", str(scratch)], capture_output=True, text=True, check=False
    )
    made = scratch / name / "prod_00"
    if done.returncode or not made.is_dir():
        raise RunError(f"nvflare provision failed: {(done.stderr or done.stdout).strip()[-500:]}")
    return made, scratch / name / "state"


def _project(name: str, host: str, port: int, parties: Sequence[str]) -> dict[str, Any]:
    lighter = "nvflare.lighter.impl"
    return {
        "api_version": 3,
        "name": name,
        "description": "evenhand",
        "participants": [
            {"name": host, "type": "server", "org": name, "fed_learn_port": port},
            *({"name": party, "type": "client", "org": party} for party in parties),
            *({"name": user_of(kit), "type": "admin", "org": name, "role": role.flare} for kit, role in ROLES.items()),
        ],
        "builders": [
            {"path": f"{lighter}.workspace.WorkspaceBuilder", "args": {"template_file": ["master_template.yml"]}},
            {"path": f"{lighter}.static_file.StaticFileBuilder", "args": {"config_folder": "config", "scheme": "tcp"}},
            {"path": f"{lighter}.cert.CertBuilder", "args": {"root_valid_days": ROOT_DAYS}},
            {"path": f"{lighter}.signature.SignatureBuilder"},
        ],
    }


def _close(kit: Path, name: str) -> None:
    """Remove permissions that FLARE grants by default."""
    _make_private(kit)
    default = kit / "local" / "resources.json.default"
    if name in ROLES or not default.exists():
        return
    resources = json.loads(default.read_text(encoding="utf-8"))
    resources["class_list_enforcement_mode"] = "enforce"
    resources["class_allow_list"] = list(ALLOWED)
    resources["components"] = [one for one in resources["components"] if one["id"] not in _STREAMS]
    if name != "server":
        resources["allow_log_streaming"] = False
    _write(kit / "local" / "resources.json", resources)
    permissions = json.loads((kit / "local" / "authorization.json.default").read_text(encoding="utf-8"))
    nothing = dict.fromkeys(_NOBODY, "none")
    permissions["permissions"] = {role.flare: {**nothing, **role.rights} for role in ROLES.values()}
    _write(kit / "local" / "authorization.json", permissions)


def user_of(kit: str) -> str:
    """Return the name under which an admin's kit logs in."""
    return f"{kit}@evenhand.invalid"


def _make_private(folder: Path) -> None:
    for path in [folder, *folder.rglob("*")]:
        path.chmod(0o700 if path.is_dir() or path.suffix == ".sh" else 0o600)


def settle(kit: Path, store: Path | None = None) -> None:
    """Complete a kit's settings with what is unknown when it is made: absolute paths, and what this version closes.

    Other users can read FLARE's default place for jobs. The server listens with our own driver.

    Parameters
    ----------
    store
        Folder for the server's jobs; by default the kit. Jobs that an older version kept in the kit are moved there.
    """
    path = kit / "local" / "resources.json"
    if not path.is_file():
        raise RunError(f"{kit} is not a kit that evenhand made: it has no local/resources.json")
    resources = json.loads(path.read_text(encoding="utf-8"))
    others = [one for one in resources["components"] if one["id"] != _GUARDED["id"]]
    resources["components"] = [_GUARDED, *others]
    if "snapshot_persistor" not in resources:
        _write(path, resources)
        return
    place = (store or kit).absolute()
    make_folder(place, private=True)
    for name in ("snapshots", "jobs"):
        if (kit / name).is_dir() and not (place / name).exists():
            shutil.move(kit / name, place / name)
    resources["snapshot_persistor"]["args"]["storage"]["args"]["root_dir"] = str(place / "snapshots")
    jobs = next(one for one in resources["components"] if one["id"] == "job_manager")
    jobs["args"]["uri_root"] = str(place / "jobs")
    jobs["path"] = f"{_GUARD}.JobStore"
    _write(path, resources)
    address = kit / "startup" / "fed_server.json"
    settings = json.loads(address.read_text(encoding="utf-8"))
    if any(one["service"]["scheme"] != LISTENER for one in settings["servers"]):
        for one in settings["servers"]:
            one["service"]["scheme"] = LISTENER
        _write(address, settings)


def _write(path: Path, content: Any) -> None:
    write_bytes(path, json.dumps(content, indent=1).encode(), private=True)
