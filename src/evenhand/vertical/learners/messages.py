"""Messages of learners, and what each of them reveals.

Sizes: `rows` is the number of aligned rows n, `folds` the number of models of a cross-fitting, and `columns` the number
of columns that a party sends in a round: `features` for each of them.
"""

from __future__ import annotations

from evenhand.protocol.disclosure import PARTY_TO_SERVER, SERVER_TO_PARTIES, Coverage, Direction
from evenhand.protocol.messages import Field, Schema, Vocabulary
from evenhand.vertical.messages import INTEGER, NUMBER

SHORT_BY_FOLD = Field("f2", ("folds", "rows"))

RESPONSE = Schema(
    "working-response",
    {
        "round": INTEGER,
        "gradient": SHORT_BY_FOLD,
        "curvature": SHORT_BY_FOLD,
        "gradient_unit": NUMBER,
        "curvature_unit": NUMBER,
    },
    direction=SERVER_TO_PARTIES,
    reveals=(
        "First and second derivative of the Lagrangian with respect to every row's score, to every party, scaled to "
        "two bytes, for each model of a cross-fitting, with zeros for the rows that it is fitted without. As with "
        "derivatives of trees, the sign of the first derivative is the opposite of the label, both together give the "
        "whole score, and the tilt of the slices reveals the sensitive group. With losses of numbers it tells every "
        "target. This message discloses labels and groups."
    ),
    coverage=Coverage(from_labels=True),
)

OUTPUTS = Schema(
    "learner-outputs",
    {"round": INTEGER, "columns": Field("f8", ("columns", "rows"))},
    direction=PARTY_TO_SERVER,
    reveals=(
        "What the party's new models give every row, with mean zero and unit spread; where only sums arrive, with the "
        "spread of what the model explains of the response, at least a tenth of the response's, so that a party which "
        "explains little hides little of the others. The kind of model is not named. "
        "Rows with equal columns have equal outputs, and rows with similar outputs are often alike; over many rounds "
        "the outputs tell more and more of the party's columns, as directions of subspace do. Columns with two values"
        " can be found in several outputs, or in sums of them over parties, without knowing any row. A model that "
        "gives each row a value of its own, such as a nearest neighbour or a deep tree, tells most. Outputs also "
        "follow from the response that the party was sent. Where only sums arrive, the spread of each column has a "
        "factor that follows from the party's own columns, so that the server does not know in which differences of "
        "sums a party's columns cancel. A column that is the same for almost all rows is replaced by a random "
        "function of the party's columns, because it would hide nothing of the others'."
    ),
    coverage=Coverage(summed=True),
)

EMBEDDING = Schema(
    "embedding",
    {"features": Field("f8", ("embedding", "rows"))},
    direction=PARTY_TO_SERVER,
    reveals=(
        "With exchange = 'embedding', once: random functions of the party's columns for every row. Rows with equal "
        "columns have equal functions. As many functions as columns tell nearly all of the columns to those who know "
        "some rows; where only sums arrive, they tell the sum over the passive parties, in which columns "
        "with two values can be found without knowing any row."
    ),
    coverage=Coverage(summed=True),
)

COMBINATION = Schema(
    "combination",
    {"coefficients": Field("f8", (None, "columns")), "intercept": NUMBER, "embeds": INTEGER},
    direction=SERVER_TO_PARTIES,
    reveals=(
        "At the end, the coefficients of the party's own columns in each kept round, and the intercept for the first "
        "active party. Where only sums arrive, all passive parties have the same coefficients. Two runs that differ by "
        "one person can tell that person's label by them. Also whether the label holder's networks need the party's "
        "outputs for new rows one by one, rather than the score that they add up to."
    ),
    coverage=Coverage(from_labels=True),
)

RELATION = Schema(
    "relation",
    {
        "networks": Field("u1", (None,)),
        "sizes": Field("i8", (None, "folds")),
        "units": Field("f8", (None, 2)),
        "coefficients": Field("f8", (None,)),
    },
    direction=Direction("server", "label holder"),
    reveals=(
        "To the first active party, which holds the labels: the networks over all parties' embeddings, with "
        "exchange = 'embedding'."
    ),
    coverage=Coverage(from_labels=True),
)

VOCABULARY = Vocabulary(RESPONSE, OUTPUTS, EMBEDDING, COMBINATION, RELATION, title="Vertical: learners")
