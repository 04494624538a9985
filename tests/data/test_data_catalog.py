"""The catalog's descriptions are complete and can be found by name."""

from __future__ import annotations

import re

import pytest

from evenhand.data.public.catalog import CATALOG, PublicFile, PublicSet, lookup
from evenhand.errors import InputError


@pytest.mark.parametrize("entry", CATALOG.values(), ids=lambda entry: entry.name)
def test_every_file_can_be_checked_and_found(entry: PublicSet) -> None:
    assert entry.title
    assert entry.terms
    assert entry.citation
    assert entry.rows > 0
    for file in entry.files:
        assert re.fullmatch(r"[0-9a-f]{64}", file.sha256)
        assert file.url is None or file.url.startswith("https://")
        if file.wheel is not None:
            pinned = re.fullmatch(r"[a-z-]+==[0-9.]+", file.wheel)
            assert pinned, "a wheel must be pinned: its content is what was hashed"
            assert file.member.startswith(file.wheel.split("==")[0].replace("-", "_") + "/")
        if file.packing is not None:
            assert re.fullmatch(r"[0-9a-f]{64}", file.packing.sha256)


@pytest.mark.parametrize(
    ("places", "message"),
    [
        ({"url": "https://x", "wheel": "a==1"}, "wheel and member go together"),
        ({"url": "https://x", "member": "a"}, "wheel and member go together"),
        ({"url": None}, "give a source"),
    ],
)
def test_a_file_must_be_to_be_had(places: dict[str, str | None], message: str) -> None:
    with pytest.raises(InputError, match=message):
        PublicFile("f", 1, "0" * 64, **places)


def test_names_aliases_and_case() -> None:
    assert lookup("crime") is lookup(" Communities-Crime ") is CATALOG["communities-crime"]


def test_unknown_name_lists_the_known_ones() -> None:
    with pytest.raises(InputError, match=r"'iris'.*adult, compas, communities-crime/crime, german"):
        lookup("iris")


def test_the_catalog_cannot_be_changed() -> None:
    with pytest.raises(TypeError):
        CATALOG["mine"] = CATALOG["adult"]  # type: ignore[index]
