"""`evenhand federation submit | status | jobs | attach | abort | logs | revoke`: with the admin's kit."""

from __future__ import annotations

import json
import signal
import sys
import time
from datetime import datetime
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from evenhand.errors import FELL_SHORT, EvenhandError, InputError
from evenhand.printing import printable, remark, say

if TYPE_CHECKING:
    from evenhand.jobs.federation.client import JobOutcome, Submission
    from evenhand.jobs.federation.monitoring import SiteFigure
    from evenhand.runtime.nvflare.submitting import JobProgress

JobOption = "What to train, and the names and roles of the parties (TOML)."
KitOption = Annotated[Path, typer.Option(help="The admin's kit.")]
PatienceOption = Annotated[float, typer.Option(min=0.0, help="Seconds to wait for a missing server or party.")]
ResultOption = Annotated[
    Path | None, typer.Option(help="Write run name, outcome, exit code and the server's result to this file (JSON).")
]
RunArgument = Annotated[str, typer.Argument(help="Name of the run, as `submit` and `jobs` show it.")]


def submit(
    job: Annotated[Path, typer.Argument(help=JobOption)],
    kit: KitOption,
    patience: PatienceOption = 60.0,
    resume: Annotated[
        str | None, typer.Option(help="Resume this run, by its name, from the last checkpoint that all parties have.")
    ] = None,
    retries: Annotated[int, typer.Option(min=0, help="How often to resume an interrupted run automatically.")] = 0,
    result: ResultOption = None,
    detach: Annotated[
        bool, typer.Option("--detach", help="Submit and return; the job goes on by itself. See `attach` and `abort`.")
    ] = False,
) -> None:
    """Run a job on a federation and show its result. Ctrl-C aborts the job.

    The job is submitted once all its parties answer. If one is missing for longer than --patience, before or while the
    job waits in the queue, nothing runs. Without --detach a job ends two minutes after its submitter has gone.

    \b
    Examples:
      evenhand federation submit job.toml --kit kits/admin --result result.json
      evenhand federation submit job.toml --kit kits/admin --detach

    Exits as `evenhand train`: with 9 if the solver did not converge or the model gives every row the same label, with 4
    if the run was refused or failed, and with 10 if a participant was lost and the run can be resumed.
    """
    from evenhand.jobs.federation.client import connect, run_to_end
    from evenhand.jobs.federation.files import read_federation_job

    content = read_federation_job(job)
    _check_new(result)
    if detach:
        if result is not None or retries:
            raise InputError("--detach does not wait for a result; remove --result and --retries, and use attach")
        with connect(kit, patience) as federation:
            say(federation.submit(content, name=job.stem, resume=resume or "", detach=True, on_missing=remark).run)
        return

    def run(screen: _Screen) -> JobOutcome:
        with connect(kit, patience) as federation:
            return run_to_end(
                federation,
                content,
                job.stem,
                screen.status,
                resume=resume or "",
                retries=retries,
                on_progress=screen.progress,
                on_submitted=screen.submitted,
            )

    _follow(run, result, content.to_job().max_rounds, aborts=True)


def attach(run: RunArgument, kit: KitOption, patience: PatienceOption = 60.0, result: ResultOption = None) -> None:
    """Follow a job that was submitted with --detach, or elsewhere, to its end. Ctrl-C leaves it running.

    \b
    Example:
      evenhand federation attach RUN --kit kits/admin

    Exits as `submit`.
    """
    from evenhand.jobs.federation.client import connect

    _check_new(result)

    def wait(screen: _Screen) -> JobOutcome:
        with connect(kit, patience) as federation:
            return federation.attach(run).wait(screen.status, screen.progress)

    _follow(wait, result, None, aborts=False)


