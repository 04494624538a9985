"""Build the roles of a run from its terms: the solver's roles, wrapped in the protection of the terms."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from importlib import import_module
from typing import Any, Final

from evenhand.constraints.groups import Groups
from evenhand.errors import InputError, MissingExtraError
from evenhand.horizontal.cutting import VOCABULARY as COUNTING
from evenhand.horizontal.cutting import CountingClient, CountingServer
from evenhand.horizontal.problem import ClientData, HorizontalServerData
from evenhand.horizontal.roles import HorizontalClient, HorizontalServer
from evenhand.privacy.key_exchange import Session
from evenhand.protocol.job import Job, Protection
from evenhand.protocol.messages import Vocabulary
from evenhand.protocol.roles import Role
from evenhand.protocol.solver import Solver
from evenhand.protocol.terms import HorizontalTerms, Part, Terms, VerticalTerms
from evenhand.solvers.registry import HORIZONTAL, VERTICAL, check_job, check_monotone, solver_name
from evenhand.vertical.leaving import with_leaving
from evenhand.vertical.problem import Party, PartyData, ServerData
from evenhand.vertical.protected.build import dealer, protected_party, protected_server
from evenhand.vertical.protected.layer import innermost
from evenhand.vertical.server import CompiledRun, Server

# -- vertical


def solver_of(terms: VerticalTerms) -> Solver[Server, Party]:
    """Return the solver of the terms. The job was checked when the terms were made."""
    return VERTICAL[terms.job.solver]


def agrees_on_keys(terms: VerticalTerms) -> bool:
    """Return whether masks hide messages of this run, so that participants agree on keys first."""
    return terms.only_sums or solver_of(terms).agrees_on_keys


def server(terms: VerticalTerms, own: ServerData, rounds: int = 0) -> Role:
    """Return the server's role of a vertical run; `rounds` were before this training, with parties that are gone."""
    solver = solver_of(terms)
    role = protected_server(terms, own, solver) if terms.only_sums else solver.server(terms, own)
    return with_leaving(role, terms, rounds)


def party(terms: VerticalTerms, name: str, own: PartyData) -> Role:
    """Return a party's role."""
    solver = solver_of(terms)
    if name not in terms.names:
        raise InputError(f"the terms name no party {name!r}; there are {', '.join(terms.names)}")
    role = protected_party(terms, name, own, solver) if terms.only_sums else solver.participant(terms, name, own)
    role = with_leaving(role, terms)
    role.round_limit, role.trainings = terms.job.max_rounds, trainings(terms)
    return role


FOLDS: Final = 3
"""Models that score the training rows for a rule, each without a third of them."""


def folds(terms: Terms) -> int:
    """Return how many models score the training rows for the rule that chooses the cut: 1 has seen its rows.

    Across columns rows are left out by weights of zero, which only the label holder's side needs to know. A client
    leaves out rows of its own.
    """
    job = terms.job
    if isinstance(terms, HorizontalTerms):
        # Averaging solvers train all their rounds each time.
        return FOLDS if job.rule is not None and not HORIZONTAL[job.solver].fixed_rounds else 1
    assert isinstance(terms, VerticalTerms)
    alone = len(terms.active) == 1 and job.label_privacy is None
    # Trees and learners are cross-fitted in one training.
    takes = solver_of(terms).takes_weights and job.model not in ("trees", "own")
    return FOLDS if job.rule is not None and alone and takes else 1


def choices_of_cut(terms: Terms) -> int:
    """Return how often a cut is chosen before the training that counts."""
    return terms.job.searches or int(folds(terms) > 1)


def trainings(terms: Terms) -> int:
    """Return how often a run trains: each training may take all its rounds, and the last one counts."""
    return 1 + choices_of_cut(terms) * folds(terms)


def helpers(terms: VerticalTerms, session: Session | None = None) -> list[Role]:
    """Return the roles of participants without data: the dealer, where the terms have one, with its secrets."""
    if terms.dealer is None:
        return []
    role = dealer(terms, session)
    role.trainings = trainings(terms)
    return [role]


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
    """Return one role that does the work of all participants, if the solver has a compiled loop."""
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
    return _protected(terms, HORIZONTAL[terms.job.solver].participant(terms, name, own), own)


def clients(terms: HorizontalTerms, owns: Mapping[str, ClientData]) -> Sequence[HorizontalClient]:
    """Return the roles of all clients in one process, batched if the solver supports it."""
    batched = HORIZONTAL[terms.job.solver].batched
    ordered = {name: owns[name] for name in terms.names}
    if batched is None:
        return [client(terms, name, own) for name, own in ordered.items()]
    return [_protected(terms, one, ordered[one.name]) for one in batched(terms, ordered)]


