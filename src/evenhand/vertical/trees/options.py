"""Options of fair boosted trees."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field

from evenhand.errors import InputError
from evenhand.models.growth import GrowthOptions
from evenhand.protocol.terms import VerticalTerms

FEWEST_ROWS = 60
"""Number of rows from which on models are cross-fitted."""

Interactions = Literal["none", "relay", "full", "auto"]


@dataclass(frozen=True)
class Trees(GrowthOptions):
    """Options of fair boosted trees, in addition to those of `GrowthOptions`.

    Parameters
    ----------
    trees
        Number of trees that each party grows in a round. More trees need fewer rounds, and overfit sooner.
    interactions
        ``"none"``: each tree uses the columns of one party, and the model has no interaction between columns of two.
        ``"relay"``: in every second step a party grows inside the few leaves of a small tree of another party, which
        takes two rounds. The party then learns that coarse partition. ``"full"``: trees cross parties and grow level by
        level, a round a level. Every party then learns in which node each row is. ``"auto"``: begins with parties' own
        trees, tries one that crosses them, and continues with the kind that lowers the held-out loss more a round.
    monotone
        Whether parties may have columns in which scores may only rise, or only fall (`PartyEncoder(monotone=...)`). The
        leaf values of such a party keep the proportions that LightGBM found, which respect the order. Only the factor
        of each tree is solved for. Requires ``interactions="none"``. Estimators and job files set it if a party names
        such columns; where each participant has its own file, set it in the job.
    folds
        Number of models, each fitted without one fold of the rows. Bounds are met at the scores of rows by the model
        that has not seen them, and new people get the average of all models. A party grows this many times `trees` in a
        round. 1 fits a single model, with bounds at leave-one-out scores, as do trees across parties, label privacy,
        ``exact_rates=False`` and bounds of zero.

    Notes
    -----
    A step of `patience` is a round of own trees, or a whole tree across parties. None means 3, or 8 where trees cross
    parties, because the first splits of an interaction gain nothing yet.
    """

    trees: Annotated[int, Field(ge=1, le=16)] = 1
    interactions: Interactions = "none"
    monotone: bool = False
    folds: Annotated[int, Field(ge=1, le=10)] = 5

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.monotone and self.interactions != "none":
            raise InputError("monotone needs interactions='none': trees across parties keep no order")

    def folds_of(self, terms: VerticalTerms) -> int:
        """Return the number of models that a run fits."""
        equal = any(row.lower == row.upper for row in terms.inequalities)
        single = self.interactions != "none" or terms.job.label_privacy is not None or not self.exact_rates or equal
        return 1 if single or terms.n_rows < FEWEST_ROWS else self.folds

    @property
    def steps_of_patience(self) -> int:
        return self.patience or (3 if self.interactions == "none" else 8)
