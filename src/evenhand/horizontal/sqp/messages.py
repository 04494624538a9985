"""What the roles of sequential quadratic programming say to each other.

Sizes: `weights` is d, `own` the client's own rows, `shared` the shared ones, `trials` the points judged in a round,
`curvature` is d(d+1)/2, or zero where the server builds its own; `own parts` and `shared parts` are the slices of these
rows that people are counted in, none where no rates are bounded.
"""

from __future__ import annotations

from evenhand.protocol.disclosure import CLIENT_TO_SERVER, SERVER_TO_CLIENTS
from evenhand.protocol.messages import Adds, Field, Schema, Vocabulary

INTEGER = Field("i8")
WEIGHTS = Field("f8", ("weights",))

TRIALS = Schema(
    "sqp trials",
    {
        "round": INTEGER,
        "trials": Field("f8", ("trials", "weights")),
        "own_net": Field("f8", ("own",)),
        "shared_net": Field("f8", ("shared",)),
    },
    direction=SERVER_TO_CLIENTS,
    reveals=(
        "Where to look: a few models, the multipliers of the client's own rows and of the shared ones. Models are "
        "functions of sums over clients; with two clients each can tell the other's summand from its own."
    ),
)

JUDGED = Schema(
    "sqp judged",
    {
        "round": INTEGER,
        "values": Field("f8", ("trials",)),
        "own": Field("f8", ("trials", "own")),
        "shared": Field("f8", ("trials", "shared")),
        "gradient": WEIGHTS,
        "own_slopes": Field("f8", ("own", "weights")),
        "shared_slopes": Field("f8", ("shared", "weights")),
        "curvature": Field("f8", ("curvature",)),
        "objective_curvature": Field("f8", ("curvature",)),
        "own_counts": Field("f8", ("own parts",)),
        "own_sums": Field("f8", ("own parts",)),
        "own_squares": Field("f8", ("own parts",)),
        "shared_sums": Field("f8", ("shared parts",)),
        "shared_squares": Field("f8", ("shared parts",)),
        "shared_smooth": Field("f8", ("shared parts",)),
    },
    direction=CLIENT_TO_SERVER,
    reveals=(
        "The client's objective, its own rows and its summands of the shared rows at each model, and at the first "
        "their derivatives and the second derivatives of its Lagrangian and objective. Where rates are bounded, also "
        "how many people of each slice the first model errs on, or selects, and how many there are in slices of the "
        "client's own rows (sums of smooth rates and of losses too, and of their squares). Of objective, shared rows, "
        "curvature and counts of shared slices only sums over clients are used, so they could be masked; own rows are "
        "the client's alone. From gradients of few rows of data those can be reconstructed."
    ),
    adds=Adds(alike=("round",)),
)

LEAVE_OUT = Schema(
    "sqp leave out",
    {
        "round": INTEGER,
        "weights": WEIGHTS,
        "own_net": Field("f8", ("own",)),
        "shared_net": Field("f8", ("shared",)),
        "free": Field("f8", ("curvature",)),
        "own_held": Field("f8", ("own", "weights")),
        "shared_held": Field("f8", ("shared", "weights")),
        "shared_smooth": Field("f8", ("shared parts",)),
    },
    direction=SERVER_TO_CLIENTS,
    reveals=(
        "Where a constraint is to hold among new people: a model with its multipliers, how the weights answer changes "
        "of the gradient and of the client's constraint rows (from sums of everybody's second derivatives), and sums "
        "of smooth rates over everybody's rows."
    ),
)

LEFT_OUT = Schema(
    "sqp left out",
    {"round": INTEGER, "own_sums": Field("f8", ("own parts",)), "shared_sums": Field("f8", ("shared parts",))},
    direction=CLIENT_TO_SERVER,
    reveals=(
        "How many people of each slice a model would err on, or select, that was trained without each of them in turn. "
        "Of shared slices only sums over clients are used."
    ),
    adds=Adds(alike=("round",)),
)

FINISH = Schema(
    "sqp finish", {"weights": WEIGHTS}, direction=SERVER_TO_CLIENTS, reveals="The final model, to every client."
)

VOCABULARY = Vocabulary(TRIALS, JUDGED, LEAVE_OUT, LEFT_OUT, FINISH, title="Horizontal: SQP")
