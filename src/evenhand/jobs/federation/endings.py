"""How a run ended for each participant, and what follows of it: who is missing, who refused, who stopped.

Participants tell each other their endings. These name participants and kinds of errors, and never quote a row.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final, NamedTuple

from evenhand.errors import EvenhandError, LostError, StoppedError
from evenhand.printing import printable
from evenhand.protocol.roles import SERVER

_LONGEST: Final = 2000
"""Characters of a text that another participant sent."""


class Ending(NamedTuple):
    """How a run ended for one participant.

    Attributes
    ----------
    says
        What others may know of it.
    lost
        Whether it ended because of others; the run can then resume.
    missing
        Participants that it has not heard from.
    """

    says: str
    lost: bool = False
    missing: tuple[str, ...] = ()

    def to_bytes(self) -> bytes:
        return json.dumps(self._asdict()).encode()


class Cause(NamedTuple):
    """Why a run ended, for everybody.

    Attributes
    ----------
    again
        Whether the run can resume.
    names
        The participants that are missing, have refused or have stopped; empty if it was none of them.
    """

    says: str
    again: bool = False
    names: tuple[str, ...] = ()

    def to_bytes(self) -> bytes:
        return json.dumps(self._asdict()).encode()


def public_error(error: Exception) -> str:
    """Return what other participants learn about an error: its kind only, because its text may quote a row."""
    kind = type(error).__name__ if isinstance(error, EvenhandError) else "error"
    return f"it stopped ({kind}); see the log on its own console"


def ending_of(error: Exception) -> Ending:
    """Return a participant's ending by an error, as others may know it."""
    if isinstance(error, StoppedError):
        return Ending("it was stopped from outside", lost=True)
    if isinstance(error, LostError) and error.missing:
        return Ending(f"it has not heard from {_listed_names(error.missing)}", True, error.missing)
    return Ending(public_error(error), isinstance(error, LostError))


def read_ending(content: bytes, participants: Collection[str]) -> Ending | None:
    """Read the ending that another participant sent; None if it is not one."""
    found = _object(content)
    says, missing = found.get("says"), found.get("missing")
    if not isinstance(says, str) or not isinstance(missing, list):
        return None
    known = tuple(name for name in participants if name in missing)
    return Ending(printable(says[:_LONGEST]), found.get("lost") is True, known)


def read_cause(content: bytes, participants: Collection[str]) -> Cause | None:
    """Read the cause that the server sent; None if it is not one."""
    found = _object(content)
    says, names = found.get("says"), found.get("names")
    if not isinstance(says, str) or not isinstance(names, list):
        return None
    known = tuple(name for name in participants if name in names)
    return Cause(printable(says[:_LONGEST]), found.get("again") is True, known)


def _object(content: bytes) -> dict[str, Any]:
    try:
        found = json.loads(content)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def cause_of(error: EvenhandError, endings: Mapping[str, Ending], parties: Sequence[str]) -> Cause:
    """Return why a run ended.

    Parameters
    ----------
    error
        What the server ended with.
    endings
        The endings of the parties that have told theirs.
    parties
        All participants but the server.
    """
    if not isinstance(error, LostError):
        return Cause(str(error), False, tuple(name for name in parties if f"{name}:" in str(error)))
    if failed := [name for name in parties if name in endings and not endings[name].lost]:
        return Cause("; ".join(f"{name}: {endings[name].says}" for name in failed), False, tuple(failed))
    told = dict(endings)
    if error.missing:
        told[SERVER] = Ending("", True, error.missing)
    if missing := _most_missed(told):
        by = [name for name, one in told.items() if set(missing) & set(one.missing)]
        says = f"{_listed(missing)} missing: not heard from by {_listed_names(by)}"
        return Cause(f"{says}; check that it runs and can be reached", True, missing)
    silent = tuple(name for name in parties if name not in endings)
    if isinstance(error, StoppedError) and silent and len(silent) < len(parties):
        return Cause(f"{_listed(silent)} missing: its process ended without a word", True, silent)
    if isinstance(error, StoppedError):
        return Cause("the job was aborted, or the server was stopped", True)
    return Cause(str(error), True)


def _most_missed(told: Mapping[str, Ending]) -> tuple[str, ...]:
    """Return the participants that most others miss.

    One whose connection was cut misses everybody, and everybody else misses only that one.
    """
    counts = Counter(name for one in told.values() for name in one.missing)
    most = max(counts.values(), default=0)
    return tuple(sorted(name for name, count in counts.items() if count == most))


def _listed(names: Sequence[str]) -> str:
    return f"{_listed_names(names)} {'is' if len(names) == 1 else 'are'}"


def _listed_names(names: Sequence[str]) -> str:
    named = ["the server" if name == SERVER else name for name in names]
    return named[0] if len(named) == 1 else f"{', '.join(named[:-1])} and {named[-1]}"
