"""Figures of a federation and of a site's runs, as text that Prometheus reads."""

from __future__ import annotations

import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from evenhand.errors import EvenhandError, LostError, ResourceError
from evenhand.protocol.roles import SERVER
from evenhand.runtime.files import is_held
from evenhand.runtime.folder import RunFolder, is_run

if TYPE_CHECKING:
    from evenhand.jobs.federation.client import Federation
    from evenhand.runtime.nvflare.admin import JobRecord
    from evenhand.runtime.nvflare.submitting import JobProgress

_NEWEST: Final = 20
"""Runs of a site that are read at each question: their transcripts may be long."""
_ESCAPES: Final = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})


class SiteFigure(NamedTuple):
    """One figure, with a sample for each set of labels."""

    name: str
    kind: str
    help: str
    samples: Sequence[tuple[Mapping[str, str], float]]

    def lines(self) -> Iterator[str]:
        yield f"# HELP {self.name} {self.help}"
        yield f"# TYPE {self.name} {self.kind}"
        for labels, value in self.samples:
            told = ",".join(f'{name}="{text.translate(_ESCAPES)}"' for name, text in labels.items())
            yield f"{self.name}{{{told}}} {value!r}" if told else f"{self.name} {value!r}"


def as_text(metrics: Iterable[SiteFigure]) -> str:
    """Return figures in Prometheus' text format."""
    return "".join(f"{line}\n" for metric in metrics for line in metric.lines())


def federation_metrics(federation: Federation) -> list[SiteFigure]:
    """Return who is there and how far jobs are, as the server knows it."""
    try:
        parties, jobs = federation.parties(), federation.jobs()
        running = [(one, federation.attach(one.id).progress()) for one in jobs if one.active]
    except LostError:
        return [SiteFigure("evenhand_server_up", "gauge", "Whether the server answers.", [({}, 0.0)])]
    states = Counter(one.status for one in jobs)
    heard = [({"party": name}, one.heard) for name, one in parties.items() if one.heard is not None]
    return [
        SiteFigure("evenhand_server_up", "gauge", "Whether the server answers.", [({}, 1.0)]),
        SiteFigure(
            "evenhand_party_connected",
            "gauge",
            "Whether a party answers.",
            [({"party": name}, float(one.answers)) for name, one in parties.items()],
        ),
        SiteFigure("evenhand_party_last_heard_seconds", "gauge", "When the server last heard from a party.", heard),
        SiteFigure(
            "evenhand_jobs",
            "gauge",
            "Jobs that the server has kept, by state.",
            [({"state": state}, float(count)) for state, count in sorted(states.items())],
        ),
        *_progress_metrics([(job, found) for job, found in running if found is not None]),
    ]


def _progress_metrics(running: Sequence[tuple[JobRecord, JobProgress]]) -> Iterator[SiteFigure]:
    labels = [{"run": job.id, "name": job.name} for job, _ in running]
    for name, help_, value in _PROGRESS:
        samples = [(one, value(found)) for one, (_, found) in zip(labels, running, strict=True)]
        yield SiteFigure(name, "gauge", help_, samples)
    resent = [
        ({"run": job.id, "party": name}, float(count))
        for job, found in running
        for name, count in sorted(found.resent.items())
    ]
    yield SiteFigure("evenhand_job_resent", "gauge", "Messages that a running job has sent to a party again.", resent)
    silent = [
        ({"run": job.id, "party": name}, age) for job, found in running for name, age in sorted(found.silent.items())
    ]
    yield SiteFigure("evenhand_job_silence_seconds", "gauge", "Silence of a participant in a running job.", silent)


_PROGRESS: Final[tuple[tuple[str, str, Callable[[JobProgress], float]], ...]] = (
    ("evenhand_job_rounds", "Rounds that a running job has done.", lambda one: float(one.report.get("round", 0.0))),
    ("evenhand_job_seconds", "Seconds since a running job began.", lambda one: float(one.seconds)),
)


