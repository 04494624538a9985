"""Check a start-up kit and its party's own file for `evenhand doctor --kit`."""

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
    """Print the findings; exit with code 4 if the kit would not work as it is."""
    from evenhand.runtime.nvflare.health import KitFinding, check_kit

    found = check_kit(kit)
    if party is not None:
        try:
            found += _own_file(kit, party)
        except EvenhandError as error:
            found.append(KitFinding("party's file", False, str(error)))
    table = Table("check", "", "finding")
    for one in found:
        table.add_row(printable(one.what), "ok" if one.fine else "PROBLEM", printable(one.said))
    console.print(table)
    if not all(one.fine for one in found):
        raise typer.Exit(RunError.exit_code)


def _own_file(kit: Path, party: Path) -> list[KitFinding]:
    from evenhand.data.tables.unchanged import SeenTable
    from evenhand.jobs.federation.files import read_party
    from evenhand.jobs.schema import located
    from evenhand.runtime.nvflare.health import KitFinding, kit_name

    own = read_party(party)
    owner = kit_name(kit)
    is_server = (kit / "startup" / "fed_server.json").is_file()
    fits = is_server or own.party.name == owner
    said = "has the kit's name" if fits else f"belongs to {own.party.name}, but the kit belongs to {owner}"
    dealer = own.party.role == "dealer"
    if not dealer:
        SeenTable.of(located(own.party, party.absolute().parent))
    allows = {name: value for name, value in own.policy.model_dump().items() if value}
    policy = ", ".join(f"{name} = {value}" for name, value in allows.items()) or "accepts every job"
    return [
        KitFinding("party's file", fits, said),
        KitFinding("table", True, "a dealer has none" if dealer else "readable"),
        KitFinding("policy", True, policy),
    ]
