"""`evenhand data`: what there is, and bringing it here from a folder, offline."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import pytest

from evenhand.data.public.catalog import CATALOG


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A local folder of public files with nothing right in it, and an empty cache."""
    monkeypatch.setenv("EVENHAND_CACHE", str(tmp_path / "cache"))
    local = tmp_path / "local"
    (local / "german").mkdir(parents=True)
    (local / "german" / "german.data").write_text("not the real thing")
    return local


def test_list_names_every_set(here: Any, folder: Path, tmp_path: Path) -> None:
    done = here("data", "list")
    assert (done.returncode, done.stderr) == (0, "")
    for name, entry in CATALOG.items():
        assert name in done.stdout
        assert f"{entry.rows:,}" in done.stdout
    assert f"Files are cached in {tmp_path / 'cache'}" in done.stdout
    assert not (tmp_path / "cache").exists()


def test_fetch_finds_files_in_the_folder_of_the_environment(evenhand: Any, adult_folder: Path, tmp_path: Path) -> None:
    """Also gzipped ones; nothing is copied."""
    found = {name: next(adult_folder.rglob(f"{name}*")) for name in ("adult.data", "adult.test")}
    (tmp_path / "adult").mkdir()
    for name, path in found.items():
        content = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
        (tmp_path / "adult" / f"{name}.gz").write_bytes(gzip.compress(content, 1))
    cache = str(tmp_path / "cache")
    done = evenhand("data", "fetch", "adult", "--offline", EVENHAND_DATA=str(tmp_path), EVENHAND_CACHE=cache)
    assert done.returncode == 0, done.stderr
    for name in found:
        assert f"adult: {tmp_path / 'adult' / name}.gz" in done.stdout
    assert not (tmp_path / "cache").exists()


def test_fetch_offline_without_the_files_says_what_was_tried(
    here: Any, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EVENHAND_DATA", str(folder))
    done = here("data", "fetch", "compas", "--offline")
    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr.startswith("error: could not fetch compas-scores-two-years.csv")
    for word in (str(folder), "offline", "https://", "EVENHAND_DATA"):
        assert word in done.stderr
    assert not (folder.parent / "cache").exists()


def test_a_file_that_is_not_the_published_one_is_refused(here: Any, folder: Path) -> None:
    done = here("data", "fetch", "german", "--offline", "--source", folder)
    assert (done.returncode, done.stdout) == (3, "")
    assert f"{folder / 'german' / 'german.data'} is not the published" in done.stderr
    assert "SHA-256" in done.stderr


def test_an_unknown_set_is_refused_with_the_known_names(here: Any, folder: Path) -> None:
    done = here("data", "fetch", "titanic", "--offline")
    assert done.returncode == 2
    assert "'titanic'" in done.stderr
    assert "adult" in done.stderr


def test_a_set_that_cannot_be_had_does_not_keep_the_others_from_coming(
    here: Any, folder: Path, adult_folder: Path, tmp_path: Path
) -> None:
    (folder / "adult").mkdir()
    for name in ("adult.data", "adult.test"):
        found = next(adult_folder.rglob(f"{name}*"))
        (folder / "adult" / found.name).symlink_to(found)
    done = here("data", "fetch", "german", "compas", "adult", "--offline", "--source", folder)
    assert done.returncode == 3
    assert "german.data is not the published" in done.stderr
    assert "could not fetch compas-scores-two-years.csv" in done.stderr
    assert f"adult: {folder / 'adult' / 'adult.data'}" in done.stdout


def test_a_misspelt_name_is_found_before_anything_is_brought(here: Any, folder: Path) -> None:
    done = here("data", "fetch", "german", "titanic", "--offline", "--source", folder)
    assert done.returncode == 2
    assert "german" not in done.stderr.partition("known ones")[0]


def test_a_set_that_nobody_hands_out_freely_says_where_to_get_it(here: Any, folder: Path) -> None:
    done = here("data", "fetch", "give-me-some-credit", "--offline", "--source", folder)
    assert done.returncode == 3
    for word in ("cs-training.csv", "kaggle.com", "sign in", "EVENHAND_DATA"):
        assert word in done.stderr
