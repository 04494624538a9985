"""Agree on the terms of a horizontal run: each client summarises its rows, and the server combines the summaries.

There are up to three exchanges, in this order. In each, every client sends a summary and receives the combined result:

1. the shape of the rows, and the labels and groups that occur;
2. the crossings of groups that occur, if a constraint crosses attributes without agreed values;
3. the number of rows in each slice of the inequalities, if the solver weights all clients' rows from the start.

Clients run `say`, and the server runs `combine`; `training/horizontal_steps.py` sends the summaries as messages.
"""

from __future__ import annotations

from collections.abc import Generator, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeAlias

from evenhand.constraints.groups import CROSSES, Groups
from evenhand.constraints.scope import EVERYWHERE, ConstraintScope
from evenhand.constraints.small_slices import warn_of_counts
from evenhand.errors import DataError
from evenhand.horizontal.problem import ClientRows
from evenhand.horizontal.summaries import (
    Combine,
    RowsSummary,
    SliceCounts,
    added,
    check_known_groups,
    common_classes,
    common_crossings,
    common_groups,
    common_shape,
    count_slices,
    held_crossings,
    inequalities_without_rows,
    learns_crossings,
    summarise,
    total_counts,
    total_weights,
    unlabelled,
    weigh_slices,
)
from evenhand.protocol.agree import Summary
from evenhand.protocol.job import Job
from evenhand.protocol.roles import SERVER
from evenhand.protocol.terms import HorizontalTerms, Part, plain
from evenhand.solvers.registry import HORIZONTAL, check_terms, choose_solver

Saying: TypeAlias = Generator[Summary, Summary, None]
"""Generator of one client's summaries; it is sent the combined summary after each."""
Combining: TypeAlias = Generator[Combine, Summary, HorizontalTerms]
"""Generator of functions that combine summaries; it is sent the combined summary after each, and returns the terms."""


@dataclass(frozen=True)
class KnownBefore:
    """What is known about the rows before any client sends a summary.

    Attributes
    ----------
    groups
        The possible values of each sensitive attribute; None takes those that occur.
    classes
        Number of classes, if labels are class indices; None determines it from the labels.
    simulated
        Whether all clients are in one process. Protected statistics are then not sent, but slices that nobody counts
        are still checked.
    """

    groups: Mapping[str, Sequence[Hashable]] | None = None
    classes: int | None = None
    simulated: bool = False

    def leaves_unsaid(self, draft: HorizontalTerms) -> bool:
        """Whether clients send nothing about labels and groups: updates are protected, and values are agreed."""
        return self.simulated and draft.protected and self.groups is not None


def draft_terms(
    job: Job,
    names: Sequence[str],
    *,
    scope: ConstraintScope = EVERYWHERE,
    noise: Mapping[str, Any] | None = None,
    two_classes: bool = True,
    server_rows: bool = False,
) -> HorizontalTerms:
    """Return the terms as far as they are known before any client sends a summary."""
    if len(set(names)) < len(names):
        raise DataError(f"two clients are named {next(name for name in names if names.count(name) > 1)!r}")
    solver = choose_solver(
        job.solver, model=job.model, constrained=bool(job.constraints), two_classes=two_classes, protected=bool(noise)
    )
    named = job.resolved(solver=solver, constraints=job.constraints or HORIZONTAL[solver].default_constraints)
    participants: dict[str, Part] = dict.fromkeys(sorted(names), "client")
    return HorizontalTerms(named, participants, 0, {}, (), None, noise or {}, scope, server_rows)


# -- the client's part


def say(draft: HorizontalTerms, known: KnownBefore, rows: ClientRows) -> Saying:
    """Yield a client's summaries of its own rows."""
    rows = unlabelled(rows, draft.job)
    constraints, own = draft.job.constraints, summarise(rows)
    given = None if known.groups is None else _plain_groups(known.groups)
    if known.leaves_unsaid(draft):
        assert given is not None
        told: Mapping[str, Sequence[Any]] = given
    else:
        said = dict(own.to_plain())
        if draft.protected and given is not None:
            # Send only the number of columns, which all clients know from the encoder.
            said |= {"labels": [-1.0, 1.0], "groups": given}
        told = (yield said)["groups"]
    groups = held_values(told, [rows])
    check_known_groups([own], groups, crosses=_crosses(draft))
    if learns_crossings(constraints, groups):
        agreed = yield {"crossed": [] if draft.server_rows else held_crossings(rows, groups)}
        groups |= {CROSSES.join(groups): tuple(agreed["crossed"])}
    if HORIZONTAL[draft.job.solver].weighs_rows:
        inequalities = replace(draft, groups=groups).inequalities
        counts, weighted = count_slices(rows.agreed(groups), inequalities), rows.sample_weight is not None
        own_weights = {"weights": weigh_slices(rows.agreed(groups), inequalities)} if weighted else {}
        yield {"n_rows": rows.n_rows, "counts": list(counts.values()), **own_weights}


# -- the server's part


