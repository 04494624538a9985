"""Print text with foreign values safely: ids, labels and file names may contain anything. Tell which are numbers."""

from __future__ import annotations

import difflib
import json
import math
import sys
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from typing import Any, Final

import numpy as np

_LONGEST: Final = 60


def printable(text: str) -> str:
    """Return the text with every character that a terminal might obey or hide escaped, such as ``\\x1b``.

    These are control characters, direction marks, zero-width characters and lone surrogates; line ends stay.
    """
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() or one == "\n" else _escaped(one) for one in text)


def quoted(value: Any, longest: int = _LONGEST) -> str:
    """Return the `repr` of a value on one line, cut to a length that still helps to find it."""
    if isinstance(value, (str, bytes)):
        value = value[: longest + 1]
    try:
        text = printable(repr(value)).replace("\n", " ")
    except Exception:
        # Foreign objects may raise anything, and so does an integer with too many digits.
        text = f"<{type(value).__name__}>"
    return text if len(text) <= longest else f"{text[: longest - 3]}..."


def listed(values: Iterable[Any], most: int = 10) -> str:
    """Return the first few values, quoted."""
    few = list(islice(values, most + 1))
    return ", ".join([*map(quoted, few[:most]), *(["..."] if len(few) > most else [])])


def near(name: str, known: Sequence[str]) -> str:
    """Return the end of a message about an unknown name: the closest known name, or all of them."""
    close = difflib.get_close_matches(name, known, n=1)
    return f"; did you mean {close[0]!r}?" if close else f"; choose one of {', '.join(known)}"


def toml_key(name: str) -> str:
    """Return a name as a TOML key, in quotes if necessary."""
    plain = name.isascii() and name.replace("-", "_").replace("_", "a").isalnum()
    return name if plain else json.dumps(name, ensure_ascii=False)


def toml_text(value: Any) -> str:
    """Return a value as TOML text on one line."""
    if isinstance(value, Mapping):
        return f"{{ {', '.join(f'{toml_key(str(name))} = {toml_text(one)}' for name, one in value.items())} }}"
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(toml_text, value))}]"
    if isinstance(value, float) and value.is_integer() and abs(value) < 2**53:
        return str(int(value))
    # Text, whole numbers, true and false are written as in JSON.
    return json.dumps(value, ensure_ascii=False)


def _escaped(sign: str) -> str:
    return sign.encode("unicode_escape").decode("ascii")


def is_number(value: object) -> bool:
    """Return whether a setting is a finite number that fits a float; booleans are not numbers."""
    if isinstance(value, bool) or not isinstance(value, (int, float, np.integer, np.floating)):
        return False
    try:
        return math.isfinite(value)
    except OverflowError:
        return False


def is_whole(value: object) -> bool:
    """Return whether a setting is an integer of at most 64 bits."""
    return is_number(value) and isinstance(value, (int, np.integer)) and -(2**63) <= int(value) < 2**63


def say(text: str, *, end: str = "\n") -> None:
    """Print a command's result to stdout; control characters are escaped in a terminal, not in a file or pipe."""
    print(printable(text) if sys.stdout.isatty() else text, end=end)


def remark(text: str) -> None:
    """Print a note to stderr."""
    print(printable(text), file=sys.stderr)
