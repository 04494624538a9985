"""20 Newsgroups: turn the archive of messages into a sparse matrix of words and pairs of words, and cache it."""

from __future__ import annotations

import hashlib
import io
import os
import tarfile
import tempfile
import zipfile
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from scipy import sparse

from evenhand.arrays import Booleans, Matrix
from evenhand.data.compressed import DAMAGED, open_plain
from evenhand.errors import DataError, InputError

_PARTS: Final = {"20news-bydate-train": False, "20news-bydate-test": True}
# Raise the number when the recipe changes, so that cached matrices of the old recipe are not used.
_RECIPE: Final = "binary counts of words and pairs of words, 1"


@dataclass(frozen=True, eq=False)
class Newsgroups:
    """All messages: words and pairs of words, each message's newsgroup, and whether it is a test message."""

    matrix: Matrix
    newsgroups: npt.NDArray[np.str_]
    test: Booleans


def load_newsgroups(archive: Path, kept: Path | None = None) -> Newsgroups:
    """Read the archive, or the matrix that was made of it before and cached in the file `kept`.

    A feature is a word of two letters or more, or a pair of neighbouring words, in lower case. Its value is 1 in every
    message that has it. This is scikit-learn's ``CountVectorizer(binary=True, ngram_range=(1, 2))`` on Latin-1 text.
    """
    key = f"{_RECIPE}; {hashlib.sha256(archive.read_bytes()).hexdigest()}"
    found = None if kept is None else _read_kept(kept, key)
    if found is not None:
        return found
    made = _vectorise(archive)
    if kept is not None:
        # If the folder cannot be written, the matrix is made again next time, which takes half a minute.
        with suppress(OSError):
            _write(kept, _content(made, key))
    return made


def positive_rows(newsgroups: npt.NDArray[np.str_], positive: str) -> Booleans:
    """Tell which messages are in a newsgroup such as ``sci.med``, or in a family of them such as ``comp``."""
    rows = (newsgroups == positive) | np.char.startswith(newsgroups, f"{positive}.")
    if not rows.any():
        raise InputError(f"no newsgroup is {positive!r} or below it; there are {', '.join(np.unique(newsgroups))}")
    return np.asarray(rows)


def _vectorise(archive: Path) -> Newsgroups:
    from sklearn.feature_extraction.text import CountVectorizer

    messages = sorted(_messages(archive))
    vectoriser = CountVectorizer(binary=True, ngram_range=(1, 2), dtype=np.float64)
    try:
        matrix = vectoriser.fit_transform(text for *_, text in messages)
    except ValueError as error:
        raise DataError(f"{archive}: no words are found in it: {error}") from error
    newsgroups = np.array([newsgroup for _, newsgroup, _, _ in messages])
    return Newsgroups(_narrow(matrix), newsgroups, np.array([test for test, *_ in messages]))


def _messages(archive: Path) -> list[tuple[bool, str, str, str]]:
    """Read part, newsgroup, number and text of each message; nothing is unpacked to disk."""
    found = []
    try:
        with open_plain(archive) as stream, tarfile.open(fileobj=stream, mode="r|") as files:
            for file in files:
                if not file.isfile():
                    continue
                part, *middle, number = PurePosixPath(file.name).parts
                if part not in _PARTS or len(middle) != 1:
                    raise DataError(f"{archive} holds {file.name}, which is no message of 20 Newsgroups by date")
                content = files.extractfile(file)
                assert content is not None, "a plain file of an archive has content"
                found.append((_PARTS[part], middle[0], number, content.read().decode("latin-1")))
    except (*DAMAGED, tarfile.TarError) as error:
        raise DataError(f"cannot read {archive}: {error or type(error).__name__}") from error
    if not found:
        raise DataError(f"{archive} holds no messages")
    return found


def _narrow(matrix: Any) -> Matrix:
    parts = (matrix.data, matrix.indices.astype(np.int32, copy=False), matrix.indptr.astype(np.int32, copy=False))
    return sparse.csr_array(parts, shape=matrix.shape)


def _content(made: Newsgroups, key: str) -> bytes:
    stream = io.BytesIO()
    np.savez(
        stream,
        key=np.array(key),
        indices=made.matrix.indices,
        ends=made.matrix.indptr,
        columns=np.array(made.matrix.shape[1]),
        newsgroups=made.newsgroups,
        test=made.test,
    )
    return stream.getvalue()


def _write(path: Path, content: bytes) -> None:
    """Write the whole file or nothing: several processes may share a cache."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(dir=path.parent, prefix=f".{path.name}.", delete=False) as stream:
        try:
            stream.write(content)
            stream.close()
            os.replace(stream.name, path)
        except BaseException:
            os.unlink(stream.name)
            raise


def _read_kept(path: Path, key: str) -> Newsgroups | None:
    """Read the cached matrix; None if there is none, it is damaged, or of another archive or recipe."""
    try:
        # Opened here, because numpy leaves a damaged file open.
        with path.open("rb") as stream, np.load(stream) as parts:
            if str(parts["key"]) != key:
                return None
            indices, ends = parts["indices"], parts["ends"]
            shape = (ends.size - 1, int(parts["columns"]))
            # Every value is 1, so only the places are cached.
            matrix = sparse.csr_array((np.ones(indices.size), indices, ends), shape=shape)
            return Newsgroups(matrix, parts["newsgroups"], parts["test"])
    except (*DAMAGED, ValueError, KeyError, zipfile.BadZipFile):
        return None
