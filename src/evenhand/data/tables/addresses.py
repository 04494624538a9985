"""Database addresses, filled in from the environment only to connect.

An :class:`Address` is safe to print, record and compare: its text is the one in the job file, with ``***`` in place of
a password. Only a :class:`FilledAddress` has the values of variables. It shows the same text, and hides the rest in a
driver's messages.
"""

from __future__ import annotations

import os
from pathlib import Path

from evenhand.data.tables.redaction import HIDDEN, SQLITE, VARIABLE, Scrubber, shown_address
from evenhand.errors import DataError


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
