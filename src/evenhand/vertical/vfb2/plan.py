"""What all roles of a VFB² run derive from its terms: parties and rules, the rows of an epoch, and its steps.

All parties draw the same rows from a common seed, so that row numbers need not be agreed upon.
"""

from __future__ import annotations

from functools import cached_property
from typing import ClassVar, Literal

import numpy as np

from evenhand.arrays import Array, Integers
from evenhand.errors import ProtocolError
from evenhand.privacy.fixed_point import largest
from evenhand.protocol.terms import VerticalTerms
from evenhand.vertical.problem import message_sizes
from evenhand.vertical.vfb2.kernels import FRACTION_BITS
from evenhand.vertical.vfb2.options import METHODS, VFB2

RUN = 16
"""Length of a run: rows that are drawn in succession, always in the same random order, and stored together."""


class RowSampler:
    """Draws rows with probabilities p_i. A drawn row's gradient has the weight 1 / (n p_i), so its mean is unbiased.

    Parameters
    ----------
    squared_norms
        ‖x_i‖² over all parties' columns.
    sampling
        ``"balanced"``: p_i is half uniform, half proportional to ‖x_i‖², which bounds the row's curvature. An epoch
        goes through the rows in random order, row i about n p_i times, rounded up or down at random. ``"uniform"``:
        independent draws, p_i = 1/n.
    """

    def __init__(self, squared_norms: Array, sampling: Literal["balanced", "uniform"], seed: int) -> None:
        self.rows = len(squared_norms)
        self._balanced = sampling == "balanced"
        self._seed = seed
        self.chances: Array = np.full(self.rows, 1.0 / self.rows)
        total = float(squared_norms.sum())
        if self._balanced and total > 0:
            self.chances = 0.5 * self.chances + 0.5 * squared_norms / total
        self.weights: Array = 1.0 / (self.rows * self.chances)
        self.largest_norm = float((squared_norms * self.weights).max())
        """max ‖x_i‖² / (n p_i): the most that a single drawn row can contribute."""
        self.mean_norm = total / self.rows
        self.order: Integers = np.random.default_rng([seed, 0]).permutation(self.rows)
        """Rows in the order of the runs in which they are drawn."""

    @classmethod
    def with_chances(cls, chances: Array, sampling: Literal["balanced", "uniform"], seed: int) -> RowSampler:
        """Build the sampler of a party that receives the probabilities. Norms and their bounds are zero."""
        sampler = cls(np.zeros(len(chances)), sampling, seed)
        sampler.chances = chances
        sampler.weights = 1.0 / (sampler.rows * chances)
        return sampler

    def places(self, round_number: int, share: float = 1.0) -> Integers:
        """Return the epoch's rows, as indices into `order`."""
        rng = np.random.default_rng([self._seed, round_number])
        count = max(1, round(share * self.rows))
        if not self._balanced:
            return rng.integers(0, self.rows, count)
        runs = self._first_runs(rng.permutation(len(self._draws_of_runs)), count)
        places = (runs[:, None] * RUN + np.arange(RUN)).ravel()
        places = places[places < self.rows]
        # Systematic sampling: row i is drawn between ⌊n p_i⌋ and ⌈n p_i⌉ times, n p_i on average.
        passed = np.floor(np.cumsum(self._draws[places]) + rng.random())
        times = np.diff(passed, prepend=0.0).astype(np.int64)
        once = places[times > 0]
        # Repeated rows are spread over the epoch. Successive repeats would fit the blocks to that row.
        again = np.repeat(places, np.maximum(times - 1, 0))
        return np.insert(once, rng.integers(0, len(once) + 1, len(again)), again)[:count]

    @cached_property
    def _draws(self) -> Array:
        """n p_i of the rows, in the sampler's order."""
        return self.rows * self.chances[self.order]

    @cached_property
    def _draws_of_runs(self) -> Array:
        return np.add.reduceat(self._draws, np.arange(0, self.rows, RUN))

    def _first_runs(self, runs: Integers, count: int) -> Integers:
        """Return as many of the runs as `count` draws need, and one more for rounding. The others are skipped."""
        return runs[: int(np.searchsorted(np.cumsum(self._draws_of_runs[runs]), count)) + 2]


OF_NORMS, OF_SCORES = 0, 1
"""What a full pass sums."""
LAST, LAST_AT_KEPT = 1, 2
"""How a run ends: at the present weights, or at the weights that parties were last told to keep."""
NORM_BITS = 36
"""Fraction bits of squared norms. These may be far larger than scores, and need less precision."""