def _protected(terms: HorizontalTerms, role: HorizontalClient, own: ClientData) -> HorizontalClient:
    role.once = own.once
    if terms.only_sums:
        if own.session is None:
            raise InputError(f"{role.name} has agreed on no keys, which masks need; agree on them before training")
        role = _masked().MaskedClient(terms, role, own.session, None if terms.noise_covers else own.summed)
        role.once = own.once
    role.round_limit, role.trainings = terms.job.max_rounds, trainings(terms)
    return role


def counting_server(terms: HorizontalTerms, role: CountingServer) -> HorizontalServer:
    """Return the server's role that chooses the cut, under the protection of the terms."""
    if not terms.only_sums:
        return role
    return _with_words(_masked().SummingServer(terms, role))


def counting_client(terms: HorizontalTerms, role: CountingClient, own: ClientData) -> HorizontalClient:
    """Return a client's role that counts scores."""
    found = _protected(terms, role, own)
    # Two looks, and the words of masks about each.
    found.round_limit = None
    return _with_words(found) if terms.only_sums else found


def _with_words(role: Any) -> Any:
    """Give server and clients one vocabulary, by which an exchange finds who takes part in it."""
    role.vocabulary = _masked_counting()
    return role


@cache
def _masked_counting() -> Vocabulary:
    return Vocabulary(*COUNTING, *import_module("evenhand.horizontal.masked.messages").VOCABULARY)


def _masked() -> Any:
    """Import masking only if it is used: it needs an extra."""
    try:
        return import_module("evenhand.horizontal.masked.roles")
    except ImportError as error:
        raise MissingExtraError("protection 'masked' across clients", "privacy") from error


_DEALER: Final = "dealer"
"""Name of the dealer in one process, if no participant has that role."""


def vertical_terms(
    job: Job, participants: Mapping[str, Part], n_rows: int, groups: Groups, *, warm: bool = False
) -> VerticalTerms:
    """Return the terms of a valid job, with an explicit solver name."""
    protection = _protection(job, check_job(job, "vertical"), participants)
    if job.label_privacy is not None and (active := list(participants.values()).count("active")) != 1:
        raise InputError(f"label_privacy needs exactly one active party, the label holder; there are {active}")
    everybody = _in_order(_with_dealer(participants, protection))
    draft = VerticalTerms(job.resolved(solver=solver_name(job), protection=protection), everybody, 0)
    return with_rows(draft, n_rows, groups, warm=warm)


def with_rows(draft: VerticalTerms, n_rows: int, groups: Groups, *, warm: bool = False) -> VerticalTerms:
    """Return the terms with what is known after alignment: the number of rows, and their groups."""
    if draft.job.label_privacy is not None and warm:
        raise InputError("label_privacy does not support warm_start: an earlier run may have used the true labels")
    agreed = {name: tuple(values) for name, values in groups.items()}
    return replace(draft, n_rows=n_rows, groups=agreed, warm=warm)


def _in_order(participants: Mapping[str, Part]) -> dict[str, Part]:
    """Return the first active party, which has the intercept, then all others by name.

    This order numbers the parties: scores are summed, steps launched and delays drawn in it, independent of the order
    in which parties are given. Shorter names come first, so that numbered names stay in numeric order.
    """
    first = next((name for name, part in participants.items() if part == "active"), "")
    return {
        name: participants[name] for name in sorted(participants, key=lambda name: (name != first, len(name), name))
    }


def _protection(job: Job, solver: Solver[Any, Any], participants: Mapping[str, Part]) -> Protection:
    """Return the job's protection; ``"auto"`` chooses a level that costs almost nothing."""
    parts = list(participants.values())
    passive, active = parts.count("passive"), parts.count("active")
    if job.protection == "auto":
        found: Protection = "masked" if solver.masked_by_default and passive > 1 and active == 1 else "none"
        # Parties expect the level that they get by default: a lower one has to be asked for.
        if job.options.get("monotone"):
            check_monotone(replace(job, protection=found), solver)
        return found
    if job.protection == "none":
        return "none"
    if active != 1:
        raise InputError(
            f"protection {job.protection!r} needs exactly one active party, the label holder; there are {active}"
        )
    if passive < (2 if job.protection == "masked" else 1):
        raise InputError(
            f"protection {job.protection!r} with {passive} passive part{'y' if passive == 1 else 'ies'}: a sum over "
            "one party hides nothing; choose 'none' and accept that the server reads it"
        )
    return job.protection


def _with_dealer(participants: Mapping[str, Part], protection: Protection) -> Mapping[str, Part]:
    """Add the dealer, a third party without data, if the protection needs one and no participant has that role."""
    if "dealer" in participants.values():
        if protection != "dealer":
            raise InputError(
                f"a participant has the role dealer, which protection {protection!r} does not use; remove it"
            )
        return participants
    if protection != "dealer":
        return participants
    if _DEALER in participants:
        raise InputError(f"a party is named {_DEALER!r}, the name of the third party without data; rename the party")
    return {**participants, _DEALER: "dealer"}
