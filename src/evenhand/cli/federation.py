"""`evenhand provision | serve | join | submit`: a federation on NVIDIA FLARE, from start-up kits to a result."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from evenhand.cli.saying import remark, say
from evenhand.errors import MissingExtraError, RunError

if TYPE_CHECKING:
    from evenhand.runtime.nvflare.running import RunningKit

PartyOption = Annotated[
    Path, typer.Option("--party", help="This party's own file (TOML): its table, its columns, its policy.")
]
RunsOption = Annotated[Path | None, typer.Option(help="Where run folders go; default runs/ beside the party's file.")]


def provision(
    federation: Annotated[Path, typer.Argument(help="Who takes part, and where the server is (TOML).")],
    out: Annotated[Path, typer.Option(help="Folder for the kits; it must not hold anything yet.")] = Path("kits"),
) -> None:
    """Make start-up kits: certificates and settings for the server, each party, and whoever submits jobs.

    \b
    federation.toml:
      [federation]
      name = "credit"
      server = "fl.bank.example"      # the name by which everybody reaches the server
      port = 8002
      parties = ["bank", "shop", "phone"]
    """
    from evenhand.jobs.federation.files import read_federation
    from evenhand.runtime.nvflare.kits import provision as make_kits

    found = read_federation(federation).federation
    for kit in make_kits(found.name, found.server, found.port, found.parties, out):
        say(str(kit))
    remark("give each its own kit over a channel you trust, and keep authority/ to yourself: it can make more of them")


def serve(
    kit: Annotated[Path, typer.Argument(help="The server's kit.")],
    party: PartyOption,
    runs: RunsOption = None,
) -> None:
    """Run the server, at the party that holds the labels or with somebody it trusts with them, until interrupted.

    Its --party is the file of the party that holds the labels: ids, labels and groups are read from that table.
    """
    _run(kit, party, runs)


def join(
    kit: Annotated[Path, typer.Argument(help="This party's kit.")],
    party: PartyOption,
    runs: RunsOption = None,
) -> None:
    """Take part as a party until interrupted: dials out to the server, opens no port.

    The console shows the terms of each job before anything of this party's rows is said. What its policy does not
    allow is refused.
    """
    _run(kit, party, runs)


def submit(
    job: Annotated[Path, typer.Argument(help="What to train, and the names and parts of the parties (TOML).")],
    kit: Annotated[Path, typer.Option(help="The admin's kit.")],
    patience: Annotated[float, typer.Option(min=0.0, help="Seconds to wait for parties that have not joined.")] = 60.0,
    result: Annotated[Path | None, typer.Option(help="Write what the server says of the run there (JSON).")] = None,
) -> None:
    """Have a job run by a federation, and show its result."""
    from evenhand.jobs.federation.files import read_federation_job
    from evenhand.report.tables import certificate_table, constraints_table, quality_table

    console = Console(markup=False, emoji=False)
    content = read_federation_job(job)
    told = run_submitted(content, job.stem, kit, patience, lambda status: console.print(f"  {status}"))
    if result is not None:
        result.write_text(json.dumps(told, indent=1), encoding="utf-8")
    console.print(quality_table(told, "test" if "test" in told["quality"] else "train"))
    if (constraints := constraints_table(told)) is not None:
        console.print(constraints)
    console.print(certificate_table(told["certificate"]))


def run_submitted(job: Any, name: str, kit: Path, patience: float, on_status: Any) -> dict[str, Any]:
    """Submit, wait, and return the result; the error of a job that failed is raised here."""
    try:
        from evenhand.runtime.nvflare.submitting import open_session, outcome, wait_for_end, wait_for_parties
        from evenhand.runtime.nvflare.submitting import submit as send
    except ModuleNotFoundError as error:
        raise MissingExtraError("a federation", "nvflare") from error
    session = open_session(kit)
    try:
        wait_for_parties(session, list(job.parts), patience)
        job_id = send(session, name, job.model_dump(exclude_none=True, mode="json"), list(job.parts))
        on_status(f"job {job_id}: each side's run folder has this name")
        wait_for_end(session, job_id, on_status)
        told = outcome(session, job_id)
    finally:
        session.close()
    if "error" in told:
        raise RunError(f"job {job_id} ended: {told['error']}")
    found: dict[str, Any] = told["result"]
    return found


def start(kit: Path, party: Path, runs: Path | None, log: Path | None = None) -> RunningKit:
    from evenhand.jobs.federation.files import PARTY_FILE, RUNS, read_party

    try:
        from evenhand.runtime.nvflare.running import RunningKit
    except ModuleNotFoundError as error:
        raise MissingExtraError("a federation", "nvflare") from error
    # Before anything is started.
    read_party(party)
    settings = {PARTY_FILE: str(party.absolute())}
    if runs is not None:
        settings[RUNS] = str(runs.absolute())
    return RunningKit(kit, settings, log)


def _run(kit: Path, party: Path, runs: Path | None) -> None:
    running = start(kit, party, runs)

    def interrupted(_number: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, interrupted)
    try:
        code = running.wait()
        raise RunError(f"{kit} ended by itself, with exit code {code}; its log.txt says more")
    except KeyboardInterrupt:
        remark(f"stopping {kit.name}")
    finally:
        running.stop()
