"""What `evenhand doctor --kit` says of a start-up kit and its party's own file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import typer
from rich.console import Console
from rich.table import Table

from evenhand.errors import EvenhandError, RunError
from evenhand.printing import printable

if TYPE_CHECKING:
    from evenhand.runtime.nvflare.health import KitFinding


def show_kit(kit: Path, party: Path | None, console: Console) -> None:
    """Print what was found; exit code 4 if the kit would not work as it is."""
    from evenhand.runtime.nvflare.health import KitFinding, check_kit

    found = check_kit(kit)
    if party is not None:
        try:
            found += _own_file(kit, party)
        except EvenhandError as error:
            found.append(KitFinding("party's file", False, str(error)))
    table = Table("what", "", "in words")
    for one in found:
        table.add_row(printable(one.what), "fine" if one.fine else "WRONG", printable(one.said))
    console.print(table)
    if not all(one.fine for one in found):
        raise typer.Exit(RunError.exit_code)


def _own_file(kit: Path, party: Path) -> list[KitFinding]:
    from evenhand.data.tables.unchanged import SeenTable
    from evenhand.jobs.federation.files import read_party
    from evenhand.jobs.schema import located
    from evenhand.runtime.nvflare.health import KitFinding, kit_name

    own = read_party(party)
    whose = kit_name(kit)
    is_server = (kit / "startup" / "fed_server.json").is_file()
    fits = is_server or own.party.name == whose
    said = "its name is the kit's" if fits else f"it is {own.party.name}'s, the kit is {whose}'s"
    dealer = own.party.role == "dealer"
    if not dealer:
        SeenTable.of(located(own.party, party.absolute().parent))
    allows = {name: value for name, value in own.policy.model_dump().items() if value}
    policy = ", ".join(f"{name} = {value}" for name, value in allows.items()) or "takes part in anything"
    return [
        KitFinding("party's file", fits, said),
        KitFinding("table", True, "a dealer has none" if dealer else "can be read"),
        KitFinding("policy", True, policy),
    ]
