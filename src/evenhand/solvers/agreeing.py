"""How clients come to terms: each sums up its rows, and nothing but the summaries is put together.

Two steps, since slices can be counted only when everybody knows the groups: what the rows are like, then how many of
them each slice of the constraint rows has.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Hashable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

from evenhand.constraints.groups import Groups
from evenhand.constraints.scope import EVERYWHERE, ConstraintScope
from evenhand.constraints.small_slices import warn_of_counts
from evenhand.errors import DataError
from evenhand.horizontal.crossings import Agree, Combine, crossed_groups, learns_crossings
from evenhand.horizontal.problem import ClientRows
from evenhand.horizontal.summaries import (
    RowsSummary,
    SliceCounts,
    added,
    check_known_groups,
    common_classes,
    common_groups,
    common_shape,
    count_slices,
    lacking_rows,
    summarise,
    total_counts,
)
from evenhand.protocol.agree import Summary
from evenhand.protocol.job import Job
from evenhand.protocol.roles import SERVER
from evenhand.protocol.terms import HorizontalTerms, Part, plain
from evenhand.solvers.checking import check_terms
from evenhand.solvers.choosing import choose_solver
from evenhand.solvers.registry import HORIZONTAL


def horizontal_terms(
    job: Job,
    clients: Sequence[ClientRows],
    *,
    server: ClientRows | None = None,
    groups: Mapping[str, Sequence[Hashable]] | None = None,
    classes: int | None = None,
    scope: ConstraintScope = EVERYWHERE,
    protected: bool = False,
    agree: Agree | None = None,
    enrol: Callable[[HorizontalTerms], HorizontalTerms] | None = None,
) -> HorizontalTerms:
    """The terms of a run of these clients, or a refusal of what does not fit together.

    Slices with too few rows for what a constraint asks of them are warned of.

    Parameters
    ----------
    groups
        The values each sensitive attribute may take, agreed beforehand; None takes those that occur.
    classes
        Number of classes, if labels are class indices; None finds out.
    agree, enrol
        Exchanges that summaries go through, and in which terms are accepted; None puts summaries together here.
    """
    agree = directly if agree is None else agree
    steps = coming_to_terms(
        job,
        [client.name for client in clients],
        clients,
        server=server,
        groups=groups,
        classes=classes,
        scope=scope,
        protected=protected,
    )
    agreed: Summary | None = None
    while True:
        try:
            said, combine = next(steps) if agreed is None else steps.send(agreed)
        except StopIteration as end:
            terms: HorizontalTerms = end.value
            return terms if enrol is None else enrol(terms)
        agreed = agree(said, combine)


Steps: TypeAlias = Generator[tuple[Mapping[str, Summary], Combine], Summary, HorizontalTerms]
"""What those who are here say, and what puts everybody's word together; what came out is sent back."""


def coming_to_terms(
    job: Job,
    names: Sequence[str],
    here: Sequence[ClientRows],
    *,
    server: ClientRows | None = None,
    groups: Mapping[str, Sequence[Hashable]] | None = None,
    classes: int | None = None,
    scope: ConstraintScope = EVERYWHERE,
    protected: bool = False,
) -> Steps:
    """The exchanges by which clients come to terms, one after the other.

    In one process all clients are here. Where they are apart, a client goes through the same steps with its own rows
    only, and the server with none: what comes out at a client is a draft, and the terms are the server's.

    Parameters
    ----------
    names
        Of all clients.
    here
        Those whose rows are here.
    """
    if len(set(names)) < len(names):
        raise DataError(f"two clients are called {next(name for name in names if names.count(name) > 1)!r}")
    ordered = sorted(here, key=lambda one: one.name)
    known = {client.name: summarise(client).to_plain() for client in ordered}
    together = len(here) == len(names)
    if protected and groups is not None and not together:
        # Nothing but the number of columns, which everybody knows from the encoder.
        agreed_on = {"labels": [-1.0, 1.0], "groups": {name: list(map(plain, one)) for name, one in groups.items()}}
        known = {name: {**one, **agreed_on} for name, one in known.items()}
    crosses = any(one.crosses for one in job.constraints)

    def put_together(summaries: Mapping[str, Summary]) -> Summary:
        return _common(summaries, groups, classes, crosses)

    # What is protected says nothing that need not be said: groups and classes are then agreed on beforehand.
    if groups is None or not protected or not together:
        common = yield known, put_together
    else:
        common = put_together(known)
    shape, found = tuple(common["shape"]), common["classes"]
    if server is not None:
        everybody = [*(RowsSummary.from_plain(name, one) for name, one in known.items()), summarise(server)]
        common_shape(everybody)
        common_classes(everybody, found)
    at_server = server is not None
    draft = draft_terms(job, names, two_classes=found is None, server_rows=at_server, scope=scope, protected=protected)
    agreed = held_values(common["groups"], here)
    check_known_groups([summarise(one) for one in (*here, *([] if server is None else [server]))], agreed, crosses)
    if learns_crossings(job.constraints, agreed):
        agreed = yield from crossed_groups(job.constraints, agreed, here, server)
    draft = replace(draft, groups=agreed, shape=shape, classes=found)
    check_terms(draft)
    counts = {one.name: count_slices(one.agreed(agreed), draft.constraint_rows) for one in here}
    at_home = {} if server is None else {SERVER: count_slices(server.agreed(agreed), draft.constraint_rows)}
    terms = yield from _counted_by_all(draft, counts, at_home, {one.name: one.n_rows for one in here})
    if job.constraints and together:
        _warn_of_small_slices(terms, counts | at_home)
    return terms


