"""Settings of the subspace solver."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field

from evenhand.protocol.job import CheckedOptions
from evenhand.protocol.terms import VerticalTerms

STEPS_OF_ALL = 24
"""Past steps that are kept where those of all parties together are one column."""


@dataclass(frozen=True)
class Subspace(CheckedOptions):
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
    bands
        1 or 2: in how many parts a party offers its direction, cut in the middle of its curvature's spectrum. Two bring
        fewer rounds, and twice the upload. None is two where only sums arrive, which then tell more, and one otherwise.
    own_columns
        Whether all columns of the party that holds the labels enter the server's tiny problem (as far as they and the
        rows are few): fewer rounds, at no message but one. False where the server is with somebody else, who is not to
        see them.
    """

    history: Annotated[int, Field(ge=0, le=50)] | None = None
    exact_rates: bool | None = None
    bands: Literal[1, 2] | None = None
    own_columns: bool = True

    def bands_asked(self, terms: VerticalTerms) -> int:
        return self.bands or (2 if terms.only_sums else 1)

    def steps_kept(self, terms: VerticalTerms) -> int:
        """Steps remembered; where only sums arrive they are of all together, and cheap."""
        if self.history is not None:
            return self.history
        return STEPS_OF_ALL if terms.only_sums else min(16, max(2, 56 // len(terms.names) - 1))
