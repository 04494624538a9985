"""Errors and warnings that evenhand raises, each in one hierarchy.

A message says what is wrong, where, and what to do. Each class carries the exit code of the command line, so that
scripts can tell a typing mistake from a missing data set.
"""

from __future__ import annotations

import errno
from collections.abc import Sequence
from typing import Final

from evenhand.printing import printable

FELL_SHORT: Final = 9
"""Exit code of a finished training that falls short: not converged, one label for all, contradicted on new rows."""


_NO_ROOM: Final = {
    errno.ENOSPC: "the disk is full",
    errno.EDQUOT: "the disk quota is used up",
    errno.EFBIG: "the file would be larger than this process may write (ulimit -f)",
    errno.ENOMEM: "out of memory",
}


def no_room(error: OSError) -> str | None:
    """Return which resource ran out, if that is why the operating system raised the error."""
    return _NO_ROOM.get(error.errno or 0)


class EvenhandError(Exception):
    """Base of all errors that evenhand raises.

    Messages quote ids, columns and file names, so control characters are escaped.
    """

    exit_code = 1

    def __init__(self, message: str = "") -> None:
        super().__init__(printable(message))


class InputError(EvenhandError, ValueError):
    """The input is invalid: a wrong shape, value, key or option."""

    exit_code = 2


class DataError(InputError):
    """A table, column, id, label or group cannot be used."""


class ConstraintError(InputError):
    """A constraint cannot be stated on these rows, for instance because a slice is empty."""


class JobError(InputError):
    """A job file is wrong; the message names the key."""


class FetchError(EvenhandError):
    """A public data set could not be fetched or cached."""

    exit_code = 3


class NowhereFoundError(FetchError):
    """No source has the data set, and nothing else failed: the caller may use another set."""


class RunError(EvenhandError):
    """A run folder cannot be read, resumed or written."""

    exit_code = 4


class LostError(RunError):
    """A participant disconnected or the run stalled. The run can resume from a checkpoint.

    `missing` names the participants that were not heard from, if they are known.
    """

    exit_code = 10

    def __init__(self, message: str = "", missing: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.missing = tuple(missing)


class StoppedError(LostError):
    """The run was stopped from outside: by its submitter, or because another participant has ended."""


class ProtocolError(EvenhandError):
    """A message between roles was refused: unknown, malformed, non-finite or of the wrong size."""

    exit_code = 5


class DivergenceError(EvenhandError):
    """Training diverged to infinity or NaN; the message says which setting to change."""

    exit_code = 6


class ResourceError(EvenhandError):
    """The machine ran out of disk, memory or allowed file size; with more of it the same call works."""

    exit_code = 8


class MissingExtraError(EvenhandError, ImportError):
    """An optional dependency is needed; the message gives the pip command."""

    exit_code = 7

    def __init__(self, what: str, extra: str, package: str = "evenhand") -> None:
        super().__init__(f"{what} needs an extra: pip install '{package}[{extra}]'")

    def __str__(self) -> str:
        """Add the reason if the extra is installed but does not load."""
        installed = isinstance(self.__cause__, ImportError) and not isinstance(self.__cause__, ModuleNotFoundError)
        return (
            printable(f"{self.args[0]} (it is installed, but does not load: {self.__cause__})")
            if installed
            else self.args[0]
        )


class EvenhandWarning(UserWarning):
    """Base of all warnings: a result is not what a user would assume."""

    def __init__(self, message: str = "") -> None:
        super().__init__(printable(message))


class SmallSliceWarning(EvenhandWarning):
    """A slice has too few rows to assess the constraint's bound, or an intersection of groups is empty."""


class ColumnWarning(EvenhandWarning):
    """A column was encoded in a way its owner may not expect; the message names the key that changes it."""


class LearnerWarning(EvenhandWarning):
    """A party's own learner could not be fitted; the party goes on without its column in this round."""


class GroupDecisionsWarning(EvenhandWarning):
    """Decisions depend on the sensitive attribute, or a row has no group that they could depend on."""


class GridEdgeWarning(EvenhandWarning):
    """The best value is at the edge of the grid: a better one may lie beyond."""


class ExactRatesWarning(EvenhandWarning):
    """No model was found that meets the bounds on exact training rates; the nearest one is returned."""


class MajorityWarning(EvenhandWarning):
    """The model is right less often than one answer for everybody, though no cut, weight or limit asks for that."""


class VersionWarning(EvenhandWarning):
    """Participants run different versions of evenhand, which speak the same protocol."""


class UnprovenWarning(EvenhandWarning):
    """The training rows do not prove a constraint's bound at the requested confidence; they prove a wider one."""
