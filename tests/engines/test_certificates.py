"""Who is not let in, and the word that each side has for it: certificates, plaintext, another server."""

from __future__ import annotations

import datetime
import json
import shutil
import socket
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

pytest.importorskip("nvflare", reason="make federation runs these in an environment with NVIDIA FLARE")

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.x509.oid import NameOID
from support.shops import PARTIES, Shops, running_shops, wait_until

from evenhand.cli.federation_client import start
from evenhand.cli.federation_jobs import revoke
from evenhand.errors import RunError
from evenhand.runtime.nvflare.admin import Admin
from evenhand.runtime.nvflare.kits import provision

pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module")
def shops(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shops]:
    # Phone's place is free: whoever tries to take it is not kept out by phone itself.
    with running_shops(tmp_path_factory.mktemp("certificates"), absent="phone") as running:
        yield running


def there(shops: Shops) -> set[str]:
    """Who takes part, when all who run have joined."""
    with Admin(shops.folder / "kits" / "admin") as admin:

        def joined() -> set[str]:
            return {client.name for client in admin.ask(lambda session: session.get_system_info()).client_info}

        wait_until(lambda: joined() >= shops.running.keys() - {"server"})
        return joined()


@contextmanager
def intruder(shops: Shops, kit: Path, word: str) -> Iterator[Path]:
    """A kit that is started, until its own log has the word."""
    log = kit.parent / "intruder.log"
    running = start(kit, shops.paths["phone"], kit.parent / "runs", log)
    try:
        wait_until(lambda: word in log.read_text())
        yield log
    finally:
        running.stop()


def with_certificate(shops: Shops, folder: Path, name: str, ends: datetime.timedelta) -> Path:
    """Phone's kit with another certificate of the same authority, for the same key."""
    kit = folder / "phone"
    shutil.copytree(shops.folder / "kits" / "phone", kit)
    authority = json.loads((shops.folder / "kits" / "authority" / "cert.json").read_text())
    root = x509.load_pem_x509_certificate(authority["root_cert"].encode())
    key = serialization.load_pem_private_key(authority["root_pri_key"].encode(), password=None)
    old = x509.load_pem_x509_certificate((kit / "startup" / "client.crt").read_bytes())
    now = datetime.datetime.now(datetime.UTC)
    attributes = [
        x509.NameAttribute(NameOID.COMMON_NAME, name) if one.oid == NameOID.COMMON_NAME else one for one in old.subject
    ]
    made = (
        x509.CertificateBuilder(extensions=list(old.extensions))
        .subject_name(x509.Name(attributes))
        .issuer_name(root.subject)
        .public_key(old.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=9))
        .not_valid_after(now + ends)
        .sign(key, hashes.SHA256())  # type: ignore[arg-type]
    )
    (kit / "startup" / "client.crt").write_bytes(made.public_bytes(serialization.Encoding.PEM))
    return kit


def test_a_certificate_that_has_expired_is_refused_on_both_sides(shops: Shops, tmp_path: Path) -> None:
    kit = with_certificate(shops, tmp_path, "phone", -datetime.timedelta(days=1))
    with pytest.raises(RunError, match=r"expired on .* get a new kit"):
        start(kit, shops.paths["phone"], tmp_path / "runs", tmp_path / "log")
    assert "EXPIRED" in refusal(shops, kit)
    assert refusal(shops, shops.folder / "kits" / "phone") == ""


def refusal(shops: Shops, kit: Path | None) -> str:
    """How the server refuses whoever speaks TLS to it with the certificate of a kit."""
    startup = shops.folder / "kits" / "phone" / "startup"
    context = ssl.create_default_context(cafile=str(startup / "rootCA.pem"))
    context.check_hostname = False
    if kit is not None:
        context.load_cert_chain(kit / "startup" / "client.crt", kit / "startup" / "client.key")
    try:
        with socket.create_connection(("localhost", shops.port), 10) as line, context.wrap_socket(line) as tls:
            tls.settimeout(5)
            tls.recv(1)
    except TimeoutError:
        return ""
    except OSError as error:
        return f"{getattr(error, 'reason', None) or error}"
    return ""


def test_a_certificate_of_another_name_is_refused(shops: Shops, tmp_path: Path) -> None:
    kit = with_certificate(shops, tmp_path, "thief", datetime.timedelta(days=9))
    with intruder(shops, kit, "is closed"):
        said = "authenticated as 'thief' but claimed endpoint 'phone' requires identity 'phone'"
        wait_until(lambda: said in (shops.folder / "server.log").read_text())
        assert there(shops) == {"bank", "shop"}


def test_plaintext_is_not_answered(shops: Shops) -> None:
    with socket.create_connection(("localhost", shops.port), 10) as line:
        line.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
        line.settimeout(20)
        try:
            answer = line.recv(1000)
        except (ConnectionResetError, TimeoutError):
            answer = b""
    # At most the alert by which TLS itself refuses.
    assert not answer or answer[0] == 0x15
    assert there(shops) == {"bank", "shop"}


def test_who_has_no_certificate_gets_no_further_than_tls(shops: Shops) -> None:
    assert "CERTIFICATE_REQUIRED" in refusal(shops, None)


def test_a_server_of_another_authority_is_not_spoken_to(shops: Shops, tmp_path: Path) -> None:
    """Somebody else answers where the server was: no party joins it."""
    provision("shops", "localhost", shops.port, ["phone"], tmp_path / "other")
    kit = shutil.copytree(tmp_path / "other" / "phone", tmp_path / "phone")
    with intruder(shops, kit, "CERTIFICATE_VERIFY_FAILED"):
        assert there(shops) == {"bank", "shop"}


def test_a_kit_that_was_revoked_is_kept_out_until_it_is_restored(shops: Shops, tmp_path: Path) -> None:
    admin = shops.folder / "kits" / "admin"
    revoke("phone", admin)
    kit = shutil.copytree(shops.folder / "kits" / "phone", tmp_path / "phone")
    with intruder(shops, kit, "disabled"):
        assert there(shops) == {"bank", "shop"}
    revoke("phone", admin, restore=True)
    shops.start("phone")
    assert there(shops) == set(PARTIES)
    shops.running.pop("phone").stop()


def test_keys_are_their_owners_and_logs_hold_no_rows(shops: Shops) -> None:
    for path in (shops.folder / "kits").rglob("*.key"):
        assert path.stat().st_mode & 0o777 == 0o600, path
    table = (shops.folder / "sites" / "bank" / "table.csv").read_text().splitlines()[1:]
    values = {value for line in table for value in line.split(",") if "." in value}
    keys = [path.read_text().splitlines()[3] for path in (shops.folder / "kits").rglob("*.key")]
    logs = "".join(path.read_text(errors="replace") for path in shops.folder.rglob("*log*") if path.is_file())
    assert logs
    assert not [one for one in (*values, *keys) if one in logs]
