"""Settings of fair boosted trees."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from evenhand.errors import InputError
from evenhand.models.growth import GrowthOptions, check_whole

Interactions = Literal["none", "relay", "full", "auto"]
INTERACTIONS: tuple[Interactions, ...] = ("none", "relay", "full", "auto")


@dataclass(frozen=True)
class TreesOptions(GrowthOptions):
    """Settings of fair boosted trees: those of `GrowthOptions`, and

    Parameters
    ----------
    trees
        Trees that each party grows in a round. More need fewer rounds, and overfit sooner.
    interactions
        ``"none"``: every tree is one party's, and the model knows no interaction between columns of two. ``"relay"``:
        every second step a party grows inside the few leaves of a small tree of another's, in two rounds; it then
        learns that coarse partition. ``"full"``:
        trees cross parties, grown level by level, a round a level; every party then learns in which node each row is.
        ``"auto"``: begins with parties' own trees, tries one that crosses them, and goes on with whichever lowers the
        leave-one-out loss more a round.

    Steps of `patience` are rounds of own trees, or whole trees across parties. None is 3, and 8 where trees cross
    parties: the first splits of an interaction gain nothing yet.
    """

    trees: int = 1
    interactions: Interactions = "none"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_whole("trees", self.trees, 1, 16)
        if self.interactions not in INTERACTIONS:
            raise InputError(
                f"interactions is {self.interactions!r}; choose one of {', '.join(map(repr, INTERACTIONS))}"
            )

    @property
    def steps_of_patience(self) -> int:
        return self.patience or (3 if self.interactions == "none" else 8)
