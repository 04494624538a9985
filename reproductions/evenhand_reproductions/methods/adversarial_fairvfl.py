"""The adversarial FairVFL of Qi et al., "FairVFL: A Fair Vertical Federated Learning Framework with Contrastive
Adversarial Learning", NeurIPS 2022 (arXiv 2206.03200). It shares its name, and nothing else, with solver ``"fairvfl"``.

Parties turn their columns into representations r_k of each row, which the server adds up to d. A head predicts the
label from d. For each sensitive attribute a mapper at the server turns d into a protected representation p, which goes
to the attribute's holder. There a discriminator predicts the attribute from p. In a round, on a batch of rows:

    1. Contrastive: a scorer learns to tell from p the row's own d from the d of another row with a similar p,
       L_c = −log softmax(s(p, d), s(p, d′)); the mapper takes a step up L_c, γ times as long.
    2. Fairness: discriminator and mapper take `adversary_steps` steps down L_a, the cross-entropy of the attribute.
    3. Task: head and parties take a step down  L_t − λ Σ_a L_a.

All steps are Adam's. d′ is drawn from the `similar` rows of the batch whose p have the largest cosine with the row's.

We had the paper's abstract and the authors' public code, not its equations; order and losses of the steps are those of
the code. What differs: scores of this library are sums over parties, so d is a sum (in the code a network over all r_k)
and the head is linear (in the code it has two hidden layers), and the task's loss weighs all rows alike (in the code
both classes weigh the same). Widths are smaller by default. The code stops at the epoch, of ten, in which an attacker
of d does worst on validation rows; here the number of rounds is fixed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Final

import numpy as np
import scipy.sparse as sp
from scipy.special import expit, softmax

from evenhand.arrays import Array, Integers, Matrix
from evenhand.constraints.evaluation import Point
from evenhand.constraints.groups import group_codes, groups_frame
from evenhand.errors import DataError, ProtocolError
from evenhand.protocol.disclosure import HOLDER_TO_SERVER, PARTY_TO_SERVER, SERVER_TO_PARTIES, Coverage, Direction
from evenhand.protocol.job import CheckedOptions, Count, NotNegative, Positive
from evenhand.protocol.messages import Field, Message, Schema, Vocabulary
from evenhand.protocol.roles import SERVER, Sends
from evenhand.protocol.solver import Solver
from evenhand.protocol.terms import VerticalTerms
from evenhand.vertical.messages import DERIVATIVE, GRADIENT_NORM, INTEGER, SCORES
from evenhand.vertical.problem import GradientParty, PartyData, ServerData
from evenhand.vertical.server import Server
from evenhand_reproductions.methods.perceptron import Perceptron

MOST_STEPS: Final = 7
"""Most steps of the adversaries in a round."""
REPRESENTATION = Schema(
    "representation",
    {"round": INTEGER, "values": Field("f8", ("batch", "width"))},
    direction=PARTY_TO_SERVER,
    reveals=(
        "The party's representation of each row of a batch. With linear parties it is a linear map of the party's "
        "columns, and with at least as many outputs as columns it tells them up to that map. Rows with equal columns "
        "have equal representations."
    ),
)
PROTECTED = Schema(
    "protected-representation",
    {"round": INTEGER, "turn": INTEGER, "values": Field("f8", ("batch", "protected"))},
    direction=Direction("server", "label holder"),
    reveals=(
        "A representation of each row of a batch for each sensitive attribute, made from the sum over all parties. It "
        "is trained to tell the attribute, and against telling rows apart. How much of other parties' columns it still "
        "tells is bounded by nothing but this training."
    ),
    most=(MOST_STEPS + 1, 0),
)
ADVERSARY = Schema(
    "adversary-gradient",
    {"round": INTEGER, "turn": INTEGER, "gradient": Field("f8", ("batch", "protected"))},
    direction=HOLDER_TO_SERVER,
    reveals=(
        "The gradient of each attribute's cross-entropy in the protected representation of each row of a batch. Rows "
        "of one group have gradients in the same directions, so that the receiver reads groups up to their names."
    ),
    coverage=Coverage(from_labels=True),
    most=(MOST_STEPS + 1, 0),
)
BATCH_GRADIENT = Schema(
    "batch-gradient",
    {"round": INTEGER, "last": INTEGER, "gradient": Field("f8", ("batch", "width")), "head": Field("f8", (None,))},
    direction=SERVER_TO_PARTIES,
    reveals=(
        "The gradient in the sum of representations of each row of a batch, to every party, and with the last one the "
        "head. Its part from the task is a multiple of the head, whose sign tells the label; its other part tells "
        "sensitive groups."
    ),
    coverage=Coverage(from_labels=True),
)
VOCABULARY = Vocabulary(
    REPRESENTATION,
    PROTECTED,
    ADVERSARY,
    BATCH_GRADIENT,
    SCORES,
    DERIVATIVE,
    GRADIENT_NORM,
    title="Vertical: adversarial FairVFL",
)


@dataclass(frozen=True)
class AdversarialFairVFL(CheckedOptions):
    """Options of the adversarial FairVFL. The authors' code has 256, 64, 64, 2, 10 and 1e-4 for the first six.

    Parameters
    ----------
    width, protected
        Length of a unified representation d, and of each protected one p.
    batch_size
        Rows of a round. Batches go through the rows in a new random order each time.
    adversary_steps
        Steps of discriminators and mappers in a round; at most 7.
    similar
        How many similar rows d′ is drawn from.
    step
        Of Adam, for all networks.
    adversary
        λ, the weight of the attributes' cross-entropy. The authors' code has 500 for sex and 60 for age; Adam divides
        gradients by their size, so that the task then hardly counts. Zero trains for the task alone.
    privacy
        γ.
    hidden
        Width of the hidden layer of mappers, and of both of scorers.
    """

    width: Count = 32
    protected: Count = 16
    batch_size: Count = 64
    adversary_steps: Count = 2
    similar: Count = 10
    step: Positive = 1e-3
    adversary: NotNegative = 1.0
    privacy: NotNegative = 0.1
    hidden: Count = 32

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.adversary_steps > MOST_STEPS:
            raise DataError(f"adversary_steps is {self.adversary_steps}; give at most {MOST_STEPS}")


class _Batches:
    """What all roles know of the batches: which rows each round is about, and the sizes of its arrays."""

    def __init__(self, terms: VerticalTerms) -> None:
        if not terms.groups:
            raise DataError(f"solver {terms.job.solver!r} needs sensitive attributes; give the label holder some")
        self.options = terms.job.settings(AdversarialFairVFL)
        self.seed, self.rows = terms.job.seed, terms.n_rows
        self.size = min(self.options.batch_size, terms.n_rows)
        self.attributes = tuple(terms.groups)
        self.sizes = {
            "batch": self.size,
            "width": self.options.width,
            "protected": self.options.protected * len(self.attributes),
        }

    def of_round(self, number: int) -> Integers:
        """Return the rows of round 1, 2, …; the last rows of an epoch that fill no batch wait for the next epoch."""
        epoch, place = divmod(number - 1, self.rows // self.size)
        order = np.random.default_rng([self.seed, 1, epoch]).permutation(self.rows)
        return np.sort(order[place * self.size : (place + 1) * self.size])

    def head(self) -> Array:
        """Return the head before training, which every party needs to begin from weights of an earlier run."""
        width = self.options.width
        found: Array = np.random.default_rng([self.seed, 2]).uniform(-1.0, 1.0, (width, 1)) / np.sqrt(width)
        return found

    def parts(self, values: Array) -> list[Array]:
        """Return each attribute's part of protected representations."""
        return np.split(values, len(self.attributes), axis=1)


