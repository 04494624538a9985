"""`evenhand init`: write a first job file for your own tables."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from evenhand.errors import InputError
from evenhand.printing import remark, say

if TYPE_CHECKING:
    from evenhand.jobs.drafting import Draft


def init(
    tables: Annotated[
        list[Path] | None, typer.Argument(help="Each party's or client's file: CSV, Parquet or DuckDB.")
    ] = None,
    out: Annotated[Path, typer.Option(help="Job file to write; never overwritten.")] = Path("job.toml"),
    split: Annotated[
        str | None, typer.Option(help="vertical: different columns of the same people; horizontal: different people.")
    ] = None,
    id: Annotated[
        list[str] | None, typer.Option(help="Column that identifies a row; TABLE=COLUMN for one table. Repeatable.")
    ] = None,
    label: Annotated[str | None, typer.Option(help="Column to predict: two values, more classes, or a number.")] = None,
    positive: Annotated[str | None, typer.Option(help="The value of the label that counts as positive.")] = None,
    sensitive: Annotated[
        list[str] | None, typer.Option(help="Sensitive column: its groups are compared. Repeatable.")
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Ask nothing; mark every guess in the file.")] = False,
) -> None:
    """Inspect tables and write a commented job file. Ids, label, groups and types are guessed if they are not given.

    So are bands of sensitive numbers, small groups to merge, what to do with duplicate ids and with rows without label
    or group, and the cut if positives are rare. In a terminal it asks about each. What you give or answer is not marked
    (guessed). It trains nothing and writes nothing but the job file.

    \b
    Examples:
      evenhand init bank.csv shop.csv phone.csv
      evenhand init bank.csv shop.csv --id bank=customer --id shop=customer_no
      evenhand init bank.csv shop.csv --label repaid --sensitive origin --out loans.toml --yes
      evenhand init north.parquet south.parquet --split horizontal
    """
    # Imported here: loading the readers takes seconds, and --help should not wait for it.
    from evenhand.jobs.drafted_text import draft_text
    from evenhand.jobs.drafting import DraftTable, complete_draft, draft_job
    from evenhand.jobs.interview import interview
    from evenhand.runtime.files import write_bytes

    asks = not yes and sys.stdin.isatty()
    if split not in (None, "vertical", "horizontal"):
        raise InputError(f"--split {split}: choose vertical or horizontal")
    if not tables:
        if not asks:
            raise InputError("name the tables: evenhand init bank.csv shop.csv")
        tables = [Path(name) for name in shlex.split(typer.prompt("Table files, separated by spaces"))]
    if out.exists():
        raise InputError(f"{out} exists; choose another file with --out")
    if not out.parent.is_dir():
        raise InputError(f"the folder {out.parent} for {out.name} does not exist")
    found = [DraftTable.look(path) for path in tables]
    given: dict[str, Any] = {
        "split": split,
        "id": id or [],
        "label": label,
        "positive": positive,
        "sensitive": sensitive,
    }
    draft = interview(found, given, _ask, remark) if asks else complete_draft(draft_job(found, **given))
    write_bytes(out, draft_text(draft, out.parent).encode())
    _sum_up(draft)
    remark(f"review it, then run: evenhand check {shlex.quote(str(out))}")
    say(str(out))


def _ask(question: str, default: str) -> str:
    """Ask in the terminal."""
    answer: str = typer.prompt(question, default=default, err=True)
    return answer.strip()


def _sum_up(draft: Draft) -> None:
    kind = f"positive {draft.positive!r}"
    if draft.classes:
        kind = f"classes {', '.join(map(repr, draft.classes))}"
    elif draft.loss is not None:
        kind = f"a number, with the {draft.loss[0]} loss"
    remark(f"label: {draft.label} of {draft.holder}, {kind}")
    remark(f"groups: {', '.join(draft.sensitive) or 'none found; name sensitive columns with --sensitive'}")
    for owner, found in draft.proposed.items():
        for one in found:
            if not one.given and one.key != "types":
                remark(f"{'all clients' if draft.split == 'horizontal' else owner}: {one.line()}, because {one.why}")
    for one in draft.job:
        if not one.given:
            remark(f"{one.line()}: {one.why}")
