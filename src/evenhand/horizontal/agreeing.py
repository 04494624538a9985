"""How clients come to terms: each sums up its rows, and nothing but the summaries is put together.

Two steps, since slices can be counted only when everybody knows the groups: what the rows are like, then how many of
them each slice of the constraint rows has.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

from evenhand.constraints.groups import Groups, crossed_name
from evenhand.constraints.scope import EVERYWHERE, ConstraintScope
from evenhand.constraints.slices import ConstraintRow, Slice
from evenhand.constraints.small_slices import warn_of_counts
from evenhand.errors import ConstraintError, DataError
from evenhand.horizontal.crossings import Agree, crossed_groups, learns_crossings
from evenhand.horizontal.problem import ClientRows
from evenhand.horizontal.solvers import SOLVERS, check_terms, choose_solver
from evenhand.protocol.agree import Summary
from evenhand.protocol.job import Job
from evenhand.protocol.roles import SERVER
from evenhand.protocol.terms import HorizontalTerms, Part, plain, with_solver

SliceCounts = Mapping[Slice, int]


@dataclass(frozen=True)
class RowsSummary:
    """What a client says of its rows before it knows the others'.

    Attributes
    ----------
    labels
        Those that occur.
    groups
        Of each sensitive attribute the values that occur.
    """

    name: str
    shape: tuple[int, ...]
    labels: tuple[float, ...]
    groups: Mapping[str, tuple[Hashable, ...]]

    def to_plain(self) -> Summary:
        """As JSON has it; how many rows there are is said later, where it has to be."""
        groups = {name: [plain(value) for value in values] for name, values in self.groups.items()}
        return {"shape": list(self.shape), "labels": list(self.labels), "groups": groups}

    @classmethod
    def from_plain(cls, name: str, content: Summary) -> RowsSummary:
        """Read what a client has said; whatever is wrong with it names the client."""
        try:
            groups = {str(key): tuple(values) for key, values in content["groups"].items()}
            labels = tuple(float(label) for label in content["labels"])
            return cls(name, tuple(int(size) for size in content["shape"]), labels, groups)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise DataError(f"client {name!r} has said nothing that its rows could be: {error!r}") from error


def summarise(rows: ClientRows) -> RowsSummary:
    assert rows.groups is not None
    seen = {str(name): tuple(rows.groups[name].unique().tolist()) for name in rows.groups.columns}
    labels = tuple(np.unique(rows.labels).tolist())
    return RowsSummary(rows.name, tuple(rows.features.shape[1:]), labels, seen)


def count_slices(rows: ClientRows, constraint_rows: Sequence[ConstraintRow]) -> dict[Slice, int]:
    """How many of a client's rows are in each slice of the constraint rows."""
    assert rows.groups is not None
    parts = dict.fromkeys(part for row in constraint_rows for _, part in row.terms)
    return {part: int(part.inside(rows.labels, rows.groups).sum()) for part in parts}


# -- put together


def common_shape(summaries: Sequence[RowsSummary]) -> tuple[int, ...]:
    if not summaries:
        raise DataError("a run needs at least one client")
    first = summaries[0]
    for one in summaries:
        if one.shape != first.shape:
            raise DataError(
                f"client {one.name!r} has rows of shape {one.shape}, client {first.name!r} of shape {first.shape}; all "
                "clients need the same columns"
            )
    return first.shape


def common_classes(summaries: Sequence[RowsSummary], classes: int | None = None) -> int | None:
    """The number of classes, given or found; None for labels of ±1."""
    found = sorted({label for one in summaries for label in one.labels})
    if classes is None and set(found) <= {-1.0, 1.0}:
        if len(found) < 2:
            raise DataError(f"all labels of all clients are {found[0]:+g}; there is nothing to learn")
        return None
    if classes is None and set(found) <= {0.0, 1.0}:
        raise DataError("labels are 0 and 1; two classes are written -1 and +1 (or say classes=2)")
    count = int(found[-1]) + 1 if classes is None else classes
    for one in summaries:
        if not all(0 <= label < count and label == int(label) for label in one.labels):
            wrong = "±1, or whole numbers from 0" if classes is None else f"whole numbers from 0 to {count - 1}"
            raise DataError(f"client {one.name!r} has labels that are not {wrong}")
    if count < 2:
        raise DataError("there is one class only; there is nothing to learn")
    return count


