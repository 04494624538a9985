"""The page about runs on this machine's own address, made anew for every look at it: what goes on is seen going on."""

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
    """A server of the page about these runs, for this machine alone; port 0 is any that is free."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            # Another name that leads here would let a page from elsewhere read this one.
            if self.headers.get("Host") not in [f"{name}:{server.server_port}" for name in (HOST, "localhost")]:
                self._answer(421, "this page is served to this machine alone")
            elif self.path != "/":
                self._answer(404, "there is one page here, at /")
            else:
                self._answer_page()

        def _answer_page(self) -> None:
            try:
                records = [RunRecord.read(run) for run in runs]
                going_on = not all(record.finished for record in records)
                page = make_page(records, refresh_seconds=REFRESH_SECONDS if going_on else None)
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
            """Nothing: who looks is no news."""

    try:
        server = ThreadingHTTPServer((HOST, port), Handler)
    except OSError as error:
        raise ResourceError(f"port {port} cannot be had: {error.strerror}; choose another with --port") from error
    return server
