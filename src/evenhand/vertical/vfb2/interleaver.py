"""All parties of VFB² in one compiled loop: deterministic, asynchronous within stated bounds, and fast.

In every tick the next active party launches a dominated step: each party scores the batch's rows with its present
weights. At most τ₁ ticks later the dominator has ϑ and updates its own block (VFB² Algorithm 2). At most τ₂ ticks after
that each collaborator has ϑ and updates its own block (VFB² Algorithm 3). The delay of each party is drawn anew every
tick. Blocks are therefore read in states that never existed together: the paper's ŵ and w̄. A party takes the steps in
the order of their launch, as `staleness` describes.

Nothing is masked here, and no message is built. Masks would cancel in the sums of the two trees. Those are added in the
same fixed point, so the results agree to the bit. Messages are counted as if they were sent. For real messages behind
masks use the roles (`party`): runtime "messages" or "threads".
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from evenhand.arrays import Array
from evenhand.privacy.compiled import decode_scalar, next_mask
from evenhand.privacy.sum_trees import two_trees
from evenhand.vertical.vfb2.blocks import Block
from evenhand.vertical.vfb2.kernels import (
    SAGA,
    SCALE,
    SVRG,
    compiled,
    dense_move,
    inlined,
    row_remember,
    row_score,
    row_update,
    theta,
)


class Storage(NamedTuple):
    """Blocks of all parties, with the parts of a row side by side.

    Part ℓ of row i is `starts[i, ℓ]` to `starts[i, ℓ + 1]`.
    """

    starts: Any
    indices: Any
    data: Any
    columns: Any
    blocks: Any
    """Entry ℓ is the first column of party ℓ, and the next entry its end."""
    moves: Any
    """Whether a party's block is updated."""


class ThetaInputs(NamedTuple):
    """What ϑ of a row depends on besides its score. Active parties know it: labels, and multipliers as weights."""

    loss: int
    labels: Any
    strata: Any
    tilts: Any
    measures: Any
    temperatures: Any


class AggregationTrees(NamedTuple):
    """For each dominator (an active party): its index, and senders and receivers in its two trees, children first."""

    roots: Any
    senders: Any
    receivers: Any


class Plan(NamedTuple):
    """Parameters of an epoch."""

    rule: int
    regulariser: int
    step: float
    batch_size: int
    read_delay: int
    message_delay: int
    limit: float
    """Largest score that fixed point can represent."""


def build_trees(parties: int, roots: list[int]) -> AggregationTrees:
    pairs = [two_trees(parties, root) for root in roots]
    senders = [[tree.order[:-1] for tree in pair] for pair in pairs]
    receivers = [[tree.parent[tree.order[:-1]] for tree in pair] for pair in pairs]
    return AggregationTrees(np.array(roots), np.array(senders, dtype=np.uint64), np.array(receivers, dtype=np.uint64))


def share_columns(blocks: list[Block]) -> Array:
    """Store the columns of all blocks in one array. Each block becomes a view of its part."""
    ends = np.cumsum([0, *(len(block.columns) for block in blocks)])
    columns = np.zeros((ends[-1], 4))
    for place, block in enumerate(blocks):
        block.columns = columns[ends[place] : ends[place + 1]]
    return columns


def merge(blocks: list[Block], columns: Array, order: Any, moves: Any) -> Storage:
    """Store the rows of all blocks together, in the given order. The blocks release theirs."""
    ends = np.cumsum([0, *(len(block.columns) for block in blocks)])
    starts = np.zeros((len(order), len(blocks) + 1), dtype=np.uint64)
    for place, block in enumerate(blocks):
        np.add(starts[:, place], np.diff(block.starts)[order], out=starts[:, place + 1])
    starts[1:] += np.cumsum(starts[:-1, -1])[:, None]
    indices = np.empty(starts[-1, -1], dtype=np.uint32)
    data = np.empty(starts[-1, -1])
    for place, block in enumerate(blocks):
        _copy(block.starts, block.indices, block.data, order, ends[place], starts[:, place], indices, data)
        block.give_up_rows()
    return Storage(starts, indices, data, columns, ends, moves)


def row_ends(storage: Storage) -> Any:
    """Return where each row begins and the last one ends, over all parties' parts."""
    return np.append(storage.starts[:, 0], storage.starts[-1:, -1])


@compiled
def _copy(
    starts: Any, indices: Any, data: Any, order: Any, first: int, targets: Any, all_indices: Any, all_data: Any
) -> None:
    for place in range(len(order)):
        target = targets[place]
        for source in range(starts[order[place]], starts[order[place] + 1]):
            all_indices[target] = first + indices[source]
            all_data[target] = data[source]
            target += np.uint64(1)


@inlined
def fixed_point_sum(indices: Any, data: Any, start: Any, stop: Any, columns: Any, limit: float) -> float:
    """Return a row's score as the sums of the trees give it, or NaN if it is too large to mask (VFB² Algorithm 1).

    Masks cancel modulo 2⁶⁴ in any order of addition. This loop sends no messages, so it draws no masks. The sum is the
    same to the bit.
    """
    total, size = row_score(indices, data, start, stop, columns)
    return decode_scalar(total, SCALE) if size <= limit else np.nan


@compiled
def all_scores(storage: Storage, limit: float, scores: Any) -> None:
    """Compute the score of every row, summed over all parties."""
    parties = len(storage.moves)
    starts, indices, data, columns = storage.starts, storage.indices, storage.data, storage.columns
    for row in range(len(scores)):
        scores[row] = fixed_point_sum(indices, data, starts[row, 0], starts[row, parties], columns, limit)


