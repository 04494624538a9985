"""`evenhand scorecard`: an owner's linear model as points of bins."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from evenhand.errors import InputError
from evenhand.printing import remark, say


def scorecard(
    run: Annotated[Path, typer.Argument(help="Run folder of a finished run of linear models.")],
    party: Annotated[str | None, typer.Option(help="Whose part to show; needed if the folder has several.")] = None,
    points: Annotated[float, typer.Option(help="Points of a row with the odds of --odds.")] = 600.0,
    odds: Annotated[float, typer.Option(help="Odds of the positive label at --points.")] = 50.0,
    double: Annotated[float, typer.Option(help="Points that double the odds.")] = 20.0,
    out: Annotated[Path | None, typer.Option(help="CSV file to write; default is to print CSV.")] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the file if it exists.")] = False,
) -> None:
    """Turn a linear model into a scorecard: bins, their points, the base points, the points that double the odds.

    A party's part comes from its own files, and lists its own columns. The part with the intercept, the label holder's,
    says how parts add up. Within a bin of a curve, points rise from `from` to `to`; `points` is the middle.

    \b
    Examples:
      evenhand scorecard runs/monday --party bank
      evenhand scorecard runs/monday --party shop --out shop-card.csv
      evenhand scorecard runs/monday --party bank --points 500 --odds 20 --double 50
    """
    from evenhand.jobs import scorecards
    from evenhand.jobs.cuts import told_cut
    from evenhand.report.tables import csv_text
    from evenhand.runtime.files import write_bytes
    from evenhand.runtime.folder import RunFolder

    if out is not None and out.suffix.lower() != ".csv":
        raise InputError(f"--out {out}: the name must end in .csv")
    if out is not None and out.exists() and not overwrite:
        raise InputError(f"--out {out} exists; choose another file, or replace it with --overwrite")
    scale = scorecards.PointScale(points, odds, double)
    folder = RunFolder.open(run)
    card = scorecards.scorecard(folder, party, scale)
    if out is None:
        say(csv_text(card.table), end="")
    else:
        write_bytes(out, csv_text(card.table).encode())
        remark(f"{len(card.table):,} bins of {card.owner} written into {out}")
    if (base := card.base(scale)) is not None:
        positive, cut = folder.labels.get("positive"), told_cut(folder.result)
        found = {group: scale.offset + scale.factor * one for group, one in (cut.groups or {"": cut.score}).items()}
        above = ", ".join(
            f"above {one:.0f} points{group and f' for {cut.by} = {group}'}" for group, one in found.items()
        )
        others = [one["name"] for one in folder.description.get("party", []) if one["name"] != card.owner]
        remark(f"a row has {base:.0f} points, plus those of its bins at {' and at '.join([card.owner, *others])}")
        remark(f"{double:g} points double the odds of {positive!r}; it is the decision {above}")
