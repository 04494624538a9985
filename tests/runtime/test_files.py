"""Files of a run: private whatever the umask, old or whole new, and a plain error where the disk gives out."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from support.disks import largest_file

from evenhand.errors import EvenhandError, ResourceError, RunError
from evenhand.runtime.files import disk_error, make_folder, write_bytes


@contextmanager
def umask(bits: int) -> Iterator[None]:
    before = os.umask(bits)
    try:
        yield
    finally:
        os.umask(before)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.parametrize("bits", [0o000, 0o022, 0o277])
def test_private_files_and_folders_are_so_whatever_the_umask(bits: int, tmp_path: Path) -> None:
    with umask(bits):
        make_folder(tmp_path / "run", private=True)
        write_bytes(tmp_path / "run" / "weights", b"secret", private=True)
    assert mode(tmp_path / "run") == 0o700
    assert mode(tmp_path / "run" / "weights") == 0o600


def test_other_files_follow_the_umask(tmp_path: Path) -> None:
    with umask(0o027):
        write_bytes(tmp_path / "scores.csv", b"1")
    assert mode(tmp_path / "scores.csv") == 0o640


def test_a_folder_that_is_there_becomes_private(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir(mode=0o755)
    make_folder(tmp_path / "run", private=True)
    assert mode(tmp_path / "run") == 0o700


def test_a_file_that_does_not_fit_leaves_the_old_one_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "result.json"
    write_bytes(path, b"old", private=True)
    with largest_file(1000), pytest.raises(ResourceError, match=r"result\.json: .*ulimit -f.*--resume"):
        write_bytes(path, b"x" * 2000, private=True)
    assert {found.name: found.read_bytes() for found in tmp_path.iterdir()} == {"result.json": b"old"}


@pytest.mark.parametrize(
    ("number", "kind", "words"),
    [
        (errno.ENOSPC, ResourceError, "the disk is full"),
        (errno.EDQUOT, ResourceError, "quota"),
        (errno.EFBIG, ResourceError, "ulimit -f"),
        (errno.EACCES, RunError, "Permission denied"),
        (errno.EROFS, RunError, "Read-only"),
    ],
)
def test_what_the_system_refused_is_said_plainly(number: int, kind: type[EvenhandError], words: str) -> None:
    error = disk_error(Path("run/metrics.jsonl"), OSError(number, os.strerror(number)))
    assert type(error) is kind
    assert str(error).startswith("cannot write run/metrics.jsonl: ")
    assert words in str(error)


def test_a_file_in_the_way_of_a_folder_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(RunError, match="cannot make the folder"):
        make_folder(tmp_path / "file" / "run", private=True)
