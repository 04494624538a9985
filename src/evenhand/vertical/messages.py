"""Messages of vertical training, and what each of them reveals.

Sizes: `rows` is the number of aligned rows n and `constraints` the number of inequalities R. `curved` is n with losses
whose derivative does not tell their curvature (Poisson, Tweedie), and zero with others. `bands` is the number
of parts of a subspace party's direction. `basis` is `bands` plus the number of past steps that the party keeps.
`classes` is the number of values that a reach can have.

With more than two classes there are as many `outputs`, otherwise one. `scores` is rows × outputs, and `lines` and
`slopes` are `bands` and `basis` times `outputs`, with all of one class before those of the next.
"""

from __future__ import annotations

from evenhand.protocol.disclosure import PARTY_TO_SERVER, SERVER_TO_PARTIES, Coverage, Direction
from evenhand.protocol.messages import Field, Schema, Vocabulary

INTEGER = Field("i8")
NUMBER = Field("f8")
PER_ROW = Field("f8", ("rows",))
PER_SCORE = Field("f8", ("scores",))

SPECTRUM = Schema(
    "spectrum",
    {"squared_norm": NUMBER},
    direction=PARTY_TO_SERVER,
    reveals=(
        "One number: the squared spectral norm of the party's columns, which depends on their size and correlation."
    ),
    coverage=Coverage(summed=True),
)

SCORES = Schema(
    "scores",
    {
        "round": INTEGER,
        "sequence": INTEGER,
        "scores": PER_SCORE,
        "squared_norm": NUMBER,
        "squared_move": NUMBER,
    },
    direction=PARTY_TO_SERVER,
    reveals=(
        "The party's contribution X_k θ_k to every row's score, ‖θ_k‖² and the size of its last step. Rows "
        "with equal columns have equal scores. Over as many rounds as the party has columns, the scores span "
        "its column space: the receiver then knows X_k up to an unknown linear map. (The papers call this "
        "secure because infinitely many X_k explain the scores; that is true of X_k itself, not of everything "
        "computed from it.)"
    ),
    coverage=Coverage(summed=True),
)

WEIGHTED_DERIVATIVE = Schema(
    "weighted-derivative",
    {"round": INTEGER, "last": INTEGER, "step": NUMBER, "nu": PER_ROW},
    direction=Direction("server", "passive party"),
    reveals=(
        "ν of FairVFL Eq. 12, to a passive party. With the logistic loss and a positive sample weight, the "
        "sign of ν_i is the opposite of the label, its size gives the whole score, and the tilt of the slices "
        "reveals the sensitive group. This message discloses labels and groups, although the papers argue "
        "that it does not."
    ),
    coverage=Coverage(from_labels=True, hides_nu=True),
    # An asynchronous run may close twice.
    most=(1, 2),
)

COMBINED_SCORES = Schema(
    "combined-scores",
    {
        "round": INTEGER,
        "last": INTEGER,
        "step": NUMBER,
        "sequence": INTEGER,
        "scores": PER_ROW,
        "multipliers": Field("f8", (2, "constraints")),
    },
    direction=Direction("server", "active party"),
    reveals=(
        "The sum of all parties' scores and the multipliers, to an active party, which already has labels and "
        "groups. It learns the other parties' joint contribution to every row's score."
    ),
    coverage=Coverage(from_labels=True),
    most=(1, 2),
)

DERIVATIVE = Schema(
    "derivative",
    {"round": INTEGER, "last": INTEGER, "nu": PER_SCORE, "curvature": Field("f8", ("curved",))},
    direction=SERVER_TO_PARTIES,
    reveals=(
        "ν, to every party, from which it computes its direction. As with weighted-derivative, it discloses "
        "labels and groups to a passive party. It is sent about a dozen times rather than a thousand. With more "
        "than two classes it holds a number for each row and class: the class with the negative one is the label. With "
        "losses of numbers ν_i is the row's weight times prediction minus target (for gamma their ratio minus "
        "one): it tells every target, up to rounding, from the first round on, when all predictions are equal. "
        "With the Poisson and Tweedie losses the expected curvature comes along, which is the prediction of "
        "each row, or a power of it, times the row's weight. Where a rule chooses the cut, trainings before the "
        "last leave out a fold of rows each: ν = 0 tells the fold, a function of label and of compared groups."
    ),
    coverage=Coverage(from_labels=True, hides_nu=True),
)

OWN_COLUMNS = Schema(
    "own-columns",
    {"columns": Field("f8", (None, "rows")), "weights": Field("f8", ("outputs", None))},
    direction=Direction("label holder", "server"),
    reveals=(
        "All columns and weights of the label holder, to the server at its side: nothing leaves the "
        "organisation. If the server belongs to another organisation, set own_columns = false. A message "
        "without columns says that the party has too many."
    ),
)

