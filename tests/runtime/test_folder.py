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
from evenhand.runtime.folder import RunFolder, check_free, make_folder

HISTORY = [{"round": number, "objective": 0.5 / (number + 1), "gap": math.nan} for number in range(5)]
SENT = [Entry(0.1 * number, "bank", "server", "scores", 8) for number in range(12)]


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    return RunFolder.create(tmp_path / "deep" / "run", {"job": {"solver": "fairvfl"}})


def test_a_new_folder_says_it_is_running(folder: RunFolder) -> None:
    assert tomllib.loads((folder.path / "run.toml").read_text()) == {"status": "running", "job": {"solver": "fairvfl"}}
    assert not folder.finished
    assert RunFolder.open(folder.path).description == folder.description
    assert folder.last_checkpoint() is None
    with pytest.raises(RunError, match="has not finished"):
        _ = folder.result


def test_descriptions_are_compared_without_status_and_place(tmp_path: Path) -> None:
    content = {"job": {"seed": 1, "options": {"step": 0.5}}, "party": [{"name": "bank"}]}
    folder = RunFolder.create(tmp_path / "run", {"evenhand": "0.1", "base": "/jobs", **content})
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


def test_rewind_keeps_what_the_checkpoint_knows(folder: RunFolder) -> None:
    folder.append(HISTORY, SENT)
    with (folder.path / "metrics.jsonl").open("a") as file:
        file.write('{"round": 5, "obj')
    whole = files(folder.path)
    history, sent = folder.rewind(3, 7)
    assert [row["round"] for row in history] == [0, 1, 2]
    assert all(math.isnan(row["gap"]) for row in history)
    assert sent == SENT[:7]
    for name in ("metrics.jsonl", "transcript.jsonl"):
        assert whole[name].startswith(files(folder.path)[name])
    assert len(files(folder.path)["metrics.jsonl"].splitlines()) == 3


@pytest.mark.parametrize(("rows", "entries", "name"), [(6, 12, "metrics.jsonl"), (5, 13, "transcript.jsonl")])
def test_a_rewind_that_lacks_lines_changes_nothing(folder: RunFolder, rows: int, entries: int, name: str) -> None:
    folder.append(HISTORY, SENT)
    before = files(folder.path)
    with pytest.raises(RunError, match=f"{name} has .* the folder was changed"):
        folder.rewind(rows, entries)
    assert files(folder.path) == before


def test_a_line_that_is_no_json_changes_nothing(folder: RunFolder) -> None:
    folder.append(HISTORY, SENT)
    path = folder.path / "transcript.jsonl"
    path.write_bytes(path.read_bytes().replace(b"{", b"#"))
    before = files(folder.path)
    with pytest.raises(RunError, match=r"transcript\.jsonl holds a line that is not JSON"):
        folder.rewind(2, 2)
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
    folder.checkpoint({"": {"time": 1.0}, "bank": {"weights": np.ones(2)}})
    assert folder.last_checkpoint() is not None
    folder.finish({"bytes": 96})
    assert folder.finished
    assert folder.result == {"bytes": 96}
    assert json.loads((folder.path / "result.json").read_text()) == {"bytes": 96}
    assert set(files(folder.path)) == {"run.toml", "result.json"}
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