def abort(run: RunArgument, kit: KitOption, patience: PatienceOption = 60.0) -> None:
    """Abort a job that waits or runs. Its participants keep their checkpoints, and it can be resumed.

    \b
    Example:
      evenhand federation abort RUN --kit kits/admin
    """
    from evenhand.errors import RunError
    from evenhand.jobs.federation.client import connect

    with connect(kit, patience) as federation:
        submission = federation.attach(run)
        if not federation.record(run).active:
            raise RunError(f"run {run} has ended already ({submission.status})")
        submission.cancel()
        say(f"{run} is being aborted")


def status(
    kit: KitOption,
    patience: PatienceOption = 10.0,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Show which parties are connected, and which jobs wait or run, with round, time and who is silent.

    \b
    Example:
      evenhand federation status --kit kits/admin
    """
    from evenhand.jobs.federation.client import connect
    from evenhand.report.tables import BareTable

    with connect(kit, patience) as federation:
        there = federation.parties()
        active = [(job, federation.attach(job.id).progress()) for job in federation.jobs() if job.active]
    if as_json:
        content = {
            "parties": {name: {**one._asdict(), "words": one.words} for name, one in there.items()},
            "jobs": [
                {**job._asdict(), "progress": None if found is None else found._asdict()} for job, found in active
            ],
        }
        say(json.dumps(content, indent=1))
        return
    console = Console(markup=False, emoji=False)
    table = BareTable("parties", "party", "", "last heard from")
    for name, one in there.items():
        heard = "" if one.heard is None else f"{datetime.fromtimestamp(one.heard):%Y-%m-%d %H:%M:%S}"
        table.add_row(printable(name), one.words, heard)
    console.print(table)
    table = BareTable("jobs that wait or run", "run", "name", "state", "round", "seconds a round", "waits for")
    for job, found in active:
        rounds = found.report.get("round") if found is not None else None
        pace = "" if not rounds or found is None else f"{found.seconds / rounds:.3g}"
        silent = "" if found is None else ", ".join(f"{name} ({age:.0f} s)" for name, age in found.silent.items())
        waits = silent or job.waits_for if job.status == "RUNNING" else job.waits_for
        done = "" if rounds is None else f"{rounds:.0f}"
        table.add_row(job.id, printable(job.name), job.status, done, pace, printable(waits))
    console.print(table)


def jobs(
    kit: KitOption,
    patience: PatienceOption = 10.0,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """List all jobs that the server has kept, the newest last.

    \b
    Example:
      evenhand federation jobs --kit kits/admin
    """
    from evenhand.jobs.federation.client import connect
    from evenhand.report.tables import BareTable

    with connect(kit, patience) as federation:
        found = federation.jobs()
    if as_json:
        say(json.dumps([one._asdict() for one in found], indent=1))
        return
    table = BareTable("jobs", "run", "name", "state", "submitted", "took", "parties")
    for one in found:
        table.add_row(one.id, printable(one.name), one.status, one.submitted, one.seconds, ", ".join(one.parties))
    Console(markup=False, emoji=False).print(table)


def logs(
    kit: Annotated[Path, typer.Argument(help="The kit of the server or party on this machine.")],
    run: Annotated[str | None, typer.Argument(help="Name of a run; default is the log of the process.")] = None,
    lines: Annotated[int, typer.Option("--lines", "-n", min=1, help="Number of lines from the end.")] = 200,
) -> None:
    """Show the end of a log on this machine. Logs never leave the site that wrote them.

    \b
    Examples:
      evenhand federation logs kits/shop
      evenhand federation logs kits/shop RUN
    """
    from evenhand.jobs.federation.files import run_place
    from evenhand.runtime.nvflare.quiet import LOGS

    # The server moves its log of a job when the job ends.
    places = [kit] if run is None else [run_place(kit, run), run_place(kit / LOGS, run)]
    path = next((one / "log.txt" for one in places if (one / "log.txt").is_file()), places[0] / "log.txt")
    if not path.is_file():
        raise InputError(f"there is no log {path}; give the kit of this machine, and a run that was made here")
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines()[-lines:]:
        say(line)


def revoke(
    party: Annotated[str, typer.Argument(help="The party to revoke.")],
    kit: KitOption,
    restore: Annotated[bool, typer.Option("--restore", help="Admit the party again.")] = False,
    patience: PatienceOption = 60.0,
) -> None:
    """Revoke a party's kit, for instance one that was lost: the server then refuses connections under its name.

    Jobs in which the party takes part are aborted. A new kit for the same organisation needs another name, so that the
    old one stays revoked.

    \b
    Example:
      evenhand federation revoke shop --kit kits/admin
    """
    from evenhand.jobs.federation.client import connect

    with connect(kit, patience) as federation:
        ended = federation.revoke(party, restore=restore)
    for one in ended:
        remark(f"run {one} was aborted: {party} takes part in it")
    say(f"{party} is admitted again" if restore else f"{party} is revoked")


def metrics(
    kit: Annotated[Path | None, typer.Option(help="The admin's kit: who is connected, and how far jobs are.")] = None,
    runs: Annotated[Path | None, typer.Option(help="Folder of runs at this site: messages and bytes.")] = None,
    certificates: Annotated[
        list[Path] | None, typer.Option(help="A kit of this site: when its certificates end. Repeatable.")
    ] = None,
    host: Annotated[str, typer.Option(help="Address to listen on; figures name parties and runs.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port; 0 takes any free port.")] = 9464,
    once: Annotated[bool, typer.Option("--once", help="Print the figures and stop.")] = False,
) -> None:
    """Serve figures for Prometheus at /metrics: parties, jobs, rounds, bytes, certificates.

    deploy/grafana.json is a dashboard for them. Each site serves its own figures; nothing is pushed anywhere.

    \b
    Examples:
      evenhand federation metrics --kit kits/admin
      evenhand federation metrics --runs runs --certificates kits/shop --port 9465
    """
    from contextlib import ExitStack

    from evenhand.jobs.federation.client import connect
    from evenhand.jobs.federation.monitoring import (
        as_text,
        certificate_metrics,
        federation_metrics,
        metrics_server,
        site_metrics,
    )

    if kit is None and runs is None and not certificates:
        raise InputError("say what to measure: --kit, --runs or --certificates")
    with ExitStack() as stack:
        federation = None if kit is None else stack.enter_context(connect(kit, 5.0))

        def found() -> list[SiteFigure]:
            return [
                *(federation_metrics(federation) if federation is not None else ()),
                *(site_metrics(runs) if runs is not None else ()),
                *(certificate_metrics(certificates) if certificates else ()),
            ]

        if once:
            say(as_text(found()), end="")
            return
        server = stack.enter_context(metrics_server(host, port, found))
        say(f"http://{host}:{server.server_port}/metrics")
        sys.stdout.flush()
        server.serve_forever()


def traces(
    run: Annotated[Path, typer.Argument(help="Run folder of a side of a federated run.")],
    out: Annotated[Path, typer.Option(help="File for the spans (OTLP JSON).")],
) -> None:
    """Write a run as OpenTelemetry spans: the run, its rounds, and each kind of message on each link.

    The spans of all sides of a run have one trace id. A collector reads the file (receiver `otlpjsonfile`), or takes it
    at /v1/traces.

    \b
    Examples:
      evenhand federation traces runs/RUN --out spans.json
      curl -H 'Content-Type: application/json' --data @spans.json http://127.0.0.1:4318/v1/traces
    """
    from evenhand.jobs.federation.tracing import trace
    from evenhand.runtime.files import write_bytes

    _check_new(out, "--out")
    write_bytes(out, json.dumps(trace(run)).encode())
    say(str(out))


class _Screen:
    """Show a job's states and rounds: a bar in a terminal, and a line for each in a pipe or file."""

    def __init__(self, max_rounds: int | None) -> None:
        from evenhand.report.tables import Progress as Bar

        self.bar = Bar(max_rounds or 0, enabled=max_rounds is not None and sys.stderr.isatty())
        self.submission: Submission | None = None
        self._lines = not sys.stderr.isatty()
        self._round, self._silent = 0.0, set[str]()

    def status(self, text: str) -> None:
        say(f"{datetime.now():%H:%M:%S} {printable(text)}")
        sys.stdout.flush()

    def submitted(self, submission: Submission) -> None:
        self.submission = submission
        self.status(f"job {submission.id}: each side's run folder is called {submission.run}")

    def progress(self, found: JobProgress) -> None:
        silent = set(found.silent)
        for name in silent - self._silent:
            self.status(f"{name} has not been heard from for {found.silent[name]:.0f} seconds; the run waits for it")
        for name in self._silent - silent:
            self.status(f"{name} is heard from again")
        self._silent = silent
        if found.report.get("round", 0.0) <= self._round:
            return
        self._round = found.report["round"]
        self.bar.round(found.report)
        if self._lines:
            shown = (f"{name} {found.report[name]:.6g}" for name in ("objective", "violation") if name in found.report)
            self.status(f"round {self._round:.0f}, {found.seconds:.0f} s: {', '.join(shown)}")


def _follow(run: Any, result: Path | None, max_rounds: int | None, *, aborts: bool) -> None:
    """Follow a job, show its outcome, write the file of its result, and exit with its code."""
    screen, began = _Screen(max_rounds), time.time()
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _interrupted)
    try:
        with screen.bar:
            outcome: JobOutcome = run(screen)
    except KeyboardInterrupt:
        told = screen.submission
        if aborts and told is not None:
            remark(f"interrupted: job {told.id} was aborted; resume with: --resume {told.run}")
        elif aborts:
            remark("interrupted: nothing was submitted")
        else:
            remark("interrupted: the job goes on")
        _write(result, screen, began, {"outcome": "interrupted", "exit_code": 130})
        raise
    except EvenhandError as error:
        names = list(getattr(error, "missing", ()))
        _write(
            result,
            screen,
            began,
            {"outcome": "failed", "exit_code": error.exit_code, "error": str(error), "participants": names},
        )
        raise
    code = FELL_SHORT if outcome.shortfalls else 0
    _write(
        result,
        screen,
        began,
        {
            "outcome": "fell short" if code else "finished",
            "exit_code": code,
            "run": outcome.run,
            "shortfalls": outcome.shortfalls,
            "result": outcome.result,
        },
    )
    _show(outcome)
    if code:
        sys.stdout.flush()
        for one in outcome.shortfalls:
            remark(f"fell short: {one}")
        raise typer.Exit(code)


