"""What an audit found: numbers for those who check them, a sentence for those who must answer for them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

from evenhand.auditing.evidence import Estimate
from evenhand.runtime.files import write_bytes

VERSION: Final = 1
"""Of the schema of `audit.json`."""
FILE: Final = "audit.json"
PICTURE: Final = "audit.png"
SURE: Final = {"AUC": 0.995, "R²": 0.995, "share": 0.995}
WITHOUT_COLUMNS: Final = {"membership", "inversion", "peaks", "leverage"}
"""Attacks whose floor is not what the attacker's own columns say."""
NEGLIGIBLE: Final = 0.01
"""A lift below this is none that anybody would act on, however many rows prove it."""


@dataclass(frozen=True)
class Finding:
    """One attack by one participant, or by several together.

    Attributes
    ----------
    who
        Whose view it was.
    target
        What was attacked, in words: ``"each person's label"``.
    attack
        Its name.
    message
        The kind of message that it used.
    sequence
        How many messages: what several add to one is the difference to the finding with one.
    measure
        ``"AUC"``, ``"R²"`` or ``"share"``.
    value
        How well it did, on rows it was not told the answer of.
    floors
        How well the participant does without the messages, from its own columns: knowing the answer of 400 people, or
        of half of them.
    lift
        By how much the attack beats the better floor, on the same rows.
    control
        How well the same attack does where it must succeed.
    permuted
        How well it does against answers that were dealt to the wrong people: 0.5 of an AUC is nothing.
    """

    who: str
    target: str
    attack: str
    message: str
    sequence: int
    measure: str
    value: Estimate
    floors: Mapping[str, float]
    lift: Estimate
    control: float
    permuted: float

    @property
    def real(self) -> bool:
        """Whether the messages told more than the participant knew, beyond chance and by enough to matter."""
        return bool(self.lift.low > 0.0 and self.lift.value >= NEGLIGIBLE)

    @property
    def words(self) -> str:
        """The finding for a data-protection officer."""
        floor = max(self.floors.values(), default=0.0)
        whence = "without them" if self.attack in WITHOUT_COLUMNS else "from its own columns"
        before = f"{whence} it could guess with {self.measure} {_short(floor)}"
        if not self.real:
            return (
                f"{self.who} learns nothing beyond chance about {self.target} from {self.message!r}: {self.measure} "
                f"{_short(self.value.value)}; {before}."
            )
        seen = "one message" if self.sequence == 1 else f"{self.sequence} messages"
        if self.value.value >= SURE[self.measure]:
            return f"{self.who} can tell {self.target} with certainty from {seen} of {self.message!r}; {before}."
        return (
            f"{self.who} can guess {self.target} with {self.measure} {_short(self.value.value)} from {seen} of "
            f"{self.message!r}; {before}."
        )

    def plain(self) -> dict[str, Any]:
        told = asdict(self) | {"real": self.real, "words": self.words}
        return told | {name: getattr(self, name)._asdict() for name in ("value", "lift")}


@dataclass(frozen=True)
class Audit:
    """All that was found about a run.

    Attributes
    ----------
    split, protection
        Of the run.
    findings
        In the order of participants.
    remarks
        What the numbers do not say: what was not attacked, and why.
    """

    split: str
    protection: str
    findings: Sequence[Finding]
    remarks: Sequence[str] = field(default_factory=tuple)

    def by_participant(self) -> dict[str, list[Finding]]:
        found: dict[str, list[Finding]] = {}
        for one in self.findings:
            found.setdefault(one.who, []).append(one)
        return found

    @property
    def sentences(self) -> list[str]:
        """One for each participant and target: the attack that tells it most."""
        best: dict[tuple[str, str], Finding] = {}
        for one in self.findings:
            key = (one.who, one.target)
            if key not in best or _rank(one) > _rank(best[key]):
                best[key] = one
        return [one.words for one in best.values()]

    def plain(self) -> dict[str, Any]:
        """As `audit.json` holds it."""
        participants = {
            who: {
                "sentences": Audit(self.split, self.protection, found).sentences,
                "findings": [one.plain() for one in found],
            }
            for who, found in self.by_participant().items()
        }
        return {
            "version": VERSION,
            "split": self.split,
            "protection": self.protection,
            "participants": participants,
            "remarks": list(self.remarks),
        }

    def write(self, folder: Path) -> Path:
        """`audit.json` in a folder."""
        path = folder / FILE
        write_bytes(path, (json.dumps(self.plain(), ensure_ascii=False, indent=1) + "\n").encode())
        return path


def _rank(finding: Finding) -> tuple[bool, float]:
    return finding.real, finding.lift.value


def _short(value: float) -> str:
    return f"{value:.2f}".removeprefix("0") if 0 <= value < 0.995 else f"{value:.2f}"
