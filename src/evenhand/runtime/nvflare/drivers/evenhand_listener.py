"""Listener of NVIDIA FLARE's server that strangers cannot block.

FLARE's own listener does the TLS handshake on the thread that accepts connections. One connection that says nothing
then keeps all others out. Here each handshake has a thread and a deadline of its own, and the number of unfinished
handshakes is limited. What follows the handshake is FLARE's own code, so clients need no change.

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

from nvflare.fuel.f3.drivers.driver_params import DriverParams
from nvflare.fuel.f3.drivers.net_utils import get_ssl_context
from nvflare.fuel.f3.drivers.socket_conn import SocketConnection
from nvflare.fuel.f3.drivers.tcp_driver import TcpDriver

SCHEME: Final = "evenhand"
"""Scheme of the server's address in its start-up kit; clients go on to use `tcp`."""
HANDSHAKE_SECONDS: Final = 10.0
MOST_HANDSHAKES: Final = 256
"""Connections that may be without a finished handshake. One more closes the oldest of the busiest address."""
_QUIET_SECONDS: Final = 10.0
"""Minimum time between two lines about refused connections."""
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
            self._note(address, error)
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

    def _note(self, address: str, error: Exception) -> None:
        """Write one line about refused connections at most every few seconds."""
        with self._lock:
            self._refused += 1
            if time.monotonic() - self._told < _QUIET_SECONDS:
                return
            count, self._refused, self._told = self._refused, 0, time.monotonic()
        reason = getattr(error, "reason", None) or error or type(error).__name__
        more = f" ({count - 1} more since the last such line)" if count > 1 else ""
        _log.warning(f"refused a connection from {address}, which finished no TLS handshake: {reason}{more}")

    def handle_error(self, request: Any, client_address: Any) -> None:
        _log.debug(f"connection from {client_address} ended with an error", exc_info=True)


class _Connection(BaseRequestHandler):
    """One connection: its handshake, then FLARE's own loop."""

    server: _Server

    def handle(self) -> None:
        secured = self.server.handshake(self.request, str(self.client_address[0]))
        if secured is None:
            return
        driver = self.server.driver
        try:
            connection = SocketConnection(secured, self.server.connector, self.server.ssl_context is not None)
            driver.add_connection(connection)
            connection.read_loop()
            driver.close_connection(connection)
        finally:
            secured.close()
