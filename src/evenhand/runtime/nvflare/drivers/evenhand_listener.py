"""Listener of NVIDIA FLARE's server that strangers cannot block.

FLARE's own listener does the TLS handshake on the thread that accepts connections. One connection that says nothing
then keeps all others out. Here each handshake has a thread and a deadline of its own, and the number of unfinished
handshakes is limited. What follows the handshake is FLARE's own code, so clients need no change.

FLARE also lets the newest connection under a name replace the one before, whoever makes it. Here a name belongs to the
certificate, and a participant that is connected from one address is not replaced from another.

FLARE loads every module of this folder as a driver, from the path in `NVFLARE_COMM_DRIVER_PATH`.
"""

from __future__ import annotations

import contextlib
import logging
import resource
import socket
import ssl
import threading
import time
from collections import Counter
from socketserver import BaseRequestHandler, ThreadingTCPServer
from typing import Any, Final

import msgpack
from cryptography import x509
from nvflare.fuel.f3.cellnet.fqcn import FQCN
from nvflare.fuel.f3.comm_error import CommError
from nvflare.fuel.f3.drivers.driver_params import DriverParams
from nvflare.fuel.f3.drivers.net_utils import get_ssl_context
from nvflare.fuel.f3.drivers.socket_conn import SocketConnection
from nvflare.fuel.f3.drivers.tcp_driver import TcpDriver
from nvflare.fuel.f3.sfm.constants import HandshakeKeys, Types
from nvflare.fuel.f3.sfm.prefix import PREFIX_LEN, Prefix
from nvflare.fuel.utils.admin_name_utils import is_valid_admin_client_name

SCHEME: Final = "evenhand"
"""Scheme of the server's address in its start-up kit; clients go on to use `tcp`."""
HANDSHAKE_SECONDS: Final = 10.0
MOST_HANDSHAKES: Final = 256
"""Connections that may be without a finished handshake. One more closes the oldest of the busiest address."""
_QUIET_SECONDS: Final = 10.0
"""Minimum time between two lines about refused connections."""
_ALIVE: Final = {"TCP_KEEPIDLE": 20, "TCP_KEEPINTVL": 10, "TCP_KEEPCNT": 4, "TCP_USER_TIMEOUT": 60_000}
"""A peer that vanished without a word is noticed after a minute; until then its name is taken."""
_log = logging.getLogger(__name__)


class EvenhandListener(TcpDriver):
    """FLARE's TCP driver with handshakes off the accept path."""

    @staticmethod
    def supported_transports() -> list[str]:
        return [SCHEME]

    def listen(self, connector: Any) -> None:
        self.connector = connector
        with contextlib.suppress(OSError, ValueError):
            soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard if hard != resource.RLIM_INFINITY else soft, hard))
        self.server = _Server(self, connector)
        self.server.serve_forever()


