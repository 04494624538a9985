"""VFB² with the work of all parties done by the interleaver, as one role that can be reported, saved and resumed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

import numpy as np

from evenhand.arrays import Array, Integers
from evenhand.constraints.evaluation import Point
from evenhand.errors import DivergenceError, ProtocolError
from evenhand.privacy.fixed_point import largest
from evenhand.privacy.masks import mask_states
from evenhand.protocol.messages import Message
from evenhand.protocol.roles import Sends
from evenhand.protocol.terms import VerticalTerms
from evenhand.vertical.problem import PartyData, ServerData, has_intercept, own_model
from evenhand.vertical.server import CompiledRun
from evenhand.vertical.vfb2.blocks import REGULARISERS, Block, Sums, add_up_squares, column_shares
from evenhand.vertical.vfb2.epochs import EpochServer, stratum_tilts, theta_inputs
from evenhand.vertical.vfb2.interleaver import (
    Plan,
    all_scores,
    build_trees,
    loss_gradient,
    merge,
    row_ends,
    run_epoch,
    scores_and_gradient,
    share_columns,
)
from evenhand.vertical.vfb2.kernels import DRIFT, FRACTION_BITS, RARITY, RULES, WEIGHT
from evenhand.vertical.vfb2.messages import TrafficCounter
from evenhand.vertical.vfb2.plan import RowSampler, VFB2Plan


class CompiledVFB2(EpochServer, CompiledRun):
    """The server and all parties in one, in a process that has the data of all parties."""

    state_fields: ClassVar = {"_arrays": tuple[Array, Array, Sums], "_best": Array}

    def __init__(self, terms: VerticalTerms, own: ServerData, parties: Mapping[str, PartyData]) -> None:
        plan = VFB2Plan(terms, in_one_loop=True)
        super().__init__(terms, own, plan)
        columns_of = {name: parties[name] for name in terms.names}
        self.models = {name: own_model(terms, name, data) for name, data in columns_of.items()}
        blocks = [
            Block(name, data.matrix, self.regulariser, self.options, has_intercept(terms, name))
            for name, data in columns_of.items()
        ]
        columns = share_columns(blocks)
        if terms.warm:
            for block in blocks:
                block.columns[:, WEIGHT] = self.models[block.name].weights
        order = plan.order
        self._storage = merge(blocks, columns, order, np.array([plan.moves(place) for place in range(len(blocks))]))
        self._sampler = self._draw_by_norms(blocks, order)
        self._weights = self._sampler.weights[order]
        self._blocks = blocks
        self._gradient = np.zeros(len(self._storage.columns))
        self._scores: Array = np.zeros(len(order))
        self._best: Array = np.zeros(0)
        tables = len(blocks) if self.rule == "saga" else 1
        self._references: Array = np.zeros((len(order) if self.rule != "sgd" else 0, tables))
        self._trees = build_trees(len(blocks), list(plan.active))
        self._counter = TrafficCounter(self.parties, self.active, self._trees, plan.sizes)
        self._constrained = bool(terms.inequalities)
        self._limit = largest(1, FRACTION_BITS)
        # The generator after those of the parties' masks. Masks themselves are not drawn here.
        self._delays = mask_states(plan.seed, len(blocks) + 1)[-1:].copy()
        none = self.lagrangian.constraints.bounds.no_multipliers()
        self._theta_inputs = theta_inputs(self.lagrangian, none, order)

    def _draw_by_norms(self, blocks: Sequence[Block], order: Integers) -> RowSampler:
        """Set row probabilities by the rows' norms, and from them how rarely each block's columns are touched."""
        ends, norms = row_ends(self._storage), np.empty(len(order))
        add_up_squares(ends, self._storage.data, norms)
        unsorted = np.empty_like(norms)
        unsorted[order] = norms
        sampler = RowSampler(unsorted, self.options.sampling, self.plan.seed)
        shares = np.zeros(len(self._storage.columns))
        column_shares(ends, self._storage.indices, sampler.chances[order], shares)
        for place, block in enumerate(blocks):
            block.set_shares(shares[self._storage.blocks[place] : self._storage.blocks[place + 1]])
        return sampler

    def handle(self, message: Message) -> Sends:
        raise ProtocolError(
            f"{self.name} does the work of all parties and takes no messages; {message.kind!r} is refused"
        )

    def present(self) -> Point:
        if self._constrained:
            all_scores(self._storage, self._limit, self._scores)
        else:
            scores_and_gradient(self._storage, self._theta_inputs, self._limit, self._scores, self._gradient)
        self._refuse_divergence(not np.isnan(self._scores).any())
        scores = np.empty_like(self._scores)
        scores[self._sampler.order] = self._scores
        return self.lagrangian.at(scores)

    def work(self) -> Sends:
        """Do one full pass and, unless the run ends, one epoch."""
        if self.done:
            return ()
        point = self.present()
        self.traffic += [*([] if self.round else self._counter.opening), *self._counter.full_pass]
        self.open_round(point, self._sampler)
        self._take_gradients(point, self.weighting)
        if self.close_round(point):
            if self.goes_back():
                self._storage.columns[:, WEIGHT] = self._best
                point = self.lagrangian.at(self.best.scores)
            self._take_gradients(point, self.multipliers)
            self.traffic += self._counter.closing
            self.certify(point, converged=bool(self.gap <= self.job.tol))
            self._hand_over_weights()
        else:
            if self.best.is_present:
                # The old ones are released first: wide data leave no room for both.
                self._best = np.zeros(0)
                self._best = self._storage.columns[:, WEIGHT].copy()
            self.round += 1
            self._run_epoch(point)
        return ()

    def _hand_over_weights(self) -> None:
        """Copy the weights to the parties' models, after the gradient and the best weights have been released."""
        self._gradient = self._best = np.zeros(0)
        for block in self._blocks:
            self.models[block.name].weights = block.weights.copy()

    def _take_gradients(self, point: Point, multipliers: Array) -> None:
        """Compute each block's gradient at these multipliers, into `_gradient`, and its norm."""
        if self._constrained:
            loss_gradient(self._storage, point.derivative(multipliers)[self._sampler.order], self._gradient)
        self.effort += 2.0 * len(self._storage.data)
        start = 0
        for place, block in enumerate(self._blocks):
            part = self._gradient[start : start + len(block.columns)]
            self.squared_gradients[place] = block.squared_gradient(part)
            self.squared_norms[place] = block.penalty()
            start += len(block.columns)

    def _run_epoch(self, point: Point) -> None:
        columns = self._storage.columns
        if self.options.renews_references(self.rule, self.round):
            derivative = len(self._scores) * point.derivative(self.weighting)[self._sampler.order]
            self._references[:] = derivative[:, None]
            np.multiply(self._gradient, columns[:, RARITY], out=columns[:, DRIFT])
        for block in self._blocks:
            block.set_step(self.step)
        plan = Plan(
            RULES.index(self.rule),
            REGULARISERS[self.options.regulariser, self.options.update],
            self.step,
            self.batch_size,
            self.options.launch_ahead,
            self.options.delay - self.options.launch_ahead,
            self._limit,
        )
        places = self._sampler.places(self.round, self.options.share_of_rows(self.round))
        finite = run_epoch(
            self._storage,
            self._theta_inputs._replace(tilts=stratum_tilts(self.lagrangian, self.weighting)),
            self._trees.roots,
            plan,
            places,
            self._weights,
            self._references,
            self._delays,
            self.staleness,
        )
        self._refuse_divergence(finite)
        self.effort += 2.0 * len(self._storage.data) * len(places) / len(self._scores)
        self.traffic += self._counter.epoch(-(-len(places) // self.batch_size))

    def _refuse_divergence(self, finite: bool) -> None:
        if not finite:
            raise DivergenceError(
                f"scores grew beyond {self._limit:g} in round {self.round}; the steps are too long. "
                "Scale the columns, or choose a smaller step"
            )

    @property
    def _arrays(self) -> tuple[Array, Array, Sums]:
        """Arrays that the compiled loop changes in place."""
        return self._storage.columns, self._references, self._delays

    @_arrays.setter
    def _arrays(self, values: tuple[Array, Array, Sums]) -> None:
        for array, value in zip(self._arrays, values, strict=True):
            array[:] = value

    def restored(self) -> None:
        if self.done:
            self._hand_over_weights()
