"""Messages of the layers of protection, and what each of them reveals."""

from __future__ import annotations

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
        "rounds, or one band instead of two, reveal less). With a single passive party, the sum is its own "
        "message."
    ),
)
JOINING = Schema(
    "joining",
    {"columns": INTEGER},
    direction=Direction("passive party", "dealer"),
    reveals="To the dealer, which has no data: the sender's number of columns.",
)
HIDDEN_COLUMNS = Schema(
    "hidden-columns",
    {"words": Field("i8", (None, "rows"))},
    direction=Direction("passive party", "server"),
    reveals=(
        "To the server, once: X_k − A_k modulo 2⁶⁴, with A_k known to the party and the dealer. It reveals "
        "the number of columns; the words are uniform. With the dealer's A_k it is the party's table: an "
        "organisation that runs both server and dealer knows everything."
    ),
)
CORRECTIONS = Schema(
    "corrections",
    {"number": INTEGER, "words": WORDS},
    direction=Direction("dealer", "server"),
    reveals=("To the server: A_kᵀb − c for each party. Uniform words, because only that party and the dealer know c."),
)
NEXT_TRIPLE = Schema(
    "next-triple",
    {"number": INTEGER},
    direction=Direction("server", "dealer"),
    reveals="To the dealer: the number of rounds.",
    most=(1, 2),
)
HIDDEN_DERIVATIVE = Schema(
    "hidden-derivative",
    {
        "round": INTEGER,
        "last": INTEGER,
        "step": Field("f8"),
        "number": INTEGER,
        "scale": INTEGER,
        "nu": Field("i8", ("rows",)),
        "words": Field("i8", ("columns",)),
    },
    direction=Direction("server", "passive party"),
    reveals=(
        "ν − b modulo 2⁶⁴ to a passive party, uniform words, and what it needs to compute X_kᵀν from them: "
        "one number for each of its columns, and a power of two that bounds the size of ν. The sums of sparse "
        "columns can reveal labels, also of columns that pass the guards: see the known weaknesses in "
        "privacy.md."
    ),
    coverage=Coverage(from_labels=True),
)
ENCRYPTION_KEY = Schema(
    "encryption-key",
    {"context": Field("u1", (None,))},
    direction=Direction("server", "passive party"),
    reveals="Nothing: the public key for the encryption of ν; the secret key stays with the server.",
)
ENCRYPTED_DERIVATIVE = Schema(
    "encrypted-derivative",
    {
        "round": INTEGER,
        "last": INTEGER,
        "step": Field("f8"),
        "number": INTEGER,
        "scale": INTEGER,
        "ciphertexts": Field("u1", (None,)),
        "lengths": WORDS,
    },
    direction=Direction("server", "passive party"),
    reveals=(
        "ν under BFV encryption, to a passive party, and a power of two that bounds the size of ν. Nothing "
        "else without the server's secret key."
    ),
    coverage=Coverage(from_labels=True),
)
ENCRYPTED_PRODUCTS = Schema(
    "encrypted-products",
    {"number": INTEGER, "ciphertexts": Field("u1", (None,)), "lengths": WORDS},
    direction=Direction("passive party", "server"),
    reveals=(
        "X_kᵀν by slots behind uniform masks, under encryption; decrypted, it is uniform. The noise of the "
        "ciphertexts depends on X_k, and nothing drowns that dependence: the server can compute columns from "
        "it (see the known weaknesses in privacy.md)."
    ),
)
BLINDED_SUMS = Schema(
    "blinded-sums",
    {"number": INTEGER, "words": Field("i8", ("columns",))},
    direction=Direction("server", "passive party"),
    reveals=(
        "The sums of the slots, to the party whose masks are in them: X_kᵀν, one number for each of its "
        "columns. The sums of sparse columns can reveal labels, also of columns that pass the guards: see the "
        "known weaknesses in privacy.md."
    ),
)

MASKS = Vocabulary(MASKED, title="Vertical: masked sums")
TRIPLES = Vocabulary(
    JOINING,
    HIDDEN_COLUMNS,
    CORRECTIONS,
    NEXT_TRIPLE,
    HIDDEN_DERIVATIVE,
    title="Vertical: products with a dealer",
)
CIPHERTEXTS = Vocabulary(
    ENCRYPTION_KEY, ENCRYPTED_DERIVATIVE, ENCRYPTED_PRODUCTS, BLINDED_SUMS, title="Vertical: encrypted products"
)
VOCABULARY = Vocabulary(*MASKS, *TRIPLES, *CIPHERTEXTS)
