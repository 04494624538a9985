"""What may be shown of a database address: the parts that are known to hold no password, and nothing else.

Every part must be of a form in which it cannot be a password that was put in the wrong place. Where one is not, no more
than the scheme is shown: a guess at what was meant is how passwords come to light.
"""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import unquote

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
# Decoded, and with a digit in place of each variable.
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


def shown_address(written: str) -> str:
    """The address with passwords hidden; variables, whose values are known to nobody here, are shown by name."""
    if written.startswith(SQLITE):
        # A file's name may hold anything, but for what looks like a login or an option.
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
    """Whether it is clear where an address's user, password, host and the rest begin and end."""
    return _PARTS.fullmatch(address) is not None


def is_address(text: str) -> bool:
    """Whether somebody meant an address rather than a file's name."""
    return "://" in text or _SCHEME.match(text) is not None


def shown_file(text: str) -> str:
    """A file's name; where it might be an address with a login, as much of it as an address shows."""
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
    """Whether a value consists of variables alone."""
    return VARIABLE.sub("", value) == ""


def _scheme_only(written: str) -> str:
    found = _SCHEME.match(written)
    scheme = found.group() if found else ""
    rest = written.removeprefix(scheme)
    return written if _BETWEEN_VARIABLES.fullmatch(VARIABLE.sub("", rest)) else f"{scheme}{HIDDEN}"
