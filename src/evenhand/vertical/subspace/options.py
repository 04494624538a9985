"""Settings of the subspace solver."""

from __future__ import annotations

from dataclasses import dataclass

from evenhand.errors import InputError


@dataclass(frozen=True)
class SubspaceOptions:
    """Settings of the subspace solver.

    Parameters
    ----------
    history
        How many of its last steps each party and the server keep. More means fewer rounds on correlated columns, and
        columns of n numbers at the server. None keeps 2 to 16, so that there are about 56 columns in all.
    exact_rates
        Whether the bounds of measures ``"error"`` and ``"positive"`` are met by the exact rates of the training rows.
        None: wherever lower and upper bound differ, since counts cannot be equal to the last digit. False keeps them
        by the smooth rates only, which end on their bounds while the exact ones may be far beyond.
    """

    history: int | None = None
    exact_rates: bool | None = None

    def __post_init__(self) -> None:
        if self.history is not None and not 0 <= self.history <= 50:
            raise InputError(f"history is {self.history}; it must be between 0 and 50")

    def steps_kept(self, parties: int) -> int:
        return self.history if self.history is not None else min(16, max(2, 56 // parties - 1))
