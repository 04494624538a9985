"""The manifest: it vouches for itself and for every file it lists, and says what is wrong with which."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenhand.errors import RunError
from evenhand.runtime.manifest import FORMAT, MANIFEST, Manifest, entry, read_json

CONTENT = {
    "run.toml": b"seed = 1",
    "parties/bank/encoder.json": b'{"mean": 1.5}',
    "result.json": b'{"mean": 1.5, "n": 2}',
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "parties" / "bank").mkdir(parents=True)
    for name, content in CONTENT.items():
        (tmp_path / name).write_bytes(content)
    made().write(tmp_path)
    return tmp_path


def made() -> Manifest:
    return Manifest("ab12", "0.2.0", "finished", {name: entry("the run", content) for name, content in CONTENT.items()})


def test_it_comes_back_and_gives_the_files(folder: Path) -> None:
    found = Manifest.read(folder)
    assert found == made()
    assert {name: found.content(folder, name) for name in found.files} == CONTENT


@given(place=st.integers(0, len(made().to_bytes()) - 1), change=st.integers(1, 255))
def test_any_changed_byte_of_it_is_told_or_means_nothing(
    place: int, change: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("changed")
    content = bytearray(made().to_bytes())
    content[place] ^= change
    (folder / MANIFEST).write_bytes(content)
    try:
        found = Manifest.read(folder)
    except RunError as error:
        told = str(error)
    else:
        # A blank between two entries, for instance, has become another.
        assert found == made()
        return
    assert str(folder / MANIFEST) in told


@pytest.mark.parametrize("name", CONTENT)
@pytest.mark.parametrize("change", ["digit", "cut", "gone", "folder"])
def test_a_changed_file_is_named(name: str, change: str, folder: Path) -> None:
    path = folder / name
    content = path.read_bytes()
    path.unlink()
    if change == "folder":
        path.mkdir()
    elif change != "gone":
        path.write_bytes(content.replace(b"1", b"2", 1) if change == "digit" else content[:-1])
    with pytest.raises(RunError) as caught:
        Manifest.read(folder).content(folder, name)
    assert str(path) in str(caught.value)


def test_what_a_swapped_file_holds_is_said(folder: Path) -> None:
    (folder / "result.json").write_bytes(CONTENT["parties/bank/encoder.json"])
    with pytest.raises(RunError, match=r"it holds parties/bank/encoder\.json.*put it back from a copy"):
        Manifest.read(folder).content(folder, "result.json")
    with pytest.raises(RunError, match="not among the files of this run"):
        Manifest.read(folder).content(folder, "parties/shop/encoder.json")


def sealed(content: dict[str, Any], folder: Path) -> None:
    """Write any content with a digest of its own that is right."""
    digest = hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
    (folder / MANIFEST).write_text(json.dumps(content | {"digest": digest}))


@pytest.mark.parametrize(
    "content",
    [
        {},
        {"format": FORMAT + 1},
        {"format": FORMAT},
        {"format": FORMAT, "run": "x", "evenhand": "x", "status": "running", "files": [], "records": {}},
        {"format": FORMAT, "run": "x", "evenhand": "x", "status": "running", "files": {"a": 1}, "records": {}},
        {"format": FORMAT, "run": "x", "evenhand": "x", "status": "running", "files": {}, "records": {}, "more": 1},
        {
            "format": FORMAT,
            "run": "x",
            "evenhand": "x",
            "status": "running",
            "files": {"a": {"owner": "x", "bytes": "many", "sha256": "0"}},
            "records": {},
        },
    ],
)
def test_what_no_run_writes_is_refused_though_its_digest_is_right(content: dict[str, Any], tmp_path: Path) -> None:
    sealed(content, tmp_path)
    with pytest.raises(RunError, match=r"manifest\.json"):
        Manifest.read(tmp_path)


@pytest.mark.parametrize("found", [None, "1", FORMAT + 1])
def test_another_format_is_refused_and_named(found: Any, tmp_path: Path) -> None:
    sealed({"format": found, "run": "x", "evenhand": "x", "status": "running", "files": {}, "records": {}}, tmp_path)
    with pytest.raises(RunError, match=rf"has format {found!r}; this evenhand reads format {FORMAT}"):
        Manifest.read(tmp_path)


@pytest.mark.parametrize("content", [b"", b"[]", b"1", b"{", b"\xff", b"[" * 100_000, b'{"a":' * 100_000])
def test_files_that_are_no_json_object_are_refused(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "result.json").write_bytes(content)
    with pytest.raises(RunError, match=r"result\.json"):
        read_json(tmp_path / "result.json")
