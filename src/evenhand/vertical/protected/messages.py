"""Messages of the layers of protection, and what each of them reveals."""

from __future__ import annotations

from evenhand.privacy.pairwise import KEY_BYTES
from evenhand.protocol.disclosure import Coverage, Direction
from evenhand.protocol.messages import TEXT, Field, Schema, Vocabulary

INTEGER = Field("i8")
WORDS = Field("i8", (None,))
MASKED = Schema(
    "masked",
    {"kind": TEXT, "session": INTEGER, "number": INTEGER, "integers": WORDS, "words": WORDS},
    direction=Direction("passive party", "server"),
    reveals=(
        "One party's message of the kind it names, in fixed point behind masks that cancel in the sum over "
        "all passive parties. Without the masks, its words are uniform over all 64 bits. The server learns "
        "the sum: the change of every row's score that all passive parties together propose, and inner "
        "products summed over them. Rows that are equal in all these columns have equal entries in the sum, "
        "and from many sums the server can fit a part of the columns (privacy.md has measurements; fewer "
        "rounds, or one band instead of two, reveal less). A column of two values, such as the mark of rows that a "
        "party lacks, can be read from the sums of one run without knowing any row. With a single passive party, the "
        "sum is its own message."
    ),
)
JOINING = Schema(
    "joining",
    {"columns": INTEGER},
    direction=Direction("passive party", "dealer"),
    reveals="To the dealer, which has no data: the sender's number of columns.",
)
MASKED_PARTIAL_SCORES = Schema(
    "masked-partial-scores",
    MASKED.fields,
    direction=Direction("party", "server"),
    reveals=(
        "After training: one party's partial-scores in fixed point, behind masks that cancel in the sum over all "
        "passive parties, or over all parties under VFB². The server learns the sum of their contributions to the "
        "score of each row. With a single party in it, the sum is its own contribution."
    ),
)
REPEATABLE = (2, 8)
"""Exchanges that fail their range check are repeated; a party counts rounds and repetitions itself (`sharing.py`)."""
HIDDEN_COLUMNS = Schema(
    "hidden-columns",
    {
        "words": Field("i8", (None, "rows")),
        "matrix": Field("i8", (None, None)),
        "shares": Field("i8", (None, None)),
    },
    direction=Direction("passive party", "server"),
    reveals=(
        "To the server, once in an attempt: the party's columns, the inverse of their curvature and its shares so far, "
        "each minus random words that only the party and the dealer know. It reveals the number of columns; the words "
        "are uniform. With the dealer's random words it is the party's table: an organisation that runs both server "
        "and dealer knows everything."
    ),
)
DEALT = dict.fromkeys(("slopes", "directions", "scores", "products", "checks", "tags"), WORDS)
"""What the dealer sends for one exchange; at the end, *slopes* has the words for the final weights, and others none."""
CORRECTIONS = Schema(
    "corrections",
    {"number": INTEGER} | DEALT,
    direction=Direction("dealer", "server"),
    reveals=(
        "To the server: products of random words, minus random words that only a party and the dealer know. Uniform "
        "words."
    ),
    most=REPEATABLE,
)
NEXT_TRIPLE = Schema(
    "next-triple",
    {"number": INTEGER, "last": INTEGER, "kept": WORDS},
    direction=Direction("server", "dealer"),
    reveals="To the dealer: the number of rounds.",
    most=REPEATABLE,
)
ASK = {
    "round": INTEGER,
    "last": INTEGER,
    "number": INTEGER,
    "kept": WORDS,
}
"""Public numbers of an exchange: see `sharing.Ask`."""
HIDDEN_DERIVATIVE = Schema(
    "hidden-derivative",
    ASK
    | {
        "nu": Field("i8", ("rows",)),
        "pull": WORDS,
        "shares": Field("i8", (None, "columns")),
        "earlier": Field("i8", (None, "columns")),
        "checks": Field("u1", (KEY_BYTES,)),
        "tags": Field("i8", (None, None)),
    },
    direction=Direction("server", "passive party"),
    reveals=(
        "To a passive party: ν, the coefficients of the weights so far, and the server's shares of the party's slope "
        "and directions, each minus random words that only the server and the dealer know. Uniform words: they reveal "
        "nothing of labels. Tags, uniform too, bind the party's answers to its columns; a key of parties and server "
        "checks the dealer. In the clear are numbers of rounds and exchanges."
    ),
    coverage=Coverage(from_labels=True),
    most=REPEATABLE,
)
HIDDEN_SHARES = Schema(
    "hidden-shares",
    {"number": INTEGER, "words": Field("i8", (None, None)), "tags": Field("i8", (None, None))},
    direction=Direction("passive party", "server"),
    reveals=(
        "To the server: the party's shares of its slope and directions, minus random words that only the party and the "
        "dealer know. Uniform words."
    ),
    most=REPEATABLE,
)
SHARED_DIRECTION = Schema(
    "shared-direction",
    {"number": INTEGER, "words": WORDS},
    direction=Direction("passive party", "server"),
    reveals=(
        "The party's shares of what direction holds: the change of every row's score along its directions, and inner "
        "products of its directions. It is sent behind masks only (masked), so that the server learns the sum over "
        "passive parties: what it learns at protection masked, and one squared norm of the slope. Where one of the two "
        "parts of a party's directions would be next to zero, as with a single column, the party moves a share of the "
        "other part into it. The share is the same in all rounds and follows from how often each value of its columns "
        "occurs: who knows that, such as how many rows have either of two values, knows the share, and can take the "
        "party's directions out of one combination of the two sums."
    ),
    coverage=Coverage(summed=True),
    most=REPEATABLE,
)
WEIGHT_SHARE = Schema(
    "weight-share",
    {"words": Field("i8", ("columns",))},
    direction=Direction("server", "passive party"),
    reveals=(
        "To a passive party, at the end and with weights = 'party' only: the server's share of the party's own "
        "weights, so that it knows its part of the model. Weights tell what any model tells of the labels it was "
        "trained on: sums of labels by column, less exact with every step. Two runs that differ by one person tell "
        "that person's label. Weights after a single step would be exact sums of labels, and are not sent."
    ),
    coverage=Coverage(from_labels=True),
)
HIDDEN_COEFFICIENTS = Schema(
    "hidden-coefficients",
    {"number": INTEGER, "words": Field("i8", (None, None))},
    direction=Direction("server", "passive party"),
    reveals=(
        "To a passive party: that training has ended, and the coefficients of the final weights, minus random words "
        "that only the server and the dealer know. Uniform words. Party and server compute their shares of the "
        "party's weights, which nobody knows."
    ),
    coverage=Coverage(from_labels=True),
)
SHARE_KEPT = Schema(
    "share-kept",
    {"number": INTEGER},
    direction=Direction("passive party", "server"),
    reveals="To the server: that the party has computed its share of its weights.",
)
SHARED_SCORES = Schema(
    "shared-scores",
    {"words": WORDS},
    direction=Direction("passive party", "server"),
    reveals=(
        "The party's share of its contribution to the score of each row. It is sent behind masks only "
        "(masked-partial-scores), so that the server learns the sum over passive parties, as with partial-scores."
    ),
    coverage=Coverage(summed=True),
)
SCORE_TRIPLE = Schema(
    "score-triple",
    {"columns": INTEGER, "rows": INTEGER},
    direction=Direction("passive party", "dealer"),
    reveals="To the dealer, which has no data: the sender's number of columns, and the number of rows to score.",
)
HIDDEN_ROWS = Schema(
    "hidden-rows",
    {"words": Field("i8", (None, "rows"))},
    direction=Direction("passive party", "server"),
    reveals=(
        "To the server: the columns of the rows to score, minus random words that only the party and the dealer know. "
        "Uniform words, and the number of columns."
    ),
)
HIDDEN_WEIGHTS = Schema(
    "hidden-weights",
    {"words": Field("i8", ("columns",))},
    direction=Direction("server", "passive party"),
    reveals=(
        "To a passive party: the server's share of the party's weights, minus random words that only the server and "
        "the dealer know. Uniform words."
    ),
)
SCORE_CORRECTIONS = Schema(
    "score-corrections",
    {"words": Field("i8", ("rows",))},
    direction=Direction("dealer", "server"),
    reveals=(
        "To the server: products of random words, minus random words that only a party and the dealer know. Uniform "
        "words."
    ),
)
POLYNOMIALS = Field("i8", (None, 4, 2048))
"""Polynomials of a ciphertext: four residues for each of 4096 coefficients, two residues in a word."""
QUESTION = {"seed": Field("u1", (32,)), "key": Field("i8", (4, 2048)), "polynomials": POLYNOMIALS}
"""Encrypted vectors: see `privacy/lattice.py`."""
ANSWER = {"polynomials": POLYNOMIALS, "places": WORDS}
COLUMN_COUNT = Schema(
    "column-count",
    {"columns": INTEGER},
    direction=Direction("passive party", "server"),
    reveals="To the server: the number of columns of the party.",
)
ENCRYPTED_WORDS = Schema(
    "encrypted-words",
    {"session": INTEGER, "number": INTEGER, "last": INTEGER, "vectors": INTEGER} | QUESTION,
    direction=Direction("server", "passive party"),
    reveals=(
        "To a passive party: random words under encryption, and the public key of a secret that the server uses for "
        "this message only. They do not depend on labels. The party cannot read them."
    ),
    most=REPEATABLE,
)
ENCRYPTED_PRODUCTS = Schema(
    "encrypted-products",
    {"number": INTEGER} | ANSWER,
    direction=Direction("passive party", "server"),
    reveals=(
        "To the server: products of the party's columns and shares with the server's random words, plus random "
        "numbers that are uniform modulo the ciphertext's modulus. Decrypted, it is uniform, noise included; the other "
        "half of the ciphertext cannot be told from a uniform one (ring learning with errors). This holds for every "
        "question that the server may ask."
    ),
    most=REPEATABLE,
)
BLINDED_DERIVATIVE = Schema(
    "blinded-derivative",
    ASK | {"nu": Field("i8", ("rows",)), "pull": WORDS, "shares": Field("i8", (None, "columns"))} | QUESTION,
    direction=Direction("server", "passive party"),
    reveals=(
        "To a passive party: ν, the coefficients of the weights so far, and the server's shares of the party's slope "
        "and directions, each minus random words that only the server knows, and the same shares under encryption. "
        "Uniform words: they reveal nothing of labels. In the clear are numbers of rounds and exchanges."
    ),
    coverage=Coverage(from_labels=True),
    most=REPEATABLE,
)
ENCRYPTED_INNER_PRODUCTS = Schema(
    "encrypted-inner-products",
    {"number": INTEGER} | ANSWER,
    direction=Direction("passive party", "server"),
    reveals=(
        "To the server: inner products of the party's shares with its own, plus uniform random numbers, under "
        "encryption. Decrypted, it is uniform, noise included."
    ),
    most=REPEATABLE,
)
ENCRYPTED_COEFFICIENTS = Schema(
    "encrypted-coefficients",
    {"number": INTEGER} | QUESTION,
    direction=Direction("server", "passive party"),
    reveals=(
        "To a passive party: that training has ended, and the coefficients of the final weights under encryption. The "
        "party cannot read them. Party and server compute their shares of the party's weights, which nobody knows."
    ),
    coverage=Coverage(from_labels=True),
)
ENCRYPTED_SHARE = Schema(
    "encrypted-share",
    {"number": INTEGER} | ANSWER,
    direction=Direction("passive party", "server"),
    reveals=(
        "To the server: products of the party's shares of directions with the coefficients, plus uniform random "
        "numbers, under encryption. Decrypted, it is uniform, noise included."
    ),
)
ENCRYPTED_WEIGHTS = Schema(
    "encrypted-weights",
    QUESTION,
    direction=Direction("server", "passive party"),
    reveals=(
        "To a passive party: the server's share of the party's weights under encryption, and the public key of a "
        "secret that the server uses for this message only. The party cannot read it."
    ),
    coverage=Coverage(from_labels=True),
)
ENCRYPTED_SCORES = Schema(
    "encrypted-scores",
    ANSWER,
    direction=Direction("passive party", "server"),
    reveals=(
        "To the server: products of the rows to score with its share of the weights, plus uniform random numbers, "
        "under encryption. Decrypted, it is uniform, noise included."
    ),
)

