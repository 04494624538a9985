"""Options of the subspace solver."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field

from evenhand.protocol.job import CheckedOptions
from evenhand.protocol.terms import VerticalTerms

STEPS_OF_ALL = 24
"""Number of past steps kept where only sums over parties arrive, so that a step is one column for all parties."""


@dataclass(frozen=True)
class Subspace(CheckedOptions):
    """Options of the subspace solver.

    Parameters
    ----------
    history
        Number of last steps that each party and the server keep. More steps mean fewer rounds on correlated columns,
        and more columns of n numbers at the server. None keeps 2 to 16, so that there are about 56 columns in all.
    exact_rates
        Whether the exact rates of the training rows meet the bounds of measures ``"error"`` and ``"positive"``. None:
        wherever lower and upper bound differ, since counts cannot be equal to the last digit. False bounds only the
        smooth rates. These end on their bounds, while the exact rates may be far beyond.
    bands
        1 or 2: number of parts of a party's direction, cut in the middle of its curvature's spectrum. Two bring fewer
        rounds and twice the upload. None means two where only sums arrive, which then carry more, and one otherwise.
    own_columns
        Whether all columns of the label holder enter the server's tiny problem, if they and the rows are few. This
        saves rounds and costs one message. Set it to False if the server runs elsewhere and may not see the columns.
    """

    history: Annotated[int, Field(ge=0, le=50)] | None = None
    exact_rates: bool | None = None
    bands: Literal[1, 2] | None = None
    own_columns: bool = True

    def bands_asked(self, terms: VerticalTerms) -> int:
        return self.bands or (2 if terms.only_sums else 1)

    def steps_kept(self, terms: VerticalTerms) -> int:
        """Return the number of steps to keep. Where only sums arrive, a step of all parties is a single column."""
        if self.history is not None:
            return self.history
        return STEPS_OF_ALL if terms.only_sums else min(16, max(2, 56 // len(terms.names) - 1))
