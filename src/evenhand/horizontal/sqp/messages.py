"""Messages of sequential quadratic programming, and what each reveals.

Sizes: `weights` is d, `own` the client's own inequalities, `shared` the shared ones, `trials` the points evaluated
in a round. `curvature` is d(d+1)/2, or zero if the server approximates it. `own parts` and `shared parts` are the
slices in which people are counted, none if no rates are bounded.
"""

from __future__ import annotations

from evenhand.protocol.disclosure import CLIENT_TO_SERVER, SERVER_TO_CLIENTS
from evenhand.protocol.messages import Adds, Field, Schema, Vocabulary

INTEGER = Field("i8")
NUMBER = Field("f8")
WEIGHTS = Field("f8", ("weights",))

TRIALS = Schema(
    "sqp trials",
    {
        "round": INTEGER,
        "factor": NUMBER,
        "trials": Field("f8", ("trials", "weights")),
        "own_net": Field("f8", ("own",)),
        "shared_net": Field("f8", ("shared",)),
    },
    direction=SERVER_TO_CLIENTS,
    reveals=(
        "A few trial models, and the multipliers of the client's own inequalities and of the shared ones. Models "
        "are functions of sums over clients; with two clients, each can compute the other's summand from its own. "
        "The factor, at most one, is on the temperature of smooth rates: where it is small, derivatives of rates "
        "depend on few rows of data, those near the cut."
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
        "The client's objective, its own inequalities and its summands of the shared ones at each model. At the "
        "first model, also their derivatives and the second derivatives of its Lagrangian and objective. If rates are "
        "bounded, also the first model's number of errors or positive decisions in each slice, the number of people "
        "in slices of the client's own inequalities, and sums of smooth rates, losses and their squares. Of "
        "objective, shared inequalities, curvature and counts of shared slices only sums over clients are used, so "
        "they can be masked; own inequalities belong to one client. From gradients of few rows of data, these rows "
        "can be reconstructed."
    ),
    adds=Adds(alike=("round",)),
)

LEAVE_OUT = Schema(
    "sqp leave out",
    {
        "round": INTEGER,
        "factor": NUMBER,
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
        "For constraints on new people: a model with its multipliers, the response of its weights to changes of the "
        "gradient and of the client's inequalities (from sums of all clients' second derivatives), and sums of "
        "smooth rates over all clients' rows."
    ),
)

LEFT_OUT = Schema(
    "sqp left out",
    {"round": INTEGER, "own_sums": Field("f8", ("own parts",)), "shared_sums": Field("f8", ("shared parts",))},
    direction=CLIENT_TO_SERVER,
    reveals=(
        "The number of errors or positive decisions in each slice, for each person by a model trained without that "
        "person. Of shared slices only sums over clients are used."
    ),
    adds=Adds(alike=("round",)),
)

FINISH = Schema(
    "sqp finish", {"weights": WEIGHTS}, direction=SERVER_TO_CLIENTS, reveals="The final model, to every client."
)

VOCABULARY = Vocabulary(TRIALS, JUDGED, LEAVE_OUT, LEFT_OUT, FINISH, title="Horizontal: SQP")
