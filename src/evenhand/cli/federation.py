"""`evenhand provision | serve | join | submit`: a federation on NVIDIA FLARE, from start-up kits to a result."""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from evenhand.cli.saying import remark, say
from evenhand.errors import InputError, LostError, MissingExtraError, RunError

if TYPE_CHECKING:
    import pandas as pd

    from evenhand.jobs.federation.files import AnyJob
    from evenhand.protocol.roles import Report
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

    \b
    Example:
      evenhand provision federation.toml --out kits
    """
    from evenhand.jobs.federation.files import read_federation
    from evenhand.runtime.nvflare.kits import provision as make_kits

    found = read_federation(federation).federation
    for kit in make_kits(found.name, found.server, found.port, found.parties, out):
        say(str(kit))
    remark("give each its own kit over a channel you trust, and keep authority/ to yourself: it can make more of them")


def serve(
    kit: Annotated[Path, typer.Argument(help="The server's kit.")],
    party: Annotated[
        Path | None,
        typer.Option("--party", help="The file of the party that holds the labels (TOML); across rows there is none."),
    ] = None,
    runs: RunsOption = None,
    checkpoint_seconds: Annotated[float, typer.Option(min=0.0, help="Least time between two checkpoints.")] = 10.0,
) -> None:
    """Run the server until interrupted: at the party that holds the labels, or with somebody it trusts with them.

    Ids, labels and groups are read from the table of --party. For jobs across rows the server has no rows, and needs
    no file.

    \b
    Example:
      evenhand serve kits/server --party party.toml
    """
    _run(kit, party, runs, checkpoint_seconds)


def join(
    kit: Annotated[Path, typer.Argument(help="This party's kit.")],
    party: PartyOption,
    runs: RunsOption = None,
) -> None:
    """Take part as a party until interrupted: dials out to the server, opens no port.

    The console shows the terms of each job before anything of this party's rows is said. What its policy does not
    allow is refused.

    \b
    Example:
      evenhand join kits/shop --party party.toml
    """
    _run(kit, party, runs)


def submit(
    job: Annotated[Path, typer.Argument(help="What to train, and the names and parts of the parties (TOML).")],
    kit: Annotated[Path, typer.Option(help="The admin's kit.")],
    patience: Annotated[
        float, typer.Option(min=0.0, help="Seconds to wait for a server or parties that are not there.")
    ] = 60.0,
    resume: Annotated[
        str | None, typer.Option(help="Go on with this run, by its name, from the last checkpoint that all have.")
    ] = None,
    retries: Annotated[
        int, typer.Option(min=0, help="How often to go on with a run that was cut short, by itself.")
    ] = 0,
    result: Annotated[Path | None, typer.Option(help="Write what the server says of the run there (JSON).")] = None,
) -> None:
    """Have a job run by a federation, and show its result.

    \b
    Example:
      evenhand submit job.toml --kit kits/admin --result result.json
    """
    from evenhand.jobs.federation.files import read_federation_job
    from evenhand.jobs.federation.saying import result_tables
    from evenhand.report.progress import Progress
    from evenhand.runtime.files import write_bytes

    console = Console(markup=False, emoji=False)
    if result is not None and result.exists():
        raise InputError(f"--result {result} exists; choose another file")
    content = read_federation_job(job)
    with Progress(content.to_job().max_rounds, enabled=sys.stderr.isatty()) as progress:
        told = run_submitted(
            content,
            job.stem,
            kit,
            patience,
            lambda status: console.print(f"  {status}"),
            resume=resume,
            retries=retries,
            on_report=progress.round,
        )
    found = told["result"]
    if result is not None:
        write_bytes(result, json.dumps(found, indent=1).encode())
    for table in result_tables(found):
        console.print(table)
    if "quality" not in found:
        console.print("With label_privacy, what was measured on the labels is in the server's folder only.")
    console.print(f"server: {told['folder']}")
    console.print(f"{', '.join(content.parts)}: {told['run']} under runs/ beside its own file, or where --runs says")


def run_submitted(
    job: AnyJob,
    name: str,
    kit: Path,
    patience: float,
    on_status: Callable[[str], None],
    *,
    resume: str | None = None,
    retries: int = 0,
    on_report: Callable[[Report], None] | None = None,
) -> dict[str, Any]:
    """Submit, wait, and return the outcome with the run's name; the error of a job that failed is raised here."""
    try:
        from evenhand.runtime.nvflare.submitting import Admin, outcome, wait_for_end, wait_for_parties
        from evenhand.runtime.nvflare.submitting import submit as send
    except ModuleNotFoundError as error:
        raise MissingExtraError("a federation", "nvflare") from error
    run, parties = resume or "", list(job.parts)

    def once(admin: Admin) -> dict[str, Any]:
        nonlocal run
        wait_for_parties(admin, parties, patience)
        job_id = send(admin, name, job.model_dump(exclude_none=True, mode="json"), parties, run)
        run = run or job_id
        on_status(f"job {job_id}: each side's run folder is called {run}")
        wait_for_end(admin, job_id, on_status, on_report)
        return {**outcome(admin, job_id), "run": run}

    with Admin(kit, patience) as admin:
        for left in reversed(range(retries + 1)):
            try:
                return once(admin)
            except LostError as error:
                advice = f"; go on with: --resume {run}" if run else ""
                if not left:
                    raise LostError(f"{error}{advice}") from error
                on_status(f"{error}; trying again")
    raise AssertionError("a run has at least one try")


