"""Messages of boosted trees across clients, and what each reveals.

Sizes: `columns` is the number of features, `bins` the bins of all columns, `leaves` the most leaves of a tree,
`constraints` the inequalities, `parts` their slices, `strata` the combinations of label and group, `slots` those of
leaf, stratum and step of the grid of scores. `folds` is the number of folds, and `models` that of models: as many, or
one. All answers of clients are sums of integers over their rows; only sums over clients are used.
"""

from __future__ import annotations

from evenhand.horizontal.trees.binning import COARSE_BINS, FULLEST, PARTS
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
    reveals="Nothing: a request to count values on a grid.",
)

COUNTED = Schema(
    "trees counted",
    {
        "round": INTEGER,
        "bins": Field("i8", ("columns", COARSE_BINS)),
        "codes": Field("i8", ("columns",)),
        "people": Field("i8", ("folds", "strata")),
    },
    direction=CLIENT_TO_SERVER,
    reveals=(
        "The number of the client's values of each column in each of 4,096 intervals, which columns are categorical, "
        "and the number of rows by fold, label and constrained group. A row's fold is a hash of its columns."
        + ONLY_SUMS
    ),
    adds=SUMMED,
)

REFINE = Schema(
    "trees refine",
    {"round": INTEGER, "bins": Field("i8", ("columns", FULLEST))},
    direction=SERVER_TO_CLIENTS,
    reveals="For each column, the grid intervals that contain most values of all clients together.",
)

REFINED = Schema(
    "trees refined",
    {"round": INTEGER, "parts": Field("i8", ("columns", FULLEST, PARTS))},
    direction=CLIENT_TO_SERVER,
    reveals="The number of the client's values in each of 256 parts of these intervals." + ONLY_SUMS,
    adds=SUMMED,
)

EDGES = Schema(
    "trees edges",
    {
        "round": INTEGER,
        "counts": Field("i8", ("columns",)),
        "edges": Field("f4", ("columns", MOST_BINS - 1)),
        "intercept": Field("f8"),
        "people": Field("i8", (None, "strata")),
    },
    direction=SERVER_TO_CLIENTS,
    reveals=(
        "The edges of each column's bins, which are close to the quantiles of all clients' values, the shares of "
        "labels, and for each model of a cross-fitting how many rows of all clients it sees, by label and group."
    ),
)

ROOT = Schema(
    "trees root",
    {
        "round": INTEGER,
        "sums": Field("i8", ("models", "bins", 3)),
        "losses": Field("i8", (3,)),
        "blank": INTEGER,
        "exact": Field("i8", (2, "parts")),
        "smooth": Field("i8", ("parts",)),
    },
    direction=CLIENT_TO_SERVER,
    reveals=(
        "For each model: sums of first and second derivatives over the client's rows outside its fold, and numbers of "
        "these rows, by bin of each column. For the current average of models: the loss, and the number of errors or "
        "positive decisions in each slice." + ONLY_SUMS
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
    reveals="The splits of the growing trees, which are part of the model.",
)

HISTOGRAMS = Schema(
    "trees histograms",
    {"round": INTEGER, "sums": Field("i8", (None, "bins", 3))},
    direction=CLIENT_TO_SERVER,
    reveals=(
        "For some nodes of the growing trees: sums of derivatives over the client's rows, and numbers of rows, by bin "
        "of each column. In nodes with few rows they come close to the rows themselves." + ONLY_SUMS
    ),
    adds=SUMMED,
)

LEAF_SUMS = Schema(
    "trees leaf sums",
    {"round": INTEGER, "sums": Field("i8", ("models", "slots", 4))},
    direction=CLIENT_TO_SERVER,
    reveals=(
        "For each model, the number of the client's rows in each leaf, by label, group and step of their current score "
        "(1/64 near the decision boundary), and the sums of their scores: of rows that it sees, and of those that are "
        "judged by it." + ONLY_SUMS
    ),
    adds=SUMMED,
)

VALUES = Schema(
    "trees values",
    {
        "round": INTEGER,
        "values": Field("f8", (None, "leaves")),
        "responses": Field("f8", (None, "leaves")),
        "multipliers": Field("f8", (None, 2, "constraints")),
    },
    direction=SERVER_TO_CLIENTS,
    reveals=(
        "For each model, the values of its new leaves, which are part of the final model, their responses (for a "
        "single model), and the multipliers of all constraints."
    ),
)

FINISH = Schema(
    "trees finish",
    {"trees": INTEGER},
    direction=SERVER_TO_CLIENTS,
    reveals="The number of trees that make up the model; clients have the trees.",
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