def combine(
    draft: HorizontalTerms,
    known: KnownBefore,
    server: ClientRows | None = None,
    everybody: Mapping[str, ClientRows] | None = None,
    *,
    warns: bool = True,
) -> Combining:
    """Combine the clients' summaries into terms.

    Parameters
    ----------
    server
        The server's own rows.
    everybody
        In a simulation, all clients' rows in the order of names, for checks and warnings that a deployment cannot make.
    warns
        Whether to warn about small slices in a simulation.
    """
    here = {name: unlabelled(one, draft.job) for name, one in (everybody or {}).items()}
    server = None if server is None else unlabelled(server, draft.job)
    heard: dict[str, RowsSummary] = {}

    def common(summaries: Mapping[str, Summary]) -> Summary:
        heard.update({name: RowsSummary.from_plain(name, one) for name, one in summaries.items()})
        return _common(list(heard.values()), known, draft)

    if known.leaves_unsaid(draft):
        agreed = common({name: summarise(one).to_plain() for name, one in here.items()})
    else:
        agreed = yield common
    shape, classes = tuple(agreed["shape"]), agreed["classes"]
    groups = held_values(agreed["groups"], list(here.values()))
    if server is not None:
        summaries = [*heard.values(), summarise(server)]
        common_shape(summaries)
        common_classes(summaries, classes, classifies=draft.job.loss_function.classifies)
        check_known_groups(summaries[-1:], groups, _crosses(draft))
    if learns_crossings(draft.job.constraints, groups):
        crossed = yield partial(common_crossings, draft.job.constraints, groups, server)
        groups |= {CROSSES.join(groups): tuple(crossed["crossed"])}
    draft = replace(draft, groups=groups, shape=shape, classes=classes)
    check_terms(draft)
    rows = draft.inequalities
    counts: dict[str, SliceCounts] = {}
    if server is not None:
        counts[SERVER] = count_slices(server.agreed(groups), rows)
    terms = [draft]
    if HORIZONTAL[draft.job.solver].weighs_rows:
        parts = list(dict.fromkeys(part for row in rows for _, part in row.terms))

        def count(summaries: Mapping[str, Summary]) -> Summary:
            told = {name: dict(zip(parts, map(int, one["counts"]), strict=True)) for name, one in summaries.items()}
            counts.update(told)
            weights = total_weights(summaries, parts)
            counted = _counted(draft, counts, sum(int(one["n_rows"]) for one in summaries.values()))
            terms.append(replace(counted, weights=weights))
            return {"n_rows": terms[-1].n_rows, "counts": [added(told.values())[part] for part in parts]}

        yield count
    elif here:
        # No participant is told the number of rows: refuse an empty slice here, where all rows are visible.
        counts |= {name: count_slices(one.agreed(groups), rows) for name, one in here.items()}
        _counted(draft, counts, 0)
    if warns and here:
        _warn_of_small_slices(terms[-1], counts)
    return terms[-1]


def _common(summaries: Sequence[RowsSummary], known: KnownBefore, draft: HorizontalTerms) -> Summary:
    """Shape, labels and groups over all clients' rows."""
    given = None if known.groups is None else {name: tuple(one) for name, one in _plain_groups(known.groups).items()}
    shape, agreed = common_shape(summaries), common_groups(summaries, given, crosses=_crosses(draft))
    classes = common_classes(summaries, known.classes, classifies=draft.job.loss_function.classifies)
    return {"shape": list(shape), "classes": classes, "groups": _plain_groups(agreed)}


def _counted(draft: HorizontalTerms, counts: Mapping[str, SliceCounts], n_rows: int) -> HorizontalTerms:
    """Return the terms with row counts; `counts` has each client's counts, and the server's if it has rows."""
    scope, rows = draft.scope, draft.inequalities
    total = total_counts({name: counts[name] for name in draft.names}, draft.shared_inequalities)
    missing = {}
    if scope.scope != "global":
        missing = {name: tuple(inequalities_without_rows(name, counts[name], rows, scope)) for name in draft.names}
    if draft.server_rows:
        inequalities_without_rows(SERVER, counts[SERVER], rows, scope)
    holding = {name: places for name, places in missing.items() if places}
    return replace(draft, n_rows=n_rows, slice_counts=total, left_out=holding)


def _crosses(draft: HorizontalTerms) -> bool:
    return any(one.crosses for one in draft.job.constraints)


def _plain_groups(groups: Groups) -> dict[str, list[Any]]:
    """Return groups as JSON values."""
    return {name: [plain(value) for value in values] for name, values in groups.items()}


def held_values(groups: Mapping[str, Sequence[Any]], clients: Sequence[ClientRows]) -> dict[str, tuple[Hashable, ...]]:
    """Return groups as table values, from the text that JSON holds."""
    found: dict[str, tuple[Hashable, ...]] = {}
    for name, values in groups.items():
        # A crossing is not a column of the table, and is already text.
        columns = [one.groups[name] for one in clients if one.groups is not None and name in one.groups]
        held = {plain(value): value for column in columns for value in column.unique()}
        found[name] = tuple(held.get(value, value) for value in values)
    return found


def _warn_of_small_slices(terms: HorizontalTerms, counts: Mapping[str, SliceCounts]) -> None:
    """Warn about small slices: of all rows (or the server's) for global constraints, of each client's for local."""
    crossed = terms.groups if _crosses(terms) else {}
    holders = {} if terms.scope.scope == "global" else {name: counts[name] for name in terms.names}
    if terms.scope.scope != "local":
        together = {name: counts[name] for name in ([SERVER] if terms.server_rows else terms.names)}
        holders[SERVER] = added(together.values())
    for name, own in holders.items():
        owner = "" if name == SERVER else f"client {name!r}"
        warn_of_counts(terms.inequalities_at(name), own, crossed, owner=owner, stacklevel=6)
