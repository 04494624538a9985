"""Downloads from a real https server on this machine, whose certificate the test makes."""

from __future__ import annotations

import hashlib
import http.client
import shutil
import socket
import ssl
import subprocess
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from evenhand.data import fetch
from evenhand.data.public.catalog import Packing, PublicFile, PublicSet
from evenhand.data.public.downloads import Unavailable, download
from evenhand.errors import FetchError

CONTENT = b"published\n"


class _Publisher(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        if self.path == "/file":
            self._answer(200, CONTENT)
        elif self.path == "/endless":
            self._answer(200, b"x" * 1_000_000)
        elif self.path == "/slow":
            self.send_response(200)
            self.end_headers()
            while not self.server.stopping.is_set():  # type: ignore[attr-defined]
                try:
                    self.wfile.write(b"x")
                except OSError:
                    return
                time.sleep(0.02)
        elif self.path.startswith("/to/"):
            self.send_response(302)
            self.send_header("Location", self.path.removeprefix("/to/"))
            self.end_headers()
        else:
            self._answer(404, b"")

    def _answer(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.end_headers()
        # The client hangs up once it has seen too much.
        try:
            self.wfile.write(body)
        except OSError:
            self.close_connection = True

    def log_message(self, format: str, *args: object) -> None:
        """Stay silent."""


class _Server(ThreadingHTTPServer):
    def handle_error(self, request: object, client_address: object) -> None:
        """Stay silent: clients that refuse the certificate are part of the tests."""


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    if shutil.which("openssl") is None:
        pytest.skip("the openssl program makes the test's certificate, and it is not installed")
    folder = tmp_path_factory.mktemp("tls")
    command = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=localhost"
    command += " -addext subjectAltName=IP:127.0.0.1 -keyout key.pem -out cert.pem"
    subprocess.run(command.split(), cwd=folder, check=True, capture_output=True)
    return folder / "cert.pem", folder / "key.pem"


@pytest.fixture
def publisher(certificate: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    server = _Server(("127.0.0.1", 0), _Publisher)
    server.stopping = threading.Event()  # type: ignore[attr-defined]
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*certificate)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate[0]))
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    yield f"https://127.0.0.1:{server.server_port}"
    server.stopping.set()  # type: ignore[attr-defined]
    server.shutdown()
    thread.join()
    server.server_close()


def test_download(publisher: str, tmp_path: Path) -> None:
    for place, url in enumerate((f"{publisher}/file", f"{publisher}/to/{publisher}/file")):
        download(url, tmp_path / str(place), len(CONTENT))
        assert (tmp_path / str(place)).read_bytes() == CONTENT


def test_reading_stops_one_byte_past_the_promised_size(
    publisher: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[int] = []
    real = http.client.HTTPResponse.read1

    def counted(response: http.client.HTTPResponse, n: int = -1) -> bytes:
        chunk = real(response, n)
        read.append(len(chunk))
        return chunk

    monkeypatch.setattr(http.client.HTTPResponse, "read1", counted)
    with pytest.raises(Unavailable, match="more than the expected 1,000 bytes"):
        download(f"{publisher}/endless", tmp_path / "file", 1000)
    assert sum(read) == 1001
    assert not (tmp_path / "file").exists()


def test_missing_file(publisher: str, tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match="HTTP 404") as caught:
        download(f"{publisher}/gone", tmp_path / "file", 10)
    assert not caught.value.away, "the host answers: other files may be there"


@pytest.mark.parametrize("target", ["http://127.0.0.1/file", "file:///etc/hostname", "ftp://127.0.0.1/file"])
def test_only_https_even_after_a_redirect(publisher: str, target: str, tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match="only https"):
        download(target, tmp_path / "file", 10)
    # Python's own handler stops the file: redirect before ours does.
    with pytest.raises(Unavailable, match=r"only https|is not allowed"):
        download(f"{publisher}/to/{target}", tmp_path / "file", 10)


def test_dripping_server_meets_the_deadline(publisher: str, tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match="too slow"):
        download(f"{publisher}/slow", tmp_path / "file", 10_000, total_seconds=0.2)


def test_unknown_certificate_is_refused(publisher: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SSL_CERT_FILE")
    with pytest.raises(Unavailable, match=r"(?i)certificate"):
        download(f"{publisher}/file", tmp_path / "file", 10)


def test_silent_server_meets_the_timeout(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        url = f"https://127.0.0.1:{listener.getsockname()[1]}/file"
        with pytest.raises(Unavailable, match="timed out") as caught:
            download(url, tmp_path / "file", 10, connect_seconds=0.2)
    assert caught.value.away


def _one_file(url: str, sha256: str) -> PublicSet:
    file = PublicFile("file", len(CONTENT), sha256, url, "none==0", "none")
    return PublicSet("one", "One file", (file,), 1, "none", "none")


def test_fetch_from_the_publisher(publisher: str, tmp_path: Path) -> None:
    entry = _one_file(f"{publisher}/file", hashlib.sha256(CONTENT).hexdigest())
    found = fetch(entry, cache=tmp_path, sources=("cache", "publisher"))
    assert found == {"file": tmp_path / "one" / "file"}
    assert found["file"].read_bytes() == CONTENT


def test_a_packed_file_is_kept_as_it_came(publisher: str, tmp_path: Path) -> None:
    entry = _one_file(f"{publisher}/file", "0" * 64)
    packing = Packing(".gz", len(CONTENT), hashlib.sha256(CONTENT).hexdigest())
    packed = replace(entry, files=(replace(entry.files[0], packing=packing),))
    assert fetch(packed, cache=tmp_path, sources=("publisher",)) == {"file": tmp_path / "one" / "file.gz"}
    assert (tmp_path / "one" / "file.gz").read_bytes() == CONTENT
    assert fetch(packed, cache=tmp_path, sources=("cache",)) == {"file": tmp_path / "one" / "file.gz"}
    small = replace(entry, files=(replace(entry.files[0], packing=replace(packing, limit=3)),))
    with pytest.raises(FetchError, match="more than the expected 3 bytes"):
        fetch(small, cache=tmp_path / "empty", sources=("publisher",))


def test_changed_file_at_the_publisher_is_refused(publisher: str, tmp_path: Path) -> None:
    entry = _one_file(f"{publisher}/file", "0" * 64)
    with pytest.raises(FetchError, match=rf"publisher: file: SHA256 hash .* expected sha256:{'0' * 64} but got \w+"):
        fetch(entry, cache=tmp_path, sources=("publisher",))
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]
