"""What ε can be stated of each client after a run, from what the transcript shows it to have sent."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from evenhand.errors import EvenhandError
from evenhand.horizontal.averaging.messages import FAIRNESS, TILT, UPDATE
from evenhand.horizontal.masked import messages as masked
from evenhand.privacy.accounting import PrivacyStatement, privacy_statement
from evenhand.protocol.transcript import Transcript
from evenhand.solvers.announcing import schemas

LEARNED_COLUMNS = "means, deviations and levels of columns"
LEARNED_GROUPS = "which groups occur"
MEASURED = "what models do on its rows"
_ADVICE = "; how columns are encoded and which groups there are can be agreed beforehand, with encoder and groups"


@dataclass(frozen=True)
class NoStatement:
    """No ε is stated for a client.

    Attributes
    ----------
    reason
        Why not, and what to change.
    """

    reason: str
    epsilon: None = None

    @property
    def words(self) -> str:
        return f"No ε can be stated: {self.reason}."

    def as_dict(self) -> dict[str, Any]:
        return {"epsilon": None, "reason": self.reason, "words": self.words}


Privacy: TypeAlias = Mapping[str, PrivacyStatement | NoStatement]
"""By client: a statement, or why there is none."""


def client_privacy(
    clients: Sequence[str],
    protect: Any,
    transcript: Transcript,
    delta: float,
    *,
    learned: Sequence[str] = (),
    secret_noise: bool = False,
) -> Privacy:
    """A statement for each client, or the reason why there is none.

    Parameters
    ----------
    protect
        What protected the updates: one mechanism for all, or by client.
    learned
        Names of what was learned from the clients' rows before the first round and is not covered by any noise.
    secret_noise
        Whether each client's noise comes from a secret of its own. In one process it comes from the job's seed, so that
        runs can be repeated, and statements say that they are those of a simulation.
    """
    sent: dict[str, dict[str, int]] = {name: {} for name in clients}
    # Masked answers do not say of which kind they are; whoever was told this was asked to measure models.
    measuring = {entry.receiver for entry in transcript if entry.kind in (TILT.kind, FAIRNESS.kind)}
    for entry in transcript:
        if entry.sender in sent:
            sent[entry.sender][entry.kind] = sent[entry.sender].get(entry.kind, 0) + entry.messages
    found: dict[tuple[Any, ...], PrivacyStatement | NoStatement] = {}
    answers: dict[str, PrivacyStatement | NoStatement] = {}
    for name, kinds in sent.items():
        mechanism = protect.get(name) if isinstance(protect, Mapping) else protect
        uncovered = sorted(kind for kind in kinds if not schemas()[kind].coverage.noise_covers)
        others = (*learned, *(f"messages of kind {kind!r}" for kind in uncovered))
        if masked.MASKED.kind in kinds and name in measuring:
            others = (*others, MEASURED)
        rounds = kinds.get(masked.MASKED.kind, kinds.get(UPDATE.kind, 0))
        key = (id(mechanism), rounds, others)
        if key not in found:
            found[key] = _statement(mechanism, rounds, delta, others, secret_noise)
        answers[name] = found[key]
    return answers


def _statement(
    mechanism: Any, rounds: int, delta: float, others: tuple[str, ...], secret_noise: bool
) -> PrivacyStatement | NoStatement:
    try:
        return privacy_statement(mechanism, rounds, delta, unprotected=others, secret_noise=secret_noise)
    except EvenhandError as error:
        # A refusal, or dp-accounting is not installed: the run is done, and is worth keeping without a statement.
        agreed = any(name in others for name in (LEARNED_COLUMNS, LEARNED_GROUPS))
        return NoStatement(f"{error}{_ADVICE if agreed else ''}")