DIRECTION = Schema(
    "direction",
    {
        "round": INTEGER,
        "scores": Field("f8", ("lines", "rows")),
        "gram": Field("f8", ("slopes", "basis")),
        "linear": Field("f8", ("slopes",)),
        "squared_norm": NUMBER,
        "squared_gradient": NUMBER,
        "decrement": NUMBER,
    },
    direction=PARTY_TO_SERVER,
    reveals=(
        "The change of every row's score along the party's direction, and inner products of its direction, "
        "past steps and weights. One such vector has as many different values as the party has different "
        "records, so it reveals which rows are equal in all columns and, for columns of zeros and ones, often "
        "their values. After as many rounds as the party has columns, the receiver knows X_k up to a linear "
        "map. A column with two values can be found in several such vectors, or in sums of them over parties, without "
        "knowing any row. Where parties may bound the signs of weights (`monotone`), the first of two vectors is the "
        "sum of the columns whose weights go to their bound, times these weights. If it is one column, the receiver "
        "reads the column itself, up to a factor. So `monotone` runs only without masks."
    ),
    coverage=Coverage(summed=True),
)

REACH = Schema(
    "reach",
    {"round": INTEGER, "reach": Field("f8", (2, "basis", "classes"))},
    direction=PARTY_TO_SERVER,
    reveals=(
        "Beside each direction, where parties may bound the signs of weights (`monotone`): how far the party can go "
        "along each column, down and up, before a bound, as zero, a power of two or no limit. It tells whether the "
        "party has bounds, and roughly how near its weights are to them. With the directions it also tells which "
        "columns reach their bound, once the receiver knows columns: the first part of a direction consists of them."
    ),
    coverage=Coverage(summed=True),
)

SIGNS = Schema(
    "signs",
    {"signs": Field("i8", (None,))},
    direction=OWN_COLUMNS.direction,
    reveals=(
        "Beside own-columns, where parties may bound the signs of weights (`monotone`): which of the label holder's "
        "weights have a bound."
    ),
)

LEVERAGES = Schema(
    "leverages",
    {"leverages": PER_ROW},
    direction=PARTY_TO_SERVER,
    reveals=(
        "Once, before the first round, where constraints bound exact rates: how unusual each row is in the party's "
        "columns, a number between 0 and 1. It depends on no label. Rows with equal columns have equal leverages, and "
        "a row that is alone with a value stands out. Of a party with one column it tells the column up to the sign of "
        "each row. The server estimates with it how a row would be scored by a model trained without it. Where only "
        "sums arrive, a passive party sends the mean for every row, which tells nothing of single rows."
    ),
    coverage=Coverage(summed=True),
)

COEFFICIENTS = Schema(
    "coefficients",
    {
        "round": INTEGER,
        "last": INTEGER,
        "keep": INTEGER,
        "coefficients": Field("f8", ("slopes",)),
        "intercept": Field("f8", ("outputs",)),
    },
    direction=SERVER_TO_PARTIES,
    reveals=(
        "The step along the party's own direction and past steps, and whether to keep the resulting model as "
        "the best so far: a few numbers, in the clear. Two runs that differ by one person can tell that person's "
        "label by them. With a dealer or encryption, only the label holder receives them."
    ),
    coverage=Coverage(from_labels=True),
)

GO_BACK = Schema(
    "go-back",
    {"round": INTEGER},
    direction=SERVER_TO_PARTIES,
    reveals="That the best model is the one that the party was last told to keep; the party restores it.",
    coverage=Coverage(from_labels=True),
)

GRADIENT_NORM = Schema(
    "gradient-norm",
    {"squared_gradient": NUMBER},
    direction=PARTY_TO_SERVER,
    reveals="One number: the distance of the party's weights from stationarity.",
    coverage=Coverage(summed=True),
)

SUBSPACE = Vocabulary(
    SCORES,
    LEVERAGES,
    OWN_COLUMNS,
    SIGNS,
    DERIVATIVE,
    DIRECTION,
    REACH,
    COEFFICIENTS,
    GO_BACK,
    GRADIENT_NORM,
    title="Vertical: subspace",
)
FAIRVFL = Vocabulary(
    SPECTRUM, SCORES, WEIGHTED_DERIVATIVE, COMBINED_SCORES, GRADIENT_NORM, title="Vertical: FairVFL, FedBCD"
)
VOCABULARY = Vocabulary(*SUBSPACE, *FAIRVFL)
