"""`evenhand federation …`: train between organisations, on NVIDIA FLARE or Flower."""

from __future__ import annotations

import json
import signal
import sys
from pathlib import Path
from types import FrameType
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from evenhand.cli.federation_client import run_submitted, start
from evenhand.errors import InputError, MissingExtraError, RunError
from evenhand.printing import printable, remark, say

app = typer.Typer(help="Train between organisations: start-up kits, server, parties, jobs.", no_args_is_help=True)
PartyOption = Annotated[
    Path, typer.Option("--party", help="This party's own file (TOML): its table, its columns, its policy.")
]
RunsOption = Annotated[Path | None, typer.Option(help="Folder for run folders; default runs/ beside the party's file.")]
JobOption = "What to train, and the names and roles of the parties (TOML)."


@app.command()
def provision(
    federation: Annotated[Path, typer.Argument(help="The participants, and the server's address (TOML).")],
    out: Annotated[Path, typer.Option(help="Folder for the kits; it must be empty or new.")] = Path("kits"),
) -> None:
    """Make start-up kits: certificates and settings for the server, each party and the admin who submits jobs.

    \b
    federation.toml:
      [federation]
      name = "credit"
      server = "fl.bank.example"      # the host name by which parties reach the server
      port = 8002
      parties = ["bank", "shop", "phone"]

    \b
    Example:
      evenhand federation provision federation.toml --out kits
    """
    from evenhand.jobs.federation.files import read_federation
    from evenhand.runtime.nvflare.kits import provision as make_kits

    found = read_federation(federation).federation
    for kit in make_kits(found.name, found.server, found.port, found.parties, out):
        say(str(kit))
    remark("send each participant its kit over a trusted channel; keep authority/ private: it can sign new kits")


@app.command()
def serve(
    kit: Annotated[Path, typer.Argument(help="The server's kit.")],
    party: Annotated[
        Path | None,
        typer.Option("--party", help="The label holder's file (TOML); horizontal jobs need none."),
    ] = None,
    runs: RunsOption = None,
    checkpoint_seconds: Annotated[float, typer.Option(min=0.0, help="Minimum time between two checkpoints.")] = 10.0,
) -> None:
    """Run the server until it is interrupted, at the label holder or at a third party that it trusts with the labels.

    The server reads ids, labels and groups from the table of --party. In horizontal jobs the server has no rows and
    needs no file.

    \b
    Example:
      evenhand federation serve kits/server --party party.toml
    """
    _run(kit, party, runs, checkpoint_seconds)


@app.command()
def join(
    kit: Annotated[Path, typer.Argument(help="This party's kit.")],
    party: PartyOption,
    runs: RunsOption = None,
) -> None:
    """Take part as a party until interrupted. The party connects to the server and opens no port.

    The console shows the terms of each job before anything about this party's rows is sent. The party refuses what
    its policy does not allow.

    \b
    Example:
      evenhand federation join kits/shop --party party.toml
    """
    _run(kit, party, runs)


@app.command()
def submit(
    job: Annotated[Path, typer.Argument(help=JobOption)],
    kit: Annotated[Path, typer.Option(help="The admin's kit.")],
    patience: Annotated[float, typer.Option(min=0.0, help="Seconds to wait for a missing server or party.")] = 60.0,
    resume: Annotated[
        str | None, typer.Option(help="Resume this run, by its name, from the last checkpoint that all parties have.")
    ] = None,
    retries: Annotated[int, typer.Option(min=0, help="How often to resume an interrupted run automatically.")] = 0,
    result: Annotated[Path | None, typer.Option(help="Write the server's result to this file (JSON).")] = None,
) -> None:
    """Run a job on a federation and show its result.

    \b
    Example:
      evenhand federation submit job.toml --kit kits/admin --result result.json
    """
    from evenhand.jobs.federation.files import read_federation_job
    from evenhand.jobs.federation.notices import result_tables
    from evenhand.report.tables import Progress
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
        console.print(
            "Clients that add noise keep their counts: the quality on a client's rows is in the client's run folder."
            if "privacy" in found
            else "Under label_privacy, metrics on the true labels are in the server's run folder only."
        )
    console.print(f"server: {told['folder']}")
    console.print(f"{', '.join(content.parts)}: {told['run']} under runs/ beside its own file, or under --runs")


