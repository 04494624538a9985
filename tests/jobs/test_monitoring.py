"""Figures for Prometheus: of the federation by its server, of each site by its own runs; the dashboard knows them."""

from __future__ import annotations

import json
import re
import threading
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any, cast

import pytest
from support.federation import write_shops
from typer.testing import CliRunner

from evenhand.cli.app import app
from evenhand.errors import InputError, LostError
from evenhand.jobs.federation.client import Federation
from evenhand.jobs.federation.monitoring import (
    SiteFigure,
    as_text,
    federation_metrics,
    metrics_server,
    site_metrics,
)
from evenhand.jobs.folder import read_job
from evenhand.jobs.vertical.runs import run_vertical_job

DASHBOARD = Path(__file__).parents[2] / "deploy" / "grafana.json"
# The line format of Prometheus' documentation.
LINE = re.compile(r'^[a-z_]+(\{[a-z_]+="(\\.|[^"\\\n])*"(,[a-z_]+="(\\.|[^"\\\n])*")*\})? [0-9.e+-]+$')


class Job:
    def __init__(self, status: str) -> None:
        self.id, self.name, self.status = f"{status.lower()}-1", 'a "name"\n', status

    active = property(lambda self: not self.status.startswith("FINISHED"))


class Party:
    def __init__(self, heard: float | None, answers: bool) -> None:
        self.heard, self.answers = heard, answers


class Progress:
    report, silent, seconds, resent = {"round": 7.0}, {"shop": 17.5}, 42.0, {"shop": 3}


class Known:
    """What a federation says, without one."""

    def parties(self) -> dict[str, Party]:
        return {"bank": Party(12.5, True), "shop": Party(3.0, False), "phone": Party(None, False)}

    def jobs(self) -> list[Job]:
        return [Job("FINISHED:COMPLETED"), Job("FINISHED:COMPLETED"), Job("RUNNING")]

    def attach(self, _: str) -> Any:
        return self

    def progress(self) -> Progress:
        return Progress()


class Gone(Known):
    def parties(self) -> dict[str, Party]:
        raise LostError("the server does not answer")


def figures(metrics: list[SiteFigure]) -> dict[tuple[str, tuple[str, ...]], float]:
    return {(one.name, tuple(labels.values())): value for one in metrics for labels, value in one.samples}


def test_what_the_server_knows() -> None:
    found = figures(federation_metrics(cast(Federation, Known())))
    assert found["evenhand_server_up", ()] == 1.0
    assert [found["evenhand_party_connected", (name,)] for name in ("bank", "shop", "phone")] == [1.0, 0.0, 0.0]
    assert ("evenhand_party_last_heard_seconds", ("phone",)) not in found
    assert found["evenhand_jobs", ("FINISHED:COMPLETED",)] == 2.0
    assert found["evenhand_job_rounds", ("running-1", 'a "name"\n')] == 7.0
    assert found["evenhand_job_silence_seconds", ("running-1", "shop")] == 17.5
    assert found["evenhand_job_resent", ("running-1", "shop")] == 3.0
    assert figures(federation_metrics(cast(Federation, Gone()))) == {("evenhand_server_up", ()): 0.0}


def test_the_text_is_that_of_prometheus() -> None:
    text = as_text(federation_metrics(cast(Federation, Known())))
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    assert len(lines) > 8
    assert not [line for line in lines if not LINE.match(line)]
    assert 'name="a \\"name\\"\\n"' in text
    names = {line.partition("{")[0].partition(" ")[0] for line in lines}
    assert all(f"# TYPE {name} " in text and f"# HELP {name} " in text for name in names)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("monitoring")
    paths = write_shops(folder, {"max_rounds": 3})
    run_vertical_job(read_job(paths["together"]), folder, folder / "runs" / "one")  # type: ignore[arg-type]
    return folder / "runs"


def test_what_a_site_has_sent_and_received(runs: Path) -> None:
    found = figures(site_metrics(runs))
    lines = [json.loads(line) for line in (runs / "one" / "transcript.jsonl").read_text().splitlines()]
    for name, field in (("evenhand_run_bytes_total", "nbytes"), ("evenhand_run_messages_total", "messages")):
        sent = sum(value for (metric, _), value in found.items() if metric == name)
        assert sent == sum(one[field] for one in lines) > 0
    assert found["evenhand_run_finished", ("one",)] == 1.0
    assert found["evenhand_run_working", ("one",)] == 0.0
    assert found["evenhand_run_rounds", ("one",)] >= 1.0
    for party in ("bank", "shop", "phone"):
        # One answer a round and some before and after; never more than there were questions.
        asked = sum(one["messages"] for one in lines if (one["sender"], one["receiver"]) == ("server", party))
        assert found["evenhand_run_rounds", ("one",)] <= found["evenhand_run_answers_total", ("one", party)] <= asked
        assert 0.0 <= found["evenhand_run_answer_seconds_total", ("one", party)] <= lines[-1]["time"] - lines[0]["time"]
    assert figures(site_metrics(runs / "nowhere")) == {}


def test_they_are_served_and_printed(runs: Path) -> None:
    with metrics_server("127.0.0.1", 0, lambda: site_metrics(runs)) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        address = f"http://127.0.0.1:{server.server_port}"
        with urllib.request.urlopen(f"{address}/metrics", timeout=30) as answer:
            served = answer.read().decode()
        with pytest.raises(urllib.error.HTTPError):
            urllib.request.urlopen(f"{address}/etc/passwd", timeout=30)
        server.shutdown()
    printed = CliRunner().invoke(app, ["federation", "metrics", "--runs", str(runs), "--once"])
    assert printed.output == served
    assert isinstance(CliRunner().invoke(app, ["federation", "metrics"]).exception, InputError)


def test_the_dashboard_asks_for_figures_that_there_are(runs: Path) -> None:
    content = json.loads(DASHBOARD.read_text())
    asked = set(re.findall(r"evenhand_[a-z_]+", " ".join(t["expr"] for p in content["panels"] for t in p["targets"])))
    known = {one.name for one in (*federation_metrics(cast(Federation, Known())), *site_metrics(runs))}
    assert asked == known | {"evenhand_certificate_ends_seconds"}
    places = [(p["gridPos"]["x"], p["gridPos"]["y"]) for p in content["panels"]]
    assert len(set(places)) == len({p["id"] for p in content["panels"]}) == len(places)
