"""Database addresses: variables filled in from the environment, passwords kept out of sight."""

from __future__ import annotations

import os
import re
from typing import Final
from urllib.parse import unquote

from evenhand.errors import DataError

_VARIABLE: Final = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")
# Greedy up to the last @, because people forget to percent-encode an @ or / in a password.
_USER_PASSWORD: Final = re.compile(r"(://[^:/?#@]*):(.*)@")
# In the query of an address, or among libpq's "key = value" words, where it may be quoted.
_QUERY_PASSWORD: Final = re.compile(r"((?:^|[?&\s])(?:ssl)?password\s*=\s*)('[^']*'|[^&#\s]*)", re.IGNORECASE)
_HIDDEN: Final = "***"


def expand(address: str) -> str:
    """Replace each ``${NAME}`` by that environment variable, so that secrets stay out of job files."""

    def value(match: re.Match[str]) -> str:
        name = match.group(1)
        if name not in os.environ:
            raise DataError(f"the database address {redact(address)} needs the environment variable {name}: set it")
        return os.environ[name]

    return _VARIABLE.sub(value, address)


def redact(address: str) -> str:
    """Return the address with its passwords hidden, fit for messages and reports."""
    hidden = _USER_PASSWORD.sub(rf"\1:{_HIDDEN}@", address)
    return _QUERY_PASSWORD.sub(rf"\1{_HIDDEN}", hidden)


def scrub(text: str, address: str) -> str:
    """Remove an address's passwords from a text, such as a driver's error message that quotes them."""
    text = text.replace(address, redact(address))
    passwords = [match.group(2) for pattern in (_USER_PASSWORD, _QUERY_PASSWORD) for match in pattern.finditer(address)]
    forms = {form for password in passwords for form in (password, unquote(password)) if form}
    for form in sorted(forms, key=len, reverse=True):
        text = text.replace(form, _HIDDEN)
    return text
