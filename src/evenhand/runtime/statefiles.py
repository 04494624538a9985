"""States on disk: arrays as safetensors, everything else as JSON in the file's header. No pickle."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from evenhand.errors import RunError
from evenhand.protocol.roles import State


def write_state(path: Path, state: State) -> None:
    """Write atomically: the file is either the old one or the whole new one."""
    arrays = {name: np.asarray(value, order="C") for name, value in state.items() if isinstance(value, np.ndarray)}
    others = {name: _plain(value) for name, value in state.items() if not isinstance(value, np.ndarray)}
    text = json.dumps(others)
    # One entry: safetensors writes several in any order, and equal states should be equal files.
    write_bytes(path, save(arrays, metadata={"state": _sum(text, arrays) + text}))


def read_state(path: Path) -> State:
    try:
        with safe_open(path, framework="numpy") as file:
            head = file.metadata()["state"]
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a mapping)
            total, text = head[:_DIGITS], head[_DIGITS:]
            if total != _sum(text, arrays):
                raise RunError(f"{path} was damaged: its content does not match its sum; the run cannot go on from it")
            state: State = json.loads(text) | arrays
    except (OSError, SafetensorError, KeyError, TypeError, ValueError) as error:
        raise RunError(f"{path} is not a readable state file ({error}); the run cannot go on from it") from error
    return state


_DIGITS = 32


def _sum(text: str, arrays: Mapping[str, npt.NDArray[Any]]) -> str:
    """So that a flipped bit is not taken for a result."""
    digest = hashlib.blake2b(text.encode(), digest_size=16)
    for name in sorted(arrays):
        digest.update(name.encode())
        digest.update(arrays[name].tobytes())
    return digest.hexdigest()


def write_bytes(path: Path, content: bytes) -> None:
    temporary = path.with_name(path.name + ".partial")
    with temporary.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value
