"""Messages of boosted trees, and what each of them reveals.

Sizes: `rows` is the number of aligned rows n, and `packed` the number of bytes with a bit for each row. `folds` is the
number of models, `trees` the number of trees that a party grows in a round for all of them, and `leaves` the maximum
number of leaves of a tree.
"""

from __future__ import annotations

from evenhand.protocol.disclosure import PARTY_TO_SERVER, SERVER_TO_PARTIES, Coverage, Direction
from evenhand.protocol.messages import Field, Schema, Vocabulary
from evenhand.vertical.messages import INTEGER, NUMBER

SHORT_BY_FOLD = Field("f2", ("folds", "rows"))

DERIVATIVES = Schema(
    "derivatives",
    {
        "round": INTEGER,
        "across": INTEGER,
        "rows_a_leaf": INTEGER,
        "gradient": SHORT_BY_FOLD,
        "curvature": SHORT_BY_FOLD,
        "gradient_unit": NUMBER,
        "curvature_unit": NUMBER,
    },
    direction=SERVER_TO_PARTIES,
    reveals=(
        "First and second derivative of the Lagrangian with respect to every row's score, to every party, "
        "scaled to two bytes, for each model of a cross-fitting, with zeros for the fold that it is fitted without; "
        "the fewest rows of a leaf, which follows from the size of the smallest slice of a constraint; "
        "and whether whole trees are requested, or a split or relay leaves for a tree that "
        "crosses parties. The sign of the first derivative is the opposite of the label, both together give "
        "the whole score, and the tilt of the slices reveals the sensitive group. This message discloses "
        "labels and groups, as ν of the other solvers does."
    ),
    coverage=Coverage(from_labels=True),
)

LEAVES = Schema(
    "leaves",
    {
        "round": INTEGER,
        "leaves": Field("u1", ("rows", "trees")),
        "counts": Field("i8", ("trees",)),
        "proportions": Field("f8", ("trees", "leaves")),
    },
    direction=PARTY_TO_SERVER,
    reveals=(
        "For each of the party's new trees, which rows share a leaf: a partition of the rows into a few sets. "
        "Neither columns nor thresholds are named. But rows in one leaf have similar values in the columns "
        "that the tree splits on, and the leaves of many trees reveal more and more closely which rows are "
        "alike. For a party with monotone columns also the proportions of its leaf values, which follow from "
        "the derivatives; otherwise zeros."
    ),
)

NODES = Schema(
    "nodes",
    {"round": INTEGER, "count": INTEGER, "nodes": Field("u1", ("rows",))},
    direction=SERVER_TO_PARTIES,
    reveals=(
        "The present node of each row in a tree that crosses parties. Every party learns a partition of the "
        "rows by all parties' columns; if it made none of the splits, by the columns of the others."
    ),
    coverage=Coverage(from_labels=True),
)

OFFER = Schema(
    "split-offer",
    {"round": INTEGER, "gains": Field("f8", ("leaves",)), "right": Field("u1", ("packed",))},
    direction=PARTY_TO_SERVER,
    reveals=(
        "For each present node of a tree that crosses parties, the gain of the party's best split, and the "
        "rows that it sends right: one bit a row, whether the split is taken or not. Neither column nor "
        "threshold is named."
    ),
)

RELAY_LEAVES = Schema(
    "relay-leaves",
    {"round": INTEGER, "count": INTEGER, "relay_leaves": Field("u1", ("rows",))},
    direction=PARTY_TO_SERVER,
    reveals="Which of at most four relay leaves each row is in: the leaves of a small tree on the party's own columns.",
)

RELAY = Schema(
    "relay",
    {"round": INTEGER, "count": INTEGER, "relay_leaves": Field("u1", ("rows",))},
    direction=SERVER_TO_PARTIES,
    reveals=(
        "Which of at most four relay leaves of another party each row is in: a coarse partition by columns of a "
        "party that is not named."
    ),
    coverage=Coverage(from_labels=True),
)

RELAYED = Schema(
    "relayed",
    {"round": INTEGER, "leaves": Field("u1", ("rows",)), "counts": Field("i8", (None,))},
    direction=PARTY_TO_SERVER,
    reveals=(
        "For each of these relay leaves, which rows share a leaf of the party's tree there. As with leaves, rows in "
        "one leaf are alike in the columns that the tree splits on."
    ),
)

LEAF_VALUES = Schema(
    "leaf-values",
    {"values": Field("f8", (None, "leaves")), "intercept": NUMBER, "splits": Field("i8", (None,))},
    direction=SERVER_TO_PARTIES,
    reveals=(
        "The party's own part of the model: the values of its kept leaves, the intercept for the first active "
        "party, and which of the offered splits were taken. The party knows the rows of each leaf, so the "
        "values reveal how the labels of those rows differ from the average."
    ),
    coverage=Coverage(from_labels=True),
)

ROUTES = Schema(
    "routes",
    {"sizes": Field("i8", (None,)), "nodes": Field("i8", (None, 4)), "values": Field("f8", (None,))},
    direction=Direction("server", "label holder"),
    reveals=(
        "To the first active party, which holds the labels: the structure of trees that cross parties, and "
        "the values of their leaves."
    ),
    coverage=Coverage(from_labels=True),
)

VOCABULARY = Vocabulary(
    DERIVATIVES,
    LEAVES,
    NODES,
    OFFER,
    RELAY_LEAVES,
    RELAY,
    RELAYED,
    LEAF_VALUES,
    ROUTES,
    title="Vertical: boosted trees",
)


def packed_size(rows: int) -> int:
    """Return the number of bytes that hold a bit for each row."""
    return (rows + 7) // 8