def draft_terms(
    job: Job,
    names: Sequence[str],
    *,
    scope: ConstraintScope = EVERYWHERE,
    protected: bool = False,
    two_classes: bool = True,
    server_rows: bool = False,
) -> HorizontalTerms:
    """What can be offered before anything is known of anybody's rows."""
    solver = choose_solver(
        job.solver, model=job.model, constrained=bool(job.constraints), two_classes=two_classes, protected=protected
    )
    named = replace(job, solver=solver, constraints=job.constraints or HORIZONTAL[solver].default_constraints)
    participants: dict[str, Part] = dict.fromkeys(sorted(names), "client")
    return HorizontalTerms(named, participants, 0, {}, (), None, protected, scope, server_rows)


def directly(summaries: Mapping[str, Summary], combine: Callable[[Mapping[str, Summary]], Summary]) -> Summary:
    """Agreeing where nobody has to be asked."""
    return combine(summaries)


def _common(summaries: Mapping[str, Summary], groups: Groups | None, classes: int | None, crosses: bool) -> Summary:
    """What clients' rows have in common, from their summaries."""
    known = [RowsSummary.from_plain(name, one) for name, one in summaries.items()]
    shape = common_shape(known)
    given = None if groups is None else {name: tuple(map(plain, values)) for name, values in groups.items()}
    agreed = common_groups(known, given, crosses=crosses)
    return {
        "shape": list(shape),
        "classes": common_classes(known, classes),
        "groups": {name: [plain(value) for value in values] for name, values in agreed.items()},
    }


def held_values(groups: Mapping[str, Sequence[Any]], clients: Sequence[ClientRows]) -> dict[str, tuple[Hashable, ...]]:
    """Groups as tables hold them, where JSON only has their names."""
    found: dict[str, tuple[Hashable, ...]] = {}
    for name, values in groups.items():
        # A crossing that nobody has as a column is text already.
        columns = [one.groups[name] for one in clients if one.groups is not None and name in one.groups]
        held = {plain(value): value for column in columns for value in column.unique()}
        found[name] = tuple(held.get(value, value) for value in values)
    return found


def _counted_by_all(
    draft: HorizontalTerms,
    counts: Mapping[str, SliceCounts],
    at_home: Mapping[str, SliceCounts],
    n_rows: Mapping[str, int],
) -> Steps:
    """The terms with everybody's rows counted, from what clients say of theirs, where the solver has to know."""
    parts = list(dict.fromkeys(part for row in draft.constraint_rows for _, part in row.terms))
    found: list[HorizontalTerms] = []

    def combine(summaries: Mapping[str, Summary]) -> Summary:
        told = {name: dict(zip(parts, map(int, one["counts"]), strict=True)) for name, one in summaries.items()}
        found.append(counted(draft, {**told, **at_home}, sum(int(one["n_rows"]) for one in summaries.values())))
        return {"n_rows": found[-1].n_rows, "counts": [added(told.values())[part] for part in parts]}

    said = {name: {"n_rows": n_rows[name], "counts": [own[part] for part in parts]} for name, own in counts.items()}
    said = {name: said[name] for name in draft.names if name in said}
    if HORIZONTAL[draft.job.solver].weighs_rows:
        yield said, combine
    elif len(said) == len(draft.names):
        combine(said)
    return found[-1] if found else draft


def counted(draft: HorizontalTerms, counts: Mapping[str, SliceCounts], n_rows: int) -> HorizontalTerms:
    """The terms with everybody's rows counted, as far as the solver has to know.

    Parameters
    ----------
    counts
        By client, and the server's own if it has rows.
    """
    scope, rows = draft.scope, draft.constraint_rows
    total = total_counts({name: counts[name] for name in draft.names}, draft.shared_rows)
    lacking = {}
    if scope.scope != "global":
        lacking = {name: tuple(lacking_rows(name, counts[name], rows, scope)) for name in draft.names}
    if draft.server_rows:
        lacking_rows(SERVER, counts[SERVER], rows, scope)
    if not HORIZONTAL[draft.job.solver].weighs_rows:
        return draft
    holding = {name: places for name, places in lacking.items() if places}
    return replace(draft, n_rows=n_rows, slice_counts=total, lacking=holding)


def _warn_of_small_slices(terms: HorizontalTerms, counts: Mapping[str, SliceCounts]) -> None:
    """Of everybody's rows, or the server's, for a global constraint; of each client's for a local one."""
    crossed = terms.groups if any(one.crosses for one in terms.job.constraints) else {}
    holders = {} if terms.scope.scope == "global" else {name: counts[name] for name in terms.names}
    if terms.scope.scope != "local":
        together = {name: counts[name] for name in ([SERVER] if terms.server_rows else terms.names)}
        holders[SERVER] = added(together.values())
    for name, own in holders.items():
        owner = "" if name == SERVER else f"client {name!r}"
        warn_of_counts(terms.rows_at(name), own, crossed, owner=owner, stacklevel=6)
