"""Run folders of 0.1.0 cannot be checked; whatever is in their files, what comes out is a score or an error of ours."""

from __future__ import annotations

import copy
import json
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tomli_w

from evenhand.errors import EvenhandError, RunError
from evenhand.jobs.horizontal.runs import score_clients
from evenhand.jobs.vertical.runs import score_parties
from evenhand.runtime.folder import RunFolder
from evenhand.runtime.statefiles import state_bytes, state_from

pytestmark = pytest.mark.filterwarnings("ignore:.*was written by evenhand 0.1.0.*cannot be checked")
FILES = {
    "vertical-subspace": ("run.toml", "result.json", "parties/{}/encoder.json", "parties/{}/weights.safetensors"),
    "horizontal-sqp": ("run.toml", "result.json", "model/encoder.json", "model/weights.safetensors"),
}
STRANGE: tuple[Any, ...] = ("x", -1, 10**18, [], {}, [{}], True)
CASES = [(run, name) for run, names in FILES.items() for name in names]


def score(run: Path) -> Any:
    folder = RunFolder.open(run)
    return score_clients(folder) if folder.split == "horizontal" else score_parties(folder)


def find(left: Path, run: str, name: str) -> Path:
    return next((left / "runs" / run).glob(name.format("*")))


def changed(content: Any) -> Iterator[Any]:
    """The content with one key or entry at a time gone, renamed, or of another type."""
    for place in places(content):
        for strange in (*STRANGE, "gone", "renamed"):
            found = copy.deepcopy(content)
            inner = found
            for key in place[:-1]:
                inner = inner[key]
            if strange == "gone":
                del inner[place[-1]]
            elif strange == "renamed" and isinstance(inner, dict):
                inner[f"{place[-1]}x"] = inner.pop(place[-1])
            else:
                inner[place[-1]] = strange
            yield found


def places(content: Any) -> Iterator[tuple[Any, ...]]:
    entries = content.items() if isinstance(content, dict) else enumerate(content) if isinstance(content, list) else ()
    for key, value in entries:
        yield (key,)
        # Of the rest of a list its first entry stands for all.
        if not (isinstance(content, list) and key):
            yield from ((key, *deeper) for deeper in places(value))


def written(path: Path, content: Any) -> bytes:
    if path.suffix == ".toml":
        return tomli_w.dumps(content).encode()
    return json.dumps(content).encode() if path.suffix == ".json" else state_bytes(content)


def read(path: Path) -> Any:
    content = path.read_bytes()
    if path.suffix == ".toml":
        return tomllib.loads(content.decode())
    return json.loads(content) if path.suffix == ".json" else state_from(content, path)


@pytest.mark.parametrize(("run", "name"), CASES)
def test_any_key_may_be_wrong(run: str, name: str, left: Path) -> None:
    path = find(left, run, name)
    content = read(path)
    # What the result says of rounds and quality is not read to score rows.
    content = {"labels": content["labels"]} if name == "result.json" else content
    refused = 0
    for other in changed(content):
        path.write_bytes(written(path, other))
        try:
            score(left / "runs" / run)
        except EvenhandError:
            refused += 1
    assert refused > 5


@pytest.mark.parametrize(("run", "name"), CASES)
@pytest.mark.parametrize("content", [b"", b"\xff" * 40, b"[" * 100_000, b"{}", b"[]", b"a = " + b"[" * 100_000])
def test_any_file_may_hold_anything(run: str, name: str, content: bytes, left: Path) -> None:
    find(left, run, name).write_bytes(content)
    with pytest.raises(RunError):
        score(left / "runs" / run)


@pytest.mark.parametrize(
    "weights",
    [[1.0, 2.0], np.zeros((3, 3)), np.zeros(0), np.array(1.0), np.arange(3), np.zeros(10_000), {"weights": 1}],
    ids=repr,
)
@pytest.mark.parametrize("run", FILES)
def test_weights_that_are_none_are_refused(run: str, weights: Any, left: Path) -> None:
    path = find(left, run, FILES[run][-1])
    path.write_bytes(state_bytes(read(path) | {"weights": weights}))
    with pytest.raises(RunError, match="weights"):
        score(left / "runs" / run)
