"""Write a drafted job file: each value that is a guess has a comment that says so."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

import pandas as pd

from evenhand.data.tables.columns import MANY_LEVELS
from evenhand.data.tables.raw import is_text
from evenhand.jobs.drafting import Draft, DraftTable, id_texts
from evenhand.jobs.proposals import Proposal
from evenhand.printing import printable, toml_text

_KEPT_LEVELS: Final = 100
_LOSSES: Final = "others: squared, poisson, gamma, tweedie"
TEST_FRACTION: Final = Proposal("test_fraction", 0.25, "share of the rows held out, to show how it does on new people")


def draft_text(draft: Draft, base: Path) -> str:
    """Return the text of the job file, with a comment on each guess; paths are relative to its folder."""
    lines = [
        "# A first draft by `evenhand init`. Review the values marked (guessed).",
        "# Next: `evenhand check` validates the job and its tables, `evenhand train` trains it.",
        "",
        "[job]",
    ]
    if draft.split == "horizontal":
        lines.append('split = "horizontal"                # the tables have the same columns of different people')
    elif len(draft.tables) > 1 and (
        any(len(id_texts(table.frame[draft.ids[table.name]])) != draft.common for table in draft.tables)
        or any(one.key == "incomplete" for found in draft.proposed.values() for one in found)
    ):
        lines.append(
            f'ids = "inner"                       # {draft.common:,} ids are in all tables; others are left out'
        )
    if not any(one.key == TEST_FRACTION.key for one in draft.job):
        lines.append(f"{TEST_FRACTION.line():<36}# {TEST_FRACTION.why}")
    if draft.loss is not None:
        lines.append(f"loss = {toml_text(draft.loss[0])}   # (guessed) {draft.label} is a number; {_LOSSES}")
    comments, bound = _bound(draft)
    lines += [*comments, bound] if draft.sensitive else [f"# {bound}   # once `sensitive` names columns"]
    lines += [_proposal_line(one) for one in draft.job]
    label: dict[str, object] = {"column": draft.label}
    if draft.classes:
        label["classes"] = list(draft.classes)
    elif draft.is_binary:
        label["positive"] = draft.positive
    described = [
        f"label = {toml_text(label)}{_guessed(draft, 'label')}",
        f"sensitive = {toml_text(draft.sensitive)}{_guessed(draft, 'sensitive', 'groups to compare; not features')}",
    ]
    if draft.split == "horizontal":
        lines += ["", "[data]", *described, *_id_line(draft, draft.tables[0]), *_taken(draft, draft.tables)]
    for table in draft.tables:
        lines += ["", "[[client]]" if draft.split == "horizontal" else "[[party]]", f"name = {toml_text(table.name)}"]
        if draft.split == "vertical" and table.name == draft.holder:
            lines.append('role = "active"                     # holds the label')
        lines += _where(table, base)
        if draft.split == "vertical":
            lines += [
                *_id_line(draft, table),
                *(described if table.name == draft.holder else []),
                *_taken(draft, [table]),
            ]
    return "\n".join(lines) + "\n"


def _bound(draft: Draft) -> tuple[list[str], str]:
    """Return comments on the drafted constraint, and its line."""
    if draft.loss is not None:
        told = ["# Mean predictions of any two groups differ by at most epsilon, in the unit of the label."]
        others = "loss-parity, bounded-group-loss, group-against-overall"
        bound: dict[str, object] = {"kind": "mean-prediction-parity", "epsilon": draft.loss[1]}
    elif draft.classes:
        told = ["# The rates at which each class is predicted differ by at most epsilon between any two groups."]
        others = "equalized-odds, equal-opportunity of one class, loss-parity, group-against-overall"
        bound = {"kind": "demographic-parity", "epsilon": 0.05}
    else:
        told = ["# False-negative rates of any two groups differ by at most epsilon."]
        others = "equalized-odds, demographic-parity, loss-parity, group-against-overall"
        bound = {"kind": "equal-opportunity", "epsilon": 0.05, "measure": "error"}
    return [*told, f"# Others: {others}; see docs/concepts.md."], f"constraint = {toml_text(bound)}"


def _id_line(draft: Draft, table: DraftTable) -> list[str]:
    if table.name not in draft.ids:
        return []
    return [f"id = {toml_text(draft.ids[table.name])}{_guessed(draft, 'id')}"]


def _guessed(draft: Draft, role: str, more: str = "") -> str:
    """Return the comment on a value: that it is a guess, unless a person gave it."""
    said = " ".join(one for one in ("" if role in draft.given else "(guessed)", more) if one)
    return f"   # {said}" if said else ""


def _proposal_line(one: Proposal) -> str:
    return f"{one.line()}{'' if one.given else f'   # (guessed) {printable(one.why)}'}".replace("\n", " ")


def _where(table: DraftTable, base: Path) -> list[str]:
    path = Path(str(table.source.table)).absolute()
    shown = path.relative_to(base.absolute()) if path.is_relative_to(base.absolute()) else path
    lines = [f"table = {toml_text(shown.as_posix())}   # {len(table.frame):,} rows"]
    if table.source.encoding != "utf-8":
        lines.append(f"encoding = {toml_text(table.source.encoding)}   # (guessed)")
    if table.source.decimal != ".":
        lines.append(f"decimal = {toml_text(table.source.decimal)}   # (guessed)")
    return lines


def _taken(draft: Draft, tables: Sequence[DraftTable]) -> list[str]:
    """Return what must be stated of the columns, and of rows with the same id or without label."""
    found = [one for table in tables for one in draft.proposed.get(table.name, ())]
    lines = [_proposal_line(one) for one in found]
    types: dict[str, str] = next((one.value for one in found if one.key == "types"), {})
    beside = {draft.label, *draft.sensitive, *draft.ids.values(), *types}
    if any(_many(table.frame[name]) for table in tables for name in table.frame if name not in beside):
        lines.append(f"max_levels = {_KEPT_LEVELS}                    # a column has more; the most frequent are kept")
    return lines


def _many(column: pd.Series) -> bool:
    return bool(is_text(column) and MANY_LEVELS < column.nunique() < len(column))
