"""Compute X_kᵀν under BFV encryption (TenSEAL), without a third party.

The server encrypts ν in chunks of as many slots as a ciphertext has. A party multiplies them slot by slot with each of
its columns and adds up the chunks. It then adds an encryption of masks that are uniform over all residues, so that what
the server decrypts is uniform. The server returns the sum of the slots, from which the party subtracts the sum of its
masks. No rotations are needed, and no keys for them. One prime of 60 bits holds every sum that the grid allows: the
integers are those of the product in the clear, bit for bit.

Not promised: circuit privacy. The noise of a ciphertext depends on the columns it was multiplied with, and the holder
of the secret key can measure it. The encryption of the masks refreshes a ciphertext, but does not drown that noise.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from typing import Any, ClassVar, Final

import numpy as np
from numpy.typing import NDArray

from evenhand.errors import MissingExtraError, ProtocolError
from evenhand.privacy.fixed_products import ProductGrid
from evenhand.privacy.pairwise import KEY_BYTES, Words, stream
from evenhand.protocol.messages import Message
from evenhand.protocol.roles import SERVER, Role, Sends
from evenhand.vertical.protected.messages import (
    BLINDED_SUMS,
    CIPHERTEXTS,
    ENCRYPTED_DERIVATIVE,
    ENCRYPTED_PRODUCTS,
    ENCRYPTION_KEY,
)
from evenhand.vertical.protected.products import ProductParty, ProductServer, heads

SLOTS: Final = 8192
"""Numbers in a ciphertext. With SEAL's 218 bits for this size, security is 128 bits."""
PRIME: Final = 1152921504606830593
"""The largest prime below 2⁶⁰ that allows slots: 1 more than a multiple of 2·SLOTS."""
_EFFORT: Final = 3e6
"""Cost of a ciphertext multiplication in plain multiplications, for the virtual clock."""


