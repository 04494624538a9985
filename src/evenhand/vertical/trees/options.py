"""Options of fair boosted trees."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field

from evenhand.errors import InputError
from evenhand.models.growth import GrowthOptions, Leaves
from evenhand.protocol.terms import VerticalTerms

LEAVES = ((4_000, 4), (16_000, 8))
"""Most rows for which trees have so few leaves."""
MOST = 16
"""Leaves of a tree with more rows, and of one that crosses parties."""
Interactions = Literal["none", "relay", "full", "auto"]


@dataclass(frozen=True)
class Trees(GrowthOptions):
    """Options of fair boosted trees, in addition to those of `GrowthOptions`.

    Parameters
    ----------
    leaves
        Maximum number of leaves of a tree, at most 256. None is 4 up to 4,000 rows, 8 up to 16,000, and else 16, as
        with `interactions`: on small tables trees with more leaves rank new rows worse.
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

    Notes
    -----
    Trees across parties and label privacy fit a single model, whatever `folds` is.

    A step of `patience` is a round of own trees, or a whole tree across parties. None means 3, or 8 where trees cross
    parties, because the first splits of an interaction gain nothing yet.
    """

    leaves: Leaves | None = None
    trees: Annotated[int, Field(ge=1, le=16)] = 1
    interactions: Interactions = "none"
    monotone: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.monotone and self.interactions != "none":
            raise InputError("monotone needs interactions='none': trees across parties keep no order")

    def leaves_of(self, rows: int) -> int:
        """Return the maximum number of leaves of a tree in a run with so many rows."""
        if self.leaves is not None:
            return self.leaves
        fewer = (leaves for most, leaves in LEAVES if rows <= most and self.interactions == "none")
        return next(fewer, MOST)

    def folds_of(self, terms: VerticalTerms) -> int:
        """Return the number of models that a run fits."""
        single = self.interactions != "none" or terms.job.label_privacy is not None
        return 1 if single else self.models_of(terms.n_rows, terms.inequalities)

    @property
    def steps_of_patience(self) -> int:
        return self.patience or (3 if self.interactions == "none" else 8)