class VFB2Plan:
    """The parties and the rules of a run.

    Parameters
    ----------
    in_one_loop
        Whether one compiled loop does the work of all parties.

    Attributes
    ----------
    names
        All parties.
    active
        Indices of the parties that hold labels: the dominators.
    on_rates
        Whether a constraint bounds a rate rather than the loss.
    seed
        Seed of the drawn rows.
    sizes
        Sizes of the arrays in messages.
    """

    def __init__(self, terms: VerticalTerms, *, in_one_loop: bool = False) -> None:
        self.names = terms.names
        self.active = tuple(terms.names.index(name) for name in terms.active)
        self.rule, self._only_active_move = METHODS[terms.job.solver]
        self.on_rates = any(row.measure.is_rate for row in terms.inequalities)
        given = terms.job.settings(VFB2)
        self.options = given.resolved(self.rule, self.on_rates, len(self.active), in_one_loop=in_one_loop)
        self.batch_size = int(self.options.batch_size)
        self.seed = terms.job.seed
        self.rows = terms.n_rows
        self.sizes = {**message_sizes(terms), "batch": self.batch_size, "delays": self.options.delay + 1}

    def moves(self, place: int) -> bool:
        """Return whether a party's block is updated. AFSVRG-VP updates only those of parties that hold labels."""
        return place in self.active or not self._only_active_move

    @cached_property
    def order(self) -> Integers:
        """Rows in the order in which epochs go through them, a run at a time. Parties store them in this order."""
        return RowSampler.with_chances(np.full(self.rows, 1.0 / self.rows), self.options.sampling, self.seed).order

    @cached_property
    def largest_score(self) -> float:
        """Largest partial score that can be masked."""
        return largest(len(self.names), FRACTION_BITS)


UNASKED, ASKED, ADDED, HEARD = 0, 1, 2, 3
"""Progress of a step at a party: not requested, requested, added to the sum, ϑ received."""


class EpochSteps:
    """The steps of the present epoch. Before the first epoch there are none.

    Attributes
    ----------
    batches
        Rows of each step as indices into the party's block. −1 fills up the last.
    rows
        The same by row number, as in messages.
    progress
        Progress of each step.
    """

    state_fields: ClassVar = {"progress": bytearray}

    def __init__(self, plan: VFB2Plan) -> None:
        self._plan = plan
        self._dominators = [plan.names[place] for place in plan.active]
        self.batches: Integers = np.zeros((0, plan.batch_size), dtype=np.int64)
        self.rows = self.batches
        # A bytearray, because access to single entries is several times as fast as in an array.
        self.progress = bytearray()

    def __len__(self) -> int:
        return len(self.progress)

    def begin(self, sampler: RowSampler, round_number: int) -> None:
        self._draw(sampler, round_number)
        self.progress = bytearray(len(self.batches))

    def _draw(self, sampler: RowSampler, round_number: int) -> None:
        size = self._plan.batch_size
        places = sampler.places(round_number, self._plan.options.share_of_rows(round_number))
        self.batches = np.full((-(-len(places) // size), size), -1, dtype=np.int64)
        self.batches.ravel()[: len(places)] = places
        self.rows = np.where(self.batches >= 0, self._plan.order[self.batches], -1)

    def known(self, step: int) -> int:
        """Return the step if the epoch has it; raise otherwise."""
        if not 0 <= step < len(self.progress):
            raise ProtocolError(f"this epoch has {len(self)} steps, but a message names step {step}; it is refused")
        return step

    def has_rows(self, step: int, rows: Integers) -> bool:
        """Return whether a step has these rows, given as in messages."""
        return rows.tobytes() == self.rows[step].tobytes()

    def dominator(self, step: int) -> int:
        """Return the dominator of a step, as an index among the active parties, which launch steps in turn."""
        return step % len(self._dominators)

    def dominator_name(self, step: int) -> str:
        return self._dominators[step % len(self._dominators)]

    def redraw(self, sampler: RowSampler | None, round_number: int) -> None:
        """Draw the rows of a restored state again. They follow from the round."""
        self.batches = np.zeros((0, self._plan.batch_size), dtype=np.int64)
        self.rows = self.batches
        if sampler is not None and round_number > 0:
            self._draw(sampler, round_number)
