"""Messages of boosted trees, and what each of them reveals.

Sizes: `rows` is the number of aligned rows n, and `packed` the number of bytes with a bit for each row. `trees` is the
number of trees that a party grows in a round, and `leaves` the maximum number of leaves of a tree.
"""

from __future__ import annotations

from evenhand.protocol.disclosure import PARTY_TO_SERVER, SERVER_TO_PARTIES, Coverage, Direction
from evenhand.protocol.messages import Field, Schema, Vocabulary
from evenhand.vertical.messages import INTEGER, NUMBER

SHORT_PER_ROW = Field("f2", ("rows",))

DERIVATIVES = Schema(
    "derivatives",
    {
        "round": INTEGER,
        "across": INTEGER,
        "gradient": SHORT_PER_ROW,
        "curvature": SHORT_PER_ROW,
        "gradient_unit": NUMBER,
        "curvature_unit": NUMBER,
    },
    direction=SERVER_TO_PARTIES,
    reveals=(
        "First and second derivative of the Lagrangian in every row's score, to every party, in units that use the "
        "range of two bytes; and whether whole trees are wanted, or a split or cells for one that crosses parties. The "
        "sign of the first derivative is the opposite of the label, both together give the whole score, and the tilt "
        "of the slices gives away the sensitive group: this message discloses labels and groups, as ν of the other "
        "solvers does."
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
        "For each of the party's new trees, which rows share a leaf: a partition of the rows into a few sets. Neither "
        "columns nor thresholds are named, but rows in one leaf have similar values in the columns that the tree asks, "
        "and the leaves of many trees together say ever more closely which rows are alike. Of a party with monotone "
        "columns also which proportions its leaves are to keep, which follow from the derivatives; else zeros."
    ),
)

NODES = Schema(
    "nodes",
    {"round": INTEGER, "count": INTEGER, "nodes": Field("u1", ("rows",))},
    direction=SERVER_TO_PARTIES,
    reveals=(
        "Of a tree that crosses parties, in which of its present nodes each row is. Every party so learns a partition "
        "of the rows that the columns of all parties have made, and where it made none of the splits itself, that of "
        "the others."
    ),
    coverage=Coverage(from_labels=True),
)

OFFER = Schema(
    "split-offer",
    {"round": INTEGER, "gains": Field("f8", ("leaves",)), "right": Field("u1", ("packed",))},
    direction=PARTY_TO_SERVER,
    reveals=(
        "For each present node of a tree that crosses parties, what the party's best split gains, and which rows it "
        "sends right: one bit a row, whether the split is taken or not. Neither column nor threshold is named."
    ),
)

CELLS = Schema(
    "cells",
    {"round": INTEGER, "count": INTEGER, "cells": Field("u1", ("rows",))},
    direction=PARTY_TO_SERVER,
    reveals="Which of at most four cells each row is in: the leaves of a small tree on the party's own columns.",
)

RELAY = Schema(
    "relay",
    {"round": INTEGER, "count": INTEGER, "cells": Field("u1", ("rows",))},
    direction=SERVER_TO_PARTIES,
    reveals=(
        "In which of at most four cells of another party's each row is: a coarse partition by columns that are not the "
        "receiver's, whose name is not told."
    ),
    coverage=Coverage(from_labels=True),
)

RELAYED = Schema(
    "relayed",
    {"round": INTEGER, "leaves": Field("u1", ("rows",)), "counts": Field("i8", (None,))},
    direction=PARTY_TO_SERVER,
    reveals=(
        "In each of these cells, which rows share a leaf of the party's tree there. As with leaves, rows in one are "
        "alike in the columns that the tree asks."
    ),
)

LEAF_VALUES = Schema(
    "leaf-values",
    {"values": Field("f8", (None, "leaves")), "intercept": NUMBER, "splits": Field("i8", (None,))},
    direction=SERVER_TO_PARTIES,
    reveals=(
        "The values of the leaves of the party's own trees that are kept, of the first active party the intercept, and "
        "which of the splits that the party offered were taken: the party's own part of the model. With the rows in "
        "each leaf, which the party knows, the values say how the labels of those rows differ from the average."
    ),
    coverage=Coverage(from_labels=True),
)

ROUTES = Schema(
    "routes",
    {"sizes": Field("i8", (None,)), "nodes": Field("i8", (None, 4)), "values": Field("f8", (None,))},
    direction=Direction("server", "label holder"),
    reveals=(
        "To the first active party, which holds the labels: how the splits of all parties hang together in trees that "
        "cross them, and the values of those trees' leaves."
    ),
    coverage=Coverage(from_labels=True),
)

VOCABULARY = Vocabulary(
    DERIVATIVES, LEAVES, NODES, OFFER, CELLS, RELAY, RELAYED, LEAF_VALUES, ROUTES, title="Vertical: boosted trees"
)


def packed_size(rows: int) -> int:
    """Return the number of bytes that hold a bit for each row."""
    return (rows + 7) // 8
