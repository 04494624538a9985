"""Build the roles of a run from its terms: the solver's own, with the protection of the terms around them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from importlib import import_module
from typing import Any, Final

from evenhand.constraints.groups import Groups
from evenhand.errors import InputError, MissingExtraError
from evenhand.horizontal.problem import ClientData, HorizontalServerData
from evenhand.horizontal.roles import HorizontalClient, HorizontalServer
from evenhand.protocol.job import Job, Protection
from evenhand.protocol.roles import Role
from evenhand.protocol.solver import Solver
from evenhand.protocol.terms import HorizontalTerms, Part, VerticalTerms
from evenhand.solvers.checking import check_job
from evenhand.solvers.registry import HORIZONTAL, VERTICAL, solver_name
from evenhand.vertical.problem import Party, PartyData, ServerData
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


_DEALER: Final = "dealer"
"""The dealer's name in one process, where no participant is the dealer."""


def vertical_terms(
    job: Job, participants: Mapping[str, Part], n_rows: int, groups: Groups, *, warm: bool = False
) -> VerticalTerms:
    """Return the terms of a job that can be run, with the solver by name."""
    protection = _protection(job, check_job(job, "vertical"), participants)
    if job.label_privacy is not None and (active := list(participants.values()).count("active")) != 1:
        raise InputError(f"label_privacy takes one active party, which holds the labels; {active} would be sent them")
    everybody = _in_order(_with_dealer(participants, protection))
    draft = VerticalTerms(job.resolved(solver_name(job), protection), everybody, 0)
    return with_rows(draft, n_rows, groups, warm=warm)


def with_rows(draft: VerticalTerms, n_rows: int, groups: Groups, *, warm: bool = False) -> VerticalTerms:
    """Return draft terms with what is known once rows are aligned: how many there are, and their groups."""
    if draft.job.label_privacy is not None and warm:
        raise InputError("label_privacy begins anew: an earlier run may have known the true labels; drop warm_start")
    agreed = {name: tuple(values) for name, values in groups.items()}
    return replace(draft, n_rows=n_rows, groups=agreed, warm=warm)


def _in_order(participants: Mapping[str, Part]) -> dict[str, Part]:
    """The first active party, whose model has the intercept, then all others by name.

    Parties are numbered so: scores are summed, steps launched and delays drawn in this order, whatever order they were
    given in. Shorter names come first, so that numbered ones stay in the order of their numbers.
    """
    first = next((name for name, part in participants.items() if part == "active"), "")
    return {
        name: participants[name] for name in sorted(participants, key=lambda name: (name != first, len(name), name))
    }


def _protection(job: Job, solver: Solver[Any, Any], participants: Mapping[str, Part]) -> Protection:
    """The job's protection; ``"auto"`` is what costs next to nothing."""
    parts = list(participants.values())
    passive, active = parts.count("passive"), parts.count("active")
    if job.protection == "auto":
        return "masked" if solver.masked_by_default and passive > 1 and active == 1 else "none"
    if job.protection == "none":
        return "none"
    if active != 1:
        raise InputError(f"protection {job.protection!r} takes one active party, which holds the labels; {active} are")
    if passive < (2 if job.protection == "masked" else 1):
        raise InputError(
            f"protection {job.protection!r} with {passive} passive part{'y' if passive == 1 else 'ies'}: a sum over "
            "one is its own message and hides nothing; choose 'none' and accept that the server reads it"
        )
    return job.protection


def _with_dealer(participants: Mapping[str, Part], protection: Protection) -> Mapping[str, Part]:
    """With the third party that has no data, where there is to be one and nobody says who it is."""
    if "dealer" in participants.values():
        if protection != "dealer":
            raise InputError(f"a participant is the dealer, who has no part in protection {protection!r}; leave it out")
        return participants
    if protection != "dealer":
        return participants
    if _DEALER in participants:
        raise InputError(
            f"a party's name is {_DEALER!r}, which is that of the third party without data; choose another"
        )
    return {**participants, _DEALER: "dealer"}
