"""One side of a run as OpenTelemetry spans, in the JSON form that collectors read (OTLP).

The trace's id follows from the run's name, so that the spans of all sides join in one trace without a word between
them. Nothing is sent: a collector reads the file, or takes it by HTTP.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

from evenhand.errors import InputError
from evenhand.runtime.folder import RunFolder


class Span(NamedTuple):
    """A span of time, in seconds since the run began."""

    name: str
    start: float
    end: float
    attributes: Mapping[str, str | int | float]


def trace(run: Path) -> dict[str, Any]:
    """Return the spans of a run folder: the run, its rounds, and each kind of message on each link."""
    folder = RunFolder.open(run)
    began = folder.description.get("began")
    if began is None:
        raise InputError(f"{run} does not say when it began; give the folder of a side of a federated run")
    start = int(datetime.fromisoformat(began).timestamp() * 1e9)
    side, name = str(folder.description["side"]), run.resolve().name.removesuffix("-server")
    trace_id, root = _digest(f"trace {name}", 32), _digest(f"span {name} {side}", 16)
    children = [*_rounds(folder), *_links(folder)]
    end = max((one.end for one in children), default=0.0)
    whole = Span(f"run of {side}", 0.0, end, {"evenhand.run": name, "evenhand.side": side})
    spans = [_as_json(whole, trace_id, root, "", start)]
    for number, one in enumerate(children):
        spans.append(_as_json(one, trace_id, _digest(f"span {name} {side} {number}", 16), root, start))
    resource = _attributes({"service.name": "evenhand", "service.instance.id": side})
    scope = {"scope": {"name": "evenhand"}, "spans": spans}
    return {"resourceSpans": [{"resource": {"attributes": resource}, "scopeSpans": [scope]}]}


def _rounds(folder: RunFolder) -> Iterator[Span]:
    before = 0.0
    for row in folder.read_lines("metrics.jsonl"):
        names = ("round", "objective", "violation", "bytes")
        told: dict[str, str | int | float] = {f"evenhand.{name}": row[name] for name in names if name in row}
        yield Span(f"round {row['round']:.0f}", before, float(row["time"]), told)
        before = float(row["time"])


def _links(folder: RunFolder) -> Iterator[Span]:
    found: dict[tuple[str, str, str], list[Mapping[str, Any]]] = {}
    for one in folder.read_lines("transcript.jsonl"):
        found.setdefault((one["kind"], one["sender"], one["receiver"]), []).append(one)
    for (kind, sender, receiver), entries in found.items():
        told: dict[str, str | int | float] = {
            "evenhand.sender": sender,
            "evenhand.receiver": receiver,
            "evenhand.messages": sum(int(one["messages"]) for one in entries),
            "evenhand.bytes": sum(int(one["nbytes"]) for one in entries),
        }
        yield Span(f"{kind}, {sender} to {receiver}", float(entries[0]["time"]), float(entries[-1]["time"]), told)


def _as_json(span: Span, trace_id: str, span_id: str, parent: str, began: int) -> dict[str, Any]:
    return {
        "traceId": trace_id,
        "spanId": span_id,
        **({"parentSpanId": parent} if parent else {}),
        "name": span.name,
        "kind": 1,
        "startTimeUnixNano": str(began + int(span.start * 1e9)),
        "endTimeUnixNano": str(began + int(span.end * 1e9)),
        "attributes": _attributes(span.attributes),
    }


def _attributes(found: Mapping[str, str | int | float]) -> list[dict[str, Any]]:
    return [{"key": name, "value": _value(value)} for name, value in found.items()]


def _value(value: str | int | float) -> dict[str, Any]:
    if isinstance(value, str):
        return {"stringValue": value}
    return {"intValue": str(value)} if isinstance(value, int) else {"doubleValue": value}


def _digest(text: str, length: int) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:length]
