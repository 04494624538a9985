"""Messages of the layers of protection, and what each of them reveals."""

from __future__ import annotations

from evenhand.privacy.key_exchange import KEY, PUBLIC_KEY, PUBLIC_KEYS
from evenhand.protocol.disclosure import Coverage, Direction
from evenhand.protocol.messages import TEXT, Field, Schema, Vocabulary

INTEGER = Field("i8")
WORDS = Field("i8", (None,))
MASKED = Schema(
    "masked",
    {"kind": TEXT, "number": INTEGER, "integers": WORDS, "words": WORDS},
    direction=Direction("passive party", "server"),
    reveals=(
        "One party's message of the kind it names, its numbers in fixed point behind masks that cancel in the sum over "
        "all passive parties: to whoever lacks the masks, words that are uniform over all 64 bits. The server learns "
        "the sum: what all passive parties together offer to change in every row's score, and inner products summed "
        "over them. A sum still tells something: rows that are equal in everybody's columns have equal entries, and "
        "with many sums the server can fit a part of the others' columns (privacy.md has figures; fewer rounds, or one "
        "band in place of two, tell less). Of a single passive party a sum is its own message."
    ),
)
DEALER_KEY = Schema(
    "dealer-key",
    {"key": KEY},
    direction=Direction("dealer", "server or passive party"),
    reveals="Nothing: the public half of the dealer's X25519 key.",
)
JOINING = Schema(
    "joining",
    {"key": KEY, "columns": INTEGER},
    direction=Direction("server or passive party", "dealer"),
    reveals="To the dealer: how many columns the sender has, and the public half of a key. The dealer has no data.",
)
HIDDEN_COLUMNS = Schema(
    "hidden-columns",
    {"words": Field("i8", (None, "rows"))},
    direction=Direction("passive party", "server"),
    reveals=(
        "To the server, once: X_k − A_k modulo 2⁶⁴, with A_k that the party and the dealer have in common: how many "
        "columns there are, and otherwise uniform words. With the dealer's A_k it is the party's table: who runs both "
        "server and dealer knows everything."
    ),
)
CORRECTIONS = Schema(
    "corrections",
    {"number": INTEGER, "words": WORDS},
    direction=Direction("dealer", "server"),
    reveals="To the server: A_kᵀb − c for each party; uniform words, since only that party and the dealer know c.",
)
NEXT_TRIPLE = Schema(
    "next-triple",
    {"number": INTEGER},
    direction=Direction("server", "dealer"),
    reveals="To the dealer: how many rounds there are.",
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
        "ν − b modulo 2⁶⁴ to a passive party, uniform words, and what it needs to find X_kᵀν from them: as many "
        "numbers as it has columns, and a power of two that says how large ν is at most. Nothing of a single row, "
        "unless a column belongs to few rows: see the guards in privacy.md."
    ),
    coverage=Coverage(from_labels=True),
)
ENCRYPTION_KEY = Schema(
    "encryption-key",
    {"context": Field("u1", (None,))},
    direction=Direction("server", "passive party"),
    reveals="Nothing: the public key under which ν will be encrypted; the secret one stays with the server.",
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
        "ν under BFV encryption, to a passive party, and a power of two that says how large ν is at most. Nothing else "
        "to whoever lacks the server's secret key."
    ),
    coverage=Coverage(from_labels=True),
)
ENCRYPTED_PRODUCTS = Schema(
    "encrypted-products",
    {"number": INTEGER, "ciphertexts": Field("u1", (None,)), "lengths": WORDS},
    direction=Direction("passive party", "server"),
    reveals=(
        "X_kᵀν by slots behind uniform masks, under encryption; decrypted it is uniform. How noisy a ciphertext is "
        "depends on X_k, and an encryption of the masks does not drown that: circuit privacy is not promised."
    ),
)
BLINDED_SUMS = Schema(
    "blinded-sums",
    {"number": INTEGER, "words": Field("i8", ("columns",))},
    direction=Direction("server", "passive party"),
    reveals=(
        "The sums of the slots, to the party whose masks are in them: X_kᵀν, as many numbers as it has columns. "
        "Nothing of a single row, unless a column belongs to few rows: see the guards in privacy.md."
    ),
)

MASKS = Vocabulary(PUBLIC_KEY, PUBLIC_KEYS, MASKED, title="Vertical: masked sums")
TRIPLES = Vocabulary(
    DEALER_KEY,
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