def cross_entropy_slope(logits: Array, codes: Integers) -> Array:
    """Return the gradient of the mean cross-entropy in the logits."""
    found: Array = softmax(logits, axis=1)
    found[np.arange(len(codes)), codes] -= 1.0
    return found / len(codes)


def others(protected: Array, similar: int, rng: np.random.Generator) -> Integers:
    """Draw another row for each row, among those with the most similar protected representations."""
    unit = protected / np.sqrt((protected**2).sum(axis=1, keepdims=True) + 1e-6)
    cosine = unit @ unit.T
    np.fill_diagonal(cosine, -np.inf)
    count = min(similar, len(unit) - 1)
    nearest = np.argsort(-cosine, axis=1, kind="stable")[:, :count]
    found: Integers = nearest[np.arange(len(unit)), rng.integers(count, size=len(unit))]
    return found


class Attribute:
    """The server's networks for one sensitive attribute: its mapper, and the scorer that tells rows apart."""

    state_fields: ClassVar = {"mapper": Perceptron, "attacked": Perceptron, "scorer": Perceptron}

    def __init__(self, options: AdversarialFairVFL, seed: int, place: int) -> None:
        width, protected, hidden = options.width, options.protected, options.hidden
        self.mapper = Perceptron((width, hidden, protected), (seed, 3, place))
        # Adam's memory of the steps up L_c is its own; weights are the mapper's.
        self.attacked = Perceptron((width, hidden, protected), (seed, 3, place))
        self.scorer = Perceptron((protected + width, hidden, hidden, 1), (seed, 4, place))

    def contrast(self, unified: Array, options: AdversarialFairVFL, rng: np.random.Generator) -> None:
        """Take a step of the scorer down L_c, and one of the mapper up L_c."""
        if len(unified) < 2:
            return
        mapped = self.mapper.forward(unified)
        drawn = others(mapped[-1], options.similar, rng)
        gradient, _ = self._contrastive(mapped[-1], unified, unified[drawn])
        self.scorer.step(gradient, options.step)
        if options.privacy > 0.0:
            _, of_protected = self._contrastive(mapped[-1], unified, unified[drawn])
            of_mapper, _ = self.mapper.backward(mapped, of_protected)
            self.attacked.weights = self.mapper.weights
            self.attacked.step(-of_mapper, options.privacy * options.step)
            self.mapper.weights = self.attacked.weights

    def _contrastive(self, protected: Array, own: Array, other: Array) -> tuple[Array, Array]:
        """Return the gradients of L_c in the scorer's weights and in p."""
        mine = self.scorer.forward(np.hstack([protected, own]))
        theirs = self.scorer.forward(np.hstack([protected, other]))
        slope = expit(theirs[-1] - mine[-1]) / len(own)
        up, of_mine = self.scorer.backward(mine, -slope)
        down, of_theirs = self.scorer.backward(theirs, slope)
        return up + down, (of_mine + of_theirs)[:, : protected.shape[1]]