def common_groups(
    summaries: Sequence[RowsSummary], groups: Groups | None = None, *, crosses: bool = False
) -> dict[str, tuple[Hashable, ...]]:
    """The values of each sensitive attribute: those given, or those that occur at any client.

    Parameters
    ----------
    crosses
        Whether a constraint crosses the attributes: whoever has these then has their crossing.
    """
    attributes = list(summaries[0].groups if groups is None else groups)
    crossing = crossed_name(attributes) if crosses else None
    derived = () if crossing is None else (crossing,)
    for one in summaries:
        if sorted({*one.groups, *derived}) != sorted(attributes):
            raise DataError(
                f"client {one.name!r} has the sensitive attributes {sorted(one.groups)}, expected {sorted(attributes)}"
            )
    if groups is None:
        seen = {name: [value for one in summaries for value in one.groups[name]] for name in attributes}
        groups = {name: tuple(pd.factorize(pd.Series(values), sort=True)[1]) for name, values in seen.items()}
    for name in attributes:
        if len(groups[name]) < 2:
            raise DataError(f"sensitive attribute {name!r} has one group only ({groups[name]}); it needs two or more")
    return {name: tuple(groups[name]) for name in attributes}


def added(counts: Iterable[SliceCounts]) -> Counter[Slice]:
    """Counts of several holders together."""
    total: Counter[Slice] = Counter()
    for one in counts:
        total.update(one)
    return total


def check_known_groups(summaries: Sequence[RowsSummary], groups: Groups, crosses: bool) -> None:
    """Refuse attributes and values that nobody agreed on."""
    common_groups(summaries, groups, crosses=crosses)
    crossing = crossed_name(groups)
    for one in summaries:
        for name, values in groups.items():
            # People of a crossing that is left out are in none of its slices.
            if name == crossing:
                continue
            unknown = [value for value in one.groups[name] if value not in values]
            if unknown:
                raise DataError(
                    f"client {one.name!r}: {name!r} has the value {unknown[0]!r}, which is not among the agreed groups "
                    f"{list(values)}"
                )


def total_counts(counts: Mapping[str, SliceCounts], rows: Sequence[ConstraintRow]) -> dict[Slice, int]:
    """Rows of all clients in each slice of these constraint rows; one that nobody has any in is refused."""
    together = added(counts.values())
    total = {part: together[part] for row in rows for _, part in row.terms}
    for part, count in total.items():
        if count == 0:
            raise ConstraintError(
                f"slice [{part}] is empty: no client has a row in it; merge or drop that group, or choose another "
                "constraint"
            )
    return total


def lacking_rows(name: str, counts: SliceCounts, rows: Sequence[ConstraintRow], scope: ConstraintScope) -> list[int]:
    """Constraint rows (by number) that have no meaning at a client, because it has no rows in a slice of them."""
    found = []
    for place, row in enumerate(rows):
        empty = [part for _, part in row.terms if not counts[part]]
        if empty and (scope.lacking == "refuse" or name == SERVER):
            who = "the server" if name == SERVER else f"client {name!r}"
            raise ConstraintError(
                f"{who} has no rows in the slice [{empty[0]}], so {row} has no meaning there; merge or drop that group"
                + (
                    ""
                    if name == SERVER
                    else ", use scope 'global', or leave such constraints out with lacking 'leave out'"
                )
            )
        if empty:
            found.append(place)
    return found


# -- all of it, where everybody is in one process


