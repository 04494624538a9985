"""Build the roles of a run from its terms: the solver's own, with the protection of the terms around them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any

from evenhand.errors import InputError, MissingExtraError
from evenhand.horizontal.problem import ClientData, HorizontalServerData
from evenhand.horizontal.roles import HorizontalClient, HorizontalServer
from evenhand.protocol.roles import Role
from evenhand.protocol.solver import Solver
from evenhand.protocol.terms import HorizontalTerms, VerticalTerms
from evenhand.solvers.registry import HORIZONTAL, VERTICAL
from evenhand.vertical.parties import Party
from evenhand.vertical.problem import PartyData, ServerData
from evenhand.vertical.protected.build import dealer, protected_party, protected_server
from evenhand.vertical.protected.layer import innermost
from evenhand.vertical.server import CompiledRun, Server

# -- vertical


def solver_of(terms: VerticalTerms) -> Solver[Server, Party]:
    """Return the solver of terms. Their job was checked when they were drawn up."""
    return VERTICAL[terms.job.solver]


def server(terms: VerticalTerms, own: ServerData) -> Role:
    """Return the server's role of a vertical run."""
    solver = solver_of(terms)
    return protected_server(terms, own, solver) if terms.only_sums else solver.server(terms, own)


def party(terms: VerticalTerms, name: str, own: PartyData) -> Role:
    """Return a party's role."""
    solver = solver_of(terms)
    if name not in terms.names:
        raise InputError(f"the terms name no party {name!r}; there are {', '.join(terms.names)}")
    return protected_party(terms, name, own, solver) if terms.only_sums else solver.participant(terms, name, own)


def helpers(terms: VerticalTerms) -> list[Role]:
    """Return the roles of participants without data: the dealer, where the terms have one."""
    return [] if terms.dealer is None else [dealer(terms)]


def solvers_server(role: Role) -> Server:
    """Return the solver's own server, without the layers of protection around it."""
    found = innermost(role)
    assert isinstance(found, Server)
    return found


def solvers_party(role: Role) -> Party:
    """Return the solver's own party, without the layers of protection around it."""
    found = innermost(role)
    assert isinstance(found, Party)
    return found


def compiled(terms: VerticalTerms, own: ServerData, parties: Mapping[str, PartyData]) -> CompiledRun | None:
    """Return the one role that does everybody's work, where all data are here and the solver has a compiled loop."""
    make = solver_of(terms).compiled
    if make is None:
        return None
    found = make(terms, own, parties)
    assert isinstance(found, CompiledRun)
    return found


# -- horizontal


def clients_server(terms: HorizontalTerms, own: HorizontalServerData) -> HorizontalServer:
    """Return the server's role of a horizontal run."""
    role = HORIZONTAL[terms.job.solver].server(terms, own)
    return _masked().SummingServer(terms, role) if terms.only_sums else role


def client(terms: HorizontalTerms, name: str, own: ClientData) -> HorizontalClient:
    """Return a client's role."""
    return _protected(terms, HORIZONTAL[terms.job.solver].participant(terms, name, own))


def clients(terms: HorizontalTerms, owns: Mapping[str, ClientData]) -> Sequence[HorizontalClient]:
    """Return the roles of all clients of one process, batched where the solver can."""
    batched = HORIZONTAL[terms.job.solver].batched
    ordered = {name: owns[name] for name in terms.names}
    if batched is None:
        return [client(terms, name, own) for name, own in ordered.items()]
    return [_protected(terms, one) for one in batched(terms, ordered)]


def _protected(terms: HorizontalTerms, role: HorizontalClient) -> HorizontalClient:
    return _masked().MaskedClient(terms, role) if terms.only_sums else role


def _masked() -> Any:
    """Load the masks only where they are used: they need an extra."""
    try:
        return import_module("evenhand.horizontal.masked.roles")
    except ImportError as error:
        raise MissingExtraError("protection 'masked' across clients", "privacy") from error
