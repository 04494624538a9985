"""Whatever ids, labels, columns and file names hold, a terminal gets text and no commands."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from support.tables import ID, SmallJob

from evenhand.errors import FELL_SHORT, DataError, EvenhandWarning, MissingExtraError
from evenhand.printing import printable, quoted

EVIL = "\x1b]0;owned\x07\x9b2J\u202e\u2066[red]x[/red]"


def assert_tame(text: str) -> None:
    assert not [sign for sign in text if not sign.isprintable() and sign not in "\n\r"], ascii(text)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain text, größer ✓ 漢字", "plain text, größer ✓ 漢字"),
        ("two\nlines", "two\nlines"),
        ("\x1b[31m", r"\x1b[31m"),
        ("\x9b31m\x85", r"\x9b31m\x85"),
        ("a\rb\tc\x00", r"a\rb\tc\x00"),
        ("\u202eabc\u2069\u200f", r"\u202eabc\u2069\u200f"),
        ("\udc80", r"\udc80"),
        ("[red]x[/red]", "[red]x[/red]"),
    ],
)
def test_signs_that_a_terminal_obeys_are_written_out(text: str, shown: str) -> None:
    assert printable(text) == shown


def test_a_value_is_quoted_in_one_line_and_cut() -> None:
    assert quoted("a\nb\x1b") == r"'a\nb\x1b'"
    assert quoted("x" * 1000) == "'" + "x" * 56 + "..."
    assert quoted(10**5000) == "<int>"
    assert len(quoted(list(range(10**5)))) == 60

    class Rude:
        def __repr__(self) -> str:
            raise RuntimeError("no")

    assert quoted(Rude()) == "<Rude>"


@pytest.mark.parametrize("kind", [DataError, EvenhandWarning, lambda text: MissingExtraError(text, "sql")])
def test_no_error_or_warning_can_hold_such_signs(kind: Any) -> None:
    assert_tame(str(kind(EVIL)))
    assert r"\x1b]0;owned\x07" in str(kind(EVIL))


def write_evil(small: SmallJob, length: int = 0) -> None:
    """Ids, a column, labels and groups that are terminal commands, and long ones if asked for."""
    evil = EVIL + "x" * length
    for frame in small.frames.values():
        frame.index = pd.Index([f"{one}{evil}" for one in frame.index], name=ID)
    bank = small.frames["bank"]
    bank["outcome"] = bank["outcome"].replace({"repaid": f"=repaid{evil}"})
    bank["sex"] = bank["sex"] + evil
    small.frames["bank"] = bank.rename(columns={"city": f"city{evil}"})
    small.party("bank")["label"]["positive"] = f"=repaid{evil}"


def ids_twice(small: SmallJob) -> None:
    small.frames["shop"] = pd.concat([small.frames["shop"], small.frames["shop"]])


def ids_others(small: SmallJob) -> None:
    small.frames["shop"].index = pd.Index([f"x{one}" for one in small.frames["shop"].index], name=ID)


def labels_three(small: SmallJob) -> None:
    small.frames["bank"].iloc[0, small.frames["bank"].columns.get_loc("outcome")] = f"third{EVIL}"


def label_missing(small: SmallJob) -> None:
    small.party("bank")["label"]["column"] = "nowhere"


def column_missing(small: SmallJob) -> None:
    small.party("bank")["columns"] = [f"zip{EVIL}"]


def file_missing(small: SmallJob) -> None:
    small.party("shop")["table"] = f"shop{EVIL}.csv"


def party_evil(small: SmallJob) -> None:
    small.party("shop")["name"] = f"shop{EVIL}"


def key_evil(small: SmallJob) -> None:
    small.content["job"][f"solvr{EVIL}"] = EVIL


def one_group(small: SmallJob) -> None:
    small.frames["bank"]["sex"] = EVIL


@pytest.mark.parametrize(
    "change",
    [
        ids_twice,
        ids_others,
        labels_three,
        label_missing,
        column_missing,
        file_missing,
        party_evil,
        key_evil,
        one_group,
    ],
)
def test_errors_are_text(here: Any, tmp_path: Path, change: Any) -> None:
    small = SmallJob(tmp_path)
    write_evil(small, length=10_000)
    change(small)
    done = here("train", small.write(), "--out", tmp_path / "run")
    assert done.returncode == 2
    assert done.stdout == ""
    assert_tame(done.stderr)
    assert len(done.stderr) < 2000, "no more than is needed to find the row"


@pytest.fixture(scope="module")
def evil(tmp_path_factory: pytest.TempPathFactory) -> SmallJob:
    small = SmallJob(tmp_path_factory.mktemp(f"evil{EVIL.partition('[')[0]}"))
    write_evil(small)
    small.content["job"]["max_rounds"] = 2
    small.run()
    return small


def on_a_terminal(*arguments: Any) -> str:
    """What a terminal of its own gets from a command."""
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "evenhand", *map(str, arguments)]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "NO_COLOR": "1", "TERM": "dumb"}
    with subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, env=environment) as process:
        os.close(theirs)
        said = b""
        try:
            while piece := os.read(ours, 1 << 16):
                said += piece
        except OSError:
            # The other end is closed.
            pass
        os.close(ours)
        assert process.wait() in (0, FELL_SHORT), said
    return said.decode()


def test_scores_on_a_terminal_are_text(evil: SmallJob) -> None:
    said = on_a_terminal("predict", evil.folder / "run")
    # Each customer and the heading; below them, what the table says of the scores.
    assert said.count("\nc0") == 120
    assert_tame(said)


def test_training_on_a_terminal_is_told_in_text(evil: SmallJob) -> None:
    said = on_a_terminal("train", evil.path, "--out", evil.folder / "again")
    assert "accuracy" in said
    assert_tame(said)


def test_scores_in_a_pipe_are_as_they_are_but_for_formulas(here: Any, evil: SmallJob, tmp_path: Path) -> None:
    done = here("predict", evil.folder / "run")
    assert f"c0000{EVIL}" in done.stdout
    assert f",'=repaid{EVIL}" in done.stdout
    assert ",=repaid" not in done.stdout
    assert f",=repaid{EVIL}" in here("predict", evil.folder / "run", "--as-is").stdout
    assert here("predict", evil.folder / "run", "--out", tmp_path / "scores.parquet").returncode == 0
    assert f"=repaid{EVIL}" in set(pd.read_parquet(tmp_path / "scores.parquet")["prediction"])


@pytest.mark.parametrize(
    "entry", ["postgresql://u:S3CRET@h/db", "shop=postgresql://u:S3CRET@h/db", "shop=postgresql:/u:S3CRET@h/db"]
)
def test_an_address_in_place_of_a_file_is_not_shown(here: Any, evil: SmallJob, entry: str) -> None:
    done = here("predict", evil.folder / "run", "--table", entry)
    assert (done.returncode, done.stdout) == (2, "")
    assert "write it as NAME=FILE" in done.stderr
    assert "S3CRET" not in done.stderr