class AdversarialServer(Server):
    """Server: the head, and each attribute's mapper and scorer."""

    vocabulary = VOCABULARY
    state_fields: ClassVar = {
        "latest": Array,
        "told": dict[str, Array],
        "unified": Array,
        "turn": int,
        "head": Perceptron,
        "networks": list[Attribute],
    }

    def __init__(self, terms: VerticalTerms, own: ServerData) -> None:
        super().__init__(terms, own)
        self.batches = _Batches(terms)
        self.sizes = {**self.sizes, **self.batches.sizes}
        self.options = self.batches.options
        self.latest = np.zeros(terms.n_rows)
        self.told: dict[str, Array] = {}
        self.unified: Array = np.zeros((self.batches.size, self.options.width))
        self.turn = 0
        self.head = Perceptron((self.options.width, 1), (0,), intercepts=False)
        self.head.weights = self.batches.head().ravel()
        self.networks = [Attribute(self.options, terms.job.seed, place) for place in range(len(terms.groups))]

    @property
    def holder(self) -> str:
        """The label holder, which has the sensitive attributes."""
        return self.terms.active[0]

    def handle(self, message: Message) -> Sends:
        place = self.place(message)
        if message.kind == REPRESENTATION.kind and message.integer("round") == self.round + 1:
            self.told[message.sender] = message["values"]
            return self._contrast() if len(self.told) == len(self.parties) else ()
        if message.kind == ADVERSARY.kind and (message.integer("round"), message.integer("turn")) == self._asked:
            return self._adversary(message["gradient"])
        if message.kind == SCORES.kind and self.round == self.job.max_rounds:
            self.told[message.sender] = message["scores"]
            self.squared_norms[place] = message.number("squared_norm")
            return self._close() if len(self.told) == len(self.parties) else ()
        if message.kind == GRADIENT_NORM.kind and self.round == self.job.max_rounds:
            self.receive_gradient_norm(message, converged=False)
            return ()
        raise ProtocolError(f"the server takes no {message.kind!r} from {message.sender} at this point")

    @property
    def _asked(self) -> tuple[int, int]:
        return self.round + 1, self.turn

    def present(self) -> Point:
        return self.lagrangian.at(self.latest)

    def certify(self, point: Point, converged: bool) -> None:
        """Certify the fixed number of rounds: converged only if the gradient happens to be within the tolerance."""
        super().certify(point, bool(np.sqrt(self.squared_gradients.sum()) <= self.job.tol))

    def _sum(self) -> Array:
        total = np.zeros_like(self.told[self.parties[0]])
        for name in self.parties:
            total += self.told[name]
        self.told = {}
        return total

    def _contrast(self) -> Sends:
        """Steps 1 of the round, and the first protected representations."""
        self.unified, rows = self._sum(), self.batches.of_round(self.round + 1)
        scores = self.latest.copy()
        scores[rows] = self.unified @ self.head.weights
        self.latest = scores
        self._report()
        for place, one in enumerate(self.networks):
            one.contrast(self.unified, self.options, np.random.default_rng([self.job.seed, 5, self.round, place]))
        self.effort += float(len(rows) * sum(30 * one.scorer.weights.size for one in self.networks))
        self.turn = 0
        return self._ask()

    def _report(self) -> None:
        self.reports.append({"round": self.round, **self.row_report(self.present())})

    def _ask(self) -> Sends:
        values = np.hstack([one.mapper.forward(self.unified)[-1] for one in self.networks])
        return [PROTECTED.message(SERVER, self.holder, round=self.round + 1, turn=self.turn, values=values)]

    def _adversary(self, gradient: Array) -> Sends:
        """A step 2 of the round, or with the last answer step 3."""
        slopes, adversary = [], np.zeros_like(self.unified)
        for one, of_protected in zip(self.networks, self.batches.parts(gradient), strict=True):
            of_mapper, of_unified = one.mapper.backward(one.mapper.forward(self.unified), of_protected)
            slopes.append(of_mapper)
            adversary += of_unified
        self.turn += 1
        if self.turn <= self.options.adversary_steps:
            for one, slope in zip(self.networks, slopes, strict=True):
                one.mapper.step(slope, self.options.step)
            return self._ask()
        rows = self.batches.of_round(self.round + 1)
        labels = self.lagrangian.labels[rows]
        values = self.head.forward(self.unified)
        pull = -labels[:, None] * expit(-labels[:, None] * values[-1]) / len(rows)
        of_head, of_task = self.head.backward(values, pull)
        self.head.step(of_head, self.options.step)
        self.round += 1
        last = int(self.round >= self.job.max_rounds)
        body = {
            "round": self.round,
            "last": last,
            "gradient": of_task - self.options.adversary * adversary,
            "head": self.head.weights if last else np.zeros(0),
        }
        return BATCH_GRADIENT.messages(SERVER, self.parties, **body)

    def _close(self) -> Sends:
        """Ask for the norms of the gradients at the final scores."""
        self.latest = self._sum()
        self._report()
        nu = self.present().derivative(self.multipliers)
        return DERIVATIVE.messages(SERVER, self.parties, round=self.round, last=1, nu=nu, curvature=np.zeros(0))