def horizontal_terms(
    job: Job,
    clients: Sequence[ClientRows],
    *,
    model: str = "logistic",
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
    model
        Its name, or ``"module"``.
    groups
        The values each sensitive attribute may take, agreed beforehand; None takes those that occur.
    classes
        Number of classes, if labels are class indices; None finds out.
    agree, enrol
        Exchanges that summaries go through, and in which terms are accepted; None puts summaries together here.
    """
    agree = directly if agree is None else agree
    names = [client.name for client in clients]
    if len(set(names)) < len(names):
        raise DataError(f"two clients are called {next(name for name in names if names.count(name) > 1)!r}")
    # What is protected says nothing that need not be said: groups and classes are then agreed on beforehand.
    open_agree = agree if groups is None or not protected else directly
    known = {client.name: summarise(client).to_plain() for client in sorted(clients, key=lambda one: one.name)}
    crosses = any(one.crosses for one in job.constraints)
    common = open_agree(known, lambda summaries: _common(summaries, groups, classes, crosses))
    shape, found = tuple(common["shape"]), common["classes"]
    if server is not None:
        everybody = [*(RowsSummary.from_plain(name, one) for name, one in known.items()), summarise(server)]
        common_shape(everybody)
        common_classes(everybody, found)
    settings: dict[str, Any] = {"model": model, "scope": scope, "protected": protected}
    draft = draft_terms(job, names, two_classes=found is None, server_rows=server is not None, **settings)
    agreed = _values(common["groups"], clients)
    check_known_groups([summarise(one) for one in (*clients, *([] if server is None else [server]))], agreed, crosses)
    if learns_crossings(job.constraints, agreed):
        agreed = crossed_groups(job.constraints, agreed, clients, server, agree)
    draft = replace(draft, groups=agreed, shape=shape, classes=found)
    check_terms(draft)
    counts = {one.name: count_slices(one.agreed(agreed), draft.constraint_rows) for one in clients}
    at_home = {} if server is None else {SERVER: count_slices(server.agreed(agreed), draft.constraint_rows)}
    weighs = SOLVERS[draft.job.solver].weighs_rows
    terms = _counted_by(
        agree if weighs else directly, draft, counts, at_home, {one.name: one.n_rows for one in clients}
    )
    if job.constraints:
        _warn_of_small_slices(terms, counts | at_home)
    return terms if enrol is None else enrol(terms)


def draft_terms(
    job: Job,
    names: Sequence[str],
    *,
    model: str = "logistic",
    scope: ConstraintScope = EVERYWHERE,
    protected: bool = False,
    two_classes: bool = True,
    server_rows: bool = False,
) -> HorizontalTerms:
    """What can be offered before anything is known of anybody's rows."""
    solver = choose_solver(
        job.solver, model=model, constrained=bool(job.constraints), two_classes=two_classes, protected=protected
    )
    named = with_solver(job, solver, SOLVERS[solver].default_constraints)
    participants: dict[str, Part] = dict.fromkeys(sorted(names), "client")
    return HorizontalTerms(named, participants, 0, {}, (), None, model, protected, scope, server_rows)


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


def _values(groups: Mapping[str, Sequence[Any]], clients: Sequence[ClientRows]) -> dict[str, tuple[Hashable, ...]]:
    """Groups as tables hold them, where JSON only has their names."""
    found: dict[str, tuple[Hashable, ...]] = {}
    for name, values in groups.items():
        # A crossing that nobody has as a column is text already.
        columns = [one.groups[name] for one in clients if one.groups is not None and name in one.groups]
        held = {plain(value): value for column in columns for value in column.unique()}
        found[name] = tuple(held.get(value, value) for value in values)
    return found


def _counted_by(
    agree: Agree,
    draft: HorizontalTerms,
    counts: Mapping[str, SliceCounts],
    at_home: Mapping[str, SliceCounts],
    n_rows: Mapping[str, int],
) -> HorizontalTerms:
    """The terms with everybody's rows counted, from what clients say of theirs."""
    parts = list(dict.fromkeys(part for row in draft.constraint_rows for _, part in row.terms))
    found: list[HorizontalTerms] = []

    def combine(summaries: Mapping[str, Summary]) -> Summary:
        told = {name: dict(zip(parts, map(int, one["counts"]), strict=True)) for name, one in summaries.items()}
        found.append(counted(draft, {**told, **at_home}, sum(int(one["n_rows"]) for one in summaries.values())))
        return {"n_rows": found[-1].n_rows, "counts": [added(told.values())[part] for part in parts]}

    said = {name: {"n_rows": n_rows[name], "counts": [counts[name][part] for part in parts]} for name in draft.names}
    agree(said, combine)
    return found[-1]


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
    if not SOLVERS[draft.job.solver].weighs_rows:
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
