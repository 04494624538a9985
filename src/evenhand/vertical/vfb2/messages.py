"""Messages of VFB², what each of them reveals, and how many an epoch takes.

Sizes: `rows` is the number of aligned rows n. `batch` is the maximum number of rows in one step; unused entries hold
row −1. `constraints` is the number of inequalities R. `delays` is one more than the maximum staleness of an
update.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from evenhand.protocol.disclosure import PARTY_TO_PARTY, PARTY_TO_SERVER, SERVER_TO_PARTIES, Direction
from evenhand.protocol.messages import Field, Schema, Vocabulary
from evenhand.protocol.roles import SERVER, Traffic
from evenhand.vertical.messages import COMBINED_SCORES, INTEGER, NUMBER, PER_ROW, WEIGHTED_DERIVATIVE

Link: TypeAlias = tuple[str, str, Schema]
MASKED_ROWS = Field("i8", ("rows",))
BATCH_ROWS = Field("i8", ("batch",))
BATCH = Field("f8", ("batch",))

FULL_PASS = Schema(
    "full-pass",
    {"round": INTEGER, "what": INTEGER},
    direction=SERVER_TO_PARTIES,
    reveals="That the server requests a sum over all rows: of squared norms (what = 0) or of scores (what = 1).",
)
MASKED_TOTALS = Schema(
    "masked-totals",
    {"round": INTEGER, "tree": INTEGER, "sum": MASKED_ROWS},
    direction=PARTY_TO_PARTY,
    reveals=(
        "For every row the sum over the sender's subtree, of partial scores plus masks (tree 0) or of masks "
        "alone (tree 1). Modulo 2⁶⁴ such a sum is uniform and reveals nothing by itself; no party sees both "
        "halves of any sum except the total, at the root. Sums of tree 0 also have "
        "masks that each two parties have agreed on (public-key): no group of parties learns more than the "
        "sum over all others."
    ),
)
TOTALS = Schema(
    "totals",
    {"round": INTEGER, "what": INTEGER, "total": PER_ROW},
    direction=Direction("active party", "server"),
    reveals="The sum over all parties for every row, of scores or of squared norms, from the root to the server.",
)
CHANCES = Schema(
    "chances",
    {"chances": PER_ROW},
    direction=SERVER_TO_PARTIES,
    reveals=(
        "The sampling frequency of each row, and with it (unless sampling is uniform) the norm of the row "
        "over all parties' columns."
    ),
)
NORMS = Schema(
    "norms",
    {"round": INTEGER, "squared_gradient": NUMBER, "penalty": NUMBER},
    direction=PARTY_TO_SERVER,
    reveals=("Two numbers: the distance of the party's weights from stationarity, and the value of its regulariser."),
)
BEGIN = Schema(
    "begin",
    {"round": INTEGER, "keep": INTEGER},
    direction=SERVER_TO_PARTIES,
    reveals=("That an epoch begins, and whether the model so far is the best one; the party then keeps its weights."),
)
SCORE_REQUEST = Schema(
    "score-request",
    {"request": INTEGER, "rows": BATCH_ROWS},
    direction=Direction("active party", "party"),
    reveals="The rows that an active party requests scores of; they follow from a seed that all parties know.",
)
MASKED_SCORES = Schema(
    "masked-scores",
    {"request": INTEGER, "tree": INTEGER, "sum": BATCH_ROWS},
    direction=PARTY_TO_PARTY,
    reveals=(
        "As masked-totals, for the rows of one step: uniform modulo 2⁶⁴. With two parties nothing is hidden: "
        "each computes the other's partial score by subtraction."
    ),
)
THETA = Schema(
    "theta",
    {"request": INTEGER, "theta": BATCH},
    direction=Direction("active party", "party"),
    reveals=(
        "ϑ, the derivative of the loss at the whole score, to every party, passive ones too. For the logistic "
        "loss its sign is the opposite of the label and its size gives wᵀx_i, which the masks had hidden; "
        "VFB² Theorem 7 claims otherwise. Under constraints the tilt of a row's weight reveals its group as "
        "well. A party that collects wᵀx_i for many w learns about the other parties' data."
    ),
)
FINISHED = Schema(
    "finished",
    {"round": INTEGER},
    direction=Direction("active party", "server"),
    reveals="That an active party has started all its steps of the epoch.",
)
APPLIED = Schema(
    "applied",
    {"round": INTEGER, "step": INTEGER},
    direction=PARTY_TO_SERVER,
    reveals="That a party has applied a step: only with synchronous pace.",
)
PROCEED = Schema(
    "proceed",
    {"round": INTEGER, "step": INTEGER},
    direction=SERVER_TO_PARTIES,
    reveals="That all parties have applied a step and the next may begin: only with synchronous pace.",
)
STALENESS = Schema(
    "staleness",
    {"staleness": Field("i8", ("delays",))},
    direction=PARTY_TO_SERVER,
    reveals="The distribution of the staleness of the party's updates, once, at the end.",
)

VOCABULARY = Vocabulary(
    FULL_PASS,
    MASKED_TOTALS,
    TOTALS,
    CHANCES,
    WEIGHTED_DERIVATIVE,
    COMBINED_SCORES,
    NORMS,
    BEGIN,
    SCORE_REQUEST,
    MASKED_SCORES,
    THETA,
    FINISHED,
    APPLIED,
    PROCEED,
    STALENESS,
    title="Vertical: VFB²",
)


class TrafficCounter:
    """Counts the messages and bytes of a full pass and an epoch, where one role does the work of all parties."""

    def __init__(self, parties: Sequence[str], active: frozenset[str], trees: Any, sizes: Mapping[str, int]) -> None:
        self._parties = parties
        self._trees = trees
        # A role that does the work of all parties knows the staleness of updates without a message.
        self._bytes = {schema: schema.nbytes(sizes) for schema in VOCABULARY if schema is not STALENESS}
        closing = self._messages_of_norms(active)
        self.closing = self._tally(closing)
        self.full_pass = self._tally(self._messages_of_a_full_pass(closing))
        chances: Counter[Link] = Counter({(SERVER, party, CHANCES): 1 for party in parties})
        self.opening = self._tally(self._messages_of_a_full_pass(chances))
        """Messages before the first round: a full pass over the rows' norms, and the resulting row probabilities."""

    def epoch(self, steps: int) -> list[Traffic]:
        """Return the messages of an epoch's steps, which the active parties launch in turn."""
        parties, roots = self._parties, self._trees.roots
        counts: Counter[Link] = Counter({(SERVER, party, BEGIN): 1 for party in parties})
        for place, root in enumerate(roots):
            launched = len(range(place, steps, len(roots)))
            for party in parties:
                if party != parties[root]:
                    counts[parties[root], party, SCORE_REQUEST] = launched
                    counts[parties[root], party, THETA] = launched
            self._up_the_trees(counts, place, MASKED_SCORES, launched)
            counts[parties[root], SERVER, FINISHED] = 1
        return self._tally(counts)

    def _messages_of_norms(self, active: frozenset[str]) -> Counter[Link]:
        counts: Counter[Link] = Counter()
        for party in self._parties:
            counts[SERVER, party, COMBINED_SCORES if party in active else WEIGHTED_DERIVATIVE] = 1
            counts[party, SERVER, NORMS] = 1
        return counts

    def _messages_of_a_full_pass(self, answers: Counter[Link]) -> Counter[Link]:
        counts = answers.copy()
        for party in self._parties:
            counts[SERVER, party, FULL_PASS] = 1
        self._up_the_trees(counts, 0, MASKED_TOTALS, 1)
        counts[self._parties[self._trees.roots[0]], SERVER, TOTALS] = 1
        return counts

    def _up_the_trees(self, counts: Counter[Link], place: int, schema: Schema, times: int) -> None:
        for tree in range(2):
            for child, parent in zip(self._trees.senders[place, tree], self._trees.receivers[place, tree], strict=True):
                counts[self._parties[child], self._parties[parent], schema] += times

    def _tally(self, counts: Counter[Link]) -> list[Traffic]:
        return [
            Traffic(sender, receiver, schema.kind, count, count * self._bytes[schema])
            for (sender, receiver, schema), count in counts.items()
            if count
        ]
