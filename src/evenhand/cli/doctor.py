"""`evenhand doctor`: check the installation and this machine."""

from __future__ import annotations

import os
import platform
import re
import shutil
import sys
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer
from rich.console import Console
from rich.table import Table

from evenhand.errors import EvenhandError, MissingExtraError, RunError
from evenhand.printing import printable, remark

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
    from evenhand.data.tables.party_tables import SeenTable
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


_NEED = re.compile(
    r"(?P<name>[A-Za-z0-9._-]+)[^>;]*(?:>=(?P<least>[0-9.]+))?[^;]*(?:;.*extra == ['\"](?P<extra>\w+)['\"])?"
)


class Part(NamedTuple):
    """A package that evenhand or one of its extras requires."""

    extra: str
    name: str
    least: str
    found: str | None

    @property
    def fine(self) -> bool:
        return self.found is not None and _numbers(self.found) >= _numbers(self.least)


def parts() -> list[Part]:
    """Return what pyproject.toml requires and what is installed."""
    found = []
    for line in requires("evenhand") or ():
        need = _NEED.match(line)
        if need is None or need["name"] == "evenhand":
            continue
        try:
            there: str | None = version(need["name"])
        except PackageNotFoundError:
            there = None
        found.append(Part(need["extra"] or "", need["name"], need["least"] or "0", there))
    return found


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(one) for one in re.findall(r"\d+", text)[:3])


def doctor(
    kit: Annotated[Path | None, typer.Option(help="Check this start-up kit instead.")] = None,
    party: Annotated[Path | None, typer.Option(help="With --kit: the party's own file (TOML).")] = None,
) -> None:
    """Show installed versions, available extras, and this machine's resources.

    With --kit, check whether a start-up kit works here and now: who may read its keys, when its certificates expire,
    whether it is locked, whether the server answers; with --party also the party's file and policy.

    \b
    Examples:
      evenhand doctor
      evenhand doctor --kit kits/shop --party party.toml

    Exits with code 7 if a required package is missing or too old, and with 4 if a kit has a problem.
    """
    from evenhand.data.public.fetch import default_cache
    from evenhand.report.tables import BareTable

    console = Console(markup=False, emoji=False)
    if kit is not None:
        show_kit(kit, party, console)
        return
    console.print(f"evenhand {version('evenhand')}, Python {platform.python_version()} ({sys.executable})")
    console.print(f"{platform.system()} {platform.machine()}, {os.cpu_count()} processors, {_memory()}")
    free = shutil.disk_usage(Path.cwd()).free / 1e9
    writable = "is writable" if os.access(Path.cwd(), os.W_OK) else "is NOT writable"
    console.print(
        f"this folder {writable}; {free:.1f} GB are free on its disk; data sets are cached in {default_cache()}"
    )
    found = parts()
    table = BareTable("required packages", "package", "required", "installed")
    for part in found:
        if not part.extra:
            table.add_row(part.name, f"≥ {part.least}", part.found or "missing")
    console.print(table)
    table = BareTable("extras", "extra", "", "how to install it")
    for extra in dict.fromkeys(part.extra for part in found if part.extra not in ("", "dev", "test")):
        missing = [part.name for part in found if part.extra == extra and not part.fine]
        state = "installed" if not missing else f"missing: {', '.join(missing)}"
        table.add_row(extra, state, "" if not missing else f"pip install 'evenhand[{extra}]'")
    console.print(table)
    if wrong := [part.name for part in found if not part.extra and not part.fine]:
        remark(f"missing or too old: {', '.join(wrong)}; run: pip install -U evenhand")
        raise typer.Exit(MissingExtraError.exit_code)


def _memory() -> str:
    """Return the amount of memory, if the system reports it."""
    try:
        whole = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):
        return "memory unknown"
    return f"{whole / 1e9:.1f} GB of memory"