@compiled
def scores_and_gradient(storage: Storage, theta_inputs: ThetaInputs, limit: float, scores: Any, gradient: Any) -> None:
    """Compute scores and gradient in one pass. Without constraints ϑ depends on the row's own score alone."""
    starts, indices, data, columns = storage.starts, storage.indices, storage.data, storage.columns
    loss, labels, strata = theta_inputs.loss, theta_inputs.labels, theta_inputs.strata
    tilts, measures, temperatures = theta_inputs.tilts, theta_inputs.measures, theta_inputs.temperatures
    parties = len(storage.moves)
    gradient[:] = 0.0
    for row in range(len(scores)):
        start, stop = starts[row, 0], starts[row, parties]
        score = fixed_point_sum(indices, data, start, stop, columns, limit)
        scores[row] = score
        nu = theta(loss, score, labels[row], strata[row], tilts, measures, temperatures) / len(scores)
        for place in range(start, stop):
            gradient[indices[place]] += nu * data[place]


@compiled
def loss_gradient(storage: Storage, nu: Any, gradient: Any) -> None:
    """Compute Σ_i ν_i x_i in all columns."""
    gradient[:] = 0.0
    for row in range(len(nu)):
        for place in range(storage.starts[row, 0], storage.starts[row, -1]):
            gradient[storage.indices[place]] += nu[row] * storage.data[place]


@compiled
def run_epoch(
    storage: Storage,
    theta_inputs: ThetaInputs,
    roots: Any,
    plan: Plan,
    drawn: Any,
    weights: Any,
    references: Any,
    delays: Any,
    staleness: Any,
) -> bool:
    """Run one epoch; return False if a score became too large to be masked.

    `drawn` are the epoch's rows in order, `weights` the weights of all rows, `roots` the indices of the dominators, and
    `delays` the state of a generator.
    """
    # Arrays are taken from their tuples once. Inside the loop each access would change their reference counts.
    starts, indices, data, columns = storage.starts, storage.indices, storage.data, storage.columns
    blocks, moves = storage.blocks, storage.moves
    loss, labels, strata = theta_inputs.loss, theta_inputs.labels, theta_inputs.strata
    tilts, measures, temperatures = theta_inputs.tilts, theta_inputs.measures, theta_inputs.temperatures
    rule, regulariser, gamma, batch, limit = plan.rule, plan.regulariser, plan.step, plan.batch_size, plan.limit
    parties, dominators, count = len(moves), len(roots), len(drawn)
    steps = (count + batch - 1) // batch
    delay = plan.read_delay + plan.message_delay
    # Scores of the steps in flight, later replaced by ϑ. The number of slots is a power of two, so `&` is the
    # remainder.
    slots = 1
    while slots <= delay:
        slots *= 2
    last_slot = slots - 1
    values = np.zeros((slots, batch))
    launchers = np.zeros(slots, dtype=np.int64)
    turn = 0
    answered = 0
    taken = np.zeros(parties, dtype=np.int64)
    for tick in range(steps + delay):
        slot = tick & last_slot
        if tick < steps:
            launchers[slot] = roots[turn]
            turn = turn + 1 if turn + 1 < dominators else 0
            for party in range(parties):
                staleness[tick - taken[party]] += 1
            first = tick * batch
            for place in range(first, min(first + batch, count)):
                row = np.uint64(drawn[place])
                score = fixed_point_sum(indices, data, starts[row, 0], starts[row, parties], columns, limit)
                if np.isnan(score):
                    return False
                values[slot, place - first] = score
        chance = next_mask(delays, 0)
        # Compute ϑ of launched steps that are not delayed (VFB² Algorithm 2, step 4).
        reached = min(tick - _drawn_delay(chance, plan.read_delay), steps - 1)
        while answered <= reached:
            slot, first = answered & last_slot, answered * batch
            for place in range(first, min(first + batch, count)):
                row = np.uint64(drawn[place])
                value = theta(
                    loss, values[slot, place - first], labels[row], strata[row], tilts, measures, temperatures
                )
                if rule == SVRG:
                    value -= references[row, 0]
                # In SAGA every party has its own table of references, which is subtracted later.
                values[slot, place - first] = value if rule == SAGA else value * weights[row]
            answered += 1
        # Update the blocks by ϑ that has arrived. A dominator updates its own block at once.
        for party in range(parties):
            chance = chance >> np.uint64(8) if party & 7 != 7 else next_mask(delays, 0)
            due = max(answered - _drawn_delay(chance, plan.message_delay), tick + 1 - delay)
            step = taken[party]
            while step < answered and (step < due or launchers[step & last_slot] == party):
                slot, first = step & last_slot, step * batch
                step += 1
                if not moves[party]:
                    continue
                # VFB² Algorithm 3, steps 3 and 4.
                for place in range(first, min(first + batch, count)):
                    row = np.uint64(drawn[place])
                    start, stop = starts[row, party], starts[row, party + 1]
                    value = values[slot, place - first]
                    dense_move(columns, blocks[party], blocks[party + 1], regulariser, gamma)
                    if rule == SAGA:
                        change = value - references[row, party]
                        references[row, party] = value
                        row_update(indices, data, start, stop, columns, regulariser, gamma, change * weights[row])
                        row_remember(indices, data, start, stop, columns, change / len(references))
                    else:
                        row_update(indices, data, start, stop, columns, regulariser, gamma, value)
            taken[party] = step
    return True


@inlined
def _drawn_delay(chance: Any, bound: int) -> Any:
    """Return a delay of 0 to `bound` steps from the low byte of a random number."""
    return np.int64(((chance & np.uint64(255)) * np.uint64(bound + 1)) >> np.uint64(8))
