"""Ask a person about a drafted job: ids, label, groups, and every key that the tables need."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Final

from pydantic import TypeAdapter, ValidationError

from evenhand.data.tables.grouping import Grouping
from evenhand.errors import InputError
from evenhand.jobs.drafted_text import TEST_FRACTION, draft_text
from evenhand.jobs.drafting import Draft, DraftTable, complete_draft, draft_job
from evenhand.jobs.horizontal.file import parse_horizontal
from evenhand.jobs.horizontal.runs import clients_disclosure
from evenhand.jobs.proposals import Proposal
from evenhand.jobs.vertical.file import PartySection, VerticalJobSection, parse_vertical
from evenhand.printing import toml_text
from evenhand.protocol.terms import Part
from evenhand.solvers.roles import vertical_terms
from evenhand.solvers.statement import disclosure

Ask = Callable[[str, str], str]
"""Asks a question and returns the answer; the second argument is the default."""
Tell = Callable[[str], None]
LEAVE_OUT: Final = "-"


def interview(tables: Sequence[DraftTable], given: Mapping[str, Any], ask: Ask, tell: Tell) -> Draft:
    """Return the draft with a person's answers in place of guesses.

    Parameters
    ----------
    given
        Arguments of `draft_job` that are known already; nothing is asked about them.
    tell
        Shows a line: why a key is proposed, or what is wrong with an answer.
    """
    known = dict(given)

    def settle(key: str, question: str, default: str, read: Callable[[str], Any] = str) -> Draft:
        """Ask until a draft can be made with the answer."""
        while True:
            answer = read(ask(question, default))
            try:
                found = draft_job(tables, **{**known, key: answer})
            except InputError as error:
                tell(str(error))
                continue
            known[key] = answer
            return found

    if known["label"] is None:
        settle("label", "Column to predict", _guessed_label(tables, known, tell))
    draft = draft_job(tables, **known)
    if not known["id"]:
        # Clients have the same columns.
        for name, column in list(draft.ids.items())[: 1 if draft.split == "horizontal" else None]:
            before = list(known["id"])
            draft = settle("id", f"Column of {name} that identifies a row", column, _named(name, before))
    if known["positive"] is None and draft.is_binary:
        draft = settle("positive", f"Value of {draft.label} that counts as positive", str(draft.positive))
    if known["sensitive"] is None:
        question = f"Sensitive columns of {draft.holder}, separated by commas ({LEAVE_OUT} for none)"
        draft = settle("sensitive", question, ", ".join(draft.sensitive) or LEAVE_OUT, _names)
    draft = complete_draft(draft)
    proposed = {name: _settled(found, name, ask, tell) for name, found in draft.proposed.items()}
    job = _settled([TEST_FRACTION, *draft.job], "job", ask, tell)
    draft = replace(draft, given=frozenset(("id", "label", "sensitive")), proposed=proposed, job=job)
    if len(tables) > 1:
        try:
            said = _disclosed(draft)
        except InputError as error:
            # The file is written all the same: `evenhand check` names what to change.
            said = f"what messages disclose is known once the job is valid ({error})"
        protection = Proposal("protection", "auto", said)
        draft = replace(draft, job=[*job, *_settled([protection], "job", ask, tell)])
    return draft


def _disclosed(draft: Draft) -> str:
    """Return what the drafted job's messages disclose, and to which participants."""
    content = tomllib.loads(draft_text(draft, Path()))
    if draft.split == "horizontal":
        return clients_disclosure(parse_horizontal(content, "the draft"))
    job = parse_vertical(content, "the draft").to_job()
    parts: dict[str, Part] = {one.name: "active" if one.name == draft.holder else "passive" for one in draft.tables}
    terms = vertical_terms(job, parts, 0, {})
    return disclosure(terms.job, terms.participants)


def _guessed_label(tables: Sequence[DraftTable], known: Mapping[str, Any], tell: Tell) -> str:
    try:
        return draft_job(tables, **known).label
    except InputError as error:
        if "--label" not in str(error):
            raise
        tell(str(error))
        return ""


def _named(name: str, before: Sequence[str]) -> Callable[[str], list[str]]:
    return lambda text: [*before, f"{name}={text}"]


def _names(text: str) -> list[str]:
    return [] if text == LEAVE_OUT else [one.strip() for one in text.split(",") if one.strip()]


def _settled(found: Sequence[Proposal], owner: str, ask: Ask, tell: Tell) -> list[Proposal]:
    """Return keys with a person's values, without those that are left out."""
    kept = []
    for one in found:
        tell(f"{owner}: {one.why}")
        while True:
            text = ask(f"{one.key} ({LEAVE_OUT} to leave it out)", toml_text(one.value))
            if text == LEAVE_OUT:
                break
            try:
                kept.append(replace(one, value=_value(one.key, text), given=True))
                break
            except InputError as error:
                tell(str(error))
    return kept


def _value(key: str, text: str) -> Any:
    """Read a value as TOML, in which a word needs no quotes here."""
    try:
        value = tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        value = text
    section = PartySection if key in PartySection.model_fields else VerticalJobSection
    kind = section.model_fields[key]
    try:
        adapter: TypeAdapter[Any] = TypeAdapter(Annotated[kind.annotation, kind])  # type: ignore[arg-type]
        adapter.validate_python(value, strict=not isinstance(value, dict))
    except ValidationError as error:
        raise InputError(f"{key} cannot be {text}: {error.errors()[0]['msg']}") from error
    if key in ("bands", "merge"):
        Grouping(**{key: value})
    return value
