"""Messages of the proximal AL method, and what each reveals.

Sizes: `model` is d, `weights` is d plus the z of shared inequalities, `own` the client's own inequalities,
`shared` the shared ones, of which all clients have summands.
"""

from __future__ import annotations

from evenhand.protocol.disclosure import CLIENT_TO_SERVER, SERVER_TO_CLIENTS
from evenhand.protocol.messages import Adds, Field, Schema, Vocabulary

INTEGER = Field("i8")
NUMBER = Field("f8")
MODEL = Field("f8", ("model",))
WEIGHTS = Field("f8", ("weights",))
SHARED = Field("f8", ("shared",))

BEGIN = Schema(
    "prox-al begin",
    {"weights": MODEL},
    direction=SERVER_TO_CLIENTS,
    reveals="w⁰, the start of the run, to every client. Sent only with shared inequalities.",
)

SUMMANDS = Schema(
    "prox-al summands",
    {"summands": SHARED},
    direction=CLIENT_TO_SERVER,
    reveals="The client's summand of each shared inequality at w⁰, the start of its z.",
    adds=Adds(even=("summands",)),
)

OUTER = Schema(
    "prox-al outer",
    {"outer": INTEGER, "weights": WEIGHTS, "shared_net": SHARED},
    direction=SERVER_TO_CLIENTS,
    reveals=(
        "w^k, the model after k steps of the multipliers, to every client. With shared inequalities, also the z of "
        "all clients, which are close to their summands, and the multipliers."
    ),
)

OUTCOME = Schema(
    "prox-al outcome",
    {
        "outer": INTEGER,
        "change": NUMBER,
        "anchor": WEIGHTS,
        "strength": NUMBER,
        "value": NUMBER,
        "slope": MODEL,
        "own": Field("f8", ("own",)),
        "summands": SHARED,
        "complementarity": NUMBER,
        "distance": NUMBER,
        "missed": NUMBER,
        "missed_slope": WEIGHTS,
    },
    direction=CLIENT_TO_SERVER,
    reveals=(
        "As in the paper: the change of the client's multipliers (its worst excess, times beta), and its first ADMM "
        "vector, a known point minus the gradient of its augmented Lagrangian. For certificate and history: its "
        "objective, the gradient of its Lagrangian, the values of its own inequalities and of its summands of "
        "shared ones, their violation and its gradient. From gradients of few rows of data, these rows can be "
        "reconstructed. Multipliers of its own inequalities stay with the client."
    ),
    # With masks, the certificate's largest values over clients become sums over clients, which are no smaller.
    adds=Adds(alike=("outer",), means=("anchor",), weight="strength", even=("strength",)),
)

STEP = Schema(
    "prox-al step",
    {"outer": INTEGER, "inner": INTEGER, "weights": WEIGHTS, "tolerance": NUMBER},
    direction=SERVER_TO_CLIENTS,
    reveals="The server's iterate w^{t+1}, an average over clients, and the tolerance of the client's answer.",
)

ANSWER = Schema(
    "prox-al answer",
    {"outer": INTEGER, "inner": INTEGER, "anchor": WEIGHTS, "strength": NUMBER, "residual": NUMBER},
    direction=CLIENT_TO_SERVER,
    reveals=(
        "The client's own iterate plus its scaled multiplier of consensus, its rho, and its residual "
        "(proximal AL Eqs. 21 and 22). Differences between rounds are close to gradients of its augmented Lagrangian."
    ),
    adds=Adds(alike=("outer", "inner"), means=("anchor",), weight="strength", even=("strength",)),
)

FINISH = Schema(
    "prox-al finish", {"weights": MODEL}, direction=SERVER_TO_CLIENTS, reveals="The final model, to every client."
)

VOCABULARY = Vocabulary(
    BEGIN, SUMMANDS, OUTER, OUTCOME, STEP, ANSWER, FINISH, title="Horizontal: proximal augmented Lagrangian"
)
