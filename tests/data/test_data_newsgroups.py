"""Messages in an archive become words and pairs of words; on a small archive the test makes."""

from __future__ import annotations

import gzip
import io
import lzma
import os
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from evenhand.errors import DataError, InputError
from evenhand_reproductions.data import newsgroups
from evenhand_reproductions.data.newsgroups import load_newsgroups, positive_rows

MESSAGES = {
    "20news-bydate-test/sci.med/7": b"a doctor writes",
    "20news-bydate-train/comp.graphics/12": b"Caf\xe9 pixels, pixels",
    "20news-bydate-train/comp.graphics/11": b"pixels writes",
    "20news-bydate-train/sci.med/5": b"doctor doctor",
}
WORDS = ["café", "café pixels", "doctor", "doctor doctor", "doctor writes", "pixels", "pixels pixels", "pixels writes"]
WORDS += ["writes"]


def archive(folder: Path, messages: dict[str, bytes], name: str = "20news-bydate.tar") -> Path:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as files:
        for member, content in messages.items():
            info = tarfile.TarInfo(member)
            info.size = len(content)
            files.addfile(info, io.BytesIO(content))
    packs: dict[str, Any] = {".gz": gzip.compress, ".xz": lzma.compress}
    path = folder / name
    path.write_bytes(packs.get(path.suffix, bytes)(stream.getvalue()))
    return path


@pytest.mark.parametrize("ending", ["", ".gz", ".xz"])
def test_words_and_pairs(tmp_path: Path, ending: str) -> None:
    made = load_newsgroups(archive(tmp_path, MESSAGES, f"20news-bydate.tar{ending}"))
    # Training part first, then by newsgroup and number, whatever the order in the archive.
    assert made.newsgroups.tolist() == ["comp.graphics", "comp.graphics", "sci.med", "sci.med"]
    assert made.test.tolist() == [False, False, False, True]
    assert made.matrix.shape == (4, len(WORDS))
    assert (made.matrix.dtype, made.matrix.indices.dtype, made.matrix.indptr.dtype) == (np.float64, np.int32, np.int32)
    found = [{WORDS[k] for k in np.flatnonzero(row)} for row in made.matrix.toarray()]
    assert found[0] == {"pixels", "writes", "pixels writes"}
    assert found[1] == {"café", "pixels", "café pixels", "pixels pixels"}
    assert found[2] == {"doctor", "doctor doctor"}
    assert found[3] == {"doctor", "writes", "doctor writes"}
    assert set(made.matrix.data) == {1.0}


def test_the_matrix_is_kept_and_found_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, kept = archive(tmp_path, MESSAGES), tmp_path / "cache" / "kept.npz"
    first = load_newsgroups(path, kept)
    monkeypatch.setattr(newsgroups, "_vectorise", lambda archive: pytest.fail("made again"))
    second = load_newsgroups(path, kept)
    assert (first.matrix != second.matrix).nnz == 0
    assert first.matrix.shape == second.matrix.shape
    assert second.newsgroups.tolist() == first.newsgroups.tolist()
    assert second.test.tolist() == first.test.tolist()


@pytest.mark.parametrize("damage", ["other archive", "cut", "no archive", "other content"])
def test_a_kept_matrix_that_does_not_fit_is_made_anew(tmp_path: Path, damage: str) -> None:
    path, kept = archive(tmp_path, MESSAGES), tmp_path / "kept.npz"
    load_newsgroups(path, kept)
    if damage == "other archive":
        path = archive(tmp_path, MESSAGES | {"20news-bydate-test/sci.med/8": b"nothing new"})
    elif damage == "cut":
        kept.write_bytes(kept.read_bytes()[:-40])
    elif damage == "no archive":
        kept.write_bytes(b"no archive at all")
    else:
        np.savez(kept, other=np.ones(3))
    made = load_newsgroups(path, kept)
    assert made.matrix.shape[0] == 4 + (damage == "other archive")
    assert load_newsgroups(path, kept).matrix.shape == made.matrix.shape


def test_a_folder_that_cannot_be_written_does_no_harm(tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("a file where the folder should be")
    assert load_newsgroups(archive(tmp_path, MESSAGES), tmp_path / "cache" / "kept.npz").matrix.shape[0] == 4
    assert sorted(os.listdir(tmp_path)) == ["20news-bydate.tar", "cache"]


def test_positive_is_a_newsgroup_or_a_family() -> None:
    names = np.array(["comp.graphics", "sci.med", "comp.sys.mac.hardware", "computers", "sci.space"])
    assert positive_rows(names, "comp").tolist() == [True, False, True, False, False]
    assert positive_rows(names, "comp.sys").tolist() == [False, False, True, False, False]
    assert positive_rows(names, "sci.med").tolist() == [False, True, False, False, False]
    with pytest.raises(InputError, match=r"no newsgroup is 'sci\.me' or below it; there are comp\.graphics, "):
        positive_rows(names, "sci.me")


@pytest.mark.parametrize(
    ("messages", "message"),
    [
        ({}, "holds no messages"),
        ({"20news-bydate-train/5": b"x"}, "holds 20news-bydate-train/5, which is no message"),
        ({"../../etc/passwd": b"x"}, "which is no message"),
        ({"20news-bydate-train/sci.med/5": b"!"}, "no words are found"),
    ],
)
def test_archives_of_something_else(tmp_path: Path, messages: dict[str, bytes], message: str) -> None:
    with pytest.raises(DataError, match=message):
        load_newsgroups(archive(tmp_path, messages))


@pytest.mark.parametrize("name", ["a.tar", "a.tar.gz", "a.tar.xz"])
def test_damaged_archives(tmp_path: Path, name: str) -> None:
    path = archive(tmp_path, MESSAGES, name)
    path.write_bytes(path.read_bytes()[:-300] if name.endswith("z") else b"not an archive" * 100)
    with pytest.raises(DataError, match="cannot read"):
        load_newsgroups(path)
