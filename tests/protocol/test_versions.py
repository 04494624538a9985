"""Versions are exchanged with the terms: another protocol is refused, another package version is a warning."""

from __future__ import annotations

import warnings
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenhand.errors import RunError, VersionWarning
from evenhand.protocol import versions
from evenhand.protocol.enrol import ACCEPTED, OFFER, OUTCOME, EnrolParty, anything
from evenhand.protocol.job import Job
from evenhand.protocol.messages import as_bytes
from evenhand.protocol.roles import SERVER, Role
from evenhand.protocol.terms import VerticalTerms
from evenhand.protocol.versions import PROTOCOL, Version, difference, objection, own_version, read_version
from evenhand.training.together import enrolled, offer

TERMS = VerticalTerms(Job("subspace"), {"bank": "active", "shop": "passive"}, 7)
OWN = own_version()
OTHER = Version(PROTOCOL, "0.1.dev7")
NEXT = Version(PROTOCOL + 1, "9.0")


def test_a_version_survives_the_line() -> None:
    assert read_version(OWN.to_text()) == OWN
    assert objection(OWN.to_text(), OWN.to_text()) is None
    assert difference(OWN.to_text(), "shop") is None


@given(st.text(max_size=100))
def test_what_is_no_version_is_refused(text: str) -> None:
    assert read_version(text) is not None or "no version that can be read" in str(objection(text, OWN.to_text()))


def test_a_party_refuses_a_server_with_another_protocol_before_it_reads_terms() -> None:
    role = EnrolParty("shop", VerticalTerms)
    (answer,) = role.receive(
        OFFER.message(SERVER, "shop", terms=as_bytes("of a later form"), version=as_bytes(NEXT.to_text()))
    )
    assert answer.kind == "refused"
    said = answer.text("reason")
    assert str(NEXT) in said
    assert str(OWN) in said
    role.receive(OUTCOME.message(SERVER, "shop", reason=as_bytes("")))
    assert role.done
    assert role.outcome == said, "a server that goes on all the same does not get around it"


def answers(terms: VerticalTerms, version: Version) -> Iterator[Role]:
    """The server's exchange, in which shop runs another version."""
    steps = offer(terms)
    role = next(steps)
    role.start()
    for name in terms.participants:
        told = version if name == "shop" else OWN
        role.receive(ACCEPTED.message(name, SERVER, terms=as_bytes(terms.digest), version=as_bytes(told.to_text())))
    yield from steps


def test_the_server_refuses_a_party_with_another_protocol() -> None:
    with pytest.raises(RunError, match=r"refused by shop: .*protocol"):
        list(answers(TERMS, NEXT))


def test_another_package_version_is_a_warning_at_both_ends() -> None:
    with pytest.warns(VersionWarning, match="shop runs evenhand 0.1.dev7"):
        list(answers(TERMS, OTHER))
    steps = enrolled("shop", TERMS, anything)
    role = next(steps)
    role.receive(OFFER.message(SERVER, "shop", terms=as_bytes(TERMS.to_plain()), version=as_bytes(OTHER.to_text())))
    role.receive(OUTCOME.message(SERVER, "shop", reason=as_bytes("")))
    with pytest.warns(VersionWarning, match="the server runs evenhand 0.1.dev7"), pytest.raises(StopIteration):
        next(steps)


def test_the_same_version_is_no_warning() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        list(answers(TERMS, OWN))


def test_an_unknown_package_still_has_a_protocol(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(_: str) -> str:
        raise versions.PackageNotFoundError

    monkeypatch.setattr(versions, "version", unknown)
    own_version.cache_clear()
    try:
        assert own_version() == Version(PROTOCOL, "unknown")
    finally:
        own_version.cache_clear()
