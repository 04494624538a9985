"""What the roles of boosted trees across clients say to each other, and what each message reveals.

Sizes: `columns` is that of features, `bins` that of the bins of all columns, `leaves` the most leaves of a tree,
`constraints` the number of constraint rows, `parts` that of their slices, `slots` that of leaf, cell and step of the
grid of scores. Whatever clients say are sums of whole numbers over their rows; only sums over clients are used.
"""

from __future__ import annotations

from evenhand.horizontal.trees.binning import CELLS, FULLEST, PARTS
from evenhand.models.binned_trees import MOST_BINS, SIDES
from evenhand.protocol.disclosure import CLIENT_TO_SERVER, SERVER_TO_CLIENTS
from evenhand.protocol.messages import Adds, Field, Schema, Vocabulary

INTEGER = Field("i8")
ONLY_SUMS = " Only the sum over clients is used, so it can be masked."
SUMMED = Adds(alike=("round",))

COUNT = Schema(
    "trees count",
    {"round": INTEGER},
    direction=SERVER_TO_CLIENTS,
    reveals="Nothing: it asks how many values are where.",
)

COUNTED = Schema(
    "trees counted",
    {
        "round": INTEGER,
        "cells": Field("i8", ("columns", CELLS)),
        "codes": Field("i8", ("columns",)),
        "labels": Field("i8", (2,)),
    },
    direction=CLIENT_TO_SERVER,
    reveals=(
        "How many of the client's values of each column are in each of 4,096 cells of the line, which columns hold "
        "codes of categories, and how many rows have which label." + ONLY_SUMS
    ),
    adds=SUMMED,
)

REFINE = Schema(
    "trees refine",
    {"round": INTEGER, "cells": Field("i8", ("columns", FULLEST))},
    direction=SERVER_TO_CLIENTS,
    reveals="Of each column the cells in which everybody together has most values.",
)

REFINED = Schema(
    "trees refined",
    {"round": INTEGER, "parts": Field("i8", ("columns", FULLEST, PARTS))},
    direction=CLIENT_TO_SERVER,
    reveals="How many of the client's values are in each of 256 parts of these cells." + ONLY_SUMS,
    adds=SUMMED,
)

EDGES = Schema(
    "trees edges",
    {
        "round": INTEGER,
        "counts": Field("i8", ("columns",)),
        "edges": Field("f4", ("columns", MOST_BINS - 1)),
        "intercept": Field("f8"),
    },
    direction=SERVER_TO_CLIENTS,
    reveals="Where columns are cut into bins, about the quantiles of everybody's values, and the share of labels.",
)

ROOT = Schema(
    "trees root",
    {
        "round": INTEGER,
        "sums": Field("i8", (1, "bins", 3)),
        "losses": Field("i8", (3,)),
        "blank": INTEGER,
        "exact": Field("i8", (2, "parts")),
        "smooth": Field("i8", ("parts",)),
    },
    direction=CLIENT_TO_SERVER,
    reveals=(
        "Sums of first and second derivatives over the client's rows, and numbers of rows, by bin of each column; how "
        "the present model does on them: the loss, and how many of each slice it errs on or selects." + ONLY_SUMS
    ),
    adds=SUMMED,
)

SPLITS = Schema(
    "trees splits",
    {
        "round": INTEGER,
        "nodes": Field("i8", (None,)),
        "columns": Field("i8", (None,)),
        "sides": Field("u1", (None, SIDES // 8)),
        "asked": Field("i8", (None,)),
    },
    direction=SERVER_TO_CLIENTS,
    reveals="How nodes of the tree that is being grown are split, which is part of the model.",
)

HISTOGRAMS = Schema(
    "trees histograms",
    {"round": INTEGER, "sums": Field("i8", (None, "bins", 3))},
    direction=CLIENT_TO_SERVER,
    reveals=(
        "For some nodes of the tree that is being grown: sums of derivatives over the client's rows, and numbers of "
        "rows, by bin of each column. In nodes with few rows they come close to the rows themselves." + ONLY_SUMS
    ),
    adds=SUMMED,
)

LEAF_SUMS = Schema(
    "trees leaf sums",
    {"round": INTEGER, "sums": Field("i8", ("slots", 3))},
    direction=CLIENT_TO_SERVER,
    reveals=(
        "How many of the client's rows are in each leaf, by label and group and by the step of the score they have so "
        "far (a sixty-fourth where decisions are near), and the sums of their scores." + ONLY_SUMS
    ),
    adds=SUMMED,
)

VALUES = Schema(
    "trees values",
    {
        "round": INTEGER,
        "values": Field("f8", ("leaves",)),
        "responses": Field("f8", ("leaves",)),
        "multipliers": Field("f8", (2, "constraints")),
    },
    direction=SERVER_TO_CLIENTS,
    reveals="Values of the new leaves, which are part of the model, how they answer, and multipliers of all rows.",
)

FINISH = Schema(
    "trees finish",
    {"trees": INTEGER},
    direction=SERVER_TO_CLIENTS,
    reveals="How many of the trees, which clients have, are the model.",
)

VOCABULARY = Vocabulary(
    COUNT,
    COUNTED,
    REFINE,
    REFINED,
    EDGES,
    ROOT,
    SPLITS,
    HISTOGRAMS,
    LEAF_SUMS,
    VALUES,
    FINISH,
    title="Horizontal: boosted trees",
)
