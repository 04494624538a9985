"""Messages of averaging solvers, and what each reveals.

Sizes: `weights` is the number of weights of the model, `statistics` the number of its running statistics (none without
batch normalisation), `multipliers` the number L of multipliers, `parts` the number P of slice means in the constraint
rows, `classes` and `groups` those of FairFed's rates.
"""

from __future__ import annotations

from evenhand.protocol.disclosure import CLIENT_TO_SERVER, SERVER_TO_CLIENTS, Coverage
from evenhand.protocol.messages import Adds, Field, Schema, Vocabulary

INTEGER = Field("i8")
NUMBER = Field("f8")
WEIGHTS = Field("f4", ("weights",))
STATISTICS = Field("f4", ("statistics",))
MULTIPLIERS = Field("f8", ("multipliers",))
PER_PART = Field("f8", ("parts",))

MODEL = Schema(
    "model",
    {"round": INTEGER, "weights": WEIGHTS, "statistics": STATISTICS, "multipliers": MULTIPLIERS},
    direction=SERVER_TO_CLIENTS,
    reveals=(
        "The model and the multipliers, to every client of the round. Both are averages over clients. With "
        "two clients, each can compute the other's update from its own."
    ),
)

UPDATE = Schema(
    "update",
    {
        "round": INTEGER,
        "rows": INTEGER,
        "weights": WEIGHTS,
        "statistics": STATISTICS,
        "multipliers": MULTIPLIERS,
    },
    direction=CLIENT_TO_SERVER,
    reveals=(
        "The change of the client's weights by local training, and its number of rows. The change is a sum of "
        "gradients of the client's rows: from few rows and few steps, rows can be reconstructed, labels "
        "first. The change of a multiplier is the client's own excess of a constraint times a known step; for "
        "an equality, the difference of its groups' mean losses. Zero usually means that the client has no "
        "rows of one of the groups. With noise on updates, weights, statistics and multipliers are noisy; the "
        "number of rows is not."
    ),
    adds=Adds(alike=("round",), means=("weights", "statistics", "multipliers"), weight="rows", even=("rows",)),
    coverage=Coverage(noise_covers=True),
)

SUMS = Schema(
    "sums",
    {
        "round": INTEGER,
        "rows": INTEGER,
        "loss": NUMBER,
        "sums": PER_PART,
        "exact": PER_PART,
        "counts": PER_PART,
    },
    direction=CLIENT_TO_SERVER,
    reveals=(
        "The received model's loss on the client's rows. For each slice of the constraints also the number of "
        "rows, the sum of their measure, and the number of exact errors or positive decisions. Only sums over "
        "clients are used, for the history and the certificate. A run without reports does not send it."
    ),
    adds=Adds(alike=("round",), even=("rows",)),
)

RATES = Schema(
    "rates",
    {
        "round": INTEGER,
        "rows": INTEGER,
        "correct": INTEGER,
        "group_rows": Field("i8", ("groups",)),
        "selected": Field("i8", ("classes", "groups")),
        "class_rows": Field("i8", ("classes", "groups")),
        "hits": Field("i8", ("classes", "groups")),
    },
    direction=CLIENT_TO_SERVER,
    reveals=(
        "FairFed: the number of rows of each group, by class, and how many of them the received model assigns "
        "to each class, and how many correctly. These are the client's group sizes, base rates, local "
        "fairness and accuracy. (The authors of FairFed propose secure sums for the global rate; the weights "
        "still need each client's own rates.)"
    ),
    adds=Adds(alike=("round",), even=("rows",)),
)

FAIRNESS = Schema(
    "fairness",
    {
        "round": INTEGER,
        "gap": NUMBER,
        "defined": INTEGER,
        "accuracy": NUMBER,
        "attributes": Field("i8", (None,)),
    },
    direction=SERVER_TO_CLIENTS,
    reveals=(
        "FairFed in sums: the gap between groups and the accuracy of the received model over all participants' rows, "
        "and the number of groups of each attribute."
    ),
)

DIFFERENCE = Schema(
    "difference",
    {"round": INTEGER, "difference": NUMBER},
    direction=CLIENT_TO_SERVER,
    reveals=(
        "FairFed in sums: the distance of the client's gap from the global gap. Under masks the server learns the sum."
    ),
    adds=Adds(alike=("round",)),
)

SHARE = Schema(
    "share",
    {"round": INTEGER, "mean": NUMBER, "rows": INTEGER},
    direction=SERVER_TO_CLIENTS,
    reveals="FairFed in sums: the clients' mean distance from the global gap, and their total number of rows.",
)

SHARED_UPDATE = Schema(
    "shared-update",
    {"round": INTEGER, "share": NUMBER, "weights": WEIGHTS, "statistics": STATISTICS},
    direction=CLIENT_TO_SERVER,
    reveals=(
        "FairFed in sums: the change of the client's weights by local training, and the client's weight in "
        "the average, which only the client knows. Under masks the server learns the sum of weights and the "
        "mean of changes."
    ),
    adds=Adds(alike=("round",), means=("weights", "statistics"), weight="share", even=("share",)),
)

FINAL = Schema(
    "final",
    {"round": INTEGER, "weights": WEIGHTS, "statistics": STATISTICS, "measure": INTEGER},
    direction=SERVER_TO_CLIENTS,
    reveals="The final model, to every client, and whether the client must measure it on its own rows.",
)

TILT = Schema(
    "tilt",
    {"rows": INTEGER, "tilt": PER_PART},
    direction=SERVER_TO_CLIENTS,
    reveals=(
        "The number of all clients' rows, and one weight for each slice: the multipliers divided by the size "
        "of the slice."
    ),
)

GRADIENT = Schema(
    "gradient",
    {"weights": WEIGHTS},
    direction=CLIENT_TO_SERVER,
    reveals=(
        "The client's part of the gradient of the Lagrangian at the final model: a weighted sum of the gradients of "
        "its rows. Only the sum over clients is used."
    ),
    adds=Adds(),
)

FEDAVG = Vocabulary(
    MODEL, UPDATE, SUMS, FINAL, TILT, GRADIENT, title="Horizontal: FedAvg, FairFedAvgALM, FairALM, FPFL"
)
FAIRFED = Vocabulary(*FEDAVG, RATES, FAIRNESS, DIFFERENCE, SHARE, SHARED_UPDATE, title="Horizontal: FairFed")
VOCABULARY = Vocabulary(*FEDAVG, *FAIRFED)
