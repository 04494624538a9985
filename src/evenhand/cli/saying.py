"""Lines of text for people and programs."""

from __future__ import annotations

import sys

from evenhand.printing import printable


def say(text: str, *, end: str = "\n") -> None:
    """Print what a command gives: a terminal is shown no sign that it would obey, a file or pipe gets all as it is."""
    print(printable(text) if sys.stdout.isatty() else text, end=end)


def remark(text: str) -> None:
    """Print what a command has to say beside that."""
    print(printable(text), file=sys.stderr)
