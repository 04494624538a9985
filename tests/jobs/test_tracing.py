"""Spans of a side of a run: in time, one trace for all sides, and with the bytes of the transcript."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from evenhand.cli.app import app
from evenhand.errors import InputError
from evenhand.jobs.federation.files import parse_federation_job
from evenhand.jobs.federation.folders import side_folder
from evenhand.jobs.federation.tracing import trace
from evenhand.protocol.messages import Message
from evenhand.protocol.transcript import Transcript
from evenhand.runtime.folder import RunFolder

JOB = parse_federation_job({"job": {}, "party": [{"name": "bank", "role": "active"}, {"name": "shop"}]}, "job")


def side(path: Path, name: str) -> Path:
    """A run folder with two rounds and some messages."""
    with side_folder(path, name, JOB, None, False) as folder:
        folder.transcript = Transcript()
        for time, kind, sender, receiver in (
            (0.5, "offer", "server", "shop"),
            (1.0, "derivative", "server", "shop"),
            (1.5, "direction", "shop", "server"),
            (2.5, "derivative", "server", "shop"),
        ):
            folder.transcript.add(time, Message(sender, receiver, kind, {}))
        folder.report({"round": 1, "objective": 0.7, "bytes": 10.0, "time": 2.0})
        folder.report({"round": 2, "objective": 0.6, "bytes": 20.0, "time": 3.0})
        folder.note()
    return path


def spans(found: Mapping[str, Any]) -> list[dict[str, Any]]:
    (one,) = found["resourceSpans"]
    (scope,) = one["scopeSpans"]
    return list(scope["spans"])


def test_spans_of_two_sides_are_one_trace(tmp_path: Path) -> None:
    before = datetime.now(UTC).timestamp()
    server, shop = side(tmp_path / "run-1-server", "server"), side(tmp_path / "run-1", "shop")
    both = [*spans(trace(server)), *spans(trace(shop))]
    assert len({one["traceId"] for one in both}) == 1
    assert len({one["spanId"] for one in both}) == len(both)
    for one in both:
        assert re.fullmatch("[0-9a-f]{32}", one["traceId"])
        assert re.fullmatch("[0-9a-f]{16}", one["spanId"])
        assert int(one["startTimeUnixNano"]) <= int(one["endTimeUnixNano"])
    root, *children = spans(trace(shop))
    assert {one["parentSpanId"] for one in children} == {root["spanId"]}
    assert "parentSpanId" not in root
    assert abs(int(root["startTimeUnixNano"]) / 1e9 - before) < 60.0
    named = {one["name"]: one for one in children}
    assert {"round 1", "round 2", "derivative, server to shop"} <= named.keys()
    length = int(named["round 2"]["endTimeUnixNano"]) - int(named["round 2"]["startTimeUnixNano"])
    assert length == 10**9
    told = {one["key"]: one["value"] for one in named["derivative, server to shop"]["attributes"]}
    assert told["evenhand.messages"] == {"intValue": "2"}


def test_the_command(tmp_path: Path) -> None:
    run, out = side(tmp_path / "run-1", "shop"), tmp_path / "spans.json"
    words = ["federation", "traces", str(run), "--out", str(out)]
    assert CliRunner().invoke(app, words).exit_code == 0
    assert json.loads(out.read_text()) == trace(run)
    assert isinstance(CliRunner().invoke(app, words).exception, InputError)


def test_a_run_of_one_process_has_no_moment_of_beginning(tmp_path: Path) -> None:
    RunFolder.create(tmp_path / "run", {"job": {}})
    with pytest.raises(InputError, match="does not say when it began"):
        trace(tmp_path / "run")
