"""Serve the report page on this machine; each request renders it anew, so that it follows a running job."""

from __future__ import annotations

from collections.abc import Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Final

from evenhand.errors import EvenhandError, ResourceError
from evenhand.report.page import make_page
from evenhand.report.record import RunRecord

HOST: Final = "127.0.0.1"
REFRESH_SECONDS: Final = 2


def page_server(runs: Sequence[Path], port: int) -> ThreadingHTTPServer:
    """Return a server of the page about these runs, bound to loopback; port 0 takes any free port."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            # DNS rebinding: another host name would let a foreign page read this one.
            if self.headers.get("Host") not in [f"{name}:{server.server_port}" for name in (HOST, "localhost")]:
                self._answer(421, "this page is served to this machine only")
            elif self.path != "/":
                self._answer(404, "the only page is /")
            else:
                self._answer_page()

        def _answer_page(self) -> None:
            try:
                records = [RunRecord.read(run) for run in runs]
                running = not all(record.finished for record in records)
                page = make_page(records, refresh_seconds=REFRESH_SECONDS if running else None)
            except EvenhandError as error:
                self._answer(500, str(error))
            else:
                self._answer(200, page, "text/html")

        def _answer(self, status: int, text: str, kind: str = "text/plain") -> None:
            content = text.encode()
            self.send_response(status)
            self.send_header("Content-Type", f"{kind}; charset=utf-8")
            self.send_header("Content-Length", str(len(content)))
            self.send_header("Cache-Control", "no-store")
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, format: str, *args: object) -> None:
            """Do not log requests."""

    try:
        server = ThreadingHTTPServer((HOST, port), Handler)
    except OSError as error:
        raise ResourceError(f"port {port} is not available: {error.strerror}; choose another with --port") from error
    return server
