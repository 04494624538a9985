"""What the roles of boosted trees say to each other, and what each message reveals.

Sizes: `rows` is the number of aligned rows n, `trees` the trees that a party grows in a round, `leaves` the most leaves
of a tree.
"""

from __future__ import annotations

from evenhand.protocol.messages import Field, Schema, Vocabulary
from evenhand.vertical.messages import INTEGER, NUMBER

SHORT_PER_ROW = Field("f2", ("rows",))

DERIVATIVES = Schema(
    "derivatives",
    {
        "round": INTEGER,
        "gradient": SHORT_PER_ROW,
        "curvature": SHORT_PER_ROW,
        "gradient_unit": NUMBER,
        "curvature_unit": NUMBER,
    },
    reveals=(
        "First and second derivative of the Lagrangian in every row's score, to every party, in units that use the "
        "range of two bytes. The sign of the first is the opposite of the label, both together give the whole score, "
        "and the tilt of the slices gives away the sensitive group: this message discloses labels and groups, as ν of "
        "the other solvers does."
    ),
)

LEAVES = Schema(
    "leaves",
    {"round": INTEGER, "leaves": Field("u1", ("rows", "trees")), "counts": Field("i8", ("trees",))},
    reveals=(
        "For each of the party's new trees, which rows share a leaf: a partition of the rows into a few sets. Neither "
        "columns nor thresholds are named, but rows in one leaf have similar values in the columns that the tree asks, "
        "and the leaves of many trees together say ever more closely which rows are alike."
    ),
)

LEAF_VALUES = Schema(
    "leaf-values",
    {"values": Field("f8", (None, "leaves")), "intercept": NUMBER},
    reveals=(
        "The values of the leaves of the party's own trees that are kept, and of the first active party the intercept: "
        "the party's own part of the model. With the rows in each leaf, which the party knows, they say how the labels "
        "of those rows differ from the average."
    ),
)

VOCABULARY = Vocabulary(DERIVATIVES, LEAVES, LEAF_VALUES)
