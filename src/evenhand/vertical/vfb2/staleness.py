"""How stale updates may be, how stale they were, and which are put aside so that none becomes too stale.

A step is *stale* by the number of updates that a party has made between scoring its rows and updating by its ϑ. The
paper assumes that this is bounded (VFB² Assumption 3); here it is made so.

**Who may run ahead.** The m active parties launch steps in turn: party a the steps a, a + m, a + 2m, ... It launches
its k-th when its own ϑ up to the (k − τ₁ − 1)-th are sent, and those of the other active parties that precede by more
than τ₂ rounds of launches have reached it. Links keep their order. Let ϑ of step t, launched by b, be still missing
at some party that has scored it. That party has then not been asked for b's step t + m(τ₁ + 1), so nobody has its ϑ,
and nobody has launched a step from t + m(τ₁ + τ₂ + 2) on. Conversely, when b launched t it had ϑ of all steps up to t
− m(τ₂ + 1), which the party had thus scored before t. So what the party scores between scoring t and hearing ϑ of t
are at most τ₁ steps of b, and τ₁ + 2τ₂ + 3 of each other active party.

**What is put aside.** Let D = τ₁ + (m − 1)(τ₁ + 2τ₂ + 3). An update is made only if all other steps that are scored
and not yet updated by can still be, one after the other in the order of scoring, without any being stale by more than
D; else it is put aside. The step scored first can always be updated by as soon as its ϑ is there, since the others
only move up. So while anything is put aside the one scored first is missing, all others were scored after it, and
there are at most D of them: a newly scored step, last in order, is stale by at most D when its turn comes, and
nothing ever has to be refused.

**No deadlock.** Scoring never waits. So every step that is launched gets its scores, and its ϑ is sent whether or not
the dominator may make its own update yet. The lowest step without ϑ may always be launched (all that precede it have
theirs), hence all steps are launched; and once all ϑ are there, all updates are made, in the order of scoring if in
no other.
"""

from __future__ import annotations

import numpy as np

from evenhand.arrays import Array
from evenhand.errors import ProtocolError
from evenhand.protocol.roles import State
from evenhand.vertical.vfb2.options import VFB2Options


def most_stale(options: VFB2Options, dominators: int) -> int:
    """D: how stale an update can be, in updates."""
    if options.pace == "synchronous":
        return 0
    return options.read_delay + (dominators - 1) * (options.read_delay + 2 * options.message_delay + 3)


class Staleness:
    """One party's record of what it has scored and not yet updated by.

    Scorings and updates count from when they are begun. Where several threads share a block, a scoring may miss what
    the others have begun and not finished: the most stale is then D and one for each further thread.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.staleness = np.zeros(limit + 1, dtype=np.int64)
        """How many updates were how stale, over the whole run."""
        self.made = 0
        """Updates made in this epoch."""
        self._scored: dict[int, int] = {}
        """Steps in the order of scoring, each with the updates that had been made by then."""
        self._aside: dict[int, Array] = {}

    def begin_epoch(self) -> None:
        self.made = 0

    def score(self, step: int) -> None:
        self._scored[step] = self.made

    def awaits(self, step: int) -> bool:
        """Whether the step has been scored and its ϑ has not come yet."""
        return step in self._scored and step not in self._aside

    def hear(self, step: int, theta: Array) -> None:
        if not self.awaits(step):
            raise ProtocolError(f"ϑ of step {step} is not expected; it is refused")
        self._aside[step] = theta

    def release(self) -> list[tuple[int, Array]]:
        """The updates that may be made now, in the order in which they are to be made."""
        released: list[tuple[int, Array]] = []
        while self._aside:
            found = next((step for step in self._scored if step in self._aside and self._may_be_made(step)), None)
            if found is None:
                break
            self.staleness[self.made - self._scored.pop(found)] += 1
            self.made += 1
            released.append((found, self._aside.pop(found)))
        return released

    def _may_be_made(self, step: int) -> bool:
        turn = self.made + 1
        for other, made_then in self._scored.items():
            if other != step:
                if turn > made_then + self.limit:
                    return False
                turn += 1
        return True

    def snapshot(self) -> State:
        return {
            "staleness": self.staleness.copy(),
            "made": self.made,
            "scored": [[step, made] for step, made in self._scored.items()],
            "aside": list(self._aside),
            **{f"theta {step}": theta.copy() for step, theta in self._aside.items()},
        }

    def restore(self, state: State) -> None:
        self.staleness = np.array(state["staleness"])
        self.made = int(state["made"])
        self._scored = dict(state["scored"])
        self._aside = {step: np.array(state[f"theta {step}"]) for step in state["aside"]}