@app.command()
def revoke(
    party: Annotated[str, typer.Argument(help="The party to revoke.")],
    kit: Annotated[Path, typer.Option(help="The admin's kit.")],
    restore: Annotated[bool, typer.Option("--restore", help="Admit the party again.")] = False,
) -> None:
    """Revoke a party's kit, for instance one that was lost: the server then refuses connections under its name.

    A new kit for the same organisation needs another name, so that the old one stays revoked.

    \b
    Example:
      evenhand federation revoke shop --kit kits/admin
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
    say(f"{party} is admitted again" if restore else f"{party} is revoked")


@app.command()
def align(
    parties: Annotated[list[Path], typer.Argument(help="Each party's own file (TOML): its table and its id column.")],
    least: Annotated[int, typer.Option(min=1, help="Report nothing if fewer rows than this are shared.")] = 1,
    out: Annotated[
        Path | None, typer.Option(help="Also write each party's own ids of the common rows, to OUT/PARTY.csv.")
    ] = None,
) -> None:
    """Count the rows that parties have in common by private set intersection, on this machine.

    Use it to check tables beforehand: it refuses missing ids, duplicate ids and ids of different types. Between
    organisations the same exchange runs in a job with ids = "private" and least_common = N.

    \b
    Examples:
      evenhand federation align bank/party.toml shop/party.toml
      evenhand federation align */party.toml --least 1000 --out common/
    """
    from evenhand.jobs.overlap import find_overlap
    from evenhand.runtime.files import make_folder, write_bytes

    found = find_overlap(parties, least)
    table = Table("party", "rows", "in common", "share")
    for name, rows in found.rows.items():
        table.add_row(printable(name), f"{rows:,}", f"{found.count:,}", f"{found.count / rows:.1%}")
    Console(markup=False, emoji=False).print(table)
    if out is not None:
        make_folder(out, private=True)
        for name, ids in found.common.items():
            write_bytes(
                out / f"{name}.csv", ids.to_frame(name=ids.name or "id").to_csv(index=False).encode(), private=True
            )


@app.command()
def flower(
    folder: Annotated[Path, typer.Argument(help="Folder for the app; it must be empty or new.")],
    job: Annotated[Path, typer.Option(help=JobOption)],
) -> None:
    """Write a job as a Flower app, ready for `flwr run`.

    \b
    Install evenhand[flower] at each party and at the SuperLink. EVENHAND_PARTY_FILE names the party's own file (at
    the SuperLink: the label holder's). Register each node's key under the name of its party:
      flwr supernode register bank.pub --name bank
      EVENHAND_PARTY_FILE=party.toml flower-supernode ...
      flwr run FOLDER

    \b
    Example:
      evenhand federation flower app --job job.toml
    """
    from evenhand.jobs.federation.files import read_federation_job
    from evenhand.jobs.federation.flower_app import write_app

    write_app(read_federation_job(job), job.stem, folder)
    say(str(folder))
    remark("anyone who may submit to a SuperLink can run code at its nodes: see docs/threat-model.md for what to lock")


def _run(kit: Path, party: Path | None, runs: Path | None, checkpoint_seconds: float = 10.0) -> None:
    """Run a kit's process until it is interrupted or ends by itself."""
    running = start(kit, party, runs, None, checkpoint_seconds)

    def interrupted(_number: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, interrupted)
    try:
        code = running.wait()
        raise RunError(f"{kit} ended by itself, with exit code {code}; see its log.txt")
    except KeyboardInterrupt:
        remark(f"stopping {kit.name}")
    finally:
        running.stop()
