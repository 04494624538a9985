"""What is said about start-up kits: keys, certificates, what is closed, whether the server answers."""

from __future__ import annotations

import contextlib
import json
import socket
import ssl
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer
from rich.console import Console

pytest.importorskip("cryptography", reason="needs cryptography, which NVIDIA FLARE brings")

from support.tls import Authority, write_key

from evenhand.cli.doctor import show_kit
from evenhand.errors import RunError
from evenhand.runtime.nvflare.health import check_kit, kit_name
from evenhand.runtime.nvflare.kits import ALLOWED

RIGHTS = {"permissions": {"project_admin": {"byoc": "none", "shell_commands": "none", "view": "any"}}}
CLOSED = {"class_list_enforcement_mode": "enforce", "class_allow_list": list(ALLOWED), "allow_log_streaming": False}


class Kit:
    """A party's kit, and a server that takes no stranger."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "shop"
        self.startup, self.local = self.path / "startup", self.path / "local"
        for one in (self.path, self.startup, self.local):
            one.mkdir(mode=0o700)
        self.authority = Authority()
        self.authority.write(self.startup / "rootCA.pem")
        self.issue()
        (self.local / "resources.json").write_text(json.dumps(CLOSED))
        (self.local / "authorization.json").write_text(json.dumps(RIGHTS))
        self.authority.issue("localhost", folder / "server.crt", folder / "server.key")
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(self.startup / "rootCA.pem"))
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_cert_chain(folder / "server.crt", folder / "server.key")
        self._context = context
        self.door = socket.create_server(("127.0.0.1", 0))
        target = {"service": {"target": f"localhost:{self.door.getsockname()[1]}", "scheme": "tcp"}}
        (self.startup / "fed_client.json").write_text(json.dumps({"servers": [target]}))
        threading.Thread(target=self._serve, daemon=True).start()

    def issue(self, days: float = 90.0, authority: Authority | None = None) -> None:
        (authority or self.authority).issue("shop", self.startup / "client.crt", self.startup / "client.key", days)

    def _serve(self) -> None:
        while True:
            try:
                link, _ = self.door.accept()
            except OSError:
                return
            try:
                self._context.wrap_socket(link, server_side=True).close()
            except OSError:
                link.close()

    def stop(self) -> None:
        # Closing alone would leave it open for the thread that waits at it.
        self.door.shutdown(socket.SHUT_RDWR)
        self.door.close()

    def wrong(self) -> dict[str, str]:
        """What is not fine, NVIDIA FLARE aside, which need not be installed here."""
        return {one.what: one.said for one in check_kit(self.path) if not one.fine and one.what != "NVIDIA FLARE"}


@pytest.fixture
def kit(tmp_path: Path) -> Iterator[Kit]:
    made = Kit(tmp_path)
    yield made
    with contextlib.suppress(OSError):
        made.stop()


def test_a_kit_that_works(kit: Kit) -> None:
    assert kit.wrong() == {}
    assert kit_name(kit.path) == "shop"


def test_keys_that_others_may_read(kit: Kit) -> None:
    (kit.startup / "client.key").chmod(0o644)
    assert "others may read startup/client.key" in kit.wrong()["keys"]


@pytest.mark.parametrize(("days", "says"), [(-1.0, "expired on"), (10.0, "valid until")])
def test_certificates_that_end(kit: Kit, days: float, says: str) -> None:
    kit.issue(days)
    assert says in kit.wrong()["certificate of shop"]


def test_a_certificate_of_another_authority_and_a_key_of_another_certificate(kit: Kit) -> None:
    kit.issue(authority=Authority())
    assert "another authority" in kit.wrong()["issued by"]
    kit.issue()
    write_key(kit.startup / "client.key")
    assert kit.wrong().keys() == {"key", "server"}


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"class_allow_list": [*ALLOWED, "os.system"]}, "other classes"),
        ({"class_list_enforcement_mode": "warn"}, "other classes"),
        ({"allow_log_streaming": True}, "logs that leave"),
    ],
)
def test_a_kit_that_was_opened(kit: Kit, settings: dict[str, object], says: str) -> None:
    (kit.local / "resources.json").write_text(json.dumps(CLOSED | settings))
    assert says in kit.wrong()["closed"]


def test_a_kit_that_lets_code_in(kit: Kit) -> None:
    rights = {"permissions": {"project_admin": {"byoc": "any", "shell_commands": "any"}}}
    (kit.local / "authorization.json").write_text(json.dumps(rights))
    assert kit.wrong()["closed"] == "lets in code that a job brings, shell commands"


def test_a_server_that_is_not_there(kit: Kit) -> None:
    kit.stop()
    assert "does not answer" in kit.wrong()["server"]


def test_what_is_no_kit(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="is not a start-up kit"):
        check_kit(tmp_path)


def test_the_command_says_so_and_ends_with_a_code_of_its_own(kit: Kit, tmp_path: Path) -> None:
    (tmp_path / "table.csv").write_text("id,x\n1,2\n")
    own = tmp_path / "party.toml"
    own.write_text('[party]\nname = "phone"\ntable = "table.csv"\nid = "id"\n[policy]\nmost_rounds = 7\n')
    console = Console(width=200, record=True)
    with pytest.raises(typer.Exit) as ended:
        show_kit(kit.path, own, console)
    assert ended.value.exit_code == RunError.exit_code
    told = console.export_text()
    assert "belongs to phone, but the kit belongs to shop" in told
    assert "most_rounds = 7" in told
    assert "answers, by mutual TLS" in told
