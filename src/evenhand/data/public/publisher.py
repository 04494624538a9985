"""Download a file from its publisher: https only, a size cap, and short patience."""

from __future__ import annotations

import http.client
import time
import urllib.error
import urllib.request
from typing import IO, Final
from urllib.parse import urlsplit

# A machine without internet must get to the next source within seconds.
CONNECT_SECONDS: Final = 5.0
TOTAL_SECONDS: Final = 120.0
_CHUNK: Final = 1 << 16


class Unavailable(Exception):
    """The publisher did not hand over the file.

    `away` is true when the host itself could not be reached, so asking it for the next file is a waste of time.
    """

    def __init__(self, reason: str, *, away: bool = False) -> None:
        super().__init__(reason)
        self.away = away


class _HttpsRedirects(urllib.request.HTTPRedirectHandler):
    """Follow redirects, but never down to an unencrypted or local address."""

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
    url: str, size: int, *, connect_seconds: float = CONNECT_SECONDS, total_seconds: float = TOTAL_SECONDS
) -> bytes:
    """Fetch `url`, reading at most `size` + 1 bytes; raise :class:`Unavailable` with the reason otherwise."""
    _require_https(url)
    opener = urllib.request.build_opener(_HttpsRedirects())
    request = urllib.request.Request(url, headers={"User-Agent": "evenhand"})
    deadline = time.monotonic() + total_seconds
    try:
        with opener.open(request, timeout=connect_seconds) as response:
            return _read(response, size + 1, deadline)
    except urllib.error.HTTPError as error:
        reason = f"HTTP {error.code} {error.reason}"
        error.close()
        raise Unavailable(reason) from None
    except urllib.error.URLError as error:
        raise Unavailable(str(error.reason), away=True) from error
    except (OSError, http.client.HTTPException) as error:
        raise Unavailable(str(error) or type(error).__name__, away=True) from error


def _read(response: http.client.HTTPResponse, limit: int, deadline: float) -> bytes:
    content = bytearray()
    while len(content) < limit:
        if time.monotonic() > deadline:
            # The socket's own timeout never fires on a server that drips a byte now and then.
            raise Unavailable(f"too slow: {len(content):,} bytes before the time limit", away=True)
        chunk = response.read1(min(_CHUNK, limit - len(content)))
        if not chunk:
            break
        content += chunk
    return bytes(content)


def _require_https(url: str) -> None:
    if urlsplit(url).scheme != "https":
        raise Unavailable(f"refused {url}: only https addresses are used")
