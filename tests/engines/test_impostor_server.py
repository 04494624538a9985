"""A participant that poses as the server to another one: its certificate is not a server's."""

from __future__ import annotations

import socket
import ssl
import threading
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("nvflare", reason="make federation runs these in an environment with NVIDIA FLARE")

from nvflare.fuel.f3.drivers.driver_params import DriverParams
from nvflare.fuel.f3.drivers.net_utils import get_ssl_context

from evenhand.runtime.nvflare.kits import provision


@pytest.fixture(scope="module")
def kits(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("impostor") / "kits"
    provision("shops", "localhost", 8002, ["bank", "shop", "phone"], folder)
    return folder


def context(kits: Path, who: str, *, listens: bool) -> ssl.SSLContext:
    """Return FLARE's own TLS settings for a kit."""
    startup = kits / who / "startup"
    own = startup / ("server" if who == "server" else "client")
    pair = (
        (DriverParams.SERVER_CERT, DriverParams.SERVER_KEY)
        if listens
        else (DriverParams.CLIENT_CERT, DriverParams.CLIENT_KEY)
    )
    settings: dict[Any, Any] = {"scheme": "stcp", "connection_security": "mtls", DriverParams.SECURE.value: True}
    settings[DriverParams.CA_CERT.value] = str(startup / "rootCA.pem")
    settings[pair[0].value], settings[pair[1].value] = f"{own}.crt", f"{own}.key"
    found = get_ssl_context(settings, listens)
    assert found is not None
    return found


def sent_to(kits: Path, server: str, party: str) -> bytes:
    """Let a party connect to whoever listens; return what the listener read."""
    read: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def listen() -> None:
            connection, _ = listening.accept()
            try:
                with context(kits, server, listens=True).wrap_socket(connection, server_side=True) as secured:
                    read.append(secured.recv(64))
            except OSError:
                connection.close()

        thread = threading.Thread(target=listen)
        thread.start()
        try:
            with (
                socket.create_connection(listening.getsockname(), 10) as raw,
                context(kits, party, listens=False).wrap_socket(raw, server_hostname="localhost") as secured,
            ):
                secured.sendall(b"secret")
        finally:
            thread.join(10)
    return b"".join(read)


def test_the_server_is_the_server(kits: Path) -> None:
    assert sent_to(kits, "server", "phone") == b"secret"


@pytest.mark.parametrize("impostor", ["shop", "admin"])
def test_no_other_kit_passes_for_the_server(kits: Path, impostor: str) -> None:
    with pytest.raises(ssl.SSLCertVerificationError, match="purpose"):
        sent_to(kits, impostor, "phone")
