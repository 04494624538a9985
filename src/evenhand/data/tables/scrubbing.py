"""Taking secrets out of texts that somebody else wrote, such as a driver's messages."""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import groupby
from operator import itemgetter
from typing import Final, Self
from urllib.parse import quote, unquote

from evenhand.data.tables.showing import HIDDEN, shown_file

_BETWEEN: Final = re.compile(r"[:/?#@&=,;\s]+")
# That many signs in a row of a secret are taken out: who quotes a password may cut it short or double its quotes.
_WINDOW: Final = 8
# Shorter ones occur in other words by chance, and count as a whole word only.
_SHORT: Final = 4


class Scrubber:
    """Takes everything that secrets are made of out of a text, but for what is shown anyway.

    Parameters
    ----------
    secrets
        Addresses and values of variables; their parts count, as written and percent-decoded.
    shown
        What may be seen of them.
    """

    def __init__(self, secrets: Iterable[str], shown: str) -> None:
        self._forms = _parts(secrets) - _parts([shown]) - {""}

    @classmethod
    def of_addresses(cls, texts: Iterable[str]) -> Self:
        """For texts of which some may be addresses, with passwords in them."""
        found = [text for text in texts if shown_file(text) != text]
        return cls(found, " ".join(map(shown_file, found)))

    def __call__(self, text: str) -> str:
        hidden = bytearray(len(text))
        # Compared without regard to case where that does not move places.
        lower = text.lower() if len(text.lower()) == len(text) else text
        for form in self._forms:
            form = form.lower() if lower is not text else form
            for start, end in _places(form, lower):
                hidden[start:end] = b"x" * (end - start)
        runs = groupby(zip(text, hidden, strict=True), key=itemgetter(1))
        return "".join(HIDDEN if is_hidden else "".join(sign for sign, _ in run) for is_hidden, run in runs)


def _parts(texts: Iterable[str]) -> set[str]:
    found = {part for text in texts for part in _BETWEEN.split(text)}
    decoded = found | {form for part in found for form in (unquote(part), *_BETWEEN.split(unquote(part)))}
    return decoded | {quote(part, safe="", errors="replace") for part in decoded}


def _places(form: str, text: str) -> Iterable[tuple[int, int]]:
    """Where a secret stands in a text, whole or in part."""
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
