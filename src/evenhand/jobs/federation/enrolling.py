"""What comes of enrolling, at either end."""

from __future__ import annotations

from typing import TypeVar

from evenhand.errors import RunError
from evenhand.protocol.enrol import EnrolParty, EnrolServer
from evenhand.protocol.terms import Terms

AnyTerms = TypeVar("AnyTerms", bound=Terms)


def accepted_terms(role: EnrolParty, kind: type[AnyTerms]) -> AnyTerms:
    """The terms that all have accepted; if somebody has not, that is an error here too."""
    if role.outcome:
        raise RunError(f"the terms were refused by {role.outcome}")
    assert isinstance(role.terms, kind)
    return role.terms


def check_enrolled(role: EnrolServer) -> None:
    if role.refusals:
        told = "; ".join(f"{name}: {reason}" for name, reason in role.refusals.items())
        raise RunError(f"the terms were refused by {told}")
