"""States on disk: arrays as safetensors, everything else as JSON in the file's header. No pickle."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from evenhand.errors import RunError
from evenhand.roles import State


def write_state(path: Path, state: State) -> None:
    """Write atomically: the file is either the old one or the whole new one."""
    arrays = {name: np.ascontiguousarray(value) for name, value in state.items() if isinstance(value, np.ndarray)}
    others = {name: _plain(value) for name, value in state.items() if not isinstance(value, np.ndarray)}
    write_bytes(path, save(arrays, metadata={"state": json.dumps(others)}))


def read_state(path: Path) -> State:
    try:
        with safe_open(path, framework="numpy") as file:
            state: State = json.loads(file.metadata()["state"])
            state.update({name: file.get_tensor(name) for name in file.keys()})  # noqa: SIM118 (not a mapping)
    except (OSError, SafetensorError, KeyError, TypeError, json.JSONDecodeError) as error:
        raise RunError(f"{path} is not a readable state file ({error}); the run cannot go on from it") from error
    return state


def write_bytes(path: Path, content: bytes) -> None:
    temporary = path.with_name(path.name + ".partial")
    with temporary.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value
