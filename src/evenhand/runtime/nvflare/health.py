"""Check whether a start-up kit works here: keys, certificates, restrictions, and the connection to the server."""

from __future__ import annotations

import datetime
import json
import socket
import ssl
import stat
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Final, NamedTuple

from evenhand.errors import MissingExtraError, RunError
from evenhand.runtime.nvflare.kits import ALLOWED

_SOON: Final = datetime.timedelta(days=30)
_PATIENCE: Final = 10.0


class KitFinding(NamedTuple):
    """Result of one check."""

    what: str
    fine: bool
    said: str


def check_kit(kit: Path) -> list[KitFinding]:
    """Check the kit of a server, a party or an admin."""
    startup = kit / "startup"
    settings = next((startup / name for name in _SETTINGS if (startup / name).is_file()), None)
    if settings is None:
        raise RunError(f"{kit} is not a start-up kit: its startup folder has none of {', '.join(_SETTINGS)}")
    owner = "server" if settings.name == "fed_server.json" else "client"
    findings = [_version(), _modes(kit), *_certificates(startup, owner)]
    if settings.name != "fed_admin.json":
        findings.append(_closed(kit / "local"))
    host, port = _address(json.loads(settings.read_text(encoding="utf-8")))
    findings.append(_listens(host, port) if owner == "server" else _answers(startup, host, port))
    return findings


_SETTINGS: Final = ("fed_server.json", "fed_client.json", "fed_admin.json")


def kit_name(kit: Path) -> str:
    """Return the name of the kit's owner, from its certificate."""
    path = next((kit / "startup").glob("*.crt"), None)
    if path is None:
        raise RunError(f"{kit} is not a start-up kit: it has no certificate")
    return _subject(_x509().load_pem_x509_certificate(path.read_bytes()))


def _version() -> KitFinding:
    try:
        found = version("nvflare")
    except PackageNotFoundError:
        return KitFinding("NVIDIA FLARE", False, "not installed: pip install 'evenhand[nvflare]'")
    return KitFinding("NVIDIA FLARE", found.startswith("2.9."), f"{found}, of which 2.9 is needed")


def _modes(kit: Path) -> KitFinding:
    open_to_others = [
        str(path.relative_to(kit))
        for path in [kit / "startup", *kit.glob("startup/*.key")]
        if stat.S_IMODE(path.stat().st_mode) & 0o077
    ]
    if open_to_others:
        return KitFinding("keys", False, f"others may read {', '.join(open_to_others)}: chmod -R go-rwx {kit}")
    return KitFinding("keys", True, "nobody but their owner may read them")


def _certificates(startup: Path, owner: str) -> list[KitFinding]:
    x509 = _x509()
    own = x509.load_pem_x509_certificate((startup / f"{owner}.crt").read_bytes())
    root = x509.load_pem_x509_certificate((startup / "rootCA.pem").read_bytes())
    findings = [_dates(f"certificate of {_subject(own)}", own), _dates("certificate of the authority", root)]
    try:
        own.verify_directly_issued_by(root)
        findings.append(KitFinding("issued by", True, "the authority of this kit"))
    except Exception as error:
        findings.append(KitFinding("issued by", False, f"another authority than this kit's ({type(error).__name__})"))
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    key = load_pem_private_key((startup / f"{owner}.key").read_bytes(), None)
    fits = key.public_key() == own.public_key()
    findings.append(KitFinding("key", fits, "that of the certificate" if fits else "another than the certificate's"))
    return findings


def _dates(what: str, certificate: Any) -> KitFinding:
    now = datetime.datetime.now(datetime.UTC)
    begins, ends = certificate.not_valid_before_utc, certificate.not_valid_after_utc
    if now < begins:
        return KitFinding(what, False, f"valid from {begins:%Y-%m-%d} on only; is this machine's clock right?")
    if now > ends:
        return KitFinding(what, False, f"expired on {ends:%Y-%m-%d}: get it renewed (evenhand federation renew)")
    return KitFinding(what, ends - now > _SOON, f"valid until {ends:%Y-%m-%d}, {(ends - now).days} days")


def _closed(local: Path) -> KitFinding:
    try:
        resources = json.loads((local / "resources.json").read_text(encoding="utf-8"))
        rights = json.loads((local / "authorization.json").read_text(encoding="utf-8"))["permissions"]
    except (OSError, ValueError, KeyError) as error:
        return KitFinding("closed", False, f"cannot be told ({error}): make new kits")
    open_ = [
        what
        for what, wrong in {
            "other classes than evenhand's": set(resources.get("class_allow_list", ())) - set(ALLOWED)
            or resources.get("class_list_enforcement_mode") != "enforce",
            "code that a job brings": any(one.get("byoc") != "none" for one in rights.values()),
            "shell commands": any(one.get("shell_commands") != "none" for one in rights.values()),
            "logs that leave the site": resources.get("allow_log_streaming", False),
        }.items()
        if wrong
    ]
    return KitFinding(
        "closed", not open_, f"lets in {', '.join(open_)}" if open_ else "no code, shell or other classes"
    )


def _address(settings: dict[str, Any]) -> tuple[str, int]:
    if "admin" in settings:
        return str(settings["admin"]["host"]), int(settings["admin"]["port"])
    host, _, port = str(settings["servers"][0]["service"]["target"]).rpartition(":")
    return host, int(port)


def _listens(host: str, port: int) -> KitFinding:
    with socket.socket() as one:
        one.settimeout(_PATIENCE)
        there = one.connect_ex(("127.0.0.1", port)) == 0
    return KitFinding("server", True, f"{host}:{port}: " + ("runs here" if there else "nothing runs here at present"))


def _answers(startup: Path, host: str, port: int) -> KitFinding:
    """Do a TLS handshake as the kit's owner: the server must show a certificate of the authority, and accept ours."""
    context = ssl.create_default_context(cafile=str(startup / "rootCA.pem"))
    try:
        context.load_cert_chain(startup / "client.crt", startup / "client.key")
        with socket.create_connection((host, port), _PATIENCE) as raw, context.wrap_socket(raw, server_hostname=host):
            return KitFinding("server", True, f"{host}:{port} answers, by mutual TLS")
    except ssl.SSLError as error:
        return KitFinding("server", False, f"{host}:{port} cannot be spoken to: {error.reason or error}")
    except OSError as error:
        return KitFinding("server", False, f"{host}:{port} does not answer ({error.strerror or error}): does it run?")


def _subject(certificate: Any) -> str:
    from cryptography.x509.oid import NameOID

    return str(certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)[0].value)


def _x509() -> Any:
    try:
        from cryptography import x509
    except ModuleNotFoundError as error:
        raise MissingExtraError("checking kits", "nvflare") from error
    return x509
