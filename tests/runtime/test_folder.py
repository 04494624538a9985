"""The run folder by itself: created once, appended to, cut back, finished."""

from __future__ import annotations

import json
import math
import tomllib
from pathlib import Path

import numpy as np
import pytest
from support.tables import files

from evenhand.errors import RunError
from evenhand.protocol.transcript import Entry
from evenhand.runtime.files import make_folder
from evenhand.runtime.folder import RunFolder, check_free

HISTORY = [{"round": number, "objective": 0.5 / (number + 1), "gap": math.nan} for number in range(5)]
SENT = [Entry(0.1 * number, "bank", "server", "scores", 8) for number in range(12)]


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    return RunFolder.create(tmp_path / "deep" / "run", {"job": {"solver": "fairvfl"}})


def test_a_new_folder_says_it_is_running(folder: RunFolder) -> None:
    description = tomllib.loads((folder.path / "run.toml").read_text())
    assert description["job"] == {"solver": "fairvfl"}
    assert json.loads((folder.path / "manifest.json").read_text())["run"] == description["run"]
    assert not folder.finished
    assert RunFolder.open(folder.path).description == folder.description
    assert folder.last_checkpoint() is None
    with pytest.raises(RunError, match="holds an unfinished run"):
        _ = folder.result


def test_descriptions_are_compared_without_status_and_place(tmp_path: Path) -> None:
    content = {"job": {"seed": 1, "options": {"step": 0.5}}, "party": [{"name": "bank"}]}
    folder = RunFolder.create(tmp_path / "run", {"base": "/jobs", **content})
    assert folder.describes(content)
    assert not folder.describes(content | {"job": {"seed": 2, "options": {"step": 0.5}}})
    assert not folder.describes({"party": content["party"]})


def test_lines_are_appended_and_come_back(folder: RunFolder) -> None:
    folder.append(HISTORY[:2], SENT[:3])
    folder.append(HISTORY[2:], SENT[3:])
    text = (folder.path / "metrics.jsonl").read_text()
    assert "NaN" not in text, "JSON has no NaN"
    assert len(text.splitlines()) == 5
    rows = folder.read_lines("metrics.jsonl")
    assert [row["objective"] for row in rows] == [row["objective"] for row in HISTORY]
    assert all(math.isnan(row["gap"]) for row in rows)
    assert [Entry(**entry) for entry in folder.read_lines("transcript.jsonl")] == SENT
    assert folder.read_lines("other.jsonl") == []


STATES = {"": {"time": 1.0}, "bank": {"weights": np.ones(2)}}


def test_going_on_keeps_what_the_checkpoint_knows(folder: RunFolder) -> None:
    folder.append(HISTORY[:3], SENT[:7])
    folder.checkpoint(STATES)
    known = files(folder.path)
    folder.append(HISTORY[3:], SENT[7:])
    with (folder.path / "metrics.jsonl").open("a") as file:
        file.write('{"round": 5, "obj')
    again = RunFolder.open(folder.path)
    history, sent = again.resume_from(again.last_checkpoint())
    assert [row["round"] for row in history] == [0, 1, 2]
    assert all(math.isnan(row["gap"]) for row in history)
    assert sent == SENT[:7]
    assert files(folder.path) == known
    # And the rest follows as if nothing had happened.
    again.append(HISTORY[3:], SENT[7:])
    again.finish({})
    RunFolder.open(folder.path).check()
    assert len(RunFolder.open(folder.path).read_lines("metrics.jsonl")) == 5


@pytest.mark.parametrize("name", ["metrics.jsonl", "transcript.jsonl"])
@pytest.mark.parametrize("change", ["cut", "one digit", "no JSON", "removed"])
def test_a_record_that_begins_otherwise_is_an_error_that_changes_nothing(
    folder: RunFolder, name: str, change: str
) -> None:
    folder.append(HISTORY, SENT)
    folder.checkpoint(STATES)
    path = folder.path / name
    content = path.read_bytes()
    if change == "removed":
        path.unlink()
    else:
        changed = {"cut": content[:-1], "one digit": content.replace(b"2", b"3", 1), "no JSON": b"#" + content[1:]}
        path.write_bytes(changed[change])
    before = files(folder.path)
    with pytest.raises(RunError, match=rf"{name} (has|does not begin|is missing)"):
        RunFolder.open(folder.path).last_checkpoint()
    assert files(folder.path) == before


def test_what_parties_own_is_kept_apart(folder: RunFolder) -> None:
    folder.write_party("bank", "weights", {"weights": np.arange(3.0), "model": "linear"})
    folder.write_party("bank", "encoder", {"levels": ["é", "ß"]})
    back = folder.read_party("bank", "weights")
    np.testing.assert_array_equal(back["weights"], np.arange(3.0))
    assert back["model"] == "linear"
    assert folder.read_party("bank", "encoder") == {"levels": ["é", "ß"]}
    assert set(files(folder.path / "parties")) == {"bank/weights.safetensors", "bank/encoder.json"}
    for what in ("weights", "encoder"):
        with pytest.raises(RunError, match="shop"):
            folder.read_party("shop", what)


def test_finishing_keeps_the_result_and_drops_checkpoints(folder: RunFolder) -> None:
    folder.checkpoint(STATES)
    assert folder.last_checkpoint() is not None
    folder.finish({"bytes": 96})
    assert folder.finished
    assert folder.result == {"bytes": 96}
    assert json.loads((folder.path / "result.json").read_text()) == {"bytes": 96}
    assert set(files(folder.path)) == {"run.toml", "result.json", "manifest.json"}
    assert not (folder.path / "checkpoints").exists()


def test_folders_that_are_taken_are_refused(tmp_path: Path, folder: RunFolder) -> None:
    with pytest.raises(RunError, match="exists and is not empty; resume it"):
        RunFolder.create(folder.path, {})
    (tmp_path / "file").write_text("x")
    for path in (tmp_path / "file", tmp_path / "file" / "run"):
        with pytest.raises(RunError, match="file"):
            RunFolder.create(path, {})
    with pytest.raises(RunError, match="go elsewhere"):
        check_free(tmp_path, "go elsewhere")
    with pytest.raises(RunError, match="cannot make the folder"):
        make_folder(tmp_path / "file" / "tables")
    check_free(tmp_path / "new", "unused")
