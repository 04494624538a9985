"""Strangers who connect to the server and say nothing keep nobody out."""

from __future__ import annotations

import resource
import socket
import ssl
import time
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

pytest.importorskip("nvflare", reason="make federation runs these in an environment with NVIDIA FLARE")

from support.shops import PARTIES, Shops, running_shops

from evenhand.runtime.nvflare.drivers import evenhand_listener
from evenhand.runtime.nvflare.health import check_kit
from evenhand.runtime.nvflare.kits import DRIVERS, LISTENER

pytestmark = pytest.mark.timeout(300)
IDLE = 500


@pytest.fixture(scope="module")
def shops(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shops]:
    with running_shops(tmp_path_factory.mktemp("idle")) as running:
        yield running


def test_the_kits_name_the_driver_that_is_there() -> None:
    assert LISTENER == evenhand_listener.SCHEME
    assert [path.name for path in DRIVERS.glob("*.py")] == ["evenhand_listener.py"]


def test_five_hundred_idle_connections_and_a_healthy_run_beside_them(shops: Shops) -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(min(hard, 4096), 1024), hard))
    with ExitStack() as stack:
        idle = [stack.enter_context(socket.create_connection(("localhost", shops.port))) for _ in range(IDLE)]
        # Half of them begin a record of TLS and never end it.
        for one in idle[::2]:
            one.sendall(b"\x16\x03\x01\x02\x00\x01")
        answers = next(one for one in check_kit(shops.folder / "kits" / "bank") if one.what == "server")
        assert answers.fine, answers.said
        # A party that was away joins again beside them, too.
        shops.running["shop"].stop()
        shops.start("shop")
        assert shops.submit()["result"]["certificate"]["converged"]
    log = (shops.folder / "server.log").read_text()
    refused = [line for line in log.splitlines() if "refused a connection" in line]
    assert refused
    assert len(refused) < 20, "one line every ten seconds at most"
    assert "Traceback" not in log
    # A run that went well leaves no ERROR in any log.
    for name in ("server", *PARTIES):
        errors = [line for line in (shops.folder / f"{name}.log").read_text().splitlines() if " - ERROR - " in line]
        assert not errors, errors[:3]


def test_a_connection_that_says_nothing_is_closed(shops: Shops) -> None:
    began = time.monotonic()
    with socket.create_connection(("localhost", shops.port)) as one:
        one.settimeout(60.0)
        assert one.recv(1) == b""
    assert time.monotonic() - began >= evenhand_listener.HANDSHAKE_SECONDS / 2


def test_a_handshake_without_a_certificate_is_refused(shops: Shops) -> None:
    context = ssl.create_default_context(cafile=str(shops.folder / "kits" / "bank" / "startup" / "rootCA.pem"))
    context.check_hostname = False
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    with socket.create_connection(("localhost", shops.port), 10.0) as raw, pytest.raises(OSError):
        context.wrap_socket(raw)


def test_an_address_that_holds_many_loses_its_oldest_first() -> None:
    """The limit on unfinished handshakes closes connections of the busiest address, not those of others."""

    class Listener(evenhand_listener._Server):
        def __init__(self) -> None:
            self._lock, self._pending = evenhand_listener.threading.Lock(), {}

    listener, pairs = Listener(), []
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)

    def admit(address: str) -> socket.socket:
        ours, theirs = socket.socketpair()
        secured = context.wrap_socket(ours, server_side=True, do_handshake_on_connect=False)
        pairs.extend([secured, theirs])
        listener._admit(secured, address)
        return theirs

    try:
        honest = admit("10.0.0.1")
        stranger = [admit("10.0.0.2") for _ in range(evenhand_listener.MOST_HANDSHAKES)]
        for one in (honest, *stranger):
            one.setblocking(False)
        assert stranger[0].recv(1) == b""
        for one in (honest, stranger[1]):
            with pytest.raises(BlockingIOError):
                one.recv(1)
        assert len(listener._pending) == evenhand_listener.MOST_HANDSHAKES
    finally:
        for one in pairs:
            one.close()