def site_metrics(runs: Path) -> list[SiteFigure]:
    """Return what this site has sent and received in its newest runs, from their transcripts."""
    folders = [path for path in runs.iterdir() if is_run(path)] if runs.is_dir() else []
    newest = sorted(folders, key=lambda path: path.stat().st_mtime)[-_NEWEST:]
    messages, nbytes = Counter[tuple[str, str, str]](), Counter[tuple[str, str, str]]()
    answers, seconds = Counter[tuple[str, str]](), defaultdict[tuple[str, str], float](float)
    rounds, working, finished = [], [], []
    for path in newest:
        folder = RunFolder.open(path)
        asked: dict[str, float] = {}
        for entry in folder.read_lines("transcript.jsonl"):
            key = path.name, str(entry["sender"]), str(entry["receiver"])
            messages[key] += int(entry.get("messages", 1))
            nbytes[key] += int(entry["nbytes"])
            if entry["sender"] == SERVER:
                asked.setdefault(key[2], float(entry["time"]))
            elif entry["receiver"] == SERVER and (since := asked.pop(key[1], None)) is not None:
                answers[key[:2]] += 1
                # The simulated clock of a run in one process begins anew with each stage.
                seconds[key[:2]] += max(float(entry["time"]) - since, 0.0)
        history = folder.read_lines("metrics.jsonl")
        if history:
            rounds.append(({"run": path.name}, float(history[-1]["round"])))
        working.append(({"run": path.name}, float(not folder.finished and is_held(path))))
        finished.append(({"run": path.name}, float(folder.finished)))
    links, ends = ("run", "sender", "receiver"), ("run", "party")
    counted: tuple[tuple[tuple[str, ...], str, str, Mapping[Any, float]], ...] = (
        (links, "evenhand_run_messages_total", "Messages that this site has sent or received.", messages),
        (links, "evenhand_run_bytes_total", "Bytes of these messages, without framing.", nbytes),
        (ends, "evenhand_run_answers_total", "Answers of a party to the server.", answers),
        (ends, "evenhand_run_answer_seconds_total", "Seconds until a party's answers came.", seconds),
    )
    return [
        SiteFigure("evenhand_run_working", "gauge", "Whether a process works on a run of this site.", working),
        SiteFigure("evenhand_run_finished", "gauge", "Whether a run of this site has finished.", finished),
        SiteFigure("evenhand_run_rounds", "counter", "Rounds of a run, as far as this site counts them.", rounds),
        *(
            SiteFigure(
                name, "counter", help_, [(dict(zip(labels, key, strict=True)), float(n)) for key, n in found.items()]
            )
            for labels, name, help_, found in counted
        ),
    ]


def certificate_metrics(kits: Iterable[Path]) -> list[SiteFigure]:
    """Return when the certificates of kits end."""
    from evenhand.runtime.nvflare.certificates import ROOT, certificate_in, load

    samples: list[tuple[Mapping[str, str], float]] = []
    for kit in kits:
        for path in (certificate_in(kit / "startup"), kit / "startup" / ROOT):
            ends = load(path).not_valid_after_utc.timestamp()
            samples.append(({"kit": kit.name, "certificate": path.name}, ends))
    return [SiteFigure("evenhand_certificate_ends_seconds", "gauge", "When a certificate ends.", samples)]


def metrics_server(host: str, port: int, found: Callable[[], list[SiteFigure]]) -> ThreadingHTTPServer:
    """Return a server of the figures; each request reads them anew."""

    one_at_a_time = threading.Lock()

    class FiguresHandler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if self.path != "/metrics":
                self._answer(404, "the only page is /metrics\n")
                return
            try:
                with one_at_a_time:
                    text = as_text(found())
                self._answer(200, text)
            except EvenhandError as error:
                self._answer(500, f"{error}\n")

        def _answer(self, status: int, text: str) -> None:
            content = text.encode()
            self.send_response(status)
            self.send_header("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, format: str, *args: object) -> None:
            """Do not log requests."""

    try:
        return ThreadingHTTPServer((host, port), FiguresHandler)
    except OSError as error:
        raise ResourceError(f"{host}:{port} is not available: {error.strerror}; choose another --port") from error