class EncryptedParty(ProductParty):
    """Multiplies its columns with ν without seeing ν."""

    state_fields: ClassVar = {"_key": NDArray[np.uint8], "_seed": bytes, "_about": Message | None}

    def __init__(self, inner: Role, grid: ProductGrid, words: Words) -> None:
        super().__init__(inner, CIPHERTEXTS, grid, words)
        self._key: NDArray[np.uint8] = np.zeros(0, dtype=np.uint8)
        self._context: Any = None
        # Drawn once, so that a restarted party repeats its earlier messages exactly.
        self._seed = secrets.token_bytes(KEY_BYTES)
        self._about: Message | None = None
        self._chunks: list[dict[int, Any]] = []
        for column in words.view(np.int64):
            parts = enumerate(np.split(column, range(SLOTS, len(column), SLOTS)))
            # Indicator columns are mostly zero, often for thousands of rows. Chunks of zeros are skipped.
            self._chunks.append({place: _slots(part) for place, part in parts if part.any()})

    def take(self, message: Message) -> Sends:
        if message.sender == SERVER and message.kind == ENCRYPTION_KEY.kind and self._context is None:
            self._open(message["context"])
            return ()
        if message.sender == SERVER and message.kind == ENCRYPTED_DERIVATIVE.kind and self._context is not None:
            return [self._multiplied(message)]
        if message.sender == SERVER and message.kind == BLINDED_SUMS.kind and self._about is not None:
            return self._unblinded(self._about, message)
        raise ProtocolError(f"{self.name} takes no {message.kind!r} from {message.sender!r} at this point")

    def _unblinded(self, about: Message, message: Message) -> Sends:
        number = about.integer("number")
        if message.integer("number") != number:
            raise ProtocolError(f"{self.name} waits for the sums of {number}; others are refused")
        self._about = None
        found = [(int(total) - self._blind(number, place)[1]) % PRIME for place, total in enumerate(message["words"])]
        signed = np.array([one - PRIME if one > PRIME // 2 else one for one in found], dtype=np.int64)
        return self.told(about, signed.view(np.uint64), about.integer("scale"))

    def _open(self, key: NDArray[np.uint8]) -> None:
        self._key = key
        self._context = _read(lambda seal: seal.context_from(key.tobytes(), n_threads=1))

    def _multiplied(self, message: Message) -> Message:
        seal, context = _tenseal(), self._context
        nu = [_read(lambda seal, part=part: seal.bfv_vector_from(context, part)) for part in _parts(message)]
        if len(nu) != -(-self.grid.rows // SLOTS):
            raise ProtocolError(f"{self.name} was sent {len(nu)} ciphertexts of ν, not one for every {SLOTS} rows")
        found = []
        for place, chunks in enumerate(self._chunks):
            total = seal.bfv_vector(context, self._blind(message.integer("number"), place)[0])
            for chunk, column in chunks.items():
                total = total + nu[chunk] * column
                self.spent += _EFFORT
            found.append(total.serialize())
        # Kept until the sums arrive, without the ciphertexts.
        body = heads(message) | {name: message.integer(name) for name in ("number", "scale")}
        empty = {"ciphertexts": np.zeros(0, np.uint8), "lengths": np.zeros(0, np.int64)}
        self._about = ENCRYPTED_DERIVATIVE.message(SERVER, self.name, **body, **empty)
        return ENCRYPTED_PRODUCTS.message(self.name, SERVER, number=message.integer("number"), **_joined(found))

    def _blind(self, number: int, place: int) -> tuple[Any, int]:
        """Return masks for the slots of one column, uniform over all residues, and their sum."""
        drawn = stream(self._seed, f"{number} {place}", SLOTS + 8) >> np.uint64(4)
        masks = drawn[drawn < PRIME][:SLOTS].astype(np.int64)
        if len(masks) < SLOTS:
            raise ProtocolError("too few random masks (probability 10⁻⁸⁰); run again")
        return _slots(masks), _sum_of(masks)

    def ended(self) -> Sends:
        self._seed, self._context, self._key = b"", None, np.zeros(0, dtype=np.uint8)
        return ()

    def restored(self) -> None:
        self._context = None
        if self._key.size:
            self._open(self._key)


class EncryptedServer(ProductServer):
    """Holds the secret key, encrypts ν, and adds up masked slots."""

    state_fields: ClassVar = {"_asked": dict[str, int], "_context_bytes": bytes | None}

    def __init__(self, inner: Role, grid: ProductGrid, members: Sequence[str]) -> None:
        super().__init__(inner, CIPHERTEXTS, grid, members)
        seal = _tenseal()
        self._context: Any = seal.context(seal.SCHEME_TYPE.BFV, SLOTS, PRIME, n_threads=1)
        self._asked: dict[str, int] = {}

    def start(self) -> Sends:
        key = np.frombuffer(self._context.serialize(True, False, False, False), dtype=np.uint8)
        return [*(ENCRYPTION_KEY.message(SERVER, name, context=key) for name in self.members), *super().start()]

    @property
    def ready(self) -> bool:
        return True

    def hidden(self, about: dict[str, Any], nu: Words) -> Sends:
        parts = np.split(nu.view(np.int64), range(SLOTS, len(nu), SLOTS))
        sent = [_tenseal().bfv_vector(self._context, _slots(part)).serialize() for part in parts]
        self._asked = dict.fromkeys(self.members, self.number)
        body = about | {"number": self.number} | _joined(sent)
        return [ENCRYPTED_DERIVATIVE.message(SERVER, name, **body) for name in self.members]

    def take(self, message: Message) -> Sends:
        sender, number = message.sender, message.integer("number") if "number" in message.body else -1
        if message.kind != ENCRYPTED_PRODUCTS.kind or self._asked.get(sender) != number:
            raise ProtocolError(f"the server takes no {message.kind!r} from {sender!r} at this point")
        context = self._context
        vectors = [_read(lambda seal, part=part: seal.bfv_vector_from(context, part)) for part in _parts(message)]
        totals = [_sum_of(np.array(one.decrypt(), dtype=np.int64)) % PRIME for one in vectors]
        del self._asked[sender]
        return [BLINDED_SUMS.message(SERVER, sender, number=number, words=np.array(totals, dtype=np.int64))]

    def ended(self) -> Sends:
        self._context = None
        return ()

    @property
    def _context_bytes(self) -> bytes | None:
        """All keys, including the secret one, for checkpoints."""
        return None if self._context is None else self._context.serialize(True, True, False, False)

    @_context_bytes.setter
    def _context_bytes(self, content: bytes | None) -> None:
        self._context = None if content is None else _read(lambda seal: seal.context_from(content, n_threads=1))


def _slots(part: NDArray[np.int64]) -> Any:
    """Return numbers in the library's format, padded with zeros to the number of slots."""
    return _tenseal().plain_tensor(np.pad(part, (0, SLOTS - len(part))), dtype="int")


def _sum_of(values: NDArray[np.int64]) -> int:
    """Return the exact sum, which needs more than 64 bits."""
    high = values >> 30
    return (int(high.sum()) << 30) + int((values - (high << 30)).sum())


def _joined(ciphertexts: Sequence[bytes]) -> dict[str, NDArray[Any]]:
    lengths = np.array([len(one) for one in ciphertexts], dtype=np.int64)
    return {"ciphertexts": np.frombuffer(b"".join(ciphertexts), dtype=np.uint8), "lengths": lengths}


def _parts(message: Message) -> list[bytes]:
    """Return the ciphertexts of a message."""
    content, lengths = message["ciphertexts"], message["lengths"]
    if (lengths < 0).any() or lengths.sum() != len(content):
        raise ProtocolError(
            f"{message.sender}: the lengths of its ciphertexts do not match their content; the message is refused"
        )
    return [part.tobytes() for part in np.split(content, np.cumsum(lengths)[:-1])] if len(lengths) else []


def _read(how: Any) -> Any:
    """Read another participant's bytes with the library; refuse what it cannot read."""
    try:
        return how(_tenseal())
    except (ValueError, RuntimeError) as error:
        raise ProtocolError("a key or ciphertext is invalid; the message is refused") from error


def _tenseal() -> Any:
    try:
        import tenseal
    except ImportError as error:
        raise MissingExtraError("protection 'encrypted'", "encrypted") from error
    return tenseal
