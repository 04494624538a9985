"""Text that is not ours, made fit for a terminal: ids, labels, columns and file names may hold anything."""

from __future__ import annotations

import json
from collections.abc import Iterable
from itertools import islice
from typing import Any, Final

_LONGEST: Final = 60


def printable(text: str) -> str:
    """The text with every sign a terminal might obey or hide written out, such as ``\\x1b``; line ends stay.

    Control characters, what turns the direction of writing, signs without a width and halves of a surrogate pair.
    """
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() or one == "\n" else _escaped(one) for one in text)


def quoted(value: Any, longest: int = _LONGEST) -> str:
    """A value as Python would write it, in one line and cut where it is longer than helps to find it."""
    if isinstance(value, (str, bytes)):
        value = value[: longest + 1]
    try:
        text = printable(repr(value)).replace("\n", " ")
    except Exception:
        # Whatever a stranger's object does, and an integer of more digits than Python writes.
        text = f"<{type(value).__name__}>"
    return text if len(text) <= longest else f"{text[: longest - 3]}..."


def listed(values: Iterable[Any], most: int = 10) -> str:
    """The first few values, quoted."""
    few = list(islice(values, most + 1))
    return ", ".join([*map(quoted, few[:most]), *(["..."] if len(few) > most else [])])


def toml_key(name: str) -> str:
    """A name as a key of a job file: in quotes, unless it is plain."""
    plain = name.isascii() and name.replace("-", "_").replace("_", "a").isalnum()
    return name if plain else json.dumps(name, ensure_ascii=False)


def _escaped(sign: str) -> str:
    return sign.encode("unicode_escape").decode("ascii")
