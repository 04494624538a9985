"""States as bytes: arrays as safetensors, everything else as JSON in the header. No pickle.

A state may carry a mark that names its run and owner. Reading it requires the same mark.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from safetensors import SafetensorError
from safetensors.numpy import load, save

from evenhand.errors import RunError
from evenhand.protocol.state import State


class Mark(NamedTuple):
    """The id of the run, and the party or role that owns a state."""

    run: str
    owner: str


def state_bytes(state: State, mark: Mark | None = None) -> bytes:
    arrays = {name: np.asarray(value, order="C") for name, value in state.items() if isinstance(value, np.ndarray)}
    others = {name: _plain(value) for name, value in state.items() if not isinstance(value, np.ndarray)}
    text = json.dumps(others if mark is None else [mark, others])
    # One metadata entry: safetensors writes several in any order, and equal states should give equal files.
    content: bytes = save(arrays, metadata={"state": _sum(text, arrays) + text})
    return content


def state_from(content: bytes, path: Path, mark: Mark | None = None) -> State:
    """Read a state; `path` names its file in messages."""
    try:
        head = _metadata(content)["state"]
        arrays = load(content)
        total, text = head[:_DIGITS], head[_DIGITS:]
        if total != _sum(text, arrays):
            raise RunError(f"{path} was damaged: its content does not match its checksum")
        found = json.loads(text)
        others: State
        written, others = (Mark(*found[0]), found[1]) if isinstance(found, list) else (None, found)
        state: State = {**others, **arrays}
    except (SafetensorError, LookupError, TypeError, ValueError, RecursionError) as error:
        raise RunError(f"{path} is not a readable state file ({error})") from error
    if written != mark:
        raise RunError(f"{path} belongs to {_words(written)}, not to {_words(mark)}; the folder was changed")
    return state


_DIGITS = 32


def _metadata(content: bytes) -> dict[str, Any]:
    """Read a safetensors header: its length in eight bytes, then JSON."""
    header: dict[str, Any] = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])
    metadata: dict[str, Any] = header["__metadata__"]
    return metadata


def _sum(text: str, arrays: Mapping[str, npt.NDArray[Any]]) -> str:
    """Return a checksum, so that a flipped bit is detected."""
    digest = hashlib.blake2b(text.encode(), digest_size=16)
    for name in sorted(arrays):
        digest.update(name.encode())
        digest.update(arrays[name].tobytes())
    return digest.hexdigest()


def _words(mark: Mark | None) -> str:
    return "a run that does not say which" if mark is None else f"{mark.owner} of run {mark.run}"


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value
