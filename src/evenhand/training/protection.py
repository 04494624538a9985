"""State the ε of each client after a run, from the messages that its transcript lists."""

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
LEARNED_LABELS = "which labels occur"
MEASURED = "what models do on its rows"
_ADVICE = "; clients can agree beforehand on a fitted encoder and on the values of groups (group_values in fit)"


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
"""Statement of each client by name, or the reason why there is none."""


def client_privacy(
    clients: Sequence[str],
    update_noise: Any,
    transcript: Transcript,
    delta: float,
    *,
    learned: Sequence[str] = (),
    secret_noise: bool = False,
) -> Privacy:
    """Return a privacy statement for each client, or the reason why there is none.

    A message of a kind that no vocabulary declares counts as unprotected.

    Parameters
    ----------
    update_noise
        Mechanism that protected the updates: one for all clients, or a mapping by client.
    learned
        Names of statistics that were learned from the clients' rows before the first round. No noise covers them.
    secret_noise
        Whether each client draws its noise from a secret of its own. In one process the noise comes from the job's
        seed, so that runs can be repeated. Statements then say that they describe a simulation.
    """
    known = schemas()
    sent: dict[str, dict[str, int]] = {name: {} for name in clients}
    # Masked answers do not show their kind. A client that received one of these was asked to measure models.
    measuring = {entry.receiver for entry in transcript if entry.kind in (TILT.kind, FAIRNESS.kind)}
    for entry in transcript:
        if entry.sender in sent:
            sent[entry.sender][entry.kind] = sent[entry.sender].get(entry.kind, 0) + entry.messages
    found: dict[tuple[Any, ...], PrivacyStatement | NoStatement] = {}
    answers: dict[str, PrivacyStatement | NoStatement] = {}
    for name, kinds in sent.items():
        mechanism = update_noise.get(name) if isinstance(update_noise, Mapping) else update_noise
        uncovered = sorted(kind for kind in kinds if kind not in known or not known[kind].coverage.noise_covers)
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
        # No statement is possible, or dp-accounting is not installed. The run is complete and valid without one.
        agreed = any(name in others for name in (LEARNED_COLUMNS, LEARNED_GROUPS, LEARNED_LABELS))
        return NoStatement(f"{error}{_ADVICE if agreed else ''}")
