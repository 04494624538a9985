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
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from evenhand.errors import InputError, MissingExtraError, RunError
from evenhand.protocol.identity import make_identities
from evenhand.protocol.roles import SERVER
from evenhand.runtime.files import make_folder, write_bytes
from evenhand.runtime.identityfiles import FOLDER, write_identity

ADMIN: Final = "admin@evenhand.invalid"
ALLOWED: Final = (
    "evenhand.jobs.federation.components.FederationServer",
    "evenhand.jobs.federation.components.FederationParty",
)
"""All classes that a job may name."""
PARTICIPANTS: Final = "participants.json"
"""File of the admin's kit with the names of all parties."""
LISTENER: Final = "evenhand"
"""Scheme of the server's address; `drivers/evenhand_listener.py` listens on it."""
DRIVERS: Final = Path(__file__).parent / "drivers"
"""Folder from which FLARE loads our listener."""
_CERTIFICATES: Final = ("client.crt", "server.crt")
_NOBODY: Final = ("clone_job", "shell_commands", "byoc", "server-predeployed-flwr")
_STREAMS: Final = ("site_log_streamer", "log_receiver")


def provision(name: str, host: str, port: int, parties: Sequence[str], out: Path) -> list[Path]:
    """Make a kit for the server, one for each party and one for the admin, who submits jobs."""
    if out.exists() and any(out.iterdir()):
        raise InputError(f"{out} is not empty; kits contain keys and are never overwritten: choose another folder")
    command = shutil.which("nvflare", path=f"{Path(sys.executable).parent}:{os.environ.get('PATH', '')}")
    if command is None:
        raise MissingExtraError("provisioning", "nvflare")
    with tempfile.TemporaryDirectory() as scratch:
        project = Path(scratch) / "project.yml"
        # JSON is YAML.
        project.write_text(json.dumps(_project(name, host, port, parties)), encoding="utf-8")
        done = subprocess.run(
            [command, "provision", "-p", str(project), "-w", scratch], capture_output=True, text=True, check=False
        )
        made = Path(scratch) / name / "prod_00"
        if done.returncode or not made.is_dir():
            raise RunError(f"nvflare provision failed: {(done.stderr or done.stdout).strip()[-500:]}")
        make_folder(out, private=True)
        kits = {"server": host, **{party: party for party in parties}, "admin": ADMIN}
        identities = make_identities([SERVER, *parties])
        for kit, folder in kits.items():
            shutil.move(made / folder, out / kit)
            if kit in identities:
                write_identity(out / kit / FOLDER, identities[kit])
            _limit_use(out / kit / "startup", Path(scratch) / name / "state" / "cert.json")
            _close(out / kit, kit)
        _write(out / "admin" / PARTICIPANTS, {"parties": list(parties)})
        # The holder of this folder can make further participants, so it is in no kit.
        shutil.move(Path(scratch) / name / "state", out / "authority")
        _make_private(out / "authority")
    return [out / kit for kit in kits]


def _project(name: str, host: str, port: int, parties: Sequence[str]) -> dict[str, Any]:
    lighter = "nvflare.lighter.impl"
    return {
        "api_version": 3,
        "name": name,
        "description": "evenhand",
        "participants": [
            {"name": host, "type": "server", "org": name, "fed_learn_port": port},
            *({"name": party, "type": "client", "org": party} for party in parties),
            {"name": ADMIN, "type": "admin", "org": name, "role": "project_admin"},
        ],
        "builders": [
            {"path": f"{lighter}.workspace.WorkspaceBuilder", "args": {"template_file": ["master_template.yml"]}},
            {"path": f"{lighter}.static_file.StaticFileBuilder", "args": {"config_folder": "config", "scheme": "tcp"}},
            {"path": f"{lighter}.cert.CertBuilder"},
            {"path": f"{lighter}.signature.SignatureBuilder"},
        ],
    }


