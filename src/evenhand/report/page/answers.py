"""State in sentences whether each constraint is met."""

from __future__ import annotations

from typing import Final

from rich.filesize import decimal

from evenhand.report.page.charts import number
from evenhand.report.page.markup import Markup, tag
from evenhand.report.record import RunRecord
from evenhand.report.verdicts import (
    HEADLINES,
    MEANS,
    Judgement,
    certified_values,
    holds,
    judged_left_out,
    remarks,
    verdicts,
    worst,
)

MEASURES: Final = {name: f"{mean}s" if name != "loss" else "mean losses" for name, mean in MEANS.items()}
PARTS: Final = {"train": "training", "test": "held-out"}
_COLOURS: Final = {None: "plain", "missed": "missed", "contradicted": "missed", "met": "open", "shown": "met"}
"""Class of the answer for each state: green only if the constraints are shown for new people."""


def part_shown(record: RunRecord) -> str:
    """Return the rows to judge metrics on: held-out rows if there are any."""
    return "test" if "test" in record.parts else "train"


def answer(record: RunRecord) -> Markup:
    """Say for each constraint whether it is met and shown for new people, and how accurate the model is."""
    found = verdicts(record.result)
    lines = [_sentence(record, one) for one in found]
    if not lines:
        asked = "The constraint could not be measured on these rows" if record.constrained else "No constraint"
        lines = [
            tag(
                "p",
                tag("strong", asked),
                " was requested: the model was trained for accuracy alone." if not record.constrained else ".",
            )
        ]
    converged = record.result["certificate"]["converged"]
    if not converged:
        lines.append(
            tag(
                "p",
                tag("strong", "Not converged."),
                " The run reached its round limit or stopped early: a longer run may give another model.",
            )
        )
    said = [*filter(None, [certified_values(record.result)]), *remarks(record.result)]
    lines += [tag("p", f"{one[0].upper()}{one[1:]}.") for one in said]
    state = worst(found)
    return tag("div", *lines, _accuracy(record), klass=f"answer {_COLOURS[state] if converged else 'missed'}")


def under_way(record: RunRecord) -> Markup:
    """Describe a run that has not finished."""
    history = record.history
    if history.empty:
        words = " No round has finished yet."
    else:
        last = history.iloc[-1]
        words = f" Round {last['round']:.0f}: objective {number(last['objective'])}, "
        words += f"the worst constraint is violated by {number(max(last['violation'], 0.0))}."
    return tag("div", tag("p", tag("strong", "Not finished."), words), klass="answer plain")


def _sentence(record: RunRecord, one: Judgement) -> Markup:
    train, unseen = one.train, one.test
    what = f"{train['constraint'].replace('-', ' ')} on {MEASURES[train['measure']]}, within {train['asked']:g}"
    rows = record.rows("train")
    on = f"on the {rows:,} training rows" if rows else "on the training rows"
    words = [f" Requested: {what}. {on.capitalize()} the {one.quantity} is {number(train['estimate'])}."]
    if unseen is not None:
        rows = record.rows("test")
        error = unseen["standard_error"]
        words.append(f" On {f'{rows:,} ' if rows else ''}held-out rows it is {number(unseen['estimate'])}")
        words.append("" if error is None else f" ± {number(error)} (standard error)")
        words.append("" if holds(unseen) else ", above the bound")
        bound = unseen["bound"]
        words.append("." if bound is None else f"; for new people it is at most {number(bound)}, at 95 % confidence.")
    elif one.state == "met":
        words.append(" No held-out rows were measured, so nothing is shown for new people.")
    if judged_left_out(record.result):
        words.append(" The solver judged it on held-out rows, because trees fit the rows they are grown on")
        by = record.result["certificate"]["violation"]
        words.append(f": there it is violated by {number(by)}." if by > 0 else ": there it holds.")
    return tag("p", tag("strong", f"{HEADLINES[one.state]}."), *words)


def _accuracy(record: RunRecord) -> Markup:
    part = part_shown(record)
    rounds, sent = record.result["certificate"]["rounds"], decimal(record.result["bytes"])
    if record.target == "numbers":
        value = record.result["quality"][part]["D2"]
        words = f"Share of the deviance explained on the {PARTS[part]} rows: {number(value)}."
        return tag("p", f"{words} Training took {rounds} rounds and {sent}.")
    value = record.result["quality"][part]["accuracy"]
    error = record.result.get("standard_errors", {}).get(part, {}).get("accuracy")
    spread = "" if error is None else f" ± {100 * error:.1f}"
    return tag(
        "p",
        f"Accuracy on the {PARTS[part]} rows: {100 * value:.1f}{spread} %. Training took {rounds} rounds and {sent}.",
    )
