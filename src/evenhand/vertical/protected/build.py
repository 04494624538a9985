"""Build roles with the protection that the terms name."""

from __future__ import annotations

from dataclasses import replace
from typing import Final, Literal

from evenhand.errors import InputError
from evenhand.privacy.fixed_products import ProductGrid
from evenhand.privacy.key_exchange import Session
from evenhand.protocol.roles import SERVER, Role
from evenhand.protocol.solver import Solver
from evenhand.protocol.terms import VerticalTerms
from evenhand.vertical.problem import Party, PartyData, ServerData
from evenhand.vertical.protected.dealing import DealerRole, DealtParty, DealtServer
from evenhand.vertical.protected.encrypting import EncryptedParty, EncryptedServer
from evenhand.vertical.protected.guarding import check_columns
from evenhand.vertical.protected.masking import MaskedParty, TogetherServer
from evenhand.vertical.protected.products import PlainProductParty, PlainProductServer
from evenhand.vertical.server import Server

Products = Literal["dealer", "encrypted", "plain"]
_TOGETHER: Final = "together"


def protected_server(
    terms: VerticalTerms,
    own: ServerData,
    solver: Solver[Server, Party],
    products: Products | None = None,
) -> Role:
    """Return the server's role in its layers. The solver sees all passive parties as one.

    Parameters
    ----------
    products
        How X_kᵀν is computed; by default as the terms say. ``"plain"`` computes it in the clear, for comparison.
    """
    holder, members = terms.active[0], terms.passive
    together = _TOGETHER if holder != _TOGETHER else f"{_TOGETHER} "
    inner = solver.server(replace(terms, participants={holder: "active", together: "passive"}), own)
    session = _session_of(SERVER, own.session)
    masked = TogetherServer(inner, members, together, session)
    grid = ProductGrid(terms.n_rows)
    match products or terms.job.protection:
        case "dealer":
            return DealtServer(masked, grid, members, _dealer_of(terms), session, terms.digest)
        case "encrypted":
            return EncryptedServer(masked, grid, members)
        case "plain":
            return PlainProductServer(masked, grid, members)
    return masked


def protected_party(
    terms: VerticalTerms,
    name: str,
    own: PartyData,
    solver: Solver[Server, Party],
    products: Products | None = None,
) -> Role:
    """Return a party's role in its layers. If ν is hidden, its columns are rounded to the grid of the products."""
    session = _session_of(name, own.session)
    if name not in terms.passive or not terms.hides_nu:
        return MaskedParty(solver.participant(terms, name, own), terms.passive, session, terms.digest)
    check_columns(name, own.matrix)
    grid = ProductGrid(terms.n_rows)
    rounded = replace(own, matrix=grid.on_grid(own.matrix))
    words = grid.columns(rounded.matrix, name)
    masked = MaskedParty(solver.participant(terms, name, rounded), terms.passive, session, terms.digest)
    match products or terms.job.protection:
        case "encrypted":
            return EncryptedParty(masked, grid, words)
        case "plain":
            return PlainProductParty(masked, grid, words)
    return DealtParty(masked, grid, words, _dealer_of(terms), session, terms.digest)


def dealer(terms: VerticalTerms, session: Session | None) -> DealerRole:
    """Return the role of the third party, which has no data."""
    name = _dealer_of(terms)
    role = DealerRole(name, terms.n_rows, terms.passive, _session_of(name, session), terms.digest)
    role.round_limit = terms.job.max_rounds
    return role


def _session_of(name: str, session: Session | None) -> Session:
    if session is None:
        raise InputError(f"{name} has agreed on no keys, which protection needs; agree on them before training")
    return session


def _dealer_of(terms: VerticalTerms) -> str:
    if terms.dealer is None:
        raise InputError(
            "protection 'dealer' needs a dealer, and the terms name none; add a participant with role 'dealer'"
        )
    return terms.dealer
