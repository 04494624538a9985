"""Findings of an audit: numbers for those who check them, sentences for those who answer for them."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final, TypeAlias

from matplotlib.figure import Figure

from evenhand.auditing.evidence import Estimate
from evenhand.runtime.files import write_bytes, write_figure

VERSION: Final = 1
"""Version of the schema of `audit.json`."""
FILE: Final = "audit.json"
PICTURE: Final = "audit.png"
SURE: Final = {"AUC": 0.995, "R²": 0.995, "share": 0.995}
_WITHOUT: Final = ("membership", "inversion", "peaks", "leverage", "subset sums", "counts")
WHENCE: Final = dict.fromkeys(_WITHOUT, "without them") | {
    "blind separation": "from its own columns and random combinations of messages"
}
"""What the floors of attacks are from, where it is not the attacker's own columns alone."""
NEGLIGIBLE: Final = 0.01
"""Smallest lift of an AUC or R² that matters in practice, even if more rows could prove a smaller one."""


Progress: TypeAlias = Callable[[str], None]
"""Called with what an audit does next."""


@dataclass(frozen=True)
class Finding:
    """One attack by one participant, or by several that collude.

    Attributes
    ----------
    who
        The attacker.
    target
        What was attacked, in words: ``"each person's label"``.
    message
        Kind of message that it used.
    sequence
        Number of messages. Compare with the finding for one message to see what more messages add.
    measure
        ``"AUC"``, ``"R²"`` or ``"share"``.
    value
        Result on rows for which the attacker does not know the answer.
    floors
        Result without messages, from the attacker's own columns, if it knows the answer for 400 people or for half. Of
        learners of trees, also the result with messages about other people.
    lift
        Value minus the better floor, on the same rows.
    permuted
        Result against permuted answers; an AUC of 0.5 is chance.
    attack
        Name of the attack.
    control
        Result of the same attack where it must succeed.
    """

    who: str
    target: str
    message: str
    sequence: int
    measure: str
    value: Estimate
    floors: Mapping[str, float]
    lift: Estimate
    permuted: float
    attack: str = ""
    control: float = 0.0

    @property
    def real(self) -> bool:
        """Return whether the messages add information, beyond chance and by enough to matter."""
        return bool(self.lift.low > 0.0 and (self.measure == "share" or self.lift.value >= NEGLIGIBLE))

    @property
    def words(self) -> str:
        """The finding as a sentence for a data-protection officer."""
        floor = max(self.floors.values(), default=0.0)
        whence = WHENCE.get(self.attack, "from its own columns")
        before = f"{whence} it could guess with {self.measure} {_short(floor)}"
        if not self.real:
            return (
                f"{self.who} learns nothing beyond chance about {self.target} from {self.message!r}: {self.measure} "
                f"{_short(self.value.value)}; {before}."
            )
        seen = "one message" if self.sequence == 1 else f"{self.sequence} messages"
        if self.value.value >= SURE[self.measure]:
            return f"{self.who} can infer {self.target} with certainty from {seen} of {self.message!r}; {before}."
        return (
            f"{self.who} can guess {self.target} with {self.measure} {_short(self.value.value)} from {seen} of "
            f"{self.message!r}; {before}."
        )

    def plain(self) -> dict[str, Any]:
        told = asdict(self) | {"real": self.real, "words": self.words}
        return told | {name: getattr(self, name)._asdict() for name in ("value", "lift")}


@dataclass(frozen=True)
class Audit:
    """All findings about a run.

    Attributes
    ----------
    split, protection
        Of the run.
    findings
        In the order of participants.
    remarks
        What else a reader must know.
    tried
        For each attack, the kinds of messages of the run that it read.
    untried
        Kinds of messages of the run that no attack read, and why.
    """

    split: str
    protection: str
    findings: Sequence[Finding]
    remarks: Sequence[str] = field(default_factory=tuple)
    tried: Mapping[str, Sequence[str]] = field(default_factory=dict)
    untried: Mapping[str, str] = field(default_factory=dict)

    def by_participant(self) -> dict[str, list[Finding]]:
        found: dict[str, list[Finding]] = {}
        for one in self.findings:
            found.setdefault(one.who, []).append(one)
        return found

    @property
    def sentences(self) -> list[str]:
        """One sentence for each participant and target: the strongest attack."""
        best: dict[tuple[str, str], Finding] = {}
        for one in self.findings:
            key = (one.who, one.target)
            if key not in best or _rank(one) > _rank(best[key]):
                best[key] = one
        return [one.words for one in best.values()]

    def plain(self) -> dict[str, Any]:
        """Return the content of `audit.json`."""
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
            "tried": {name: list(kinds) for name, kinds in self.tried.items()},
            "untried": dict(self.untried),
        }

    def write(self, folder: Path) -> Path:
        """Write `audit.json` to a folder."""
        path = folder / FILE
        write_bytes(path, (json.dumps(self.plain(), ensure_ascii=False, indent=1) + "\n").encode())
        return path


def _rank(finding: Finding) -> tuple[bool, float, int]:
    """Order findings about one target: the best value comes last, and of equal ones that with the fewest messages."""
    return finding.real, round(finding.value.value, 3), -finding.sequence


def _short(value: float) -> str:
    return f"{value:.2f}".removeprefix("0") if 0 <= value < 0.995 else f"{value:.2f}"


def draw_audit(audit: Audit, path: Path) -> None:
    """Draw a line for each finding: the best floor as a ring, the attack as a dot with its interval."""
    shown = list(audit.findings)
    figure = Figure(figsize=(8.5, 1.2 + 0.24 * max(len(shown), 4)), layout="constrained")
    axes = figure.subplots()
    for place, one in enumerate(reversed(shown)):
        colour = "tab:red" if one.real else "tab:gray"
        axes.plot([one.value.low, one.value.high], [place, place], color=colour, linewidth=2)
        axes.plot(one.value.value, place, marker="o", markersize=5, color=colour)
        axes.plot(
            max(one.floors.values(), default=0.0), place, marker="o", markersize=7, color="black", fillstyle="none"
        )
    axes.set_yticks(range(len(shown)), [_line(one) for one in reversed(shown)], fontsize=7)
    axes.set_xlim(0.0, 1.02)
    axes.set_xlabel("AUC (0.5 is chance), R² or share; ring: without the messages, dot: with them")
    axes.set_title(f"What was given away (protection: {audit.protection})", loc="left")
    axes.grid(alpha=0.3)
    write_figure(path, figure)


def _line(one: Finding) -> str:
    return f"{one.who}: {one.target} ({one.attack}, {one.measure}, {one.sequence})"
