"""Settings of fair boosted trees."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from pydantic import Field

from evenhand.errors import InputError
from evenhand.models.growth import GrowthOptions

Interactions = Literal["none", "relay", "full", "auto"]


@dataclass(frozen=True)
class Trees(GrowthOptions):
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

    monotone
        By a party's name, for each of its columns 1 where scores may only rise with it, −1 where they may only fall,
        0 where either is fine. Such a party's leaf values keep the proportions that LightGBM has found, which respect
        the order; how much of each tree is taken is solved for. Only without interactions.

    Steps of `patience` are rounds of own trees, or whole trees across parties. None is 3, and 8 where trees cross
    parties: the first splits of an interaction gain nothing yet.
    """

    trees: Annotated[int, Field(ge=1, le=16)] = 1
    interactions: Interactions = "none"
    monotone: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        super().__post_init__()
        if not all(map(_are_directions, self.monotone.values())):
            raise InputError(
                f"monotone is {self.monotone!r}; give by party one of 1, -1 and 0 for each column: {{'bank': [1, 0]}}"
            )
        if self.monotone and self.interactions != "none":
            raise InputError("monotone goes with interactions='none': splits of several parties know no order")

    @property
    def steps_of_patience(self) -> int:
        return self.patience or (3 if self.interactions == "none" else 8)


def _are_directions(given: Any) -> bool:
    return isinstance(given, (list, tuple)) and all(type(one) is int and -1 <= one <= 1 for one in given)
