"""`evenhand init`: write a first job file for your own tables."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from evenhand.errors import InputError
from evenhand.printing import remark, say

if TYPE_CHECKING:
    from evenhand.jobs.drafting import Draft, DraftTable


def init(
    tables: Annotated[
        list[Path] | None, typer.Argument(help="Each party's or client's file: CSV, Parquet or DuckDB.")
    ] = None,
    out: Annotated[Path, typer.Option(help="Job file to write; never overwritten.")] = Path("job.toml"),
    split: Annotated[
        str | None, typer.Option(help="vertical: different columns of the same people; horizontal: different people.")
    ] = None,
    id: Annotated[str | None, typer.Option(help="Column that identifies a row.")] = None,
    label: Annotated[str | None, typer.Option(help="Column to predict, with two values.")] = None,
    sensitive: Annotated[
        list[str] | None, typer.Option(help="Sensitive column: its groups are compared. Repeatable.")
    ] = None,
) -> None:
    """Inspect tables and write a commented job file. Ids, label, groups and types are guessed if they are not given.

    In a terminal it asks for what it cannot guess. It trains nothing and writes nothing but the job file.

    \b
    Examples:
      evenhand init bank.csv shop.csv phone.csv
      evenhand init bank.csv shop.csv --label repaid --sensitive origin --out loans.toml
      evenhand init north.parquet south.parquet --split horizontal
    """
    # Imported here: loading the readers takes seconds, and --help should not wait for it.
    from evenhand.jobs.drafting import DraftTable, draft_text
    from evenhand.runtime.files import write_bytes

    if split not in (None, "vertical", "horizontal"):
        raise InputError(f"--split {split}: choose vertical or horizontal")
    if not tables:
        if not sys.stdin.isatty():
            raise InputError("name the tables: evenhand init bank.csv shop.csv")
        tables = [Path(name) for name in shlex.split(typer.prompt("Table files, separated by spaces"))]
    if out.exists():
        raise InputError(f"{out} exists; choose another file with --out")
    if not out.parent.is_dir():
        raise InputError(f"the folder {out.parent} for {out.name} does not exist")
    found = [DraftTable.look(path) for path in tables]
    draft = _asked(found, split, id, label, sensitive)
    write_bytes(out, draft_text(draft, out.parent).encode())
    remark(f"label: {draft.label} of {draft.holder}, positive {draft.positive!r}")
    remark(f"groups: {', '.join(draft.sensitive) or 'none found; name sensitive columns with --sensitive'}")
    remark(f"review it, then run: evenhand check {shlex.quote(str(out))}")
    say(str(out))


def _asked(
    tables: Sequence[DraftTable], split: str | None, id: str | None, label: str | None, sensitive: list[str] | None
) -> Draft:
    """Return the draft; in a terminal, ask for the label if it cannot be guessed."""
    from evenhand.jobs.drafting import draft_job

    given: dict[str, Any] = {"split": split, "id": id, "sensitive": sensitive}
    try:
        return draft_job(tables, label=label, **given)
    except InputError as error:
        if not sys.stdin.isatty() or "--label" not in str(error):
            raise
        remark(str(error))
        return draft_job(tables, label=typer.prompt("Column to predict"), **given)
