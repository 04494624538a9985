"""What the roles of the proximal AL method say to each other. Sizes: `weights` is d (and the z of shared rows)."""

from __future__ import annotations

from evenhand.protocol.messages import Field, Schema, Vocabulary

INTEGER = Field("i8")
NUMBER = Field("f8")
WEIGHTS = Field("f8", ("weights",))

OUTER = Schema(
    "prox-al outer",
    {"outer": INTEGER, "weights": WEIGHTS},
    reveals="w^k, the model after k steps of the multipliers, to every client.",
)

OUTCOME = Schema(
    "prox-al outcome",
    {
        "outer": INTEGER,
        "change": NUMBER,
        "anchor": WEIGHTS,
        "strength": NUMBER,
        "value": NUMBER,
        "slope": WEIGHTS,
        "violation": NUMBER,
        "complementarity": NUMBER,
        "distance": NUMBER,
        "missed": NUMBER,
        "missed_slope": WEIGHTS,
    },
    reveals=(
        "The paper's messages: by how much the client's multipliers changed (its worst excess, times beta), and its "
        "first ADMM vector, a known point minus the gradient of its augmented Lagrangian. For the certificate: its "
        "objective, the gradient of its Lagrangian, how far its rows are missed and how steeply that would fall. From "
        "gradients of few rows of data those can be reconstructed. Multipliers themselves stay with the client."
    ),
)

STEP = Schema(
    "prox-al step",
    {"outer": INTEGER, "inner": INTEGER, "weights": WEIGHTS, "tolerance": NUMBER},
    reveals="The server's iterate w^{t+1}, an average over clients, and how exactly the client is to answer.",
)

ANSWER = Schema(
    "prox-al answer",
    {"outer": INTEGER, "inner": INTEGER, "anchor": WEIGHTS, "strength": NUMBER, "residual": NUMBER},
    reveals=(
        "The client's own iterate plus its scaled multiplier of consensus, its rho, and how far it is from agreeing "
        "(Eqs. 21 and 22). Differences between rounds are close to gradients of the client's augmented Lagrangian."
    ),
)

FINISH = Schema("prox-al finish", {"weights": WEIGHTS}, reveals="The final model, to every client.")

VOCABULARY = Vocabulary(OUTER, OUTCOME, STEP, ANSWER, FINISH)
