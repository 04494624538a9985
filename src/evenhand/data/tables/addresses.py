"""Database addresses, filled in from the environment only to connect.

An :class:`Address` is safe to print, record and compare: its text is the one in the job file, with ``***`` in place of
a password. Only a :class:`FilledAddress` has the values of variables. It shows the same text, and hides the rest in a
driver's messages.

An address is shown only if every part has a form in which it cannot be a misplaced password. Otherwise only the scheme
is shown: guessing what was meant is how passwords leak.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Final, Self
from urllib.parse import quote, unquote

from evenhand.errors import DataError

SQLITE: Final = "sqlite:///"
HIDDEN: Final = "***"
VARIABLE: Final = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")
_SCHEME: Final = re.compile(
    r"(?:sqlite|postgres(?:ql)?|mysql|mariadb|mssql|oracle|duckdb|mongodb|redis|snowflake|redshift|odbc|jdbc|https?|ftp"
    r"|s3|gs|file)(?:\+[a-z0-9]+)?:(?://)?",
    re.IGNORECASE,
)
_PARTS: Final = re.compile(
    r"""
    (?P<scheme>[A-Za-z0-9+]+)://
    (?:(?P<user>[^:/?\#@\s]*)(?P<password>:[^/?\#@\s]*)?@)?
    (?P<hosts>[^/?\#@\s]*)
    (?P<path>/[^?\#@\s]*)?
    (?:\?(?P<query>[^\#@\s]*))?
    """,
    re.VERBOSE,
)
# These match decoded parts, with a digit in place of each variable.
_USER: Final = re.compile(r"[\w.+~@-]*")
_HOST: Final = re.compile(r"(?:\[[0-9A-Fa-f:.]+\]|[\w./-]*)(?::\d{0,5})?")
_PATH: Final = re.compile(r"[\w./ +~-]*")
_VALUE: Final = re.compile(r"[\w./, +-]*")
_HARMLESS: Final = frozenset(
    {"host", "hostaddr", "port", "dbname", "user", "sslmode", "sslcert", "sslkey", "sslrootcert", "connect_timeout"}
    | {"application_name", "client_encoding", "target_session_attrs"}
)
_BETWEEN_VARIABLES: Final = re.compile(r"[:/@?&=.,]*")
_LOGIN: Final = re.compile(r":.*@", re.DOTALL)
_SEPARATORS: Final = re.compile(r"[:/?#@&=,;\s]+")
# A run of this many characters of a secret is hidden: a message may cut a password short or double its quotes.
_WINDOW: Final = 8
# Shorter secrets occur in other words by chance, and are hidden as whole words only.
_SHORT: Final = 4


def shown_address(written: str) -> str:
    """Return the address with passwords hidden; variables are shown by name."""
    if written.startswith(SQLITE):
        # A file's name may hold anything but what looks like a login or an option.
        path = written.removeprefix(SQLITE)
        return f"{SQLITE}{HIDDEN}" if _LOGIN.search(path) or "?" in path else written
    parts = _PARTS.fullmatch(written)
    if parts is None or _SCHEME.fullmatch(f"{parts['scheme']}://") is None or not _is_plain(parts):
        return _scheme_only(written)
    text = f"{parts['scheme']}://"
    if parts["user"] is not None:
        text += parts["user"] + _hidden_password(parts["password"]) + "@"
    text += parts["hosts"] + (parts["path"] or "")
    if parts["query"] is None:
        return text
    return f"{text}?{'&'.join(_shown_option(one) for one in parts['query'].split('&'))}"


def can_be_taken_apart(address: str) -> bool:
    """Tell whether user, password, host and the rest of an address can be separated."""
    return _PARTS.fullmatch(address) is not None


def is_address(text: str) -> bool:
    """Tell whether a text is an address rather than a file's name."""
    return "://" in text or _SCHEME.match(text) is not None


def shown_file(text: str) -> str:
    """Return a file's name, redacted like an address if it might be one with a login."""
    return shown_address(text) if is_address(text) or _LOGIN.search(text) else text


def _is_plain(parts: re.Match[str]) -> bool:
    hosts = (parts["hosts"] or "").split(",")
    return (
        _USER.fullmatch(_decoded(parts["user"])) is not None
        and all(_HOST.fullmatch(_decoded(host)) for host in hosts)
        and _PATH.fullmatch(_decoded(parts["path"])) is not None
    )


def _decoded(part: str | None) -> str:
    return unquote(VARIABLE.sub("0", part or ""))


def _hidden_password(password: str | None) -> str:
    if password is None:
        return ""
    return password if _is_named(password[1:]) else f":{HIDDEN}"


def _shown_option(option: str) -> str:
    key, is_set, value = option.partition("=")
    if not is_set or _VALUE.fullmatch(_decoded(key)) is None:
        return HIDDEN
    harmless = unquote(key).lower() in _HARMLESS and _VALUE.fullmatch(_decoded(value)) is not None
    return option if harmless or _is_named(value) else f"{key}={HIDDEN}"


def _is_named(value: str) -> bool:
    """Tell whether a value consists of variables only."""
    return VARIABLE.sub("", value) == ""


def _scheme_only(written: str) -> str:
    found = _SCHEME.match(written)
    scheme = found.group() if found else ""
    rest = written.removeprefix(scheme)
    return written if _BETWEEN_VARIABLES.fullmatch(VARIABLE.sub("", rest)) else f"{scheme}{HIDDEN}"


class Scrubber:
    """Hide every part of the secrets in a text, except what may be shown anyway.

    Parameters
    ----------
    secrets
        Addresses and values of variables; their parts are hidden, as written and percent-decoded.
    shown
        What may be shown of them.
    """

    def __init__(self, secrets: Iterable[str], shown: str) -> None:
        self._forms = _parts(secrets) - _parts([shown]) - {""}

    @classmethod
    def of_addresses(cls, texts: Iterable[str]) -> Self:
        """Make a scrubber for texts of which some may be addresses with passwords."""
        found = [text for text in texts if shown_file(text) != text]
        return cls(found, " ".join(map(shown_file, found)))

    def __call__(self, text: str) -> str:
        hidden = bytearray(len(text))
        # Ignore case where that does not move places.
        lower = text.lower() if len(text.lower()) == len(text) else text
        for form in self._forms:
            form = form.lower() if lower is not text else form
            for start, end in _places(form, lower):
                hidden[start:end] = b"x" * (end - start)
        runs = groupby(zip(text, hidden, strict=True), key=itemgetter(1))
        return "".join(HIDDEN if is_hidden else "".join(sign for sign, _ in run) for is_hidden, run in runs)


def _parts(texts: Iterable[str]) -> set[str]:
    found = {part for text in texts for part in _SEPARATORS.split(text)}
    decoded = found | {form for part in found for form in (unquote(part), *_SEPARATORS.split(unquote(part)))}
    return decoded | {quote(part, safe="", errors="replace") for part in decoded}


def _places(form: str, text: str) -> Iterable[tuple[int, int]]:
    """Find a secret in a text, whole or in part."""
    if len(form) < _SHORT:
        for match in re.finditer(rf"(?<!\w){re.escape(form)}(?!\w)", text):
            yield match.span()
        return
    size = min(_WINDOW, len(form))
    for window in {form[start : start + size] for start in range(len(form) - size + 1)}:
        place = text.find(window)
        while place >= 0:
            yield place, place + size
            place = text.find(window, place + 1)


class Address:
    """A database address as the user wrote it.

    Parameters
    ----------
    written
        The address, with ``${NAME}`` for the value of an environment variable.
    base
        Folder that the relative path of an SQLite file starts from.
    """

    __slots__ = ("_base", "_shown", "_written")

    def __init__(self, written: str, base: Path | None = None) -> None:
        self._written = written
        self._base = base
        self._shown = shown_address(written)

    @classmethod
    def of(cls, address: str | Address) -> Address:
        if not isinstance(address, (str, Address)):
            raise DataError(f"a database address is text, not {type(address).__name__}")
        return address if isinstance(address, Address) else cls(address)

    def __str__(self) -> str:
        return self._shown

    def __repr__(self) -> str:
        return f"Address({self._shown!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Address) and (self._written, self._base) == (other._written, other._base)

    def __hash__(self) -> int:
        return hash((self._written, self._base))

    @property
    def lacks_password(self) -> bool:
        """Whether the address comes from a run folder, which does not keep passwords."""
        return HIDDEN in self._written

    def based(self, base: Path) -> Address:
        """Return the address with relative paths that start from a folder."""
        return Address(self._written, base)

    def fill_in(self) -> FilledAddress:
        """Return the address with the values of its variables, to connect with."""
        names = VARIABLE.findall(self._written)
        for name in names:
            if name not in os.environ:
                raise DataError(f"the database address {self} needs the environment variable {name}: set it")
        text = VARIABLE.sub(lambda match: os.environ[match.group(1)], self._written)
        scrubber = Scrubber([text, *(os.environ[name] for name in names)], self._shown)
        if self._base is not None and text.startswith(SQLITE):
            text = f"{SQLITE}{self._base / text.removeprefix(SQLITE)}"
        return FilledAddress(text, self._shown, scrubber)


class FilledAddress:
    """An address with all its secrets. Its text is redacted; only `reveal` gives the rest."""

    __slots__ = ("_scrubber", "_shown", "_text")

    def __init__(self, text: str, shown: str, scrubber: Scrubber) -> None:
        self._text = text
        self._shown = shown
        self._scrubber = scrubber

    def __str__(self) -> str:
        return self._shown

    def __repr__(self) -> str:
        return f"FilledAddress({self._shown!r})"

    def reveal(self) -> str:
        """Return the whole address, for a driver; do not keep it in a variable."""
        return self._text

    def scrub(self, text: str) -> str:
        """Hide the address's secrets in a driver's message."""
        return self._scrubber(text)