def _interrupted(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def _check_new(path: Path | None, option: str = "--result") -> None:
    if path is not None and path.exists():
        raise InputError(f"{option} {path} exists; choose another file")


def _write(result: Path | None, screen: _Screen, began: float, told: dict[str, Any]) -> None:
    from evenhand.runtime.files import write_bytes

    if result is None:
        return
    submitted = screen.submission
    content = {
        "run": None if submitted is None else submitted.run,
        "job": None if submitted is None else submitted.id,
        "began": datetime.fromtimestamp(began).astimezone().isoformat(timespec="seconds"),
        "seconds": round(time.time() - began, 3),
        **told,
    }
    write_bytes(result, json.dumps(content, indent=1).encode())


def _show(outcome: JobOutcome) -> None:
    from evenhand.jobs.federation.notices import result_tables
    from evenhand.report.verdicts import went_without

    console, found = Console(markup=False, emoji=False), outcome.result
    for table in result_tables(found):
        console.print(table)
    for said in went_without(found):
        console.print(said)
    if "quality" not in found:
        console.print(
            "Clients that add noise keep their counts: the quality on a client's rows is in the client's run folder."
            if "privacy" in found
            else "Under label_privacy, metrics on the true labels are in the server's run folder only."
        )
    console.print(f"server: {outcome.folder}")
    console.print(f"each party: {outcome.run} under runs/ beside its own file, or under --runs")