AUDIT = Schema(
    "audit",
    {"number": INTEGER, "seed": Field("u1", (KEY_BYTES,)), "sums": WORDS},
    direction=Direction("passive party", "dealer"),
    reveals=(
        "To the dealer, which has no data, in one exchange of eight, which the party's coin chooses: a random "
        "partition of the rows into 64 blocks, and the sums by block of what the party has of ν. With its own random "
        "words the dealer knows 64 sums of ν over random blocks. It knows neither ids nor columns."
    ),
    most=REPEATABLE,
)
AUDITED = Schema(
    "audited",
    {"number": INTEGER, "answer": INTEGER},
    direction=Direction("dealer", "passive party"),
    reveals="To a passive party: whether ν has weight in many random blocks of rows, in few, or in one.",
    coverage=Coverage(from_labels=True),
    most=REPEATABLE,
)

MASKS = Vocabulary(MASKED, title="Vertical: masked sums")
CLOSING = Vocabulary(MASKED_PARTIAL_SCORES, title="After training: masked scores")
SHARES = Vocabulary(SHARED_DIRECTION, title="Vertical: shared weights")
OWN_WEIGHTS = Vocabulary(WEIGHT_SHARE, title="Vertical: weights that were shared in training, to their party")
SCORE_SHARES = Vocabulary(SHARED_SCORES, title="After training: scores by shared weights")
SCORE_TRIPLES = Vocabulary(
    SCORE_TRIPLE, HIDDEN_ROWS, HIDDEN_WEIGHTS, SCORE_CORRECTIONS, title="After training: scores with a dealer"
)
TRIPLES = Vocabulary(
    JOINING,
    HIDDEN_COLUMNS,
    CORRECTIONS,
    NEXT_TRIPLE,
    HIDDEN_DERIVATIVE,
    HIDDEN_SHARES,
    HIDDEN_COEFFICIENTS,
    SHARE_KEPT,
    AUDIT,
    AUDITED,
    title="Vertical: products with a dealer",
)
CIPHERTEXTS = Vocabulary(
    COLUMN_COUNT,
    ENCRYPTED_WORDS,
    ENCRYPTED_PRODUCTS,
    BLINDED_DERIVATIVE,
    ENCRYPTED_INNER_PRODUCTS,
    ENCRYPTED_COEFFICIENTS,
    ENCRYPTED_SHARE,
    title="Vertical: encrypted products",
)
SCORE_CIPHERTEXTS = Vocabulary(
    ENCRYPTED_WEIGHTS, ENCRYPTED_SCORES, title="After training: scores by encrypted products"
)
VOCABULARY = Vocabulary(
    *(*MASKS, *CLOSING, *SHARES, *OWN_WEIGHTS, *SCORE_SHARES),
    *(*TRIPLES, *SCORE_TRIPLES, *CIPHERTEXTS, *SCORE_CIPHERTEXTS),
)
