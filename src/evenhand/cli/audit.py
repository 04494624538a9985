"""`evenhand audit`: measure what a run disclosed, or list what a job would disclose."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table

from evenhand.errors import InputError
from evenhand.printing import say

if TYPE_CHECKING:
    from evenhand.auditing.findings import Audit


def audit(
    what: Annotated[Path, typer.Argument(help="Run folder of a finished run; with --plan, a job file.")],
    plan: Annotated[
        bool, typer.Option("--plan", help="List the messages a job would send, their receivers, and what they reveal.")
    ] = False,
    together: Annotated[
        list[str] | None,
        typer.Option(help="Participants who collude, as comma-separated names. Repeatable."),
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print the sentences only.")] = False,
) -> None:
    """Attack a finished run with what each participant received, and report what each could infer.

    The run is repeated from its job file and tables, which must not have moved. A control shows that each attack
    works where it must succeed. Says which attacks were tried on which messages, and what was not tried. Writes
    audit.json and audit.png to the run folder.

    \b
    Examples:
      evenhand audit runs/monday
      evenhand audit runs/monday --together shop,social
      evenhand audit --plan job.toml
    """
    if plan:
        _show_plan(what)
        return
    # Imported here: loading the solvers takes seconds, and --help should not wait for it.
    from evenhand.auditing.findings import PICTURE, draw_audit
    from evenhand.jobs.auditing import audit_run
    from evenhand.runtime.folder import RunFolder

    if what.is_file():
        raise InputError(f"{what} is a file; give the folder of a finished run, or add --plan for a job file")
    folder = RunFolder.open(what)
    console = Console(quiet=quiet, markup=False, emoji=False)
    with console.status("repeating the run") as status:
        coalitions = [[name.strip() for name in names.split(",")] for names in together or ()]
        found: Audit = audit_run(folder, coalitions, progress=status.update)
    for who, findings in found.by_participant().items():
        table = Table("target", "attack", "messages", "with them", "without", "lift", "control", title=who)
        for one in findings:
            table.add_row(
                one.target,
                one.attack,
                f"{one.sequence} × {one.message}",
                f"{one.measure} {one.value.value:.3f} ({one.value.low:.3f} to {one.value.high:.3f})",
                " / ".join(f"{value:.3f}" for value in one.floors.values()),
                f"{one.lift.value:+.3f} ({one.lift.low:+.3f} to {one.lift.high:+.3f})",
                f"{one.control:.2f}",
            )
        console.print(table)
    for sentence in (*found.sentences, *found.remarks):
        say(sentence)
    if not quiet:
        _show_tried(found)
    draw_audit(found, what / PICTURE)
    say(str(found.write(what)))


def _show_tried(found: Audit) -> None:
    from evenhand.auditing.attacks import BEYOND

    say("Tried:")
    for attack, kinds in found.tried.items():
        say(f"  {attack}: {', '.join(kinds) if kinds else 'no message of this run'}")
    say("Not tried:")
    for reason in dict.fromkeys(found.untried.values()):
        say(f"  {', '.join(kind for kind, why in found.untried.items() if why == reason)}: {reason}")
    for what in BEYOND:
        say(f"  {what}")


def _show_plan(path: Path) -> None:
    from evenhand.jobs.auditing import plan_of, read_planned

    job = read_planned(path)
    planned = plan_of(job)
    say(f"protection of messages: {job.to_job().described_protection}")
    told: set[str] = set()
    for receiver in dict.fromkeys(one.receiver for one in planned):
        say(f"{receiver} would receive:")
        for kind in dict.fromkeys(one.kind for one in planned if one.receiver == receiver):
            senders = ", ".join(dict.fromkeys(o.sender for o in planned if (o.receiver, o.kind) == (receiver, kind)))
            meaning = next(one.reveals for one in planned if one.kind == kind)
            say(f"  {kind}, by {senders}{'' if kind in told else ': ' + meaning}")
            told.add(kind)