class AdversarialParty(GradientParty):
    """A party with a local network. The label holder also has the discriminators of the sensitive attributes."""

    vocabulary = VOCABULARY
    state_fields: ClassVar = {"network": Perceptron, "discriminators": list[Perceptron]}

    def __init__(self, terms: VerticalTerms, name: str, own: PartyData) -> None:
        super().__init__(terms, name, own)
        self.batches = _Batches(terms)
        self.sizes = {**self.sizes, **self.batches.sizes}
        self.options = options = self.batches.options
        linear = terms.job.model == "linear"
        # The intercept of a linear model is the weight of a column of ones.
        self._ones = linear and self.model.weights.size > own.matrix.shape[1]
        self.inputs = dense = self._inputs_of(own.matrix)
        hidden = () if linear else terms.job.hidden
        place = terms.names.index(name)
        sizes = (dense.shape[1], *hidden, options.width)
        self.network = Perceptron(sizes, (terms.job.seed, 6, place), intercepts=not linear)
        if own.weights is None:
            self._fold(self.batches.head())
        else:
            self._begin_from(own.weights)
        self.codes: list[Integers] = []
        self.discriminators: list[Perceptron] = []
        if name == terms.active[0]:
            assert own.known is not None
            codes = group_codes(groups_frame(own.known.groups, terms.n_rows), terms.groups)
            self.codes = [codes[attribute] for attribute in self.batches.attributes]
            self.discriminators = [
                Perceptron((options.protected, len(terms.groups[attribute])), (terms.job.seed, 7, number))
                for number, attribute in enumerate(self.batches.attributes)
            ]

    def _inputs_of(self, matrix: Matrix) -> Array:
        dense = matrix.toarray() if sp.issparse(matrix) else np.asarray(matrix, dtype=np.float64)
        return np.column_stack([dense, np.ones(len(dense))]) if self._ones else dense

    def represent(self, matrix: Matrix) -> Array:
        """Return the party's representations of other rows."""
        found: Array = self.network.forward(self._inputs_of(matrix))[-1]
        return found

    def start(self) -> Sends:
        return [self._representation()]

    def handle(self, message: Message) -> Sends:
        if message.kind == PROTECTED.kind and self.discriminators:
            return [self._discriminate(message)]
        if message.kind == BATCH_GRADIENT.kind:
            return [self._descend(message)]
        if message.kind == DERIVATIVE.kind and message.integer("last"):
            return [self.gradient_norm(self.gradient_told(message))]
        raise ProtocolError(f"{self.name} takes no {message.kind!r} at this point")

    def _representation(self) -> Message:
        rows = self.batches.of_round(self.round + 1)
        self.effort += float(len(rows) * self.network.weights.size)
        values = self.network.forward(self.inputs[rows])[-1]
        return REPRESENTATION.message(self.name, SERVER, round=self.round + 1, values=values)

    def _descend(self, message: Message) -> Message:
        values = self.network.forward(self.inputs[self.batches.of_round(self.round + 1)])
        gradient, _ = self.network.backward(values, message["gradient"])
        self.effort += 3.0 * len(values[0]) * self.network.weights.size
        self.network.step(gradient, self.options.step)
        self.round = message.integer("round")
        if not message.integer("last"):
            return self._representation()
        self._fold(message["head"][:, None])
        body = {"scores": self.own_scores(), "squared_norm": self.model.squared_norm(), "squared_move": 0.0}
        return SCORES.message(self.name, SERVER, round=self.round, sequence=1, **body)

    def _fold(self, head: Array) -> None:
        """Set the party's model to its representation times the head."""
        *layers, last = self.network.layers
        self.model.weights = np.concatenate([*(layer.ravel() for layer in layers), (last @ head).ravel()])

    def _begin_from(self, weights: Array) -> None:
        """Set the network so that its representation times the first head is an earlier model."""
        head, *_, last = self.batches.head(), self.network.layers[-1]
        before, of_last = np.split(weights, [len(weights) - len(last)])
        moved = last + np.outer(of_last - (last @ head).ravel(), head.ravel()) / float((head**2).sum())
        self.network.weights = np.concatenate([before, moved.ravel()])
        self._fold(head)

    def _discriminate(self, message: Message) -> Message:
        """Answer with the gradients of L_a in p, and take a step of each discriminator, but for the last turn."""
        rows, turn, found = self.batches.of_round(message.integer("round")), message.integer("turn"), []
        parts = self.batches.parts(message["values"])
        for network, codes, part in zip(self.discriminators, self.codes, parts, strict=True):
            values = network.forward(part)
            of_weights, of_part = network.backward(values, cross_entropy_slope(values[-1], codes[rows]))
            found.append(of_part)
            if turn < self.options.adversary_steps:
                network.step(of_weights, self.options.step)
        body = {"round": message.integer("round"), "turn": turn, "gradient": np.hstack(found)}
        return ADVERSARY.message(self.name, SERVER, **body)


SOLVER = Solver(
    name="adversarial-fairvfl",
    split="vertical",
    options=AdversarialFairVFL,
    server=AdversarialServer,
    participant=AdversarialParty,
    vocabulary=VOCABULARY,
    models=("linear", "mlp"),
    runtimes=("messages",),
    takes_constraints=False,
    needs_groups=True,
    exact=False,
    fixed_rounds=True,
)
