"""Roles of one process handing messages to each other, for functions that solve a program and return the answer.

No clock, no transcript, no faults: a run that needs those goes through a runtime.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence

from evenhand.constraints.bounds import Bounds
from evenhand.errors import InputError, ProtocolError
from evenhand.programs.program import Program
from evenhand.protocol.messages import Message
from evenhand.protocol.names import check_name
from evenhand.protocol.roles import Report, Role


def deliver(roles: Sequence[Role]) -> list[Report]:
    """Run roles to the end, in the order of sending; return the rows of history they reported."""
    mailboxes = {role.name: role for role in roles}
    history: list[Report] = []
    under_way: deque[Message] = deque(message for role in roles for message in role.start())
    while under_way:
        message = under_way.popleft()
        role = mailboxes[message.receiver]
        under_way.extend(role.receive(message))
        history += role.take_reports()
    waiting = [role.name for role in roles if not role.done]
    if waiting:
        raise ProtocolError(f"the run stalled: nothing is under way, yet {', '.join(waiting)} wait for messages")
    return history


def named(clients: Sequence[Program] | Mapping[str, Program]) -> dict[str, Program]:
    """Clients by name, in the order of names; those without a name become c00, c01, ..."""
    if not clients:
        raise InputError("a program needs at least one client")
    if not isinstance(clients, Mapping):
        digits = len(str(len(clients) - 1))
        clients = {f"c{place:0{digits}d}": client for place, client in enumerate(clients)}
    for name in clients:
        check_name("client", name)
    return dict(sorted(clients.items()))


def check_fit(clients: Mapping[str, Program], server: Program | None, shared: Bounds) -> int:
    """d, if all programs are functions of as many weights and of the same shared rows."""
    sizes = {program.weights for program in [*clients.values(), *([] if server is None else [server])]}
    if len(sizes) > 1:
        raise InputError(f"programs are functions of {sorted(sizes)} weights; all need the same number")
    for name, program in clients.items():
        if program.shared != shared.n_rows:
            raise InputError(
                f"client {name!r} has summands of {program.shared} shared rows, bounds are given for {shared.n_rows}"
            )
    if server is not None and server.shared:
        raise InputError("the server's program has shared rows; its rows are its own")
    return sizes.pop()
