"""Names of participants."""

from __future__ import annotations

import re
from typing import Final

from evenhand.errors import InputError
from evenhand.protocol.roles import SERVER

# Names become file names.
NAME: Final = re.compile(r"\w[\w .-]{0,63}")


def check_name(kind: str, name: str) -> None:
    """Refuse a name that is not a valid file name, or that is the server's."""
    if name == SERVER:
        raise InputError(f"a {kind}'s name is {name!r}, which is the server's own; choose another")
    if not NAME.fullmatch(name):
        raise InputError(
            f"a {kind}'s name is {name!r}; a name has letters, digits, blanks, '-', '_' and '.', and begins with a "
            "letter or digit"
        )
