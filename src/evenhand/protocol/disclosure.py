"""Direction of a kind of message, and the protections that cover it.

Schemas declare both where they are defined. Notices to participants, privacy statements, audits and the documentation
read them from there.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

SENT_AS_IT_IS: Final = "as it is"
NOT_SENT: Final = "–"
Level = Literal["none", "masked", "dealer", "encrypted"]


@dataclass(frozen=True)
class Direction:
    """From which part to which part a message goes.

    Each end is "server", "client", "party", "active party", "passive party", "label holder" (the first active party),
    "dealer" or "participant" (anyone but the server), or two of them joined by " or ".
    """

    sender: str
    receiver: str

    def __str__(self) -> str:
        return f"{self.sender} → {self.receiver}"

    @property
    def is_between_clients(self) -> bool:
        """Whether clients, and no parties, send or receive it."""
        return "client" in (self.sender, self.receiver)

    def leaves(self, name: str, participants: Mapping[str, str]) -> bool:
        """Return whether a participant may send it."""
        return _is_part(self.sender, name, participants)

    def reaches(self, name: str, participants: Mapping[str, str]) -> bool:
        """Return whether a participant may receive it."""
        return _is_part(self.receiver, name, participants)

    def allows(self, sender: str, receiver: str, participants: Mapping[str, str]) -> bool:
        """Return whether a message between these two goes this way; `participants` are those of the terms."""
        return self.leaves(sender, participants) and self.reaches(receiver, participants)


def _is_part(part: str, name: str, participants: Mapping[str, str]) -> bool:
    own = participants.get(name)
    holder = next((one for one, other in participants.items() if other == "active"), None)
    known = {
        "server": name == "server",
        "client": own == "client",
        "party": own in ("active", "passive"),
        "active party": own == "active",
        "passive party": own == "passive",
        "label holder": name == holder,
        "dealer": own == "dealer",
        "participant": own is not None,
    }
    return any(known[one] for one in part.split(" or "))


PARTY_TO_SERVER: Final = Direction("party", "server")
SERVER_TO_PARTIES: Final = Direction("server", "party")
PARTY_TO_PARTY: Final = Direction("party", "party")
HOLDER_TO_SERVER: Final = Direction("label holder", "server")
CLIENT_TO_SERVER: Final = Direction("client", "server")
SERVER_TO_CLIENTS: Final = Direction("server", "client")
PARTICIPANT_TO_SERVER: Final = Direction("participant", "server")
SERVER_TO_PARTICIPANTS: Final = Direction("server", "participant")


@dataclass(frozen=True)
class Coverage:
    """Which protections cover a kind of message.

    Attributes
    ----------
    from_labels
        It follows from labels. With label privacy it follows from randomised responses, and tells no more than they do.
    noise_covers
        The noise that a client adds to its updates covers it, or it says nothing about rows that the privacy statement
        does not name anyway.
    summed
        From "masked" on, the server learns its sum over the passive parties only. Messages that clients sum say so in
        `Schema.adds`.
    hides_nu
        It holds ν, one number a row. At "dealer" and "encrypted" a passive party gets a share of X_kᵀν in its
        place, which is uniform.
    """

    from_labels: bool = False
    noise_covers: bool = False
    summed: bool = False
    hides_nu: bool = False


UNCOVERED: Final = Coverage()
