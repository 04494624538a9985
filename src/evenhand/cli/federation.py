"""`evenhand federation …`: train between organisations, on NVIDIA FLARE or Flower."""

from __future__ import annotations

import signal
from pathlib import Path
from types import FrameType
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from evenhand.cli import federation_jobs, federation_kits
from evenhand.cli.federation_client import start
from evenhand.errors import RunError
from evenhand.printing import printable, remark, say

app = typer.Typer(help="Train between organisations: start-up kits, server, parties, jobs.", no_args_is_help=True)
for _command in (
    federation_kits.provision,
    federation_kits.request,
    federation_kits.admit,
    federation_kits.install,
    federation_kits.renew,
    federation_jobs.submit,
    federation_jobs.status,
    federation_jobs.jobs,
    federation_jobs.attach,
    federation_jobs.abort,
    federation_jobs.logs,
    federation_jobs.revoke,
    federation_jobs.metrics,
    federation_jobs.traces,
    federation_kits.prune,
):
    app.command()(_command)
PartyOption = Annotated[
    Path, typer.Option("--party", help="This party's own file (TOML): its table, its columns, its policy.")
]
RunsOption = Annotated[Path | None, typer.Option(help="Folder for run folders; default runs/ beside the party's file.")]
JobOption = "What to train, and the names and roles of the parties (TOML)."


@app.command()
def serve(
    kit: Annotated[Path, typer.Argument(help="The server's kit.")],
    party: Annotated[
        Path | None,
        typer.Option("--party", help="The label holder's file (TOML); horizontal jobs need none."),
    ] = None,
    runs: RunsOption = None,
    checkpoint_seconds: Annotated[float, typer.Option(min=0.0, help="Minimum time between two checkpoints.")] = 10.0,
    lease_seconds: Annotated[
        float, typer.Option(min=1.0, help="A job ends when nobody has followed it for so long, unless it is detached.")
    ] = 120.0,
    store: Annotated[
        Path | None, typer.Option(help="Folder for submitted jobs and their results; default jobs/ beside the runs.")
    ] = None,
) -> None:
    """Run the server until it is interrupted, at the label holder or at a third party that it trusts with the labels.

    The server reads ids, labels and groups from the table of --party. In horizontal jobs the server has no rows and
    needs no file.

    \b
    Example:
      evenhand federation serve kits/server --party party.toml
    """
    _run(kit, party, runs, checkpoint_seconds, lease_seconds, store)


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


def _run(
    kit: Path,
    party: Path | None,
    runs: Path | None,
    checkpoint_seconds: float = 10.0,
    lease_seconds: float = 120.0,
    store: Path | None = None,
) -> None:
    """Run a kit's process until it is interrupted or ends by itself."""
    running = start(kit, party, runs, None, checkpoint_seconds, lease_seconds, store)

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
