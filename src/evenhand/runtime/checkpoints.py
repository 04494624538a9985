"""Stop at any message, go on later: a whole in-process run as states, one for the runtime and one for each role."""

from __future__ import annotations

from collections import deque
from typing import Any

from evenhand.errors import RunError
from evenhand.protocol.messages import Message
from evenhand.protocol.state import State
from evenhand.runtime.inprocess import InProcess


def take(runtime: InProcess) -> dict[str, State]:
    """The run between two events; key ``""`` is the runtime's own state."""
    states = {name: mailbox.role.snapshot() for name, mailbox in runtime.mailboxes.items()}
    own: State = {"time": runtime.time, "scheduled": runtime.scheduled, "started": runtime.started}
    # A list that heapq made is a heap; kept in its order it is the same heap again.
    own["events"] = [
        [time, rank, number, role, _head(own, f"event {number}", message)]
        for time, rank, number, role, message in runtime.events
    ]
    own["inboxes"] = {
        name: [_head(own, f"inbox {name} {place}", message) for place, message in enumerate(mailbox.inbox)]
        for name, mailbox in runtime.mailboxes.items()
    }
    own["idle"] = {name: mailbox.idle for name, mailbox in runtime.mailboxes.items()}
    own["last_arrival"] = [[*link, time] for link, time in runtime.last_arrival.items()]
    return states | {"": own}


def put_back(runtime: InProcess, states: dict[str, State]) -> None:
    """Bring freshly made roles and runtime to where `take` found them."""
    if "" not in states or states.keys() - {""} != runtime.mailboxes.keys():
        raise RunError(
            f"the checkpoint holds roles {sorted(states.keys() - {''})}, the job has {sorted(runtime.mailboxes)}"
        )
    try:
        _put_back(runtime, states)
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError) as error:
        raise RunError(f"the checkpoint is not one of this run ({error!r}); it cannot go on from it") from error


def _put_back(runtime: InProcess, states: dict[str, State]) -> None:
    own = states[""]
    for name, mailbox in runtime.mailboxes.items():
        mailbox.role.restore(states[name])
        mailbox.inbox = deque(message for head in own["inboxes"][name] if (message := _message(own, head)) is not None)
        mailbox.idle = own["idle"][name]
    runtime.time, runtime.scheduled, runtime.started = own["time"], own["scheduled"], own["started"]
    runtime.events = [
        (time, rank, number, role, _message(own, head)) for time, rank, number, role, head in own["events"]
    ]
    runtime.last_arrival = {(sender, receiver): time for sender, receiver, time in own["last_arrival"]}


def _head(own: State, key: str, message: Message | None) -> dict[str, Any] | None:
    """Store a message's arrays in the state and return where they are."""
    if message is None:
        return None
    own.update({f"{key}/{name}": array for name, array in message.body.items()})
    head = {"sender": message.sender, "receiver": message.receiver, "kind": message.kind}
    return head | {"key": key, "names": list(message.body)}


def _message(own: State, head: dict[str, Any] | None) -> Message | None:
    if head is None:
        return None
    body = {name: own[f"{head['key']}/{name}"] for name in head["names"]}
    return Message(head["sender"], head["receiver"], head["kind"], body)
