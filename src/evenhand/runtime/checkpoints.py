"""Stop at any message, go on later: a whole in-process run as states, one for the runtime and one for each role."""

from __future__ import annotations

import os
import shutil
from collections import deque
from pathlib import Path
from typing import Any

from evenhand.errors import RunError
from evenhand.protocol.messages import Message
from evenhand.protocol.roles import State
from evenhand.runtime.inprocess import Event, InProcess
from evenhand.runtime.statefiles import read_state, write_state

_RUNTIME = "runtime.safetensors"


def take(runtime: InProcess) -> dict[str, State]:
    """The run between two events; key ``""`` is the runtime's own state."""
    states = {name: mailbox.role.snapshot() for name, mailbox in runtime.mailboxes.items()}
    own: State = {"time": runtime.time, "scheduled": runtime.scheduled, "started": runtime.started}
    # A list that heapq made is a heap; kept in its order it is the same heap again.
    own["events"] = [
        [e.time, e.rank, e.number, e.role, _head(own, f"event {e.number}", e.message)] for e in runtime.events
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
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise RunError(f"the checkpoint is not one of this run ({error!r}); it cannot go on from it") from error


def _put_back(runtime: InProcess, states: dict[str, State]) -> None:
    own = states[""]
    for name, mailbox in runtime.mailboxes.items():
        mailbox.role.restore(states[name])
        mailbox.inbox = deque(message for head in own["inboxes"][name] if (message := _message(own, head)) is not None)
        mailbox.idle = own["idle"][name]
    runtime.time, runtime.scheduled, runtime.started = own["time"], own["scheduled"], own["started"]
    runtime.events = [
        Event(time, rank, number, role, _message(own, head)) for time, rank, number, role, head in own["events"]
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


def save(states: dict[str, State], folder: Path) -> None:
    """Write states as a new numbered folder, complete or not at all, and remove older ones."""
    folder.mkdir(parents=True, exist_ok=True)
    older = _complete(folder)
    number = 1 + (int(older[-1].name) if older else 0)
    partial = folder / f"{number:08d}.partial"
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir()
    for name, state in states.items():
        write_state(partial / (f"role {name}.safetensors" if name else _RUNTIME), state)
    os.replace(partial, folder / f"{number:08d}")
    for path in older:
        shutil.rmtree(path)


def load(folder: Path) -> dict[str, State] | None:
    """The newest complete states, or None when there are none."""
    found = _complete(folder)
    if not found:
        return None
    return {
        path.name.removeprefix("role ").removesuffix(".safetensors") if path.name != _RUNTIME else "": read_state(path)
        for path in found[-1].iterdir()
    }


def _complete(folder: Path) -> list[Path]:
    if not folder.is_dir():
        return []
    return sorted(path for path in folder.iterdir() if path.name.isdigit())