class _Server(ThreadingTCPServer):
    """Accept connections; do nothing else on this thread."""

    allow_reuse_address = True
    daemon_threads = True
    request_queue_size = 512

    def __init__(self, driver: EvenhandListener, connector: Any) -> None:
        self.driver, self.connector = driver, connector
        self.ssl_context: ssl.SSLContext | None = get_ssl_context(connector.params, ssl_server=True)
        self._lock = threading.Lock()
        self._pending: dict[ssl.SSLSocket, str] = {}
        """Connections without a finished handshake and their addresses, oldest first."""
        self._refused, self._told = 0, -_QUIET_SECONDS
        self._named: dict[_Named, tuple[str, str]] = {}
        """Connections after FLARE's greeting: the name that each has given, and its address."""
        self._own = _own_name(connector.params.get(DriverParams.SERVER_CERT.value))
        host = connector.params.get(DriverParams.HOST.value)
        super().__init__((host, int(connector.params.get(DriverParams.PORT.value))), _Connection)

    def handshake(self, raw: socket.socket, address: str) -> Any:
        """Return the connection after the handshake; None if it was not finished."""
        if self.ssl_context is None:
            return raw
        secured = self.ssl_context.wrap_socket(raw, server_side=True, do_handshake_on_connect=False)
        self._admit(secured, address)
        try:
            # The deadline is for the whole handshake, not for each read.
            secured.settimeout(HANDSHAKE_SECONDS)
            secured.do_handshake()
            secured.settimeout(None)
        except (OSError, ValueError) as error:
            secured.close()
            reason = getattr(error, "reason", None) or error or type(error).__name__
            self.note(address, ValueError(f"no TLS handshake was finished: {reason}"))
            return None
        finally:
            with self._lock:
                self._pending.pop(secured, None)
        return secured

    def _admit(self, secured: ssl.SSLSocket, address: str) -> None:
        with self._lock:
            oldest = None
            if len(self._pending) >= MOST_HANDSHAKES:
                ((busiest, _),) = Counter(self._pending.values()).most_common(1)
                oldest = next(one for one, whose in self._pending.items() if whose == busiest)
                del self._pending[oldest]
            self._pending[secured] = address
        if oldest is not None:
            # Its own thread waits for bytes. This wakes it without a word of TLS, and it closes the socket.
            with contextlib.suppress(OSError):
                socket.socket.shutdown(oldest, socket.SHUT_RDWR)

    def greet(self, connection: _Named, name: str, owner: str, address: str) -> None:
        """Note the name that a connection gives; raise an error if it must not have it.

        Parameters
        ----------
        owner
            Common name of its certificate.
        """
        if self.ssl_context is None or owner == self._own:
            return
        # A job's process has the name of its site and that of the job.
        mine = is_valid_admin_client_name(name) if "@" in owner else FQCN.normalize(name).split(".")[0] == owner
        if not mine:
            raise ValueError(f"the certificate of {owner} cannot connect as {name!r}")
        with self._lock:
            others = [found for found in self._named.values() if found[0] == name and found[1] != address]
            if not others:
                self._named[connection] = (name, address)
                return
        raise ValueError(f"{name} is connected from {others[0][1]}; its kit runs in two places, stop one of them")

    def forget(self, connection: _Named) -> None:
        with self._lock:
            self._named.pop(connection, None)

    def note(self, address: str, error: Exception) -> None:
        """Write one line about refused connections at most every few seconds."""
        with self._lock:
            self._refused += 1
            if time.monotonic() - self._told < _QUIET_SECONDS:
                return
            count, self._refused, self._told = self._refused, 0, time.monotonic()
        more = f" ({count - 1} more since the last such line)" if count > 1 else ""
        _log.warning(f"refused a connection from {address}: {error}{more}")

    def handle_error(self, request: Any, client_address: Any) -> None:
        _log.debug(f"connection from {client_address} ended with an error", exc_info=True)


class _Named(SocketConnection):
    """Connection whose first frames say its name, which is checked before FLARE sees them."""

    def __init__(self, sock: Any, server: _Server, address: str) -> None:
        super().__init__(sock, server.connector, server.ssl_context is not None)
        self._server, self._address = server, address
        subject = sock.getpeercert()["subject"] if server.ssl_context is not None else ()
        self._owner = dict(one for part in subject for one in part).get("commonName", "")

    def process_frame(self, frame: Any) -> None:
        prefix = Prefix.from_bytes(frame)
        if prefix.type in (Types.HELLO, Types.READY):
            try:
                told = msgpack.unpackb(bytes(frame[PREFIX_LEN + prefix.header_len :]))
                self._server.greet(self, str(told[HandshakeKeys.ENDPOINT_NAME]), self._owner, self._address)
            except Exception as error:
                self._server.note(self._address, error)
                self.close()
                raise CommError(CommError.CLOSED, f"refused: {error}") from error
        super().process_frame(frame)


class _Connection(BaseRequestHandler):
    """One connection: its handshake, then FLARE's own loop."""

    server: _Server

    def handle(self) -> None:
        address = str(self.client_address[0])
        secured = self.server.handshake(self.request, address)
        if secured is None:
            return
        secured.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for option, value in _ALIVE.items():
            if hasattr(socket, option):
                secured.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)
        driver, connection = self.server.driver, None
        try:
            connection = _Named(secured, self.server, address)
            driver.add_connection(connection)
            connection.read_loop()
            driver.close_connection(connection)
        finally:
            if connection is not None:
                self.server.forget(connection)
            secured.close()


def _own_name(path: str | None) -> str:
    """Return the name in the server's certificate, which its own processes may use."""
    if path is None:
        return ""
    with open(path, "rb") as file:
        subject = x509.load_pem_x509_certificate(file.read()).subject
    return str(subject.get_attributes_for_oid(x509.oid.NameOID.COMMON_NAME)[0].value)
