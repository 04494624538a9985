"""Scope of constraints across clients: over all rows, at each client, or at the server; and their bounds there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Final, Literal

from evenhand.constraints.kinds import Constraint
from evenhand.errors import InputError
from evenhand.printing import is_number, quoted
from evenhand.protocol.roles import SERVER

Scope = Literal["global", "local", "both"]
MissingSlices = Literal["refuse", "leave out"]


@dataclass(frozen=True)
class ConstraintScope:
    """Which rows constraints are about, and with which bounds.

    Parameters
    ----------
    scope
        ``"global"``: all clients' rows together, or the server's own rows if it has any; ``"local"``: each client's
        rows separately; or ``"both"``.
    limits
        Bounds that replace the constraint's ε or limit, by client name; ``"server"`` is for the global constraint.
    missing_slices
        What to do if a client has no rows in a slice of a local constraint: refuse the run, or leave the constraint out
        at that client.
    """

    scope: Scope = "global"
    limits: Mapping[str, float] | None = None
    missing_slices: MissingSlices = "refuse"

    def __post_init__(self) -> None:
        if not isinstance(self.scope, str) or self.scope not in ("global", "local", "both"):
            raise InputError(f"scope is {quoted(self.scope)}; choose 'global', 'local' or 'both'")
        if not isinstance(self.missing_slices, str) or self.missing_slices not in ("refuse", "leave out"):
            raise InputError(f"missing_slices is {quoted(self.missing_slices)}; choose 'refuse' or 'leave out'")
        if self.limits is not None and not isinstance(self.limits, Mapping):
            raise InputError(f"limits are {quoted(self.limits)}; give a bound for each name, such as {{'server': 0.1}}")
        for name, limit in (self.limits or {}).items():
            if not isinstance(name, str):
                raise InputError(f"limits name {quoted(name)}; a client's name is text")
            if not (is_number(limit) and limit >= 0):
                raise InputError(f"the limit of {name!r} is {quoted(limit)}; it must be a number, zero or more")
            if self.scope == ("local" if name == SERVER else "global"):
                raise InputError(
                    f"{name!r} has its own limit, but scope={self.scope!r} does not use it; choose "
                    f"{'global' if name == SERVER else 'local'!r} or 'both'"
                )

    def check(self, constraints: Sequence[Constraint], clients: Sequence[str]) -> None:
        """Refuse limits for unknown clients, or for several constraints."""
        for name in self.limits or {}:
            if name not in (SERVER, *clients):
                raise InputError(f"limits name {name!r}, which is not a client; the clients are {', '.join(clients)}")
        if self.limits and len(constraints) != 1:
            raise InputError(f"limits of clients need exactly one constraint; there are {len(constraints)}")

    def constraints_of(self, name: str, constraints: Sequence[Constraint]) -> tuple[Constraint, ...]:
        """Return the constraints with the limit of this client, or of the server, if it has one."""
        limit = (self.limits or {}).get(name)
        return tuple(constraints) if limit is None else tuple(with_bound(one, limit) for one in constraints)


EVERYWHERE: Final = ConstraintScope()


def with_bound(constraint: Constraint, bound: float) -> Constraint:
    """Return the constraint with another ε or limit."""
    known = [field.name for field in fields(constraint)]
    return replace(constraint, **{"epsilon" if "epsilon" in known else "limit": bound})