def revoke(
    party: Annotated[str, typer.Argument(help="Whose certificate counts no more.")],
    kit: Annotated[Path, typer.Option(help="The admin's kit.")],
    restore: Annotated[bool, typer.Option("--restore", help="Let it in again.")] = False,
) -> None:
    """Keep a party's kit out from now on, for instance one that was lost: the server lets nobody in by its name.

    A new kit for the same organisation needs another name, so that the old one stays out.

    \b
    Example:
      evenhand revoke shop --kit kits/admin
    """
    try:
        from evenhand.runtime.nvflare.submitting import Admin
    except ModuleNotFoundError as error:
        raise MissingExtraError("a federation", "nvflare") from error
    with Admin(kit) as admin:
        if restore:
            admin.ask(lambda session: session.enable_client(party))
        else:
            admin.ask(lambda session: session.disable_client(party))
    say(f"{party} is let in again" if restore else f"{party} is kept out")


def ask(run: str, ids: Path, kit: Path, patience: float = 60.0) -> pd.DataFrame:
    """Scores of people by a run that a federation has finished; those whom a party lacks have none."""
    import pandas as pd

    from evenhand.data.tables.readers import TableSource, read_table
    from evenhand.jobs.quality import scored
    from evenhand.protocol.align import id_sums

    try:
        from evenhand.runtime.nvflare.submitting import Admin, outcome, parties_of, wait_for_end, wait_for_parties
        from evenhand.runtime.nvflare.submitting import submit as send
    except ModuleNotFoundError as error:
        raise MissingExtraError("a federation", "nvflare") from error
    header = read_table(TableSource(ids)).columns
    index = read_table(TableSource(ids, id=str(header[0]), columns=[])).index
    kind, sums = id_sums(index)
    question = {"run": run, "kind": kind, "sums": sums.tolist()}
    with Admin(kit, patience) as admin:
        parties = parties_of(admin, run)
        wait_for_parties(admin, parties, patience)
        job_id = send(admin, "predict", {"question": question}, parties)
        wait_for_end(admin, job_id, lambda _: None)
        told = outcome(admin, job_id)["result"]
    scores = pd.Series(told["scores"], index=index, dtype=float)
    if lacking := int(scores.isna().sum()):
        remark(f"{lacking:,} of {len(scores):,} ids are not known to every party; they are left out")
    known = scores.dropna()
    return scored(known.to_numpy(), told["labels"], known.index)


def start(
    kit: Path, party: Path | None, runs: Path | None, log: Path | None = None, checkpoint_seconds: float = 10.0
) -> RunningKit:
    from evenhand.jobs.federation.files import CHECKPOINT_SECONDS, PARTY_FILE, RUNS, read_party

    try:
        from evenhand.runtime.nvflare.running import RunningKit
    except ModuleNotFoundError as error:
        raise MissingExtraError("a federation", "nvflare") from error
    settings = {CHECKPOINT_SECONDS: str(checkpoint_seconds)}
    if party is not None:
        # Before anything is started.
        read_party(party)
        settings[PARTY_FILE] = str(party.absolute())
    if runs is not None:
        settings[RUNS] = str(runs.absolute())
    return RunningKit(kit, settings, log)


def _run(kit: Path, party: Path | None, runs: Path | None, checkpoint_seconds: float = 10.0) -> None:
    running = start(kit, party, runs, None, checkpoint_seconds)

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