def _limit_use(startup: Path, authority: Path) -> None:
    """Sign a kit's certificate again, with the one use that it is for: a party's certificate is no server's.

    FLARE's client does not compare the server's certificate with the host name. Without this, any participant with a
    kit could pose as the server to the others. TLS refuses a certificate that is used for anything else.
    """
    try:
        from cryptography import x509
        from cryptography.hazmat.primitives import hashes, serialization
        from cryptography.x509.oid import ExtendedKeyUsageOID as Use
    except ImportError as error:
        raise MissingExtraError("provisioning", "nvflare") from error
    path = _certificate_in(startup)
    given = x509.load_pem_x509_certificate(path.read_bytes())
    key: Any = serialization.load_pem_private_key(
        json.loads(authority.read_text(encoding="utf-8"))["root_pri_key"].encode(), password=None
    )
    uses = [Use.CLIENT_AUTH, Use.SERVER_AUTH] if path.name == "server.crt" else [Use.CLIENT_AUTH]
    limited = (
        x509.CertificateBuilder(extensions=list(given.extensions))
        .subject_name(given.subject)
        .issuer_name(given.issuer)
        .public_key(given.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(given.not_valid_before_utc)
        .not_valid_after(given.not_valid_after_utc)
        .add_extension(x509.ExtendedKeyUsage(uses), critical=True)
    )
    write_bytes(path, limited.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM), private=True)


def _certificate_in(startup: Path) -> Path:
    path = next((startup / name for name in _CERTIFICATES if (startup / name).is_file()), None)
    if path is None:
        raise RunError(f"{startup.parent} is not a kit that evenhand made: it has no certificate in startup/")
    return path


def _close(kit: Path, name: str) -> None:
    """Remove permissions that FLARE grants by default."""
    _make_private(kit)
    default = kit / "local" / "resources.json.default"
    if name == "admin" or not default.exists():
        return
    resources = json.loads(default.read_text(encoding="utf-8"))
    resources["class_list_enforcement_mode"] = "enforce"
    resources["class_allow_list"] = list(ALLOWED)
    resources["components"] = [one for one in resources["components"] if one["id"] not in _STREAMS]
    if name != "server":
        resources["allow_log_streaming"] = False
    _write(kit / "local" / "resources.json", resources)
    permissions = json.loads((kit / "local" / "authorization.json.default").read_text(encoding="utf-8"))
    allowed = ("submit_job", "manage_job", "download_job", "view", "operate", "app_command")
    rights = dict.fromkeys(allowed, "any")
    permissions["permissions"] = {"project_admin": rights | dict.fromkeys(_NOBODY, "none")}
    _write(kit / "local" / "authorization.json", permissions)


def _make_private(folder: Path) -> None:
    for path in [folder, *folder.rglob("*")]:
        path.chmod(0o700 if path.is_dir() or path.suffix == ".sh" else 0o600)


def check_certificate(kit: Path) -> None:
    """Refuse an expired or not yet valid certificate here, because the other side would not explain its refusal."""
    # FLARE installs it; a machine that only makes kits may have FLARE in another environment.
    from cryptography import x509

    path = _certificate_in(kit / "startup")
    try:
        found = x509.load_pem_x509_certificate(path.read_bytes())
    except ValueError as error:
        raise RunError(f"{path} is not a valid certificate: {error}") from error
    now = datetime.now(UTC)
    if now > found.not_valid_after_utc:
        raise RunError(f"the certificate of {kit} expired on {found.not_valid_after_utc:%Y-%m-%d}; get a new kit")
    if now < found.not_valid_before_utc:
        raise RunError(
            f"the certificate of {kit} is not valid before {found.not_valid_before_utc:%Y-%m-%d %H:%M} (UTC), but it "
            f"is {now:%Y-%m-%d %H:%M}; check this machine's clock"
        )


def settle(kit: Path) -> None:
    """Complete a kit's settings with what is unknown when it is made: absolute paths, and the present defaults.

    The server keeps its jobs in its own kit, because other users can read FLARE's default place. It listens with our
    own driver.
    """
    path = kit / "local" / "resources.json"
    if not path.is_file():
        raise RunError(f"{kit} is not a kit that evenhand made: it has no local/resources.json")
    resources = json.loads(path.read_text(encoding="utf-8"))
    if "snapshot_persistor" not in resources:
        return
    resources["snapshot_persistor"]["args"]["storage"]["args"]["root_dir"] = str(kit.absolute() / "snapshots")
    jobs = next(one for one in resources["components"] if one["id"] == "job_manager")
    jobs["args"]["uri_root"] = str(kit.absolute() / "jobs")
    _write(path, resources)
    address = kit / "startup" / "fed_server.json"
    settings = json.loads(address.read_text(encoding="utf-8"))
    if any(one["service"]["scheme"] != LISTENER for one in settings["servers"]):
        for one in settings["servers"]:
            one["service"]["scheme"] = LISTENER
        _write(address, settings)


def _write(path: Path, content: Any) -> None:
    write_bytes(path, json.dumps(content, indent=1).encode(), private=True)
