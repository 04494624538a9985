"""A party of VFB²: it scores rows behind masks, and updates its own block by every ϑ (VFB² Algorithm 3).

The party waits only as `staleness` requires. It keeps sums that arrive early (`aggregation`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar, NamedTuple

import numpy as np

from evenhand.arrays import Array
from evenhand.errors import DivergenceError, ProtocolError
from evenhand.privacy.sum_trees import ROOT
from evenhand.protocol.messages import Expected, Message, Schema
from evenhand.protocol.roles import SERVER, Sends, Task
from evenhand.protocol.terms import VerticalTerms
from evenhand.vertical.messages import COMBINED_SCORES, WEIGHTED_DERIVATIVE
from evenhand.vertical.problem import GradientParty, PartyData, has_intercept
from evenhand.vertical.vfb2.aggregation import Aggregation, FullPass, MaskStream
from evenhand.vertical.vfb2.blocks import Block, BlockWork, Sums
from evenhand.vertical.vfb2.kernels import RULES, SAGA, WEIGHT, batch_scores, batch_update
from evenhand.vertical.vfb2.messages import (
    APPLIED,
    BEGIN,
    CHANCES,
    FULL_PASS,
    MASKED_SCORES,
    MASKED_TOTALS,
    NORMS,
    PROCEED,
    SCORE_REQUEST,
    STALENESS,
    THETA,
    VOCABULARY,
)
from evenhand.vertical.vfb2.plan import (
    ADDED,
    ASKED,
    HEARD,
    LAST_AT_KEPT,
    OF_NORMS,
    OF_SCORES,
    UNASKED,
    EpochSteps,
    RowSampler,
    VFB2Plan,
)
from evenhand.vertical.vfb2.staleness import Staleness

FROM_SERVER = {schema.kind for schema in (FULL_PASS, CHANCES, BEGIN, WEIGHTED_DERIVATIVE, COMBINED_SCORES, PROCEED)}
"""Kinds of messages that only the server sends. All others come from parties."""


class Taken(NamedTuple):
    """A kind of message that a party accepts: its senders, its schema and its handler."""

    senders: set[str]
    schema: Schema
    fields: list[Expected]
    handler: Callable[[Message], Task | Sends]


class VFB2Party(GradientParty):
    """Base class of active and passive parties. A handler returns a task if there is work to do."""

    vocabulary = VOCABULARY
    state_fields: ClassVar = {
        "_chances": Array,
        "_full_pass": FullPass,
        "_block": Block,
        "_references": Array,
        "_step": float,
        "_best": Array,
        "_masks": MaskStream,
        "_sums": Aggregation,
        "_staleness": Staleness,
        "_steps": EpochSteps,
    }

    def __init__(self, terms: VerticalTerms, name: str, own: PartyData) -> None:
        super().__init__(terms, name, own)
        self.plan = plan = VFB2Plan(terms)
        self.sizes = plan.sizes
        self.place = plan.names.index(name)
        self.others = tuple(other for other in plan.names if other != name)
        self._places = {other: place for place, other in enumerate(plan.names) if other != name}
        self._synchronous = plan.options.pace == "synchronous"
        self._moves = plan.moves(self.place)
        self._rule = RULES.index(plan.rule)
        self._block = Block(name, own.matrix, terms.regulariser, plan.options, has_intercept(terms, name))
        self._block.columns[:, WEIGHT] = self.model.weights
        self._block.sort_rows(plan.order)
        if own.session is None:
            raise ProtocolError(f"{name} has agreed on no keys; without them, others could read its scores")
        self._masks = MaskStream(own.session, terms.digest, plan.names)
        self._sums = Aggregation(self.place, len(plan.names), plan.active)
        self._full_pass = FullPass(name, plan, self._masks, self._sums)
        self._steps = EpochSteps(plan)
        self._staleness = Staleness(plan.options.delay)
        self._sampler: RowSampler | None = None
        self._weights: Array = np.zeros(0)
        """1 / (n p_i) of each row, in the order of the block."""
        self._references: Array = np.zeros(terms.n_rows if plan.rule != "sgd" else 0)
        self._step = 0.0
        self._best: Array = np.zeros(0)
        self._launching = False
        """Whether the party launches steps of its own. Only active parties do."""
        self._takes: dict[str, Taken] = {}
        self._take(FULL_PASS, self._begin_full_pass)
        self._take(MASKED_TOTALS, self._add_to_total)
        self._take(CHANCES, self._take_chances)
        self._take(BEGIN, self._begin_epoch)
        self._take(SCORE_REQUEST, self._take_request)
        self._take(MASKED_SCORES, self._add_to_scores)
        self._take(THETA, self._take_theta)

    def _take(self, schema: Schema, handler: Callable[[Message], Task | Sends]) -> None:
        """Accept messages of a kind. The expected fields are computed once, because messages are many."""
        senders = {SERVER} if schema.kind in FROM_SERVER else set(self._places)
        self._takes[schema.kind] = Taken(senders, schema, schema.expected(self.sizes), handler)

    # -- messages

    def begin(self, message: Message) -> Task | Sends:
        taken = self._checked(message)
        if message.sender != SERVER or message.kind == PROCEED.kind:
            # The steps of an epoch count the messages of other parties, and `proceed` asks for nothing.
            return taken.handler(message)
        self.check_limit(message)
        outcome = taken.handler(message)
        self.tally(message)
        return outcome

    def most_of(self, message: Message, max_rounds: int) -> int:
        """Return one message of each kind for each epoch, for the start and for the end."""
        return max_rounds + 2

    def check(self, message: Message) -> None:
        self._checked(message)

    def handle(self, message: Message) -> Task | Sends:
        return self._takes[message.kind].handler(message)

    def _checked(self, message: Message) -> Taken:
        """Refuse unexpected messages, and return how to handle the others."""
        taken = self._takes.get(message.kind)
        if taken is None:
            raise ProtocolError(f"{self.name} takes no {message.kind!r}; it is refused")
        if message.sender not in taken.senders:
            raise ProtocolError(f"{self.name} takes no {message.kind!r} of {message.sender!r}; it is refused")
        taken.schema.check_sized(message, taken.fields, self.sizes)
        return taken

    def finish(self, task: Task) -> Task | Sends:
        assert isinstance(task, BlockWork)
        self.effort += task.effort
        sends: list[Message] = []
        if task.updates:
            self._count_updates(task.updates, sends)
        answered = False
        for step, masks, sums in task.scored:
            self._steps.progress[step] = ADDED
            hidden = self._masks.agreed(sums, "scores", self.round, step)
            answered |= self._add(step, 0, self.place, hidden, sends)
            answered |= self._add(step, 1, self.place, masks, sends)
        # Scores alone trigger no work, unless a dominator waited for them.
        return self._turn(sends) if task.updates or answered else sends

    def _turn(self, sends: list[Message]) -> Task | Sends:
        """Return the work that is due after these messages: updates and scorings."""
        if self._launching:
            self._launch_what_may_be(sends)
        staleness = self._staleness
        # In SAGA the table and the mean gradient must change together, so updates must not overlap.
        alone = self._rule == SAGA and staleness.updating
        updates = [] if alone else staleness.release()
        steps = staleness.to_score()
        if updates or steps:
            scorings = [(step, self._masks.take(self.plan.batch_size)) for step in steps]
            return BlockWork(self.update, self.score, sends, updates, scorings)
        if self._full_pass.waits and staleness.updated == len(self._steps):
            sends += self._answer_full_pass()
        return sends

    def _count_updates(self, updates: Sequence[tuple[int, Array]], sends: list[Message]) -> None:
        for step, _ in updates:
            self._staleness.made(step)
        if self._synchronous:
            sends += [APPLIED.message(self.name, SERVER, round=self.round, step=step) for step, _ in updates]

    # -- arithmetic, on no state but the block's

    def update(self, step: int, theta: Array) -> float:
        if not self._moves:
            return 0.0
        block = self._block
        effort: float = batch_update(
            block.starts,
            block.indices,
            block.data,
            block.columns,
            block.regulariser,
            self._rule,
            self._step,
            self._steps.batches[step],
            self._weights,
            theta,
            self._references,
        )
        return effort

    def score(self, step: int, sums: Sums) -> float:
        """Add the scores of a step's rows to their masks."""
        block, rows = self._block, self._steps.batches[step]
        effort: float = batch_scores(
            block.starts, block.indices, block.data, block.columns, rows, self.plan.largest_score, sums
        )
        if effort < 0:
            raise self._divergence()
        return effort

    def _divergence(self) -> DivergenceError:
        return DivergenceError(
            f"{self.name}: scores grew beyond what can be masked in round {self.round}; the steps are too long. "
            "Scale the columns, or choose a smaller step"
        )

    # -- between epochs

    @property
    def _what(self) -> int:
        """What the present full pass sums: norms until the row probabilities are known."""
        return OF_NORMS if self._sampler is None else OF_SCORES

    def _begin_full_pass(self, message: Message) -> Task | Sends:
        self._full_pass.begin(message, self.round, self._what)
        return self._turn([])

    def _answer_full_pass(self) -> list[Message]:
        self.model.weights = self._block.weights.copy()
        values = np.empty(self._block.rows)
        values[self.plan.order] = self._block.squared_norms() if self._what == OF_NORMS else self._block.scores()
        self.effort += len(self._block.data)
        sends = self._full_pass.answer(values, self.round, self._what)
        if sends is None and self._what == OF_NORMS:
            raise DivergenceError(f"{self.name}: rows are too large for their norms to be masked; scale the columns")
        if sends is None:
            raise self._divergence()
        return sends

    def _add_to_total(self, message: Message) -> Sends:
        return self._full_pass.add(message, self.round, self._what)

    def _take_chances(self, message: Message) -> Sends:
        if self._sampler is not None or message["chances"].min() <= 0.0:
            raise ProtocolError(f"{self.name} takes positive row probabilities, and only once; these are refused")
        self._set_chances(message["chances"])
        return ()

    def _set_chances(self, chances: Array) -> None:
        self._sampler = RowSampler.with_chances(chances, self.plan.options.sampling, self.plan.seed)
        self._block.set_chances(chances[self.plan.order])
        self._weights = self._sampler.weights[self.plan.order]

    def _open(self, message: Message, nu: Array) -> Sends:
        """Send gradient norm and penalty at ν (in the block's order). Prepare the next epoch unless the run ends."""
        number, last = message.integer("round"), message.integer("last")
        # The last exchange concerns a round that is opened but has no epoch.
        if self._sampler is None or number != self.round + (not last):
            raise ProtocolError(f"{self.name} is in round {self.round} and cannot open this one; it is refused")
        if last == LAST_AT_KEPT:
            self._go_back()
        gradient = self._block.loss_gradient(nu)
        self.effort += len(self._block.data)
        sends: list[Message] = []
        if last:
            self.done = True
            sends.append(STALENESS.message(self.name, SERVER, staleness=self._staleness.staleness))
        squared, penalty = self._block.squared_gradient(gradient), self._block.penalty()
        body: dict[str, Any] = {"round": number, "squared_gradient": squared, "penalty": penalty}
        sends.append(NORMS.message(self.name, SERVER, **body))
        if not self.done:
            self.round, self._step = number, message.number("step")
            self._prepare(self._sampler, nu, gradient)
        return sends

    def _go_back(self) -> None:
        if not len(self._best):
            raise ProtocolError(f"{self.name} has kept no weights to return to; the message is refused")
        self.model.weights = self._best
        self._block.columns[:, WEIGHT] = self._best

    def _prepare(self, sampler: RowSampler, nu: Array, gradient: Array) -> None:
        if self.plan.options.renews_references(self.plan.rule, self.round):
            self._references = len(nu) * nu
            self._block.set_drift(gradient)
        self._block.set_step(self._step)
        self._steps.begin(sampler, self.round)
        self._staleness.begin_epoch()

    # -- during an epoch

    def _begin_epoch(self, message: Message) -> Task | Sends:
        """Start an epoch. All parties receive the message; only dominators launch steps."""
        if message.integer("round") != self.round:
            raise ProtocolError(f"{self.name} is in round {self.round} and cannot begin this one; it is refused")
        if message.integer("keep"):
            # Weights of the last full pass. The next one creates a new array.
            self._best = self.model.weights
        return ()

    def _take_request(self, message: Message) -> Task | Sends:
        step = self._steps.known(message.integer("request"))
        wrong = message.sender != self._steps.dominator_name(step) or self._steps.progress[step] != UNASKED
        if wrong or not self._steps.has_rows(step, message["rows"]):
            raise ProtocolError(f"{self.name} does not expect {message.sender} to ask for step {step}; it is refused")
        self._ask(step)
        return self._turn([])

    def _ask(self, step: int) -> None:
        self._steps.progress[step] = ASKED
        self._staleness.ask(step)

    def _add_to_scores(self, message: Message) -> Task | Sends:
        step = self._steps.known(message.integer("request"))
        if self._steps.progress[step] >= ADDED and not self._sums.expects(step):
            raise ProtocolError(f"{self.name} has all sums of step {step}; that of {message.sender} is refused")
        sends: list[Message] = []
        sender = self._places[message.sender]
        answered = self._add(step, message.integer("tree"), sender, message["sum"].view(np.uint64), sends)
        # Most of these messages only pass sums on, which triggers no work.
        return self._turn(sends) if answered else sends

    def _take_theta(self, message: Message) -> Task | Sends:
        step = self._steps.known(message.integer("request"))
        if message.sender != self._steps.dominator_name(step):
            raise ProtocolError(f"{message.sender} is not the dominator of step {step}; its ϑ is refused")
        self._hear(step, message["theta"])
        return self._turn([])

    def _hear(self, step: int, theta: Array) -> None:
        self._staleness.hear(step, theta)
        self._steps.progress[step] = HEARD

    def _add(self, step: int, tree: int, sender: int, values: Sums, sends: list[Message]) -> bool:
        """Add a sum for the rows of one step, from a child or the party itself; return whether ϑ is now known."""
        passed = self._sums.add(step, self._steps.dominator(step), tree, sender, values)
        if passed is None:
            return False
        parent, total = passed
        if parent == ROOT:
            self._send_theta(step, total, sends)
            return True
        receiver = self.plan.names[parent]
        sends.append(MASKED_SCORES.message(self.name, receiver, request=step, tree=tree, sum=total.view(np.int64)))
        return False

    def _launch_what_may_be(self, sends: list[Message]) -> None:
        raise ProtocolError(f"{self.name} is passive and launches nothing")

    def _send_theta(self, step: int, sums: Sums, sends: list[Message]) -> None:
        raise ProtocolError(f"{self.name} is passive and cannot compute ϑ")

    def to_others(self, schema: Schema, **values: Any) -> list[Message]:
        """Return the same message to every other party."""
        return schema.messages(self.name, self.others, **values)

    # -- state

    @property
    def _chances(self) -> Array:
        """Probability of each row to be drawn; empty before it is known."""
        return np.zeros(0) if self._sampler is None else self._sampler.chances

    @_chances.setter
    def _chances(self, chances: Array) -> None:
        self._sampler = None
        if len(chances):
            self._set_chances(chances)

    def restored(self) -> None:
        self._steps.redraw(self._sampler, self.round)


class VFB2PassiveParty(VFB2Party):
    """A party with columns only."""

    def __init__(self, terms: VerticalTerms, name: str, own: PartyData) -> None:
        super().__init__(terms, name, own)
        self._take(WEIGHTED_DERIVATIVE, self._take_nu)

    def _take_nu(self, message: Message) -> Sends:
        return self._open(message, message["nu"][self.plan.order])
