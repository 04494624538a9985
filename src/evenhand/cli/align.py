"""`evenhand align`: how many rows parties have in common, without a list of people."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from evenhand.printing import printable


def align(
    parties: Annotated[list[Path], typer.Argument(help="Each party's own file (TOML): its table and its id column.")],
    least: Annotated[int, typer.Option(min=1, help="With fewer common rows than this, nobody is told any.")] = 1,
    out: Annotated[
        Path | None, typer.Option(help="Also write each party's own ids of the common rows, to OUT/PARTY.csv.")
    ] = None,
) -> None:
    """Find the rows that parties have in common by private set intersection, on this machine.

    Between organisations the same exchange is part of a job that says ids = "private" and least_common = N. Here it is
    for checking tables beforehand: ids that are missing or occur twice are refused, kinds of ids must agree.

    \b
    Examples:
      evenhand align bank/party.toml shop/party.toml
      evenhand align */party.toml --least 1000 --out common/
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
