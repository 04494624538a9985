"""Files of an identity: a folder with the participant's own secret half, and a list of everybody's public halves.

`identity.toml` stays with its owner. `identities.toml` is the same for everybody and may be shown to anybody; whoever
could change it could also pose as somebody else, so people compare fingerprints over the telephone.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import tomli_w

from evenhand.errors import InputError, RunError
from evenhand.protocol.identity import Identity
from evenhand.runtime.files import make_folder, write_bytes

OWN: Final = "identity.toml"
KNOWN: Final = "identities.toml"
FOLDER: Final = "identity"
"""Name of the folder in a start-up kit."""


def write_identity(folder: Path, identity: Identity) -> None:
    """Write a participant's identity to a folder of its own; an identity is never written over."""
    if (folder / OWN).exists():
        raise InputError(f"{folder / OWN} exists, and an identity is never written over; choose another folder")
    make_folder(folder, private=True)
    content = tomli_w.dumps({"name": identity.name, "secret": identity.secret.hex()})
    write_bytes(folder / OWN, content.encode(), private=True)
    write_known(folder, identity.known)


def write_known(folder: Path, known: Mapping[str, bytes]) -> None:
    """Write the list of public halves."""
    content = tomli_w.dumps({"identities": {name: public.hex() for name, public in known.items()}})
    write_bytes(folder / KNOWN, content.encode(), private=True)


def read_identity(folder: Path) -> Identity:
    """Read a participant's identity, and the identities that it knows."""
    own = _content(folder / OWN)
    try:
        name, secret = str(own["name"]), bytes.fromhex(own["secret"])
    except (LookupError, TypeError, ValueError) as error:
        raise InputError(f"{folder / OWN} is not an identity; make one with evenhand identity make") from error
    return Identity(name, secret, read_known(folder / KNOWN))


def read_known(path: Path) -> dict[str, bytes]:
    """Read a list of public halves by name."""
    try:
        return {str(name): bytes.fromhex(public) for name, public in _content(path)["identities"].items()}
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        raise InputError(f"{path} is not a list of identities: name = public key, under [identities]") from error


def _content(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise InputError(f"{path} does not exist; make an identity with evenhand identity make") from error
    except (OSError, ValueError) as error:
        raise InputError(f"{path} cannot be read: {error}") from error


class AttemptFile:
    """Attempts at a run, kept on disk: the participant's own number, and the highest of each peer.

    Parameters
    ----------
    path
        The file, in the participant's run folder.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            self._numbers: dict[str, int] = json.loads(path.read_bytes()) if path.exists() else {}
            valid = all(isinstance(one, int) for one in self._numbers.values())
        except (OSError, ValueError, AttributeError) as error:
            raise self._damaged() from error
        if not valid:
            raise self._damaged()

    def _damaged(self) -> RunError:
        return RunError(f"{self._path} is damaged; without it keys could repeat, so start a new run")

    @property
    def numbers(self) -> Mapping[str, int]:
        return self._numbers

    def begin(self, name: str) -> int:
        """Return the number of a new attempt; it is on disk before anything is sent under it."""
        number = self._numbers.get(name, 0) + 1
        self.record({name: number})
        return number

    def record(self, numbers: Mapping[str, int]) -> None:
        self._numbers = {**self._numbers, **numbers}
        write_bytes(self._path, json.dumps(self._numbers).encode(), private=True)
