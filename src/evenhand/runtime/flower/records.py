"""Convert packets, and a party's state between two visits, to Flower's records."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

from flwr.app import ConfigRecord, Context, RecordDict

from evenhand.errors import ProtocolError
from evenhand.protocol.state import State
from evenhand.runtime.checkpointfiles import state_bytes, state_from
from evenhand.runtime.packets import Content

_NAME: Final = "evenhand"
_STATE: Final = Path("context.state")


def to_records(packets: Iterable[tuple[str, Content]], **more: Any) -> RecordDict:
    """Return packets with the names of their senders or receivers; `more` holds texts, numbers and booleans."""
    listed = list(packets)
    content = {"names": [name for name, _ in listed], "packets": [bytes(one) for _, one in listed], **more}
    return RecordDict({_NAME: ConfigRecord(content)})


def packets_in(records: RecordDict) -> list[tuple[str, bytes]]:
    names, packets = value_in(records, "names", list), value_in(records, "packets", list)
    if len(names) != len(packets) or not all(isinstance(one, bytes) for one in packets):
        raise ProtocolError("refused a Flower message without packets")
    return [(str(name), one) for name, one in zip(names, packets, strict=True)]


def value_in(records: RecordDict, key: str, kind: type[Any]) -> Any:
    found = records.get(_NAME)
    value = found.get(key) if isinstance(found, ConfigRecord) else None
    if not isinstance(value, kind):
        raise ProtocolError(f"refused a Flower message without {key!r}")
    return value


def kept_state(context: Context) -> State | None:
    """Return the state that the last visit of this run left at this node."""
    found = context.state.get(_NAME)
    return state_from(bytes(found["state"]), _STATE) if isinstance(found, ConfigRecord) else None


def keep_state(context: Context, state: State) -> None:
    context.state[_NAME] = ConfigRecord({"state": state_bytes(state)})
