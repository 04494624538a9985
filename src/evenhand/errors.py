"""Every error evenhand raises on purpose, in one hierarchy, and its warnings in another.

A message says what was wrong, where, and what to do about it. Each class carries the exit code the command line
ends with, so that scripts can tell a typing mistake from a missing data set.
"""

from __future__ import annotations

import errno
from typing import Final

from evenhand.printing import printable

FELL_SHORT: Final = 9
"""The exit code of a training that is done and kept, but did not converge, or gives every row the same label."""


_NO_ROOM: Final = {
    errno.ENOSPC: "the disk is full",
    errno.EDQUOT: "the disk quota is used up",
    errno.EFBIG: "the file would be larger than this process may write (ulimit -f)",
    errno.ENOMEM: "there is too little memory",
}


def no_room(error: OSError) -> str | None:
    """In words what there was too little of, if that is why the operating system refused something."""
    return _NO_ROOM.get(error.errno or 0)


class EvenhandError(Exception):
    """Base of all errors raised on purpose.

    Messages quote ids, columns and file names, so whatever a terminal would obey is written out.
    """

    exit_code = 1

    def __init__(self, message: str = "") -> None:
        super().__init__(printable(message))


class InputError(EvenhandError, ValueError):
    """What the user handed over cannot be used: a wrong shape, value, key or option."""

    exit_code = 2


class DataError(InputError):
    """A table, column, id, label or group cannot be used."""


class ConstraintError(InputError):
    """A constraint cannot be stated on these rows, for instance because a slice is empty."""


class JobError(InputError):
    """A job file is wrong; the message names the key."""


class FetchError(EvenhandError):
    """A public data set could not be brought, or not be kept."""

    exit_code = 3


class NowhereFoundError(FetchError):
    """None of a data set's sources has it, and nothing else is wrong: another set may take its place."""


class RunError(EvenhandError):
    """A run folder cannot be read, resumed or written."""

    exit_code = 4


class LostError(RunError):
    """Somebody takes part no more, or nothing moves: killed, cut off, stopped. The run can go on from a checkpoint."""


class ProtocolError(EvenhandError):
    """A message between roles was refused: unknown, malformed, non-finite or of the wrong size."""

    exit_code = 5


class DivergenceError(EvenhandError):
    """Training left the finite numbers; the message says which setting to change."""

    exit_code = 6


class ResourceError(EvenhandError):
    """The machine has too little of something: disk, allowed file size, memory. With more of it the same works."""

    exit_code = 8


class MissingExtraError(EvenhandError, ImportError):
    """An optional dependency is needed; the message gives the pip command."""

    exit_code = 7

    def __init__(self, what: str, extra: str) -> None:
        super().__init__(f"{what} needs an optional part of evenhand: pip install 'evenhand[{extra}]'")

    def __str__(self) -> str:
        """With the reason if the part is installed and does not load, for instance for want of memory."""
        installed = isinstance(self.__cause__, ImportError) and not isinstance(self.__cause__, ModuleNotFoundError)
        return printable(f"{self.args[0]} (it is installed, but: {self.__cause__})") if installed else self.args[0]


class EvenhandWarning(UserWarning):
    """Base of all warnings: a result is not what one would take it for."""

    def __init__(self, message: str = "") -> None:
        super().__init__(printable(message))


class SmallSliceWarning(EvenhandWarning):
    """A slice has too few rows to say anything about the constraint's bound, or a crossing of groups has none."""


class ColumnWarning(EvenhandWarning):
    """Something was made of a column that its owner may not expect; the message names the key that changes it."""


class GridEdgeWarning(EvenhandWarning):
    """The best setting is the first or last that was tried: a better one may lie beyond."""


class ExactRatesWarning(EvenhandWarning):
    """No model was found whose exact rates on the training rows meet their bounds; the nearest one is returned."""


class UnprovenWarning(EvenhandWarning):
    """A constraint asks for confidence, and the training rows do not prove its bound; they prove a wider one."""
